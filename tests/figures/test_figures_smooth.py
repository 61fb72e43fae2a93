"""The figures of attention's smoothness: grids, trials, tables and claims that fail where a law is broken."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from experiments.made import record_of

from wordsway import load, local_lipschitz
from wordsway.experiments.experiment import Experiment, RunConfig, TrialResult
from wordsway.figures import all_figures
from wordsway.figures import smooth_bounds as bounds
from wordsway.figures._style import render

REAL, WORST, BOUNDS = (all_figures()[name] for name in ("smooth-real", "smooth-adversarial", "smooth-bounds"))
Law = Callable[[dict[str, Any]], float]


def made(figure: Experiment, law: Law, scale: str = "quick", **changes: Any) -> list[TrialResult]:
    """Finished trials of a figure whose constants obey a law."""
    found = []
    for parameters in figure.grid(RunConfig(scale)):
        point = dict(parameters)
        record = {"lipschitz": law(point), "status": "converged", "upper": 1e9, "rotary": point["model"] == "smollm2"}
        found += [TrialResult(figure.name, point, seed, {**record, **changes}) for seed in (0, 1)]
    return found


def power(exponent: float) -> Law:
    return lambda point: (1 + point["layer"]) * math.pow(point["n"], exponent)


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_the_grid_has_four_blocks(scale: str) -> None:
    points = list(REAL.grid(RunConfig(scale)))
    found = {(point["model"], point["causal"]) for point in points}
    assert found == {("minilm", False), ("minilm", True), ("gpt2-random", True), ("smollm2", True)}
    assert {point["layer"] for point in points if point["model"] == "minilm"} == set(range(load("minilm").layers))
    for point in points:
        assert point["layer"] < {"minilm": 6, "gpt2-random": 12, "smollm2": 30}[point["model"]]
    if scale == "paper":
        assert {point["n"] for point in points} >= {2, 240}
        assert REAL.trials["paper"] == 10


def test_a_model_of_ones_own_takes_the_place_of_all_blocks() -> None:
    points = list(REAL.grid(RunConfig(model="minilm")))
    assert {point["model"] for point in points} == {"minilm"}
    assert {point["layer"] for point in points} == set(range(6))
    assert {point["causal"] for point in points} == {False}


def test_a_trial_is_the_constant_on_a_review() -> None:
    record = record_of(REAL, {"model": "minilm", "layer": 2, "causal": True, "n": 9}, 3)
    model = load("minilm")
    context = model.layer_inputs(model.review_tokens(1, 9, seed=3), 2)[0].double()
    assert record["lipschitz"] == local_lipschitz(model.attention(2, causal=True), context, seed=3).value
    assert (record["status"], record["dtype"]) == ("converged", "float64")


def test_an_adversarial_trial_lies_below_its_bound_and_uses_one_direction_for_all_lengths() -> None:
    records = [record_of(WORST, {"model": "minilm", "layer": 2, "causal": False, "n": n}, 0) for n in (16, 64)]
    assert len({(record["head"], record["kind"]) for record in records}) == 1
    assert all(record["lipschitz"] < record["upper"] for record in records)
    assert math.log(records[1]["lipschitz"] / records[0]["lipschitz"], 4) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(("figure", "right", "wrong"), [(REAL, 0.25, 0.45), (WORST, 0.5, 0.3)])
def test_exponents_are_judged_and_told_with_their_interval(figure: Experiment, right: float, wrong: float) -> None:
    good = figure.claims(figure.table(made(figure, power(right))))
    assert [verdict.holds for verdict in good] == [True] * len(good)
    assert f"{right:.3f} (95% interval {right:.3f} to {right:.3f}); by layer 0: {right:.2f}" in good[0].measured
    bad = figure.claims(figure.table(made(figure, power(wrong))))
    assert [verdict.holds for verdict in bad if "exponent" in verdict.claim] == [False] * (4 if figure is REAL else 3)


def test_random_weights_need_not_grow() -> None:
    flat = {v.claim: v.holds for v in REAL.claims(REAL.table(made(REAL, power(0.05)))) if "exponent" in v.claim}
    assert [claim for claim, holds in flat.items() if holds] == [
        "gpt2-random: grows no faster than n^(1/4): exponent at most 0.25 +- 0.1"
    ]


def test_rotary_layers_have_no_law_at_adversarial_contexts() -> None:
    claims = [verdict.claim for verdict in WORST.claims(WORST.table(made(WORST, power(0.5))))]
    assert not any("smollm2" in claim for claim in claims)
    assert any("gpt2-random" in claim for claim in claims)


def test_constants_above_the_bound_or_not_converged_are_noticed() -> None:
    above = WORST.claims(WORST.table(made(WORST, power(0.5), upper=10.0)))
    assert next(verdict for verdict in above if "upper bound" in verdict.claim).holds is False
    stopped = REAL.claims(REAL.table(made(REAL, power(0.25), status="stopped")))
    assert stopped[-1].holds is False
    assert stopped[-1].measured.startswith("0 of ")


@pytest.mark.parametrize("figure", [REAL, WORST, BOUNDS], ids=lambda figure: figure.name)
def test_nothing_is_claimed_of_no_trials(figure: Experiment) -> None:
    assert figure.table([]) == []
    assert {verdict.holds for verdict in figure.claims([])} == {None}


# Bounds


def test_a_trial_of_the_bounds_holds_them_all() -> None:
    record = record_of(BOUNDS, {"panel": bounds.HEAD, "n": 6, "steps": 10}, 0)
    assert record["first_word"] <= record["adversarial"] <= record["climbed"] <= record["covariance"]
    assert record["typical"] <= record["covariance"] <= record["discrete"]
    layer = record_of(BOUNDS, {"panel": "minilm, layer 3", "model": "minilm", "n": 4, "steps": 1}, 0)
    assert layer["adversarial_bound"] is None
    assert layer["typical"] <= layer["covariance"]


def _bounded(**changes: float | None) -> list[TrialResult]:
    record = {"typical": 1.0, "adversarial": 2.0, "climbed": 3.0, "first_word": 1.5, "covariance": 5.0}
    whole = {**record, "adversarial_bound": 1.0, "discrete": 9.0, "mean_field": None, "radius": 2.0, **changes}
    grid = list(BOUNDS.grid(RunConfig()))
    return [TrialResult("smooth-bounds", dict(point), 0, dict(whole)) for point in grid]


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({}, []),
        ({"climbed": 5.1}, ["below the covariance bound"]),
        ({"discrete": 4.9}, ["below the discrete bound"]),
        ({"first_word": 2.1}, ["above the lower bounds"]),
        ({"first_word": None}, []),
    ],
)
def test_each_claim_about_the_bounds_can_fail(changes: dict[str, float | None], broken: list[str]) -> None:
    verdicts = BOUNDS.claims(BOUNDS.table(_bounded(**changes)))
    assert [words for words in broken if any(words in v.claim and v.holds is False for v in verdicts)] == broken
    assert sum(verdict.holds is False for verdict in verdicts) == len(broken)


def test_pictures_are_drawn() -> None:
    tables = [
        (REAL, REAL.table(made(REAL, power(0.25)))),
        (WORST, WORST.table(made(WORST, power(0.5)))),
        (BOUNDS, BOUNDS.table(_bounded())),
    ]
    for figure, rows in tables:
        picture = render(lambda canvas, figure=figure, rows=rows: figure.plot(rows, canvas), "svg")  # type: ignore[misc]
        assert len(picture) > 20_000


@pytest.mark.parametrize("figure", [REAL, WORST, BOUNDS], ids=lambda figure: figure.name)
def test_every_trial_has_an_estimate(figure: Experiment) -> None:
    assert figure.estimate is not None
    for point in figure.grid(RunConfig("paper")):
        expected = figure.estimate(point)
        assert 0 < expected.seconds < 600
        assert 10**8 < expected.memory < 4 * 10**9
