"""Claims on hand-made tables: they hold, they do not, they cannot be told."""

import math
from typing import Any

import numpy as np
import pytest

from wordsway.experiments import TrialResult, Verdict
from wordsway.experiments.claims import (
    above,
    at_least_one,
    below,
    count_of,
    curves,
    each,
    exponent,
    exponent_near,
    falls,
    more_often,
    overlap,
    points,
    power_law,
    share_interval,
    statistics,
)

TOO_FEW = "not enough trials have finished"
LENGTHS = (10, 20, 50, 100, 250)
Rows = list[dict[str, Any]]


def law(exponent: float, heights: dict[int, float], lengths: tuple[int, ...] = LENGTHS) -> Rows:
    """Exact power laws in n, one curve for each d."""
    return [{"d": d, "n": n, "mean": height * n**exponent} for d, height in heights.items() for n in lengths]


def line(*values: float, d: int = 1) -> Rows:
    return [{"d": d, "n": n, "mean": value} for n, value in zip(LENGTHS, values, strict=False)]


# Tables and power laws


def test_curves_keep_the_order_of_rows() -> None:
    rows = [{"d": 2, "n": 1}, {"d": 1, "n": 1}, {"d": 2, "n": 0}]
    assert curves(rows, "d") == {(2,): [rows[0], rows[2]], (1,): [rows[1]]}
    assert list(curves(rows, "d")) == [(2,), (1,)]
    assert curves(rows) == {(): rows}
    assert curves([], "d") == {}


def test_points_group_trials_by_parameters_and_entries_of_records() -> None:
    trials = [
        TrialResult("one", {"n": n, "d": 1}, seed, {"value": n + seed, "n": 99}) for n in (2, 1) for seed in (0, 1)
    ]
    trials.append(TrialResult("two", {"n": 1, "model": "m"}, 0, {"value": 7}))
    grouped = points(trials, "n", "model")
    assert [point for point, _ in grouped] == [{"n": n, "model": m} for n, m in ((2, None), (1, None), (1, "m"))]
    assert [[row["value"] for row in rows] for _, rows in grouped] == [[2, 3], [1, 2], [7]]
    assert grouped[0][1][0] == {"n": 2, "d": 1, "model": None, "value": 2}  # a parameter hides an entry of its name
    assert points([], "n") == []
    assert statistics([1.0, 3.0], "mean", "deviation") == {"trials": 2, "mean": 2.0, "deviation": math.sqrt(2)}
    assert statistics([4.0], "deviation", "least", "most") == {"trials": 1, "deviation": 0.0, "least": 4.0, "most": 4.0}


@pytest.mark.parametrize("heights", [{1: 1.0}, {1: 1.0, 2: 7.0, 3: 0.3}])
def test_a_power_law_is_a_regression_with_a_height_for_each_curve(heights: dict[int, float]) -> None:
    rows = law(-0.5, heights)
    for one, shift in zip(rows, np.random.default_rng(0).normal(size=len(rows)), strict=True):
        one["mean"] *= math.exp(0.1 * shift)
    design = np.array([[math.log(one["n"]), *(one["d"] == d for d in heights)] for one in rows])
    solution, rest, *_ = np.linalg.lstsq(design, np.log([one["mean"] for one in rows]), rcond=None)
    freedom = len(rows) - len(heights) - 1
    spread = math.sqrt(rest[0] / freedom * np.linalg.inv(design.T @ design)[0, 0])
    found = power_law(rows, "n", "mean", "d")
    assert found is not None
    assert (found.exponent, found.error) == pytest.approx((solution[0], spread), rel=1e-10)


def test_too_few_points_have_no_law() -> None:
    same = [{"n": 5, "mean": 1.0}, {"n": 5, "mean": 2.0}]
    assert [power_law(rows, "n", "mean") for rows in ([], line(1.0), same, line(1.0, 0.0, 2.0))] == [None] * 4
    assert power_law([{"d": d, "n": 10 * d, "mean": 1.0} for d in (1, 2)], "n", "mean", "d") is None
    two = power_law(line(4.0, 2.0), "n", "mean")
    assert two is not None
    assert two.exponent == pytest.approx(-1.0)
    assert two.error == 0


