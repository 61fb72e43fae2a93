"""Searches in float32 whose values are those of float64, and when they are repeated in float64."""

import pytest
import torch

from smoothness.layers import VARIANTS, D, Variant, normal
from wordsway import Attention, local_lipschitz
from wordsway.errors import NumericalError
from wordsway.smoothness import AttentionJacobian
from wordsway.smoothness.lanczos import Triplets, top_triplets
from wordsway.smoothness.refined import refined_triplets


def _both(layer: Attention, contexts: torch.Tensor, tolerance: float = 1e-4) -> tuple[Triplets, Triplets]:
    operator = AttentionJacobian(layer, contexts)
    return refined_triplets(operator, tolerance, 400), top_triplets(operator, tolerance, 400)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_values_are_those_of_a_search_in_float64(variant: Variant) -> None:
    found, plain = _both(variant.layer(), normal(1)(3, 25, D))
    assert found.values.dtype == found.right.dtype == torch.float64
    assert found.converged.all()
    torch.testing.assert_close(found.values, plain.values, rtol=1e-9, atol=0)
    assert (found.residuals <= 1e-4 * found.values).all()
    assert (found.ceilings > plain.ceilings).all()  # rounding errors of the search are allowed for
    assert (found.ceilings < (1 + 1e-4) * plain.ceilings).all()
    assert (found.doubts >= plain.doubts * (1 - 1e-3)).all()


def test_a_kept_and_a_recomputed_operator_search_alike() -> None:
    layer, X = Variant(causal=True, rotary=True, output=True).layer(), normal(2)(2, 30, D)
    for store in (True, False):
        operator = AttentionJacobian(layer, X, store)
        single, change = operator.single(), normal(3)(2, 30, D)
        torch.testing.assert_close(single.product(change.float()).double(), operator.product(change), rtol=0, atol=1e-4)
        torch.testing.assert_close(
            single.take(torch.tensor([1])).adjoint(operator.product(change)[1:].float()).double(),
            operator.adjoint(operator.product(change))[1:],
            rtol=0,
            atol=1e-4,
        )


def test_scores_that_float32_cannot_hold_are_searched_in_float64() -> None:
    """Large scores that nearly cancel: products in float32 are wrong by more than ceilings allow."""
    X = normal(0)(40, 4)
    X[:, 0] += 1.4e4 * torch.linspace(1, 2, 40, dtype=torch.float64)
    layer = Attention(1e-4 * torch.eye(4, dtype=torch.float64), None)
    found, plain = _both(layer, X[None])
    torch.testing.assert_close(found.values, plain.values, rtol=1e-9, atol=0)
    torch.testing.assert_close(found.ceilings, plain.ceilings, rtol=1e-9, atol=0)
    assert (found.products > plain.products).all()


@pytest.mark.parametrize("products", [24, 26, 28, 48])
def test_a_second_search_with_few_products_does_not_replace_a_better_value(products: int) -> None:
    draw = normal(8)
    query, key, value = (draw(16, 16) / 4 for _ in range(3))
    operator = AttentionJacobian(Attention(2500 * query.mT @ key, None, value), draw(1, 24, 16))
    exact = float(top_triplets(operator, 1e-10, 400).values[0])
    found = refined_triplets(operator, 1e-4, products)
    assert float(found.values[0]) == pytest.approx(exact, rel=1e-6)
    assert float(found.ceilings[0]) >= exact
    assert bool(found.converged[0]) == (products == 48)


def test_what_overflows_in_float32_is_measured() -> None:
    layer, X = Attention(1e-80 * torch.eye(8).double(), None), normal(3)(20, 8)
    found, plain = _both(layer, 1e40 * X[None])
    torch.testing.assert_close(found.values, plain.values)


@pytest.mark.parametrize("scale", [1e-150, 1e-45, 1e-30, 1e-16, 1.0, 1e16, 1e20, 1e30, 1e100])
@pytest.mark.parametrize("size", [1e-8, 1.0])
def test_jacobians_of_any_size_have_values_and_ceilings(scale: float, size: float) -> None:
    """Squares and products of such numbers are 0 or infinite in float32."""
    draw = normal(5)
    query, key, value, output = (draw(16, 16) / 4 for _ in range(4))
    X = size * draw(12, 16)
    exact = local_lipschitz(Attention(query, key, value, heads=2, output=output), X, 1e-10).value
    found = local_lipschitz(Attention(query, key, value, heads=2, output=scale * output), X)
    assert found.value / scale == pytest.approx(exact, rel=1e-6)
    assert exact * (1 - 1e-9) <= found.ceiling / scale <= 2 * exact


def test_what_overflows_in_float64_is_refused() -> None:
    draw = normal(5)
    layer = Attention(draw(16, 16), draw(16, 16), draw(16, 16), output=1e200 * draw(16, 16))
    with pytest.raises(NumericalError, match="not finite"):
        local_lipschitz(layer, draw(12, 16))


def test_a_small_residual_in_the_first_steps_is_not_believed() -> None:
    """Nearly the identity but for one direction: the first residual is of the size of errors in float32."""
    value = torch.eye(200, dtype=torch.float64)
    value[0, 0] = 1 + 1e-4
    found, _ = _both(Attention(torch.zeros_like(value), None, value), normal(3)(1, 1, 200), 5e-5)
    assert float(found.values[0]) == pytest.approx(1 + 1e-4, abs=1e-6)


def test_the_limit_of_products_counts_all_of_them() -> None:
    layer, X = Variant().layer(), normal(4)(30, D)
    found = local_lipschitz(layer, X, products=8)
    assert not found.converged
    assert found.products == 8
    assert found.value < found.ceiling
