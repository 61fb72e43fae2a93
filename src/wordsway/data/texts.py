"""Texts from files: one per line, a column of CSV, JSON lines or Parquet, or the files of a folder."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from wordsway.errors import InputError, MissingExtra, nearest, one_line

Rows: TypeAlias = Iterator[tuple[int, dict[str, Any]]]  # number of the line where a row starts, from 1, and its values

_SHOWN = 20  # columns that a message lists
_TEXT = "text"
# Headings that data sets use, the most frequent first.
_TEXTS = (
    _TEXT,
    "review",
    "sentence",
    "content",
    "comment",
    "document",
    "body",
    "message",
    "tweet",
    "question",
    "prompt",
)
_LABELS = ("label", "labels", "class", "sentiment", "target", "category", "polarity", "gold", "answer", "y")
_LONGEST = 2**31 - 1  # characters of a cell of CSV: Python's own limit refuses a file for one long text


@dataclass(frozen=True)
class Line:
    """A text, and the number of the line where it starts, from 1."""

    number: int
    text: str


@dataclass(frozen=True)
class Sample:
    """A text of a data set.

    Attributes
    ----------
    line : int
        Where it starts: its line or, in Parquet and in a folder, its row or file, from 1.
    text : str
        Bytes that are not UTF-8 are written as \\xNN.
    label : str or None
    problem : str or None
        Why it cannot be measured, where that is known without a model.
    """

    line: int
    text: str
    label: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Samples:
    """The texts of a file or a folder, and which columns they and their labels are from.

    Attributes
    ----------
    source : str
    samples : tuple of Sample
    column, label_column : str or None
        None where there are no columns, or no labels.
    guessed : tuple of str
        Those of the two that were chosen by their name or content.
    """

    source: str
    samples: tuple[Sample, ...]
    column: str | None = None
    label_column: str | None = None
    guessed: tuple[str, ...] = ()


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
    kind = Path(path).suffix.lower()
    if kind not in kinds:
        raise InputError(f"a file of texts must end in {', '.join(kinds)}, got {path}: rename or convert it")
    texts = []
    for number, row in kinds[kind](_decoded(path), path):
        where = f"line {number} of {path}" if kind == ".jsonl" else path
        name = _TEXT if kind == ".txt" else column
        _check_column(name, row, where)
        text = row[name] or "" if kind == ".csv" else row[name]
        if not isinstance(text, str):
            raise InputError(f"{column} in {where} must be a string, got {type(text).__name__}: correct it")
        texts.append(Line(number, text))
    if not texts:
        raise InputError(f"{path} must hold at least one text, got none: write one per line")
    return texts


def read_samples(path: str, column: str | None = None, label_column: str | None = None) -> Samples:
    """Return the texts of a data set with their labels; a text that cannot be read is part of it, with the reason.

    Parameters
    ----------
    path : str
        A file whose name ends in .txt, .csv, .jsonl or .parquet; or a folder of .txt files, one text each, whose labels
        are the names of the folders that they are in, where there are several.
    column, label_column : str, optional
        Columns of the texts and of the labels. By default the texts are those of the first column with a usual name,
        such as "text" or "review", or else the column with the longest texts; labels those of a column with a usual
        name, such as "label" or "sentiment".
    """
    kinds = {".txt": _plain, ".csv": _csv, ".jsonl": _json_lines}
    kind = Path(path).suffix.lower()
    if Path(path).is_dir():
        rows, bare = _folder(Path(path)), True
    elif kind == ".parquet":
        rows, bare = list(_parquet(path)), False
    elif kind in kinds:
        rows, bare = list(kinds[kind](_decoded(path, "surrogateescape"), path)), kind == ".txt"
    else:
        known = ", ".join([*kinds, ".parquet"])
        raise InputError(f"a file of texts must end in {known} or be a folder, got {path}: rename or convert it")
    if not rows:
        raise InputError(f"{path} must hold at least one text, got none: write one per line")
    columns = list(dict.fromkeys(name for _, row in rows for name in row))
    guessed = []
    if column is None:
        column = _usual(columns, _TEXTS) or _longest(columns, rows, path)
        guessed += [] if bare else [column]
    if label_column is None:
        label_column = _usual([name for name in columns if name != column], _LABELS)
        guessed += [] if label_column is None else [label_column]
    for name in filter(None, (column, label_column)):
        _check_column(name, columns, path)
    samples = tuple(make_sample(number, row.get(column), row.get(label_column or "")) for number, row in rows)
    return Samples(path, samples, None if bare else column, label_column, tuple(guessed))


def make_sample(number: int, text: Any, label: Any) -> Sample:
    """Return a text with its label, and why it cannot be measured where it is no text or not unicode."""
    name = None if label is None or not str(label).strip() else _shown(str(label).strip())
    if text is not None and not isinstance(text, str):
        return Sample(number, _shown(str(text)), name, f"the text must be a string, got {type(text).__name__}")
    return Sample(number, _shown(text or ""), name, _undecoded(text or ""))


def _undecoded(text: str) -> str | None:
    """Why a text cannot be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        wrong = ord(text[error.start])
        got = f"the byte 0x{wrong - 0xDC00:02x}" if 0xDC80 <= wrong <= 0xDCFF else "half a character"
        return f"the text must be UTF-8, got {got} at character {error.start}: save it as UTF-8"
    return None


