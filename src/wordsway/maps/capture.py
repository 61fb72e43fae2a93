"""A sharper bound on the rows of attention that one word captures: few of them count, and the ball knows it.

The dual certificate of `certificate` prices every row on its own, so that the ball's part has the largest eigenvalue
over all rows, although a move captures few. Here the captured weight v = (w - w0 / 2)^2 of a row, which is not
negative, is a variable next to Delta. As w (w - w0) = v - w0^2 / 4, row j is

    row_j = part_j(t_j) + 2 (v_j - w0_j^2 / 4) g_j . Delta,   part = (w - w0)^2 |f|^2 + w^2 |D|^2,   t_j = a_j . Delta.

For any mu >= 0, eta, alpha, b, sigma and any symmetric B, the sum of the rows is the sum of

    part - mu t^2 - 2 eta t - 2 alpha v t + 2 b v + sigma v                                                  over rows
    2 v . H Delta + Delta . M Delta + 2 h . Delta - v . B v - 2 b . v     (the ball's part)

and of v . B v - sigma sum v, with H = diag(alpha) A + G, M = A^T diag(mu) A, h = A^T eta - G^T w0^2 / 4. The ball's
part is at most lam r^2 + k . S^{-1} k for S = [[lam - M, -H^T], [-H, B]] > 0, k = (h, -b). And where it is known that
low <= sum v <= high, and B_jk <= (pi_j + pi_k) / 2 off the diagonal for some pi >= 0, v >= 0 gives

    v . B v <= sum_j (B_jj - pi_j) v_j^2 + high pi_j v_j,

a sum over rows: each row is left with a maximum over its t alone. The same bound with v_j in place of row_j bounds
sum v itself, and a known bound makes the next one smaller. Every choice of the multipliers is valid at any time.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dpotrf, dpotri

if TYPE_CHECKING:
    from wordsway.maps.certificate import RowBounds

Array = npt.NDArray[np.float64]
Cells = Callable[[npt.NDArray[np.intp], Array, Array], tuple[Array, Array]]

_GRID = 97  # samples of t on which the multipliers are fitted
_LARGEST = 700  # rows and dimensions together: beyond, a step of the fit takes longer than 0.1 s
# (temperature of the row maxima, weight of log det S, width of the edge at 0, steps) of successive fits
_FIRST = ((0.1, 0.01, 0.03, 50), (0.03, 0.003, 0.01, 50))
_CAP = ((0.03, 0.003, 0.01, 60),)
_LAST = ((0.03, 0.003, 0.01, 60), (0.01, 0.001, 0.01, 80), (0.003, 0.0003, 0.003, 80))
_CAPS = 14  # at most: bounds on sum v, each from the one before
_ENDS = (0.7, 0.8, 0.9, 1.0)  # of the intervals of sum v
_CELLS = 100_000  # at most: beyond, the bounds of the cells stand as they are
_MEMORY = 40  # pairs of the quasi-Newton steps
_ROUNDING = 1e-12  # of eigenvalues, relative to the largest, and of sums, relative to their terms


def largest_on_cells(cells: Cells, reach: Array, slack: float, rounds: int = 18) -> Array:
    """Upper bounds on the maximum of each row over |t| <= reach, by splitting cells that may hold more than sampled.

    `cells(index, low, high)` returns upper bounds on cells of the rows `index`, and the larger value at their ends.
    """
    ends = np.linspace(-1, 1, 17) * reach[:, None]  # N c
    row = np.repeat(np.arange(len(reach)), ends.shape[1] - 1)
    low, high = ends[:, :-1].ravel(), ends[:, 1:].ravel()
    proved = np.full(len(reach), -np.inf)  # bounds of the cells that were set aside
    sampled = np.full(len(reach), -np.inf)
    for turn in range(rounds):
        upper, inside = cells(row, low, high)
        np.maximum.at(sampled, row, inside)
        still = upper > sampled[row] + slack
        if turn == rounds - 1 or np.count_nonzero(still) > _CELLS:
            still = np.zeros_like(still)
        np.maximum.at(proved, row[~still], upper[~still])
        if not still.any():
            break
        row, low, high = row[still], low[still], high[still]
        middle = 0.5 * (low + high)
        row = np.concatenate([row, row])
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
    return proved


def captured_bound(rows: RowBounds) -> float:
    """Bound on the sum of the squared changes of all rows but the moved one; inf where no row can be captured.

    Cost: about two thousand Cholesky factorisations of size N + min(d, 2 N).
    """
    captured = rows.weight(rows.t_reach[:, None])[rows.t_reach > 0]
    if not captured.max(initial=0.0) > 0.5 or sum(rows.t_rows.shape) > _LARGEST:
        return math.inf
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return _captured_bound(rows)
    except (np.linalg.LinAlgError, OverflowError):  # the numbers are too large to fit any multipliers
        return math.inf


def _captured_bound(rows: RowBounds) -> float:
    change, weight = _Relaxation.of(rows), _Relaxation.of(rows, count=True)
    high = weight.first_cap()
    z = weight.begin(high)
    for turn in range(_CAPS):
        z = weight.fit(z, 0.0, high, _CAP)
        before, high = high, min(high, weight.bound(z, 0.0, high))
        if turn > 2 and high > 0.995 * before:  # the first turns are spent on leaving the start
            break
    if not high > 0:
        return math.inf
    ends = [share * high for share in _ENDS]
    bounds, z = [], change.with_cross_terms(z, ends[0])
    for low, top in zip([0.0, *ends[:-1]], ends, strict=True):
        z = change.fit(z, low, top, _FIRST + _LAST if low == 0 else _LAST)
        bounds.append(change.bound(z, low, top))
    return max(bounds) if np.isfinite(bounds).all() else math.inf


@dataclass(frozen=True)
class _Relaxation:
    """The sum to be bounded, in units of `unit` for rows, `t_unit` for t and r for Delta."""

    rows: RowBounds
    unit: float
    t_unit: float
    t_rows: Array  # N b, A
    s_rows: Array  # N b, G; 0 where v is summed up
    count: bool  # whether v is summed up, not the change
    t: Array  # N c, samples
    v: Array  # N c
    part: Array  # N c

    @classmethod
    def of(cls, rows: RowBounds, count: bool = False) -> _Relaxation:
        unit = 1.0 if count else float(rows.sizes().mean())
        t_unit = 0.5 * float(np.median(rows.t_reach[rows.t_reach > 0]))
        t_rows, s_rows = rows.radius / t_unit * rows.t_rows, rows.radius / unit * rows.s_rows
        if 2 * len(t_rows) < t_rows.shape[1]:
            basis = np.linalg.qr(np.concatenate([t_rows, s_rows]).T)[0]
            t_rows, s_rows = t_rows @ basis, s_rows @ basis
        t = np.linspace(-1, 1, _GRID) * rows.t_reach[:, None]
        w = rows.weight(t)
        v = (w - 0.5 * rows.before[:, None]) ** 2
        part = (w - rows.before[:, None]) ** 2 * rows.f_square[:, None] + w**2 * rows.value_square[:, None]
        return cls(
            rows,
            unit,
            t_unit,
            t_rows,
            0 * s_rows if count else s_rows,
            count,
            t / t_unit,
            v,
            v if count else part / unit,
        )

    # --- the multipliers, one vector: mu, eta, alpha, diag B, b, pi, then lam, sigma, (pi_j + pi_k) / 2 - B_jk --------

    def _split(self, z: Array) -> tuple[Array, float, float, Array]:
        n = len(self.t)
        return z[: 6 * n].reshape(6, n), float(z[6 * n]), float(z[6 * n + 1]), z[6 * n + 2 :]

    def _positive(self) -> npt.NDArray[np.bool_]:
        """Which entries must not be negative: mu, pi and the slacks of B."""
        n = len(self.t)
        kinds = np.repeat([True, False, False, False, False, True], n)
        return np.concatenate([kinds, [False, False], np.ones(n * (n - 1) // 2, bool)])

    def begin(self, high: float) -> Array:
        """mu alone, the best of a few, and as much of the others as the fit needs to move them."""
        n, least = len(self.t), float(np.linalg.norm(self.t_rows, 2)) ** 2
        starts = []
        for mu in np.geomspace(0.01, 2, 30).tolist():
            kinds = np.repeat([mu, 0.0, 0.0, 0.05, 0.0, 0.01], n)
            starts.append(np.concatenate([kinds, [1.03 * mu * least + 0.05, 0.0], np.full(n * (n - 1) // 2, 0.01)]))
        return self._best(starts, high)

    def with_cross_terms(self, z: Array, high: float) -> Array:
        """Multipliers of sum v, times the change of a captured row, and what the cross terms add to lam and B."""
        n = len(self.t)
        gram = self.s_rows @ self.s_rows.T
        starts = []
        for share in (0.05, 0.2, 0.8):
            lam = share * n**0.5 * float(np.linalg.norm(self.s_rows, 2)) + 1e-3
            B = 1.1 / lam * gram + 0.01 * np.eye(n)
            off = B[np.triu_indices(n, 1)]
            pi = max(float(off.max(initial=0.0)), 0.0)
            kinds = np.zeros((6, n))
            kinds[3], kinds[5] = np.diag(B), pi
            cross = np.concatenate([kinds.ravel(), [lam, 0.0], pi - off])
            starts += [times * z + cross for times in (0.5, 0.7, 1.0, 1.4, 2.0)]
        return self._best(starts, high)

    def _best(self, starts: list[Array], high: float) -> Array:
        heat, eps = _FIRST[0][:2]
        return min(starts, key=lambda z: self._smoothed(z, 0.0, high, heat, eps)[0])

    def first_cap(self) -> float:
        """A bound on sum v by one mu for all rows: v - mu t^2 on cells, and mu times the largest eigenvalue."""
        top = float(np.linalg.norm(self.t_rows, 2)) ** 2 * (1 + 1e-9)
        v = np.maximum(self.v[:, :-1], self.v[:, 1:])  # largest at the ends, since v is convex in w
        square = np.minimum(self.t[:, :-1] ** 2, self.t[:, 1:] ** 2)  # and no cell has 0 inside: the grid is odd
        bounds = [float((v - mu * square).max(1).sum()) + mu * top for mu in np.geomspace(0.01, 2, 40).tolist()]
        return float(min(*bounds, float(v.max(1).sum()))) * (1 + 1e-9)

    @functools.cached_property
    def _pairs(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Indices j < k of B."""
        return np.triu_indices(len(self.t), 1)

    def _matrix(self, z: Array) -> tuple[Array, Array]:
        """S, of which only the lower triangle is filled in and read, and k."""
        (mu, eta, alpha, diagonal, b, pi), lam, _, slack = self._split(z)
        n, width = self.t_rows.shape
        S = np.empty((width + n, width + n), order="F")
        S[:width, :width] = -(self.t_rows.T * mu) @ self.t_rows
        S[np.arange(width), np.arange(width)] += lam
        S[width:, :width] = -alpha[:, None] * self.t_rows - self.s_rows
        B = 0.5 * (pi[:, None] + pi)
        B[self._pairs[::-1]] -= slack
        B[np.arange(n), np.arange(n)] = diagonal
        S[width:, width:] = B
        return S, np.concatenate([eta @ self.t_rows - 0.25 * self.rows.before**2 @ self.s_rows, -b])

    def fit(self, z: Array, low: float, high: float, stages: tuple[tuple[float, float, float, int], ...]) -> Array:
        """Multipliers after quasi-Newton steps on the smoothed bound; every step keeps S > 0."""
        positive = self._positive()
        for heat, eps, edge, steps in stages:
            x = z.copy()
            at = np.maximum(z[positive], 0.01 * edge)
            x[positive] = at - edge**2 / (4 * at)

            def lift(x: Array, edge: float = edge) -> tuple[Array, Array]:
                """Entries that must be positive as (x + sqrt(x^2 + edge^2)) / 2, and that square root."""
                z, root = x.copy(), np.sqrt(x[positive] ** 2 + edge**2)
                z[positive] = 0.5 * (x[positive] + root)
                return z, root

            def smoothed(x: Array, heat: float = heat, eps: float = eps) -> tuple[float, Array]:
                z, root = lift(x)
                value, grad = self._smoothed(z, low, high, heat, eps)
                grad[positive] *= 0.5 * (1 + x[positive] / root)
                return value, grad

            z = lift(_descent(smoothed, x, steps))[0]
        return z

    def _smoothed(self, z: Array, low: float, high: float, heat: float, eps: float) -> tuple[float, Array]:
        """The bound with log-sum-exp for maxima and -eps log det S, and its gradient; inf where S is not positive."""
        (mu, eta, alpha, diagonal, b, pi), lam, sigma, _ = self._split(z)
        width = self.t_rows.shape[1]
        S, k = self._matrix(z)
        factor, failed = dpotrf(S, lower=1, overwrite_a=1)
        if failed or not np.isfinite(factor[-1, -1]):
            return math.inf, np.zeros_like(z)
        logdet = 2 * float(np.log(np.diag(factor)).sum())
        inverse = dpotri(factor, lower=1, overwrite_c=1)[0]  # its lower triangle; the upper one is 0
        inverse = np.add(inverse, inverse.T, order="C")
        inverse[np.arange(len(k)), np.arange(len(k))] *= 0.5
        y = inverse @ k
        linear = 2 * b + high * pi + sigma
        t, v = self.t, self.v
        phi = self.part - (mu[:, None] * t + 2 * eta[:, None] + 2 * alpha[:, None] * v) * t
        phi += ((diagonal - pi)[:, None] * v + linear[:, None]) * v
        top = phi.max(1, keepdims=True)
        share = np.exp((phi - top) / heat)
        total = share.sum(1, keepdims=True)
        share /= total
        middle, half, root = 0.5 * (low + high), 0.5 * (high - low), math.hypot(sigma, heat)
        value = float(top.sum() + heat * np.log(total / t.shape[1]).sum())
        value += lam + float(k @ y) - eps * logdet - sigma * middle + half * root
        Q = np.outer(y, y) + eps * inverse
        Qv = Q[width:, width:]
        mean, mean_square = (share * v).sum(1), (share * v**2).sum(1)
        grad = np.concatenate(
            [
                ((self.t_rows @ Q[:width, :width]) * self.t_rows).sum(1) - (share * t**2).sum(1),
                2 * self.t_rows @ y[:width] - 2 * (share * t).sum(1),
                2 * (Q[width:, :width] * self.t_rows).sum(1) - 2 * (share * v * t).sum(1),
                mean_square - np.diag(Qv),
                2 * (mean - y[width:]),
                high * mean - mean_square - Qv.sum(1) + np.diag(Qv),
                [1 - np.trace(Q[:width, :width]), mean.sum() - middle + half * sigma / root],
                2 * Qv[self._pairs],
            ]
        )
        return value, grad

    # --- the rigorous evaluation ---------------------------------------------------------------------------------

    def bound(self, z: Array, low: float, high: float) -> float:
        """What the multipliers prove where low <= sum v <= high; inf where S is not positive beyond its rounding."""
        kinds, lam, sigma, slack = self._split(z)
        if not (np.isfinite(z).all() and kinds[[0, 5]].min() >= 0 and slack.min(initial=0.0) >= 0):
            return math.inf
        S, k = self._matrix(z)
        levels, axes = np.linalg.eigh(S)
        levels = levels - _ROUNDING * levels[-1]
        if not levels[0] > 0:
            return math.inf
        along = np.abs(axes.T @ k) + 10 * _ROUNDING * np.linalg.norm(k)
        ball = lam + float((along**2 / levels).sum())
        tops = largest_on_cells(lambda *cells: self._cells(kinds, sigma, high, *cells), self.rows.t_reach, 1e-4)
        margin = 1e-9 * (float(np.abs(tops).sum()) + ball + abs(sigma) * high) + self._rounding(kinds, sigma, high)
        return (float(tops.sum()) + ball + max(-sigma * low, -sigma * high) + margin) * self.unit

    def _rounding(self, kinds: Array, sigma: float, high: float) -> float:
        """What sums of the multipliers' terms may lose where large ones cancel."""
        mu, eta, alpha, diagonal, b, pi = np.abs(kinds)
        t, v = np.abs(self.t).max(1), self.v.max(1)
        terms = (mu * t + 2 * eta + 2 * alpha * v) * t + ((diagonal + pi) * v + 2 * b + high * pi + abs(sigma)) * v
        return _ROUNDING * float(terms.sum())

    def _cells(
        self, kinds: Array, sigma: float, high: float, index: npt.NDArray[np.intp], first: Array, last: Array
    ) -> tuple[Array, Array]:
        """On a cell w and so part lie between the ends' values or below, v too but for its least value, 0 at w0 / 2."""
        mu, eta, alpha, diagonal, b, pi = kinds[:, index]
        rows, before = self.rows, self.rows.before[index]
        ends = [first / self.t_unit, last / self.t_unit]
        weights = [rows.weight(end, index) for end in (first, last)]
        v = [(w - 0.5 * before) ** 2 for w in weights]
        parts = v
        if not self.count:
            f_square, value_square = rows.f_square[index], rows.value_square[index]
            parts = [((w - before) ** 2 * f_square + w**2 * value_square) / self.unit for w in weights]
        turning = (weights[0] <= 0.5 * before) & (0.5 * before <= weights[1])
        least, most = np.where(turning, 0.0, np.minimum(*v)), np.maximum(*v)
        square, linear = diagonal - pi, 2 * b + high * pi + sigma

        def over_v(v: Array) -> Array:
            return np.asarray((square * v + linear) * v)

        def over_t(t: Array) -> Array:
            return np.asarray(-(mu * t + 2 * eta) * t)

        v_vertex = np.divide(-0.5 * linear, square, out=least.copy(), where=square < 0)
        t_vertex = np.divide(-eta, mu, out=ends[0].copy(), where=mu > 0)
        upper = np.maximum(*parts)
        upper += np.maximum(np.maximum(over_v(least), over_v(most)), over_v(np.clip(v_vertex, least, most)))
        upper += np.maximum(np.maximum(over_t(ends[0]), over_t(ends[1])), over_t(np.clip(t_vertex, *ends)))
        upper += np.max([-2 * alpha * x * t for x in (least, most) for t in ends], axis=0)
        inside = [p + over_v(x) + over_t(t) - 2 * alpha * x * t for p, x, t in zip(parts, v, ends, strict=True)]
        return upper, np.maximum(*inside)


