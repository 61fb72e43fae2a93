"""What every record can do: one line, JSON, a table, a picture and HTML, checked in one place."""

import json
from typing import Any

from matplotlib.figure import Figure

from wordsway.records import Record, number


def check_record(record: Record, keys: set[str], shown: float) -> None:
    """Check the five views of a record; `keys` must be among those of its JSON, `shown` is a number of its HTML."""
    line = repr(record)
    assert line.startswith(f"{type(record).__name__}(")
    assert "\n" not in line
    assert "tensor(" not in line
    assert len(line) < 300
    plain: dict[str, Any] = record.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert keys <= set(plain)
    rows = record.rows()
    assert len(record.to_frame()) == len(rows) >= 1
    ax = Figure().add_subplot()
    assert record.plot(ax) is ax
    assert ax.has_data()
    assert number(shown) in record._repr_html_()
