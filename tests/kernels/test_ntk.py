"""Tangent kernels of fully connected networks against autograd Jacobians, and their smallest eigenvalues."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from maps.twins import normal
from torch import Tensor, nn

from wordsway import NumericalError, gaussian_context
from wordsway.kernels import Network, ntk, ntk_chain, smallest_eigenvalue

ACTIVATIONS = ("tanh", "gelu", "softplus", "cos", "square", "sigmoid", "relu", "identity")


def jacobian(network: Network, X: Tensor) -> Tensor:
    """(N, parameters), by autograd."""

    def outputs(weights: tuple[Tensor, ...], biases: tuple[Tensor, ...]) -> Tensor:
        reached = X
        for k, weight in enumerate(weights):
            reached = reached @ weight.mT + (biases[k] if biases else 0)
            if k + 1 < len(weights):
                reached = network.activation(reached)
        return reached[:, 0]

    found: Any = torch.func.jacrev(outputs, argnums=(0, 1))(network.weights, network.biases or ())
    return torch.cat([part.flatten(1) for group in found for part in group], dim=1)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=4),
    st.integers(1, 6),
    st.sampled_from(ACTIVATIONS),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_the_kernel_is_that_of_the_jacobian(widths: list[int], count: int, name: str, biases: bool, seed: int) -> None:
    network = Network.drawn(widths, name, seed=seed, biases=biases, scale=1.5)
    X = normal(count, widths[0], seed=seed + 1)
    J, K = jacobian(network, X), ntk(network, X)
    assert J.shape == (count, network.parameters)
    torch.testing.assert_close(K, J @ J.mT, rtol=1e-10, atol=1e-10)
    assert torch.equal(K, K.mT)


def test_the_layers_add_up_and_each_is_its_block() -> None:
    network, X = Network.drawn([4, 6, 5], "tanh", seed=3), normal(7, 4)
    sizes = [weight.numel() for weight in network.weights]
    for k, part in enumerate(torch.split(jacobian(network, X), sizes, dim=1)):
        torch.testing.assert_close(ntk(network, X, layer=k), part @ part.mT)
    torch.testing.assert_close(sum(ntk(network, X, layer=k) for k in range(3)), ntk(network, X))


class Quadratic(nn.Module):
    """A module that is no fully connected network."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Parameter(normal(3, 4))
        self.two = nn.Parameter(normal(3, seed=1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x @ self.one.mT) ** 2 @ self.two


@pytest.mark.parametrize("size", [1, 500, 10**9])
def test_any_module_goes_through_its_jacobian_in_chunks(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wordsway.kernels.tangent._CHUNK", size)
    module, X = Quadratic(), normal(7, 4, seed=2)
    rows = [torch.autograd.grad(module(x[None]).sum(), list(module.parameters())) for x in X]
    J = torch.stack([torch.cat([part.flatten() for part in row]) for row in rows])
    torch.testing.assert_close(ntk(module, X), J @ J.mT)
    assert all(p.requires_grad for p in module.parameters())


def test_a_module_is_taken_in_the_precision_of_the_inputs() -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 1))
    net(normal(20, 4, seed=1).float())  # sets the buffers of the norm
    net.eval()
    X = normal(5, 4)
    torch.testing.assert_close(ntk(net, X), ntk(copy.deepcopy(net).double(), X), rtol=1e-12, atol=1e-12)
    assert ntk(copy.deepcopy(net).double(), X.float()).dtype == torch.float32
    assert {value.dtype for value in net.parameters()} == {torch.float32}


def test_the_network_is_its_formula() -> None:
    network = Network([[[1.0, -1.0], [0.5, 2.0]], [[3.0, -2.0]]], "square", [[0.1, 0.2], [0.3]])
    x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    hidden = [(1 - 2 + 0.1) ** 2 / 2, (0.5 + 4 + 0.2) ** 2 / 2]
    assert float(network(x)) == pytest.approx(3 * hidden[0] - 2 * hidden[1] + 0.3)
    assert (network.d, network.depth, network.parameters) == (2, 2, 9)


def test_drawn_weights_have_their_variance_and_seeds_of_their_own() -> None:
    network = Network.drawn([300, 200], scale=2.0, seed=1)
    assert float(network.weights[0].var()) * 300 == pytest.approx(2, rel=0.03)
    assert not torch.equal(network.weights[0], Network.drawn([300, 200], scale=2.0, seed=2).weights[0])


# The chain of the proof


