"""Gradient flow and descent: against exact solutions, the bound of the theory, and interpolation."""

import pytest
import torch
from maps.twins import normal

from wordsway.kernels import Network, descend, gradient_flow, ntk


def test_a_linear_network_follows_its_kernel_exactly() -> None:
    network, X, y = Network([normal(1, 5)]), normal(4, 5, seed=1), normal(4, seed=2)
    flow = gradient_flow(network, X, y, [0.0, 0.1, 0.5, 2.0], tolerance=1e-9)
    torch.testing.assert_close(flow.actual, flow.linear, rtol=1e-6, atol=1e-9)
    rest = network(X) - y
    for t, loss in zip(flow.times, flow.linear, strict=True):
        moved = torch.linalg.matrix_exp(-t * X @ X.mT) @ rest
        assert float(loss) == pytest.approx(0.5 * float(moved @ moved), rel=1e-9)


@pytest.mark.parametrize("biases", [False, True])
def test_the_actual_flow_goes_down_the_gradient(biases: bool) -> None:
    network, X, y = Network.drawn([3, 6, 5], "tanh", biases=biases), normal(4, 3, seed=1), normal(4, seed=2)
    step = 1e-4
    flow = gradient_flow(network, X, y, [0.0, step], tolerance=1e-10)
    rest = network(X) - y
    expected = -float(rest @ ntk(network, X) @ rest)  # dL/dt = -|grad L|^2 = -r^T K r
    assert (float(flow.actual[1]) - float(flow.actual[0])) / step == pytest.approx(expected, rel=1e-2)
    assert float(flow.actual[0]) == pytest.approx(0.5 * float(rest @ rest))


def test_the_kernel_along_the_flow_is_that_of_the_moved_network() -> None:
    network, X, y = Network.drawn([3, 6, 5], "tanh", seed=2), normal(4, 3, seed=1), normal(4, seed=2)
    flow = gradient_flow(network, X, y, [0.0, 0.05, 0.1], tolerance=1e-9)
    weights = list(network.weights)
    for _ in range(1000):  # Euler's method
        moved = Network(weights)
        passes = moved.passes(X)
        pulled = [backward * (passes.outputs - y)[:, None] for backward in passes.backward]
        steps = [back.mT @ features for back, features in zip(pulled, passes.features, strict=True)]
        weights = [weight - 1e-4 * step for weight, step in zip(weights, steps, strict=True)]
    ends = (network, Network(weights))
    expected = [float(torch.linalg.eigvalsh(ntk(end, X))[0]) for end in ends]
    assert [float(flow.lambda_min[place]) for place in (0, -1)] == pytest.approx(expected, rel=1e-3)
    assert abs(expected[1] / expected[0] - 1) > 0.01  # the kernel moves


def test_wide_networks_stay_below_the_bound_and_near_their_linearisation() -> None:
    network, X, y = Network.drawn([20, 150, 150], "tanh", seed=3), normal(8, 20, seed=4), normal(8, seed=5)
    slow = gradient_flow(network, X, y, [0.0]).smallest.value
    flow = gradient_flow(network, X, y, [0.0, 0.5 / slow, 2 / slow])
    assert bool((flow.actual <= flow.bound * (1 + 1e-9)).all())
    assert bool((flow.linear <= flow.bound * (1 + 1e-9)).all())
    assert float(flow.actual[1] / flow.linear[1]) == pytest.approx(1, abs=0.5)


def test_descent_interpolates_with_enough_parameters_and_not_with_too_few() -> None:
    X, y = normal(40, 6), normal(40, seed=1)
    wide = descend(Network.drawn([6, 20, 20], "tanh"), X, y, 4000)
    narrow = descend(Network.drawn([6, 1], "tanh"), X, y, 4000)
    assert wide.interpolates
    assert wide.loss <= 1e-6
    assert not narrow.interpolates
    assert narrow.loss > 0.1
    assert float(((wide.network(X) - y) ** 2).mean()) == wide.loss
    assert len(wide.losses) < 4000


def test_descent_is_in_the_precision_of_the_inputs() -> None:
    network, X, y = Network.drawn([6, 20, 20], "relu", scale=2.0), normal(40, 6), normal(40, seed=1)
    single, double = (descend(network, X.to(dtype), y, 200) for dtype in (torch.float32, torch.float64))
    assert {weight.dtype for weight in single.network.weights} == {torch.float32}
    assert {weight.dtype for weight in double.network.weights} == {torch.float64}
    torch.testing.assert_close(single.losses[:20], double.losses[:20], rtol=1e-4, atol=1e-6)
    assert single.losses[0] != double.losses[0]


@pytest.mark.parametrize(("width", "rate"), [(60, 0.01), (400, 0.0025)])
def test_the_first_step_of_adam_is_smaller_for_wide_layers(width: int, rate: float) -> None:
    network, X, y = Network.drawn([6, width], "tanh"), normal(4, 6), normal(4, seed=1)
    moved = descend(network, X, y, 1).network
    steps = torch.cat([(new - old).flatten() for new, old in zip(moved.weights, network.weights, strict=True)])
    assert float(steps.abs().max()) == pytest.approx(rate, rel=1e-4)


def test_descent_leaves_the_network_as_it_was() -> None:
    network = Network.drawn([3, 4], "tanh", biases=True)
    before = [weight.clone() for weight in network.weights]
    trained = descend(network, normal(5, 3), normal(5, seed=1), 20).network
    assert all(torch.equal(one, other) for one, other in zip(before, network.weights, strict=True))
    assert trained.biases is not None
    assert not torch.equal(trained.weights[0], network.weights[0])


def test_losses_of_descent_are_in_double_precision() -> None:
    network, X, y = Network.drawn([3, 4]), normal(5, 3), normal(5, seed=1)
    losses = descend(network, X, y, 3).losses
    assert losses.dtype == torch.float64
    assert float(losses[0]) == pytest.approx(float(((network(X) - y) ** 2).mean()), rel=1e-14)
