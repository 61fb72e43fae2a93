"""The catalogue of maps: each entry builds its formula, takes its options, and refuses the others."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from wordsway.contexts import gaussian_context
from wordsway.errors import InputError, NumericalError
from wordsway.maps.attention import RandomAttention
from wordsway.maps.catalogue import MAPS, OPTIONS, MapOptions, NamedMap, map_named
from wordsway.maps.random_features import DeepRandomFeatures, RandomFeatures
from wordsway.seeds import generator, normal

N, D = 5, 4


def _context(dtype: torch.dtype = torch.float64) -> Tensor:
    return gaussian_context(N, D, seed=1, dtype=dtype)


def test_entries_are_described_in_plain_single_lines() -> None:
    assert list(MAPS) == ["rf", "drf", "qkv", "raf", "relu-raf", "sigmoid-raf", "linear-raf"]
    for name, entry in MAPS.items():
        assert entry is map_named(name)
        assert entry.name == name
        assert set(entry.options) <= set(OPTIONS)
        for text in (entry.description, entry.formula, entry.weights, entry.source):
            assert text.isascii()
            assert text.isprintable()
            assert text


# What is built


def test_rf_and_drf_are_the_maps_of_these_names_with_their_options() -> None:
    rf = map_named("rf").build(N, D, MapOptions(width=7, activation="tanh"), dtype=torch.float32)
    assert isinstance(rf, RandomFeatures)
    assert (rf.k, rf.activation.name, rf.dtype) == (7, "tanh", torch.float32)
    drf = map_named("drf").build(N, D, MapOptions(depth=3, width=6, activation="gelu"))
    assert isinstance(drf, DeepRandomFeatures)
    assert (drf.depth, drf.k, drf.activation.name) == (3, 6, "gelu")


SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    "raf": lambda scores: torch.softmax(scores, -1),
    "relu-raf": lambda scores: scores.relu() / scores.relu().sum(-1, keepdim=True),
    "sigmoid-raf": lambda scores: scores.sigmoid() / scores.sigmoid().sum(-1, keepdim=True),
    "linear-raf": lambda scores: scores,
}


@pytest.mark.parametrize("name", SCORES)
def test_the_attention_features_are_those_of_the_formula(name: str) -> None:
    X, phi = _context(), map_named(name).build(N, D, seed=3)
    assert isinstance(phi, RandomAttention)
    torch.testing.assert_close(phi(X), SCORES[name](X @ phi.weight @ X.mT / math.sqrt(D)) @ X)


@pytest.mark.parametrize("width", [None, 3])
def test_qkv_is_the_formula_with_its_three_weights(width: int | None) -> None:
    X, k = _context(), width or D
    drawn = normal(generator(5, "qkv"), (3, k, D)) / math.sqrt(D)
    query, key, value = drawn
    weights = torch.softmax(X @ query.mT @ key @ X.mT / math.sqrt(k), -1)
    features = map_named("qkv").build(N, D, MapOptions(width=width), seed=5)(X)
    torch.testing.assert_close(features, weights @ X @ value.mT)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_features_and_responses_keep_the_dtype(name: str, dtype: torch.dtype) -> None:
    X = _context(dtype)
    assert map_named(name).build(N, D, dtype=dtype)(X).dtype == dtype
    response = map_named(name).respond(X, 2)
    assert response.hints.dtype == dtype
    assert response.shape == (D,)


@pytest.mark.parametrize("name", MAPS)
def test_a_seed_gives_the_same_map_and_another_seed_another(name: str) -> None:
    X, entry = _context(), map_named(name)
    first, again, other = (entry.build(N, D, seed=seed)(X) for seed in (4, 4, 5))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("name", ["raf", "relu-raf", "qkv"])
def test_the_response_is_that_of_the_map_unless_it_is_lazy(name: str) -> None:
    X, entry = _context(), map_named(name)
    assert not entry.lazy
    delta = torch.ones(D, dtype=torch.float64)
    moved = X.clone()
    moved[2] += 1
    torch.testing.assert_close(entry.respond(X, 2, seed=6).features(delta), entry.build(N, D, seed=6)(moved))


@pytest.mark.parametrize("name", ["rf", "drf"])
def test_a_lazy_map_draws_the_block_of_one_word_only(name: str) -> None:
    X = gaussian_context(2000, 300)  # V would take 2.9 TB
    response = map_named(name).respond(X, 1999, MapOptions(width=50))
    assert response.features(torch.zeros(300, dtype=torch.float64)).shape == (50,)


# Options


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rf", {"width": N * D, "activation": "relu"}),
        ("drf", {"depth": 2, "width": N * D, "activation": "relu"}),
        ("qkv", {"width": D}),
        ("raf", {}),
    ],
)
def test_defaults_are_filled_in(name: str, expected: dict[str, int | str]) -> None:
    assert map_named(name).resolve(N, D).given() == expected


@pytest.mark.parametrize("entry", MAPS.values(), ids=list(MAPS))
def test_options_of_an_entry_are_taken_and_others_refused(entry: NamedMap) -> None:
    values: dict[str, Any] = {"depth": 3, "width": 6, "activation": "gelu"}
    for option, value in values.items():
        options = MapOptions(**{option: value})
        if option in entry.options:
            assert entry.resolve(N, D, options).given()[option] == value
        else:
            with pytest.raises(InputError, match=f"^{option} is not an option of {entry.name} .*: leave it out$"):
                entry.build(N, D, options)


KNOWN = "rf, drf, qkv, raf, relu-raf, sigmoid-raf, linear-raf"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("relu_raf", {}, f"unknown map 'relu_raf' (did you mean 'relu-raf'?): known are {KNOWN}"),
        ("xyz", {}, f"unknown map 'xyz': known are {KNOWN}"),
        ("raf", {"depth": 2}, "depth is not an option of raf (it takes none): leave it out"),
        ("rf", {"depth": 2}, "depth is not an option of rf (it takes width, activation): leave it out"),
        ("rf", {"width": 0}, "width must be an integer >= 1, got 0"),
        ("drf", {"depth": 0}, "depth must be an integer >= 1, got 0"),
    ],
)
def test_bad_names_and_options_raise_one_line(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        map_named(name).resolve(N, D, MapOptions(**options))
    assert str(caught.value) == message


def test_deep_features_with_an_activation_that_keeps_no_scale_are_refused_when_resolved() -> None:
    assert map_named("rf").resolve(N, D, MapOptions(activation="tanh")).activation == "tanh"
    with pytest.raises(NumericalError, match="tanh has no He scale"):
        map_named("drf").resolve(N, D, MapOptions(activation="tanh"))


@pytest.mark.parametrize(
    ("name", "d", "options"),
    [
        ("raf", 10**7, None),
        ("qkv", 10**7, None),
        ("rf", 2, MapOptions(width=10**18)),
        ("drf", 2, MapOptions(depth=10**18)),
    ],
)
def test_what_cannot_fit_is_refused_before_it_is_drawn(name: str, d: int, options: MapOptions | None) -> None:
    with pytest.raises(InputError, match=r"^(drawing|keeping) .* needs .* are free: use a smaller "):
        map_named(name).build(2, d, options)
