"""Tables of finished trials, and claims about them: each with what was measured, and whether it holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any, TypeAlias

import numpy as np

from wordsway.experiments.experiment import Table, TrialResult, Verdict

Row: TypeAlias = Mapping[str, Any]
Points: TypeAlias = Sequence[Row]

_SIGNIFICANT = 0.05
TOO_FEW = "not enough trials have finished"

# Tables


def curves(table: Points, *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Group the rows of a table by the values of some columns, in their order."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in table:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def points(results: Sequence[TrialResult], *names: str) -> list[tuple[dict[str, Any], list[Row]]]:
    """Group finished trials by some parameters or entries of their records, None where a trial has no such name.

    Returns
    -------
    list
        The names with their values, and the trials that share them, each as one row of record and parameters.
    """
    groups = curves([{**dict.fromkeys(names), **result.record, **result.parameters} for result in results], *names)
    return [(dict(zip(names, values, strict=True)), rows) for values, rows in groups.items()]


def deviation(values: Sequence[float]) -> float:
    """Return the standard deviation over trials; 0 for a single one."""
    return stdev(values) if len(values) > 1 else 0.0


_STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": fmean,
    "deviation": deviation,
    "least": min,
    "most": max,
}


def statistics(values: Sequence[float], *names: str) -> dict[str, float]:
    """Return the number of trials, and some of mean, deviation, least and most."""
    return {"trials": len(values), **{name: _STATISTICS[name](values) for name in names}}


# Claims


def judge(claim: str, values: Sequence[Any], measured: Callable[[], tuple[str, bool]]) -> Verdict:
    """Judge a claim by what `measured` returns: a text, and whether the claim holds. Without values nothing can."""
    return Verdict(claim, *measured()) if values else Verdict(claim, TOO_FEW, None)


def check(verdict: Verdict) -> Verdict:
    """Return a verdict on a theorem or a property of the optimiser as a check of the code."""
    return replace(verdict, check=True)


def each(table: Table, column: str, claims: Callable[[str, Table], list[Verdict]]) -> list[Verdict]:
    """Judge the rows of each value of a column separately."""
    values = dict.fromkeys(row[column] for row in table)
    return [verdict for value in values for verdict in claims(value, [row for row in table if row[column] == value])]


@dataclass(frozen=True)
class PowerLaw:
    """y ~ x^exponent, fitted to one or several curves that share the exponent; `error` is its standard error."""

    exponent: float
    error: float


def power_law(table: Points, x: str, y: str, *curve: str) -> PowerLaw | None:
    """Fit log y against log x by least squares, with one slope, and a height for each curve.

    Returns
    -------
    PowerLaw or None
        None with too few points, and where some y is not positive. The standard error comes from the residuals, which
        needs more points than curves plus one; it is 0 otherwise.
    """
    groups = curves(table, *curve)
    if any(row[y] <= 0 for row in table):
        return None
    logs = [np.log([[row[x], row[y]] for row in rows]) for rows in groups.values()]
    centred = np.concatenate([part - part.mean(0) for part in logs] or [np.zeros((0, 2))])
    if not any(np.ptp(part[:, 0]) > 0 for part in logs):
        return None
    left, right = centred.T
    square = float(left @ left)
    slope = float(left @ right) / square
    freedom = len(left) - len(groups) - 1
    residuals = right - slope * left
    return PowerLaw(slope, math.sqrt(float(residuals @ residuals) / freedom / square) if freedom > 0 else 0.0)


def exponent(
    claim: str,
    table: Points,
    holds: Callable[[float], bool],
    y: str = "mean",
    curve: Sequence[str] = (),
    x: str = "n",
    plain: str | None = None,
) -> Verdict:
    """Judge the fitted exponent of y ~ x^exponent.

    Where y was divided by a known factor, `plain` is the column without it, whose exponent is reported too.
    """
    law = power_law(table, x, y, *curve)
    if law is None:
        return Verdict(claim, TOO_FEW if all(row[y] > 0 for row in table) else "a value is not positive", None)
    measured = f"{law.exponent:.3f} (standard error {law.error:.3f})"
    if plain is not None and (bare := power_law(table, x, plain, *curve)) is not None:
        measured += f"; without the factor {bare.exponent:.3f}"
    return Verdict(claim, measured, holds(law.exponent))


def exponent_near(claim: str, table: Points, target: float, tolerance: float, **columns: Any) -> Verdict:
    """Judge that y goes like x^target: the fitted exponent is within the tolerance; see `exponent` for `columns`."""
    claim = f"{claim}: exponent {target:g} +- {tolerance:g}"
    return exponent(claim, table, lambda fitted: abs(fitted - target) <= tolerance, **columns)


def overlap(claim: str, table: Points, tolerance: float, x: str = "n", y: str = "mean") -> Verdict:
    """Judge that curves coincide: at each x, every y is within the tolerance of the mean over the curves."""
    groups = [[row[y] for row in rows] for rows in curves(table, x).values()]
    spreads = [max(abs(_ratio(value, fmean(values)) - 1) for value in values) for values in groups if len(values) > 1]
    claim = f"{claim}: within {tolerance:.0%} of their mean"
    return judge(claim, spreads, lambda: (f"{max(spreads):.1%} at most", bool(max(spreads) <= tolerance)))


def above(claim: str, table: Points, level: float, y: str = "least") -> Verdict:
    """Judge that every y exceeds a level."""
    values = [row[y] for row in table]
    return judge(claim, values, lambda: (f"{min(values):.3f} at least", bool(min(values) > level)))


def at_least_one(claim: str, table: Points, column: str, measured: str) -> Verdict:
    """Judge that no known ratio of a column is below 1, but for rounding; `measured` is a format for the smallest."""
    ratios = [row[column] for row in table if row[column] is not None]
    return judge(claim, ratios, lambda: (measured.format(min(ratios)), bool(min(ratios) >= 1 - 1e-6)))


def count_of(claim: str, table: Points, column: str, every: bool, measured: str = "{} of {}") -> Verdict:
    """Judge that every trial, or none, is one that a column counts; `measured` is a format for both numbers."""
    count, trials = (sum(row[name] for row in table) for name in (column, "trials"))
    return judge(claim, table, lambda: (measured.format(count, trials), count == (trials if every else 0)))


def by_most(verdict: Verdict, table: Points, column: str, weaker: str, most: float = 0.8) -> Verdict:
    """Judge a claim on every trial that does not hold weaker than its source where it does for most trials.

    By default these are 80%: fewer are not weaker than the source, but against it.
    """
    count, trials = (sum(row[name] for row in table) for name in (column, "trials"))
    return replace(verdict, weaker=weaker if verdict.holds is False and count >= most * trials else "")


def more_often(claim: str, wins: int, losses: int, source: str = "") -> Verdict:
    """Judge by a two-sided sign test at 5% that more trials are wins than losses; ties are left out of both."""
    if not wins + losses:
        return Verdict(claim, "no two differ", None, source=source)
    from scipy.stats import binomtest

    p = float(binomtest(wins, wins + losses).pvalue)
    measured = f"{wins} of {wins + losses}, p = {p:.2g} by a sign test"
    return Verdict(claim, measured, wins > losses if p < _SIGNIFICANT else None, source=source)


def share_interval(count: int, total: int) -> tuple[float, float]:
    """Return the exact 95% interval of a probability, by the number of successes among independent trials."""
    from scipy.stats import binomtest

    interval = binomtest(count, total).proportion_ci(1 - _SIGNIFICANT)
    return float(interval.low), float(interval.high)


def falls(claim: str, table: Points, x: str = "n", y: str = "mean", curve: Sequence[str] = ()) -> Verdict:
    """Judge that y is smaller at the last x than at the first one, on every curve."""
    lines = [sorted(rows, key=lambda row: float(row[x])) for rows in curves(table, *curve).values()]
    ratios = [_ratio(line[-1][y], line[0][y]) for line in lines if len(line) > 1]
    return judge(claim, ratios, lambda: (f"the last is at most {max(ratios):.3f} of the first", max(ratios) < 1))


def below(
    claim: str, table: Points, others: Points, match: Sequence[str], y: str = "mean", share: float = 1.0
) -> Verdict:
    """Judge that y is below another table's y at the same point, for at least a share of the points."""
    known: dict[tuple[Any, ...], Any] = {tuple(row[name] for name in match): row[y] for row in others}
    pairs = [(row[y], tuple(row[name] for name in match)) for row in table]
    ratios = [_ratio(value, known[point]) for value, point in pairs if point in known]
    under = sum(ratio < 1 for ratio in ratios)

    def measured() -> tuple[str, bool]:
        factors = f"by factors from {min(ratios):.3f} to {max(ratios):.3f}"
        return f"at {under} of {len(ratios)} points, {factors}", under >= share * len(ratios)

    return judge(claim, ratios, measured)


def _ratio(value: float, other: float) -> float:
    """Return value / other; 1 for two zeros, infinity where only the other is 0."""
    return value / other if other else math.inf if value else 1.0
