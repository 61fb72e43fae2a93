"""Each head of a softmax attention layer as bounds and adversarial contexts need it.

A head is f(X)_i = V sum_j P_ij x_j with P_ij proportional to exp(<A x_i, x_j>), A = K^T Q / sqrt(q), in the notation of
Castin, Ablin and Peyre, "How Smooth Is Attention?" (2024); the layer is the sum of its heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from wordsway.errors import InputError
from wordsway.maps import Attention, RandomAttention

_Array: TypeAlias = npt.NDArray[np.float64]

_OFFSETS = 1024  # rotary positions: up to so many distances of two words are tried one by one


@dataclass(frozen=True, eq=False)
class Direction:
    """A real eigenvector of a head's A, and the adversarial context that it defines.

    Attributes
    ----------
    vector : Tensor (d,)
        A u = eigenvalue u, |u| = 1.
    eigenvalue : float
    gamma : float
        -eigenvalue for "opposite" contexts (-R u, R u, ..., R u), eigenvalue / 8 for "half" ones (R u, R u / 2, ...).
    kind : {"opposite", "half"}
    """

    vector: Tensor
    eigenvalue: float
    gamma: float
    kind: str

    def context(self, n: int, radius: float) -> Tensor:
        """Return the adversarial context (n, d): one word far from all others, to which all of them attend."""
        word = radius * self.vector
        first, rest = (-word, word) if self.kind == "opposite" else (word, word / 2)
        return torch.cat([first[None], rest.expand(n - 1, -1)])


def plain_attention(layer: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return the attention of a RandomAttention, and any other layer as it is."""
    return layer.attention if isinstance(layer, RandomAttention) else layer


def attention_of(layer: Callable[[Tensor], Tensor]) -> Attention:
    """Return the attention of a layer for which bounds are known."""
    attention = plain_attention(layer)
    if not isinstance(attention, Attention):
        raise InputError(f"bounds are known for softmax attention, got {type(layer).__name__}: use local_lipschitz")
    if not attention.score.softmax:
        raise InputError(f"bounds are known for softmax attention, got {attention.score.name} scores")
    if attention.d is None:
        raise InputError("the dimension of a word must be known: give a query, a key or a value weight")
    return attention


def dimension(layer: Attention) -> int:
    """Return d of a layer that `attention_of` returned."""
    assert layer.d is not None
    return layer.d


