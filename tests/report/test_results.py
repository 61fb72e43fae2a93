"""Results of figures: verdicts on stored trials, the files of a figure, and the page of all of them."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from experiments.made import experiment, row, trial

from report.documents import Document
from wordsway.experiments.claims import above
from wordsway.experiments.experiment import Experiment, RunConfig, Verdict
from wordsway.experiments.results import figure_result
from wordsway.experiments.runner import RunSummary
from wordsway.experiments.store import DIED, FAILED, Store
from wordsway.report import results
from wordsway.report import results as report
from wordsway.report.experiments import print_figures
from wordsway.report.results import command, write_figure, write_page
from wordsway.sensitivity import assumptions

SVG = '<svg width="90pt" height="60pt" xmlns="http://www.w3.org/2000/svg"><!-- {} --></svg>'


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "stored" / "store.sqlite") as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "out"
    made.mkdir()
    return made


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures that take no time."""

    def render(draw: Callable[[Any], None], kind: str, dark: bool = False) -> bytes:
        return SVG.format(f"{kind} {dark}").encode()

    monkeypatch.setattr(report, "render", render)


def fill(store: Store, *experiments: Experiment, config: RunConfig | None = None) -> None:
    """Finish every trial, with its n as the value."""
    for one in experiments:
        for planned in one.planned(config or RunConfig()):
            store.add(row(planned, value=float(json.loads(planned.parameters)["n"])))


def _write(store: Store, folder: Path, *experiments: Experiment, config: RunConfig | None = None) -> Document:
    """Write figures and the page, and read the page."""
    for one in experiments:
        write_figure(figure_result(one, config or RunConfig(), store), folder)
    return Document(write_page(folder).read_text(encoding="utf-8"))


