"""Pictures of the figures: on light and dark pages, the same every time, nothing left behind, seen in a browser."""

import html
import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from experiments.made import NAMES, measured, obeyed, row
from matplotlib.figure import Figure
from report.documents import Document, frames

from wordsway.errors import MissingExtra
from wordsway.experiments.experiment import Experiment, RunConfig, Table, Trial, canonical, canonical_record
from wordsway.experiments.results import figure_result
from wordsway.experiments.store import Store
from wordsway.figures import all_figures
from wordsway.figures._style import render, style
from wordsway.report.results import write_figure, write_page

MAPS = {"fig2-rf": "rf", "fig2-drf": "drf", "fig3-raf": "raf", "fig3-relu": "relu-raf"}
SCOPE = RunConfig(trials=2)


def _rows(figure: Experiment) -> Table:
    return figure.table(measured(figure, obeyed, SCOPE))


def _draw(figure: Experiment, rows: Table) -> Callable[[Figure], None]:
    return lambda canvas: figure.plot(rows, canvas)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All four figures, written from a store with made-up trials, and their page."""
    made = tmp_path_factory.mktemp("results")
    before = dict(mpl.rcParams)
    with Store(made / "store.sqlite") as store:
        for name in NAMES:
            figure = all_figures()[name]
            for one in measured(figure, obeyed, SCOPE):
                trial = Trial(one.experiment, figure.version, canonical(one.parameters), one.seed)
                store.add(row(trial, record=canonical_record(one.record)))
            write_figure(figure_result(figure, SCOPE, store), made)
    write_page(made, NAMES)
    assert dict(mpl.rcParams) == before
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []
    return made


@pytest.mark.parametrize("name", NAMES)
def test_pictures_on_light_and_dark_pages(folder: Path, name: str) -> None:
    light, dark, png = ((folder / f"{name}{kind}").read_bytes() for kind in (".svg", "-dark.svg", ".png"))
    for svg, ink, other in ((light, b"#1b1f24", b"#e6e8eb"), (dark, b"#e6e8eb", b"#1b1f24")):
        assert svg.startswith(b"<?xml")
        assert len(svg) > 20_000
        assert (ink in svg, other in svg) == (True, False)
    assert png.startswith(b"\x89PNG")
    assert len(png) > 20_000


@pytest.mark.parametrize("name", ["fig2-rf", "fig3-relu"])
def test_the_same_trials_make_the_same_bytes(folder: Path, name: str) -> None:
    figure = all_figures()[name]
    rows = _rows(figure)
    before = [dict(one) for one in rows]
    assert render(_draw(figure, rows), "svg") == (folder / f"{name}.svg").read_bytes()
    assert rows == before  # drawing changes no number


@pytest.mark.parametrize("name", NAMES)
def test_what_a_picture_shows(name: str) -> None:
    figure = all_figures()[name]
    rows = _rows(figure)
    canvas = Figure()
    with style():
        figure.plot(rows, canvas)
    panels: list[Any] = canvas.axes
    assert [axes.get_title(loc="left") for axes in panels] == ["reviews", "Gaussian contexts"]
    mine = [one for one in rows if one["map"] == MAPS[name] and one["panel"] == "reviews"]
    column, letter = ("depth", "L") if name == "fig2-drf" else ("d", "d")
    lines = {line.get_label(): line.get_data() for line in panels[0].get_lines()}
    values = sorted({one[column] for one in mine})
    for value in values:
        expected = sorted((one["n"], one["mean"]) for one in mine if one[column] == value)
        assert list(zip(*lines.pop(f"{letter} = {value}"), strict=True)) == expected
    ((label, theory),) = lines.items()
    assert label in ("∝ $n^{-1/2}(1 + n^{-1/2})$", "S = 1", "softmax, d = 384")
    assert len(theory[0]) >= 2
    assert len(values) == 3
    assert panels[0].get_xlabel() == "context length n"


@pytest.mark.parametrize("name", ["fig2-rf", "fig3-raf"])
def test_one_point_can_be_drawn(name: str) -> None:
    figure = all_figures()[name]
    rows = figure.table(measured(figure, obeyed, SCOPE)[:1])
    assert len(render(_draw(figure, rows), "svg")) > 10_000


def test_a_figure_whose_own_trials_are_all_missing_says_so() -> None:
    figure = all_figures()["fig3-relu"]
    rows = [one for one in _rows(figure) if one["map"] == "raf"]
    assert {verdict.holds for verdict in figure.claims(rows)} == {None}
    found = render(_draw(figure, rows), "svg")
    assert found == render(lambda canvas: None, "svg")
    assert len(found) > 3000  # the letters of "nothing to draw yet"


def test_large_deviations_and_far_or_missing_ceilings_can_be_drawn() -> None:
    figure = all_figures()["fig2-rf"]
    found = measured(figure, lambda parameters, seed: 1e-3 if seed else 2.0, SCOPE)
    for number, one in enumerate(found):
        one.record["ceiling"] = None if number < 2 else 1e6
    assert len(render(_draw(figure, figure.table(found)), "svg")) > 10_000


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"pip install 'wordsway\[figures\]'"):
        render(lambda canvas: None, "svg")


# The page


def test_the_page_has_all_figures_with_their_verdicts(folder: Path) -> None:
    text = (folder / "index.html").read_text(encoding="utf-8")
    document = Document(text)
    assert document.values("id") == list(NAMES)
    assert len(document.all("img")) == 2 * len(NAMES)
    for name in NAMES:
        figure = all_figures()[name]
        assert figure.title in document.texts
        assert f"wordsway reproduce {name} --scale quick --trials 2" in document.texts
        verdicts = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["verdicts"]
        assert verdicts
        for verdict in verdicts:
            assert verdict["holds"] is True
            assert html.escape(verdict["claim"]) in text
            assert verdict["measured"] in document.texts
    assert text.count("</span> does not hold") == text.count("</span> cannot tell") == 0


def test_a_browser_shows_all_figures(folder: Path, tmp_path: Path) -> None:
    text = (folder / "index.html").read_text(encoding="utf-8")
    phone, desk = frames(tmp_path, text)
    assert (phone["width"], desk["width"]) == (360, 1200)
    assert phone["shown"] == desk["shown"] == ["light"] * len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_numbers_below_an_axis_do_not_touch(name: str) -> None:
    figure = all_figures()[name]
    places = {parameters["n"] for parameters in figure.grid(RunConfig(scale="paper", trials=1))}
    rows = [{**line, "n": n} for line in _rows(figure)[:1] for n in sorted(places)]
    with style(dark=False):
        canvas = Figure(layout="constrained", dpi=100)
        figure.plot(rows, canvas)
        canvas.draw_without_rendering()
        for axes in canvas.axes:
            labels = [label for label in axes.get_xticklabels() if label.get_text()]
            boxes = sorted((label.get_window_extent() for label in labels), key=lambda box: box.x0)
            assert len(boxes) >= 3
            assert labels[-1].get_text() == f"{max(places):g}"
            assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))
