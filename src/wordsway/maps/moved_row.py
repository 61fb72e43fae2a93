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

Gains of sigmoid scores may all become tiny together, where one direction lowers most scores: no multipliers fit then.
So the ball is cut into slabs across that direction; in each of them the same bound holds about the row in its middle.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

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
_SLABS = 24


def moved_row_square(response: OneWordResponse, slot: int, radius: float, stretch: Array, slabs: bool = False) -> float:
    """Bound on the squared change of the moved row, all heads, in units of |phi(X)|; `stretch` is kappa r of each head.

    Cost: two eigenproblems of size min(n, d) for each head, and about a hundred evaluations of F, each O(n). With slabs
    25 times as much, for heads that have no bound without them.
    """
    total = 0.0
    for head in range(response.heads):
        hull = _hull_bound(response, slot, head, float(stretch[head]))
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                keys = _Keys.of(response, slot, head, radius)
                row = _Row.of(response, head, keys, float(stretch[head]))
                bound = math.inf if row is None else row.bound(hull)[0]
                if slabs and bound == math.inf:
                    bound = _slab_bound(response, slot, head, keys, float(stretch[head]), hull)
        except (np.linalg.LinAlgError, OverflowError):  # the numbers are too large to fit any multipliers
            bound = math.inf
        total += min(hull, bound) ** 2
    return total


def _slab_bound(response: OneWordResponse, slot: int, head: int, keys: _Keys, stretch: float, known: float) -> float:
    """The largest bound of slabs across the mean direction in which scores move; inf if one has none below `known`."""
    axis = keys.rows.mean(0)
    axis /= max(float(np.linalg.norm(axis)), 1e-300)
    before = response.mixed[head, response.words[slot]].astype(np.float64)
    half, largest, fitted = keys.radius / _SLABS, 0.0, None
    for middle in np.linspace(half - keys.radius, keys.radius - half, _SLABS):
        row = _Row.of(response, head, keys.slab(axis, float(middle), half), stretch)
        if row is None:
            return math.inf
        bound, fitted = row.bound(known, fitted)
        largest = max(largest, bound + float(np.linalg.norm(row.mean - before)) / response.norm)
        if not largest < known:
            return math.inf
    return largest


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
class _Keys:
    """The keys that the moved row sees, and how a Delta of |Delta| <= radius moves their scores."""

    seen: npt.NDArray[np.intp]  # K
    word: int  # which of them moves
    scores: Array  # K
    rows: Array  # K d, c
    quadratic: Array  # K, how far a score moves besides c . Delta
    radius: float

    @classmethod
    def of(cls, response: OneWordResponse, slot: int, head: int, radius: float) -> _Keys:
        word = int(response.words[slot])
        seen = np.arange(response.n) if response.visible is None else np.flatnonzero(response.visible[word])
        at = int(np.flatnonzero(seen == word)[0])
        rows = response.score_rows("own")[head, seen].astype(np.float64)  # K d
        rows[at] += response.score_rows("t")[head, word]
        quadratic = np.zeros(len(seen))
        quadratic[at] = radius**2 * response.form_norms[head]
        return cls(seen, at, response.own_start[slot, head, seen].astype(np.float64), rows, quadratic, radius)

    def slab(self, axis: Array, middle: float, half: float) -> _Keys:
        """The same where |axis . Delta - middle| <= half, moved to the middle: what is left of Delta is across."""
        along = self.rows @ axis
        nearest = max(abs(middle) - half, 0.0)
        return replace(
            self,
            scores=self.scores + along * middle,
            rows=self.rows - np.outer(along, axis),
            quadratic=self.quadratic + np.abs(along) * half * _SLACK,
            radius=math.sqrt(max(self.radius**2 - nearest**2, 0.0)) * _SLACK,
        )


