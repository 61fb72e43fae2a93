"""Records: one line, one dictionary, one table, one picture, one piece of HTML for every result."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor

from wordsway.records import Record, cell, html_table, number


@dataclass(frozen=True, eq=False, repr=False)
class Measured(Record):
    name: str
    value: float
    delta: Tensor
    words: tuple[int, ...]
    nested: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "value": self.value, "flag": True}


MADE = Measured("a <b>", 1.23456789, torch.zeros(3, 4), (1, 2), {"hidden": 1})


def test_a_record_is_one_line_without_the_contents_of_tensors() -> None:
    assert repr(MADE) == "Measured(name='a <b>', value=1.235, delta=<3 x 4 float32>, words=(1, 2))"
    long = Measured("x" * 500 + "\n", float("nan"), torch.zeros(()), tuple(range(999)), {})
    assert "\n" not in repr(long)
    assert len(repr(long)) < 200
    assert "<scalar float32>" in repr(long)


def test_a_notebook_shows_the_numbers_escaped() -> None:
    shown = MADE._repr_html_()
    assert '<tr><th scope="row">value</th><td>1.235</td></tr>' in shown  # one row becomes a column
    assert "<b>" not in shown
    assert "yes" in shown


def test_a_frame_has_a_column_per_key() -> None:
    frame = MADE.to_frame()
    assert list(frame.columns) == ["name", "value", "flag"]
    assert frame.loc[0, "value"] == MADE.value


def test_a_plot_goes_where_it_is_put() -> None:
    ax = Figure().add_subplot()
    assert MADE.plot(ax) is ax
    assert len(ax.patches) == 1  # the one number of the row
    assert MADE.plot().figure is not ax.figure


def test_cut_tables_are_marked() -> None:
    shown = html_table([{"k": k} for k in range(70)])
    assert shown.count("<tr>") == 61
    assert "10 more rows" in shown
    assert html_table([{"a": 1}, {"b": None}]).count("\u2013") == 3


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0.0, "0"), (1234567.0, "1.235e+06"), (float("inf"), "inf"), (12.0, "12.00")]
)
def test_numbers_have_four_digits(value: float | None, text: str) -> None:
    assert number(value) == text


def test_cells_of_other_kinds() -> None:
    assert [cell(value) for value in (None, False, 3, "x", 0.5)] == ["\u2013", "no", "3", "x", "0.5000"]
