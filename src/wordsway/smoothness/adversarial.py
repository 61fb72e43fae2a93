"""Contexts at which an attention layer has a large Lipschitz constant: all words attend to one that is far away."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from wordsway.checks import check_index, check_radius, check_size
from wordsway.errors import InputError, NumericalError
from wordsway.maps import Attention
from wordsway.records import Record
from wordsway.smoothness.heads import Direction, attention_of, dimension, directions, score_gradient, values
from wordsway.smoothness.jacobian import jacobian_of, tangent
from wordsway.smoothness.lanczos import top_triplets
from wordsway.smoothness.local import PRODUCTS, TOLERANCE, LocalLipschitz, local_lipschitz

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROUGH = 1e-3  # residual of the constants during the ascent


@dataclass(frozen=True, eq=False, repr=False)
class AdversarialContext(Record):
    """A context in B_R^n where a layer has a large local Lipschitz constant: a lower bound on Lip with its witness.

    Attributes
    ----------
    context : Tensor (n, d)
    head : int
        The head whose eigenvector defines the context.
    kind : {"opposite", "half"}
        (-R u, R u, ..., R u) or (R u, R u / 2, ..., R u / 2).
    eigenvalue, gamma : float
        A u = eigenvalue u for that head; gamma is -eigenvalue or eigenvalue / 8.
    radius : float
    steps : int
        Steps of the ascent that raised the constant.
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
    """Construct a context of n words in B_R with a large local constant, after Castin, Ablin and Peyre.

    Parameters
    ----------
    layer : Attention or RandomAttention
        With softmax scores.
    n : int
        At least 2.
    R : float or None
        None is sqrt(d).
    head : int or None
        The head whose eigenvectors are used, default: the best of all heads.
    steps : int
        Gradient ascent of the constant over all contexts in B_R^n from there, for at most so many steps.
    seed : int
        Seed of the vectors at which the searches for singular values start.
    products : int
        As for `local_lipschitz`, for the constant at the context.

    Notes
    -----
    Of one head all directions are measured, of several those two where the first word moves the others farthest, with
    and without moving its weight. So the constant of one head is never below `lipschitz_bounds(layer, n, R).lower`.

    Cost: O(heads^2 d^2) to choose, two local constants, and per step another and three evaluations of the layer.
    """
    attention = attention_of(layer)
    ranked = adversarial_directions(attention, n, R, head)
    radius = check_radius(R, dimension(attention))
    effects = _effects(attention, [direction for _, direction in ranked], n, radius)
    chosen = ranked if len(ranked) <= 2 else [ranked[0], ranked[max(range(len(ranked)), key=effects.__getitem__)]]
    candidates = [
        (local_lipschitz(attention, direction.context(n, radius), TOLERANCE, products, seed=seed), place, direction)
        for place, direction in dict.fromkeys(chosen)
    ]
    constant, place, direction = max(candidates, key=lambda candidate: candidate[0].value)
    context, taken = direction.context(n, radius), 0
    if steps:
        limit = check_size(steps, "steps")
        context, taken = steepen(attention, context, lambda X: _into_ball(X, radius), radius, limit, seed)
        constant = local_lipschitz(attention, context, TOLERANCE, products, seed=seed)
    return AdversarialContext(
        context, place, direction.kind, direction.eigenvalue, direction.gamma, radius, taken, constant
    )


def adversarial_directions(
    layer: Callable[[Tensor], Tensor], n: int, R: float | None, head: int | None = None
) -> list[tuple[int, Direction]]:
    """Return heads with their adversarial directions, the best first.

    They are ordered by how far the first word moves the others without moving its weight: the effect that grows like
    sqrt(n), so that the best of them for one long context serves all lengths.
    """
    attention = attention_of(layer)
    n, radius = check_size(n, "n"), check_radius(R, dimension(attention))
    if n < 2:
        raise InputError(f"n must be at least 2, one word and others that attend to it, got {n}")
    heads = range(attention.heads) if head is None else (check_index(head, attention.heads, "head"),)
    candidates = [(place, direction) for place in heads for direction in directions(attention, place, n)]
    if not candidates:
        raise NumericalError(
            "no head has a real eigenvalue of A = K^T Q / sqrt(q), which an adversarial context needs: "
            "use local_lipschitz at other contexts"
        )
    effects = _effects(attention, [direction for _, direction in candidates], n, radius, weights_move=False)
    order = sorted(range(len(candidates)), key=lambda place: -effects[place])
    return [candidates[place] for place in order]


