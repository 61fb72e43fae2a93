"""The maps by name: one table of their definitions, options and builders."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

import torch
from torch import Tensor

from wordsway import memory
from wordsway.activations import activation
from wordsway.checks import as_context, check_size
from wordsway.errors import InputError, nearest
from wordsway.maps.attention import Attention, RandomAttention
from wordsway.maps.random_features import DeepRandomFeatures, RandomFeatures, random_feature_response
from wordsway.maps.response import FeatureMap, Response, respond
from wordsway.seeds import generator, normal

OPTIONS = ("depth", "width", "activation")
DEFAULT_DEPTH = 2
DEFAULT_ACTIVATION = "relu"


@dataclass(frozen=True)
class MapOptions:
    """Options of maps; None is the default of the map.

    Attributes
    ----------
    depth : int or None
        Number of layers L.
    width : int or None
        Number of features k of a layer, or of rows of the query, key and value weights.
    activation : str or None
        Name of the function after each layer.
    """

    depth: int | None = None
    width: int | None = None
    activation: str | None = None

    def given(self) -> dict[str, int | str]:
        """The options that are not None, by name."""
        return {name: value for name in OPTIONS if (value := getattr(self, name)) is not None}


Builder: TypeAlias = Callable[[int, int, MapOptions, int, torch.dtype], FeatureMap]  # n, d, options, seed, dtype
OneWord: TypeAlias = Callable[[Tensor, int, MapOptions, int], Response]  # X, word, options, seed


@dataclass(frozen=True)
class NamedMap:
    """A map with a name.

    Attributes
    ----------
    name, description, formula, weights : str
        Its name and definition, in plain text. X is a context (n x d), phi the activation, k the width, L
        the depth.
    source : str
        Where it comes from.
    options : tuple of str
        Those of "depth", "width" and "activation" that it takes.
    builder : callable
        Makes the map that stays consistent over words and contexts.
    one_word : callable or None
        Makes the cheap response for one context and one word, where the map has one.
    """

    name: str
    description: str
    formula: str
    weights: str
    source: str
    options: tuple[str, ...]
    builder: Builder
    one_word: OneWord | None = None

    def resolve(self, n: int, d: int, options: MapOptions | None = None) -> MapOptions:
        """Check options and fill in the defaults: depth 2, activation relu, width n d (of qkv: d)."""
        requested = options or MapOptions()
        for name in requested.given():
            if name not in self.options:
                takes = ", ".join(self.options) or "none"
                raise InputError(f"{name} is not an option of {self.name} (it takes {takes}): leave it out")
        chosen = MapOptions()
        if "depth" in self.options:
            chosen = replace(chosen, depth=_size(requested.depth, "depth", DEFAULT_DEPTH))
        if "width" in self.options:
            default = n * d if "activation" in self.options else d
            chosen = replace(chosen, width=_size(requested.width, "width", default))
        if "activation" in self.options:
            phi = activation(DEFAULT_ACTIVATION if requested.activation is None else requested.activation)
            if "depth" in self.options:
                phi.he_scale()  # deep layers need it: raise now where there is none
            chosen = replace(chosen, activation=phi.name)
        _require_features(chosen)
        return chosen

    def build(
        self,
        n: int,
        d: int,
        options: MapOptions | None = None,
        seed: int = 0,
        dtype: torch.dtype = torch.float64,
    ) -> FeatureMap:
        """The map for contexts of n x d, with weights drawn from `seed`."""
        rows, columns = check_size(n, "n"), check_size(d, "d")
        return self.builder(rows, columns, self.resolve(rows, columns, options), seed, dtype)

    def respond(self, X: Tensor, word: int, options: MapOptions | None = None, seed: int = 0) -> Response:
        """The response at one context along one word, drawing only the weights that these need where the map can.

        The weights have the law of those of `build`, but where the map has a cheap form they are not the same numbers:
        use `build` to compare contexts.
        """
        context = as_context(X)
        n, d = context.shape
        if self.one_word is None:
            return respond(self.build(n, d, options, seed, context.dtype), context, word)
        return self.one_word(context, word, self.resolve(n, d, options), seed)


def map_named(name: str) -> NamedMap:
    """Return the map of that name; the error for an unknown name lists all maps."""
    if name not in MAPS:
        raise InputError(f"unknown map {name!r}{nearest(name, MAPS)}: known are {', '.join(MAPS)}")
    return MAPS[name]


def _size(value: int | None, name: str, default: int) -> int:
    return default if value is None else check_size(value, name)


def _require_features(options: MapOptions) -> None:
    """Refuse layers whose features alone, at a context and at one perturbation of it, do not fit."""
    layers, width = options.depth or 1, options.width or 0
    what = f"{layers} layers of {width} features" if layers > 1 else f"{width} features"
    memory.require(2 * 8 * layers * width, f"keeping {what}", "use a smaller width or depth")


def _rf(n: int, d: int, options: MapOptions, seed: int, dtype: torch.dtype) -> FeatureMap:
    return RandomFeatures(n, d, options.width, options.activation or DEFAULT_ACTIVATION, seed, dtype=dtype)


def _rf_one_word(X: Tensor, word: int, options: MapOptions, seed: int) -> Response:
    return random_feature_response(X, word, None, options.width, options.activation or DEFAULT_ACTIVATION, seed)


def _drf(n: int, d: int, options: MapOptions, seed: int, dtype: torch.dtype) -> FeatureMap:
    depth, phi = options.depth or DEFAULT_DEPTH, options.activation or DEFAULT_ACTIVATION
    return DeepRandomFeatures(n, d, depth, options.width, phi, seed, dtype=dtype)


def _drf_one_word(X: Tensor, word: int, options: MapOptions, seed: int) -> Response:
    depth, phi = options.depth or DEFAULT_DEPTH, options.activation or DEFAULT_ACTIVATION
    return random_feature_response(X, word, depth, options.width, phi, seed)


def _qkv(n: int, d: int, options: MapOptions, seed: int, dtype: torch.dtype) -> FeatureMap:
    width = options.width or d
    memory.require(2 * 3 * 8 * width * d, f"drawing three {width} x {d} weights", "use a smaller width or d")
    drawn = normal(generator(seed, "qkv"), (3, width, d)) / math.sqrt(d)
    return Attention(*drawn.to(dtype))


def _raf(score: str) -> Builder:
    def build(n: int, d: int, options: MapOptions, seed: int, dtype: torch.dtype) -> FeatureMap:
        memory.require(2 * 8 * d * d, f"drawing a {d} x {d} weight", "use a smaller d")
        return RandomAttention(d, score, seed)

    return build


PAPER = "Bombari and Mondelli, Towards Understanding the Word Sensitivity of Attention Layers (2024)"

_LAYER = ("width", "activation")
_ONE_WEIGHT = "W: d x d, N(0, 1/d)"
_RATIO = f"rows are divided by their sums; {_ONE_WEIGHT}"
_SCORES = "X W X^T / sqrt(d)"

_ALL = (
    NamedMap(
        "rf",
        "random features",
        "phi(V flat(X))",
        "V: k x nd, N(0, 1/(nd))",
        "equation (1)",
        _LAYER,
        _rf,
        _rf_one_word,
    ),
    NamedMap(
        "drf",
        "deep random features",
        "phi(V_L phi(... phi(V_1 flat(X))))",
        "V_1: k x nd, N(0, beta/(nd)); V_l: k x k, N(0, beta/k); beta keeps the scale of the features",
        "equations (6) and (7)",
        ("depth", *_LAYER),
        _drf,
        _drf_one_word,
    ),
    NamedMap(
        "qkv",
        "attention with queries, keys, values",
        "softmax(X Q^T K X^T / sqrt(k)) X V^T",
        "Q, K, V: k x d, N(0, 1/d)",
        "equation (2)",
        ("width",),
        _qkv,
    ),
    NamedMap(
        "raf",
        "random attention features",
        f"softmax({_SCORES}) X",
        _ONE_WEIGHT,
        "equation (3)",
        (),
        _raf("softmax"),
    ),
    NamedMap(
        "relu-raf",
        "raf with ReLU for the softmax",
        f"ratio(max(0, {_SCORES})) X",
        _RATIO,
        "section 5",
        (),
        _raf("relu"),
    ),
    NamedMap(
        "sigmoid-raf",
        "raf with sigmoid for the softmax",
        f"ratio(sigmoid({_SCORES})) X",
        _RATIO,
        "as equation (3)",
        (),
        _raf("sigmoid"),
    ),
    NamedMap(
        "linear-raf",
        "raf without the softmax",
        f"({_SCORES}) X",
        _ONE_WEIGHT,
        "as equation (3)",
        (),
        _raf("linear"),
    ),
)

MAPS: Mapping[str, NamedMap] = MappingProxyType({entry.name: entry for entry in _ALL})
