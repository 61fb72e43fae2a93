"""Tables and bars as plain text: their lengths and columns, also where a terminal has ASCII only."""

import io
from typing import Any

import pytest
from rich.console import Console, RenderableType
from rich.text import Text

from wordsway.errors import visible
from wordsway.models.heat import Piece
from wordsway.report.lists import print_models
from wordsway.report.measurements import print_trials, word_bars
from wordsway.report.terminal import Bar, Columns, console, duration, plus_minus, table
from wordsway.report.texts import change_kind, measured_on, strip

ROW: dict[str, Any] = {
    "seed": 7,
    "word": 3,
    "sensitivity": 1.25,
    "ceiling": 2.0,
    "seconds": 0.123,
    "peak_mb": 312.4,
    "status": "locally converged",
    "ceiling_kind": "norms",
    "failure": 0.0,
}


def _plain(thing: RenderableType, width: int, encoding: str = "utf-8") -> list[str]:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, width=width, highlight=False, color_system=None, legacy_windows=False)
    console.print(thing)
    file.seek(0)
    return [line.rstrip() for line in file.read().splitlines()]


# Text


def test_means_have_their_deviation_if_there_is_one() -> None:
    assert [plus_minus(2.0, deviation) for deviation in (None, 1.4142, 0.0)] == ["2.000", "2.000 +- 1.4", "2.000 +- 0"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.01, "1 s"), (89.4, "89 s"), (90, "2 min"), (5399, "90 min"), (9000, "2.5 h")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_console_passes_styles_and_lines_but_no_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = console()
    with out.capture() as captured:
        out.print(Text("a\x1b]0;b\x07\n\u202ec", "bold"))
    assert captured.get() == "\x1b[1ma\ufffd]0;b\x1b[0m\n\x1b[1m\ufffdc\x1b[0m\n"


def test_control_characters_are_replaced() -> None:
    assert visible("a\x1b[31mb\u202ec\x07") == "a\ufffd[31mb\ufffdc\ufffd"
    assert visible("é 家 👩\u200d👧") == "é 家 👩\u200d👧"


# Bars


@pytest.mark.parametrize(
    ("bar", "text", "in_ascii"),
    [
        (Bar(1.0, 2.0, 1.5), "████░░  ", "####..  "),
        (Bar(1.0, 2.0), "████    ", "####    "),
        (Bar(2.0, 2.0, 2.0), "████████", "########"),
        (Bar(1 / 64, 1.0), "▏       ", "        "),
        (Bar(12 / 64, 1.0, 1.0), "█▌░░░░░░", "##......"),
        (Bar(11 / 64, 1.0, 0.5), "█▍░░    ", "#...    "),
        (Bar(1.0, 2.0, 9.0), "████░░░→", "####...>"),  # a ceiling beyond the edge
        (Bar(0.0, 0.0, 0.0), "        ", "        "),
    ],
)
def test_a_bar_is_as_long_as_its_value_and_lightly_as_its_ceiling(bar: Bar, text: str, in_ascii: str) -> None:
    assert (bar.text(8).plain, bar.text(8, ascii_only=True).plain) == (text, in_ascii)


def _words(*values: tuple[float, float | None]) -> RenderableType:
    rows = [{"word": word, "sensitivity": value, "ceiling": bound} for word, (value, bound) in enumerate(values)]
    made: RenderableType = word_bars(rows)
    return made


