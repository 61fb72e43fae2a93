"""Local Lipschitz constants against full decompositions, and what their records say."""

from functools import partial

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.sparse.linalg import LinearOperator, svds
from torch import Tensor

from smoothness.layers import VARIANTS, D, Residual, Variant, explicit, normal
from wordsway import Attention, RandomAttention, gaussian_context
from wordsway.smoothness import AttentionJacobian, local_lipschitz, local_lipschitz_many
from wordsway.smoothness.lanczos import top_triplets

Array = npt.NDArray[np.float64]


@pytest.mark.parametrize("n", [5, 23])  # the first has few enough inputs to be decomposed as a matrix
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_the_constant_is_the_norm_of_the_jacobian(variant: Variant, n: int) -> None:
    layer, X = variant.layer(), normal(1)(n, D)
    found = local_lipschitz(layer, X, tolerance=1e-9)
    assert found.converged
    assert found.value == pytest.approx(float(torch.linalg.svdvals(explicit(layer, X))[0]), rel=1e-9)
    assert (found.ceiling == found.value) == (n == 5) == (found.failure == 0) == (found.doubt == 0)
    assert found.ceiling <= 1.5 * found.value


def test_scipy_agrees_on_a_larger_layer() -> None:
    layer = RandomAttention(32, seed=2)
    X = gaussian_context(60, 32, seed=3)
    operator = AttentionJacobian(layer.attention, X[None])

    def product(x: Array) -> Array:
        return operator.product(torch.from_numpy(x).reshape(1, 60, 32)).numpy().ravel()

    def adjoint(x: Array) -> Array:
        return operator.adjoint(torch.from_numpy(x).reshape(1, 60, 32)).numpy().ravel()

    size = X.numel()
    whole = LinearOperator((size, size), matvec=product, rmatvec=adjoint, dtype=np.float64)
    oracle = svds(whole, k=1, return_singular_vectors=False)
    found = local_lipschitz(layer, X)
    assert found.value == pytest.approx(float(oracle[0]), rel=1e-6)
    assert found.value <= float(oracle[0]) * (1 + 1e-12)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-8])
def test_the_witness_and_the_residual_are_right(tolerance: float) -> None:
    layer, X = Variant(causal=True, biases=True, output=True).layer(), normal(4)(30, D)
    found = local_lipschitz(layer, X, tolerance)
    matrix = explicit(layer, X)
    assert float(found.left.norm()) == pytest.approx(1)
    assert float(found.right.norm()) == pytest.approx(1)
    torch.testing.assert_close(matrix @ found.right.ravel(), found.value * found.left.ravel())
    rest = matrix.mT @ found.left.ravel() - found.value * found.right.ravel()
    assert float(rest.norm()) == pytest.approx(found.residual, abs=1e-10)
    assert found.residual <= tolerance * found.value


def test_moving_along_the_witness_is_that_steep() -> None:
    layer, X = RandomAttention(8), gaussian_context(10, 8, seed=1)
    found = local_lipschitz(layer, X, 1e-8)
    step = 1e-6
    moved = layer(X + step * found.right) - layer(X - step * found.right)
    assert float(moved.norm()) / (2 * step) == pytest.approx(found.value, rel=1e-7)


def test_restarts_reach_the_same_value() -> None:
    """A spectrum so flat that one basis is not enough."""
    size = 400
    spectrum = torch.linspace(1, 0.9, size, dtype=torch.float64)
    found = local_lipschitz(lambda X: X * spectrum, torch.ones(1, size, dtype=torch.float64), 1e-8, products=4000)
    assert found.converged
    assert found.products > 2 * 24  # more than one basis
    assert found.value == pytest.approx(1, rel=1e-10)
    assert float(found.right.abs().argmax()) == 0


@pytest.mark.parametrize(("tolerance", "apart", "vectors"), [(1e-8, 1e-12, 1e-6), (1e-4, 1e-10, 1e-4)])
def test_each_of_a_batch_is_what_it_is_alone(tolerance: float, apart: float, vectors: float) -> None:
    """Up to rounding errors: of searches in float64, and those of float32, which values have squared."""
    layer = Variant(output=True).layer()
    contexts = normal(5)(4, 25, D) * torch.tensor([0.1, 1.0, 2.0, 4.0], dtype=torch.float64)[:, None, None]
    batch = local_lipschitz_many(layer, contexts, tolerance)
    alone = [local_lipschitz(layer, X, tolerance) for X in contexts]
    assert len({one.products for one in alone}) > 1  # some stop before others
    for one, other in zip(batch, alone, strict=True):
        assert (one.products, one.status) == (other.products, other.status)
        assert one.value == pytest.approx(other.value, rel=apart)
        torch.testing.assert_close(one.right, other.right, atol=vectors, rtol=vectors)