# Verdicts


@pytest.mark.parametrize(
    ("wins", "losses", "measured", "holds"),
    [
        (8, 0, "8 of 8, p = 0.0078 by a sign test", True),
        (0, 8, "0 of 8, p = 0.0078 by a sign test", False),
        (5, 0, "5 of 5, p = 0.062 by a sign test", None),
        (0, 0, "no two differ", None),
    ],
)
def test_a_sign_test_needs_enough_trials(wins: int, losses: int, measured: str, holds: bool | None) -> None:
    verdict = more_often("more", wins, losses, "the paper")
    assert verdict == Verdict("more", measured, holds, source="the paper")


def test_the_interval_of_a_share_is_exact() -> None:
    low, high = share_interval(8, 10)

    def tail(p: float, counts: range) -> float:
        return sum(math.comb(10, k) * p**k * (1 - p) ** (10 - k) for k in counts)

    assert tail(low, range(8, 11)) == pytest.approx(0.025)
    assert tail(high, range(9)) == pytest.approx(0.025)


LAW = law(-0.5, {1: 1.0, 2: 2.0})
CURVES = [{"d": d, "n": n, "mean": n * (1 + shift)} for n in (10, 20) for d, shift in ((1, -0.04), (2, 0), (3, 0.04))]
LOW = [{"d": d, "n": 10, "mean": value} for d, value in ((1, 0.7), (2, 1.1), (3, 1.2))]
DOUBLE = line(2.0, 4.0, 6.0, 8.0)
POINT = ("d", "n")
LAST = "the last is at most {:.3f} of the first"
HALF = "at 1 of 2 points, by factors from 0.500 to 2.250"
MARGIN: Rows = [{"margin": 2.0}, {"margin": None}, {"margin": 1 - 1e-9}]
COUNTS = [{"done": 2, "trials": 2}, {"done": 1, "trials": 1}]