def _summary(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


# Verdicts


def test_finished_missing_and_failed_trials_are_counted(store: Store) -> None:
    one = experiment()
    nothing = figure_result(one, RunConfig(), store)
    assert (nothing.planned, nothing.finished, nothing.problems, nothing.table, nothing.holds) == (4, 0, 0, [], None)
    store.add(row(trial(0, n=1), value=5.0))
    store.add(row(trial(1, n=1), FAILED))
    store.add(row(trial(1, n=1), DIED))
    store.add(row(trial(0, n=2), FAILED))
    store.add(row(trial(0, n=2), value=6.0))
    store.add(row(trial(9, n=2), FAILED))  # not planned
    store.add(row(trial(1, version=2, n=2), FAILED))  # of another version
    found = figure_result(one, RunConfig(), store)
    assert (found.planned, found.finished, found.problems) == (4, 2, 1)
    assert found.table == [{"n": 1, "seed": 0, "value": 5.0}, {"n": 2, "seed": 0, "value": 6.0}]
    assert found.verdicts == [Verdict("every value exceeds 0", "5.000 at least", True)]
    assert found.holds is True


def test_trials_of_needed_figures_are_counted_too(store: Store) -> None:
    base = experiment("base")
    top = experiment("top", needs=(base,))
    store.add(row(trial(0, "base", n=1), FAILED))
    store.add(row(trial(0, "base", n=1)))  # done since
    store.add(row(trial(1, "base", n=1), FAILED))
    store.add(row(trial(0, "top", n=1), DIED))
    store.add(row(trial(0, "other", n=1), FAILED))
    found = figure_result(top, RunConfig(), store)
    assert (found.planned, found.finished, found.problems) == (8, 1, 2)
    fill(store, top)
    found = figure_result(top, RunConfig(), store)
    assert (found.planned, found.finished, found.problems) == (8, 8, 0)
    assert [len(one) for one in (found.table, found.verdicts)] == [8, 1]


# Files


def test_the_files_of_a_figure(store: Store, folder: Path) -> None:
    """With a real picture."""
    fill(store, experiment())
    paths = write_figure(figure_result(experiment(), RunConfig(), store), folder)
    assert [path.name for path in paths] == ["one.csv", "one.svg", "one-dark.svg", "one.png", "one.json"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in paths)
    assert (folder / "one.csv").read_text() == "n,seed,value\n1,0,1.0\n1,1,1.0\n2,0,2.0\n2,1,2.0\n"
    assert (folder / "one.svg").read_bytes().startswith(b"<?xml")
    assert (folder / "one.svg").read_bytes() != (folder / "one-dark.svg").read_bytes()
    assert (folder / "one.png").read_bytes().startswith(b"\x89PNG")


def test_pictures_are_drawn_again_only_where_something_has_changed(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []

    def draw(_: object, kind: str, dark: bool = False) -> bytes:
        drawn.append(f"{kind} {dark}")
        return b"<svg/>"

    monkeypatch.setattr(results, "render", draw)
    fill(store, experiment())
    result = figure_result(experiment(), RunConfig(), store)
    for _ in range(2):
        write_figure(result, folder)
        assert drawn == ["svg False", "svg True", "png False"]
    (folder / "one.png").unlink()
    write_figure(result, folder)
    assert len(drawn) == 6
    write_figure(replace(result, table=result.table[:1]), folder)
    assert len(drawn) == 9


@pytest.mark.usefixtures("quick")
def test_the_summary_of_a_figure(store: Store, folder: Path) -> None:
    fill(store, experiment())
    config = RunConfig(seed=1, trials=3)
    write_figure(figure_result(experiment(), config, store), folder)
    summary = _summary(folder, "one")
    assert len(summary.pop("drawing")) == 64
    written = summary["facts"].pop("written")
    assert written.endswith("+00:00")
    assert summary == {
        "name": "one",
        "title": "Title of one",
        "about": "About one.",
        "command": "wordsway reproduce one --scale quick --trials 3 --seed 1",
        "facts": {
            "scale": "quick",
            "parameters": "n 1 to 2",
            "trials per point": "3",
            "seeds": "1 to 3",
            "trials finished": "2 of 6",
        },
        "verdicts": [Verdict("every value exceeds 0", "1.000 at least", True).to_dict()],
        "assumptions": [],
        "asked": 6,
        "finished": 2,
        "problems": 0,
        "table": [{"n": 1, "seed": 1, "value": 1.0}, {"n": 2, "seed": 1, "value": 2.0}],
    }


@pytest.mark.usefixtures("quick")
def test_assumptions_are_written_and_shown(store: Store, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = replace(experiment(), assumptions=lambda results: [assumptions("raf", n=n, d=768) for n in (10, 20)])
    fill(store, one)
    result = figure_result(one, RunConfig(), store)
    short = "n = 10 to 20 against d / log^4 d = 0.394; met in 0 of 2 settings"
    row = {"theorem": "Theorem 5.1", "assumption": "d / log^4 d = Omega(n)", "measured": short, "met": False}
    assert row in result.to_dict()["assumptions"]
    document = _write(store, folder, one)
    assert row in _summary(folder, "one")["assumptions"]
    shown = "".join(document.texts)
    assert "Theorem 5.1: d / log4 d = \N{GREEK CAPITAL LETTER OMEGA}(n)" in shown
    assert short.replace("log^4", "log4") in shown
    (folder / "one.json").write_text(
        json.dumps({k: v for k, v in _summary(folder, "one").items() if k != "assumptions"})
    )
    assert "every value exceeds 0" in write_page(folder).read_text(encoding="utf-8")  # a file of an older version
    print_figures([result], RunSummary(4, 4), folder / "index.html")
    out = " ".join(capsys.readouterr().out.split())
    assert f"not met Theorem 5.1 assumes d / log^4 d = Omega(n) {short}" in out


def test_a_figure_without_trials_has_no_picture(store: Store, folder: Path) -> None:
    document = _write(store, folder, experiment())
    assert sorted(path.name for path in folder.iterdir()) == ["index.html", "one.csv", "one.json"]
    assert (folder / "one.csv").read_bytes() == b""
    assert " 4 of 4 trials are missing" in document.texts
    assert document.all("img") == []


def test_the_command_of_a_figure() -> None:
    one = experiment()
    assert command(one, RunConfig()) == "wordsway reproduce one --scale quick"
    assert command(one, RunConfig("paper", "m", 4, 9)) == "wordsway reproduce one --scale paper --trials 4 --seed 9"
    other = experiment(grid=lambda config: [{"n": 1, "model": config.model}])
    assert command(other, RunConfig("paper", "org/model", 4, 9)) == (
        "wordsway reproduce one --scale paper --model org/model --trials 4 --seed 9"
    )
    assert command(other, RunConfig(model="my models/a;b")).endswith("--model 'my models/a;b'")


# The page


@pytest.mark.usefixtures("quick")
def test_the_page_has_every_figure_in_the_given_order(store: Store, folder: Path) -> None:
    low = experiment("low", claims=lambda table: [above("every value exceeds 1", table, 1.0, "value")])
    open_ = experiment("open", claims=lambda table: [Verdict("nobody knows", "little", None)])
    ones = [experiment("also"), low, open_]
    for one in ones:
        fill(store, one)
        write_figure(figure_result(one, RunConfig(), store), folder)
    path = write_page(folder, ["low", "missing", "also"])
    assert path == folder / "index.html"
    text = path.read_text(encoding="utf-8")
    document = Document(text)
    assert document.values("id") == ["low", "also", "open"]
    for one in ones:
        assert {one.title, one.about, command(one, RunConfig())} <= set(document.texts)
    assert {"every value exceeds 0", "every value exceeds 1", "1.000 at least", "nobody knows"} <= set(document.texts)
    badges = [text.count(f"</span> {words}") for words in ("holds<", "does not hold<", "cannot tell<")]
    assert badges == [3, 3, 3]  # at a glance, at the head, at the claim
    assert [value for value in document.values("href") if value.startswith("./low")] == [
        *("./low.png", "./low.svg", "./low.csv")
    ]
    assert len(document.all("img")) == 6


@pytest.mark.usefixtures("quick")
def test_missing_and_failed_trials_are_noted(store: Store, folder: Path) -> None:
    store.add(row(trial(0, n=1)))
    store.add(row(trial(1, n=1), FAILED))
    assert " 3 of 4 trials are missing; 1 of them failed" in _write(store, folder, experiment()).texts
    fill(store, experiment())
    assert "Note:" not in _write(store, folder, experiment()).texts


@pytest.mark.usefixtures("quick")
def test_pictures_need_trials_and_both_files(store: Store, folder: Path) -> None:
    fill(store, experiment())
    assert len(_write(store, folder, experiment()).all("img")) == 2
    (folder / "one-dark.svg").unlink()
    document = Document(write_page(folder).read_text(encoding="utf-8"))
    assert document.all("img") == []
    assert "every value exceeds 0" in document.texts
    document = _write(store, folder, experiment(version=2))  # without trials; older pictures lie there
    assert [value for value in document.values("href") if value[0] == "."] == ["./one.csv"]


def _broken(summary: dict[str, Any]) -> dict[str, str]:
    """Files that are no summaries, by name."""
    verdict = {"claim": "c", "measured": "m", "holds": "x"}
    unknown = {"theorem": "t", "assumption": "a", "measured": "m", "met": "x"}
    odd = {"verdicts": [verdict], "assumptions": [unknown], "table": 5, "title": 5, "asked": "many"}
    return {
        "empty": "",
        "half": json.dumps(summary)[:-40],
        "list": "[1, 2]",
        "text": '"text"',
        "foreign": '{"name": "foreign", "version": 2}',
        "deep": "[" * 100_000,
        "copy of one": json.dumps(summary),
        **{key: json.dumps({**summary, "name": key, key: value}) for key, value in odd.items()},
    }


@pytest.mark.usefixtures("quick")
def test_other_and_broken_files_in_the_folder_are_ignored(store: Store, folder: Path) -> None:
    fill(store, experiment())
    _write(store, folder, experiment())
    for name, content in _broken(_summary(folder, "one")).items():
        (folder / f"{name}.json").write_text(content)
        document = Document(write_page(folder).read_text(encoding="utf-8"))
        assert document.values("id") == ["one"], name
    (folder / "bytes.json").write_bytes(b"\xff\xfe{}")
    (folder / "folder.json").mkdir()
    assert Document(write_page(folder).read_text(encoding="utf-8")).values("id") == ["one"]


def test_a_folder_without_figures_has_a_page(folder: Path) -> None:
    assert "There are no figures yet." in write_page(folder).read_text(encoding="utf-8")
