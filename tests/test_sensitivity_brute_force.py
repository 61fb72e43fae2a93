"""Word sensitivity against a fine grid of the whole ball, in two and three dimensions: value <= S <= ceiling."""

import math

import pytest
import torch
from maps.twins import Setting, normal, plain_attention, plain_layers
from torch import Tensor

from wordsway import (
    DeepRandomFeatures,
    RandomAttention,
    RandomFeatures,
    gaussian_context,
    perturb,
    respond,
    sensitivity_profile,
    word_sensitivity,
)
from wordsway.maps import Attention, FeatureMap


def ball(d: int, radius: float) -> Tensor:
    """A grid of the ball: shells that are denser towards the edge, each with evenly spread directions."""
    if d == 1:
        return torch.linspace(-radius, radius, 4001, dtype=torch.float64).unsqueeze(1)
    if d == 2:
        angles = torch.arange(720, dtype=torch.float64) * (2 * math.pi / 720)
        directions = torch.stack([angles.cos(), angles.sin()], dim=1)
    else:  # a spiral from pole to pole
        steps = torch.arange(3000, dtype=torch.float64) + 0.5
        height, angle = 1 - 2 * steps / 3000, steps * math.pi * (3 - math.sqrt(5))
        width = (1 - height**2).sqrt()
        directions = torch.stack([width * angle.cos(), width * angle.sin(), height], dim=1)
    shells = torch.tensor([0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0], dtype=torch.float64)
    return radius * (shells[:, None, None] * directions).reshape(-1, d)


def brute_force(plain: FeatureMap, X: Tensor, word: int, radius: float) -> float:
    """The largest relative change on the grid, by the plain map at every perturbed context."""
    base = plain(X)
    moved = perturb(X, word, ball(X.shape[1], radius))
    features = plain(moved) if getattr(plain, "batched", False) else torch.stack([plain(Y) for Y in moved])
    changes = (features - base).reshape(len(moved), -1).norm(dim=1)
    return float(changes.max() / base.norm())


ATTENTIONS = [
    (Setting("softmax"), 1e-3),
    (Setting("softmax", causal=True), 1e-3),
    (Setting("softmax", value=True), 1e-3),
    (Setting("softmax", output=True), 1e-3),
    (Setting("sigmoid"), 1e-3),
    (Setting("sigmoid", causal=True, value=True), 1e-3),
    (Setting("linear"), 1e-3),
    (Setting("linear", causal=True, output=True), 1e-3),
    # relu rows jump where their last weight vanishes: many small basins, of which the search may miss the best
    (Setting("relu"), 5e-3),
    (Setting("relu", causal=True, value=True), 5e-3),
]


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize(("setting", "missed"), ATTENTIONS, ids=str)
def test_attention(setting: Setting, missed: float, d: int) -> None:
    n, radius = 4, math.sqrt(d)
    for seed in range(4 - d):
        phi, X = setting.attention(d, seed), gaussian_context(n, d, seed)
        plain = plain_attention(phi)
        found = sensitivity_profile(phi, X, (0, 2, 3), ceiling=None)
        for slot, word in enumerate(found.words):
            exact, value = brute_force(plain, X, word, radius), float(found.values[slot])
            assert exact <= value * (1 + missed), f"seed {seed}, word {word}: found {value}, but there is {exact}"
            assert _at_witness(plain, X, word, found.deltas[slot], radius) == pytest.approx(value, rel=1e-9)
            for effort in ("simple", "quick", "tight") if word == 2 else ("simple", "quick"):
                ceiling = respond(phi, X, word).ceiling(radius, effort)
                assert ceiling is not None
                most = max(exact, value)
                assert most <= float(ceiling.value) * (1 + 1e-9), f"{effort}: {most} above {float(ceiling.value)}"


def _at_witness(plain: FeatureMap, X: Tensor, word: int, delta: Tensor, radius: float) -> float:
    assert float(delta.norm()) <= radius * (1 + 1e-9)
    base = plain(X)
    return float((plain(perturb(X, word, delta)) - base).norm() / base.norm())


@pytest.mark.parametrize("heads", [2, 3])
@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
def test_several_heads(heads: int, score: str) -> None:
    phi = Setting(score, heads, value=True).attention(3, seed=heads)
    if heads == 3:
        phi = Setting(score, heads).attention(3, seed=heads)
    X = gaussian_context(4, 3, seed=5)
    exact = brute_force(plain_attention(phi), X, 1, 1.0)
    found = word_sensitivity(phi, X, 1, 1.0, ceiling="tight")
    assert exact <= found.value * (1 + 1e-3)
    assert found.ceiling is not None
    assert max(exact, found.value) <= found.ceiling * (1 + 1e-9)


