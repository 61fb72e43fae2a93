"""What all terminal views share: a console, tables, bars, and numbers as text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from wordsway.errors import visible
from wordsway.records import cell, is_number, number

Row: TypeAlias = Mapping[str, Any]
Columns: TypeAlias = Mapping[str, str | Callable[[Row], Any]]  # heading: key, or function of a row

NOTE = "bright_black"  # style of remarks
_EIGHTHS = " ▏▎▍▌▋▊▉"
_LEAST = 8  # characters of a bar
_GAP = 2  # blanks between two columns
_STYLES = {"sensitivity": "cyan", "ceiling": NOTE}


class _SafeConsole(Console):
    """Replaces the characters of texts that would control the terminal; its own styles and line breaks stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else "\n".join(map(visible, text.split("\n"))), style, control)


def console() -> Console:
    """Return a console on stdout that does not colour numbers by itself and passes no control characters."""
    return _SafeConsole(highlight=False)


def show(title: str, table: RenderableType, *notes: RenderableType) -> None:
    """Print a title, a table, and notes below it: bold if they are plain strings."""
    out = console()
    out.print(Text(title, "bold"))
    out.print()
    out.print(table)
    if notes:
        out.print()
    for note in notes:
        out.print(Text(note, "bold") if isinstance(note, str) else note)


def table(
    rows: Sequence[Row],
    columns: Columns,
    *,
    right: Collection[str] = (),
    wrap: Collection[str] = (),
    spare: Sequence[str] = (),
    width: int = 80,
    bold: Callable[[Row], bool] | None = None,
    digits: int = 4,
) -> Table:
    """Return a table with one line per row; columns of numbers and those in `right` are aligned to the right.

    Columns in `wrap` may break their lines. As long as the table is wider than `width`, columns in `spare` are left
    out, the first one first. Rows that are `bold` are emphasised, and floats have so many significant `digits`.
    """
    values = {
        heading: [column(row) if callable(column) else row.get(column) for row in rows]
        for heading, column in columns.items()
    }
    cells = {heading: [_cell(value, digits) for value in column] for heading, column in values.items()}
    for heading in spare:
        if sum(max(len(name), *map(_length, column)) + _GAP for name, column in cells.items()) - _GAP <= width:
            break
        del cells[heading]
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for heading in cells:
        bars = any(isinstance(value, Bar) for value in values[heading])
        numeric = heading in right or all(is_number(value) for value in values[heading])
        made.add_column(
            Text(heading),
            justify="right" if numeric else "left",
            no_wrap=heading not in wrap,
            ratio=1 if bars else None,
            style=_STYLES.get(heading),
        )
        made.expand |= bars
    for row, line in zip(rows, zip(*cells.values(), strict=True), strict=True):
        made.add_row(*line, style="bold" if bold is not None and bold(row) else None)
    return made


def _cell(value: Any, digits: int) -> RenderableType:
    if isinstance(value, Text | Bar):
        return value
    return Text("-" if value is None else visible(cell(value, digits)))


def _length(value: RenderableType) -> int:
    return len(value) if isinstance(value, Text) else _LEAST


def plus_minus(mean: float, deviation: float | None) -> str:
    """Return a mean with its standard deviation if there is one: "1.234 +- 0.056"."""
    return number(mean) if deviation is None else f"{number(mean)} +- {number(deviation, 2)}"


def duration(seconds: float) -> str:
    """Return seconds as "40 s", "3 min" or "2.5 h"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@dataclass(frozen=True)
class Bar:
    """A bar of length `value`, lightly drawn on to `ceiling`, where the full width is `top`.

    A ceiling beyond the full width ends in an arrow. It fills the width of its column, in ASCII where the terminal
    encodes nothing else.
    """

    value: float
    top: float
    ceiling: float | None = None

    def text(self, cells: int, ascii_only: bool = False) -> Text:
        """Return the bar in exactly `cells` characters."""
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
        return Text.assemble((drawn, "cyan"), (rest, NOTE), blank, no_wrap=True)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.text(options.max_width, options.ascii_only)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(_LEAST, options.max_width), options.max_width)
