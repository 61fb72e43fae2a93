"""Export: the same rows in every format, whatever they hold, written whole or not at all."""

import csv
import io
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from experiments.made import row, trial

from wordsway.errors import InputError, MissingExtra
from wordsway.experiments.store import FAILED
from wordsway.report.export import FORMATS, export

AWKWARD = "ValueError: \"a, b\"; 'c'\nsecond line\r\nünï \u2028 \U0001f600 \\n = 1"
ROWS = [
    row(trial(0, n=10, data="imdb"), value=0.1, ended="then").to_dict(),
    row(trial(1, n=20, depth=2), record='{"value": 3.5, "status": "ok", "sure": true}', ended="then").to_dict(),
    row(trial(2, n=30), FAILED, error=AWKWARD, seconds=None, ended="then").to_dict(),
]
COLUMNS = [
    *(
        "experiment",
        "version",
        "data",
        "n",
        "seed",
        "state",
        "value",
        "dtype",
        "seconds",
        "peak_mb",
        "error",
        "machine",
    ),
    *("ended", "wordsway_version", "python_version", "depth", "status", "sure"),
]
TIDY = [{name: made.get(name) for name in COLUMNS} for made in ROWS]


def _read(path: Path, kind: str) -> list[dict[str, Any]]:
    """The rows of a file; CSV has text only, with nothing for None."""
    if kind == "csv":
        with path.open(encoding="utf-8", newline="") as stream:
            return list(csv.DictReader(stream))
    if kind == "jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    parquet = pytest.importorskip("pyarrow.parquet")
    # One thread: those of the other readers may abort the process at its end
    found: list[dict[str, Any]] = parquet.ParquetFile(io.BytesIO(path.read_bytes())).read(use_threads=False).to_pylist()
    return found


def _as_csv(value: object) -> str:
    return "" if value is None else str(value)


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_come_back(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"rows.{kind}"
    assert export(ROWS, kind, str(path)) == path
    found = _read(path, kind)
    expected = [{name: _as_csv(one[name]) for name in COLUMNS} for one in TIDY] if kind == "csv" else TIDY
    assert found == expected
    assert [list(one) for one in found] == [COLUMNS] * 3
    assert [other.name for other in tmp_path.iterdir()] == [path.name]
    assert path.stat().st_mode & 0o777 == 0o644


def test_values_keep_their_types_in_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    export(ROWS, "parquet", str(tmp_path / "rows"))
    schema = parquet.read_schema(tmp_path / "rows")
    types = {name: str(schema.field(name).type) for name in ("n", "value", "status", "sure", "seed")}
    assert types == {"n": "int64", "value": "double", "status": "string", "sure": "bool", "seed": "int64"}


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_without_a_file_text_goes_to_stdout(tmp_path: Path, kind: str, capfdbinary: Any) -> None:
    export(ROWS, kind, str(tmp_path / "rows"))
    assert export(ROWS, kind, None) is None
    assert capfdbinary.readouterr().out == (tmp_path / "rows").read_bytes()


def test_stdout_gets_utf_8_whatever_the_terminal_has(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    print("before")
    export([{"error": "ü"}], "csv", None)
    assert raw.getvalue().decode() == "before\nerror\nü\n"
    text = io.StringIO()
    monkeypatch.setattr(sys, "stdout", text)
    export([{"error": "ü"}], "csv", None)
    assert text.getvalue() == "error\nü\n"


@pytest.mark.parametrize(("kind", "expected"), [("csv", []), ("jsonl", []), ("parquet", [])])
def test_no_rows_at_all(tmp_path: Path, kind: str, expected: list[object]) -> None:
    export([], kind, str(tmp_path / "rows"))
    assert _read(tmp_path / "rows", kind) == expected


def test_an_unknown_format_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"csv, jsonl, parquet, got 'json' \(did you mean 'jsonl'\?\)"):
        export(ROWS, "json", None)
    with pytest.raises(InputError, match="format must be one of"):
        export(ROWS, "CSV!", str(tmp_path / "rows"))
    assert list(tmp_path.iterdir()) == []


def test_parquet_needs_a_file() -> None:
    with pytest.raises(InputError, match="parquet is not text: name a file with --to"):
        export(ROWS, "parquet", None)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("to", ["", "missing/rows", "file/rows"])
def test_the_file_must_lie_in_a_folder(tmp_path: Path, kind: str, to: str) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(InputError, match="--to must name a file in an existing folder"):
        export(ROWS, kind, str(tmp_path / to))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_file_in_the_present_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert export(ROWS, "jsonl", "rows") == Path("rows")
    assert _read(tmp_path / "rows", "jsonl") == TIDY


def test_an_older_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("older" * 10**5)
    export(ROWS, "csv", str(tmp_path / "rows"))
    assert len(_read(tmp_path / "rows", "csv")) == 3


def test_a_device_is_written_and_not_replaced(tmp_path: Path) -> None:
    """Root may replace /dev/stdout by a file; a named pipe stands for it here."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()), daemon=True)
    reader.start()
    export([{"a": 1}], "csv", str(pipe))
    reader.join(10)
    assert found == [b"a\n1\n"]
    assert pipe.is_fifo()


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs a device that is always full")
def test_a_full_device_is_told_in_one_line() -> None:
    with pytest.raises(InputError, match=r"cannot write /dev/full \(No space left on device\)"):
        export(ROWS, "csv", "/dev/full")
    assert Path("/dev/full").is_char_device()


def test_without_pyarrow_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"pip install 'wordsway\[parquet\]'"):
        export(ROWS, "parquet", str(tmp_path / "rows"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("values", [(1, "a"), ("a", 1), (True, 1), (2**70, 1)])
def test_a_column_of_several_types_is_refused_by_parquet_only(tmp_path: Path, values: tuple[object, ...]) -> None:
    pytest.importorskip("pyarrow")
    rows = [{"a": value} for value in values]
    with pytest.raises(InputError, match="a Parquet column must have one type") as caught:
        export(rows, "parquet", str(tmp_path / "rows"))
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    export(rows, "jsonl", str(tmp_path / "rows"))
    assert _read(tmp_path / "rows", "jsonl") == rows
