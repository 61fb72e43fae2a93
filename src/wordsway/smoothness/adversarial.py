"""Contexts at which an attention layer is as steep as one can make it: one word far away, at which all others look."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from wordsway.checks import check_radius, check_size
from wordsway.errors import InputError, NumericalError
from wordsway.maps import Attention
from wordsway.records import Record
from wordsway.smoothness.heads import Direction, attention_of, dimension, directions, score_slope, values
from wordsway.smoothness.jacobian import jacobian_of, tangent
from wordsway.smoothness.lanczos import top_triplets
from wordsway.smoothness.measure import PRODUCTS, TOLERANCE, LocalLipschitz, local_lipschitz

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROUGH = 1e-3  # residual of the constants on the way up


@dataclass(frozen=True, eq=False, repr=False)
class AdversarialContext(Record):
    """A context in B_R^n where a layer has a large local Lipschitz constant: a witness that Lip is no less.

    Attributes
    ----------
    context : Tensor (n, d)
    head : int
        The head that the context was made for.
    kind : {"opposite", "half"}
        (-R u, R u, ..., R u) or (R u, R u / 2, ..., R u / 2).
    eigenvalue, gamma : float
        A u = eigenvalue u for that head; gamma is -eigenvalue or eigenvalue / 8.
    radius : float
    steps : int
        Steps of the climb that raised the constant.
    lipschitz : LocalLipschitz
        The constant there.
    """

    context: Tensor
    head: int
    kind: str
    eigenvalue: float
    gamma: float
    radius: float
    steps: int
    lipschitz: LocalLipschitz

    summary_fields = ("lipschitz", "head", "kind", "gamma", "radius", "steps")

    def draw(self, ax: Axes) -> None:
        """Draw the witness of the constant, see `LocalLipschitz.draw`."""
        self.lipschitz.draw(ax)


def adversarial_context(
    layer: Callable[[Tensor], Tensor],
    n: int,
    R: float | None,
    head: int | None = None,
    steps: int = 0,
    seed: int = 0,
    products: int = PRODUCTS,
) -> AdversarialContext:
    """A context of n words in B_R at which the layer is very steep, by the construction of Castin, Ablin and Peyre.

    Parameters
    ----------
    layer : Attention or RandomAttention
        With softmax scores.
    n : int
        At least 2.
    R : float or None
        None is sqrt(d).
    head : int or None
        The head whose eigenvectors are used; None takes the best of all heads, by how far the first word moves the
        others.
    steps : int
        Then climb: ascent of the constant over all contexts in B_R^n, for at most so many steps.
    seed : int
        Of the vectors that the searches for singular values start from.
    products : int
        As for `local_lipschitz`, of the constant at the context.

    Notes
    -----
    Cost: O(heads^2 d^2) to choose, one local constant, and for each step another and three evaluations of the layer.
    """
    attention = attention_of(layer)
    place, direction = adversarial_directions(attention, n, R, head)[0]
    radius = check_radius(R, dimension(attention))
    context = direction.context(n, radius)
    taken = 0
    if steps:
        context, taken = _climb(attention, context, radius, check_size(steps, "steps"), seed)
    constant = local_lipschitz(attention, context, TOLERANCE, products, seed=seed)
    return AdversarialContext(
        context, place, direction.kind, direction.eigenvalue, direction.gamma, radius, taken, constant
    )


def adversarial_directions(
    layer: Callable[[Tensor], Tensor], n: int, R: float | None, head: int | None = None
) -> list[tuple[int, Direction]]:
    """The heads with their adversarial directions, by how far the first word moves the other n - 1, the best first."""
    attention = attention_of(layer)
    n, radius = check_size(n, "n"), check_radius(R, dimension(attention))
    if n < 2:
        raise InputError(f"n must be at least 2, one word and others that look at it, got {n}")
    if head is not None and not 0 <= head < attention.heads:
        raise InputError(f"head must be from 0 to {attention.heads - 1}, got {head}")
    heads = range(attention.heads) if head is None else (head,)
    found = [(place, direction) for place in heads for direction in directions(attention, place, n)]
    if not found:
        raise NumericalError(
            "no head has a real eigenvalue of A = K^T Q / sqrt(q), which an adversarial context needs: "
            "use local_lipschitz at contexts of your own"
        )
    gains = _gains(attention, [direction for _, direction in found], n, radius)
    order = sorted(range(len(found)), key=lambda place: -gains[place])
    return [found[place] for place in order]


def _gains(layer: Attention, found: list[Direction], n: int, radius: float) -> list[float]:
    """For each direction, how far the first word moves any other word of its context without moving its weight.

    With the first word a and all others b, head h gives a the weight p_h = 1 / (1 + (n - 1) exp(s(b, b) - s(b, a))), so
    that each other word moves by sum_h p_h V_h dx where dx keeps the scores: the lower bound's way, which grows like
    sqrt(n). Positions are left out: they do not matter for a choice.
    """
    if len(found) == 1:
        return [1.0]
    matrices = torch.stack([values(layer, head) for head in range(layer.heads)])  # H p d
    gains = []
    for direction in found:
        first, other = direction.context(2, radius)
        leads = torch.stack([score_slope(layer, head, other) @ (first - other) for head in range(layer.heads)])
        weights = torch.sigmoid(leads - math.log(n - 1))
        gains.append(_rough_norm(torch.tensordot(weights, matrices, 1)))
    return gains


def _rough_norm(matrix: Tensor) -> float:
    """The operator norm to a few percent, from below, by a few steps of power iteration."""
    vector = torch.linspace(0, 2, matrix.shape[1], dtype=matrix.dtype)
    for _ in range(10):
        vector = matrix.mT @ (matrix @ torch.nn.functional.normalize(vector, dim=0))
    return float(torch.linalg.vector_norm(matrix @ torch.nn.functional.normalize(vector, dim=0)))


def _climb(layer: Attention, context: Tensor, radius: float, steps: int, seed: int) -> tuple[Tensor, int]:
    """Raise the constant step by step; a step that does not raise it is tried again at half its length."""
    length, taken = 0.1, 0
    value, slope = _slope(layer, context, seed)
    for _ in range(steps):
        if length < 1e-6:
            break
        move = length * radius * slope / torch.linalg.vector_norm(slope, dim=-1).max().clamp_min(1e-300)
        trial = _into_ball(context + move, radius)
        higher, next_slope = _slope(layer, trial, seed)
        if higher > value:
            context, value, slope, taken, length = trial, higher, next_slope, taken + 1, 1.5 * length
        else:
            length /= 3
    return context, taken


def _slope(layer: Attention, context: Tensor, seed: int) -> tuple[float, Tensor]:
    """The constant at a context, and its gradient: that of left . D_X f right with the singular vectors held."""
    found = top_triplets(jacobian_of(layer, context[None]), _ROUGH, PRODUCTS, seed)
    with torch.enable_grad():
        moving = context.detach().requires_grad_(True)
        moved = tangent(layer, moving, found.right[0])
        (slope,) = torch.autograd.grad((found.left[0] * moved).sum(), moving)
    return float(found.values[0]), slope


def _into_ball(context: Tensor, radius: float) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(context, dim=-1, keepdim=True)
    return radius * context / norms.clamp_min(radius)