def _effects(
    layer: Attention, candidates: list[Direction], n: int, radius: float, weights_move: bool = True
) -> list[float]:
    """Return how far the first word moves any other word of a direction's context.

    With the first word a and all others b, head h gives a the weight p_h = 1 / (1 + (n - 1) exp(s(b, b) - s(b, a))), so
    that each other word moves by sum_h p_h V_h (dx + (1 - p_h) (a - b) <g_h, dx>), g_h the gradient of s(b, a) in a.
    Without `weights_move`, dx keeps the scores and the second part is 0: that effect grows like sqrt(n) for every n,
    while the other one is large at some n. Positions and the mask are left out: they do not matter for a choice.
    """
    if len(candidates) == 1:
        return [1.0]
    matrices = torch.stack([values(layer, head) for head in range(layer.heads)])  # H p d
    effects = []
    for direction in candidates:
        first, other = direction.context(2, radius)
        gradients = torch.stack([score_gradient(layer, head, other) for head in range(layer.heads)])  # H d
        weights = torch.sigmoid(gradients @ (first - other) - math.log(n - 1))
        moves = torch.tensordot(weights, matrices, 1)
        if weights_move:
            pulls = (weights * (1 - weights))[:, None] * (matrices @ (first - other))  # H p
            moves = moves + pulls.mT @ gradients
        effects.append(_rough_norm(moves))
    return effects


def _rough_norm(matrix: Tensor) -> float:
    """Return the operator norm to a few percent, from below, by a few steps of power iteration."""
    vector = torch.linspace(0, 2, matrix.shape[1], dtype=matrix.dtype)
    for _ in range(10):
        vector = matrix.mT @ (matrix @ torch.nn.functional.normalize(vector, dim=0))
    return float(torch.linalg.vector_norm(matrix @ torch.nn.functional.normalize(vector, dim=0)))


def steepen(
    layer: Attention, context: Tensor, inside: Callable[[Tensor], Tensor], radius: float, steps: int, seed: int
) -> tuple[Tensor, int]:
    """Raise the local constant step by step within a set of contexts; return where it ended and the steps taken.

    `inside` projects onto the set, which has the size `radius`. A step that does not raise the constant is tried again
    at a third of its length.
    """
    length, taken = 0.1, 0
    value, gradient = _constant(layer, context, seed)
    for _ in range(steps):
        if length < 1e-6:
            break
        move = length * radius * gradient / torch.linalg.vector_norm(gradient, dim=-1).max().clamp_min(1e-300)
        trial = inside(context + move)
        higher, next_gradient = _constant(layer, trial, seed)
        if higher > value:
            context, value, gradient, taken, length = trial, higher, next_gradient, taken + 1, 1.5 * length
        else:
            length /= 3
    return context, taken


def _constant(layer: Attention, context: Tensor, seed: int) -> tuple[float, Tensor]:
    """Return the constant at a context, and its gradient: that of left . D_X f right at fixed singular vectors."""
    triplet = top_triplets(jacobian_of(layer, context[None]), _ROUGH, PRODUCTS, seed)
    with torch.enable_grad():
        moving = context.detach().requires_grad_(True)
        moved = tangent(layer, moving, triplet.right[0])
        (gradient,) = torch.autograd.grad((triplet.left[0] * moved).sum(), moving)
    return float(triplet.values[0]), gradient


def _into_ball(context: Tensor, radius: float) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(context, dim=-1, keepdim=True)
    return radius * context / norms.clamp_min(radius)
