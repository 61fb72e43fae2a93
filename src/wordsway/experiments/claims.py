"""Claims that figures make, each with what was measured and whether it holds within its tolerance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, TypeAlias

import numpy as np

from wordsway.experiments.experiment import Table, Verdict

Points: TypeAlias = Sequence[Mapping[str, Any]]

TOO_FEW = "not enough trials have finished"


@dataclass(frozen=True)
class PowerLaw:
    """y ~ x^exponent, fitted to one or several curves that share the exponent; `error` is its standard error."""

    exponent: float
    error: float


def curves(table: Points, *names: str) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """The rows of a table by the values of some columns, in the order they come."""
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in table:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


def deviation(values: Sequence[float]) -> float:
    """The standard deviation over trials; 0 for a single one."""
    return stdev(values) if len(values) > 1 else 0.0


def power_law(table: Points, x: str, y: str, *curve: str) -> PowerLaw | None:
    """Least squares of log y on log x with one slope and a height for each curve.

    None with too few points, and where some y is not positive.

    The standard error comes from the residuals, so it needs more points than curves plus one; it is 0 otherwise.
    """
    xs, ys = [], []
    groups = curves(table, *curve)
    if any(row[y] <= 0 for row in table):
        return None
    for rows in groups.values():
        logs = np.log([[row[x], row[y]] for row in rows])
        xs.append(logs[:, 0] - logs[:, 0].mean())
        ys.append(logs[:, 1] - logs[:, 1].mean())
    if not xs or not any(np.ptp(part) > 0 for part in xs):
        return None
    left, right = np.concatenate(xs), np.concatenate(ys)
    square = float(left @ left)
    slope = float(left @ right) / square
    freedom = len(left) - len(groups) - 1
    rest = right - slope * left
    return PowerLaw(slope, math.sqrt(float(rest @ rest) / freedom / square) if freedom > 0 else 0.0)


def exponent_near(
    claim: str,
    table: Points,
    target: float,
    tolerance: float,
    y: str = "mean",
    curve: Sequence[str] = (),
    x: str = "n",
    plain: str | None = None,
) -> Verdict:
    """That y goes like x^target: the fitted exponent is within the tolerance.

    Where y was divided by a known factor, `plain` names the column without it, whose exponent is told too.
    """
    found = power_law(table, x, y, *curve)
    said = f"{claim}: exponent {target:g} +- {tolerance:g}"
    if found is None:
        return Verdict(said, TOO_FEW if all(row[y] > 0 for row in table) else "a value is not positive", None)
    measured = f"{found.exponent:.3f} (standard error {found.error:.3f})"
    if plain is not None and (bare := power_law(table, x, plain, *curve)) is not None:
        measured += f"; without the factor {bare.exponent:.3f}"
    return Verdict(said, measured, abs(found.exponent - target) <= tolerance)


def overlap(claim: str, table: Points, tolerance: float, x: str = "n", y: str = "mean") -> Verdict:
    """That curves coincide: at each x, every y is within the tolerance of the mean over the curves."""
    groups = [[row[y] for row in rows] for rows in curves(table, x).values()]
    spreads = [max(abs(_ratio(value, fmean(values)) - 1) for value in values) for values in groups if len(values) > 1]
    said = f"{claim}: within {tolerance:.0%} of their mean"
    if not spreads:
        return Verdict(said, TOO_FEW, None)
    return Verdict(said, f"{max(spreads):.1%} at most", bool(max(spreads) <= tolerance))


def above(claim: str, table: Points, level: float, y: str = "least") -> Verdict:
    """That every y exceeds a level."""
    if not table:
        return Verdict(claim, TOO_FEW, None)
    worst = min(table, key=lambda row: float(row[y]))
    return Verdict(claim, f"{worst[y]:.3f} at least", bool(worst[y] > level))


def falls(claim: str, table: Points, x: str = "n", y: str = "mean", curve: Sequence[str] = ()) -> Verdict:
    """That y is smaller at the last x than at the first one, on every curve."""
    ratios = []
    for rows in curves(table, *curve).values():
        ordered = sorted(rows, key=lambda row: float(row[x]))
        if len(ordered) > 1:
            ratios.append(_ratio(ordered[-1][y], ordered[0][y]))
    if not ratios:
        return Verdict(claim, TOO_FEW, None)
    return Verdict(claim, f"the last is at most {max(ratios):.3f} of the first", bool(max(ratios) < 1))


def below(
    claim: str, table: Points, others: Points, match: Sequence[str], y: str = "mean", share: float = 1.0
) -> Verdict:
    """That y is below another table's y at the same point, for at least a share of the points."""
    known: dict[tuple[Any, ...], Any] = {tuple(row[name] for name in match): row[y] for row in others}
    points = [(row[y], tuple(row[name] for name in match)) for row in table]
    ratios = [_ratio(value, known[point]) for value, point in points if point in known]
    if not ratios:
        return Verdict(claim, TOO_FEW, None)
    under = sum(ratio < 1 for ratio in ratios)
    measured = f"at {under} of {len(ratios)} points, by factors from {min(ratios):.3f} to {max(ratios):.3f}"
    return Verdict(claim, measured, under >= share * len(ratios))


def _ratio(value: float, other: float) -> float:
    """How many times the other one a value is, which may be 0: then as if they were equal, or infinitely many."""
    return value / other if other else math.inf if value else 1.0


def each(table: Table, column: str, judge: Callable[[str, Table], list[Verdict]]) -> list[Verdict]:
    """The verdicts of each value of a column by itself."""
    values = dict.fromkeys(row[column] for row in table)
    return [verdict for value in values for verdict in judge(value, [row for row in table if row[column] == value])]
