"""The command line: what it prints for people and programs, which seeds it uses, and how it ends."""

import io
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wordsway.cli import main, plan, trials, views
from wordsway.maps.catalogue import MAPS, PAPER

KEYS = ["map", "n", "d", "word", "seed", "sensitivity", "ceiling", "seconds", "peak_mb", "dtype", "status"]
MORE = ["radius", "data", "ceiling_kind", "failure"]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in this process: its exit code, stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return call


def _records(run: Run, *arguments: object) -> list[dict[str, Any]]:
    code, out, err = run("measure", *arguments, "--json")
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def _numbers(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Everything but what it cost."""
    return [{key: value for key, value in record.items() if key not in ("seconds", "peak_mb")} for record in records]


# JSON


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rf", {"width": 12, "activation": "relu"}),
        ("drf", {"depth": 2, "width": 12, "activation": "relu"}),
        ("qkv", {"width": 3}),
        ("raf", {}),
        ("relu-raf", {}),
        ("sigmoid-raf", {}),
        ("linear-raf", {}),
    ],
)
def test_every_map_gives_the_keys_and_a_value_below_its_ceiling(run: Run, name: str, options: dict[str, Any]) -> None:
    (record,) = _records(run, name, "--n", 4, "--d", 3, "--seed", 2)
    assert list(record) == KEYS + MORE + list(options)
    given = {"map": name, "n": 4, "d": 3, "word": 0, "seed": 2, "dtype": "float64", "data": "gaussian"}
    assert {key: record[key] for key in given} == given
    assert {key: record[key] for key in options} == options
    assert 0 < record["sensitivity"] <= record["ceiling"] * (1 + 1e-12)
    assert record["radius"] == pytest.approx(3**0.5)
    assert record["seconds"] > 0
    assert record["peak_mb"] > 10


def test_all_maps_are_measured_above() -> None:
    assert set(MAPS) == {"rf", "drf", "qkv", "raf", "relu-raf", "sigmoid-raf", "linear-raf"}


def test_options_reach_the_measurement(run: Run) -> None:
    asked = ("--depth", 3, "--width", 6, "--activation", "gelu", "--radius", 0.5, "--word", 2, "--dtype", "float32")
    (record,) = _records(run, "drf", "--n", 4, "--d", 3, *asked)
    expected = {"depth": 3, "width": 6, "activation": "gelu", "radius": 0.5, "word": 2, "dtype": "float32"}
    assert {key: record[key] for key in expected} == expected


def test_ceilings_are_chosen_by_name(run: Run) -> None:
    found = {
        name: _records(run, "raf", "--n", 5, "--d", 4, "--ceiling", name)[0]
        for name in ("simple", "quick", "tight", "none")
    }
    assert found["tight"]["ceiling"] <= found["quick"]["ceiling"] <= found["simple"]["ceiling"]
    assert found["none"]["ceiling"] is None
    assert found["none"]["ceiling_kind"] is None
    assert len({record["sensitivity"] for record in found.values()}) == 1


def test_all_words_give_one_object_each_and_agree_with_the_word_alone(run: Run) -> None:
    records = _records(run, "raf", "--n", 4, "--d", 3, "--word", "all", "--trials", 2)
    assert [(record["seed"], record["word"]) for record in records] == [(s, w) for s in (0, 1) for w in range(4)]
    assert all(list(record) == KEYS + MORE for record in records)
    (alone,) = _records(run, "raf", "--n", 4, "--d", 3, "--word", 2, "--seed", 1)
    assert alone["sensitivity"] == pytest.approx(records[6]["sensitivity"], rel=1e-9)


@pytest.mark.parametrize("name", ["rf", "drf"])
def test_all_words_of_random_features_share_one_map(run: Run, name: str) -> None:
    records = _records(run, name, "--n", 3, "--d", 2, "--word", "all")
    assert [record["word"] for record in records] == [0, 1, 2]
    assert all(record["sensitivity"] <= record["ceiling"] for record in records)


def test_each_trial_is_printed_as_it_ends(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[int] = []
    pipe = io.BytesIO()
    measured = trials._trial

    def spy(asked: plan.Plan, seed: int) -> list[trials.Record]:
        reached.append(pipe.getvalue().count(b"\n"))
        return measured(asked, seed)

    monkeypatch.setattr(trials, "_trial", spy)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe))
    run("measure", "raf", "--n", 3, "--d", 2, "--trials", 3, "--json")
    assert reached == [0, 1, 2]


# Seeds


@pytest.mark.parametrize("name", ["rf", "drf", "raf"])
def test_the_same_seed_gives_the_same_numbers_and_trial_k_is_seed_s_plus_k(run: Run, name: str) -> None:
    sizes = (name, "--n", 4, "--d", 3)
    three = _numbers(_records(run, *sizes, "--seed", 5, "--trials", 3))
    assert _numbers(_records(run, *sizes, "--seed", 5, "--trials", 3)) == three
    assert _numbers(_records(run, *sizes, "--seed", 5, "--trials", 2)) == three[:2]
    assert _numbers(_records(run, *sizes, "--seed", 6)) == three[1:2]
    assert len({record["sensitivity"] for record in three}) == 3


def test_reviews_are_drawn_by_the_seed_of_the_trial(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORDSWAY_CACHE", str(tmp_path))
    sizes = ("raf", "--n", 6, "--d", 8, "--data", "imdb", "--word", 1)
    two = _numbers(_records(run, *sizes, "--trials", 2))
    assert _numbers(_records(run, *sizes, "--seed", 1)) == two[1:]
    assert two[0]["data"] == "imdb"
    assert two[0]["sensitivity"] != two[1]["sensitivity"]
    assert _records(run, *sizes, "--dtype", "float32")[0]["dtype"] == "float32"


# Files


def _save(path: Path, shape: tuple[int, ...], dtype: str = "float64") -> str:
    np.save(path, np.random.default_rng(0).standard_normal(shape).astype(dtype))
    return str(path)


def test_a_file_brings_its_sizes_and_its_dtype(run: Run, tmp_path: Path) -> None:
    path = _save(tmp_path / "one.npy", (5, 3), "float32")
    (record,) = _records(run, "raf", "--data", path)
    assert list(record) == [*KEYS, *MORE, "context"]
    assert (record["n"], record["d"], record["dtype"], record["data"]) == (5, 3, "float32", path)
    assert record["radius"] == pytest.approx(3**0.5)
    (wide,) = _records(run, "raf", "--data", path, "--dtype", "float64", "--n", 5, "--d", 3)
    assert wide["dtype"] == "float64"
    assert wide["sensitivity"] == pytest.approx(record["sensitivity"], rel=1e-4)


def test_contexts_of_a_file_are_taken_by_seed_and_used_again(run: Run, tmp_path: Path) -> None:
    path = _save(tmp_path / "two.npy", (2, 4, 3))
    code, out, err = run("measure", "raf", "--data", path, "--trials", 3, "--json")
    records = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [record["context"] for record in records] == [0, 1, 0]
    assert records[0]["sensitivity"] != records[2]["sensitivity"]
    assert err == (
        f"wordsway: 3 trials need more contexts than there are: {path} holds 2 of them, so they are used again, "
        "with new weights\n"
    )
    assert _numbers(_records(run, "raf", "--data", path, "--seed", 1)) == _numbers(records[1:2])
    np.save(tmp_path / "second.npy", np.load(path)[1])
    (second,) = _records(run, "raf", "--data", tmp_path / "second.npy", "--seed", 1)
    assert second["sensitivity"] == records[1]["sensitivity"]


def test_rows_of_a_file_are_rescaled(run: Run, tmp_path: Path) -> None:
    X = np.random.default_rng(1).standard_normal((4, 3))
    np.save(tmp_path / "plain.npy", X)
    np.save(tmp_path / "scaled.npy", X * np.array([[1e-3], [5.0], [1e200], [2.0]]))
    plain, scaled = (
        _records(run, "raf", "--data", tmp_path / f"{name}.npy")[0]["sensitivity"] for name in ("plain", "scaled")
    )
    assert scaled == pytest.approx(plain, rel=1e-9)
    _records(run, "raf", "--data", tmp_path / "scaled.npy", "--dtype", "float32")  # 1e200 has been rescaled before


def test_a_file_need_not_be_called_npy_when_it_is_there(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "saved.npy").write_bytes(b"")
    _save(tmp_path / "saved.npy", (3, 2))
    (tmp_path / "saved.npy").rename(tmp_path / "contexts")
    monkeypatch.chdir(tmp_path)
    assert _records(run, "raf", "--data", "contexts")[0]["n"] == 3


# For people


def test_the_table_of_trials_and_its_summary(run: Run) -> None:
    code, out, err = run("measure", "rf", "--n", 4, "--d", 3, "--trials", 3, "--seed", 9)
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0] == "rf width=12 activation=relu, n=4 d=3, gaussian, word 0, radius 1.732"
    assert lines[2].rstrip() == "trial  seed  word  sensitivity  ceiling  ratio  seconds  peak MB  status"
    assert [line.split()[:3] for line in lines[4:7]] == [["0", "9", "0"], ["1", "10", "0"], ["2", "11", "0"]]
    values = [record["sensitivity"] for record in _records(run, "rf", "--n", 4, "--d", 3, "--trials", 3, "--seed", 9)]
    assert [line.split()[3] for line in lines[4:7]] == [f"{value:#.4g}" for value in values]
    summary = f"{np.mean(values):#.4g} +- {np.std(values, ddof=1):#.2g}"
    assert lines[8] == f"sensitivity {summary} (mean and standard deviation of 3 trials)"
    assert " ".join(lines[9:]) == (
        "sensitivity: lower bound with a witness; ceiling: upper bound by Lipschitz  constants and norms, "
        "wrong with probability at most 1e-09"
    )


def test_all_words_are_bars_whose_lengths_follow_the_values(run: Run) -> None:
    code, out, _ = run("measure", "raf", "--n", 6, "--d", 4, "--word", "all", "--seed", 1)
    lines = out.splitlines()
    assert code == 0
    bars = lines[4:10]
    assert [int(line.split()[0]) for line in bars] == list(range(6))
    values = [float(line.split()[-2]) for line in bars]
    solid = [line.count("█") for line in bars]
    top = min(max(float(line.split()[-1]) for line in bars), 2 * max(values))
    cells = 80 - len("word  ") - len("  sensitivity  ceiling")
    assert solid == pytest.approx([cells * value / top for value in values], abs=1.01)
    assert all("░" in line for line in bars)
    row = lines[13].split()
    assert row[2] == str(int(np.argmax(values)))
    assert float(row[3]) == max(values)
    bounds = [float(line.split()[-1]) for line in bars]
    assert float(row[4]) == max(bounds)
    assert np.argmax(bounds) != np.argmax(values)  # so that the line above says something
    assert lines[15] == f"largest of all words {row[3]} (1 trial)"


def test_several_trials_of_all_words_are_told_apart(run: Run) -> None:
    _, out, _ = run("measure", "raf", "--n", 3, "--d", 2, "--word", "all", "--trials", 2, "--ceiling", "none")
    assert "\nseed 0\n" in out
    assert "\nseed 1\n" in out
    assert "ceiling:" not in out


def test_a_trial_converged_when_all_its_words_did(capsys: pytest.CaptureFixture[str]) -> None:
    made = plan.resolve(plan.Request("raf", 2, 2, word="all", ceiling="none"))
    (records,) = trials.run(made)
    records[0]["status"] = records[1]["status"] = "converged"
    views.print_trials(made, [records])
    assert " converged" in capsys.readouterr().out
    records[1]["status"] = "stopped"
    views.print_trials(made, [records])
    out = capsys.readouterr().out
    assert " step limit" in out
    assert " converged" not in out


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("word", ["0", "all"])
def test_no_line_is_wider_than_the_terminal_nor_coloured_without_one(
    run: Run, monkeypatch: pytest.MonkeyPatch, width: int, word: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    _, out, _ = run("measure", "drf", "--n", 3, "--d", 2, "--word", word)
    assert "\x1b" not in out
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= width


@pytest.mark.parametrize(("no_color", "coloured"), [("1", False), ("", True)])
def test_colours_are_for_terminals_and_no_color_is_heard(
    run: Run, monkeypatch: pytest.MonkeyPatch, no_color: str, coloured: bool
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", no_color)
    _, out, _ = run("measure", "raf", "--n", 3, "--d", 2)
    assert ("\x1b[36m" in out) is coloured


def test_maps_are_listed_with_formulas_and_options(run: Run) -> None:
    code, out, err = run("maps")
    assert (code, err) == (0, "")
    for entry in MAPS.values():
        assert entry.formula in out
    assert max(map(len, out.splitlines())) <= 80
    assert " ".join(out.split()).endswith(f"L the --depth. Equations and sections: {PAPER}.")


def test_maps_as_json(run: Run) -> None:
    rows = [json.loads(line) for line in run("maps", "--json")[1].splitlines()]
    assert [row["name"] for row in rows] == list(MAPS)
    for row in rows:
        assert list(row) == ["name", "description", "formula", "weights", "source", "options"]
        assert row["options"] == list(MAPS[row["name"]].options)


# Progress, interrupts and bugs


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_appears_while_a_long_trial_runs_and_goes_away(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    appeared: list[bool] = []

    def slow(asked: plan.Plan, seed: int) -> list[trials.Record]:
        for _ in range(1000):  # until the bar is there: waiting a fixed time would be a race
            if "0/1" in terminal.getvalue():
                break
            threading.Event().wait(0.01)
        appeared.append("trials:" in terminal.getvalue())
        raise KeyboardInterrupt

    monkeypatch.setattr(trials, "_DELAY", 0.05)
    monkeypatch.setattr(trials, "_trial", slow)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert run("measure", "raf", "--n", 3, "--d", 2, "--json")[0] == 130
    assert appeared == [True]
    *_, blank, said = terminal.getvalue().split("\r")
    assert blank.strip() == ""  # the bar was wiped from its line
    assert said == "wordsway: interrupted\n"


def test_no_bar_without_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "_DELAY", 0.0)
    assert run("measure", "raf", "--n", 3, "--d", 2, "--trials", 2)[2] == ""


def test_an_interrupt_is_one_line_and_keeps_what_was_finished(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = trials._trial

    def stop(asked: plan.Plan, seed: int) -> list[trials.Record]:
        if seed == 1:
            raise KeyboardInterrupt
        return measured(asked, seed)

    monkeypatch.setattr(trials, "_trial", stop)
    code, out, err = run("measure", "raf", "--n", 3, "--d", 2, "--trials", 5)
    assert (code, err) == (130, "wordsway: interrupted\n")
    assert "(1 trial)" in out
    code, out, err = run("measure", "raf", "--n", 3, "--d", 2, "--trials", 5, "--json")
    assert (code, err) == (130, "wordsway: interrupted\n")
    assert out.count("\n") == 1


def test_a_bug_is_not_taken_for_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(as_json: bool) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(views, "print_maps", broken)
    with pytest.raises(ValueError, match=r"^a bug$"):
        main(["maps"])
