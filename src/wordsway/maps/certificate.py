"""Certified ceilings on the one-word change of attention.

Row j != i changes by (w - w0) f + w D, where w depends on Delta only through the moved score t = a . Delta, and f . D
only through s = g . Delta (a and g are rows of two known matrices). Its square is at most

    row(t, s) = (w - w0)^2 |f|^2 + 2 w (w - w0) s + w^2 |D|^2,   |t| <= r |a|,  |s| <= r |g|,  |D| <= kappa r.

For any mu, nu >= 0 and any eta, tau of each row, put q(t, s) = mu t^2 + 2 eta t + nu s^2 + 2 tau s. Then

    sum_j row_j <= sum_j max_{t, s} [row_j - q_j](t, s) + max_{|Delta| <= r} sum_j q_j(a_j . Delta, g_j . Delta),

and the last term, a quadratic over a ball, is at most lam r^2 + h^T (lam I - M)^{-1} h for every lam > lambda_max(M),
M = sum mu a a^T + nu g g^T, h = sum eta a + tau g. The bound holds for every choice of the multipliers and is convex in
them, so any descent improves it and may stop at any time; only the last evaluation has to be rigorous, and is: the
maximum over s is closed, the one over t is bounded on cells in which every part is monotone or convex.

"simple" uses no multipliers, "quick" one mu for each row (shared by all words of a context), "tight" all four, and the
bound of `capture` where it is smaller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize

from wordsway.maps.capture import captured_bound, largest_on_cells
from wordsway.maps.moved_row import best_lam, moved_row_square, reduced
from wordsway.maps.response import Ceiling, above_rounding, check_ball
from wordsway.maps.scores import OddsShare, RatioShare

if TYPE_CHECKING:
    from wordsway.maps.one_word import OneWordResponse

Array = npt.NDArray[np.float64]

_SLACK = 1 + 1e-9  # covers the rounding of the eigenvalues and sums below
_GRID = 65  # samples of t on which the multipliers are fitted
# (smoothing relative to the bound, iterations) of successive fits
_QUICK = ((1e-2, 15), (2e-3, 15))
_AGAIN = ((2e-3, 4),)  # for the other words, from the first word's multipliers
_TIGHT = ((1e-2, 30), (3e-3, 40), (1e-3, 60), (2e-4, 100))


@dataclass(frozen=True)
class RowBounds:
    """The rows of one word, all heads in one list: the terms of `row(t, s)`, in units of |phi(X)|."""

    share: OddsShare | RatioShare  # w(t), arrays of N rows
    before: Array  # N, w0
    f_square: Array  # N, |f|^2
    value_square: Array  # N, (kappa r)^2
    t_reach: Array  # N, r |a|
    s_reach: Array  # N, r |g|
    t_rows: Array  # N d, a; both may be in another orthonormal basis, of what they span
    s_rows: Array  # N d, g
    own: float  # bound on the moved row's own squared change
    radius: float

    def weight(self, t: Array, rows: Any = slice(None)) -> Array:
        """w(t) for samples t (N, c) of all rows, or for one t of each listed row."""
        index = (rows, None) if t.ndim == 2 else rows
        return np.asarray(self.share.take(index).weight(t), np.float64)

    def sizes(self) -> Array:
        """Bounds on the rows, which |s| <= |f| kappa r makes convex in w: the larger value at both ends of t."""
        w = self.weight(np.array([-1.0, 1.0]) * self.t_reach[:, None])
        step = np.abs(w - self.before[:, None])
        value = np.sqrt(self.value_square)[:, None]
        return np.asarray(((step * np.sqrt(self.f_square)[:, None] + w * value) ** 2).max(1))


@dataclass(frozen=True)
class Multipliers:
    """mu, eta, nu, tau of each row; every choice with mu, nu >= 0 is valid."""

    mu: Array
    eta: Array
    nu: Array
    tau: Array

    @classmethod
    def zero(cls, count: int) -> Multipliers:
        return cls(*(np.zeros(count) for _ in range(4)))


def attention_ceiling(response: OneWordResponse, radius: float, effort: str = "quick") -> Ceiling:
    """Bounds for every word of the response.

    Cost: simple O(n d) per word after the set-up; quick one eigenproblem of size min(n H, d) per step, about thirty
    steps for the first word and four for each other; tight about two hundred steps of size min(2 n H, d) per word, and
    the two thousand of `captured_bound`.
    """
    check_ball(radius, effort, response.shape[-1])
    t_rows = response.pull_heads("key", response.queries / response.size).astype(np.float64)
    stretch = radius * (response.attention.head_norms("value").numpy() / response.norm)  # H
    basis_rows = reduced(t_rows)  # all words share them, and so the decomposition
    shared = Multipliers.zero(len(t_rows))
    squares = []
    for slot in range(len(response.words)):
        rows = _row_bounds(response, slot, radius, t_rows, stretch)
        bounds = [rows.own + float(rows.sizes().sum())]
        if effort != "simple":
            stages = _QUICK if slot == 0 else _AGAIN
            fitted, square = _improved(replace(rows, t_rows=basis_rows), shared, stages, full=False)
            bounds.append(square)
            shared = _fill(fitted, response) if slot == 0 else shared
        if effort == "tight":
            crossed = _with_cross_terms(rows, response, slot)
            both = np.split(reduced(np.concatenate([crossed.t_rows, crossed.s_rows])), 2)
            bounds.append(_improved(replace(crossed, t_rows=both[0], s_rows=both[1]), fitted, _TIGHT, full=True)[1])
            bounds.append(rows.own + captured_bound(crossed))
            if response.attention.score.by_odds and not response.attention.score.softmax:
                sharper = moved_row_square(response, slot, radius, stretch, sharper=True)
                bounds.append(min(bounds) - rows.own + min(sharper, rows.own))
        squares.append(min(bounds) * _SLACK)
    value = torch.tensor(squares, dtype=torch.float64, device=response.context.device).sqrt()
    value = above_rounding(value, response.context.dtype, float(np.linalg.norm(response.values)) / response.norm)
    kind = "convex rows" if effort == "simple" else f"dual certificate ({effort})"
    return Ceiling(value.reshape(response.batch), kind)


def _improved(
    rows: RowBounds, start: Multipliers, stages: tuple[tuple[float, int], ...], full: bool
) -> tuple[Multipliers, float]:
    """Fitted multipliers and their bound; infinity where the numbers are too large to fit any."""
    try:
        fitted = _fit(rows, start, stages, full)
        return fitted, rows.own + float(_row_maxima(rows, fitted).sum()) + _ball(rows, fitted)
    except np.linalg.LinAlgError:
        return start, math.inf


def _fill(fitted: Multipliers, response: OneWordResponse) -> Multipliers:
    """Multipliers fitted to the first word, adapted to the others: its own row, which they need, gets the median."""
    mu = fitted.mu.reshape(response.heads, -1).copy()  # H n
    mu[:, int(response.words[0])] = np.median(mu, axis=1)
    return replace(fitted, mu=mu.ravel())


def _with_cross_terms(rows: RowBounds, response: OneWordResponse, slot: int) -> RowBounds:
    """The same rows with g, and |s| <= r |g| of these very rows: the ball's part reads them too."""
    f = response.f_rows(slot).astype(np.float64)  # H n v
    s_rows = response.pull_heads("value", f).astype(np.float64) / response.norm**2
    return replace(rows, s_rows=s_rows, s_reach=rows.radius * np.linalg.norm(s_rows, axis=1))


