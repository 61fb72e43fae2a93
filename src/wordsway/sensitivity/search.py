"""Maximising a smooth function of one or several moves, each in its own ball, for many problems and starts at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

# (B, G, m, d) -> values (B, G) and, if wanted, gradients (B, G, m, d): B starts for each of G problems of m moves
Objective: TypeAlias = Callable[[Tensor, bool], tuple[Tensor, Tensor | None]]


@dataclass(frozen=True)
class Effort:
    """How hard to search: power steps for every start, then quasi-Newton steps for the `keep` best of each problem."""

    power: int = 8
    polish: int = 60
    keep: int = 2
    history: int = 8
    tolerance: float = 3e-4


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
    scales = torch.linspace(0.05, 0.95, 19, dtype=starts.dtype, device=starts.device).view(-1, 1, 1, 1)
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
    """Inner products of whole problems, (..., 1, 1)."""
    return (a * b).sum((-2, -1), keepdim=True)


def _keep(best: _Best, objective: Objective, point: Tensor, keep: int) -> Tensor:
    """The `keep` best starts of each problem after the power steps."""
    if point.shape[0] <= keep:
        return point
    order = best.look(objective, point).topk(keep, dim=0).indices  # keep G
    return point[order, torch.arange(point.shape[1], device=point.device)]


def _free(slope: Tensor, point: Tensor, radius: float) -> Tensor:
    """The gradient along what may move: tangent where the ball holds the point back, whole elsewhere."""
    outward = (slope * point).sum(-1, keepdim=True)
    held = (_length(point) > radius * (1 - 1e-9)) & (outward > 0)
    return torch.where(held, slope - outward * point / radius**2, slope)


def _polish(objective: Objective, best: _Best, point: Tensor, radius: float, effort: Effort) -> Tensor:
    """L-BFGS ascent of every (start, problem) at its own pace; returns which problems converged."""
    value, slope = best.ask(objective, point)
    free = _free(slope, point, radius)
    pairs: list[tuple[Tensor, Tensor, Tensor]] = []
    scale = torch.ones_like(value)[..., None, None]
    done = _flat(free, value, radius, effort.tolerance)
    for _ in range(effort.polish):
        if bool(done.all()):
            break
        ascent = _direction(pairs, free, radius)
        trial = _to_ball(point + scale * ascent, radius)
        trial_value, trial_slope = best.ask(objective, trial)
        trial_free = _free(trial_slope, trial, radius)
        step = trial - point
        gain = (trial_value - value)[..., None, None]
        accept = (gain >= 1e-4 * _dot(free, step)) & (gain > 0)
        bend = free - trial_free
        curvature = _dot(step, bend)
        useful = accept & (curvature > 1e-10 * _dot(bend, bend).sqrt() * _dot(step, step).sqrt())
        weight = torch.where(useful, 1 / torch.where(useful, curvature, 1.0), 0.0)
        pairs = [*pairs, (step, bend, weight)][-effort.history :]
        point, free = torch.where(accept, trial, point), torch.where(accept, trial_free, free)
        value = torch.where(accept[..., 0, 0], trial_value, value)
        scale = torch.where(accept, 1.0, scale * 0.3)
        done = _flat(free, value, radius, effort.tolerance) | (scale[..., 0, 0] < 1e-6)
    leader = value.argmax(0)
    return done[leader, torch.arange(done.shape[1], device=done.device)]


def _flat(free: Tensor, value: Tensor, radius: float, tolerance: float) -> Tensor:
    """Whether moving by a whole radius along the free gradient could gain no more than tolerance, to first order."""
    return _dot(free, free).sqrt()[..., 0, 0] * radius <= tolerance * value.abs()


def _direction(pairs: list[tuple[Tensor, Tensor, Tensor]], free: Tensor, radius: float) -> Tensor:
    """Two-loop recursion; pairs of weight 0 drop out, and where it does not ascend the gradient takes its place."""
    short = 0.1 * radius / _dot(free, free).sqrt().clamp_min(torch.finfo(free.dtype).tiny)
    if not pairs:
        return short * free
    work, saved = free, []
    for step, bend, weight in reversed(pairs):
        amount = weight * _dot(step, work)
        saved.append(amount)
        work = work - amount * bend
    size = short
    for step, bend, weight in pairs:  # the newest useful pair sets the scale
        size = torch.where(weight > 0, _dot(step, bend) / _dot(bend, bend).clamp_min(1e-300), size)
    work = size * work
    for (step, bend, weight), amount in zip(pairs, reversed(saved), strict=True):
        work = work + step * (amount - weight * _dot(bend, work))
    return torch.where(_dot(work, free) > 0, work, short * free)
