"""Files and folders in the cache: complete or not at all, also when the disk is full or another process is faster."""

import os
from pathlib import Path

import pytest

from wordsway.data import cache


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def _fill(folder: Path) -> None:
    (folder / "a").write_text("one")
    (folder / "b").write_text("two")


def test_the_cache_folder_is_the_users_or_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORDSWAY_CACHE", raising=False)
    assert cache.cache_folder().name == "wordsway"
    monkeypatch.setenv("WORDSWAY_CACHE", "elsewhere")
    assert cache.cache_folder() == Path("elsewhere")


def test_a_file_is_saved_and_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "kept"
    assert cache.load(path) is None
    for payload in (b"", b"old", b"new and longer"):
        cache.save(path, payload)
        assert cache.load(path) == payload
        assert [entry.name for entry in path.parent.iterdir()] == ["kept"]


@pytest.mark.parametrize("damage", [lambda c: c[:-1], lambda c: c[:-1] + b"x", lambda c: b"", lambda c: b"x" * 99])
def test_a_damaged_file_counts_as_none(tmp_path: Path, damage: object, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "kept"
    cache.save(path, b"some content")
    assert callable(damage)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.load(path) is None
    assert [record.getMessage() for record in caplog.records] == [f"the cache file {path} is damaged: making it again"]


def test_an_unreadable_file_counts_as_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert cache.load(tmp_path) is None  # a folder in place of a file
    assert "cannot be read" in caplog.text


def test_a_failed_save_keeps_the_old_file_and_logs_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache.save(tmp_path / "kept", b"old")
    monkeypatch.setattr(os, "replace", _full)
    cache.save(tmp_path / "kept", b"new")
    cache.save(tmp_path / "kept" / "below", b"in a file that is no folder")
    assert ["cannot keep" in record.getMessage() for record in caplog.records] == [True, True]
    assert "No space left" in caplog.text
    assert "WORDSWAY_CACHE" in caplog.text
    assert cache.load(tmp_path / "kept") == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.parametrize(("name", "content"), [("a", "One"), ("b", None), ("sha256.json", None), ("sha256.json", "[")])
def test_a_folder_is_saved_whole_and_damage_is_detected(
    tmp_path: Path, name: str, content: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "cache" / "model"
    assert not cache.is_complete(path)
    cache.save_folder(path, _fill)
    assert cache.is_complete(path)
    assert [entry.name for entry in path.parent.iterdir()] == ["model"]
    assert not caplog.records
    if content is None:
        (path / name).unlink()
    else:
        (path / name).write_text(content)
    assert not cache.is_complete(path)
    assert [record.getMessage() for record in caplog.records] == [
        f"the cache folder {path} is damaged: making it again"
    ]
    cache.save_folder(path, _fill)
    assert cache.is_complete(path)


def test_a_folder_that_cannot_be_saved_leaves_nothing_and_logs_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache.save_folder(tmp_path / "model", _full)
    assert list(tmp_path.iterdir()) == []
    assert ["cannot keep" in record.getMessage() for record in caplog.records] == [True]


def test_the_folder_of_a_faster_process_is_kept(tmp_path: Path) -> None:
    cache.save_folder(tmp_path / "model", _fill)
    before = (tmp_path / "model").stat().st_ino
    cache.save_folder(tmp_path / "model", _fill)
    assert (tmp_path / "model").stat().st_ino == before
