"""Files of results: tables as CSV, JSON lines and Parquet, each file written whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wordsway.checks import check_choice
from wordsway.errors import InputError, MissingExtra, one_line

FORMATS = ("csv", "jsonl", "parquet")


def check_folder(folder: str | os.PathLike[str], make: bool = True) -> Path:
    """Return a folder for results, which is made if it does not exist and `make` is true."""
    path = Path(folder)
    try:
        if make:
            path.mkdir(parents=True, exist_ok=True)
        elif path.exists() and not path.is_dir():
            raise FileExistsError
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"the output must be a folder, got the file {path}: choose another") from None
    except OSError as error:
        raise InputError(f"the output folder {path} cannot be made ({error.strerror}): choose another") from error
    return path


def check_file(name: str, option: str) -> Path:
    """Return the path of a file that can be written, so that nothing is computed in vain; `option` named it."""
    path = Path(name)
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(
            f"{option} must name a file in an existing folder, got {name}: make the folder, or choose another"
        )
    return path


def table_as_csv(table: Sequence[dict[str, Any]]) -> str:
    """Return a table as CSV with a header: all columns that occur, in the order they first do."""
    if not (columns := _columns(table)):
        return ""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return stream.getvalue()


def _columns(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: to a temporary file beside it, which is then renamed."""
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)  # a pipe or a device: it must not be replaced
            return
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as stream:
            temporary = Path(stream.name)
            try:
                stream.write(content)
                stream.close()
                temporary.chmod(0o644)
                temporary.replace(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise InputError(f"cannot write {path} ({error.strerror}): free some space or choose another folder") from error


def export(rows: Sequence[dict[str, Any]], kind: str, to: str | None) -> Path | None:
    """Write rows in a format to a file, whole or not at all, or to stdout; returns the file.

    Every row has the columns of all rows, None (empty in CSV) where it has no value.
    """
    check_choice("format", kind, FORMATS)
    if to is None and kind == "parquet":
        raise InputError("parquet is not text: name a file with --to")
    columns = _columns(rows)
    tidy = [{name: row.get(name) for name in columns} for row in rows]
    if kind == "csv":
        content = table_as_csv(tidy).encode()
    elif kind == "jsonl":
        content = "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in tidy).encode()
    else:
        content = _parquet(tidy)
    if to is None:
        _print(content)
        return None
    path = check_file(to, "--to")
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
