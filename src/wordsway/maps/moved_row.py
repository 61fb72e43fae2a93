"""A certified bound on the change of the moved row of attention, which shrinks with the radius.

Let row i have gains g_k(0) = P_k and mean p = sum_k P_k u_k. When the word moves, its score of word k moves by s_k
(k != i: s_k = c_k . Delta; k = i: c_i . Delta + q with |q| <= q_most, a quadratic form) and its gain to g_k(s_k). With
D the value of Delta and z a unit vector, the row's change along z is

    z . change = sum_k g_k(s_k) (y_k + [k = i] z . D) / sum_k g_k(s_k),   y_k = z . (u_k - p).

Since sum_k P_k y_k = 0, the change is at most lam where, for some theta and all Delta and z,

    sum_k (g_k(s_k) - theta P_k) y_k + g_i(s_i) kappa r - lam sum_k g_k(s_k) <= 0.

One Delta cannot move all scores, and one z cannot lie along all values: with weights m_k >= 0,
sum m_k y_k^2 <= Y = lambda_max(sum m_k (u_k - p) (u_k - p)^T), and for any mu >= 0 and eta the sum of
mu m_k (c_k . Delta)^2 - eta m_k c_k . Delta is at most some B on the ball. So for any nu >= 0 the sum is at most F =

    sum_k max_{s, y} [(g_k(s) - theta P_k) y + ([k = i] kappa r - lam) g_k(s) - mu m_k s^2 + eta m_k s - nu m_k y^2]

plus B + nu Y, over |s| <= r |c_k| and |y| <= |u_k - p|. The maximum over y is a convex function of the gain, which
grows with s: on a cell of s it is at most its larger value at the ends, and the parabola in s has its largest value in
closed form. F < 0 also proves that the gains never vanish all at once: where they do, the sum above is 0.

The fit chooses the four numbers mu, nu, theta and eta / mu. `sharper` then fits mu, eta, nu and zeta, in the place of
theta P, of each key: the proof is the same with bounds on a quadratic of Delta and on one of z, |z| <= 1,
in the place of nu Y. One move lowers nearly all scores of a text, so that all sigmoid gains may be tiny: there the four
numbers fit nothing, and those of each key do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import logsumexp

if TYPE_CHECKING:
    from wordsway.maps.one_word import OneWordResponse

Array = npt.NDArray[np.float64]

_SLACK = 1 + 1e-9  # covers the rounding of eigenvalues and sums
_SAMPLES = 16  # of s on each side of 0, on which the multipliers are fitted
_CELLS = 512  # of s on each side of 0, on which the bound is proved
_EVALUATIONS = 80  # of the fit
_STAGES = ((3e-3, 60), (1e-4, 150))  # (smoothing relative to the terms, iterations) of the fits for each key


def moved_row_square(
    response: OneWordResponse, slot: int, radius: float, stretch: Array, sharper: bool = False
) -> float:
    """Bound on the squared change of the moved row, all heads, in units of |phi(X)|; `stretch` is kappa r of each head.

    Cost: two eigenproblems of size min(n, d) for each head, and about a hundred evaluations of F, each O(n). With
    `sharper` about two hundred evaluations more, each with two such eigenproblems.
    """
    total = 0.0
    for head in range(response.heads):
        bound = _hull_bound(response, slot, head, float(stretch[head]))
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                row = _Row.of(response, slot, head, radius, float(stretch[head]))
                if row is not None:
                    shared = row.bound(bound)
                    bound = min(bound, shared)
                    if sharper:
                        bound = min(bound, row.sharper_bound(bound))
        except (np.linalg.LinAlgError, ArithmeticError):  # numbers too large or too small to fit any multipliers
            pass
        total += bound**2
    return total


def _hull_bound(response: OneWordResponse, slot: int, head: int, stretch: float) -> float:
    """The row stays a mean of values, of which one moves by kappa r: the farthest corner of their hull."""
    word = response.words[slot]
    row = response.mixed[head, word].astype(np.float64)
    far = np.linalg.norm(response.values[head] - row, axis=-1) / response.norm  # n
    bound = float(far[word]) + stretch
    sees = np.ones(response.n, bool) if response.visible is None else response.visible[word].copy()
    sees[word] = False
    bound = max(bound, float(far[sees].max(initial=0.0)))
    if response.attention.score.may_vanish:  # the row may lose all its weights
        bound = max(bound, float(np.linalg.norm(row)) / response.norm)
    return bound


@dataclass(frozen=True)
class _Cells:
    """Gains at the ends of cells of s, and between what its linear part lies on them; samples where equal."""

    low: Array  # K c
    high: Array  # K c
    least: Array  # K c
    most: Array  # K c


@dataclass(frozen=True)
class _Multipliers:
    """mu, eta, nu, zeta of each key; every choice with mu, nu >= 0 is valid."""

    mu: Array
    eta: Array
    nu: Array
    zeta: Array


@dataclass(frozen=True)
class _Row:
    """The moved row of one head: what F is made of. Lengths of values are in units of |phi(X)|."""

    gain: Callable[[Array], Array]  # of moves of the scores, (K, c) -> (K, c)
    start: Array  # K, P
    reach: Array  # K, of s
    quadratic: Array  # K, q_most for the word itself, else 0
    rows: Array  # K d, c
    values: Array  # K v, u - p
    length: Array  # K, |u_k - p|
    weight: Array  # K, m_k
    slope: float  # |gain - P| is at most about slope m_k |s|
    typical: float  # about how far one Delta moves the scores
    radius: float
    levels: Array  # eigenvalues of sum m_k c_k c_k^T
    squares: Array  # squared parts of sum m_k c_k along its eigenvectors
    spread: float  # Y
    word: int  # which of the K keys moves
    stretch: float  # kappa r
    rounding: float  # of a gain, relative

    @classmethod
    def of(cls, response: OneWordResponse, slot: int, head: int, radius: float, stretch: float) -> _Row | None:
        """None where the row has no weights before the word moves."""
        word = int(response.words[slot])
        seen = np.arange(response.n) if response.visible is None else np.flatnonzero(response.visible[word])
        at = int(np.flatnonzero(seen == word)[0])
        rows = response.score_rows("own")[head, seen].astype(np.float64)  # K d
        rows[at] += response.score_rows("t")[head, word]
        quadratic = np.zeros(len(seen))
        quadratic[at] = radius**2 * response.form_norms[head]
        scores = response.own_start[slot, head, seen].astype(np.float64)
        gain = _moved_gains(response, scores)
        rounding = 8 * float(np.finfo(np.float64 if response.attention.score.by_odds else response.values.dtype).eps)
        start = gain(np.zeros((len(scores), 1)))[:, 0]
        if not np.isfinite(start).all():
            return None
        if response.attention.score.softmax:  # a shift that all scores share changes nothing
            rows = rows - start @ rows
        linear = radius * np.linalg.norm(rows, axis=1)
        reach = (linear + quadratic) * _SLACK + rounding * (1 + np.abs(scores))
        values = response.values[head, seen].astype(np.float64)
        values = (values - start @ values) / response.norm  # u - p of these very gains
        # any weights are valid; these are the largest slopes of chords to where one Delta moves the scores, and may
        far = np.array([-1.0, 1.0]) * reach[:, None]
        near = far * min(1.0, 2.5 / math.sqrt(min(rows.shape)))
        slopes = [np.nan_to_num(np.abs(gain(s) - start[:, None]) / np.abs(s), posinf=1e300).max(1) for s in (near, far)]
        slope = np.maximum(*slopes) + 1e-300
        weight = slope / slope.max()
        return cls(
            gain,
            start,
            reach,
            quadratic,
            rows,
            values,
            np.linalg.norm(values, axis=1) * _SLACK,
            weight,
            float(slopes[0].max()),
            float(np.median(near[:, 1])),
            radius,
            *_spectrum(rows, weight),
            float(_spectrum(values, weight)[0][-1]),
            at,
            stretch,
            rounding,
        )

    def bound(self, known: float) -> float:
        """The smallest lam for which F < 0 was proved with four numbers; inf if there is none.

        Gives up far above a `known` bound.
        """
        samples = self.cells(_SAMPLES, sampled=True)
        ratio = self.radius * math.sqrt(self.levels[-1] / self.spread) if self.spread > 0 else 0.0
        at = np.array([-np.inf, -np.inf, 0.0, 0.0])  # logarithms of mu, nu, theta; eta / mu
        if ratio > 0:
            at[:2] = np.log([0.5 * self.slope / ratio, 0.5 * self.slope * ratio])  # the best where gains are linear
            if not self._shared(samples, at) < 100 * known:
                return math.inf
            step = np.array([0.7, 0.7, -0.7, self.typical])
            simplex = at + np.concatenate([np.zeros((1, 4)), np.diag(step)])
            options = {"maxfev": _EVALUATIONS, "initial_simplex": simplex}
            fitted = minimize(lambda x: self._shared(samples, x), at, method="Nelder-Mead", options=options)
            if not fitted.fun < 1.2 * known:
                return math.inf
            at = fitted.x
        return self._shared(self.cells(_CELLS), at)

    def sharper_bound(self, known: float) -> float:
        """The smallest lam for which F < 0 was proved with multipliers of each key; inf if there is none."""
        if not self.spread > 0 or not self.levels[-1] > 0:
            return math.inf
        return self.level(self.cells(_CELLS), *_Fit.of(self).fitted(known))

    def cells(self, count: int, sampled: bool = False) -> _Cells:
        ends = np.linspace(-1, 1, 2 * count + 1) * self.reach[:, None]  # K c
        gain = self.gain(ends)
        spread = self.quadratic[:, None]
        if sampled:
            return _Cells(gain, gain, ends - spread, ends + spread)
        return _Cells(gain[:, :-1], gain[:, 1:], ends[:, :-1] - spread, ends[:, 1:] + spread)

    def _shared(self, cells: _Cells, at: Array) -> float:
        """The smallest lam with F < 0 for the multipliers that four numbers make of the weights m and P."""
        mu, nu, theta = np.exp(at[:3]).tolist()
        tilt = float(at[3])  # eta / mu
        shared = _Multipliers(mu * self.weight, tilt * mu * self.weight, nu * self.weight, theta * self.start)
        return self.level(cells, shared, [mu * self._ball(tilt), nu * self.spread])

    def level(self, cells: _Cells, at: _Multipliers, balls: list[float]) -> float:
        """The smallest lam with F < 0, by Newton's method on a convex and falling function; inf if there is none.

        `balls` are the bounds on what the multipliers add: a quadratic of Delta, and one of z.
        """
        samples = cells.high is cells.low
        low = self.reached(cells.low, at)[0]
        high = low if samples else self.reached(cells.high, at)[0]
        s = best_move(at, cells.least, cells.most)
        penalty = (at.mu[:, None] * s - at.eta[:, None]) * s
        base = sum(balls)
        keys = np.arange(len(penalty))
        lam = 0.0
        for _ in range(40):
            lows = low - lam * cells.low
            highs = lows if samples else high - lam * cells.high
            tops = (lows if samples else np.maximum(lows, highs)) - penalty
            cell = tops.argmax(1)
            terms = tops[keys, cell]
            value = float(terms.sum()) + base
            if not math.isfinite(value):
                break
            if value < 0:
                size = float(np.abs(terms).sum() + np.abs(penalty[keys, cell]).sum()) + sum(map(abs, balls))
                if value < -1e-11 * size:  # below 0 beyond the rounding of the sum
                    return lam
            higher = highs[keys, cell] > lows[keys, cell]
            fall = float(np.where(higher, cells.high[keys, cell], cells.low[keys, cell]).sum())
            if not fall > 0:
                break
            lam = (lam + max(value, 0) / fall) * (1 + 1e-9)
        return math.inf

    def _ball(self, tilt: float) -> float:
        """Bound on sum m_k s_k^2 - tilt sum m_k s_k over the ball, s_k = c_k . Delta."""
        squares = (0.5 * tilt) ** 2 * self.squares
        lam = best_lam(self.levels, squares, self.radius, 0.0)
        return lam * self.radius**2 + float((squares / (lam - self.levels)).sum())

    def reached(self, gain: Array, at: _Multipliers) -> tuple[Array, Array]:
        """max over |y| <= |u_k - p| of (gain - zeta) y - nu y^2, with the moved value's own part, and |y|: (K, c)."""
        length, curve = self.length[:, None], at.nu[:, None]
        before = at.zeta[:, None]
        step = np.abs(gain - before) + self.rounding * (gain + np.abs(before))
        y = np.minimum(np.divide(step, 2 * curve, out=np.full_like(step, np.inf), where=curve > 0), length)
        reached = (step - curve * y) * y
        reached[self.word] += gain[self.word] * self.stretch
        return np.asarray(reached), y


