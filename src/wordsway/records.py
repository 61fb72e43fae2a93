"""The base of every result: one record that a terminal, a store, a page and a notebook show alike."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, cast

from wordsway.errors import MissingExtra

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_ROWS = 60  # rows that a notebook shows; to_frame has all of them
_TEXT = 40  # characters of a string in a one-line summary
# Colours are those of the notebook, light or dark, which aligns cells to the right by itself.
_STYLE = """<style>
.wordsway { overflow-x: auto; }
.wordsway table { margin: 0.5em 0; border-collapse: collapse; font-variant-numeric: tabular-nums; }
.wordsway table :is(th, td) {
  max-width: 40em; padding: 0.2em 0.6em; border: 0; border-bottom: 1px solid rgb(128 128 128 / 0.3); text-align: left;
}
.wordsway table .number { text-align: right; white-space: nowrap; }
.wordsway table tbody th { font-weight: normal; opacity: 0.75; }
.wordsway code { white-space: normal; }
</style>"""


class Record:
    """A result of a measurement.

    Subclasses are frozen dataclasses (``@dataclass(frozen=True, eq=False, repr=False)``) that override `to_dict`,
    `rows` and `draw` where the fields, a table of one row and bars of its numbers are not enough.

    Attributes
    ----------
    summary_fields : tuple of str
        Fields that the one-line summary names; by default all that hold plain values.
    json_names : mapping of str to str
        Keys of `to_dict` that differ from the names of their fields; "" leaves a field out.
    """

    summary_fields: ClassVar[tuple[str, ...]] = ()
    json_names: ClassVar[Mapping[str, str]] = {}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON.

        By default the fields in their order: nan and inf become None, what has a `to_dict` of its own (a cost, a nested
        record) is merged, and tensors and other objects are left out.
        """
        plain: dict[str, Any] = {}
        for field in dataclasses.fields(cast(Any, self)):
            key, value = self.json_names.get(field.name, field.name), getattr(self, field.name)
            if key and hasattr(value, "to_dict"):
                plain |= value.to_dict()
            elif key and (value is None or isinstance(value, str | int | float)):
                plain[key] = finite(value) if isinstance(value, float) else value
        return plain

    def rows(self) -> list[dict[str, Any]]:
        """Return the result as a tidy table: one dictionary of plain values per row."""
        return [self.to_dict()]

    def to_frame(self) -> pd.DataFrame:
        """Return `rows` as a pandas data frame."""
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingExtra.of("data frames need pandas", "frames") from error
        return pd.DataFrame(self.rows())

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the result on matplotlib axes, new ones by default, and return them."""
        if ax is None:
            try:
                from matplotlib.figure import Figure
            except ImportError as error:
                raise MissingExtra.of("drawing needs matplotlib", "figures") from error
            ax = Figure(layout="constrained").add_subplot()
        self.draw(ax)
        return ax

    def draw(self, ax: Axes) -> None:
        """Draw the result on given axes; by default the numbers of a single row as bars."""
        numbers = {name: value for name, value in self.rows()[0].items() if value is not None and is_number(value)}
        bars(ax, numbers)

    def summary(self) -> str:
        """Return the record in one line, without the contents of tensors."""
        names = self.summary_fields or [
            field.name
            for field in dataclasses.fields(cast(Any, self))
            if field.repr and _is_plain(getattr(self, field.name))
        ]
        shown = ", ".join(f"{name}={_short(getattr(self, name))}" for name in names)
        return f"{type(self).__name__}({shown})"

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        """Return the summary and the table of the record for a notebook; a single row is shown as a column."""
        rows = self.rows()
        shown = html_column(rows[0]) if len(rows) == 1 else html_table(rows)
        return self._framed(shown)

    def _framed(self, shown: str) -> str:
        """Return HTML below the summary, in the style of a notebook."""
        return f'<div class="wordsway">{_STYLE}<p><code>{escape(self.summary())}</code></p>{shown}</div>'


def bars(ax: Axes, numbers: Mapping[str, float | None], logarithmic: bool = False) -> None:
    """Draw one horizontal bar per number, the first on top; numbers that are not finite have none."""
    ax.barh(list(numbers), [finite(value) or 0.0 for value in numbers.values()])
    ax.invert_yaxis()
    if logarithmic and any(finite(value) for value in numbers.values()):
        ax.set_xscale("log")


def finite(value: float | None) -> float | None:
    """Return a number as JSON can hold it: None where it is not finite."""
    return value if value is not None and math.isfinite(value) else None


def html_column(row: Mapping[str, Any]) -> str:
    """Return a row as an HTML table with one line per key, all escaped."""
    lines = "\n".join(
        f'<tr><th scope="row">{escape(str(key))}</th><td>{escape(cell(value))}</td></tr>' for key, value in row.items()
    )
    return f"<table>\n<tbody>\n{lines}\n</tbody>\n</table>"


def html_table(rows: Sequence[Mapping[str, Any]], limit: int | None = _ROWS) -> str:
    """Return rows as an HTML table, all escaped.

    Columns are in the order in which keys occur; those of numbers have the class "number". A missing key is shown as a
    dash, as None is. At most `limit` rows are shown, with a note on the rest.
    """
    columns = list(dict.fromkeys(key for row in rows for key in row))
    kinds = {key: ' class="number"' if all(is_number(row.get(key)) for row in rows) else "" for key in columns}
    head = "".join(f'<th scope="col"{kinds[key]}>{escape(str(key))}</th>' for key in columns)
    body = "\n".join(
        "<tr>" + "".join(f"<td{kinds[key]}>{escape(cell(row.get(key)))}</td>" for key in columns) + "</tr>"
        for row in rows[:limit]
    )
    rest = 0 if limit is None else len(rows) - limit
    more = f"<p>{rest} more rows: see to_frame()</p>" if rest > 0 else ""
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>{more}"


def is_number(value: Any) -> bool:
    """Return whether a value belongs in a column of numbers: an int, a float or None, but no bool."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def number(value: float | None, digits: int = 4) -> str:
    """Write a number with that many significant digits, and a dash for None."""
    if value is None:
        return "-"
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:#.{digits}g}".rstrip(".")


def cell(value: Any, digits: int = 4) -> str:
    """Write a plain value for a table: four digits of a float, yes or no, a dash for None."""
    if value is None:
        return "\u2013"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value, digits) if isinstance(value, float) else str(value)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | tuple) or _is_tensor(value)


def _short(value: Any) -> str:
    if _is_tensor(value):
        return f"<{' x '.join(map(str, value.shape)) or 'scalar'} {str(value.dtype).removeprefix('torch.')}>"
    if isinstance(value, float):
        return number(value)
    text = repr(value) if not isinstance(value, tuple) else f"({', '.join(_short(part) for part in value)})"
    return text if len(text) <= _TEXT else text[: _TEXT - 1] + "\u2026"


def _is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor of PyTorch; where that was not loaded, nothing is."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)
