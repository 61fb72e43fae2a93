"""Bounds at a context and in its neighbourhood, against whole Jacobians."""

import math

import pytest
import torch
from torch import Tensor

from smoothness.layers import VARIANTS, D, Variant, explicit, normal
from wordsway import Attention, RandomAttention, gaussian_context, lipschitz_bounds
from wordsway.smoothness import local_lipschitz, neighbourhood_bound
from wordsway.smoothness.adversarial import steepen


def _constant(layer: Attention, X: Tensor) -> float:
    return float(torch.linalg.svdvals(explicit(layer, X))[0])


def _near(X: Tensor, Y: Tensor, radius: float) -> Tensor:
    """The nearest context to Y whose words are within the radius of those of X."""
    lengths = (Y - X).norm(dim=-1, keepdim=True).clamp_min(1e-300)
    nearest: Tensor = X + (Y - X) * (radius / lengths).clamp(max=1)
    return nearest


@pytest.mark.parametrize("scale", [0.2, 0.6, 2.0])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_no_context_nearby_is_steeper(variant: Variant, scale: float) -> None:
    layer, draw = variant.layer(1, scale), normal(2)
    X = draw(5, D)
    for radius in (0.0, 1e-3, 0.05, 0.5):
        bound = neighbourhood_bound(layer, X, radius).value
        for _ in range(4):
            Y = _near(X, X + draw(5, D), radius)
            assert _constant(layer, Y) <= bound


@pytest.mark.parametrize("seed", range(6))
def test_a_search_nearby_stays_below(seed: int) -> None:
    layer = Variant(causal=seed % 2 == 0, biases=seed % 3 == 0, output=True).layer(seed, 0.7)
    X, radius = normal(seed)(4, D), 0.3
    found, _ = steepen(layer, X, lambda Y: _near(X, Y, radius), radius, 25, 0)
    assert float((found - X).norm(dim=-1).max()) <= radius * (1 + 1e-9)
    assert _constant(layer, X) < _constant(layer, found) <= neighbourhood_bound(layer, X, radius).value


def test_by_hand() -> None:
    """One dimension, A = 1 and V = 2: all terms are numbers."""
    layer, X = Attention([[1.0]], [[1.0]], [[2.0]]), torch.tensor([[0.5], [-1.0], [1.5]], dtype=torch.float64)
    P = torch.softmax(X @ X.mT, -1)
    gaps = X.mT - P @ X  # i j
    variance = (P * gaps.square()).sum(1)
    found = neighbourhood_bound(layer, X)
    assert found.mean == pytest.approx(2 * float(torch.linalg.matrix_norm(P, ord=2)))
    assert found.own == pytest.approx(2 * float(variance.max()), rel=1e-9)
    columns = (P * (variance * X[:, 0].square())[:, None]).sum(0)
    assert found.others == pytest.approx(2 * math.sqrt(float(columns.max())), rel=1e-9)
    assert found.value == pytest.approx(found.mean + found.own + found.others)


def test_it_grows_from_the_bound_at_the_context() -> None:
    layer, X = Variant(output=True, biases=True, rotary=True).layer(3), normal(4)(6, D)
    values = [neighbourhood_bound(layer, X, radius).value for radius in (0.0, 1e-9, 1e-3, 0.1, 1.0, 10.0, 1e4)]
    assert values == sorted(values)
    assert values[1] == pytest.approx(values[0], rel=1e-6)
    assert math.isfinite(values[-1])


def test_on_a_typical_context_it_is_far_below_the_bound_over_all_contexts() -> None:
    layer, X = RandomAttention(16, seed=1), gaussian_context(30, 16)
    found = neighbourhood_bound(layer, X)
    assert found.value < 4 * local_lipschitz(layer, X).value
    assert found.value < 0.2 * lipschitz_bounds(layer, 30, None).upper


def test_one_word_alone_is_mapped_by_its_value() -> None:
    value = normal(6)(D, D)
    found = neighbourhood_bound(Attention(normal(7)(D, D), None, value), normal(8)(1, D))
    assert found.value == pytest.approx(float(torch.linalg.matrix_norm(value, ord=2)), rel=1e-4)
