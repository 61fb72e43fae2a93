"""Stored trials as tidy rows: CSV and JSON lines by hand, Parquet through pyarrow."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wordsway.errors import InputError, MissingExtra, nearest, one_line
from wordsway.report.results import replace_file, table_as_csv

FORMATS = ("csv", "jsonl", "parquet")


def export(rows: Sequence[dict[str, Any]], kind: str, to: str | None) -> Path | None:
    """Write rows in a format to a file, whole or not at all, or to stdout; returns the file.

    Every row has the columns of all rows, None (empty in CSV) where it has no value.
    """
    if kind not in FORMATS:
        raise InputError(f"format must be one of {', '.join(FORMATS)}, got {kind!r}{nearest(kind, FORMATS)}")
    if to is None and kind == "parquet":
        raise InputError("parquet is not text: name a file with --to")
    columns = list(dict.fromkeys(name for row in rows for name in row))
    tidy = [{name: row.get(name) for name in columns} for row in rows]
    content = {"csv": _csv, "jsonl": _lines, "parquet": _parquet}[kind](tidy)
    if to is None:
        _print(content)
        return None
    path = Path(to)
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(f"--to must name a file in an existing folder, got {to}")
    replace_file(path, content)
    return path


def _print(content: bytes) -> None:
    """UTF-8 to stdout, whatever the terminal's encoding is, as in a file."""
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None:  # somebody's text stream in its place
        sys.stdout.write(content.decode())
        return
    sys.stdout.flush()
    stream.write(content)
    stream.flush()


def _csv(rows: list[dict[str, Any]]) -> bytes:
    return table_as_csv(rows).encode()


def _lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows).encode()


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra.of("Parquet needs pyarrow", "parquet") from error
    try:
        table = pa.Table.from_pylist(rows)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        got = one_line(error)
        raise InputError(f"a Parquet column must have one type, got {got}: export one figure at a time") from error
    stream = io.BytesIO()
    parquet.write_table(table, stream)
    return stream.getvalue()
