"""The figures of word sensitivity: found without a list, with the paper's sizes, tables and claims."""

import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from experiments.made import NAMES, Law, measured, obeyed

from wordsway import figures, response_sensitivity
from wordsway.cli import main
from wordsway.contexts import gaussian_context
from wordsway.errors import InputError
from wordsway.experiments.experiment import RunConfig, TrialResult
from wordsway.figures import _sensitivity as shared
from wordsway.figures import all_figures, figures_named
from wordsway.maps.catalogue import MapOptions, map_named

# Finding them


def test_the_figures_are_there_in_their_natural_order() -> None:
    known = list(all_figures())
    assert set(NAMES) <= set(known)
    assert [name for name in known if name in NAMES] == sorted(NAMES)
    assert all(figure.name == name for name, figure in all_figures().items())


@pytest.fixture
def extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Add modules to the package of figures: (file name, figure name) -> None."""
    monkeypatch.setattr(figures, "__path__", [*figures.__path__, str(tmp_path)])
    loaded = set(sys.modules)

    def add(file: str, name: str) -> None:
        (tmp_path / file).write_text(f"from experiments.made import experiment\nFIGURE = experiment({name!r})\n")
        all_figures.cache_clear()

    yield add
    for name in set(sys.modules) - loaded:
        del sys.modules[name]
    monkeypatch.undo()
    all_figures.cache_clear()


def test_a_new_file_is_a_new_figure(extra: Callable[[str, str], None]) -> None:
    before = list(all_figures())
    extra("fig10_new.py", "fig10-new")
    extra("fig9_new.py", "fig9-new")
    extra("_helpers.py", "no-figure")
    found = list(all_figures())
    assert set(found) - set(before) == {"fig9-new", "fig10-new"}
    assert found.index("fig2-rf") < found.index("fig9-new") < found.index("fig10-new")  # 9 before 10
    assert figures_named(["fig10-new"])[0].title == "Title of fig10-new"


def test_figures_by_name() -> None:
    assert [one.name for one in figures_named(["fig3-raf", "fig2-rf", "fig3-raf"])] == ["fig3-raf", "fig2-rf"]
    assert figures_named([]) == list(all_figures().values())
    with pytest.raises(InputError, match=r"figure must be one of .*got 'fig2-fr' \(did you mean 'fig2-rf'\?\)"):
        figures_named(["fig2-rf", "fig2-fr"])


def test_every_figure_says_what_it_is() -> None:
    for figure in all_figures().values():
        assert figure.title
        assert "\n" not in figure.title
        assert figure.about.endswith(".")
        assert 1 <= figure.trials["quick"] <= figure.trials["paper"]


# Grids

PAPER = {
    "fig2-rf": ({96, 192, 384}, {192, 384, 768}, set(range(90, 151, 10)), {None}),
    "fig2-drf": ({384}, {768}, {50, 60, 70, 80}, {2, 4, 8}),
    "fig3-raf": ({96, 192, 384}, {192, 384, 768}, {10, 20, 50, 100, 150, 200, 250}, {None}),
    "fig3-relu": ({96, 192, 384}, {192, 384, 768}, {10, 20, 50, 100, 150, 200, 250}, {None}),
}
MAPS = {"fig2-rf": "rf", "fig2-drf": "drf", "fig3-raf": "raf", "fig3-relu": "relu-raf"}


def _sizes(points: list[Any], name: str) -> set[Any]:
    return {point.get(name) for point in points}


@pytest.mark.parametrize("name", NAMES)
def test_the_paper_scale_has_the_papers_sizes(name: str) -> None:
    figure = all_figures()[name]
    reviews, gaussian, lengths, depths = PAPER[name]
    points = list(figure.grid(RunConfig("paper")))
    for data, dimensions in (("imdb", reviews), ("gaussian", gaussian)):
        mine = [point for point in points if point["data"] == data]
        assert _sizes(mine, "d") == dimensions
        assert _sizes(mine, "n") == lengths
        assert _sizes(mine, "depth") == depths
        assert len(mine) == len(dimensions) * len(lengths) * len(depths)
    assert _sizes(points, "map") == {MAPS[name]}
    assert figure.trials["paper"] == 10


@pytest.mark.parametrize("name", NAMES)
def test_the_quick_scale_is_a_part_of_the_papers(name: str) -> None:
    figure = all_figures()[name]
    quick, paper = (list(figure.grid(RunConfig(scale))) for scale in ("quick", "paper"))
    assert all(point in paper for point in quick)
    assert len(quick) < len(paper)
    assert {min(_sizes(quick, "n")), max(_sizes(quick, "n"))} == {min(_sizes(paper, "n")), max(_sizes(paper, "n"))}
    for column in ("d", "depth", "data"):
        assert _sizes(quick, column) == _sizes(paper, column)


def test_a_model_takes_the_place_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wordsway.models.embedding_dimension", lambda model=None: 400)
    for name in NAMES:
        points = list(all_figures()[name].grid(RunConfig(model="some/model")))
        assert _sizes(points, "model") == {"some/model"}
        assert _sizes(points, "data") == {"imdb"}
        assert _sizes(points, "d") == ({400} if name == "fig2-drf" else {100, 200, 400})


def test_the_second_plot_of_figure_3_needs_the_first() -> None:
    figure = all_figures()["fig3-relu"]
    assert list(figure.with_needs()) == ["fig3-raf", "fig3-relu"]
    assert len(figure.planned(RunConfig())) == 2 * len(all_figures()["fig3-raf"].planned(RunConfig()))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_every_point_is_estimated(name: str, scale: str) -> None:
    figure = all_figures()[name]
    assert figure.estimate is not None
    found = [figure.estimate(point) for point in figure.grid(RunConfig(scale))]
    assert all(0 < one.seconds < 600 for one in found)
    assert all(10**8 < one.memory < 10**11 for one in found)


# Trials

TINY = [
    {"map": "rf", "data": "gaussian", "d": 8, "n": 6},
    {"map": "drf", "data": "gaussian", "d": 8, "depth": 2, "n": 6},
    {"map": "raf", "data": "gaussian", "d": 8, "n": 6},
    {"map": "relu-raf", "data": "gaussian", "d": 8, "n": 6},
]


@pytest.mark.parametrize("parameters", TINY, ids=lambda parameters: parameters["map"])
def test_a_trial_is_what_measure_gives_for_the_same_seed(parameters: dict[str, Any], capsys: Any) -> None:
    depth = ["--depth", "2"] if "depth" in parameters else []
    sizes = ["--n", "6", "--d", "8", "--seed", "3", "--trials", "2", "--json"]
    with pytest.raises(SystemExit):
        main(["measure", parameters["map"], *sizes, *depth])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for seed, line in zip((3, 4), lines, strict=True):
        record = shared.trial(parameters, seed)
        assert record["ceiling"] == line["ceiling"]
        assert (record["ceiling_kind"], record["dtype"]) == (line["ceiling_kind"], line["dtype"])
        if parameters["map"] == "relu-raf":  # it searches longer than measure does, and may find a little more
            assert line["sensitivity"] * (1 - 1e-9) <= record["sensitivity"] <= line["sensitivity"] * 1.02
        else:
            assert record["sensitivity"] == line["sensitivity"]


@pytest.mark.parametrize("parameters", TINY, ids=lambda parameters: parameters["map"])
def test_a_trial_is_the_sensitivity_of_the_first_word(parameters: dict[str, Any]) -> None:
    context = gaussian_context(6, 8, 5)
    response = map_named(parameters["map"]).respond(context, 0, MapOptions(depth=parameters.get("depth")), 5)
    effort = shared._PATIENT if parameters["map"] == "relu-raf" else None
    expected = response_sensitivity(response, 0, seed=5, budget=effort)
    record = shared.trial(parameters, 5)
    assert (record["sensitivity"], record["ceiling"]) == (expected.value, expected.ceiling)
    assert record["status"] == "converged"
    assert record == shared.trial(parameters, 5)


# Tables


@pytest.mark.parametrize("name", NAMES)
def test_a_table_of_no_trials_and_of_one(name: str) -> None:
    figure = all_figures()[name]
    assert figure.table([]) == []
    assert figure.claims([]) == []
    one = measured(figure, obeyed)[-1:]
    (line,) = figure.table(one)
    assert (line["trials"], line["deviation"]) == (1, 0.0)
    assert line["mean"] == line["least"] == line["most"] == one[0]["sensitivity"]
    verdicts = figure.claims([line])
    assert {verdict.holds for verdict in verdicts} == ({True} if name == "fig3-raf" else {None})


def test_a_row_of_a_table() -> None:
    parameters = {"d": 96, "data": "imdb", "depth": 2, "map": "drf", "n": 25}
    trials = [(0, 1.0, 4.0, "converged"), (1, 2.0, 5.0, "step limit"), (2, 3.0, 6.0, "converged")]
    found = [
        TrialResult("one", parameters, seed, {"sensitivity": value, "ceiling": ceiling, "status": status})
        for seed, value, ceiling, status in trials
    ]
    assert shared.table(found) == [
        {
            "panel": "reviews",
            "map": "drf",
            "data": "imdb",
            "d": 96,
            "depth": 2,
            "n": 25,
            "trials": 3,
            "mean": 2.0,
            "scaled": 2.0 / 1.2,
            "deviation": 1.0,
            "least": 1.0,
            "most": 3.0,
            "ceiling": 5.0,
            "converged": 2,
        }
    ]
    found[1].record["ceiling"] = None
    assert shared.table(found)[0]["ceiling"] is None


def test_points_of_a_table_come_in_the_order_of_the_grid() -> None:
    figure = all_figures()["fig2-rf"]
    rows = figure.table(measured(figure, obeyed))
    assert [{name: row[name] for name in ("map", "data", "d", "n")} for row in rows] == list(figure.grid(RunConfig()))
    assert {row["trials"] for row in rows} == {2}
    assert {row["panel"] for row in rows} == {"reviews", "Gaussian contexts"}
    named = {"map": "rf", "data": "imdb", "model": "some/model", "d": 1, "n": 1}
    record = {"sensitivity": 1.0, "ceiling": None, "status": "converged"}
    assert shared.table([TrialResult("fig2-rf", named, 0, record)])[0]["panel"] == "reviews, some/model"


# Claims


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_claims_hold_where_the_law_is_obeyed(name: str, scale: str) -> None:
    figure = all_figures()[name]
    verdicts = figure.claims(figure.table(measured(figure, obeyed, RunConfig(scale, trials=2))))
    assert verdicts
    assert [verdict.claim for verdict in verdicts if not verdict.holds] == []
    assert {verdict.claim.split(":")[0] for verdict in verdicts} == {"reviews", "Gaussian contexts"}


def _constant(parameters: dict[str, Any], seed: int) -> float:
    return 1.0


def _too_steep(parameters: dict[str, Any], seed: int) -> float:
    return obeyed(parameters, seed) * math.pow(parameters["n"], -0.12)


def _apart(parameters: dict[str, Any], seed: int) -> float:
    return obeyed(parameters, seed) * math.pow(parameters["d"], 0.2)


def _once_low(parameters: dict[str, Any], seed: int) -> float:
    return 0.99 if (parameters["n"], seed) == (50, 1) else obeyed(parameters, seed)


def _relu_above(parameters: dict[str, Any], seed: int) -> float:
    return obeyed(parameters, seed) * (9.0 if parameters["map"] == "relu-raf" else 1.0)


@pytest.mark.parametrize(
    ("name", "law", "broken"),
    [
        ("fig2-rf", _constant, ["n^(-1/2)"]),
        ("fig2-rf", _too_steep, ["n^(-1/2)"]),
        ("fig2-rf", _apart, ["coincide"]),
        ("fig2-drf", _constant, ["at every depth", "n^(-1/2)"]),
        ("fig2-drf", _too_steep, ["n^(-1/2)"]),
        ("fig3-raf", _once_low, ["S > 1 in every trial"]),
        ("fig3-raf", _constant, ["S > 1 in every trial"]),
        ("fig3-relu", _constant, ["falls with n", "below that of softmax"]),
        ("fig3-relu", _relu_above, ["below that of softmax"]),
    ],
)
def test_claims_fail_where_the_law_is_broken(name: str, law: Law, broken: list[str]) -> None:
    figure = all_figures()[name]
    for verdict in figure.claims(figure.table(measured(figure, law))):
        assert verdict.holds is not any(words in verdict.claim for words in broken), verdict


def test_maps_are_compared_at_the_same_dimension() -> None:
    figure = all_figures()["fig3-relu"]

    def law(parameters: dict[str, Any], seed: int) -> float:
        share = 1.0 if parameters["map"] == "raf" else 0.9
        return 1000 * share / math.pow(parameters["n"], 0.001) / float(parameters["d"])

    assert {verdict.holds for verdict in figure.claims(figure.table(measured(figure, law)))} == {True}


def test_the_factor_of_short_contexts_is_told() -> None:
    figure = all_figures()["fig2-rf"]
    verdict = figure.claims(figure.table(measured(figure, obeyed)))[0]
    assert verdict.measured.startswith("-0.500 ")
    assert "without the factor -0.54" in verdict.measured
    assert shared.edge(4) == 1.5