def test_too_few_products_are_reported() -> None:
    layer, X = RandomAttention(16), gaussian_context(20, 16)
    found = local_lipschitz(layer, X, 1e-8, products=5)
    assert not found.converged
    assert found.products == 4
    assert found.status.startswith("stopped after 4 products with a residual of ")
    assert found.residual > 1e-8 * found.value
    assert found.value <= local_lipschitz(layer, X).value  # still a lower bound


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-11)])
@pytest.mark.parametrize("n", [6, 40])
def test_large_scores_keep_their_digits(n: int, dtype: torch.dtype, tolerance: float) -> None:
    """Scores of the size 1e8 that differ by a few units, against the formula with the large coordinate left out."""
    d, X = 4, normal(0)(n, 4)
    X[:, 0] = 1.4e4
    small = X.clone()
    small[:, 0] = 0  # the same for all words, so that it changes no weight
    P = torch.softmax(small @ small.mT / 2, -1)
    gaps = small - (P @ small)[:, None]  # i j d
    matrix = torch.einsum("ij,ab->iajb", P, torch.eye(d, dtype=torch.float64))
    matrix += torch.einsum("ij,ija,ib->iajb", P, gaps, X / 2)
    matrix += torch.einsum("ij,ija,ijb,ik->iakb", P, gaps, gaps / 2, torch.eye(n, dtype=torch.float64))
    expected = float(torch.linalg.svdvals(matrix.reshape(n * d, n * d))[0])
    found = local_lipschitz(Attention(torch.eye(d), None), X.to(dtype), tolerance=1e-6)
    assert found.converged
    assert found.value == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_tied_scores_of_any_size_are_a_plain_mean(scale: float) -> None:
    found = local_lipschitz(Attention(scale * normal(1)(8, 8), torch.eye(8)), normal(2)(1, 8).expand(30, -1).float())
    assert found.value == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("n", [3, 300])
def test_a_layer_that_does_not_move_is_0(n: int) -> None:
    found = local_lipschitz(lambda X: 0 * X, torch.ones(n, 2))
    assert (found.value, found.residual, found.ceiling, found.status) == (0, 0, 0, "converged")


def test_a_derivative_of_rounding_errors_converges() -> None:
    """The norm of a unit vector is constant; products with its derivative are rounding errors of the size 1e-16."""
    layer = lambda X: torch.nn.functional.normalize(X, dim=-1).square().sum(-1)  # noqa: E731
    found = local_lipschitz(layer, normal(5)(30, D), 1e-9)
    assert found.converged
    assert found.value < 1e-14
    assert found.products < 50


# Clustered spectra


def test_the_largest_of_nearly_equal_singular_values_is_not_missed() -> None:
    """Attention with small scores is nearly a mean, whose singular values come in clusters."""
    for seed, d, scale in [*((seed, 16, 3e-3) for seed in range(400)), *((seed, 80, 3e-4) for seed in range(30))]:
        source = torch.Generator().manual_seed(seed)
        W = scale * torch.randn(d, d, generator=source, dtype=torch.float64)
        X = torch.randn(2, d, generator=source, dtype=torch.float64)
        layer = Attention(W, torch.eye(d, dtype=torch.float64), causal=True)
        found = local_lipschitz(layer, X, seed=seed)
        assert found.value == pytest.approx(float(torch.linalg.svdvals(explicit(layer, X))[0]), rel=1e-4), (seed, d)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_vectors_stay_orthogonal_over_many_steps(dtype: torch.dtype) -> None:
    """Each new vector is a small rest of what it was: errors of the basis must not grow from one to the next."""
    rest = torch.linspace(0, 1, 199, dtype=dtype)
    spectrum = torch.cat([rest.new_tensor([1.0003]), 1 - 0.5 * rest**4])
    for seed in range(5):
        found = local_lipschitz(partial(torch.mul, spectrum), torch.ones(1, 200, dtype=dtype), 1e-5, seed=seed)
        assert found.value == pytest.approx(1.0003, rel=1e-5)
        assert float(found.right.norm()) == pytest.approx(1, rel=1e-5)
        assert found.ceiling >= 1.0003 * (1 - 1e-5)


@pytest.mark.parametrize("products", [6, 20, 48, 100])
@pytest.mark.parametrize("top", [1.001, 1.03, 1.3])
def test_the_ceiling_holds_for_any_spectrum(top: float, products: int) -> None:
    size = 300
    flat = torch.linspace(0, 1, size, dtype=torch.float64)
    for seed, spectrum in enumerate((flat, flat.sqrt(), 1 - flat**2, torch.ones_like(flat))):
        spectrum = torch.cat([spectrum, spectrum.new_tensor([top])])
        X = torch.ones(1, size + 1, dtype=torch.float64)
        found = local_lipschitz(partial(torch.mul, spectrum), X, 1e-12, products, seed=seed)
        assert found.value <= top * (1 + 1e-12) <= found.ceiling * (1 + 1e-11)
        assert found.failure == 1e-6
        if products >= 48:
            assert found.ceiling <= 1.1 * found.value


