"""`wordsway measure` and `maps`: rows of every map, seeds, files of contexts, tables, progress and interrupts."""

import io
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wordsway
from cli.conftest import Run
from wordsway import sensitivity
from wordsway.cli import main
from wordsway.maps.catalogue import MAPS, PAPER
from wordsway.sensitivity import response_profile

KEYS = ["map", "n", "d", "word", "seed", "sensitivity", "ceiling", "seconds", "peak_mb", "dtype", "status"]
MORE = ["radius", "data", "ceiling_kind", "failure"]
RAF = ("measure", "raf", "--n", 3, "--d", 2)


def _rows(run: Run, *arguments: object) -> list[dict[str, Any]]:
    return run("measure", *arguments, "--json").rows


def _numbers(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Everything but the cost."""
    return [{key: value for key, value in row.items() if key not in ("seconds", "peak_mb")} for row in rows]


# JSON


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rf", {"width": 12, "activation": "relu"}),
        ("drf", {"depth": 2, "width": 12, "activation": "relu"}),
        ("qkv", {"width": 3}),
        *((name, {}) for name in MAPS if name not in ("rf", "drf", "qkv")),
    ],
)
def test_every_map_has_the_keys_and_a_value_below_its_ceiling(run: Run, name: str, options: dict[str, Any]) -> None:
    (row,) = _rows(run, name, "--n", 4, "--d", 3, "--seed", 2)
    assert list(row) == KEYS + MORE + list(options)
    given = {"map": name, "n": 4, "d": 3, "word": 0, "seed": 2, "dtype": "float64", "data": "gaussian", **options}
    assert {key: row[key] for key in given} == given
    assert 0 < row["sensitivity"] <= row["ceiling"] * (1 + 1e-12)
    assert row["radius"] == pytest.approx(3**0.5)
    assert row["seconds"] > 0
    assert row["peak_mb"] > 10


def test_options_reach_the_measurement(run: Run) -> None:
    given = ("--depth", 3, "--width", 6, "--activation", "gelu", "--radius", 0.5, "--word", 2, "--dtype", "float32")
    (row,) = _rows(run, "drf", "--n", 4, "--d", 3, *given)
    expected = {"depth": 3, "width": 6, "activation": "gelu", "radius": 0.5, "word": 2, "dtype": "float32"}
    assert {key: row[key] for key in expected} == expected


def test_ceilings_are_chosen_by_name(run: Run) -> None:
    names = ("simple", "quick", "tight", "none")
    simple, quick, tight, none = (_rows(run, "raf", "--n", 5, "--d", 4, "--ceiling", name)[0] for name in names)
    assert tight["ceiling"] <= quick["ceiling"] <= simple["ceiling"]
    assert (none["ceiling"], none["ceiling_kind"]) == (None, None)
    assert len({row["sensitivity"] for row in (simple, quick, tight, none)}) == 1


@pytest.mark.parametrize("name", ["raf", "rf", "drf"])
def test_all_words_are_one_object_each_and_agree_with_the_word_alone(run: Run, name: str) -> None:
    sizes = (name, "--n", 4, "--d", 3)
    rows = _rows(run, *sizes, "--word", "all", "--trials", 2)
    assert [(row["seed"], row["word"]) for row in rows] == [(s, w) for s in (0, 1) for w in range(4)]
    assert all(list(row)[: len(KEYS)] == KEYS for row in rows)
    assert all(row["sensitivity"] <= row["ceiling"] for row in rows)
    (alone,) = _rows(run, *sizes, "--word", 2, "--seed", 1)
    assert alone["sensitivity"] == pytest.approx(rows[6]["sensitivity"], rel=1e-9)


# Seeds


def test_the_same_seed_gives_the_same_numbers_and_trial_k_has_seed_s_plus_k(run: Run) -> None:
    sizes = ("drf", "--n", 4, "--d", 3)
    three = _numbers(_rows(run, *sizes, "--seed", 5, "--trials", 3))
    assert _numbers(_rows(run, *sizes, "--seed", 5, "--trials", 2)) == three[:2]
    assert _numbers(_rows(run, *sizes, "--seed", 6)) == three[1:2]
    assert len({row["sensitivity"] for row in three}) == 3


def test_reviews_are_drawn_by_the_seed_of_the_trial(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORDSWAY_CACHE", str(tmp_path))
    sizes = ("raf", "--n", 6, "--d", 8, "--data", "imdb", "--word", 1)
    two = _numbers(_rows(run, *sizes, "--trials", 2))
    assert _numbers(_rows(run, *sizes, "--seed", 1)) == two[1:]
    assert two[0]["data"] == "imdb"
    assert two[0]["sensitivity"] != two[1]["sensitivity"]
    assert _rows(run, *sizes, "--dtype", "float32")[0]["dtype"] == "float32"


# A model at a text


@pytest.mark.parametrize(
    ("word", "tokens"),
    [("love", [2]), (3, [4, 5]), (0, [1])],  # [CLS] is token 0
)
def test_a_text_is_measured_as_the_library_measures_its_map(run: Run, word: str | int, tokens: list[int]) -> None:
    text = "I love her unbelievableness"
    (row,) = _rows(run, "--text", text, "--word", word, "--seed", 3)
    assert list(row) == [*KEYS, *MORE, "on", "spelling"]
    model = wordsway.load("minilm")
    phi = model.features(text)
    radius = float(phi.embedded[tokens].double().norm())
    assert [one.tokens for one in model.read(text).scored if one.text == row["spelling"]] == [tuple(tokens)]
    expected = response_profile(phi.along([tuple(tokens)]), [0], [radius], seed=3).at(0)
    assert row["sensitivity"] == expected.value > 0
    if len(tokens) == 1:
        alone = wordsway.word_sensitivity(phi, phi.embedded, tokens[0], radius, ceiling=None, seed=3)
        assert expected.value == pytest.approx(alone.value, rel=1e-6)
    assert (row["radius"], row["ceiling"], row["dtype"]) == (radius, None, "float32")
    assert (row["map"], row["data"], row["on"], row["seed"]) == ("minilm", text, "last", 3)
    assert (row["n"], row["d"]) == tuple(phi.embedded.shape)


def test_all_words_of_a_text_agree_with_each_alone(run: Run) -> None:
    options = ("--text", "I love her", "--on", "pooled", "--radius", 0.5, "--dtype", "float64")
    rows = _numbers(_rows(run, *options, "--word", "all"))
    assert [(row["word"], row["spelling"], row["radius"]) for row in rows] == [
        (0, "I", 0.5),
        (1, "love", 0.5),
        (2, "her", 0.5),
    ]
    assert _numbers(_rows(run, *options, "--word", "her")) == rows[2:]
    out = run("measure", *options, "--word", "all").out
    assert "minilm on pooled, n=5 d=384, all words, radius 0.5" in out
    assert "1 love" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give either MAP or --text TEXT"),
        (("raf", "--text", "hi"), "give either MAP or --text TEXT"),
        (("--text", "hi", "--n", 3), "are about maps: leave them out with --text"),
        (("--text", "hi", "--ceiling", "tight"), "are about maps: leave them out with --text"),
        (("raf", "--n", 3, "--d", 2, "--on", "last"), "--model, --on and --device need --text"),
        (("--text", "hi", "--radius", 0), "radius must be a number > 0, got 0.0"),
        (
            ("--text", "hi", "--word", "you"),
            "word must be a position from 0 to 0 or a word of the text, got 'you': 0 hi",
        ),
        (("--text", " "), "text must have at least one word"),
        (("--text", "hi", "--on", "class"), "class"),
        (("--text", "hi", "--dtype", "float16"), "dtype must be one of float64, float32"),
    ],
)
def test_what_does_not_fit_a_text_is_refused(run: Run, arguments: tuple[object, ...], message: str) -> None:
    code, out, err = run("measure", *arguments)
    assert code != 0
    assert out == ""
    assert message in " ".join(err.replace("│", " ").split())
    assert "Traceback" not in err


# Files


def _save(path: Path, shape: tuple[int, ...], dtype: str = "float64") -> str:
    np.save(path, np.random.default_rng(0).standard_normal(shape).astype(dtype))
    return str(path)


def test_a_file_has_its_own_sizes_and_dtype(run: Run, tmp_path: Path) -> None:
    path = _save(tmp_path / "one.npy", (5, 3), "float32")
    (row,) = _rows(run, "raf", "--data", path)
    assert list(row) == [*KEYS, *MORE, "context"]
    assert (row["n"], row["d"], row["dtype"], row["data"]) == (5, 3, "float32", path)
    assert row["radius"] == pytest.approx(3**0.5)
    (wide,) = _rows(run, "raf", "--data", path, "--dtype", "float64", "--n", 5, "--d", 3)
    assert wide["dtype"] == "float64"
    assert wide["sensitivity"] == pytest.approx(row["sensitivity"], rel=1e-4)


def test_contexts_of_a_file_are_chosen_by_seed_and_used_again(run: Run, tmp_path: Path) -> None:
    path = _save(tmp_path / "two.npy", (2, 4, 3))
    code, out, err = run("measure", "raf", "--data", path, "--trials", 3, "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [row["context"] for row in rows] == [0, 1, 0]
    assert rows[0]["sensitivity"] != rows[2]["sensitivity"]
    assert err == (
        f"wordsway: 3 trials need more contexts than there are: {path} holds 2 of them, so they are used again, "
        "with new weights\n"
    )
    assert _numbers(_rows(run, "raf", "--data", path, "--seed", 1)) == _numbers(rows[1:2])
    np.save(tmp_path / "second.npy", np.load(path)[1])
    (second,) = _rows(run, "raf", "--data", tmp_path / "second.npy", "--seed", 1)
    assert second["sensitivity"] == rows[1]["sensitivity"]


def test_rows_of_a_file_are_rescaled_before_they_are_converted(run: Run, tmp_path: Path) -> None:
    X = np.random.default_rng(1).standard_normal((4, 3))
    np.save(tmp_path / "plain.npy", X)
    np.save(tmp_path / "scaled.npy", X * np.array([[1e-3], [5.0], [1e200], [2.0]]))
    plain, scaled = (
        _rows(run, "raf", "--data", tmp_path / name, "--dtype", "float32")[0] for name in ("plain.npy", "scaled.npy")
    )
    assert scaled["sensitivity"] == pytest.approx(plain["sensitivity"], rel=1e-4)


# Tables


def test_the_table_of_trials_and_its_summary(run: Run) -> None:
    options = ("rf", "--n", 4, "--d", 3, "--trials", 3, "--seed", 9)
    code, out, err = run("measure", *options)
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0] == "rf width=12 activation=relu, n=4 d=3, gaussian, word 0, radius 1.732"
    assert lines[2].split() == [
        "seed",
        "word",
        "sensitivity",
        "ceiling",
        "ratio",
        "seconds",
        "peak",
        "MB",
        "status",
    ]
    assert [line.split()[:2] for line in lines[4:7]] == [["9", "0"], ["10", "0"], ["11", "0"]]
    values = [row["sensitivity"] for row in _rows(run, *options)]
    assert [line.split()[2] for line in lines[4:7]] == [f"{value:#.4g}" for value in values]
    summary = f"{np.mean(values):#.4g} +- {np.std(values, ddof=1):#.2g}"
    assert lines[8] == f"sensitivity to word 0: {summary} (mean and standard deviation of 3 trials)"
    assert " ".join(" ".join(lines[9:]).split()) == (
        "sensitivity: lower bound with a witness; ceiling: upper bound by comparison of Gaussian processes, "
        "wrong with probability at most 1e-09; for this word alone (S, the largest over all words: --word all)"
    )


def test_all_words_are_bars_whose_lengths_follow_the_values(run: Run) -> None:
    lines = run("measure", "raf", "--n", 6, "--d", 4, "--word", "all", "--seed", 1).out.splitlines()
    bars = lines[4:10]
    assert [int(line.split()[0]) for line in bars] == list(range(6))
    values, bounds = ([float(line.split()[place]) for line in bars] for place in (-2, -1))
    top = min(max(bounds), 2 * max(values))
    cells = 80 - len("word  ") - len("  sensitivity  ceiling")
    assert [line.count("█") for line in bars] == pytest.approx([cells * value / top for value in values], abs=1.01)
    assert all("░" in line for line in bars)
    best = lines[13].split()
    assert (int(best[1]), float(best[2]), float(best[3])) == (int(np.argmax(values)), max(values), max(bounds))
    assert lines[15] == f"largest of all words {best[2]} (1 trial)"
    assert "for this word alone" not in " ".join(lines)


def test_several_trials_of_all_words_are_separated_by_their_seeds(run: Run) -> None:
    out = run(*RAF, "--word", "all", "--trials", 2, "--ceiling", "none").out
    assert "\nseed 0\n" in out
    assert "\nseed 1\n" in out
    assert "ceiling:" not in out


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("word", ["0", "all"])
def test_no_line_is_wider_than_the_terminal_nor_coloured_without_one(
    run: Run, monkeypatch: pytest.MonkeyPatch, width: int, word: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    out = run("measure", "drf", "--n", 3, "--d", 2, "--word", word).out
    assert "\x1b" not in out
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= width


def test_maps_are_listed_with_formulas_and_options(run: Run) -> None:
    code, out, err = run("maps")
    assert (code, err) == (0, "")
    assert all(entry.formula in out for entry in MAPS.values())
    assert max(map(len, out.splitlines())) <= 80
    assert " ".join(out.split()).endswith(f"L the --depth. Equations and sections: {PAPER}.")
    rows = run("maps", "--json").rows
    assert [row["name"] for row in rows] == list(MAPS)
    for row in rows:
        assert list(row) == ["name", "description", "formula", "weights", "source", "options"]
        assert row["options"] == list(MAPS[row["name"]].options)


# Progress, interrupts and bugs


def _at_each_search(monkeypatch: pytest.MonkeyPatch, then: Callable[[int], None]) -> None:
    """Call a function with the seed whenever a word is measured."""
    measured = sensitivity.response_sensitivity

    def spy(*arguments: Any, seed: int, **options: Any) -> Any:
        then(seed)
        return measured(*arguments, seed=seed, **options)

    monkeypatch.setattr(sensitivity, "response_sensitivity", spy)


def test_each_trial_is_printed_as_it_ends(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[int] = []
    pipe = io.BytesIO()
    _at_each_search(monkeypatch, lambda seed: printed.append(pipe.getvalue().count(b"\n")))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe))
    run(*RAF, "--trials", 3, "--json")
    assert printed == [0, 1, 2]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_on_the_terminal_while_a_trial_runs_and_goes_away(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, appeared = _Terminal(), []

    def interrupt(seed: int) -> None:
        appeared.append("trials:" in terminal.getvalue())
        raise KeyboardInterrupt

    _at_each_search(monkeypatch, interrupt)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert run(*RAF, "--json").code == 130
    assert appeared == [True]
    *_, blank, message = terminal.getvalue().split("\r")
    assert blank.strip() == ""  # the bar was wiped from its line
    assert message == "wordsway: interrupted\n"


def test_an_interrupt_is_one_line_and_keeps_finished_trials(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(seed: int) -> None:
        if seed == 1:
            raise KeyboardInterrupt

    _at_each_search(monkeypatch, interrupt)
    table, rows = run(*RAF, "--trials", 5), run(*RAF, "--trials", 5, "--json")
    assert [(one.code, one.err) for one in (table, rows)] == [(130, "wordsway: interrupted\n")] * 2
    assert "(1 trial)" in table.out
    assert rows.out.count("\n") == 1


@pytest.mark.parametrize("ignored", [False, True])  # as in the background of a shell without job control
def test_sigterm_ends_a_command_like_an_interrupt(ignored: bool, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    _at_each_search(monkeypatch, lambda seed: signal.raise_signal(signal.SIGTERM) if seed == 1 else None)
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    if ignored:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ended = run(*RAF, "--trials", 5, "--json")
    finally:
        signal.signal(signal.SIGINT, handlers[0])
    assert (ended.code, ended.err, ended.out.count("\n")) == (143, "wordsway: interrupted\n", 1)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers


def test_a_bug_is_not_reported_as_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr("wordsway.report.lists.print_maps", broken)
    with pytest.raises(ValueError, match=r"^a bug$"):
        main(["maps"])