def _row_bounds(response: OneWordResponse, slot: int, radius: float, t_rows: Array, stretch: Array) -> RowBounds:
    """Everything in float64 on the CPU, divided by |phi(X)| where it is a length of features.

    `stretch` is kappa r of each head. The rows g are left out, and |s| is bounded by |f| kappa r. The lengths of f are
    those of the rows themselves: the response's `f_square` is a difference, which loses half the digits where rows are
    nearly equal.
    """
    value_length = np.repeat(stretch, response.n)  # N
    f_length = np.linalg.norm(response.f_rows(slot).astype(np.float64), axis=-1).ravel() / response.norm
    share = response.share.take(slot).ravel()
    return RowBounds(
        share,
        np.asarray(share.weight(np.zeros(len(t_rows))), np.float64),
        f_length**2,
        value_length**2,
        radius * np.linalg.norm(t_rows, axis=1),
        f_length * value_length,
        t_rows,
        np.zeros((len(t_rows), 0)),
        moved_row_square(response, slot, radius, stretch),
        radius,
    )


# --- fitting the multipliers -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Samples:
    """`row(t, s)` sampled in t."""

    t: Array  # N c
    part: Array  # N c, what does not depend on s
    cross: Array  # N c, w (w - w0)
    most: Array  # N c, the largest 2 w (w - w0) s

    @classmethod
    def of(cls, rows: RowBounds) -> _Samples:
        t = np.linspace(-1, 1, _GRID) * rows.t_reach[:, None]
        w = rows.weight(t)
        step = w - rows.before[:, None]
        part = step**2 * rows.f_square[:, None] + w**2 * rows.value_square[:, None]
        cross = w * step
        return cls(t, part, cross, 2 * np.abs(cross) * rows.s_reach[:, None])