def _descent(function: Callable[[Array], tuple[float, Array]], x: Array, steps: int) -> Array:
    """L-BFGS with steps halved while the function is infinite or does not fall: SciPy's assumes finite values."""
    value, grad = function(x)
    pairs: list[tuple[Array, Array, float]] = []  # steps, changes of the gradient, and their products
    for _ in range(steps):
        direction, amounts = grad.copy(), []
        for move, turn, curvature in reversed(pairs):
            amounts.append(float(move @ direction) / curvature)
            direction -= amounts[-1] * turn
        if pairs:
            direction *= pairs[-1][2] / float(pairs[-1][1] @ pairs[-1][1])
        else:
            direction *= 0.05 / max(float(np.linalg.norm(grad)), 1e-300)
        for (move, turn, curvature), amount in zip(pairs, reversed(amounts), strict=True):
            direction += (amount - float(turn @ direction) / curvature) * move
        slope, length = float(grad @ direction), 1.0
        for _ in range(25):
            trial = x - length * direction
            trial_value, trial_grad = function(trial)
            if trial_value <= value - 1e-4 * length * slope:
                break
            length *= 0.5
        else:
            break
        move, turn = trial - x, trial_grad - grad
        curvature = float(move @ turn)
        if curvature > 1e-12 * float(np.linalg.norm(move) * np.linalg.norm(turn)):
            pairs = [*pairs, (move, turn, curvature)][-_MEMORY:]
        x, value, grad = trial, trial_value, trial_grad
    return x
