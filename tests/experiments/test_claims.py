"""Claims on hand-made tables: they hold, they do not, they cannot be told."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import linregress

from wordsway.experiments.claims import above, below, curves, each, exponent_near, falls, overlap, power_law
from wordsway.experiments.experiment import Verdict

TOO_FEW = "not enough trials have finished"
LENGTHS = (10, 20, 50, 100, 250)
Rows = list[dict[str, Any]]


def law(exponent: float, heights: dict[int, float], lengths: tuple[int, ...] = LENGTHS) -> Rows:
    """Exact power laws in n, one curve for each d."""
    return [{"d": d, "n": n, "mean": height * n**exponent} for d, height in heights.items() for n in lengths]


def points(*values: float, d: int = 1) -> Rows:
    return [{"d": d, "n": n, "mean": value} for n, value in zip(LENGTHS, values, strict=False)]


# Curves and power laws


def test_curves_keep_the_order_of_rows() -> None:
    rows = [{"d": 2, "n": 1}, {"d": 1, "n": 1}, {"d": 2, "n": 0}]
    assert curves(rows, "d") == {(2,): [rows[0], rows[2]], (1,): [rows[1]]}
    assert list(curves(rows, "d")) == [(2,), (1,)]
    assert curves(rows) == {(): rows}
    assert curves([], "d") == {}


@pytest.mark.parametrize("exponent", [-2.0, -0.5, 0.0, 1 / 3, 1.0])
def test_an_exact_power_law_is_recovered(exponent: float) -> None:
    one = power_law(law(exponent, {1: 3.0}), "n", "mean")
    many = power_law(law(exponent, {1: 3.0, 2: 0.1, 3: 1e6}), "n", "mean", "d")
    for found in (one, many):
        assert found is not None
        assert found.exponent == pytest.approx(exponent, abs=1e-12)
        assert found.error == pytest.approx(0, abs=1e-7)


def test_curves_of_different_heights_are_no_single_law() -> None:
    """Each curve covers its own lengths: without heights of their own, they would make another slope."""
    rows = law(-0.5, {1: 1.0}, (10, 20)) + law(-0.5, {2: 50.0}, (100, 200))
    apart, together = power_law(rows, "n", "mean", "d"), power_law(rows, "n", "mean")
    assert apart is not None
    assert apart.exponent == pytest.approx(-0.5)
    assert together is not None
    assert together.exponent > 0.5


@pytest.mark.parametrize("seed", range(3))
def test_one_curve_is_scipys_regression(seed: int) -> None:
    noise = np.random.default_rng(seed).normal(size=7)
    x = np.arange(90.0, 151.0, 10.0)
    y = np.exp(0.1 * noise) * x**-0.5
    expected = linregress(np.log(x), np.log(y))
    found = power_law([{"n": a, "mean": b} for a, b in zip(x, y, strict=True)], "n", "mean")
    assert found is not None
    assert found.exponent == pytest.approx(expected.slope, rel=1e-10)
    assert found.error == pytest.approx(expected.stderr, rel=1e-10)


def test_several_curves_are_a_regression_with_a_height_each() -> None:
    noise = np.random.default_rng(0).normal(size=15)
    rows = law(-0.5, {1: 1.0, 2: 7.0, 3: 0.3})
    for one, shift in zip(rows, noise, strict=True):
        one["mean"] *= math.exp(0.1 * shift)
    design = np.array([[math.log(one["n"]), *(one["d"] == d for d in (1, 2, 3))] for one in rows])
    logs = np.log([one["mean"] for one in rows])
    solution, rest, *_ = np.linalg.lstsq(design, logs, rcond=None)
    spread = math.sqrt(rest[0] / (15 - 4) * np.linalg.inv(design.T @ design)[0, 0])
    found = power_law(rows, "n", "mean", "d")
    assert found is not None
    assert found.exponent == pytest.approx(solution[0], rel=1e-10)
    assert found.error == pytest.approx(spread, rel=1e-10)


positive = st.floats(1e-3, 1e3)


@given(st.lists(positive, min_size=3, max_size=5), st.floats(1e-6, 1e6), st.floats(1e-3, 1e3))
def test_units_do_not_change_the_exponent(values: list[float], height: float, width: float) -> None:
    rows = points(*values)
    scaled = [{"n": width * one["n"], "mean": height * one["mean"]} for one in rows]
    found, again = power_law(rows, "n", "mean"), power_law(scaled, "n", "mean")
    assert found is not None
    assert again is not None
    assert again.exponent == pytest.approx(found.exponent, abs=1e-9)
    assert again.error == pytest.approx(found.error, abs=1e-6)


@given(st.lists(positive, min_size=2, max_size=5), st.floats(-2, 2))
def test_a_further_power_adds_to_the_exponent(values: list[float], power: float) -> None:
    rows = points(*values)
    found = power_law(rows, "n", "mean")
    again = power_law([{**one, "mean": one["mean"] * one["n"] ** power} for one in rows], "n", "mean")
    assert found is not None
    assert again is not None
    assert again.exponent == pytest.approx(found.exponent + power, abs=1e-9)


@given(st.permutations(law(-0.5, {1: 1.0, 2: 2.0})))
def test_the_order_of_rows_does_not_matter(rows: Rows) -> None:
    found = power_law(rows, "n", "mean", "d")
    assert found is not None
    assert found.exponent == pytest.approx(-0.5)


def test_too_few_points_have_no_law() -> None:
    assert power_law([], "n", "mean") is None
    assert power_law(points(1.0), "n", "mean") is None
    assert power_law([{"n": 5, "mean": 1.0}, {"n": 5, "mean": 2.0}], "n", "mean") is None
    assert power_law([{"d": d, "n": 10 * d, "mean": 1.0} for d in (1, 2)], "n", "mean", "d") is None
    two = power_law(points(4.0, 2.0), "n", "mean")
    assert two is not None
    assert two.exponent == pytest.approx(-1.0)
    assert two.error == 0
    assert power_law(points(1.0, 0.0, 2.0), "n", "mean") is None


# Verdicts


def test_exponent_near() -> None:
    rows = law(-0.5, {1: 1.0, 2: 2.0})
    assert exponent_near("S falls", rows, -0.5, 0.05, curve=("d",)) == Verdict(
        "S falls: exponent -0.5 +- 0.05", "-0.500 (standard error 0.000)", True
    )
    assert exponent_near("c", rows, -0.56, 0.05, curve=("d",)).holds is False
    assert exponent_near("c", rows, -0.44, 0.05, curve=("d",)).holds is False
    assert exponent_near("c", rows, -0.46, 0.05, curve=("d",)).holds is True
    few = exponent_near("c", points(1.0), -0.5, 0.05)
    assert (few.measured, few.holds) == (TOO_FEW, None)
    zero = exponent_near("c", points(1.0, 0.5, 0.0), -0.5, 0.05)
    assert (zero.measured, zero.holds) == ("a value is not positive", None)


def test_exponent_near_tells_the_plain_exponent_too() -> None:
    rows = [{"n": n, "scaled": n**-0.5, "mean": 1 / n} for n in LENGTHS]
    found = exponent_near("c", rows, -0.5, 0.05, "scaled", plain="mean")
    assert found.measured == "-0.500 (standard error 0.000); without the factor -1.000"
    assert found.holds


def test_overlap() -> None:
    rows = [{"d": d, "n": n, "mean": n * (1 + shift)} for n in (10, 20) for d, shift in ((1, -0.04), (2, 0), (3, 0.04))]
    assert overlap("they coincide", rows, 0.05) == Verdict(
        "they coincide: within 5% of their mean", "4.0% at most", True
    )
    assert overlap("c", rows, 0.03).holds is False
    low = [{"d": d, "n": 10, "mean": value} for d, value in ((1, 0.7), (2, 1.1), (3, 1.2))]
    assert overlap("c", low, 0.25).measured == "30.0% at most"  # below the mean counts as well
    assert overlap("c", low, 0.25).holds is False
    for few in ([], rows[:1], [rows[0], rows[3]]):
        assert (overlap("c", few, 0.05).measured, overlap("c", few, 0.05).holds) == (TOO_FEW, None)
    zeros = [{"d": d, "n": 10, "mean": 0.0} for d in (1, 2)]
    assert overlap("c", zeros, 0.05).holds is True


def test_above() -> None:
    rows = [{"least": 1.2}, {"least": 1.01}, {"least": 3.0}]
    assert above("S > 1", rows, 1.0) == Verdict("S > 1", "1.010 at least", True)
    assert above("c", rows, 1.01).holds is False
    assert above("c", [{"other": 2.0}], 1.0, "other").holds is True
    assert (above("c", [], 1.0).measured, above("c", [], 1.0).holds) == (TOO_FEW, None)


def test_falls() -> None:
    assert falls("S falls", points(4.0, 9.0, 1.0)) == Verdict("S falls", "the last is at most 0.250 of the first", True)
    assert falls("c", points(4.0, 1.0)[::-1]).holds is True  # sorted by n, whatever the order
    assert falls("c", points(1.0, 1.0)).holds is False
    assert falls("c", points(1.0, 0.5, 2.0)).holds is False
    both = points(4.0, 1.0) + points(1.0, 2.0, d=2)
    assert falls("c", both, curve=("d",)).holds is False
    assert falls("c", points(4.0, 1.0) + points(1.0, d=2), curve=("d",)).holds is True  # one point tells nothing
    for few in ([], points(1.0), points(1.0) + points(2.0, d=2)):
        found = falls("c", few, curve=("d",))
        assert (found.measured, found.holds) == (TOO_FEW, None)
    assert falls("c", points(0.0, 0.0)).holds is False
    assert falls("c", points(0.0, 1.0)).holds is False


def test_below() -> None:
    table, others = points(1.0, 2.0, 3.0, 4.0), points(2.0, 4.0, 6.0, 8.0)
    assert below("smaller", table, others, ("d", "n")) == Verdict(
        "smaller", "at 4 of 4 points, by factors from 0.500 to 0.500", True
    )
    some = points(1.0, 1.0, 1.0, 9.0)
    found = below("c", some, others, ("d", "n"))
    assert (found.measured, found.holds) == ("at 3 of 4 points, by factors from 0.167 to 1.125", False)
    assert below("c", some, others, ("d", "n"), share=0.75).holds is True
    assert below("c", some, others, ("d", "n"), share=0.76).holds is False
    assert below("c", table, table, ("d", "n")).holds is False
    assert below("c", table, others[:1], ("d", "n")).measured.startswith("at 1 of 1 points")
    for left, right in (([], others), (table, []), (table, points(1.0, d=2))):
        found = below("c", left, right, ("d", "n"))
        assert (found.measured, found.holds) == (TOO_FEW, None)
    assert below("c", points(1.0), points(0.0), ("d", "n")).holds is False
    assert below("c", points(0.0), points(0.0), ("d", "n")).holds is False


def test_each_value_is_judged_by_itself() -> None:
    rows = [{"panel": panel, "least": least} for panel, least in (("b", 2.0), ("a", 0.5), ("b", 3.0))]
    found = each(rows, "panel", lambda panel, mine: [above(f"{panel} {len(mine)}", mine, 1.0)])
    assert [(one.claim, one.holds) for one in found] == [("b 2", True), ("a 1", False)]
    assert each([], "panel", lambda panel, mine: [above(panel, mine, 1.0)]) == []
