"""Terminal tables and bars: plain data in, rich renderables out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from wordsway.records import number

_EIGHTHS = " ▏▎▍▌▋▊▉"
_GAP = 2  # blanks between two columns
_LEAST = 8  # cells of a bar
_STYLES = {"sensitivity": "cyan", "ceiling": "bright_black"}
# What a narrow table leaves out, first things first: the seed still tells a trial, and JSON has everything.
_SPARED = ("trial", "peak MB", "ratio", "seconds", "status")


def spread(values: Sequence[float]) -> str:
    """The mean, and from two values on the standard deviation: "1.234 +- 0.056"."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return number(mean)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return f"{number(mean)} +- {number(deviation, 2)}"


@dataclass(frozen=True)
class Bar:
    """A bar of length `value`, lightly drawn on to `ceiling`, where the full width stands for `top`.

    A ceiling beyond the full width ends in an arrow. As wide as there is room; in ASCII where the terminal has no more.
    """

    value: float
    ceiling: float | None
    top: float

    def text(self, cells: int, ascii_only: bool = False) -> Text:
        """The bar in exactly `cells` characters."""
        solid, light, arrow = ("#", ".", ">") if ascii_only else ("█", "░", "→")
        unit = cells / self.top if self.top > 0 else 0.0
        whole, part = divmod(min(round(8 * unit * self.value), 8 * cells), 8)
        last = (solid if part >= 4 else "") if ascii_only else _EIGHTHS[part].strip()
        drawn = solid * whole + last
        end = round(unit * (self.ceiling or 0.0))
        rest = light * (min(end, cells) - len(drawn))
        if rest and end > cells:
            rest = rest[:-1] + arrow
        blank = " " * (cells - len(drawn) - len(rest))
        return Text.assemble((drawn, "cyan"), (rest, "bright_black"), blank, no_wrap=True)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.text(options.max_width, options.ascii_only)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(_LEAST, options.max_width), options.max_width)


def word_bars(
    values: Sequence[float], ceilings: Sequence[float] | None = None, words: Sequence[str] | None = None
) -> Table:
    """One line for each position: its word where known, a bar, the value, and the ceiling.

    All bars share a scale: the full width is the largest ceiling, but at most twice the largest value, so that values
    can be told apart below loose ceilings.
    """
    top = max(values) if ceilings is None else min(max(ceilings), 2 * max(values))
    table = _table(expand=True)
    table.add_column("word", justify="right", no_wrap=True)
    if words is not None:
        table.add_column("", max_width=16, no_wrap=True)
    table.add_column("", ratio=1)
    for heading in ("sensitivity", *(["ceiling"] if ceilings is not None else [])):
        table.add_column(heading, justify="right", no_wrap=True, style=_STYLES[heading])
    for position, value in enumerate(values):
        word = [] if words is None else [Text(words[position])]
        bound = [] if ceilings is None else [ceilings[position]]
        bar = Bar(value, bound[0] if bound else None, top)
        strongest = "bold" if value == max(values) else None
        table.add_row(str(position), *word, bar, number(value), *map(number, bound), style=strongest)
    return table


def trial_table(rows: Sequence[Mapping[str, Any]], width: int = 80) -> Table:
    """One line for each row: trial, seed, word, sensitivity, ceiling, ratio, seconds, peak memory and status.

    Where that is wider than `width`, the columns that matter least are left out.
    """
    lines = [_cells(row) for row in rows]
    columns = list(lines[0])
    for spared in _SPARED:
        if sum(max(len(column), *(len(line[column]) for line in lines)) + _GAP for column in columns) - _GAP <= width:
            break
        columns.remove(spared)
    table = _table()
    for column in columns:
        justify: JustifyMethod = "left" if column == "status" else "right"
        table.add_column(column, justify=justify, style=_STYLES.get(column), no_wrap=True)
    for line in lines:
        table.add_row(*(line[column] for column in columns))
    return table


def map_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Maps by name: what each is, its formula and weights, and the options that it takes."""
    table = _table()
    table.add_column("map", style="bold cyan", no_wrap=True)
    table.add_column("what it is")
    table.add_column("options", no_wrap=True)
    for place, row in enumerate(rows):
        if place:
            table.add_row()
        about = Text.assemble(
            f"{row['description']}, {row['source']}\n",
            (f"{row['formula']}\n", "bold"),
            (row["weights"], "bright_black"),
        )
        table.add_row(row["name"], about, "\n".join(f"--{name}" for name in row["options"]))
    return table


def plain_table(headings: Sequence[str], right: Sequence[int] = ()) -> Table:
    """An empty table with these headings; the columns at the places in `right` are aligned to the right."""
    table = _table()
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place in right else "left")
    return table


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    """The cells of a row of `trial_table` by heading, in order."""
    value, ceiling = row["sensitivity"], row["ceiling"]
    return {
        "trial": str(row["trial"]),
        "seed": str(row["seed"]),
        "word": str(row["word"]),
        "sensitivity": number(value),
        "ceiling": number(ceiling),
        "ratio": number(ceiling / value, 3) if ceiling is not None and value > 0 else "-",
        "seconds": f"{row['seconds']:.2f}",
        "peak MB": f"{row['peak_mb']:.0f}",
        "status": row["status"],
    }


def _table(expand: bool = False) -> Table:
    return Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", expand=expand
    )
