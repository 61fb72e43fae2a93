"""The maps by name: one table of their definitions, options and builders."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

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
    lazy : bool
        Whether `respond` draws only the weights that one context and one word need.
    """

    name: str
    description: str
    formula: str
    weights: str
    source: str
    options: tuple[str, ...]
    builder: Builder
    lazy: bool = False

    def resolve(self, n: int, d: int, options: MapOptions | None = None) -> MapOptions:
        """Check options and fill in the defaults: depth 2, activation relu, width n d (of qkv: d)."""
        requested = (options or MapOptions()).given()
        for name in requested:
            if name not in self.options:
                takes = ", ".join(self.options) or "none"
                raise InputError(f"{name} is not an option of {self.name} (it takes {takes}): leave it out")
        width = n * d if "activation" in self.options else d
        defaults = {"depth": DEFAULT_DEPTH, "width": width, "activation": DEFAULT_ACTIVATION}
        chosen: dict[str, Any] = {name: requested.get(name, defaults[name]) for name in self.options}
        chosen |= {name: check_size(chosen[name], name) for name in ("depth", "width") if name in chosen}
        if "activation" in chosen:
            phi = activation(chosen["activation"])
            chosen["activation"] = phi.name
            if "depth" in chosen:
                phi.he_scale()  # deep layers need it: raise now where there is none
        _require_features(MapOptions(**chosen))
        return MapOptions(**chosen)

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
        """The response at one context along one word.

        The weights of a lazy map have the law of those of `build`, but are not the same numbers: see
        `random_feature_response`. Use `build` to compare contexts.
        """
        context = as_context(X)
        n, d = context.shape
        if not self.lazy:
            return respond(self.build(n, d, options, seed, context.dtype), context, word)
        chosen = self.resolve(n, d, options)
        phi = chosen.activation or DEFAULT_ACTIVATION
        return random_feature_response(context, word, chosen.depth, chosen.width, phi, seed)


def map_named(name: str) -> NamedMap:
    """Return the map of that name; the error for an unknown name lists all maps."""
    if name not in MAPS:
        raise InputError(f"unknown map {name!r}{nearest(name, MAPS)}: known are {', '.join(MAPS)}")
    return MAPS[name]


def _require_features(options: MapOptions) -> None:
    """Refuse layers whose features alone, at a context and at one perturbation of it, do not fit."""
    layers, width = options.depth or 1, options.width or 0
    what = f"{layers} layers of {width} features" if layers > 1 else f"{width} features"
    memory.require(2 * 8 * layers * width, f"keeping {what}", "use a smaller width or depth")


def _random_features(n: int, d: int, options: MapOptions, seed: int, dtype: torch.dtype) -> FeatureMap:
    phi = options.activation or DEFAULT_ACTIVATION
    if options.depth is None:
        return RandomFeatures(n, d, options.width, phi, seed, dtype=dtype)
    return DeepRandomFeatures(n, d, options.depth, options.width, phi, seed, dtype=dtype)


def _qkv(n: int, d: int, options: MapOptions, seed: int, dtype: torch.dtype) -> FeatureMap:
    width = options.width or d
    memory.require(2 * 3 * 8 * width * d, f"drawing three {width} x {d} weights", "use a smaller width or d")
    drawn = normal(generator(seed, "qkv"), (3, width, d)) / math.sqrt(d)
    return Attention(*drawn.to(dtype))


def _raf(name: str, score: str, description: str, formula: str, source: str) -> NamedMap:
    def build(n: int, d: int, options: MapOptions, seed: int, dtype: torch.dtype) -> FeatureMap:
        memory.require(2 * 8 * d * d, f"drawing a {d} x {d} weight", "use a smaller d")
        return RandomAttention(d, score, seed)

    weights = "W: d x d, N(0, 1/d)"
    if formula.startswith("ratio"):
        weights = f"rows are divided by their sums; {weights}"
    return NamedMap(name, description, formula, weights, source, (), build)


PAPER = "Bombari and Mondelli, Towards Understanding the Word Sensitivity of Attention Layers (2024)"

_SCORES = "X W X^T / sqrt(d)"
_LIKE_RAF = "as equation (3)"

_ALL = (
    NamedMap(
        name="rf",
        description="random features",
        formula="phi(V flat(X))",
        weights="V: k x nd, N(0, 1/(nd))",
        source="equation (1)",
        options=("width", "activation"),
        builder=_random_features,
        lazy=True,
    ),
    NamedMap(
        name="drf",
        description="deep random features",
        formula="phi(V_L phi(... phi(V_1 flat(X))))",
        weights="V_1: k x nd, N(0, beta/(nd)); V_l: k x k, N(0, beta/k); beta keeps the scale of the features",
        source="equations (6) and (7)",
        options=("depth", "width", "activation"),
        builder=_random_features,
        lazy=True,
    ),
    NamedMap(
        name="qkv",
        description="attention with queries, keys, values",
        formula="softmax(X Q^T K X^T / sqrt(k)) X V^T",
        weights="Q, K, V: k x d, N(0, 1/d)",
        source="equation (2)",
        options=("width",),
        builder=_qkv,
    ),
    _raf("raf", "softmax", "random attention features", f"softmax({_SCORES}) X", "equation (3)"),
    _raf("relu-raf", "relu", "raf with ReLU for the softmax", f"ratio(max(0, {_SCORES})) X", "section 5"),
    _raf(
        "sigmoid-raf", "sigmoid", "raf with sigmoid for the softmax", f"ratio(sigmoid({_SCORES})) X", "as equation (3)"
    ),
    _raf("linear-raf", "linear", "raf without the softmax", f"({_SCORES}) X", _LIKE_RAF),
)

MAPS: Mapping[str, NamedMap] = MappingProxyType({entry.name: entry for entry in _ALL})
