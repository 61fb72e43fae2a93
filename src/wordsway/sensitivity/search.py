"""Maximising a smooth function of one or several moves, each in its own ball, for many problems and starts at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

# (B, G, m, d) -> values (B, G) and, if wanted, gradients (B, G, m, d): B starts for each of G problems of m moves
Objective: TypeAlias = Callable[[Tensor, bool], tuple[Tensor, Tensor | None]]


@dataclass(frozen=True)
class Effort:
    """How hard to search: power steps for every start, then quasi-Newton steps for the `keep` best of each problem."""

    power: int = 6
    polish: int = 60
    keep: int = 14
    history: int = 8
    tolerance: float = 1e-5


@dataclass(frozen=True)
class Found:
    """The best move of each problem: a witness, so `value` is a lower bound on the supremum."""

    value: Tensor  # G
    delta: Tensor  # G m d
    converged: Tensor  # G
    evaluations: int


def maximise(
    objective: Objective,
    starts: Tensor,
    radius: float,
    effort: Effort | None = None,
    escape: Callable[[Tensor], Tensor | None] | None = None,
) -> Found:
    """Maximise over |Delta_l| <= radius for each of the m moves l.

    First the generalised power iteration Delta <- r g / |g|, then L-BFGS along the ball: on the sphere while the
    gradient points outwards, inside when it points inwards. One evaluation of the batch a step; a problem whose step
    fails keeps its point and shortens the step. At last the witness is shrunk along its ray, and polished again where
    that is better. Never returns less than the best value seen.

    Parameters
    ----------
    objective : callable
        (B, G, m, d), bool -> values (B, G), gradients (B, G, m, d).
    starts : Tensor (B, G, m, d)
        Directions to start from; their length does not matter.
    radius : float
        Radius of the balls.
    effort : Effort
    escape : callable, optional
        Points (B', G, m, d) in other basins near given ones; they are polished too.
    """
    effort = effort or Effort()
    best = _Best(starts)
    point = _to_sphere(starts, radius)
    for _ in range(effort.power):
        _, slope = best.ask(objective, point)
        point = _to_sphere(torch.where(_length(slope) > 0, slope, point), radius)
    point = _keep(best, objective, point, effort.keep)
    if escape is not None and (others := escape(point)) is not None:
        point = torch.cat([point, others])
    converged = _polish(objective, best, point, radius, effort)
    scales = torch.linspace(0.1, 0.9, 9, dtype=starts.dtype, device=starts.device).view(-1, 1, 1, 1)
    before = best.value.clone()
    best.look(objective, scales * best.delta)
    inside = best.value > before * (1 + effort.tolerance)
    if bool(inside.any()):
        again = _polish(objective, best, best.delta.unsqueeze(0).clone(), radius, effort)
        converged = torch.where(inside, again, converged)
    return Found(best.value, best.delta, converged, best.evaluations)


class _Best:
    """The best point seen of each problem, and the number of evaluations of a batch."""

    def __init__(self, starts: Tensor) -> None:
        self.value = torch.full(starts.shape[1:2], -torch.inf, dtype=starts.dtype, device=starts.device)
        self.delta = torch.zeros_like(starts[0])
        self.evaluations = 0

    def ask(self, objective: Objective, point: Tensor) -> tuple[Tensor, Tensor]:
        value, slope = objective(point, True)
        self._note(value, point)
        return value, slope if slope is not None else torch.zeros_like(point)

    def look(self, objective: Objective, point: Tensor) -> Tensor:
        value, _ = objective(point, False)
        self._note(value, point)
        return value

    def _note(self, value: Tensor, point: Tensor) -> None:
        self.evaluations += 1
        top, start = value.max(0)  # G
        better = top > self.value
        chosen = point[start, torch.arange(point.shape[1], device=point.device)]
        self.value = torch.where(better, top, self.value)
        self.delta = torch.where(better[:, None, None], chosen, self.delta)


def _length(x: Tensor) -> Tensor:
    return torch.as_tensor(torch.linalg.vector_norm(x, dim=-1, keepdim=True))


def _to_sphere(x: Tensor, radius: float) -> Tensor:
    length = _length(x)
    return torch.where(length > 0, x * (radius / length.clamp_min(torch.finfo(x.dtype).tiny)), 0.0)


def _to_ball(x: Tensor, radius: float) -> Tensor:
    return torch.where(_length(x) > radius, _to_sphere(x, radius), x)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Inner products of whole moves, (B, G)."""
    return (a * b).sum((-2, -1))


def _keep(best: _Best, objective: Objective, point: Tensor, keep: int) -> Tensor:
    """The `keep` best starts of each problem after the power steps, best first."""
    order = best.look(objective, point).topk(min(keep, len(point)), dim=0).indices  # keep G
    return point[order, torch.arange(point.shape[1], device=point.device)]


def _free(slope: Tensor, point: Tensor, radius: float) -> Tensor:
    """The gradient along what may move: tangent where the ball holds the point back, whole elsewhere."""
    outward = (slope * point).sum(-1, keepdim=True)
    held = (_length(point) > radius * (1 - 1e-9)) & (outward > 0)
    return torch.where(held, slope - outward * point / radius**2, slope)


def _polish(objective: Objective, best: _Best, point: Tensor, radius: float, effort: Effort) -> Tensor:
    """L-BFGS ascent of every (start, problem) at its own pace; returns which problems converged.

    A start is done when its quadratic model promises less than the tolerance, or cannot reach the leader any more.
    """
    value, slope = best.ask(objective, point)
    free = _free(slope, point, radius)
    pairs: list[tuple[Tensor, Tensor]] = []
    scale = torch.ones_like(value)
    for _ in range(effort.polish):
        ascent, promise = _direction(pairs, free, radius)
        settled = (promise <= effort.tolerance * value.abs()) | (scale < 1e-5)
        going = ~(settled | (value + 20 * promise < value.amax(0))).all(1)  # B
        if not bool(going.any()):
            break
        if int(going.sum()) <= len(going) // 2:  # starts that are done need no more evaluations
            stay = going | (value == value.amax(0)).any(1)
            point, free, value, scale, ascent, settled = (x[stay] for x in (point, free, value, scale, ascent, settled))
            pairs = [(step[stay], bend[stay]) for step, bend in pairs]
        trial = _to_ball(point + scale[..., None, None] * ascent, radius)
        trial_value, trial_slope = best.ask(objective, trial)
        trial_free = _free(trial_slope, trial, radius)
        step, bend = trial - point, free - trial_free
        gain, hoped = trial_value - value, _dot(free, step)
        accept = (gain > 0) & (gain >= 1e-4 * hoped)
        taken = accept[..., None, None]
        pairs = [*pairs, (torch.where(taken, step, 0.0), torch.where(taken, bend, 0.0))][-effort.history :]
        point, free = torch.where(taken, trial, point), torch.where(taken, trial_free, free)
        value = torch.where(accept, trial_value, value)
        # a failed step is shortened to where the parabola through what was seen has its top
        shorter = (0.5 * hoped / (hoped - gain).clamp_min(1e-300)).clamp(0.1, 0.5)
        scale = torch.where(accept, 1.0, scale * shorter)
    leader = value.argmax(0)
    return settled[leader, torch.arange(settled.shape[1], device=settled.device)]


def _direction(pairs: list[tuple[Tensor, Tensor]], free: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """The L-BFGS direction (B, G, m, d) and the gain that its quadratic model promises (B, G).

    The two-loop recursion runs on coefficients: all inner products come from one Gram matrix. Pairs without positive
    curvature drop out; before the first good one, the direction is a tenth of a radius along the gradient.
    """
    count, (starts, problems) = len(pairs), free.shape[:2]
    vectors = torch.stack([*(s for s, _ in pairs), *(b for _, b in pairs), free]).flatten(3).permute(1, 2, 0, 3)
    gram = (vectors @ vectors.mT).double().cpu().numpy().reshape(starts * problems, 2 * count + 1, -1)
    steep = np.sqrt(gram[:, -1, -1])
    mix = np.zeros(gram.shape[:2])
    mix[:, -1] = 1.0
    size = np.divide(0.1 * radius, steep, out=np.zeros_like(steep), where=steep > 0)
    weights, amounts = [], []
    for k in range(count):
        curvature, length = gram[:, k, count + k], gram[:, k, k] * gram[:, count + k, count + k]
        good = (curvature > 0) & (curvature**2 > 1e-20 * length)
        weights.append(np.divide(1.0, curvature, out=np.zeros_like(curvature), where=good))
        size = np.divide(curvature, gram[:, count + k, count + k], out=size, where=good)  # the newest one counts
    for k in reversed(range(count)):
        amounts.append(weights[k] * (gram[:, k] * mix).sum(1))
        mix[:, count + k] -= amounts[-1]
    mix *= size[:, None]
    for k, amount in enumerate(reversed(amounts)):
        mix[:, k] += amount - weights[k] * (gram[:, count + k] * mix).sum(1)
    climb = (gram[:, -1] * mix).sum(1)
    falling = ~(climb > 0)
    mix[falling] = 0.0
    mix[falling, -1] = np.divide(0.1 * radius, steep[falling], out=np.zeros(falling.sum()), where=steep[falling] > 0)
    promise = torch.from_numpy(0.5 * (gram[:, -1] * mix).sum(1)).to(free).reshape(starts, problems)
    weights_of = torch.from_numpy(mix).to(free).reshape(starts, problems, 1, -1)
    return (weights_of @ vectors).reshape(free.shape), promise