def _fit(rows: RowBounds, start: Multipliers, stages: tuple[tuple[float, int], ...], full: bool) -> Multipliers:
    """Minimise a smoothed bound over the multipliers: mu alone, or all four.

    Smoothing makes both maxima differentiable: a log-sum-exp over the samples of t, and -eps log det(lam I - M) for
    the largest eigenvalue. The variables are scaled so that a unit of each moves a row by about (kappa r)^2.
    """
    samples = _Samples.of(rows)
    count = len(rows.before)
    sizes = rows.sizes()
    unit = np.maximum(sizes, 1e-6 * sizes.max(initial=1e-300))
    t_unit, s_unit = _unit(rows.t_reach), _unit(rows.s_reach)
    scales = np.concatenate([unit / t_unit**2, unit / t_unit, unit / s_unit**2, unit / s_unit])
    scales = scales if full else scales[:count]
    begin = np.concatenate([start.mu, start.eta, start.nu, start.tau]) if full else start.mu
    z = begin / scales
    if not full and not z.any():
        z = np.full(count, 2.0)
    bounds = [(0.0, None)] * count + ([(None, None)] * count + [(0.0, None)] * count + [(None, None)] * count) * full

    def unpack(z: Array) -> Multipliers:
        parts = (z * scales).reshape(-1, count)
        return Multipliers(*parts) if full else Multipliers(parts[0], *(np.zeros(count) for _ in range(3)))

    size = max(rows.own, float(sizes.max(initial=0.0)), 1e-300)
    for smooth, steps in stages:

        def smoothed(z: Array, smooth: float = smooth) -> tuple[float, Array]:
            value, grad = _smoothed(rows, samples, unpack(z), smooth, full)
            return value / size, grad * scales / size

        options: dict[str, Any] = {"maxiter": steps, "maxfun": 2 * steps, "maxcor": 30}
        z = minimize(smoothed, z, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    return unpack(z)


def _unit(reach: Array) -> Array:
    """A scale for each row; rows that cannot move get the largest, so that nothing is divided by 0."""
    most = max(float(reach.max(initial=0.0)), 1e-30)
    return np.where(reach > 1e-9 * most, reach, most)


def _smoothed(rows: RowBounds, samples: _Samples, at: Multipliers, smooth: float, full: bool) -> tuple[float, Array]:
    """The smoothed bound and its gradient in the multipliers."""
    psi = samples.part - (at.mu[:, None] * samples.t + 2 * at.eta[:, None]) * samples.t
    if full:
        y = samples.cross - at.tau[:, None]
        best = _best_s(y, at.nu[:, None], rows.s_reach[:, None])
        psi += (2 * y - at.nu[:, None] * best) * best
    else:
        psi += samples.most
    top = psi.max(1, keepdims=True)
    scale = max(rows.own + float(top[:, 0].sum()), 1e-300)
    heat = 10 * smooth * scale / len(psi)
    gains = np.exp((psi - top) / heat)
    total = gains.sum(1, keepdims=True)
    gains /= total
    value = float(top.sum() + heat * np.log(total / psi.shape[1]).sum())
    ball, pulls = _smooth_ball(rows, at, heat, full)
    grad = [pulls[0] - (gains * samples.t**2).sum(1)]
    if full:
        grad += [
            pulls[1] - 2 * (gains * samples.t).sum(1),
            pulls[2] - (gains * best**2).sum(1),
            pulls[3] - 2 * (gains * best).sum(1),
        ]
    return value + ball, np.concatenate(grad)


def _best_s(y: Array, nu: Array, reach: Array) -> Array:
    """The s in [-reach, reach] that maximises 2 y s - nu s^2."""
    if not nu.any():
        return np.asarray(np.sign(y) * reach)
    free = np.divide(y, nu, out=np.where(y > 0, np.inf, np.where(y < 0, -np.inf, 0.0)), where=nu > 0)
    return np.clip(free, -reach, reach)


def _smooth_ball(rows: RowBounds, at: Multipliers, eps: float, full: bool) -> tuple[float, tuple[Array, ...]]:
    """min over lam of lam r^2 + h^T (lam - M)^{-1} h - eps log det(lam - M), and its gradient in the multipliers."""
    matrix = (rows.t_rows.T * at.mu) @ rows.t_rows
    vector = np.zeros(len(matrix))
    if full:
        matrix += (rows.s_rows.T * at.nu) @ rows.s_rows
        vector = rows.t_rows.T @ at.eta + rows.s_rows.T @ at.tau
    levels, axes = np.linalg.eigh(matrix)
    along = axes.T @ vector
    lam = best_lam(levels, along**2, rows.radius, eps)
    gap = lam - levels
    value = lam * rows.radius**2 + float((along**2 / gap).sum() - eps * np.log(gap).sum())
    t_axes = rows.t_rows @ axes
    t_move = t_axes @ (along / gap)
    pulls: tuple[Array, ...] = (t_move**2 + eps * (t_axes**2 @ (1 / gap)),)
    if full:
        s_axes = rows.s_rows @ axes
        s_move = s_axes @ (along / gap)
        pulls += (2 * t_move, s_move**2 + eps * (s_axes**2 @ (1 / gap)), 2 * s_move)
    return value, pulls


# --- the rigorous evaluation --------------------------------------------------------------------------------------


def _ball(rows: RowBounds, at: Multipliers) -> float:
    """The bound on max over |Delta| <= r of sum_j q_j, for the best lam."""
    matrix, vector = (rows.t_rows.T * at.mu) @ rows.t_rows, rows.t_rows.T @ at.eta
    if at.nu.any() or at.tau.any():
        matrix += (rows.s_rows.T * at.nu) @ rows.s_rows
        vector += rows.s_rows.T @ at.tau
    levels, axes = np.linalg.eigh(matrix)
    along = axes.T @ vector
    lam = best_lam(levels, along**2, rows.radius, 0.0)
    return lam * rows.radius**2 + float((along**2 / (lam - levels)).sum())


def _row_maxima(rows: RowBounds, at: Multipliers, tolerance: float = 1e-4) -> Array:
    """Upper bounds on max_t of each row.

    On a cell, w lies between its ends' values; (w - w0)^2 |f|^2 + w^2 |D|^2 is convex in w, w (w - w0) has its range
    there, the maximum over s is convex in it, and the multipliers' part is a concave parabola in t.
    """
    slack = tolerance * max(rows.own, float(rows.sizes().mean()))
    return largest_on_cells(lambda *cells: _cell_bounds(rows, at, *cells), rows.t_reach, slack)


def _cell_bounds(
    rows: RowBounds, at: Multipliers, index: npt.NDArray[np.intp], low: Array, high: Array
) -> tuple[Array, Array]:
    """Upper bounds of [row - q] on the cells, and its larger value at their ends."""
    mu, eta, nu, tau = at.mu[index], at.eta[index], at.nu[index], at.tau[index]
    before, reach = rows.before[index], rows.s_reach[index]
    weights = [rows.weight(end, index) for end in (low, high)]
    parts = [(w - before) ** 2 * rows.f_square[index] + w**2 * rows.value_square[index] for w in weights]
    crosses = [w * (w - before) for w in weights]

    def over_s(y: Array) -> Array:
        s = _best_s(y - tau, nu, reach)
        return np.asarray((2 * (y - tau) - nu * s) * s)

    turning = (weights[0] <= before / 2) & (before / 2 <= weights[1])
    least = np.where(turning, -(before**2) / 4, np.minimum(*crosses))
    maxima = [over_s(cross) for cross in crosses]
    parabolas = [-(mu * end + 2 * eta) * end for end in (low, high)]
    vertex = np.clip(np.divide(-eta, mu, out=np.where(eta > 0, low, high), where=mu > 0), low, high)
    highest = np.maximum(-(mu * vertex + 2 * eta) * vertex, np.maximum(*parabolas))
    upper = np.maximum(*parts) + np.maximum(over_s(least), np.maximum(*maxima)) + highest
    inside = [part + most + parabola for part, most, parabola in zip(parts, maxima, parabolas, strict=True)]
    return upper, np.maximum(*inside)