@pytest.mark.parametrize(
    ("verdict", "measured", "holds"),
    [
        (exponent_near("c", LAW, -0.5, 0.05, curve=("d",)), "-0.500 (standard error 0.000)", True),
        (exponent_near("c", LAW, -0.56, 0.05, curve=("d",)), "-0.500 (standard error 0.000)", False),
        (exponent_near("c", LAW, -0.44, 0.05, curve=("d",)), "-0.500 (standard error 0.000)", False),
        (exponent_near("c", LAW, -0.46, 0.05, curve=("d",)), "-0.500 (standard error 0.000)", True),
        (exponent_near("c", line(1.0), -0.5, 0.05), TOO_FEW, None),
        (exponent_near("c", line(1.0, 0.5, 0.0), -0.5, 0.05), "a value is not positive", None),
        (exponent("c", LAW, lambda fitted: fitted < -0.4, curve=("d",)), "-0.500 (standard error 0.000)", True),
        (exponent("c", LAW, lambda fitted: fitted > -0.4, curve=("d",)), "-0.500 (standard error 0.000)", False),
        (overlap("c", CURVES, 0.05), "4.0% at most", True),
        (overlap("c", CURVES, 0.03), "4.0% at most", False),
        (overlap("c", LOW, 0.25), "30.0% at most", False),  # below the mean counts as well
        (overlap("c", [], 0.05), TOO_FEW, None),
        (overlap("c", [CURVES[0], CURVES[3]], 0.05), TOO_FEW, None),
        (overlap("c", [{"d": d, "n": 10, "mean": 0.0} for d in (1, 2)], 0.05), "0.0% at most", True),
        (above("c", [{"least": 1.2}, {"least": 1.01}, {"least": 3.0}], 1.0), "1.010 at least", True),
        (above("c", [{"least": 1.2}, {"least": 1.01}], 1.01), "1.010 at least", False),
        (above("c", [{"other": 2.0}], 1.0, "other"), "2.000 at least", True),
        (above("c", [], 1.0), TOO_FEW, None),
        (at_least_one("c", MARGIN, "margin", "{:.1f} times"), "1.0 times", True),
        (at_least_one("c", [{"margin": 2.0}, {"margin": 0.99}], "margin", "{:.2f} times"), "0.99 times", False),
        (at_least_one("c", [{"margin": None}], "margin", "{}"), TOO_FEW, None),
        (count_of("c", COUNTS, "done", every=True), "3 of 3", True),
        (count_of("c", [*COUNTS, {"done": 0, "trials": 1}], "done", every=True), "3 of 4", False),
        (count_of("c", [{"done": 0, "trials": 4}], "done", every=False, measured="{} of {} fit"), "0 of 4 fit", True),
        (count_of("c", COUNTS, "done", every=False), "3 of 3", False),
        (count_of("c", [], "done", every=True), TOO_FEW, None),
        (falls("c", line(4.0, 9.0, 1.0)), LAST.format(0.25), True),
        (falls("c", line(4.0, 1.0)[::-1]), LAST.format(0.25), True),  # sorted by n
        (falls("c", line(1.0, 1.0)), LAST.format(1), False),
        (falls("c", line(4.0, 1.0) + line(1.0, 2.0, d=2), curve=("d",)), LAST.format(2), False),
        (falls("c", line(4.0, 1.0) + line(1.0, d=2), curve=("d",)), LAST.format(0.25), True),
        (falls("c", line(1.0) + line(2.0, d=2), curve=("d",)), TOO_FEW, None),
        (falls("c", line(0.0, 0.0)), LAST.format(1), False),
        (falls("c", line(0.0, 1.0)), LAST.format(math.inf), False),
        (below("c", line(1.0, 2.0), DOUBLE, POINT), "at 2 of 2 points, by factors from 0.500 to 0.500", True),
        (below("c", line(1.0, 9.0), DOUBLE, POINT), HALF, False),
        (below("c", line(1.0, 9.0), DOUBLE, POINT, share=0.5), HALF, True),
        (below("c", line(1.0, 9.0), DOUBLE, POINT, share=0.51), HALF, False),
        (below("c", DOUBLE, DOUBLE, POINT), "at 0 of 4 points, by factors from 1.000 to 1.000", False),
        (below("c", DOUBLE, line(9.0), POINT), "at 1 of 1 points, by factors from 0.222 to 0.222", True),
        (below("c", DOUBLE, line(9.0, d=2), POINT), TOO_FEW, None),
        (below("c", line(1.0), line(0.0), POINT), "at 0 of 1 points, by factors from inf to inf", False),
        (below("c", line(0.0), line(0.0), POINT), "at 0 of 1 points, by factors from 1.000 to 1.000", False),
    ],
)
def test_verdicts(verdict: Verdict, measured: str, holds: bool | None) -> None:
    assert (verdict.measured, verdict.holds) == (measured, holds)


def test_claims_with_a_tolerance_name_it() -> None:
    assert exponent_near("S falls", LAW, -0.5, 0.05, curve=("d",)).claim == "S falls: exponent -0.5 +- 0.05"
    assert overlap("they coincide", CURVES, 0.05).claim == "they coincide: within 5% of their mean"
    rows = [{"n": n, "scaled": n**-0.5, "mean": 1 / n} for n in LENGTHS]
    found = exponent_near("c", rows, -0.5, 0.05, y="scaled", plain="mean")
    assert found.measured == "-0.500 (standard error 0.000); without the factor -1.000"


def test_each_value_is_judged_separately() -> None:
    rows = [{"panel": panel, "least": least} for panel, least in (("b", 2.0), ("a", 0.5), ("b", 3.0))]
    found = each(rows, "panel", lambda panel, mine: [above(f"{panel} {len(mine)}", mine, 1.0)])
    assert [(one.claim, one.holds) for one in found] == [("b 2", True), ("a 1", False)]
    assert each([], "panel", lambda panel, mine: [above(panel, mine, 1.0)]) == []