def test_bars_of_words_share_their_scale_and_fill_the_width() -> None:
    lines = _plain(_words((1.0, 2.0), (0.5, 1.5)), 60)
    cells = 60 - len("word  ") - len("  sensitivity  ceiling")
    assert lines[2].startswith("   0  " + "█" * (cells // 2) + "░")
    assert lines[3].startswith("   1  " + "█" * (cells // 4))
    assert lines[2].endswith("1.000    2.000")
    assert len(lines) == 4
    assert max(map(len, lines)) == 60


@pytest.mark.parametrize(
    ("bounds", "width", "cells"), [((20.0, 15.0), 60, [16, 8]), ((None, None), 41, [22, 11])], ids=["loose", "none"]
)
def test_values_have_at_least_half_of_the_width(bounds: tuple[float | None, ...], width: int, cells: list[int]) -> None:
    lines = _plain(_words(*zip((1.0, 0.5), bounds, strict=True)), width)
    assert [line.count("█") for line in lines[2:]] == cells
    assert ("→" in lines[2]) is ("ceiling" in lines[0]) is (bounds[0] is not None)


def test_bars_are_encoded_in_ascii() -> None:
    lines = _plain(_words((1.0, 2.0), (0.5, 1.5)), 50, encoding="ascii")
    assert "####" in lines[2]
    assert all(line.isascii() for line in lines)


def test_words_without_colours_have_columns_or_numbers() -> None:
    made = [Piece("[CLS]", special=True), Piece("a", 1.0), Piece(".", 0.0, apart=False), Piece("b")]
    assert strip(made, colours=False).plain == "[CLS] a█.▁ b"
    assert strip(made, colours=False, ascii_only=True).plain == "[CLS] a(8).(1) b"
    shown = strip(made, colours=True)
    assert shown.plain == "[CLS] a. b"
    styles = {shown.plain[span.start : span.end]: str(span.style) for span in shown.spans}
    assert styles == {"[CLS]": "bright_black", "a": "black on rgb(240,125,50)", ".": "black on rgb(255,243,230)"}
    _plain(strip([Piece("word", 0.5)] * 9, colours=False), 10)


# Tables


def test_columns_of_numbers_are_aligned_to_the_right() -> None:
    keys = ("name", "n", "value", "sure")
    rows = [dict(zip(keys, line, strict=True)) for line in (("[bold]", 5, 0.5, True), ("b", 12, None, False))]
    columns: Columns = {"name": "name", "n": "n", "half": lambda row: row["value"], "sure": "sure"}
    assert _plain(table(rows, columns), 80) == [
        "name     n    half  sure",
        "─" * 24,
        "[bold]   5  0.5000  yes",
        "b       12       -  no",
    ]


@pytest.mark.parametrize(
    ("width", "heading"),
    [
        (83, "trial seed word sensitivity ceiling ratio seconds peak MB status"),
        (82, "seed word sensitivity ceiling ratio seconds peak MB status"),
        (68, "seed word sensitivity ceiling ratio seconds status"),
        (58, "seed word sensitivity ceiling status"),
        (32, "seed word sensitivity ceiling"),
    ],
)
def test_narrow_tables_of_trials_leave_out_what_matters_least(
    width: int, heading: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    print_trials("title", [ROW])
    assert " ".join(capsys.readouterr().out.splitlines()[2].split()) == heading


def test_long_seeds_count_and_a_ratio_needs_a_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "88")
    print_trials("title", [ROW | {"seed": 2**63 - 1, "sensitivity": 0.0}])
    head, _, line = capsys.readouterr().out.splitlines()[2:5]
    assert "trial" not in head
    assert line.split()[:5] == [str(2**63 - 1), "3", "0", "2.000", "-"]


@pytest.mark.parametrize(
    ("status", "shown"),
    [("locally converged", "locally converged"), ("converged", "locally converged"), ("stopped", "step limit")],
)
def test_a_trial_converged_if_all_its_words_did(capsys: pytest.CaptureFixture[str], status: str, shown: str) -> None:
    print_trials("", [ROW, ROW | {"word": 4, "status": status}], every_word=True)
    assert f" {shown}" in capsys.readouterr().out


def test_missing_models_are_listed_with_their_command(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"name": "a", "about": "b", "kinds": ["c"], "installed": False, "install": "get [x]", "hub_offline": False}
    print_models([row, row | {"name": None}])
    out = capsys.readouterr().out
    assert "no: get [x]" in out
    assert "works too, after get [x]." in out


@pytest.mark.parametrize("on", ["mask", "token film", "answer Yes, No", "class", "next"])
def test_a_distribution_is_not_called_a_hidden_state(on: str) -> None:
    assert "hidden state" not in measured_on(on)
    assert change_kind(on) == "total variation of the distributions"
    assert measured_on("layer 2") == "layer 2, its hidden state of all tokens"