def test_the_smallest_eigenvalues_along_the_chain_and_the_distance_to_a_multiple_of_the_identity() -> None:
    X = normal(30, 40, seed=5)
    distances = []
    for width in (20, 300):
        network = Network.drawn([40, width, width], "tanh", seed=4)
        chain, K = ntk_chain(network, X), ntk(network, X)
        assert float(torch.linalg.eigvalsh(K - chain.block)[0]) > -1e-9 * float(K.abs().max())
        torch.testing.assert_close(chain.block, ntk(network, X, layer=1))
        torch.testing.assert_close(chain.twice.sum(0), torch.zeros(30, dtype=torch.float64), atol=1e-9, rtol=0)
        complement = torch.linalg.qr(torch.cat([torch.ones(30, 1), normal(30, 29)], 1)).Q[:, 1:].double()
        inside = torch.linalg.eigvalsh(complement.mT @ chain.twice @ complement)
        assert chain.scale == pytest.approx(float(inside.mean()))
        assert chain.distance == pytest.approx(float((inside / chain.scale - 1).abs().max()))
        assert chain.smallest_twice == pytest.approx(float(inside[0]))
        for name, matrix in (("kernel", K), ("block", chain.block), ("centred", chain.centred)):
            expected = float(torch.linalg.eigvalsh(matrix)[0])
            assert getattr(chain, f"smallest_{name}") == pytest.approx(expected)
        assert chain.smallest_kernel >= chain.smallest_block * (1 - 1e-9)
        assert chain.smallest_twice >= chain.smallest_centred * (1 - 1e-9)
        distances.append(chain.distance)
    assert distances[1] < min(0.8, distances[0])
    assert chain.smallest_block > 0.5 * chain.smallest_centred


def test_centring_is_no_order_of_matrices() -> None:
    chain = ntk_chain(Network.drawn([40, 20, 20], "square"), gaussian_context(30, 40))
    assert float(torch.linalg.eigvalsh(chain.block - chain.centred)[0]) < -0.01 * float(chain.block.diagonal().mean())


def test_the_centred_matrices_by_hand() -> None:
    network, X = Network.drawn([3, 4, 5], "gelu", seed=6), normal(6, 3, seed=7)
    passes = network.passes(X)
    f = passes.features[1] - passes.features[1].mean(0)
    b = passes.backward[1] - passes.backward[1].mean(0)
    rows = torch.einsum("ni,nj->nij", f, b).flatten(1)
    chain = ntk_chain(network, X)
    torch.testing.assert_close(chain.centred, rows @ rows.mT)
    rows = rows - rows.mean(0)
    torch.testing.assert_close(chain.twice, rows @ rows.mT)


def test_a_chain_without_differences_has_no_scale() -> None:
    for network, X in (
        (Network.drawn([3, 4, 4]), normal(1, 3).expand(4, 3)),
        (Network.drawn([3, 4, 4], "identity"), normal(4, 3)),
    ):
        with pytest.raises(NumericalError, match="inputs, or what is propagated back from them, must differ"):
            ntk_chain(network, X)


# Smallest eigenvalues


@pytest.mark.parametrize("count", [1, 5, 80, 500])
def test_the_smallest_eigenvalue_is_that_of_the_dense_solver(count: int) -> None:
    A = normal(count, 2 * count, seed=count)
    K = A @ A.mT
    found = smallest_eigenvalue(K)
    assert found.value == pytest.approx(float(np.linalg.eigvalsh(K.numpy())[0]), rel=1e-9)
    assert found.method == ("dense" if count <= 400 else "inverse")
    rest = K @ found.vector - found.value * found.vector
    assert float(rest.norm()) == pytest.approx(found.residual, abs=1e-12)
    assert found.residual < 1e-9 * float(K.abs().max()) * count
    assert (found.status, found.singular) == ("regular", False)


@pytest.mark.parametrize("count", [6, 500])
def test_the_status_of_a_singular_kernel(count: int) -> None:
    A = normal(count, count - 2, seed=count)
    found = smallest_eigenvalue(A @ A.mT)
    assert found.singular
    assert abs(found.value) <= found.floor


@pytest.mark.parametrize("seed", range(5))
def test_a_kernel_is_as_exact_as_its_dtype(seed: int) -> None:
    """Rank 100 of 101: in float32 rounding makes the least eigenvalue anything up to 1e-8, which means nothing."""
    network, X = Network.drawn([30, 10, 10], "tanh", seed), gaussian_context(101, 30, seed).float()
    found = smallest_eigenvalue(ntk(network, X, layer=1))
    assert found.singular
    assert found.floor > 1e-5


def test_a_negative_eigenvalue_is_found_too() -> None:
    K = torch.eye(450, dtype=torch.float64)
    K[3, 3] = -2.0
    found = smallest_eigenvalue(K)
    assert found.value == pytest.approx(-2)
    assert (found.method, found.status) == ("dense", "singular")
