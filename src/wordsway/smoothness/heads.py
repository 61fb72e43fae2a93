"""Each head of a softmax attention layer as bounds and adversarial contexts need it.

A head is f(X)_i = V sum_j P_ij x_j with P_ij proportional to exp(<A x_i, x_j>), A = K^T Q / sqrt(q), in the notation of
Castin, Ablin and Peyre, "How Smooth Is Attention?" (2024); the layer is the sum of its heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

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


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    """All words x = centre + matrix z with |z| <= radius.

    Attributes
    ----------
    matrix : Tensor (d, m)
    centre : Tensor (d,)
    radius : float
    """

    matrix: Tensor
    centre: Tensor
    radius: float

    @classmethod
    def ball(cls, d: int, radius: float) -> Ellipsoid:
        """Return the ball B_R."""
        return cls(torch.eye(d, dtype=torch.float64), torch.zeros(d, dtype=torch.float64), radius)

    @classmethod
    def of_norm(cls, weight: Tensor, bias: Tensor | None = None, centred: bool = False) -> Ellipsoid:
        """Return all possible outputs a o z + b of an RMSNorm, or of a LayerNorm (`centred`: then z has the mean 0)."""
        a = weight.detach().cpu().double()
        matrix = torch.diag(a)
        if centred:
            matrix = matrix - a[:, None] / len(a)
        b = torch.zeros_like(a) if bias is None else bias.detach().cpu().double()
        return cls(matrix, b, math.sqrt(len(a)))


@dataclass(frozen=True)
class HeadSize:
    """What bounds need to know about the scores of a head over all words of an ellipsoid.

    Attributes
    ----------
    own : float
        Rate at which the scores of a word change when it moves, as far as their differences in z are concerned: a bound
        on sqrt(sum_j P_ij (ds_ij)^2) / |dx_i|.
    others : float
        The same when another word j moves: a bound on |ds_ij| / |dx_j|.
    scores : float
        No two scores of a row differ by more than twice this.
    """

    own: float
    others: float
    scores: float

    def largest_weights(self, n: int, causal: bool) -> float:
        """Return s with sum_i P_ij <= s^2 for all j: no weight is above 1 / (1 + (m - 1) exp(-2 scores)) of m words."""
        least = math.exp(-2 * self.scores)
        if not causal:
            return math.sqrt(n / (1 + (n - 1) * least))
        return math.sqrt(float((1 / (1 + torch.arange(n, dtype=torch.float64) * least)).sum()))


def head_size(layer: Attention, head: int, n: int, words: Ellipsoid) -> HeadSize:
    """Return the sizes of a head for n words of an ellipsoid.

    Queries are Q x + b and keys K x + c. Without positions c does not matter, since it moves all scores of a row alike.
    With rotary positions the scores depend on the distance of two words: sizes are the largest over n places, or over
    all rotations for n > 1024. Relative positions add to differences of scores, and to no derivative.
    """
    queries, keys = factors(layer, head)
    group = head // (layer.heads // layer.key_heads)
    moving_query = _Side.of(queries, _bias(layer, "query", head), words)
    moving_key = _Side.of(keys, _bias(layer, "key", group), words)
    if layer.rotary is None:
        moving_key = moving_key._replace(offset=None)
    free_query, free_key = _Side(queries, None, 1.0), _Side(keys, None, 1.0)
    added = 0.0 if layer.relative is None else float(layer.relative.half_range()[head])
    return HeadSize(
        own=_largest_product(layer, free_query, moving_key, n),
        others=_largest_product(layer, moving_query, free_key, n),
        scores=_largest_product(layer, moving_query, moving_key, n) + added,
    )


class _Side(NamedTuple):
    """All queries or keys W z + b with |z| <= radius."""

    weight: Tensor  # q m
    offset: Tensor | None
    radius: float

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None, words: Ellipsoid) -> _Side:
        offset = weight @ words.centre
        if bias is not None:
            offset = offset + bias
        return cls(weight @ words.matrix, offset if bool(offset.any()) else None, words.radius)

    def root(self, t: float) -> Tensor:
        """Return a square L with L L^T = W W^T + b b^T / t^2: norms of products with (W, b / t) need nothing else."""
        gram = self.weight @ self.weight.mT
        if self.offset is not None:
            gram = gram + torch.outer(self.offset, self.offset) / t**2
        return square_root(gram)

    def reach(self, t: float) -> float:
        return self.radius if self.offset is None else math.hypot(self.radius, t)


def _largest_product(layer: Attention, queries: _Side, keys: _Side, n: int) -> float:
    """Return an upper bound on <query, key> / sqrt(q).

    W z + b = (W, b / t) (z, t), a vector of the length hypot(radius, t) at most: every t > 0 gives an upper bound, and
    the least over t is exact where one side has an offset and the other none (the S-lemma).
    """

    def bound(t: float) -> float:
        size = _largest(layer, queries.root(t), keys.root(t), n) / math.sqrt(len(queries.weight))
        return size * queries.reach(t) * keys.reach(t)

    if queries.offset is None and keys.offset is None:
        return bound(1.0)
    radius = max(side.radius for side in (queries, keys) if side.offset is not None)
    limits = (math.log(radius) - 6, math.log(radius) + 6)
    best = minimize_scalar(lambda log: bound(math.exp(log)), bounds=limits, method="bounded", options={"xatol": 1e-2})
    return float(best.fun)


def square_root(gram: Tensor) -> Tensor:
    """Return a square L with L L^T = gram, a positive semidefinite matrix."""
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


def mean_field_bound(size: HeadSize, radius: float, masked: bool) -> float:
    """Return an upper bound for V = I, words in B_R and any n: e^a + R (own + others e^a) with a = `scores`.

    Without biases it is (1 + a) e^a + a for a = |A| R^2. Masked, it is 2 e^a + R (own + 4 others e^a): means over the
    past have norm up to 2 in L2 (Hardy's inequality). docs/certificates.md has the proofs.
    """
    growth = exponential(size.scores)
    if masked:
        return 2 * growth + radius * (size.own + 4 * size.others * growth)
    return growth + radius * (size.own + size.others * growth)
