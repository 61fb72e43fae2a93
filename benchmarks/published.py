"""The published algorithm, from its description: dense weights, the whole map at every step, fixed steps uphill.

Everything is float64. Delta starts at a small random vector, moves by a fixed rate times the gradient of the relative
change, and is put back onto the ball |Delta| <= r around the clean word when it leaves it. Autograd goes through the
whole map. Nothing of wordsway's maps, Gaussian matrices or search is used here, so this is also the plain definition
that ours is checked against.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from wordsway.seeds import generator, normal

Map: TypeAlias = Callable[[Tensor], Tensor]

RATE = {"rf": 100.0, "drf": 100.0, "raf": 10.0, "relu-raf": 10.0}
START = 1e-3  # standard deviation of the entries of the first Delta


def steps_of(name: str, n: int) -> int:
    """Steps that the published scripts take: 300 for random features, 50 n for attention."""
    return 300 if name in ("rf", "drf") else 50 * n


@dataclass(frozen=True)
class Ascent:
    """The best point that an ascent saw, and the value it started from."""

    value: float
    delta: Tensor  # d
    first: float


def ascend(features: Map, d: int, radius: float, rate: float, steps: int, seed: int) -> Ascent:
    """Projected gradient ascent on |features(Delta) - features(0)| / |features(0)| over |Delta| <= radius.

    Parameters
    ----------
    features : callable
        Delta (d,) -> features of the context whose word moved by Delta.
    d : int
        Dimension of a word.
    radius, rate, steps
        Of the ball, of a step, and how many; all steps are taken.
    seed : int
        Of the first Delta.

    Notes
    -----
    Returns the best value of all steps, not the last one. Costs `steps` forward and backward passes of the map.
    """
    with torch.no_grad():
        base = features(torch.zeros(d, dtype=torch.float64))
        norm = torch.linalg.vector_norm(base)
    delta = START * normal(generator(seed, "published start"), d)
    delta = _project(delta, radius)
    best, witness, first = -math.inf, delta, math.nan
    for step in range(steps):
        delta.requires_grad_(True)
        value = torch.linalg.vector_norm(features(delta) - base) / norm
        (gradient,) = torch.autograd.grad(value, delta)
        delta = delta.detach()
        reached = value.item()
        first = reached if step == 0 else first
        if reached > best:
            best, witness = reached, delta
        delta = _project(delta + rate * gradient, radius)
    with torch.no_grad():
        last = (torch.linalg.vector_norm(features(delta) - base) / norm).item()
    return Ascent(last, delta, first) if last > best else Ascent(best, witness, first)


def _project(delta: Tensor, radius: float) -> Tensor:
    length = float(torch.linalg.vector_norm(delta))
    return delta if length <= radius else delta * (radius / length)


def along(phi: Map, X: Tensor, word: int) -> Map:
    """Delta -> phi(X^i(Delta)), the whole map at the perturbed context."""
    at = torch.tensor([word])
    return lambda delta: phi(X.index_add(0, at, delta.unsqueeze(0)))


def change(phi: Map, X: Tensor, word: int, delta: Tensor) -> float:
    """The plain definition: |phi(X^i(Delta)) - phi(X)| / |phi(X)|."""
    with torch.no_grad():
        base = phi(X)
        moved = along(phi, X, word)(delta)
        return float(torch.linalg.vector_norm(moved - base) / torch.linalg.vector_norm(base))


def attention(weight: Tensor, score: str) -> Map:
    """raf (3) for score "softmax", relu-raf for "relu": weights(X W X^T / sqrt(d)) X."""

    def phi(X: Tensor) -> Tensor:
        scores = X @ weight @ X.mT / math.sqrt(X.shape[1])  # n n
        if score == "softmax":
            return torch.softmax(scores, dim=-1) @ X
        gains = torch.relu(scores)
        total = gains.sum(-1, keepdim=True)
        return gains / torch.where(total > 0, total, 1.0) @ X

    return phi


def layers(weights: Sequence[Tensor]) -> Map:
    """rf (1) for one weight, drf (6) for several: relu(V_L relu(... relu(V_1 flat(X))))."""

    def phi(X: Tensor) -> Tensor:
        hidden = X.reshape(-1)
        for weight in weights:
            hidden = torch.relu(weight @ hidden)
        return hidden

    return phi


def draw_layers(width: int, depth: int | None, seed: int) -> list[Tensor]:
    """Dense weights of `layers` on inputs of the same width: variance 1/width for rf (depth None), 2/width for drf."""
    scale = math.sqrt((1.0 if depth is None else 2.0) / width)
    source = generator(seed, "published weights")
    return [normal(source, (width, width)).mul_(scale) for _ in range(depth or 1)]


def one_block(block: Tensor, start: Tensor) -> Map:
    """Delta -> relu(start + block Delta): rf along one word from the word's columns of V (k, d) and V flat(X) (k,).

    The same numbers as the dense map to rounding, so the same ascent, for the distribution of its result over many
    draws. Not used for anything that is timed.
    """
    return lambda delta: torch.relu(start + block @ delta)


def draw_block(X: Tensor, word: int, seed: int) -> tuple[Tensor, Tensor]:
    """The word's columns of a dense V, and V flat(X), in their joint law: the other columns are independent of them."""
    width = X.numel()
    scale = 1 / math.sqrt(width)
    source = generator(seed, "published block")
    block = normal(source, (width, X.shape[1])).mul_(scale)
    others = torch.cat([X[:word], X[word + 1 :]])
    rest = scale * float(torch.linalg.vector_norm(others))
    return block, normal(source, width) * rest + block @ X[word]
