"""The commands of the laboratory: what they print for people and programs, what they refuse, and how they end."""

import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from experiments import trials
from wordsway import experiments as lab
from wordsway import figures
from wordsway.cli import main
from wordsway.experiments import Experiment, Verdict, executors
from wordsway.experiments.store import DONE, FAILED

Run = Callable[..., tuple[int, str, str]]
SIZES = "x 0 to 3"


@contextmanager
def _threads(count: int) -> Iterator[Executor]:
    """In place of processes: their start takes seconds, and is tested elsewhere."""
    with ThreadPoolExecutor(count) as pool:
        yield pool


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command line in this process: its exit code, stdout and stderr. The only figure is a small one."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(executors, "open_processes", _threads)

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return call


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set which figures there are."""

    def call(*known: Experiment) -> None:
        found = {one.name: one for one in known}
        monkeypatch.setattr(figures, "all_figures", lambda: found)

    call(trials.experiment())
    return call


@pytest.fixture
def tiny(run: Run, offer: Any) -> Run:
    return run


def _lines(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


# reproduce


def test_reproduce_runs_the_trials_prints_the_verdict_and_writes_the_files(tiny: Run, tmp_path: Path) -> None:
    code, out, err = tiny("reproduce", "tiny", "--workers", 2)
    assert code == 0
    assert err == "8 trials: running 8 on 2 workers (local processes), about 1 s\n"
    lines = out.splitlines()
    assert lines[0] == "tiny  A small one"
    assert re.fullmatch(r"  holds +the mean grows *", lines[1])
    assert re.fullmatch(r" +measured by \d\.\d\d *", lines[2])
    assert lines[-1] == "8 trials run, 0 were stored; the page is results/index.html"
    made = {path.name for path in (tmp_path / "results").iterdir()}
    names = {"tiny.csv", "tiny.json", "tiny.png", "tiny.svg", "tiny-dark.svg", "index.html", "store.sqlite"}
    assert names <= made
    assert "the mean grows" in (tmp_path / "results" / "index.html").read_text(encoding="utf-8")


def test_running_again_does_no_trial_and_more_trials_do_the_new_ones(tiny: Run) -> None:
    tiny("reproduce", "tiny")
    code, out, err = tiny("reproduce", "tiny")
    assert (code, err) == (0, "all 8 trials are stored: nothing to run\n")
    assert out.splitlines()[-1] == "0 trials run, 8 were stored; the page is results/index.html"
    code, _, err = tiny("reproduce", "--trials", 3, "--workers", 1)  # of all figures
    assert (code, err) == (0, "12 trials, 8 of them stored: running 4 on 1 worker (local processes), about 1 s\n")


def test_reproduce_as_json(tiny: Run, tmp_path: Path) -> None:
    code, out, _ = tiny(
        "reproduce", "tiny", "--json", "--trials", 1, "--seed", 7, "--scale", "paper", "--out", "deep/er"
    )
    (line,) = _lines(out)
    assert code == 0
    assert line["claims"][0].pop("measured").startswith("by ")
    assert line == {
        "figure": "tiny",
        "scale": "paper",
        "holds": True,
        "claims": [{"claim": "the mean grows", "holds": True}],
        "trials": 8,
        "finished": 8,
        "failed": 0,
        "page": "deep/er/index.html",
    }
    assert {row["seed"] for row in trials.stored(tmp_path / "deep" / "er" / "store.sqlite")} == {7}


@pytest.mark.parametrize("as_json", [False, True])
def test_a_dry_run_runs_nothing_and_makes_nothing(
    tiny: Run, tmp_path: Path, as_json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "open_processes", None)
    code, out, err = tiny("reproduce", "--dry-run", "--workers", 2, *(["--json"] if as_json else []))
    assert (code, err) == (0, "")
    if as_json:
        expected = {"experiment": "tiny", "trials": 8, "stored": 0, "to_run": 8, "seconds": 0.2, "bytes": 10**8}
        assert _lines(out) == [expected | {"sizes": SIZES}]
    else:
        assert re.search(rf"^tiny +8 +0 +8 +1 s +100\.0 MB +{SIZES}$", out, flags=re.MULTILINE)
        assert "about 1 s on 2 workers; nothing was run" in out
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_knows_what_is_stored_and_changes_nothing(tiny: Run, tmp_path: Path) -> None:
    tiny("reproduce")
    store = tmp_path / "results" / "store.sqlite"
    before = store.read_bytes()
    code, out, _ = tiny("reproduce", "--dry-run", "--trials", 5, "--json")
    (line,) = _lines(out)
    assert (code, line["trials"], line["stored"], line["to_run"]) == (0, 20, 8, 12)
    code, out, _ = tiny("reproduce", "--dry-run")
    assert re.search(rf"^tiny +8 +8 +0 +- +- +{SIZES}$", out, flags=re.MULTILINE)
    assert store.read_bytes() == before


def test_failing_trials_are_listed_and_the_exit_code_says_so(
    tiny: Run, offer: Callable[..., None], tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    offer(trials.experiment(trials.flagged, points=3, trials=1, flag=str(flag)))
    code, out, err = tiny("reproduce", "tiny")
    assert code == 1
    assert err.splitlines()[1:] == [
        "wordsway: 2 of 3 trials failed: run the same command again to repeat only those; too few trials to tell: tiny"
    ]
    flat = " ".join(out.split())
    for x in (1, 2):
        assert re.search(rf'failed: tiny {{"flag": "[^"]+", "x": {x}}} seed 0: ValueError: no answer for {x} \(', flat)
    _, out, _ = tiny("results", "show")
    assert re.search(r"^tiny +1 +1 +2 +0 +1 s$", out, flags=re.MULTILINE)
    assert out.count("failed: tiny") == 2
    flag.unlink()
    code, out, _ = tiny("reproduce", "tiny")
    assert code == 0
    assert "2 trials run, 1 were stored" in out
    assert "failed" not in tiny("results", "show")[1].split("computed for")[1]
    assert [line["failed"] for line in _lines(tiny("reproduce", "--json")[1])] == [0]


def test_a_claim_that_does_not_hold_is_exit_code_1(tiny: Run, offer: Callable[..., None]) -> None:
    offer(trials.experiment(claims=lambda table: [Verdict("the mean falls", "it grows", False)]))
    code, out, err = tiny("reproduce")
    assert code == 1
    assert re.search(r"^ +does not hold +the mean falls *$", out, flags=re.MULTILINE)
    assert err.splitlines()[-1] == "wordsway: claims that do not hold: tiny"


def test_an_interrupt_is_exit_code_130_and_one_line(tiny: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(ThreadPoolExecutor):
        def submit(self, *arguments: Any, **more: Any) -> Any:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules[__name__], "ThreadPoolExecutor", Interrupted)
    code, out, err = tiny("reproduce")
    assert (code, out) == (130, "")
    said = "wordsway: interrupted: 0 of 8 trials are stored, run the same command again to go on"
    assert err.splitlines()[1:] == [said]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fig2-rff"], r"figure must be one of .*, fig2-rf, .*, got 'fig2-rff' \(did you mean 'fig2-rf'\?\)"),
        (["--trials", "0"], "trials must be an integer >= 1, got 0"),
        (["--trials", "-2"], "trials must be an integer >= 1, got -2"),
        (["--workers", "0"], "workers must be an integer >= 1, got 0"),
        (["--workers", "-1"], "workers must be an integer >= 1, got -1"),
        (["--seed", "-1"], r"seed must be an integer with 0 <= seed < 2\^63, got -1"),
        (["--scale", "papr"], r"scale must be one of quick, paper, got 'papr' \(did you mean 'paper'\?\)"),
        (["--out", "a-file"], "the output must be a folder, got the file a-file: choose another"),
        (["--out", "a-file/in"], "the output must be a folder, got the file a-file/in: choose another"),
        (["--dask", "nowhere"], "a Dask scheduler must answer at nowhere within 10 s, got missing port number .*"),
        (["--dask", "http://h:1"], "a Dask scheduler must answer at http://h:1 within 10 s, got unknown .*'http'.*"),
        (["--dask", "inproc://h"], "a Dask scheduler must answer at inproc://h within 10 s, got an address inside .*"),
    ],
)
def test_reproduce_refuses_what_it_cannot_do_in_one_line(
    run: Run, tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "a-file").touch()
    lazy = arguments[0] == "--dask" or arguments == ["--out", "a-file/in"]  # a dry run has no need of these
    for dry in [] if lazy else ["--dry-run"], []:
        code, out, err = run("reproduce", *arguments, *dry)
        assert (code, out) == (1, "")
        assert re.fullmatch(f"wordsway: {message}\n", err)
        assert [path.name for path in tmp_path.iterdir()] == ["a-file"]


@pytest.mark.parametrize("arguments", [["--workers", "2", "--dask", "tcp://h:1"], ["--trials", "two"], ["--what"]])
def test_options_that_make_no_sense_are_exit_code_2(tiny: Run, tmp_path: Path, arguments: list[str]) -> None:
    code, out, err = tiny("reproduce", *arguments)
    assert (code, out) == (2, "")
    assert "Usage: wordsway reproduce" in err
    if "--dask" in arguments:
        assert "--workers and --dask exclude each other: a cluster has its own workers" in " ".join(
            err.replace("│", " ").split()
        )
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_changes_nothing_is_told(tiny: Run) -> None:
    code, _, err = tiny("reproduce", "--model", "minilm", "--dry-run")
    assert code == 0
    assert err == "tiny: no model is part of it, --model changes nothing there\n"


# figures and results


@pytest.mark.parametrize("arguments", [["--out", "other", "show"], ["--json", "export"]])
def test_options_before_a_command_of_results_are_refused(tiny: Run, arguments: list[str]) -> None:
    code, out, err = tiny("results", *arguments)
    assert (code, out) == (2, "")
    assert f"give --out and --json after {arguments[-1]}, not before it" in " ".join(err.replace("│", " ").split())


def test_figures_are_listed(run: Run) -> None:
    code, out, err = run("figures")
    assert (code, err) == (0, "")
    rows = _lines(run("figures", "--json")[1])
    assert {"fig2-rf", "fig2-drf", "fig3-raf", "fig3-relu"} <= {row["name"] for row in rows}
    for row in rows:
        assert list(row) == ["name", "title", "about", "trials"]
        assert 0 < row["trials"]["quick"] <= row["trials"]["paper"]
        assert re.search(
            rf"^{row['name']} +\S.* {row['trials']['quick']} +{row['trials']['paper']}$", out, re.MULTILINE
        )


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


def test_results_are_exported(tiny: Run, offer: Callable[..., None], tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    offer(trials.experiment(trials.flagged, points=2, trials=2, flag=str(flag)))
    tiny("reproduce")
    code, out, err = tiny("results", "export")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert (code, err) == (0, "")
    assert [(row["x"], row["seed"], row["state"]) for row in sorted(rows, key=lambda row: row["seed"])] == [
        ("0", "0", DONE),
        ("0", "1", DONE),
    ]
    assert [float(row["value"]) for row in sorted(rows, key=lambda row: row["seed"])] == [
        trials.draw({"x": 0}, seed)["value"] for seed in (0, 1)
    ]
    code, out, err = tiny("results", "export", "tiny", "--all", "--format", "jsonl", "--to", "all.jsonl")
    assert (code, out, err) == (0, "", "4 rows written to all.jsonl\n")
    kept = _lines((tmp_path / "all.jsonl").read_text(encoding="utf-8"))
    assert sorted(row["state"] for row in kept) == [DONE, DONE, FAILED, FAILED]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "--out", "empty"], "there are no results at empty/store.sqlite: run `wordsway reproduce` first"),
        (["export", "--out", "empty"], "there are no results at empty/store.sqlite: run `wordsway reproduce` first"),
        (["show", "--out", "nothing"], "there are no results at nothing/store.sqlite: run `wordsway reproduce` first"),
        (["show", "--out", "a-file"], "the output must be a folder, got the file a-file: choose another"),
        (["show", "tinny"], r"the store has no trials of 'tinny' \(did you mean 'tiny'\?\): it has tiny"),
        (["export", "tinny"], r"the store has no trials of 'tinny' \(did you mean 'tiny'\?\): it has tiny"),
        (
            ["export", "--format", "cvs"],
            r"format must be one of csv, jsonl, parquet, got 'cvs' \(did you mean 'csv'\?\)",
        ),
    ],
)
def test_results_refuse_what_they_cannot_do_in_one_line(
    tiny: Run, tmp_path: Path, arguments: list[str], message: str
) -> None:
    with ThreadPoolExecutor(1) as pool:
        lab.run(trials.experiment(), tmp_path / "results" / "store.sqlite", pool)
    (tmp_path / "a-file").touch()
    (tmp_path / "empty").mkdir()
    code, out, err = tiny("results", *arguments)
    assert (code, out) == (1, "")
    assert re.fullmatch(f"wordsway: {message}\n", err)
    assert list((tmp_path / "empty").iterdir()) == []
