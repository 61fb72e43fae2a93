"""Random features (1) and deep random features (6): layers of Gaussian weights that are multiplied with, not stored.

The maps here stay consistent over words and contexts: every product is with the same weights, drawn as they are
needed. `random_feature_response` is the cheap form for one context and one word, which draws only their weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from wordsway import memory
from wordsway.activations import Activation
from wordsway.activations import activation as named
from wordsway.checks import as_array, as_context, check_position, check_readable, check_size, check_word
from wordsway.errors import InputError
from wordsway.gaussian import DenseGaussian, GaussianMatrix, LazyGaussian
from wordsway.maps.layers import LayeredResponse
from wordsway.maps.response import Response, StackedResponse
from wordsway.seeds import derive, generator, normal

_MANY = 2**20  # features from which on one layer's weights for a word are drawn in float32


class _GaussianLayers:
    """Gaussian layers with an activation after each: what both maps share."""

    batched = True

    def __init__(
        self,
        n: int,
        d: int,
        depth: int,
        k: int | None,
        activation: str | Activation,
        seed: int,
        weights: Sequence[Any] | None,
        dtype: torch.dtype,
        he: bool,
    ) -> None:
        self.n, self.d = check_size(n, "n"), check_size(d, "d")
        self.activation = named(activation)
        inputs = self.n * self.d
        depth = check_size(depth, "depth")
        self.k = inputs if k is None else check_size(k, "k")
        _require(self.k, depth)
        self.weights: list[GaussianMatrix]
        if weights is None:
            self.weights = _draw(inputs, self.k, depth, self.activation.he_scale() if he else 1.0, seed, dtype)
        else:
            self.weights = _stored(weights, inputs, depth, k)
            self.k = self.weights[0].shape[0]
        self.dtype = self.weights[0].dtype

    def __call__(self, X: Tensor) -> Tensor:
        """Features of contexts, (..., n, d) -> (..., k); one product with every layer for each context."""
        self._check(X)
        hidden = X.to(self.dtype).reshape(-1, self.n * self.d).mT  # nd B
        for weight in self.weights:
            hidden = self.activation(weight @ hidden)
        return hidden.mT.reshape(X.shape[:-2] + hidden.shape[:1])

    def respond(self, X: Tensor, word: int | Sequence[int], together: bool = False) -> Response:
        """The response through the columns of the first weight that belong to the word, and the later layers."""
        self._check(X)
        if not isinstance(word, int) and not together:
            return StackedResponse([self.respond(X, w, together=False) for w in word])
        words = (word,) if isinstance(word, int) else tuple(word)
        start = self.weights[0] @ X.to(self.dtype).reshape(-1)
        blocks = [self.weights[0].columns(w * self.d, (w + 1) * self.d) for w in words]
        return LayeredResponse(blocks, start, self.weights[1:], self.activation, together, _lengths(X, words))

    def features_along(self, contexts: Tensor, word: int) -> tuple[Tensor, Response]:
        """Features of contexts (B, n, d), (B, k), and the response at the last one along a word.

        As calling the map and `respond`; where nothing is known of the weights, what both need is drawn at once.
        """
        first, word = self.weights[0], check_word(self.n, word)
        if not isinstance(first, LazyGaussian):
            return self(contexts), self.respond(contexts[-1], word)
        self._check(contexts)
        inputs = contexts.to(self.dtype).reshape(-1, self.n * self.d).mT  # nd B
        block, products = first.draw_together(word * self.d, (word + 1) * self.d, inputs)
        hidden = self.activation(products)
        for weight in self.weights[1:]:
            hidden = self.activation(weight @ hidden)
        lengths = _lengths(contexts[-1], (word,))
        return hidden.mT, LayeredResponse([block], products[:, -1], self.weights[1:], self.activation, lengths=lengths)

    def _check(self, X: Tensor) -> None:
        check_readable(X)
        if tuple(X.shape[-2:]) != (self.n, self.d):
            got = " x ".join(map(str, X.shape[-2:]))
            raise InputError(f"this map reads contexts of n x d = {self.n} x {self.d}, got {got}")


class RandomFeatures(_GaussianLayers):
    """Random features (1): phi(V flat(X)), V of k x nd independent N(0, 1/(nd)) entries.

    Parameters
    ----------
    n, d : int
        Words in a context, and their dimension.
    k : int, optional
        Number of features; default: n d.
    activation : str or Activation
        The function applied to each entry.
    seed : int
        Seed of V.
    weight : array (k, n d), optional
        V itself, default: random and drawn as it is multiplied with.
    dtype : torch.dtype
        Of V and of the features, when V is random.

    Notes
    -----
    V is never stored: T products with it cost O((k + nd) T^2) time and O((k + nd) T) memory. A map stores the
    inputs and outputs of its products; the numbers of a run depend on their order, their law does not.
    """

    def __init__(
        self,
        n: int,
        d: int,
        k: int | None = None,
        activation: str | Activation = "relu",
        seed: int = 0,
        weight: Any = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        weights = None if weight is None else [weight]
        super().__init__(n, d, 1, k, activation, seed, weights, dtype, he=False)


class DeepRandomFeatures(_GaussianLayers):
    """Deep random features (6): phi(V_L phi(... phi(V_1 flat(X)))), V_1: N(0, beta/(nd)), V_l: k x k, N(0, beta/k).

    beta solves (7), E phi(rho)^2 = 1 for rho ~ N(0, beta), so that every layer keeps the scale of its features.

    Parameters
    ----------
    n, d : int
        Words in a context, and their dimension.
    depth : int
        Number of layers L >= 1.
    k : int, optional
        Width of every layer; default: n d.
    activation : str or Activation
        The function applied to each entry; (7) must have a solution for it.
    seed : int
        Seed of all weights.
    weights : sequence of arrays, optional
        V_1 (k, n d), V_2 (k, k), ..., default: random and drawn as they are multiplied with.
    dtype : torch.dtype
        Of the weights and features, when the weights are random.

    Notes
    -----
    T evaluations cost O((nd + L k) T^2) time and O((nd + L k) T) memory.
    """

    def __init__(
        self,
        n: int,
        d: int,
        depth: int,
        k: int | None = None,
        activation: str | Activation = "relu",
        seed: int = 0,
        weights: Sequence[Any] | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__(n, d, depth, k, activation, seed, weights, dtype, he=True)
        self.depth = len(self.weights)


def _lengths(X: Tensor, words: Sequence[int]) -> tuple[float, float]:
    """|X|, and the sum of |x_i| over the words that move."""
    lengths = torch.linalg.vector_norm(X.double(), dim=1)  # n
    return float(torch.linalg.vector_norm(lengths)), float(lengths[list(words)].sum())


def _require(k: int, depth: int) -> None:
    """Refuse what cannot fit: a search stores about twenty inputs and outputs of length k per layer."""
    memory.require(40 * 8 * k * depth, f"a search over {depth} layer(s) of k={k} features", "use a smaller k or depth")


def _draw(inputs: int, k: int, depth: int, beta: float, seed: int, dtype: torch.dtype) -> list[GaussianMatrix]:
    """Lazy layers; `inputs` is the number of columns of the first one."""
    first = LazyGaussian(k, inputs, math.sqrt(beta / inputs), derive(seed, "layer 1"), dtype)
    return [first, *_deeper(k, depth, beta, seed, dtype)]


def _deeper(k: int, depth: int, beta: float, seed: int, dtype: torch.dtype) -> list[GaussianMatrix]:
    seeds = [derive(seed, f"layer {layer}") for layer in range(2, depth + 1)]
    return [LazyGaussian(k, k, math.sqrt(beta / k), s, dtype) for s in seeds]


def _stored(weights: Sequence[Any], inputs: int, depth: int, k: int | None) -> list[GaussianMatrix]:
    """Given weights, whose shapes must chain."""
    if len(weights) != depth:
        raise InputError(f"weights must be one matrix for each of the {depth} layers, got {len(weights)}")
    layers = [
        DenseGaussian.of(as_array(weight, f"the weight of layer {number}")) for number, weight in enumerate(weights, 1)
    ]
    width = layers[0].shape[0] if k is None else k
    for number, layer in enumerate(layers, 1):
        expected = (width, inputs if number == 1 else width)
        if layer.shape != expected:
            got = " x ".join(map(str, layer.shape))
            raise InputError(f"the weight of layer {number} must be {expected[0]} x {expected[1]} (k x in), got {got}")
    return list(layers)


def random_feature_response(
    X: Any,
    word: int | Sequence[int] = 0,
    depth: int | None = None,
    k: int | None = None,
    activation: str | Activation = "relu",
    seed: int = 0,
) -> Response:
    """The response of (deep) random features at one context along one word, drawing only the weights that these need.

    V flat(X^i(Delta)) = V_rest x_rest + V_i (x_i + Delta), where V_rest x_rest is a vector of independent
    N(0, |x_rest|^2 / (nd)) entries and V_i is k x d: exact in law for one context and one word (or several words that
    move together), but not comparable over contexts, since each call draws new weights. Calls for single words of one
    context and one seed share their first weight V: they have the same V flat(X), and the joint law of their blocks V_i
    is that of one matrix. Deeper layers are the same at X itself, and drawn anew for each word elsewhere.

    Parameters
    ----------
    X : array (n, d)
        The context; its dtype is that of the computation. The products of a million weights or more with a single
        layer's word are drawn and kept in float32, which rounds changes and gradients to 1e-7 of themselves.
    word : int or sequence of int
        The word that moves, or the words that move together.
    depth : int, optional
        None for `RandomFeatures`; L for `DeepRandomFeatures` of L layers.
    k, activation, seed
        As there.

    Notes
    -----
    T evaluations cost O((k + d) T^2) time and O((k + d) T) memory per layer; nothing of size n d is allocated. A word
    other than the first takes k log2(n) normal numbers more.
    """
    context = as_context(X).detach()
    n, d = context.shape
    position = check_position(n, word)
    together = not isinstance(position, int)
    words = (position,) if isinstance(position, int) else position
    phi = named(activation)
    beta = 1.0 if depth is None else phi.he_scale()
    layers = 1 if depth is None else check_size(depth, "depth")
    width = n * d if k is None else check_size(k, "k")
    _require(width, layers)
    scale = math.sqrt(beta / (n * d))
    first = words if together else (0,)  # single words share what is drawn for the first one
    dtype = torch.float32 if layers == 1 and width >= _MANY else context.dtype
    block = LazyGaussian(width, len(first) * d, scale, derive(seed, "layer 1"), dtype)
    lengths = torch.linalg.vector_norm(context, dim=1)  # n
    lengths[list(first)] = 0.0
    rest = float(torch.linalg.vector_norm(lengths))
    others = normal(generator(seed, "other words"), width, context.dtype) * (scale * rest)
    start = others + block @ context[list(first)].reshape(-1).to(dtype)
    if words != first:
        product = _share(others, lengths * scale, words[0], seed)
        block = LazyGaussian.conditioned(
            context[words[0]], product, scale, derive(seed, f"layer 1, word {words[0]}"), dtype
        )
    blocks: list[GaussianMatrix] = [block.columns(slot * d, (slot + 1) * d) for slot in range(len(words))]
    deeper = _deeper(width, layers, beta, seed, context.dtype)
    return LayeredResponse(blocks, start, deeper, phi, together, _lengths(context, words))


def _share(total: Tensor, deviations: Tensor, word: int, seed: int) -> Tensor:
    """One of n independent Gaussian vectors (k,) whose sum is known; vector j has entries N(0, deviations[j]^2).

    The words are halved until one is left: given the sum of an interval, that of its first half is Gaussian, and what
    is drawn for an interval does not depend on the word.
    """
    first, last = 0, len(deviations)
    while last - first > 1:
        middle = (first + last) // 2
        left, right, both = (
            float(torch.linalg.vector_norm(deviations[start:stop]))
            for start, stop in ((first, middle), (middle, last), (first, last))
        )
        if both == 0:
            return torch.zeros_like(total)
        noise = normal(generator(seed, f"words {first} to {last}"), len(total), total.dtype)
        half = noise.mul_(left * (right / both)).add_(total, alpha=(left / both) ** 2)
        total, first, last = (half, first, middle) if word < middle else (total - half, middle, last)
    return total