@pytest.mark.parametrize("radius", [0.1, 1.0, 4.0])
def test_random_attention_over_small_and_large_balls(radius: float) -> None:
    for seed in range(3):
        phi, X = RandomAttention(2, seed=seed), gaussian_context(5, 2, seed)
        exact = brute_force(plain_attention(phi.attention), X, 3, radius)
        found = word_sensitivity(phi, X, 3, radius)
        assert exact <= found.value * (1 + 1e-3)
        assert found.ceiling is not None
        assert max(exact, found.value) <= found.ceiling * (1 + 1e-9)


@pytest.mark.parametrize("depth", [None, 3])
@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize(("activation", "missed"), [("relu", 5e-3), ("gelu", 1e-3)])  # relu climbs along kinks
def test_random_features(depth: int | None, d: int, activation: str, missed: float) -> None:
    n, k, radius = 4, 15, math.sqrt(d)
    for seed in range(4):
        weights = [normal(k, k if i else n * d, seed=seed + 9 * i) / math.sqrt(k) for i in range(depth or 1)]
        phi: RandomFeatures | DeepRandomFeatures
        if depth is None:
            phi = RandomFeatures(n, d, activation=activation, weight=weights[0])
        else:
            phi = DeepRandomFeatures(n, d, depth, activation=activation, weights=weights)
        X, found = gaussian_context(n, d, seed), word_sensitivity(phi, gaussian_context(n, d, seed), 2)
        exact = brute_force(phi, X, 2, radius)  # the plain twin, at every point, would take seconds
        assert exact <= found.value * (1 + missed), f"seed {seed}: found {found.value}, but there is {exact}"
        assert found.ceiling is not None
        assert max(exact, found.value) <= found.ceiling * (1 + 1e-9)
        assert _at_witness(plain_layers(phi), X, 2, found.delta, radius) == pytest.approx(found.value, rel=1e-9)


@pytest.mark.parametrize("score", ["softmax", "sigmoid", "linear"])
def test_one_dimension(score: str) -> None:
    for seed in range(4):
        phi, X = RandomAttention(1, score, seed=seed), gaussian_context(5, 1, seed)
        exact = brute_force(plain_attention(phi.attention), X, 1, 1.0)
        found = word_sensitivity(phi, X, 1)
        assert found.value == pytest.approx(exact, rel=1e-3)
        assert found.ceiling is not None
        assert found.value <= found.ceiling * (1 + 1e-9)


def test_one_word_is_its_own_context() -> None:
    """With n = 1 softmax gives the word back, so S = r / |x| = 1, and the ceiling is exact."""
    X = gaussian_context(1, 6)
    for effort in ("simple", "quick", "tight"):
        found = word_sensitivity(RandomAttention(6), X, 0, ceiling=effort)
        assert found.value == pytest.approx(1.0, rel=1e-9)
        assert found.ceiling == pytest.approx(1.0, rel=1e-6)
    assert word_sensitivity(RandomAttention(6), X, 0, 0.5).value == pytest.approx(0.5 / math.sqrt(6), rel=1e-9)


@pytest.mark.parametrize("score", ["softmax", "relu", "sigmoid", "linear"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 1)])
def test_one_word_and_one_dimension_work_where_the_mathematics_does(score: str, shape: tuple[int, int]) -> None:
    n, d = shape
    X = gaussian_context(n, d, seed=2)
    weight = torch.eye(d, dtype=torch.float64)  # every word scores itself above 0
    for phi in (Attention(weight, None, score=score), RandomFeatures(n, d, weight=normal(6, n * d, seed=1))):
        for words, together in (((0,), False), ("all", False), (tuple(range(n)), True)):
            found = word_sensitivity(phi, X, words, together=together)
            assert 0 < found.value < math.inf
            assert found.ceiling is None or found.value <= found.ceiling * (1 + 1e-9)


def test_words_together_reach_what_the_grid_of_both_finds() -> None:
    """Two words of dimension 1 each: the whole square of moves is a grid."""
    X = gaussian_context(4, 1, seed=3) * 1.5
    for phi in (RandomAttention(1, seed=1), RandomAttention(1, "sigmoid", seed=1)):
        plain = plain_attention(phi.attention)
        line = torch.linspace(-1, 1, 201, dtype=torch.float64)
        moves = torch.cartesian_prod(line, line).unsqueeze(-1)
        base = plain(X)
        changes = (plain(perturb(X, (0, 2), moves)) - base).flatten(1).norm(dim=1) / base.norm()
        found = word_sensitivity(phi, X, (0, 2), together=True)
        assert float(changes.max()) <= found.value * (1 + 1e-3)
        assert found.ceiling is not None
        assert found.value <= found.ceiling * (1 + 1e-9)