def best_move(at: _Multipliers, least: Array, most: Array) -> Array:
    """Where eta s - mu s^2 is largest on a cell (K, c)."""
    mu, eta = at.mu[:, None], at.eta[:, None]
    free = np.divide(eta, 2 * mu, out=np.where(eta > 0, np.inf, -np.inf), where=mu > 0)
    return np.asarray(np.clip(free, least, most))


@dataclass(frozen=True)
class _Fit:
    """Descent on the smallest lam with F < 0 over the multipliers of each key, in bases no larger than needed."""

    row: _Row
    cells: _Cells  # samples
    rows: Array  # K b, c
    values: Array  # K b, u - p
    scales: Array  # 4 K, of the multipliers: a unit of each moves F by about the key's part of the row
    size: float  # about that of a key's part

    @classmethod
    def of(cls, row: _Row) -> _Fit:
        cells = row.cells(_SAMPLES, sampled=True)
        parts = cells.high.max(1) * row.length
        parts = np.maximum(parts, 1e-6 * parts.max())
        s, y = np.maximum(row.reach, 1e-9 * row.reach.max()), np.maximum(row.length, 1e-9 * row.length.max())
        scales = np.concatenate([parts / s**2, parts / s, parts / y**2, parts / y])
        return cls(row, cells, reduced(row.rows), reduced(row.values), scales, float(parts.mean()))

    def fitted(self, known: float) -> tuple[_Multipliers, list[float]]:
        """The multipliers, and the bounds on what they add."""
        row, count = self.row, len(self.rows)
        ratio = row.radius * math.sqrt(row.levels[-1] / row.spread)
        slopes = row.slope * row.weight
        z = np.concatenate([0.5 * slopes / ratio, np.zeros(count), 0.5 * slopes * ratio, row.start]) / self.scales
        limits = [(0.0, None), (None, None), (0.0, None), (None, None)]
        bounds = [limit for limit in limits for _ in range(count)]
        for smooth, steps in _STAGES:

            def smoothed(z: Array, heat: float = smooth * self.size) -> tuple[float, Array]:
                value, grad = self._smoothed(self._unpack(z), heat, known)
                return value / known, grad * self.scales / known

            options: dict[str, Any] = {"maxiter": steps, "maxfun": 2 * steps, "maxcor": 20}
            z = minimize(smoothed, z, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
        at = self._unpack(z)
        return at, [part.value for part in self._balls(at, 0.0)]

    def _unpack(self, z: Array) -> _Multipliers:
        return _Multipliers(*(z * self.scales).reshape(4, -1))

    def _balls(self, at: _Multipliers, eps: float) -> tuple[Ball, Ball]:
        """Bounds on sum mu s^2 - eta s over the ball, and on sum nu y^2 + zeta y over |z| <= 1."""
        return (
            Ball.of((self.rows.T * at.mu) @ self.rows, -0.5 * (at.eta @ self.rows), self.row.radius, eps),
            Ball.of((self.values.T * at.nu) @ self.values, 0.5 * (at.zeta @ self.values), 1.0, eps),
        )

    def _smoothed(self, at: _Multipliers, heat: float, lam: float) -> tuple[float, Array]:
        """lam with F = 0, smoothed, by Newton's method from a start, and its gradient in the multipliers.

        Smoothing makes the maxima differentiable: a log-sum-exp over the samples of s, and -heat log det.
        """
        row, gain = self.row, self.cells.high
        reached, y = row.reached(gain, at)
        s = best_move(at, self.cells.least, self.cells.most)
        base = reached - (at.mu[:, None] * s - at.eta[:, None]) * s
        balls = self._balls(at, heat)
        for _ in range(60):
            psi = base - lam * gain
            top = psi.max(1, keepdims=True)
            shares = np.exp((psi - top) / heat)
            total = shares.sum(1, keepdims=True)
            shares /= total
            value = float(top.sum() + heat * np.log(total / psi.shape[1]).sum()) + balls[0].value + balls[1].value
            fall = float((shares * gain).sum())
            lam += value / fall
            if abs(value) < 1e-10 * abs(lam) * fall:
                break
        by_delta, by_z = balls[0].pulls(self.rows), balls[1].pulls(self.values)
        signed = np.where(gain < at.zeta[:, None], -y, y)
        grad = [
            by_delta[0] - (shares * s**2).sum(1),
            (shares * s).sum(1) - by_delta[1],
            by_z[0] - (shares * y**2).sum(1),
            by_z[1] - (shares * signed).sum(1),
        ]
        return lam, np.concatenate(grad) / fall


def reduced(rows: Array) -> Array:
    """The rows in a basis of what they span, where that is smaller."""
    return rows @ np.linalg.qr(rows.T)[0] if len(rows) < rows.shape[1] else rows


def _moved_gains(response: OneWordResponse, scores: Array) -> Callable[[Array], Array]:
    """Gains of the scores (K,) moved by (K, c), over the sum of the gains before."""
    score = response.attention.score
    if score.array_gain is None:
        shares = scores - logsumexp(scores)
        return lambda moves: np.asarray(np.exp(shares[:, None] + moves))
    gain = score.array_gain
    if score.by_odds:
        total = logsumexp(gain(scores))
        return lambda moves: np.asarray(np.exp(gain(scores[:, None] + moves) - total))
    # as they are computed in the dtype of the context: there gains may be 0, and a row lose all its weights
    dtype = response.values.dtype
    summed = gain(scores.astype(dtype)).astype(np.float64).sum()
    return lambda moves: np.asarray(gain((scores[:, None] + moves).astype(dtype)).astype(np.float64) / summed)


def _spectrum(rows: Array, weight: Array) -> tuple[Array, Array]:
    """Eigenvalues of M = sum_k weight_k rows_k rows_k^T, and squared parts of sum_k weight_k rows_k along its axes."""
    root = np.sqrt(weight)
    scaled = root[:, None] * rows
    if len(scaled) <= scaled.shape[1]:
        levels, axes = np.linalg.eigh(scaled @ scaled.T)
        squares = np.maximum(levels, 0) * (axes.T @ root) ** 2
    else:
        levels, axes = np.linalg.eigh(scaled.T @ scaled)
        squares = (axes.T @ (scaled.T @ root)) ** 2
    return np.maximum(levels, 0) * _SLACK, squares * _SLACK


def best_lam(levels: Array, squares: Array, radius: float, eps: float) -> float:
    """The lam > max(levels, 0) that minimises the ball's bound: Newton in log(lam - max), which keeps it feasible."""
    floor = max(float(levels[-1]), 0.0)
    size = max(float(np.abs(levels).max()), math.sqrt(float(squares.sum())) / radius, 1e-30)
    x, low = math.log(0.01 * size), math.log(1e-12 * size)
    for _ in range(60):
        gap = floor + math.exp(x) - levels
        pull, second = float((squares / gap**2).sum()), 2 * float((squares / gap**3).sum())
        if eps > 0:
            pull, second = pull + eps * float((1 / gap).sum()), second + eps * float((1 / gap**2).sum())
        first = radius**2 - pull
        descent, bend = first * math.exp(x), second * math.exp(2 * x) + first * math.exp(x)
        step = -descent / bend if bend > 0 else -math.copysign(1.0, descent)
        step = min(max(step, -2.0), 2.0)
        x = max(x + step, low)
        if abs(step) < 1e-9 or (x == low and step <= 0):
            break
    return floor + math.exp(x)


@dataclass(frozen=True)
class Ball:
    """min over lam of lam r^2 + h^T (lam - M)^{-1} h - eps log det(lam - M): at least x^T M x + 2 h^T x on the ball."""

    value: float
    axes: Array  # b b, eigenvectors of M
    gap: Array  # b, lam - eigenvalues
    move: Array  # b, (lam - M)^{-1} h
    eps: float

    @classmethod
    def of(cls, matrix: Array, vector: Array, radius: float, eps: float) -> Ball:
        levels, axes = np.linalg.eigh(matrix)
        levels = levels + 1e-11 * float(np.abs(levels).max())  # covers the rounding of eigenvalues and products
        along = axes.T @ vector
        lam = best_lam(levels, along**2, radius, eps)
        gap = lam - levels
        value = lam * radius**2 + float((along**2 / gap).sum())
        value = value - eps * float(np.log(gap).sum()) if eps > 0 else value * _SLACK
        return cls(value, axes, gap, axes @ (along / gap), eps)

    def pulls(self, rows: Array) -> tuple[Array, Array]:
        """Derivatives in w and v, where M = sum_k w_k rows_k rows_k^T and h = sum_k v_k rows_k / 2."""
        first = rows @ self.move
        return first**2 + self.eps * ((rows @ self.axes) ** 2 @ (1 / self.gap)), first
