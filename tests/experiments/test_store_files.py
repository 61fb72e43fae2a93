"""Files that are not a store of ours are refused in one line and left as they are; permissions and full disks."""

import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.made import Elsewhere, add_until_full, as_nobody, open_folder, row, sides, trial
from wordsway.errors import InputError, WordswayError
from wordsway.experiments.store import APPLICATION, MIGRATIONS, Store, StoreError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


@pytest.fixture
def filled(path: Path) -> Path:
    """A store of several pages."""
    with Store(path) as store:
        for seed in range(60):
            store.add(row(trial(seed, n=seed % 7, text="x" * 200)))
    return path


def refused(path: Path, message: str) -> None:
    """Both ways of opening refuse the file in one line, and leave it and its folder as they are."""
    before = path.read_bytes(), sides(path)
    for readonly in (False, True):
        with pytest.raises(InputError, match=message) as caught:
            Store(path, readonly)
        assert "\n" not in str(caught.value)
        assert str(path) in str(caught.value)
    assert (path.read_bytes(), sides(path)) == before


def _sqlite(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


# Not a store


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
@pytest.mark.parametrize("application", [0, 0x47504B47])
def test_a_file_of_another_program(path: Path, mode: str, application: int) -> None:
    _sqlite(path, f"PRAGMA journal_mode = {mode}", f"PRAGMA application_id = {application}", "CREATE TABLE trials (x)")
    assert sides(path) == []
    refused(path, "is not a store of wordsway, but another file")


def test_a_file_that_another_program_is_writing(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE other (x)")
    db.commit()
    assert sides(path) == ["store.sqlite-shm", "store.sqlite-wal"]
    refused(path, "another file")
    db.close()


@pytest.mark.parametrize(
    "content",
    [b"hello\n", b"experiment,seed\n" * 1000, b"\0" * 5000, b"SQLite format 3\0", b"SQLite format 3\0" + b"x" * 9000],
    ids=["word", "text", "zeros", "name", "name and more"],
)
def test_a_file_that_is_no_database(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    refused(path, "is not a store of wordsway")


def test_a_folder_in_its_place(path: Path) -> None:
    path.mkdir()
    (path / "inside").touch()
    for readonly in (False, True):
        with pytest.raises(InputError, match="the store must be a file, got the folder"):
            Store(path, readonly)
    assert [inside.name for inside in path.iterdir()] == ["inside"]


def test_a_file_in_the_place_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(StoreError, match="cannot write the store"):
        Store(tmp_path / "file" / "store.sqlite")
    assert (tmp_path / "file").read_text() == "text"


def test_nothing_there(path: Path) -> None:
    with pytest.raises(InputError, match=r"there are no results at .*run `wordsway reproduce` first"):
        Store(path, readonly=True)
    assert list(path.parent.iterdir()) == []


def test_an_empty_file_is_taken_as_new(path: Path) -> None:
    path.touch()
    with pytest.raises(InputError, match="there are no results"):
        Store(path, readonly=True)
    assert path.read_bytes() == b""
    with Store(path) as store:
        assert store.add(row(trial()))
    assert sides(path) == []


def test_a_store_whose_making_was_undone_is_taken_as_new(path: Path) -> None:
    _sqlite(path, f"PRAGMA application_id = {APPLICATION}")
    with pytest.raises(InputError, match="there are no results"):
        Store(path, readonly=True)
    with Store(path) as store:
        assert store.add(row(trial()))


# A store that cannot be used


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_a_newer_schema(filled: Path, mode: str) -> None:
    _sqlite(filled, f"PRAGMA journal_mode = {mode}", f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    new = len(MIGRATIONS) + 1
    refused(filled, rf"newer wordsway \(schema {new}, this one knows {new - 1}\): .*upgrade wordsway")


@pytest.mark.parametrize("size", [20, 100, 1000, 4096, 9000, -4096, -1])
def test_a_truncated_store(filled: Path, size: int) -> None:
    filled.write_bytes(filled.read_bytes()[:size])
    refused(filled, "is damaged|is not a store")


@pytest.mark.parametrize("page", range(1, 5))
def test_a_store_with_flipped_bytes(filled: Path, page: int) -> None:
    """The bytes at the head of a page, where it says what it holds."""
    content = bytearray(filled.read_bytes())
    assert len(content) > 5 * 4096
    for place in range(4096 * page, 4096 * page + 8):
        content[place] ^= 0xFF
    filled.write_bytes(content)
    refused(filled, "is damaged")


def test_a_name_that_is_no_text(filled: Path) -> None:
    columns = "experiment, version, parameters, seed, state, versions, ended"
    _sqlite(filled, f"INSERT INTO trials ({columns}) VALUES (CAST(x'ff' AS TEXT), 1, '{{}}', 1, 'failed', '{{}}', '')")
    with Store(filled, readonly=True) as store, pytest.raises(StoreError, match=r"^cannot read the store"):
        store.experiments()


def test_flipped_bytes_anywhere_never_break_it_open(filled: Path) -> None:
    """Wherever bytes are flipped, whatever is asked ends well or in one line, and looking changes nothing."""
    sound = filled.read_bytes()
    errors: list[str] = []
    sizes = set()
    for place in range(0, len(sound), 211):
        content = bytearray(sound)
        content[place : place + 3] = bytes(byte ^ 0xFF for byte in content[place : place + 3])
        filled.write_bytes(content)
        try:
            with Store(filled, readonly=True) as store:
                store.records([trial(seed, n=seed % 7, text="x" * 200) for seed in range(60)])
                store.finished("one", 1)
                store.costs("one", 1)
                sizes.add(len([found.to_dict() for found in store.rows()]))
        except WordswayError as error:
            errors.append(str(error))
        assert filled.read_bytes() == bytes(content)
    assert 60 in sizes
    assert len(errors) > 20
    assert not any("\n" in error for error in errors)
    assert sides(filled) == []


def test_trouble_with_the_file_system_is_one_line(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "open", fail)
    refused_as = r"cannot read the store .*\(Input/output error\): wait, or choose another folder"
    with pytest.raises(InputError, match=refused_as):
        Store(filled)
    monkeypatch.setattr(Path, "stat", fail)
    with pytest.raises(InputError, match="cannot look at the store"):
        Store(filled)


# Permissions and space


@pytest.fixture
def shared() -> Iterator[Path]:
    """A store with one row in a folder where everybody may look."""
    with open_folder() as folder:
        path = folder / "store.sqlite"
        with Store(path) as store:
            store.add(row(trial(1)))
        yield path


def test_a_folder_that_cannot_be_written_can_be_read(shared: Path) -> None:
    shared.parent.chmod(0o555)
    before = shared.read_bytes()
    (found, refusal) = Elsewhere(as_nobody, shared, True, [row(trial(2))]).rest()
    assert found == [trial(1)]
    assert refusal.startswith("StoreError: cannot write the store")
    (refusal,) = Elsewhere(as_nobody, shared, False, [row(trial(2))]).rest()
    assert refusal.startswith("StoreError: cannot write the store")
    assert "\n" not in refusal
    assert (shared.read_bytes(), sides(shared)) == (before, [])


def test_a_file_that_cannot_be_written_can_be_read(shared: Path) -> None:
    shared.chmod(0o444)
    before = shared.read_bytes()
    for readonly in (True, False):
        found, refusal = Elsewhere(as_nobody, shared, readonly, [row(trial(2))]).rest()
        assert found == [trial(1)]
        assert refusal.startswith("StoreError: cannot write the store")
        assert "finished trials stay in it" in refusal
    assert shared.read_bytes() == before


def test_rows_beside_the_file_are_read_where_nothing_can_be_written(shared: Path) -> None:
    """While somebody else writes, new rows are in a side file."""
    with Store(shared) as writer:
        writer.add(row(trial(2)))
        assert "store.sqlite-wal" in sides(shared)
        shared.parent.chmod(0o555)
        shared.chmod(0o444)
        assert Elsewhere(as_nobody, shared, True, []).rest() == [[trial(1), trial(2)]]
        shared.chmod(0o644)
        shared.parent.chmod(0o777)


@pytest.mark.parametrize("mode", [0o000, 0o200])
def test_a_file_that_cannot_be_read(shared: Path, mode: int) -> None:
    shared.chmod(mode)
    (refusal,) = Elsewhere(as_nobody, shared, True, []).rest()
    assert refusal.startswith("InputError: cannot read the store")
    assert "Permission denied" in refusal


def test_a_folder_that_cannot_be_searched(shared: Path) -> None:
    shared.parent.chmod(0o600)
    (refusal,) = Elsewhere(as_nobody, shared, True, []).rest()
    assert refusal.startswith("InputError: cannot look at the store")


def test_on_a_full_disk_finished_rows_stay(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    *added, refusal = Elsewhere(add_until_full, path, 200_000).rest()
    assert len(added) > 20
    assert refusal.startswith(f"StoreError: cannot write the store {path}")
    assert "finished trials stay in it; make room" in refusal
    with Store(path) as store:
        assert store.finished("one", 1) == {trial(seed, n=1) for seed in added}
        assert store.add(row(trial(len(added), n=1)))  # there is room again
    assert sides(path) == []


def test_a_disk_too_full_for_a_new_store(tmp_path: Path) -> None:
    (refusal,) = Elsewhere(add_until_full, tmp_path / "store.sqlite", 5000).rest()
    assert refusal.startswith("StoreError: cannot write the store")
    with Store(tmp_path / "store.sqlite") as store:  # what is left does not stand in the way
        assert store.add(row(trial()))