@dataclass(frozen=True)
class _Row:
    """The moved row of one head: what F is made of. Lengths of values are in units of |phi(X)|."""

    gain: Callable[[Array], Array]  # of moves of the scores, (K, c) -> (K, c)
    start: Array  # K, P
    reach: Array  # K, of s
    quadratic: Array  # K, q_most for the word itself, else 0
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

    mean: Array  # v, p

    @classmethod
    def of(cls, response: OneWordResponse, head: int, keys: _Keys, stretch: float) -> _Row | None:
        """None where the row has no weights before the word moves."""
        scores, rows, radius, quadratic = keys.scores, keys.rows, keys.radius, keys.quadratic
        gain = _moved_gains(response, scores)
        rounding = 8 * float(np.finfo(np.float64 if response.attention.score.by_odds else response.values.dtype).eps)
        start = gain(np.zeros((len(scores), 1)))[:, 0]
        if not np.isfinite(start).all():
            return None
        if response.attention.score.softmax:  # a shift that all scores share changes nothing
            rows = rows - start @ rows
        linear = radius * np.linalg.norm(rows, axis=1)
        reach = (linear + quadratic) * _SLACK + rounding * (1 + np.abs(scores))
        values = response.values[head, keys.seen].astype(np.float64)
        mean = start @ values
        values = (values - mean) / response.norm  # u - p of these very gains
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
            np.linalg.norm(values, axis=1) * _SLACK,
            weight,
            float(slopes[0].max()),
            float(np.median(near[:, 1])),
            radius,
            *_spectrum(rows, weight),
            float(_spectrum(values, weight)[0][-1]),
            keys.word,
            stretch,
            rounding,
            mean,
        )

    def bound(self, known: float, like: Array | None = None) -> tuple[float, Array | None]:
        """The smallest lam for which F < 0 was proved, and its multipliers; inf if there is none.

        Gives up far above a `known` bound. The fit starts from the multipliers of a row like this one where they are
        better.
        """
        samples = self._cells(_SAMPLES, sampled=True)
        ratio = self.radius * math.sqrt(self.levels[-1] / self.spread) if self.spread > 0 else 0.0
        at = np.array([-np.inf, -np.inf, 0.0, 0.0])  # logarithms of mu, nu, theta; eta / mu
        if ratio > 0:
            at[:2] = np.log([0.5 * self.slope / ratio, 0.5 * self.slope * ratio])  # the best where gains are linear
            at = min((x for x in (at, like) if x is not None), key=lambda x: self._level(samples, x))
            if not self._level(samples, at) < 100 * known:
                return math.inf, like
            step = np.array([0.7, 0.7, -0.7, self.typical])
            simplex = at + np.concatenate([np.zeros((1, 4)), np.diag(step)])
            options = {"maxfev": _EVALUATIONS, "initial_simplex": simplex}
            fitted = minimize(lambda x: self._level(samples, x), at, method="Nelder-Mead", options=options)
            if not fitted.fun < 1.2 * known:
                return math.inf, like
            at = fitted.x
        return self._level(self._cells(_CELLS), at), at

    def _cells(self, count: int, sampled: bool = False) -> _Cells:
        ends = np.linspace(-1, 1, 2 * count + 1) * self.reach[:, None]  # K c
        gain = self.gain(ends)
        first, last = (slice(None), slice(None)) if sampled else (slice(None, -1), slice(1, None))
        spread = self.quadratic[:, None]
        return _Cells(gain[:, first], gain[:, last], ends[:, first] - spread, ends[:, last] + spread)

    def _level(self, cells: _Cells, at: Array) -> float:
        """The smallest lam with F < 0, by Newton's method on a convex and falling function; inf if there is none."""
        mu, nu, theta = np.exp(at[:3]).tolist()
        tilt = float(at[3])  # eta / mu
        low, high = self._reached(cells.low, nu, theta), self._reached(cells.high, nu, theta)
        s = np.clip(0.5 * tilt, cells.least, cells.most)  # where eta s - mu s^2 is largest on the cell
        penalty = mu * self.weight[:, None] * (s - tilt) * s
        base = mu * self._ball(tilt) + nu * self.spread
        keys = np.arange(len(penalty))
        lam = 0.0
        for _ in range(40):
            lows, highs = low - lam * cells.low, high - lam * cells.high
            tops = np.maximum(lows, highs) - penalty
            cell = tops.argmax(1)
            terms = tops[keys, cell]
            value = float(terms.sum()) + base
            if not math.isfinite(value):
                break
            if value < -1e-11 * (base + float(np.abs(terms).sum())):  # below 0 beyond the rounding of the sum
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

    def _reached(self, gain: Array, nu: float, theta: float) -> Array:
        """max over |y| <= |u_k - p| of (gain - theta P) y - nu m_k y^2, and the moved value's own part, (K, c)."""
        length, curve = self.length[:, None], nu * self.weight[:, None]
        before = theta * self.start[:, None]
        step = np.abs(gain - before) + self.rounding * (gain + before)
        y = np.minimum(np.divide(step, 2 * curve, out=np.full_like(step, np.inf), where=curve > 0), length)
        reached = (step - curve * y) * y
        reached[self.word] += gain[self.word] * self.stretch
        return np.asarray(reached)


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
        first = radius**2 - float((squares / gap**2).sum() + eps * (1 / gap).sum())
        second = 2 * float((squares / gap**3).sum()) + eps * float((1 / gap**2).sum())
        descent, bend = first * math.exp(x), second * math.exp(2 * x) + first * math.exp(x)
        step = -descent / bend if bend > 0 else -math.copysign(1.0, descent)
        step = min(max(step, -2.0), 2.0)
        x = max(x + step, low)
        if abs(step) < 1e-9 or (x == low and step <= 0):
            break
    return floor + math.exp(x)
