"""Pictures of the figures: on light and dark pages, the same every time, nothing global changed, seen in a browser."""

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from experiments.made import row
from matplotlib.figure import Figure
from report.documents import frames

from figures.laws import Record, figure, results, table
from wordsway.errors import MissingExtra
from wordsway.experiments import RunConfig, Store, figure_result
from wordsway.experiments.experiment import Table, Trial, canonical, canonical_record
from wordsway.figures import all_figures
from wordsway.figures._style import legend_below, render, style
from wordsway.report.results import write_figure, write_page

MAPS = {"fig2-drf": "drf", "fig2-rf": "rf", "fig3-raf": "raf", "fig3-relu": "relu-raf"}
NAMES = tuple(MAPS)
CONFIG = RunConfig(trials=2)
LIGHT, DARK = b"#1b1f24", b"#e6e8eb"


def _draw(name: str, rows: Table) -> Callable[[Figure], None]:
    return lambda canvas: figure(name).plot(rows, canvas)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four figures, written from a store with made-up trials, and their page."""
    made = tmp_path_factory.mktemp("results")
    before = dict(mpl.rcParams)
    with Store(made / "store.sqlite") as store:
        for name in NAMES:
            for one in results(name):
                trial = Trial(one.experiment, figure(name).version, canonical(one.parameters), one.seed)
                store.add(row(trial, record=canonical_record(one.record)))
            write_figure(figure_result(figure(name), CONFIG, store), made)
    write_page(made, NAMES)
    assert dict(mpl.rcParams) == before
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []
    return made


@pytest.mark.parametrize("name", all_figures())
def test_every_figure_can_be_drawn_with_all_rows_with_one_trial_and_with_none(name: str) -> None:
    rows = table(name)
    before = [dict(one) for one in rows]
    light, dark = (render(_draw(name, rows), "svg", dark) for dark in (False, True))
    assert rows == before  # drawing changes no number
    for svg, ink, other in ((light, LIGHT, DARK), (dark, DARK, LIGHT)):
        assert svg.startswith(b"<?xml")
        assert len(svg) > 10_000
        assert (ink in svg, other in svg) == (True, False)
    assert len(render(_draw(name, figure(name).table(results(name)[-1:])), "svg")) > 5_000


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_written_the_same_every_time(folder: Path, name: str) -> None:
    light, dark, png = ((folder / f"{name}{kind}").read_bytes() for kind in (".svg", "-dark.svg", ".png"))
    assert (LIGHT in light, DARK in dark) == (True, True)
    assert png.startswith(b"\x89PNG")
    assert len(png) > 20_000
    assert render(_draw(name, table(name)), "svg") == light


@pytest.mark.parametrize("name", NAMES)
def test_what_a_picture_of_word_sensitivity_shows(name: str) -> None:
    rows = table(name)
    canvas = Figure()
    with style():
        figure(name).plot(rows, canvas)
    panels: list[Any] = canvas.axes
    assert [axes.get_title(loc="left") for axes in panels] == ["reviews", "Gaussian contexts"]
    mine = [one for one in rows if one["map"] == MAPS[name]]
    mine = [one for one in mine if one["panel"] == "reviews"]
    column, letter = ("depth", "L") if name == "fig2-drf" else ("d", "d")
    lines = {line.get_label(): line.get_data() for line in panels[0].get_lines()}
    values = sorted({one[column] for one in mine})
    for value in values:
        expected = sorted((one["n"], one["mean"]) for one in mine if one[column] == value)
        assert list(zip(*lines.pop(f"{letter} = {value}"), strict=True)) == expected
    if name == "fig3-raf":
        qkv = sorted((one["n"], one["mean"]) for one in rows if (one["map"], one["panel"]) == ("qkv", "reviews"))
        assert list(zip(*lines.pop("qkv, d = 384"), strict=True)) == qkv
    ((label, theory),) = lines.items()
    assert label in ("∝ $n^{-1/2}(1 + (2/n)^{1/2})$", "S = 1", "softmax, d = 384")
    assert len(theory[0]) >= 2
    assert len(values) == 3
    assert [axes.get_xlabel() for axes in panels] == ["context length n"] * 2
    assert [axes.get_ylabel() for axes in panels] == ["word sensitivity", ""]


def test_what_a_picture_of_mean_field_attention_shows() -> None:
    rows = table("meanfield")
    canvas = Figure()
    with style():
        figure("meanfield").plot(rows, canvas)
    panels = ("attention", "masked attention")
    assert [axes.get_title(loc="left") for axes in canvas.axes] == list(panels)
    for axes, panel in zip(canvas.axes, panels, strict=True):
        mine = [one for one in rows if one["panel"] == panel]
        for line, name in zip(axes.get_lines(), ("mean", "published", "upper", "two_point", "lower"), strict=True):
            data: Any = line.get_data()
            assert list(zip(*data, strict=True)) == [(one["R"] ** 2, one[name]) for one in mine]
        assert axes.get_yscale() == "log"


def _panels(name: str, rows: Table) -> tuple[Figure, list[Any]]:
    canvas = Figure(layout="constrained")
    with style():
        figure(name).plot(rows, canvas)
        if not canvas.legends:
            legend_below(canvas)
    return canvas, canvas.axes


@pytest.mark.parametrize(
    ("name", "marks"),
    [
        ("fig2-rf", {"band: one standard deviation", "lighter band: up to the ceiling, an upper bound"}),
        ("smooth-real", set()),  # made-up trials agree, so that there is no band
        ("fig4", {"$(2 - \\gamma)^2$", "N = 100", "N = 400", "alignment loss (25) minimised", "error (16) minimised"}),
        ("fig7", {"$(2 - \\gamma)^2$", "loss of this training", "loss of the other training"}),
    ],
)
def test_one_legend_below_all_panels_explains_their_marks(name: str, marks: set[str]) -> None:
    canvas, _ = _panels(name, table(name))
    assert {text.get_text() for legend in canvas.legends for text in legend.get_texts()} == marks


def test_panels_that_are_compared_have_one_scale() -> None:
    for name in ("fig2-rf", "fig3-raf", "fig4"):
        assert len({axes.get_ylim() for axes in _panels(name, table(name))[1]}) == 1
    rows = table(
        "smooth-real", lambda point, record: {"lipschitz": record["lipschitz"] * (9 if point["causal"] else 1)}
    )
    scales = {axes.get_title(loc="left"): axes.get_ylim() for axes in _panels("smooth-real", rows)[1]}
    assert scales["minilm"] == scales["minilm, masked"] != scales["smollm2"]


def test_an_error_far_above_the_line_is_a_triangle_at_the_end_of_the_axis() -> None:
    rows = table("fig4")
    rows[0] = {**rows[0], "error": 50.0}
    canvas, panels = _panels("fig4", rows)
    ((_, top),) = {axes.get_ylim() for axes in panels}
    assert top < 7
    heights = [float(y) for dots in panels[0].collections for _, y in dots.get_offsets()]
    assert max(heights) == top
    assert "error beyond the axis" in [text.get_text() for text in canvas.legends[0].get_texts()]


@pytest.mark.parametrize("name", ["robust-rf", "robust-ntk"])
def test_panels_of_robust_features_are_wide_enough_to_read(name: str) -> None:
    canvas, panels = _panels(name, table(name))
    assert max(axes.get_subplotspec().get_gridspec().ncols for axes in panels) == 3
    assert canvas.get_size_inches()[0] < 14
    rows = [axes.get_subplotspec().rowspan.start for axes in panels]
    data = [axes.get_title(loc="left").rpartition(", ")[2] for axes in panels]
    assert set(zip(rows, data, strict=True)) == {
        (0, "gaussian"),
        (1, "gaussian"),
        (2, "mnist"),
        (3, "mnist"),
    }


def test_a_result_draws_itself(tmp_path: Path) -> None:
    with Store(tmp_path / "store.sqlite") as store:
        for one in results("fig2-rf"):
            trial = Trial(one.experiment, figure("fig2-rf").version, canonical(one.parameters), one.seed)
            store.add(row(trial, record=canonical_record(one.record)))
        result = figure_result(figure("fig2-rf"), CONFIG, store)
    assert repr(result) == "FigureResult(figure='fig2-rf', holds=True, finished=36, planned=36, problems=0)"
    canvas = Figure()
    first = result.plot(canvas.add_subplot())
    assert first is canvas.axes[0]
    assert [axes.get_title() for axes in canvas.axes] == ["reviews", "Gaussian contexts"]
    assert result.plot().get_title() == "reviews"
    assert len(result.to_frame()) == len(result.table) == 18


def test_a_figure_whose_own_trials_are_all_missing_has_a_note() -> None:
    rows = [one for one in table("fig3-relu") if one["map"] != "relu-raf"]
    assert {verdict.holds for verdict in figure("fig3-relu").claims(rows)} == {None}
    drawn = render(_draw("fig3-relu", rows), "svg")
    assert drawn == render(lambda canvas: None, "svg")
    assert len(drawn) > 3000  # the letters of "nothing to draw yet"


def test_large_deviations_and_far_or_missing_ceilings_can_be_drawn() -> None:
    def change(point: Record, record: Record) -> Record:
        far = {"sensitivity": 1e-3 if record["sensitivity"] > 0.1 else 2.0, "ceiling": 1e6}
        return {**far, "ceiling": None} if point["n"] == 90 and point["d"] == 96 else far

    assert len(render(_draw("fig2-rf", table("fig2-rf", change)), "svg")) > 10_000


def test_without_matplotlib_the_message_has_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"pip install 'wordsway\[figures\]'"):
        render(lambda canvas: None, "svg")


@pytest.mark.parametrize("name", NAMES)
def test_numbers_below_an_axis_do_not_touch(name: str) -> None:
    places = {parameters["n"] for parameters in figure(name).grid(RunConfig(scale="paper", trials=1))}
    own = [one for one in table(name) if one["map"] == MAPS[name]]
    rows = [{**own[0], "n": n} for n in sorted(places)]
    with style(dark=False):
        canvas = Figure(layout="constrained", dpi=100)
        figure(name).plot(rows, canvas)
        canvas.draw_without_rendering()
        (axes,) = canvas.axes
        labels = [label for label in axes.get_xticklabels() if label.get_text()]
        boxes = sorted((label.get_window_extent() for label in labels), key=lambda box: box.x0)
        assert len(boxes) >= 3
        assert labels[-1].get_text() == f"{max(places):g}"
        assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_a_browser_shows_all_figures(folder: Path, tmp_path: Path) -> None:
    phone, desktop = frames(tmp_path, (folder / "index.html").read_text(encoding="utf-8"))
    assert (phone["width"], desktop["width"]) == (360, 1200)
    assert phone["shown"] == desktop["shown"] == ["light"] * len(NAMES)
