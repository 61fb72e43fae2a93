"""Files of results: the same rows in every format, written whole or not at all, or refused in one line."""

import csv
import errno
import io
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from experiments.made import Elsewhere, open_folder, page_as_nobody, row, trial

from wordsway.errors import InputError, MissingExtra
from wordsway.experiments.store import FAILED
from wordsway.report.files import FORMATS, check_folder, export, replace_file, table_as_csv
from wordsway.report.results import write_page

AWKWARD = "ValueError: \"a, b\"; 'c'\nsecond line\r\nünï \u2028 \U0001f600 \\n = 1"
ROWS = [
    row(trial(0, n=10, data="imdb"), value=0.1, ended="then").to_dict(),
    row(trial(1, n=20, depth=2), record='{"value": 3.5, "status": "ok", "sure": true}', ended="then").to_dict(),
    row(trial(2, n=30), FAILED, error=AWKWARD, seconds=None, ended="then").to_dict(),
]
COLUMNS = [
    *("experiment", "version", "data", "n", "seed", "state", "value", "dtype", "seconds", "peak_mb", "error"),
    *("machine", "ended", "wordsway_version", "python_version", "depth", "status", "sure"),
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
    rows: list[dict[str, Any]] = parquet.ParquetFile(io.BytesIO(path.read_bytes())).read(use_threads=False).to_pylist()
    return rows


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


# Export


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_are_read_back(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"rows.{kind}"
    path.write_text("older" * 10**5)
    assert export(ROWS, kind, str(path)) == path
    found = _read(path, kind)
    as_text = [{name: "" if value is None else str(value) for name, value in line.items()} for line in TIDY]
    assert found == (as_text if kind == "csv" else TIDY)
    assert [list(line) for line in found] == [COLUMNS] * 3
    assert _names(tmp_path) == [path.name]
    assert path.stat().st_mode & 0o777 == 0o644
    export([], kind, str(path))
    assert _read(path, kind) == []


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_without_a_file_text_goes_to_stdout(tmp_path: Path, kind: str, capfdbinary: Any) -> None:
    export(ROWS, kind, str(tmp_path / "rows"))
    assert export(ROWS, kind, None) is None
    assert capfdbinary.readouterr().out == (tmp_path / "rows").read_bytes()


def test_stdout_is_utf_8_whatever_the_encoding_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    print("before")
    export([{"error": "ü"}], "csv", None)
    assert raw.getvalue().decode() == "before\nerror\nü\n"
    text = io.StringIO()
    monkeypatch.setattr(sys, "stdout", text)
    export([{"error": "ü"}], "csv", None)
    assert text.getvalue() == "error\nü\n"


@pytest.mark.parametrize(
    ("kind", "to", "message"),
    [
        ("json", None, r"format must be one of csv, jsonl, parquet, got 'json' \(did you mean 'jsonl'\?\)"),
        ("CSV!", "rows", "format must be one of"),
        ("parquet", None, "parquet is not text: name a file with --to"),
        *(("csv", to, "--to must name a file in an existing folder") for to in ("", "no/rows", "file/rows")),
    ],
)
def test_refusals_write_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, to: str | None, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("text")
    with pytest.raises(InputError, match=message):
        export(ROWS, kind, to)
    assert _names(tmp_path) == ["file"]


def test_a_device_is_written_and_not_replaced(tmp_path: Path) -> None:
    """Root may replace /dev/stdout by a file; here a named pipe instead."""
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
def test_a_full_device_is_one_line() -> None:
    with pytest.raises(InputError, match=r"cannot write /dev/full \(No space left on device\)"):
        export(ROWS, "csv", "/dev/full")
    assert Path("/dev/full").is_char_device()


def test_without_pyarrow_the_message_has_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"pip install 'wordsway\[parquet\]'"):
        export(ROWS, "parquet", str(tmp_path / "rows"))
    assert _names(tmp_path) == []


@pytest.mark.parametrize("values", [(1, "a"), ("a", 1), (True, 1), (2**70, 1)])
def test_a_column_of_several_types_is_refused_by_parquet_only(tmp_path: Path, values: tuple[object, ...]) -> None:
    pytest.importorskip("pyarrow")
    rows = [{"a": value} for value in values]
    with pytest.raises(InputError, match="a Parquet column must have one type") as caught:
        export(rows, "parquet", str(tmp_path / "rows"))
    assert "\n" not in str(caught.value)
    assert _names(tmp_path) == []
    export(rows, "jsonl", str(tmp_path / "rows"))
    assert _read(tmp_path / "rows", "jsonl") == rows


def test_tables_as_csv() -> None:
    text = table_as_csv([{"a": 'ü, "a"\n', "b": None}, {"c": 2.5, "b": True}])
    expected = [{"a": 'ü, "a"\n', "b": "", "c": ""}, {"a": "", "b": "True", "c": "2.5"}]
    assert list(csv.DictReader(io.StringIO(text, newline=""))) == expected
    assert table_as_csv([]) == ""


# Folders and files


def test_output_folders_are_made_but_not_in_place_of_a_file(tmp_path: Path) -> None:
    assert not check_folder(tmp_path / "a" / "b", make=False).exists()
    assert check_folder(str(tmp_path / "a" / "b")).is_dir()
    (tmp_path / "file").write_text("text")
    for name, make in (("file", True), ("file", False), ("file/inside", True)):
        with pytest.raises(InputError, match="the output must be a folder, got the file"):
            check_folder(tmp_path / name, make)
    assert (tmp_path / "file").read_text() == "text"


def test_an_output_that_cannot_be_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(InputError, match=r"cannot be made \(Permission denied\): choose another"):
        check_folder(tmp_path / "a")


@pytest.mark.parametrize("step", ["chmod", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt("stop")])
def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(Path, step, fail)
    full = isinstance(error, OSError)
    message = rf"cannot write {path} \(No space left\): free some space" if full else "^stop$"
    with pytest.raises(InputError if full else KeyboardInterrupt, match=message):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert _names(tmp_path) == ["file"]


def test_a_page_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write .*index.html \(No such file or directory\)"):
        write_page(tmp_path / "away")
    (tmp_path / "index.html").mkdir()
    with pytest.raises(InputError, match=r"cannot write .*index.html \(Is a directory\)"):
        write_page(tmp_path)
    with open_folder() as folder:
        folder.chmod(0o555)
        (refusal,) = Elsewhere(page_as_nobody, folder).rest()
        path = folder / "index.html"
        assert (
            refusal == f"InputError: cannot write {path} (Permission denied): free some space or choose another folder"
        )