def _shown(text: str) -> str:
    """A text as UTF-8 can write it: bytes that it could not be decoded from are written as \\xNN."""
    try:
        return text.encode(errors="surrogateescape").decode(errors="backslashreplace")
    except UnicodeEncodeError:  # half a character, which JSON can escape
        return text.encode(errors="backslashreplace").decode()


def _usual(columns: Sequence[str], names: Sequence[str]) -> str | None:
    lower = {name.strip().lower(): name for name in reversed(columns)}
    return next((lower[name] for name in names if name in lower), None)


def _longest(columns: Sequence[str], rows: Sequence[tuple[int, dict[str, Any]]], path: str) -> str:
    """The column with the longest texts on average."""
    lengths = {
        name: sum(len(row[name]) for _, row in rows if isinstance(row.get(name), str)) / len(rows) for name in columns
    }
    best = max(lengths, key=lambda name: lengths[name], default=None)
    if best is None or not lengths[best]:
        raise InputError(f"{path} must have a column of texts, got the columns {_listed(columns)}: name one as column")
    return best


def _decoded(path: str, errors: str = "strict") -> str:
    try:
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:  # a name with a null character is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read texts from {path} ({reason}): check the path") from error
    try:
        return content.decode("utf-8-sig", errors)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        wrong = f"0x{content[error.start]:02x} at byte {error.start}, in line {line}"
        raise InputError(f"{path} must be UTF-8, got {wrong}: save it as UTF-8") from error


def _lines(content: str) -> Iterator[tuple[int, str]]:
    """Return the lines that are not blank, with their numbers."""
    for number, line in enumerate(content.split("\n"), 1):
        if line.strip():
            yield number, line.strip()


def _plain(content: str, path: str) -> Rows:
    for number, line in _lines(content):
        yield number, {_TEXT: line}


def _csv(content: str, path: str) -> Rows:
    limit = csv.field_size_limit(_LONGEST)
    reader = csv.DictReader(io.StringIO(content, newline=""))
    try:
        start = 2 if reader.fieldnames is None else reader.line_num + 1
        for row in reader:
            yield start, {name: value for name, value in row.items() if name is not None}
            start = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{path} must be CSV, got {error} in line {reader.line_num}: correct it") from error
    finally:
        csv.field_size_limit(limit)


def _json_lines(content: str, path: str) -> Rows:
    for number, line in _lines(content):
        where = f"line {number} of {path}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where} must be a JSON object, got {str(error)[:80]}: correct it") from error
        if not isinstance(row, dict):
            raise InputError(f"{where} must be a JSON object, got {type(row).__name__}: write one object per line")
        yield number, row


def _parquet(path: str) -> Rows:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra.of("Parquet needs pyarrow", "parquet") from error
    try:
        rows = parquet.read_table(path).to_pylist()
    except OSError as error:
        raise InputError(f"cannot read texts from {path} ({one_line(error, 120)}): check the path") from error
    except (pa.ArrowException, ValueError) as error:
        raise InputError(f"{path} must be a Parquet file, got {one_line(error, 120)}: convert it again") from error
    yield from enumerate(rows, 1)


def _folder(folder: Path) -> list[tuple[int, dict[str, Any]]]:
    """One row per .txt file below a folder, in the order of their paths."""
    paths = sorted(path for path in folder.rglob("*.txt") if path.is_file())
    inside = {path.parent for path in paths}
    labelled = len(inside) > 1 and folder not in inside
    rows = []
    for number, path in enumerate(paths, 1):
        row = {_TEXT: _decoded(str(path), "surrogateescape").strip()}
        rows.append((number, {**row, "label": path.parent.name} if labelled else row))
    return rows


def _check_column(column: str, columns: Iterable[str], where: str) -> None:
    known = list(columns)
    if column not in known:
        raise InputError(
            f"{where} must have the column {column!r}{nearest(column, known)}, got the columns {_listed(known)}: "
            "choose one of them as the column"
        )


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(columns[:_SHOWN]) + (", ..." if len(columns) > _SHOWN else "") or "none"
