"""Texts from a file: one per line, or a column of CSV or JSON lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from wordsway.errors import InputError, nearest

_SHOWN = 20  # columns that a message lists


@dataclass(frozen=True)
class Line:
    """A text, and the number of the line where it starts, from 1."""

    number: int
    text: str


def read_texts(path: str, column: str) -> list[Line]:
    """Return all texts of a file; blank lines of .txt and .jsonl are skipped.

    Parameters
    ----------
    path : str
        A file whose name ends in .txt, .csv or .jsonl, in UTF-8.
    column : str
        Where the text is: the heading of a column of CSV, or a key of each JSON object.
    """
    kinds = {".txt": _plain, ".csv": _csv, ".jsonl": _json_lines}
    read = kinds.get(Path(path).suffix.lower())
    if read is None:
        raise InputError(f"a file of texts must end in {', '.join(kinds)}, got {path}: rename or convert it")
    texts = list(read(_decoded(path), path, column))
    if not texts:
        raise InputError(f"{path} must hold at least one text, got none: write one per line")
    return texts


def _decoded(path: str) -> str:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read texts from {path} ({error.strerror}): check the path") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        wrong = f"0x{content[error.start]:02x} at byte {error.start}, in line {line}"
        raise InputError(f"{path} must be UTF-8, got {wrong}: save it as UTF-8") from error


def _lines(content: str) -> Iterator[tuple[int, str]]:
    """Return the lines that are not blank, with their numbers."""
    for number, line in enumerate(content.split("\n"), 1):
        if line.strip():
            yield number, line.strip()


def _plain(content: str, path: str, column: str) -> Iterator[Line]:
    for number, line in _lines(content):
        yield Line(number, line)


def _csv(content: str, path: str, column: str) -> Iterator[Line]:
    reader = csv.DictReader(io.StringIO(content, newline=""))
    try:
        _check_column(column, reader.fieldnames or (), path)
        start = reader.line_num + 1
        for row in reader:
            yield Line(start, row[column] or "")
            start = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{path} must be CSV, got {error} in line {reader.line_num}: correct it") from error


def _json_lines(content: str, path: str, column: str) -> Iterator[Line]:
    for number, line in _lines(content):
        where = f"line {number} of {path}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where} must be a JSON object, got {str(error)[:80]}: correct it") from error
        if not isinstance(row, dict):
            raise InputError(f"{where} must be a JSON object, got {type(row).__name__}: write one object per line")
        _check_column(column, row, where)
        if not isinstance(row[column], str):
            raise InputError(f"{column} in {where} must be a string, got {type(row[column]).__name__}: correct it")
        yield Line(number, row[column])


def _check_column(column: str, columns: Iterable[str], where: str) -> None:
    known = list(columns)
    if column not in known:
        listed = ", ".join(known[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "") or "none"
        raise InputError(
            f"{where} must have the column {column!r}{nearest(column, known)}, got the columns {listed}: "
            "choose one of them as the column"
        )
