"""Tables and bars as plain text: their lengths, their columns, and that nothing but ASCII is needed."""

import io
from typing import Any

import pytest
from rich.console import Console, RenderableType

from wordsway.report import Bar, map_table, number, spread, trial_table, word_bars

ROW: dict[str, Any] = {
    "trial": 0,
    "seed": 7,
    "word": 3,
    "sensitivity": 1.25,
    "ceiling": 2.0,
    "seconds": 0.123,
    "peak_mb": 312.4,
    "status": "converged",
}


def _plain(thing: RenderableType, width: int, encoding: str = "utf-8") -> list[str]:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, width=width, highlight=False, color_system=None, legacy_windows=False)
    console.print(thing)
    file.seek(0)
    return [line.rstrip() for line in file.read().splitlines()]


# Numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.2, "1.200"),
        (0.0101227, "0.01012"),
        (12345.6, "1.235e+04"),
        (1234.4, "1234"),
        (0.0, "0"),
        (float("inf"), "inf"),
        (None, "-"),
    ],
)
def test_numbers_have_four_digits(value: float | None, text: str) -> None:
    assert number(value) == text


def test_the_spread_is_mean_and_sample_deviation() -> None:
    assert spread([2.0]) == "2.000"
    assert spread([1.0, 3.0]) == "2.000 +- 1.4"
    assert spread([1.0, 1.0]) == "1.000 +- 0"


# Bars


def test_a_bar_is_as_long_as_its_value_and_lightly_as_its_ceiling() -> None:
    assert Bar(1.0, 1.5, 2.0).text(8).plain == "████░░  "
    assert Bar(1.0, None, 2.0).text(8).plain == "████    "
    assert Bar(2.0, 2.0, 2.0).text(8).plain == "████████"


def test_a_bar_ends_in_an_eighth_of_a_cell() -> None:
    assert Bar(1 / 64, None, 1.0).text(8).plain == "▏       "
    assert Bar(12 / 64, 1.0, 1.0).text(8).plain == "█▌░░░░░░"


def test_a_ceiling_beyond_the_edge_ends_in_an_arrow() -> None:
    assert Bar(1.0, 9.0, 2.0).text(8).plain == "████░░░→"
    assert Bar(1.0, 9.0, 2.0).text(8, ascii_only=True).plain == "####...>"


def test_bars_in_ascii_round_to_cells() -> None:
    assert Bar(11 / 64, 0.5, 1.0).text(8, ascii_only=True).plain == "#...    "
    assert Bar(12 / 64, 0.5, 1.0).text(8, ascii_only=True).plain == "##..    "


def test_nothing_moves_at_all() -> None:
    assert Bar(0.0, 0.0, 0.0).text(5).plain == "     "


@pytest.mark.parametrize("cells", [1, 7, 30])
def test_lengths_are_proportional_and_never_overflow(cells: int) -> None:
    for eighths in range(8 * cells + 1):
        text = Bar(eighths / 8, cells, cells).text(cells).plain
        assert len(text) == cells
        assert text.count("█") == eighths // 8


def test_bars_of_words_share_their_scale_and_fill_the_width() -> None:
    lines = _plain(word_bars([1.0, 0.5], [2.0, 1.5]), 60)
    cells = 60 - len("word  ") - len("  sensitivity  ceiling")
    assert lines[2].startswith("   0  " + "█" * (cells // 2) + "░")
    assert lines[3].startswith("   1  " + "█" * (cells // 4))
    assert lines[2].endswith("1.000    2.000")
    assert len(lines) == 4
    assert max(map(len, lines)) == 60


def test_loose_ceilings_leave_half_of_the_width_to_the_values() -> None:
    lines = _plain(word_bars([1.0, 0.5], [20.0, 15.0]), 60)
    assert lines[2].count("█") == 16
    assert lines[3].count("█") == 8
    assert "→" in lines[2]


def test_bars_without_ceilings_use_the_whole_width() -> None:
    lines = _plain(word_bars([1.0, 0.5]), 41)
    assert lines[2] == "   0  " + "█" * 22 + "        1.000"
    assert "ceiling" not in lines[0]


def test_words_stand_beside_their_bars_and_twice_is_no_trouble() -> None:
    lines = _plain(word_bars([1.0, 2.0, 1.0], words=["very", "[bold]", "very"]), 60)
    assert lines[2].startswith("   0  very    ██")
    assert lines[3].startswith("   1  [bold]  ██")
    assert lines[4].startswith("   2  very    ██")


def test_bars_in_ascii_encode() -> None:
    lines = _plain(word_bars([1.0, 0.5], [2.0, 1.5]), 50, encoding="ascii")
    assert "####" in lines[2]
    assert all(line.isascii() for line in lines)


# Tables


def test_the_table_of_trials_fits_80_columns() -> None:
    limited = {**ROW, "trial": 1, "seed": 8, "ceiling": None, "status": "step limit"}
    assert _plain(trial_table([ROW, limited], 80), 80) == [
        "trial  seed  word  sensitivity  ceiling  ratio  seconds  peak MB  status",
        "─" * 76,
        "    0     7     3        1.250    2.000   1.60     0.12      312  converged",
        "    1     8     3        1.250        -      -     0.12      312  step limit",
    ]


@pytest.mark.parametrize(
    ("width", "heading"),
    [
        (75, "trial  seed  word  sensitivity  ceiling  ratio  seconds  peak MB  status"),
        (74, "seed  word  sensitivity  ceiling  ratio  seconds  peak MB  status"),
        (60, "seed  word  sensitivity  ceiling  ratio  seconds  status"),
        (50, "seed  word  sensitivity  ceiling  status"),
        (32, "seed  word  sensitivity  ceiling"),
        (20, "seed  word  sensitivity  ceiling"),
    ],
)
def test_narrow_tables_leave_out_what_matters_least(width: int, heading: str) -> None:
    assert _plain(trial_table([ROW], width), max(width, 32))[0] == heading


def test_long_seeds_count_too() -> None:
    lines = _plain(trial_table([{**ROW, "seed": 2**63 - 1}], 80), 80)
    assert str(2**63 - 1) in lines[2]
    assert "trial" not in lines[0]


def test_a_ratio_needs_a_value() -> None:
    line = _plain(trial_table([{**ROW, "sensitivity": 0.0}], 80), 80)[2]
    assert line.split() == ["0", "7", "3", "0", "2.000", "-", "0.12", "312", "converged"]


def test_the_table_of_maps_has_formulas_and_options() -> None:
    row = {
        "name": "raf",
        "description": "random attention",
        "source": "equation (3)",
        "formula": "softmax(S) X",
        "weights": "W: d x d",
        "options": ["depth", "width"],
    }
    assert _plain(map_table([row, {**row, "name": "other", "options": []}]), 60) == [
        "map    what it is                      options",
        "─" * 46,
        "raf    random attention, equation (3)  --depth",
        "       softmax(S) X                    --width",
        "       W: d x d",
        "",
        "other  random attention, equation (3)",
        "       softmax(S) X",
        "       W: d x d",
    ]
