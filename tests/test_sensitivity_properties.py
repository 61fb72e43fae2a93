"""What holds for every context, word and radius: order of the other words, growth, zero, batches, bytes."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from maps.twins import Setting, normal
from torch import Tensor

from wordsway import (
    DeepRandomFeatures,
    RandomAttention,
    RandomFeatures,
    gaussian_context,
    random_feature_response,
    respond,
    response_sensitivity,
    sensitivity_profile,
    word_sensitivity,
)
from wordsway.maps import FeatureMap
from wordsway.sensitivity import SearchBudget

SEEDS = st.integers(0, 10_000)
SIZES = st.tuples(st.integers(2, 6), st.sampled_from([2, 4, 6]))
SCORES = st.sampled_from(["softmax", "relu", "sigmoid", "linear"])
WIDE = 32  # features: with as few as n d = 4, all of them are 0 with probability 1 / 16
HASTY = SearchBudget(power=2, screen=0, polish=2)
quietly = settings(max_examples=25, deadline=None, derandomize=True)


def _map(kind: str, n: int, d: int, seed: int) -> FeatureMap:
    """A map of the given kind; stored weights, so that two of them are equal."""
    if kind == "rf":
        return RandomFeatures(n, d, weight=normal(9, n * d, seed=seed) / math.sqrt(n * d))
    if kind == "drf":
        return DeepRandomFeatures(n, d, 2, weights=[normal(9, n * d, seed=seed) / 3, normal(9, 9, seed=seed + 1) / 3])
    if kind == "plain":
        return lambda X: torch.tanh(X.cumsum(-2))
    score, *extras = kind.split("-")
    return Setting(score, 2, causal="causal" in extras, output="output" in extras).attention(d, seed)


KINDS = st.sampled_from(["softmax", "softmax-causal", "relu", "sigmoid-output", "linear-causal", "rf", "drf", "plain"])


@quietly
@given(size=st.tuples(st.integers(3, 7), st.sampled_from([2, 5])), seed=SEEDS, heads=st.sampled_from([1, 2]))
def test_the_order_of_the_other_words_does_not_matter(size: tuple[int, int], seed: int, heads: int) -> None:
    n, d = size
    phi = Setting("softmax", heads, value=True).attention(d, seed)
    X = gaussian_context(n, d, seed)
    word = seed % n
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    moved_word = int((order == word).nonzero())
    here, there = respond(phi, X, word), respond(phi, X[order], moved_word)
    delta = normal(5, d, seed=seed)
    for one, two in zip(here.change(delta), there.change(delta), strict=True):
        assert one is not None
        assert two is not None
        assert torch.allclose(one, two, rtol=1e-10, atol=1e-12)
    assert torch.allclose(here.features(delta)[:, order], there.features(delta), rtol=0, atol=1e-11)
    found, shuffled = word_sensitivity(phi, X, word), word_sensitivity(phi, X[order], moved_word)
    assert found.value == pytest.approx(shuffled.value, rel=1e-3)
    # each witness is worth as much in the other order
    assert float(there.change(found.delta)[0]) == pytest.approx(found.value, rel=1e-9)
    assert float(here.change(shuffled.delta)[0]) == pytest.approx(shuffled.value, rel=1e-9)
    assert found.ceiling is not None
    assert shuffled.value <= found.ceiling * (1 + 1e-9)


@quietly
@given(kind=KINDS, size=SIZES, seed=SEEDS, small=st.floats(0.05, 2.0), factor=st.floats(1.0, 4.0))
def test_sensitivity_grows_with_the_radius(
    kind: str, size: tuple[int, int], seed: int, small: float, factor: float
) -> None:
    n, d = size
    phi, X, word = _map(kind, n, d, seed), gaussian_context(n, d, seed), seed % n
    inner, outer = word_sensitivity(phi, X, word, small), word_sensitivity(phi, X, word, small * factor)
    # the witness of the small ball lies in the large one, so the ceiling there is above it without any search
    assert float(inner.delta.norm()) <= small * (1 + 1e-9)
    if outer.ceiling is not None:
        assert inner.value <= outer.ceiling * (1 + 1e-9)
    missed = 0.1 if kind in ("relu", "rf", "drf") else 1e-2  # what the search may miss in rugged landscapes
    assert outer.value >= inner.value * (1 - missed)


@quietly
@given(kind=KINDS, size=SIZES, seed=SEEDS, together=st.booleans())
def test_zero_perturbation_gives_zero_change(kind: str, size: tuple[int, int], seed: int, together: bool) -> None:
    n, d = size
    phi, X = _map(kind, n, d, seed), gaussian_context(n, d, seed)
    response = respond(phi, X, tuple(range(n)), together=together)
    zero = torch.zeros(3, *response.shape, dtype=torch.float64)
    value, grad = response.change(zero)
    assert float(value.abs().max()) <= 1e-13
    assert grad is not None
    assert bool(torch.isfinite(grad).all())
    assert torch.allclose(response.features(zero), phi(X).expand_as(response.features(zero)), rtol=0, atol=1e-11)


@quietly
@given(kind=KINDS, size=SIZES, seed=SEEDS, lead=st.lists(st.integers(1, 3), max_size=3), data=st.data())
def test_batched_equals_unbatched(
    kind: str, size: tuple[int, int], seed: int, lead: list[int], data: st.DataObject
) -> None:
    n, d = size
    phi, X = _map(kind, n, d, seed), gaussian_context(n, d, seed)
    words = tuple(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True)))
    response = respond(phi, X, words)
    delta = normal(*lead, len(words), d, seed=seed)
    u = normal(*phi(X).shape, seed=seed)
    values, products, features = response.change(delta)[0], response.inner(u)(delta)[0], response.features(delta)
    place = tuple(data.draw(st.integers(0, size - 1)) for size in lead)
    slot = data.draw(st.integers(0, len(words) - 1))
    alone, step = respond(phi, X, words[slot]), delta[(*place, slot)]
    assert float(values[(*place, slot)]) == pytest.approx(float(alone.change(step)[0]), rel=1e-10, abs=1e-12)
    assert float(products[(*place, slot)]) == pytest.approx(float(alone.inner(u)(step)[0]), rel=1e-9, abs=1e-10)
    assert torch.allclose(features[(*place, slot)], alone.features(step), rtol=0, atol=1e-11)


def _bytes(*tensors: Tensor | None) -> list[bytes]:
    return [b"" if tensor is None else tensor.numpy().tobytes() for tensor in tensors]


@settings(quietly, max_examples=12)
@given(kind=KINDS, size=SIZES, seed=SEEDS, start=st.integers(0, 50))
def test_same_seed_same_bytes(kind: str, size: tuple[int, int], seed: int, start: int) -> None:
    n, d = size
    first, second = (
        sensitivity_profile(_map(kind, n, d, seed), gaussian_context(n, d, seed), seed=start) for _ in range(2)
    )
    assert _bytes(first.values, first.deltas, first.ceilings) == _bytes(second.values, second.deltas, second.ceilings)
    assert first.cost.evaluations == second.cost.evaluations


@quietly
@given(size=SIZES, seed=SEEDS, depth=st.sampled_from([None, 1, 3]))
def test_same_seed_same_bytes_of_revealed_weights(size: tuple[int, int], seed: int, depth: int | None) -> None:
    n, d = size
    X = gaussian_context(n, d, seed)
    one, two, other = (
        response_sensitivity(random_feature_response(X, 1, depth, WIDE, seed=s), 1, budget=HASTY)
        for s in (seed, seed, seed + 1)
    )
    assert (one.value, one.ceiling, one.status) == (two.value, two.ceiling, two.status)
    assert _bytes(one.delta) == _bytes(two.delta)
    assert one.value != other.value
    if depth is not None:
        maps = [DeepRandomFeatures(n, d, depth, seed=seed) for _ in range(2)]
        assert _bytes(maps[0](X)) == _bytes(maps[1](X))


@settings(quietly, max_examples=8)
@given(score=SCORES, size=SIZES, seed=SEEDS)
def test_nothing_reads_or_sets_the_global_generator(score: str, size: tuple[int, int], seed: int) -> None:
    n, d = size
    state = torch.get_rng_state()
    word_sensitivity(RandomAttention(d, score, seed=seed), gaussian_context(n, d, seed), 0)
    response_sensitivity(random_feature_response(gaussian_context(n, d, seed), 0, 2, WIDE, seed=seed), 0, budget=HASTY)
    assert torch.equal(torch.get_rng_state(), state)