def factors(layer: Attention, head: int) -> tuple[Tensor, Tensor]:
    """Return the weights of queries and keys of a head, (q, d) in float64: its A is keys^T queries / sqrt(q)."""
    return _rows(layer, "query", head), _rows(layer, "key", head // (layer.heads // layer.key_heads))


def values(layer: Attention, head: int) -> Tensor:
    """Return V of a head through its part of the output, (p, d) or (v, d)."""
    weight = value_rows(layer, head)
    if layer.output is None:
        return weight
    return layer.output[:, head * len(weight) : (head + 1) * len(weight)].double() @ weight


def value_rows(layer: Attention, head: int) -> Tensor:
    """Return V of a head before the output, (v, d)."""
    return _rows(layer, "value", head // (layer.heads // layer.key_heads))


def _rows(layer: Attention, name: str, head: int) -> Tensor:
    weight = layer.weight(name)
    matrix = torch.eye(dimension(layer), dtype=torch.float64) if weight is None else weight.double()
    return _part(layer, name, matrix, head)


def _bias(layer: Attention, name: str, head: int) -> Tensor | None:
    """Return the part of a bias that belongs to a head; None where the bias is zero."""
    bias = layer.bias(name)
    return None if bias is None or not bool(bias.any()) else _part(layer, name, bias.double(), head)


def _part(layer: Attention, name: str, rows: Tensor, head: int) -> Tensor:
    size = len(rows) // (layer.heads if name == "query" else layer.key_heads)
    return rows[head * size : (head + 1) * size]


def directions(layer: Attention, head: int, n: int = 1) -> list[Direction]:
    """Return the adversarial directions of a head, from the least and the largest real eigenvalue of its A, if any.

    The eigenvalues of K^T Q other than 0 are those of the smaller matrix Q K^T, where w becomes the eigenvector K^T w;
    with fewer rows than columns 0 is an eigenvalue too, of the vectors that Q maps to 0; it is used where no other
    serves. With rotary positions A depends on the distance of two words, and its mean over n places is used. The sign
    of an eigenvector is free: it is the one for which the bias of the queries raises the weights of the first word.
    """
    weights = factors(layer, head)
    queries, keys = weights[0].numpy(), weights[1].numpy()
    if layer.rotary is not None:
        queries = layer.rotary.mean_turn(weights[0].mT, n).mT.numpy()
    bias = _bias(layer, "query", head)
    pull = None if bias is None else keys.T @ bias.numpy()  # what the bias adds to the score of a word
    size, d = queries.shape
    numbers, vectors = np.linalg.eig((queries @ keys.T if d > size else keys.T @ queries) / math.sqrt(size))
    found = []
    real = np.flatnonzero(numbers.imag == 0)
    for kind, pick, factor in (("opposite", np.argmin, -1.0), ("half", np.argmax, 1 / 8)):
        if len(real) == 0:
            continue
        place = real[pick(numbers.real[real])]
        eigenvalue, vector = float(numbers[place].real), vectors[:, place].real
        if factor * eigenvalue > 0:
            whole = keys.T @ vector if d > size else vector
            found.append(_direction(whole, eigenvalue, factor * eigenvalue, kind, pull))
    if not found and (d > size or (len(real) and not numbers.real[real].any())):
        kernel = np.linalg.svd(queries if d > size else keys.T @ queries)[2][-1]
        found.append(_direction(kernel, 0.0, 0.0, "opposite", pull))
    return found


def _direction(vector: _Array, eigenvalue: float, gamma: float, kind: str, pull: _Array | None) -> Direction:
    towards = 0.0 if pull is None else float(pull @ vector) * (-1 if kind == "opposite" else 1)
    unit = vector / np.linalg.norm(vector)
    return Direction(torch.from_numpy(-unit if towards < 0 else unit), eigenvalue, gamma, kind)


def score_gradient(layer: Attention, head: int, x: Tensor) -> Tensor:
    """Return the gradient, in another word, of the score that a word x gives to it, without positions, (d,)."""
    queries, keys = factors(layer, head)
    bias = _bias(layer, "query", head)
    query = queries @ x if bias is None else queries @ x + bias
    return keys.mT @ query / math.sqrt(len(queries))


def spread(layer: Attention, head: int, n: int, radius: float) -> tuple[float, float]:
    """Return |A| and the radius to use with it in a bound for n words in B_R.

    With biases the scores are <Q x_i + b, K x_j + c> / sqrt(q): those of words (x, t) with one more coordinate, which
    lie in a ball of radius sqrt(R^2 + t^2), so that a bound for these holds; t is chosen to make |A| R^2 small.
    Without positions c does not matter, since it moves all scores of a row alike. With rotary positions A depends on
    the distance of two words: |A| is its largest norm over n places, or over all rotations for n > 1024.
    """
    queries, keys = factors(layer, head)
    shared = layer.heads // layer.key_heads
    biases = (_bias(layer, "query", head), _bias(layer, "key", head // shared) if layer.rotary is not None else None)

    def size(t: float) -> float:
        left, right = _root(queries, biases[0], t), _root(keys, biases[1], t)
        return _largest(layer, left, right, n) / math.sqrt(len(queries))

    if biases == (None, None):
        return size(1.0), radius
    best = minimize_scalar(
        lambda log: size(math.exp(log)) * (radius**2 + math.exp(2 * log)),
        bounds=(math.log(radius) - 6, math.log(radius) + 3),
        method="bounded",
        options={"xatol": 1e-2},
    )
    t = math.exp(float(best.x))
    return size(t), math.hypot(radius, t)


def _root(weight: Tensor, bias: Tensor | None, t: float) -> Tensor:
    """Return a square L with L L^T = W W^T + b b^T / t^2: norms of products with (W, b / t) depend on nothing else."""
    gram = weight @ weight.mT
    if bias is not None:
        gram = gram + torch.outer(bias, bias) / t**2
    numbers, vectors = torch.linalg.eigh(gram)
    root: Tensor = vectors * numbers.clamp_min(0).sqrt()
    return root


def _largest(layer: Attention, left: Tensor, right: Tensor, n: int) -> float:
    """Return the largest norm of left^T T right over the rotations T between two of n places."""
    if layer.rotary is None:
        return norm(left.mT @ right)
    if n > _OFFSETS:
        return norm(left) * norm(right) * max(1.0, layer.rotary.scale**2)
    places = torch.arange(1 - n, 1 if layer.causal else n)
    start = layer.rotary.turn(left.mT[:, None], places[-1:] * 0)[:, 0]  # q size
    turned = layer.rotary.turn(right.mT[:, None].expand(-1, len(places), -1), places)  # q places size
    return float(torch.linalg.matrix_norm(turned.movedim(1, 0) @ start.mT, ord=2).max())


def norm(matrix: Tensor) -> float:
    """Return the operator norm."""
    return float(torch.linalg.matrix_norm(matrix.double(), ord=2))


def exponential(exponent: float) -> float:
    """Return exp of a number, infinity where that overflows."""
    return math.exp(exponent) if exponent < 700 else math.inf


def mean_field_bound(size: float, masked: bool) -> float:
    """Return (1 + 3 a) exp(2 a) for a = |A| R^2, an upper bound for V = I and any n; twice that where masked.

    Masked, a word attends to the mean over the past of how far the others moved, and such means have norm up to 2 in L2
    (Hardy's inequality): with A = 0 the constant is 2, not 1.
    """
    return (2 if masked else 1) * (1 + 3 * size) * exponential(2 * size)
