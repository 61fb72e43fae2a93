"""Terminal tables and bars: plain data in, rich renderables out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_EIGHTHS = " ▏▎▍▌▋▊▉"
_NARROW = 72  # columns of a terminal below which tables leave out what matters least


def number(value: float | None, digits: int = 4) -> str:
    """Write a number with that many significant digits, and a dash for None."""
    if value is None:
        return "-"
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:#.{digits}g}".rstrip(".")


@dataclass(frozen=True)
class Bar:
    """A bar of length `value`, lightly drawn on to `ceiling`, where the full width stands for `top`.

    What passes the full width ends in an arrow. As wide as there is room; ASCII where the terminal has nothing else.
    """

    value: float
    ceiling: float | None
    top: float

    def text(self, cells: int, ascii_only: bool = False) -> Text:
        """The bar in exactly `cells` characters."""
        solid, light, arrow = ("#", ".", ">") if ascii_only else ("█", "░", "›")
        reach = cells * 8 * self.value / self.top if self.top > 0 else 0.0
        eighths = min(max(round(reach), 0), cells * 8)
        whole, part = divmod(eighths, 8)
        drawn = solid * whole
        if part and not ascii_only:
            drawn += _EIGHTHS[part]
        elif part >= 4:
            drawn += solid
        end = 0.0 if self.ceiling is None or self.top <= 0 else cells * self.ceiling / self.top
        rest = light * max(min(round(end), cells) - len(drawn), 0)
        if end > cells + 0.5 and rest:
            rest = rest[:-1] + arrow
        return Text.assemble((drawn, "cyan"), (rest, "bright_black"), " " * (cells - len(drawn) - len(rest)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.text(options.max_width, options.ascii_only)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(8, options.max_width)


def common_top(values: Sequence[float], ceilings: Sequence[float] | None) -> float:
    """What the full width stands for, so that bars share it: the largest ceiling, but at most twice the largest value."""
    largest = max(values)
    return largest if ceilings is None else min(max(ceilings), 2 * largest)


def word_bars(
    values: Sequence[float], ceilings: Sequence[float] | None = None, words: Sequence[str] | None = None
) -> Table:
    """One line for each position: its word where known, a bar, the value, and the ceiling."""
    top = common_top(values, ceilings)
    table = _table(expand=True)
    table.add_column("word", justify="right")
    if words is not None:
        table.add_column("", max_width=16, no_wrap=True)
    table.add_column("", ratio=1)
    table.add_column("sensitivity", justify="right", no_wrap=True)
    if ceilings is not None:
        table.add_column("ceiling", justify="right", no_wrap=True, style="bright_black")
    for position, value in enumerate(values):
        bound = None if ceilings is None else ceilings[position]
        cells: list[Any] = [str(position), Bar(value, bound, top), number(value)]
        if words is not None:
            cells.insert(1, Text(words[position]))
        table.add_row(*cells, *([] if bound is None else [number(bound)]))
    return table


def trial_table(rows: Sequence[Mapping[str, Any]], width: int = 80) -> Table:
    """One line for each row: trial, seed, word, sensitivity, ceiling, ratio, seconds, peak memory and status."""
    columns = ["trial", "seed", "word", "sensitivity", "ceiling", "ratio", "seconds", "peak MB", "status"]
    if width < _NARROW:
        columns = [column for column in columns if column not in ("word", "peak MB")]
    table = _table()
    for column in columns:
        style = {"sensitivity": "bold cyan", "ceiling": "bright_black"}.get(column)
        justify: Any = "left" if column == "status" else "right"
        table.add_column(column, justify=justify, style=style, no_wrap=column != "status")
    for row in rows:
        cells = _cells(row)
        table.add_row(*(cells[column] for column in columns))
    return table


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    value, ceiling = row["sensitivity"], row["ceiling"]
    return {
        "trial": str(row["trial"]),
        "seed": str(row["seed"]),
        "word": str(row["word"]),
        "sensitivity": number(value),
        "ceiling": number(ceiling),
        "ratio": number(ceiling / value, 3) if ceiling is not None and value > 0 else "-",
        "seconds": number(row["seconds"], 3),
        "peak MB": f"{row['peak_mb']:.0f}",
        "status": row["status"],
    }


def spread(values: Sequence[float]) -> str:
    """The mean, and from two values on the standard deviation: "1.234 +- 0.056"."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return number(mean)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return f"{number(mean)} +- {number(deviation, 2)}"


def map_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Maps by name: what each is, its formula and weights, and the options that it takes."""
    table = _table(show_lines=False)
    table.add_column("map", style="bold cyan", no_wrap=True)
    table.add_column("what it is")
    table.add_column("options", no_wrap=True)
    for place, row in enumerate(rows):
        about = Text.assemble(
            (f"{row['description']}, {row['source']}\n", ""),
            (f"{row['formula']}\n", "bold"),
            (row["weights"], "bright_black"),
        )
        table.add_row(
            row["name"], about, "\n".join(f"--{name}" for name in row["options"]), end_section=place < len(rows) - 1
        )
    return table


def _table(**settings: Any) -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), header_style="bold", **settings)
