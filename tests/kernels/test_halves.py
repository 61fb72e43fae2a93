"""Networks of two halves: their start, their gradient, and what training them converges to."""

import pytest
import torch
from maps.twins import normal

from wordsway.errors import NumericalError
from wordsway.kernels import FeatureModel, Network, ntk, train_first_weight, two_halves


def test_two_equal_halves_start_at_zero_with_the_weights_of_ntk_features() -> None:
    network, X = two_halves(6, 5, "gelu", seed=3), normal(4, 6)
    model = FeatureModel("ntk", X, normal(4, seed=1), 5, "gelu", seed=3)
    first, last = network.weights
    torch.testing.assert_close(first, torch.cat([*model.weights(), *model.weights()]).double())
    assert last.tolist() == [[1.0] * 5 + [-1.0] * 5]
    assert float(network(X).abs().max()) < 1e-14
    torch.testing.assert_close(ntk(network, X, layer=0), 2 * model.kernel)


def test_a_linear_first_weight_ends_at_the_regression() -> None:
    """With the identity the network is linear in its first weight, and training ends at the nearest solution."""
    X, y, new = normal(4, 6), normal(4, seed=1), normal(3, 6, seed=2)
    network = Network([normal(5, 6, seed=3), normal(1, 5, seed=4)], "identity")
    descent = train_first_weight(network, X, y, 10_000)
    assert descent.interpolates
    assert descent.losses[-1] == descent.loss <= 1e-16
    assert bool((descent.losses.diff() < 0).all())
    expected = network(new) + new @ X.mT @ torch.linalg.solve(X @ X.mT, y - network(X))
    torch.testing.assert_close(descent.network(new), expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(descent.network.weights[1], network.weights[1])


def test_steps_that_run_out_are_reported() -> None:
    network, X, y = two_halves(6, 5, "cos"), normal(4, 6), normal(4, seed=1)
    short = train_first_weight(network, X, y, 3)
    assert (short.interpolates, len(short.losses)) == (False, 4)
    assert short.loss == pytest.approx(float(((short.network(X) - y) ** 2).mean()))


def test_a_network_without_gradients_is_refused() -> None:
    with pytest.raises(NumericalError, match="the kernel of the first weight must not be 0"):
        train_first_weight(two_halves(6, 5), torch.zeros(4, 6), normal(4), 5)


def test_a_descent_that_diverges_ends_with_its_reason() -> None:
    with pytest.raises(NumericalError, match="gradient descent diverges"):
        train_first_weight(two_halves(4, 2, "square"), 3 * normal(6, 4), 1e4 * normal(6, seed=1), 200)


def test_the_first_weight_moves_down_its_gradient() -> None:
    network = Network(
        [normal(3, 4), normal(2, 3, seed=1), normal(1, 2, seed=2)], "tanh", [normal(3), normal(2), normal(1)]
    )
    X, y = normal(5, 4, seed=3), normal(5, seed=4)
    moved = train_first_weight(network, X, y, 1).network
    weight = network.weights[0].clone().requires_grad_()
    assert network.biases is not None
    (one, two, three), (_, second, third) = network.biases, network.weights
    outputs = torch.tanh(torch.tanh(X @ weight.mT + one) @ second.mT + two) @ third.mT + three
    (gradient,) = torch.autograd.grad(((outputs[:, 0] - y) ** 2).sum() / 2, weight)
    step = (network.weights[0] - moved.weights[0]) / gradient
    torch.testing.assert_close(step, step.mean().expand(3, 4))
    assert float(step.mean()) == pytest.approx(1 / float(torch.linalg.eigvalsh(ntk(network, X, layer=0))[-1]))
