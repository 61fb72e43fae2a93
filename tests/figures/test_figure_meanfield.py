"""The figure of mean-field attention: its trials, its table, claims that can fail, and what it draws."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from experiments.made import record_of
from matplotlib.figure import Figure

from wordsway.experiments.experiment import RunConfig, TrialResult, canonical_record
from wordsway.figures import all_figures, meanfield
from wordsway.figures._style import render, style
from wordsway.smoothness.mean_field_search import head_matrices, mean_field_lipschitz, upper_bound

FIGURE = all_figures()["meanfield"]
PANELS = ("attention", "masked attention")


def _record(R: float, share: float = 0.5, noise: float = 1.0) -> dict[str, Any]:
    """Bounds in numbers, and a constant that lies between them, in logarithms at a share of the way."""
    upper, lower = (1 + 3 * R**2) * math.exp(2 * R**2), R**2 / 8 * math.exp(R**2 / 4)
    value = noise * upper**share * lower ** (1 - share)
    return {"lipschitz": value, "lower": lower, "two_point": 1.5 * lower, "upper": upper, "status": "converged"}


def _made(share: Callable[[dict[str, Any]], float] = lambda point: 0.5, scale: str = "quick") -> list[TrialResult]:
    return [
        TrialResult("meanfield", dict(point), seed, _record(point["R"], share(dict(point)), 1 + 0.1 * seed))
        for point in FIGURE.grid(RunConfig(scale))
        for seed in (0, 1)
    ]


# Grids and trials


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_the_grid_sweeps_the_radius_with_and_without_a_mask(scale: str) -> None:
    points = list(FIGURE.grid(RunConfig(scale)))
    radii = {masked: [point["R"] for point in points if point["masked"] is masked] for masked in (False, True)}
    assert radii[False] == radii[True] == sorted(radii[True])
    assert 2 * max(radii[True]) ** 2 < 12
    assert FIGURE.trials[scale] == {"quick": 3, "paper": 5}[scale]
    assert FIGURE.estimate is not None
    found = [FIGURE.estimate(point) for point in points]
    assert all(0 < one.seconds < 600 and 10**8 < one.memory < 10**11 for one in found)


def test_the_quick_scale_is_a_part_of_the_papers() -> None:
    quick, paper = (list(FIGURE.grid(RunConfig(scale))) for scale in ("quick", "paper"))
    assert all(point in paper for point in quick)
    assert len(quick) < len(paper)
    assert (quick[0], quick[-1]) == (paper[0], paper[-1])


@pytest.mark.parametrize("seed", range(5))
def test_the_layers_have_norm_one(seed: int) -> None:
    A, V = head_matrices(meanfield.layer(5, seed))
    assert float(torch.linalg.matrix_norm(A, ord=2)) == pytest.approx(1, rel=1e-12)
    assert torch.equal(V, torch.eye(5, dtype=torch.float64))


@pytest.mark.parametrize("masked", [False, True])
def test_a_trial_is_what_the_library_gives_for_the_same_seed(masked: bool) -> None:
    parameters = {"d": 3, "points": 3, "masked": masked, "R": 1.2}
    record = record_of(FIGURE, parameters, 4)
    layer = meanfield.layer(3, 4)
    found = mean_field_lipschitz(layer, 1.2, 3, 4, masked=masked)
    assert (record["lipschitz"], record["lower"], record["two_point"]) == (found.value, found.lower, found.two_point)
    assert record["upper"] == pytest.approx(upper_bound(*head_matrices(layer), 1.2), rel=1e-12)
    assert record["status"] == "converged"
    assert canonical_record(record)
    assert record == record_of(FIGURE, parameters, 4)


# Tables and claims


def test_a_row_of_the_table() -> None:
    parameters = {"d": 5, "points": 4, "masked": True, "R": 1.0}
    records = [
        {"lipschitz": 2.0, "lower": 1.0, "two_point": 1.0, "upper": 30.0, "status": "converged"},
        {"lipschitz": 8.0, "lower": 2.0, "two_point": 6.4, "upper": 30.0, "status": "step limit"},
    ]
    (line,) = FIGURE.table([TrialResult("meanfield", parameters, seed, record) for seed, record in enumerate(records)])
    assert line == pytest.approx(
        {
            "panel": "masked attention",
            "R": 1.0,
            "trials": 2,
            "mean": 4.0,
            "least": 2.0,
            "most": 8.0,
            "upper": 30.0,
            "two_point": math.sqrt(6.4),
            "lower": math.sqrt(2),
            "over_lower": 2.0,
            "over_two_point": 1.25,
            "room": 3.75,
            "converged": 1,
        }
    )
    assert FIGURE.table([]) == []
    assert FIGURE.claims([]) == []


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_claims_hold_between_the_bounds(scale: str) -> None:
    verdicts = FIGURE.claims(FIGURE.table(_made(scale=scale)))
    assert [verdict.holds for verdict in verdicts] == [True] * 6
    assert {verdict.claim.split(":")[0] for verdict in verdicts} == set(PANELS)


@pytest.mark.parametrize(("share", "broken"), [(1.01, ["upper bound"]), (-0.01, ["lower bound", "adversarial"])])
@pytest.mark.parametrize("masked", [False, True])
def test_claims_fail_beyond_them(share: float, broken: list[str], masked: bool) -> None:
    def once(point: dict[str, Any]) -> float:
        return share if point["masked"] is masked and point["R"] == 1.4 else 0.5

    for verdict in FIGURE.claims(FIGURE.table(_made(once))):
        wrong = verdict.claim.startswith(f"{PANELS[masked]}:") and any(words in verdict.claim for words in broken)
        assert verdict.holds is not wrong, verdict


# Pictures


def test_what_the_picture_shows() -> None:
    rows = FIGURE.table(_made())
    canvas = Figure()
    with style():
        FIGURE.plot(rows, canvas)
    assert [axes.get_title(loc="left") for axes in canvas.axes] == list(PANELS)
    for axes, panel in zip(canvas.axes, PANELS, strict=True):
        mine = [row for row in rows if row["panel"] == panel]
        lines: list[Any] = [line.get_data() for line in axes.get_lines()]
        for line, name in zip(lines, ("mean", "upper", "two_point", "lower"), strict=True):
            assert list(zip(*line, strict=True)) == [(row["R"] ** 2, row[name]) for row in mine]
        assert axes.get_yscale() == "log"
        assert len({str(line.get_linestyle()) + str(line._dash_pattern) for line in axes.get_lines()}) == 4  # type: ignore[attr-defined]


@pytest.mark.parametrize("dark", [False, True])
def test_it_can_be_drawn_with_all_points_with_one_and_with_none(dark: bool) -> None:
    rows = FIGURE.table(_made())
    before = [dict(row) for row in rows]
    drawn = [render(lambda canvas, part=part: FIGURE.plot(part, canvas), "svg", dark) for part in (rows, rows[:1], [])]  # type: ignore[misc]
    assert [len(svg) > 10_000 for svg in drawn] == [True, True, False]
    assert rows == before
    assert (b"#e6e8eb" in drawn[0], b"#1b1f24" in drawn[0]) == (dark, not dark)
