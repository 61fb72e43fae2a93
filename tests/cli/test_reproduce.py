"""The commands reproduce, figures and results: what they print and write, what they refuse, and how they end."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from experiments import trials

from cli.conftest import Run
from wordsway import figures
from wordsway.experiments import Experiment, Verdict, executors
from wordsway.experiments.store import DONE, FAILED, STORE, Store

SIZES = "x 0 to 3"


@contextmanager
def _threads(count: int) -> Iterator[Executor]:
    """In place of processes: their start takes seconds, and is tested elsewhere."""
    with ThreadPoolExecutor(count) as pool:
        yield pool


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replace the figures by small ones."""

    def call(*known: Experiment) -> None:
        found = {one.name: one for one in known}
        monkeypatch.setattr(figures, "all_figures", lambda: found)

    return call


@pytest.fixture
def tiny(run: Run, offer: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run commands on a small figure, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(executors, "open_processes", _threads)
    offer(trials.experiment())
    return run


@pytest.fixture
def flag(tmp_path: Path, tiny: Run, offer: Callable[..., None]) -> Path:
    """A file: as long as it exists, the trials of the figure fail unless x = 0."""
    path = tmp_path / "flag"
    path.touch()
    offer(trials.experiment(trials.flagged, points=3, trials=1, flag=str(path)))
    return path


def _lines(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def _plain(text: str) -> str:
    """A text without the frame and the line breaks of a usage error."""
    return " ".join(text.replace("│", " ").split())


# reproduce


def test_reproduce_runs_the_trials_prints_the_verdict_and_writes_the_files(tiny: Run, tmp_path: Path) -> None:
    code, out, err = tiny("reproduce", "tiny", "--workers", 2)
    assert (code, err) == (0, "8 trials: running 8 on 2 workers (local processes), about 1 s\n")
    lines = out.splitlines()
    assert lines[0] == "tiny  A small one"
    assert re.fullmatch(r"  holds +the mean grows *", lines[1])
    assert re.fullmatch(r" +measured by \d\.\d\d *", lines[2])
    assert lines[-2] == "1 holds"
    assert lines[-1] == "8 trials run, 0 were stored; the page is results/index.html"
    names = {"tiny.csv", "tiny.json", "tiny.png", "tiny.svg", "tiny-dark.svg", "index.html", "store.sqlite"}
    assert names <= {path.name for path in (tmp_path / "results").iterdir()}
    assert "the mean grows" in (tmp_path / "results" / "index.html").read_text(encoding="utf-8")
    code, out, err = tiny("reproduce", "tiny")
    assert (code, err) == (0, "all 8 trials are stored: nothing to run\n")
    assert out.splitlines()[-1] == "0 trials run, 8 were stored; the page is results/index.html"
    code, _, err = tiny("reproduce", "--trials", 3, "--workers", 1)  # of all figures
    assert (code, err) == (0, "12 trials, 8 of them stored: running 4 on 1 worker (local processes), about 1 s\n")


def test_reproduce_as_json(tiny: Run, tmp_path: Path) -> None:
    options = ("--trials", 1, "--seed", 7, "--scale", "paper", "--out", "deep/er")
    code, out, _ = tiny("reproduce", "tiny", "--json", *options)
    (line,) = _lines(out)
    assert code == 0
    assert line["claims"][0].pop("measured").startswith("by ")
    expected = {"figure": "tiny", "scale": "paper", "holds": True, "trials": 8, "finished": 8, "failed": 0}
    claims = [
        {"claim": "the mean grows", "holds": True, "weaker": "", "check": False, "source": "", "outcome": "holds"}
    ]
    assert line == {**expected, "outcome": "holds", "claims": claims, "assumptions": [], "page": "deep/er/index.html"}
    assert {row["seed"] for row in trials.stored(tmp_path / "deep" / "er" / "store.sqlite")} == {7}


def test_a_dry_run_prints_the_plan_and_changes_nothing(tiny: Run, tmp_path: Path) -> None:
    code, out, err = tiny("reproduce", "--dry-run", "--workers", 2)
    assert (code, err) == (0, "")
    assert re.search(r"^tiny +8 +0 +8 +1 s +100\.0 MB$", out, flags=re.MULTILINE)
    assert re.search(rf"^tiny +{SIZES} *$", out, flags=re.MULTILINE)
    assert "about 1 s on 2 workers; nothing was run" in out
    expected = {"experiment": "tiny", "trials": 8, "stored": 0, "to_run": 8, "seconds": 0.2, "bytes": 10**8}
    assert _lines(tiny("reproduce", "--dry-run", "--json")[1]) == [expected | {"sizes": SIZES}]
    assert list(tmp_path.iterdir()) == []
    tiny("reproduce")
    store = tmp_path / "results" / "store.sqlite"
    before = store.read_bytes()
    (line,) = _lines(tiny("reproduce", "--dry-run", "--trials", 5, "--json")[1])
    assert (line["trials"], line["stored"], line["to_run"]) == (20, 8, 12)
    assert re.search(r"^tiny +8 +8 +0 +- +-$", tiny("reproduce", "--dry-run")[1], flags=re.MULTILINE)
    assert store.read_bytes() == before


def test_failing_trials_are_listed_and_are_exit_code_1(tiny: Run, flag: Path) -> None:
    code, out, err = tiny("reproduce", "tiny")
    failed = "2 of 3 trials failed: run the same command again to repeat only those"
    assert (code, err.splitlines()[1:]) == (1, [f"wordsway: {failed}"])
    for x in (1, 2):
        problem = rf'failed: tiny {{"flag": "[^"]+", "x": {x}}} seed 0: ValueError: no answer for {x} \('
        assert re.search(problem, " ".join(out.split()))
    _, out, _ = tiny("results", "show")
    assert re.search(r"^tiny +1 +1 +2 +0 +1 s$", out, flags=re.MULTILINE)
    assert out.count("failed: tiny") == 2
    flag.unlink()
    code, out, _ = tiny("reproduce", "tiny")
    assert code == 0
    assert "2 trials run, 1 were stored" in out
    assert "failed" not in tiny("results", "show")[1].split("computed for")[1]
    assert [line["failed"] for line in _lines(tiny("reproduce", "--json")[1])] == [0]


def test_of_many_problems_some_are_listed(tiny: Run, flag: Path, offer: Callable[..., None]) -> None:
    offer(trials.experiment(trials.flagged, points=23, trials=1, flag=str(flag), claims=lambda rows: []))
    code, out, _ = tiny("reproduce")
    assert code == 1
    assert "no trial has finished" in out
    assert out.count("failed: tiny") == 20
    assert "and 2 more: see wordsway results show --out results" in out
    assert "and 2 more: wordsway results export --all has them" in tiny("results").out


@pytest.mark.parametrize(
    ("holds", "shown", "message"),
    [
        (False, "does not hold", "claims that do not hold: tiny"),
        (None, "cannot tell", "claims that the trials cannot tell: tiny"),
    ],
)
def test_a_claim_that_does_not_hold_is_a_result_and_strictly_exit_code_1(
    tiny: Run, offer: Callable[..., None], holds: bool | None, shown: str, message: str
) -> None:
    offer(trials.experiment(claims=lambda table: [Verdict("the mean falls", "it grows", holds)]))
    code, out, _ = tiny("reproduce")
    assert code == 0
    assert re.search(rf"^ +{shown} +the mean falls *$", out, flags=re.MULTILINE)
    code, _, err = tiny("reproduce", "--strict")
    assert (code, err.splitlines()[-1]) == (1, f"wordsway: {message}")


def test_a_claim_that_is_weaker_than_its_source_is_no_failure(tiny: Run, offer: Callable[..., None]) -> None:
    verdicts = [Verdict("the mean falls", "it stays", False, weaker="by 0"), Verdict("sum", "1", True, check=True)]
    offer(trials.experiment(claims=lambda table: verdicts))
    code, out, err = tiny("reproduce")
    assert (code, len(err.splitlines())) == (0, 1)
    assert re.search(r"^ +weaker than the source +the mean falls *\n +measured it stays; by 0 *$", out, re.MULTILINE)
    assert out.splitlines()[-2] == "1 weaker than the source, 1 check of the code passes"
    verdicts[1] = Verdict("sum", "2", False, check=True)
    code, _, err = tiny("reproduce")
    assert (code, err.splitlines()[-1]) == (1, "wordsway: checks of the code that fail: tiny")


def test_a_model_that_no_figure_uses_is_reported(tiny: Run) -> None:
    code, _, err = tiny("reproduce", "--model", "minilm", "--dry-run")
    assert (code, err) == (0, "tiny: no model is part of it, --model changes nothing there\n")


# figures and results


def test_figures_are_listed(run: Run) -> None:
    code, out, err = run("figures")
    assert (code, err) == (0, "")
    rows = _lines(run("figures", "--json")[1])
    assert [row["name"] for row in rows] == list(figures.all_figures())
    for row in rows:
        assert list(row) == ["name", "title", "about", "trials"]
        quick, paper = row["trials"]["quick"], row["trials"]["paper"]
        assert 0 < quick <= paper
        assert re.search(rf"^{row['name']} +\S.* {quick} +{paper}$", out, re.MULTILINE)


def test_an_empty_store_is_no_table_without_rows(run: Run, tmp_path: Path) -> None:
    with Store(tmp_path / STORE):
        pass
    assert run("results", "--out", tmp_path).out == "no trials are stored: wordsway reproduce FIGURE runs some\n"


def test_results_are_counted(tiny: Run) -> None:
    tiny("reproduce")
    code, out, err = tiny("results")
    assert (code, err) == (0, "")
    assert tiny("results", "show")[1] == out
    assert re.search(r"^experiment +version +done +failed +died +computed for$", out, flags=re.MULTILINE)
    assert re.search(r"^tiny +1 +8 +0 +0 +1 s$", out, flags=re.MULTILINE)
    (line,) = _lines(tiny("results", "show", "tiny", "--json")[1])
    assert line.pop("seconds") >= 0
    assert line == {"experiment": "tiny", "version": 1, "done": 8, "failed": 0, "died": 0}


def test_plans_and_results_are_in_the_order_of_numbers(tiny: Run, offer: Callable[..., None]) -> None:
    offer(*(trials.experiment(name=name, points=1, trials=1) for name in ("fig10", "other", "fig9")))
    tiny("reproduce")
    for command in (("reproduce", "--dry-run"), ("results", "show")):
        assert [line["experiment"] for line in _lines(tiny(*command, "--json")[1])] == ["fig9", "fig10", "other"]


def test_results_are_exported(tiny: Run, flag: Path, tmp_path: Path) -> None:
    tiny("reproduce")
    code, out, err = tiny("results", "export")
    (row,) = csv.DictReader(io.StringIO(out))
    assert (code, err) == (0, "")
    assert (row["x"], row["seed"], row["state"]) == ("0", "0", DONE)
    assert float(row["value"]) == trials.draw({"x": 0}, 0)["value"]
    code, out, err = tiny("results", "export", "tiny", "--all", "--format", "jsonl", "--to", "all.jsonl")
    assert (code, out, err) == (0, "", "3 rows written to all.jsonl\n")
    kept = _lines((tmp_path / "all.jsonl").read_text(encoding="utf-8"))
    assert sorted(row["state"] for row in kept) == [DONE, FAILED, FAILED]


# Mistakes

NO_RESULTS = "there are no results at {}/store.sqlite: run `wordsway reproduce` first"
NO_FOLDER = "the output must be a folder, got the file {}: choose another"
NO_TRIALS = r"the store has no trials of 'tinny' \(did you mean 'tiny'\?\): it has tiny"
NO_DASK = "a Dask scheduler must answer at {} within 10 s, got {}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("reproduce tinny", r"figure must be one of tiny, got 'tinny' \(did you mean 'tiny'\?\)"),
        ("reproduce --trials 0", "trials must be an integer >= 1, got 0"),
        (
            "reproduce --trials 9223372036854775807 --dry-run",
            "trials must be at most 100000, got 9223372036854775807.*",
        ),
        ("reproduce --workers 0 --dry-run", "workers must be an integer >= 1, got 0"),
        ("reproduce --seed -1", r"seed must be an integer with 0 <= seed < 2\^63, got -1"),
        ("reproduce --scale papr", r"scale must be one of quick, paper, got 'papr' \(did you mean 'paper'\?\)"),
        ("reproduce --out a-file", NO_FOLDER.format("a-file")),
        ("reproduce --out a-file --dry-run", NO_FOLDER.format("a-file")),
        ("reproduce --dask http://h:1", NO_DASK.format("http://h:1", "unknown .*'http'.*")),
        ("results show --out empty", NO_RESULTS.format("empty")),
        ("results show --out nothing", NO_RESULTS.format("nothing")),
        ("results show --out a-file", NO_FOLDER.format("a-file")),
        ("results show tinny", NO_TRIALS),
        ("results export --format cvs", r"format must be one of csv, .*, got 'cvs' \(did you mean 'csv'\?\)"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(tiny: Run, tmp_path: Path, arguments: str, message: str) -> None:
    (tmp_path / "a-file").touch()
    (tmp_path / "empty").mkdir()
    if arguments.startswith("results"):
        tiny("reproduce")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    code, out, err = tiny(*arguments.split())
    assert (code, out) == (1, "")
    assert re.fullmatch(f"wordsway: {message}\n", err)
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("reproduce --workers 2 --dask tcp://h:1", "--workers and --dask exclude each other: a cluster has its own"),
        ("reproduce --dask tcp://h:1 --dry-run", "--dask and --dry-run exclude each other"),
        ("reproduce --what", "Usage: wordsway reproduce"),
        ("results --out other show", "give --out and --json after show, not before it"),
        ("results --json export", "give --out and --json after export, not before it"),
    ],
)
def test_options_that_make_no_sense_are_exit_code_2(tiny: Run, tmp_path: Path, arguments: str, message: str) -> None:
    code, out, err = tiny(*arguments.split())
    assert (code, out) == (2, "")
    assert message in _plain(err)
    assert list(tmp_path.iterdir()) == []