@pytest.mark.parametrize("products", [20, 26])
def test_a_small_doubt_is_rarely_wrong(products: int) -> None:
    """It is a p-value: at most a share p of all starts misses the largest value with a doubt of at most p."""
    size, top, starts = 300, 1.02, 200
    spectrum = torch.cat([torch.linspace(0, 1, size, dtype=torch.float64), torch.tensor([top], dtype=torch.float64)])
    X = torch.ones(1, size + 1, dtype=torch.float64)
    found = [local_lipschitz(partial(torch.mul, spectrum), X, 1e-2, products, seed=seed) for seed in range(starts)]
    missed = [one.doubt for one in found if 1.01 * one.value < top]
    assert 0 < len(missed) < starts
    for level in (0.1, 0.2, 0.5):
        assert sum(doubt <= level for doubt in missed) <= starts * level
    assert min(one.doubt for one in found) < 0.7


def test_one_word_sees_only_itself() -> None:
    value = normal(6)(D, D)
    found = local_lipschitz(Attention(normal(7)(D, D), None, value), normal(8)(1, D), 1e-9)
    assert found.value == pytest.approx(float(torch.linalg.matrix_norm(value, ord=2)))


def test_any_callable_can_be_measured() -> None:
    X = normal(9)(3, 4)
    found = local_lipschitz(lambda X: torch.tanh(X).flatten()[:7], X, 1e-9)
    assert found.value == pytest.approx(float((1 - torch.tanh(X) ** 2).flatten()[:7].max()))
    assert found.left.shape == (7,)


@pytest.mark.parametrize(("n", "d", "more"), [(128, 768, 0.02), (16, 64, 0.001)])
def test_a_layer_that_is_nearly_the_identity_has_its_largest_value(n: int, d: int, more: float) -> None:
    """All singular values but one are 1: a random vector is nearly a singular one, and must not be believed."""
    u = torch.nn.functional.normalize(normal(2)(n * d), dim=0).reshape(n, d)
    found = local_lipschitz(lambda X: X + more * u * (u * X).sum(), torch.zeros(n, d, dtype=torch.float64))
    assert found.value == pytest.approx(1 + more, rel=1e-9)


def test_a_block_around_attention_is_measured_whole() -> None:
    block, X = Residual(RandomAttention(4, seed=1).attention), gaussian_context(5, 4, seed=2)
    found = local_lipschitz(block, X, 1e-9)
    assert found.value == pytest.approx(float(torch.linalg.svdvals(explicit(block, X))[0]), rel=1e-9)


def test_the_seed_decides_the_start_alone() -> None:
    layer, X = RandomAttention(6), gaussian_context(7, 6)
    state = torch.get_rng_state()
    values = [local_lipschitz(layer, X, 1e-10, seed=seed).value for seed in (0, 1)]
    assert torch.equal(torch.get_rng_state(), state)
    assert values[0] == pytest.approx(values[1], rel=1e-12)
    assert values[0] == local_lipschitz(layer, X, 1e-10, seed=0).value


@pytest.mark.parametrize("kind", [list, tuple])
def test_contexts_may_come_as_a_list(kind: type) -> None:
    layer, contexts = RandomAttention(4), normal(3)(3, 5, 4)
    listed = local_lipschitz_many(layer, kind(contexts))
    assert [one.value for one in listed] == [one.value for one in local_lipschitz_many(layer, contexts)]
    arrays = local_lipschitz_many(layer, kind(contexts.numpy()))
    assert [one.value for one in arrays] == [one.value for one in listed]


def test_an_operator_needs_only_products() -> None:
    """The decomposition of a small operator given by hand, as a user's own Jacobian would be."""

    class Matrix:
        inputs: tuple[int, ...] = (1, 3)
        outputs: tuple[int, ...] = (1, 2)
        like = torch.empty(0, dtype=torch.float64)
        entries = torch.tensor([[3.0, 0.0, 0.0], [0.0, 4.0, 0.0]], dtype=torch.float64)

        def product(self, change: Tensor) -> Tensor:
            return change @ self.entries.mT

        def adjoint(self, change: Tensor) -> Tensor:
            return change @ self.entries

        def take(self, places: Tensor) -> "Matrix":
            raise AssertionError("a batch of one is never cut")

    for products in (2, 50):  # too few for the whole matrix, and enough
        found = top_triplets(Matrix(), 1e-12, products)
        assert bool(found.converged) == (products == 50)
        assert float(found.values[0]) <= 4
    assert float(found.values[0]) == pytest.approx(4)
    assert found.left.abs().round(decimals=6).tolist() == [[0, 1]]
