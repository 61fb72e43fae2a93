"""Files that are not a store are refused in one line and left as they are; permissions, full disks, older schemas."""

import errno
import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from experiments.made import Elsewhere, add_all, add_until_full, as_nobody, open_folder, row, sides, trial
from wordsway.errors import InputError, WordswayError
from wordsway.experiments import store as module
from wordsway.experiments.experiment import Trial
from wordsway.experiments.store import APPLICATION, DIED, DONE, FAILED, MIGRATIONS, Row, Store, StoreError


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
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


# Not a store


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
@pytest.mark.parametrize("application", [0, 0x47504B47])
def test_a_file_of_another_program(path: Path, mode: str, application: int) -> None:
    with closing(sqlite3.connect(path)) as db:
        for statement in (f"journal_mode = {mode}", f"application_id = {application}"):
            db.execute(f"PRAGMA {statement}")
        db.execute("CREATE TABLE trials (x)")
        db.commit()
        refused(path, "is not a store of wordsway, but another file")  # while the other program has it open
    refused(path, "is not a store of wordsway, but another file")


@pytest.mark.parametrize("content", [b"experiment,seed\n" * 1000, b"\0" * 5000, b"SQLite format 3\0" + b"x" * 9000])
def test_a_file_that_is_no_database(path: Path, content: bytes) -> None:
    for part in (content, content[:16]):
        path.write_bytes(part)
        refused(path, "is not a store of wordsway")


def test_a_folder_in_place_of_the_file_or_a_file_in_place_of_the_folder(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_text("text")
    for readonly in (False, True):
        with pytest.raises(InputError, match="the store must be a file, got the folder"):
            Store(path, readonly)
    with pytest.raises(StoreError, match="cannot write the store"):
        Store(path / "inside" / "store.sqlite")
    assert (path / "inside").read_text() == "text"


@pytest.mark.parametrize("made", ["nothing", "an empty file", "a file whose transaction was undone"])
def test_a_store_that_has_not_been_made(path: Path, made: str) -> None:
    if made == "an empty file":
        path.touch()
    elif made != "nothing":
        _sqlite(path, f"PRAGMA application_id = {APPLICATION}")
    before = sides(path), path.exists()
    with pytest.raises(InputError, match=r"there are no results at .*run `wordsway reproduce` first"):
        Store(path, readonly=True)
    assert (sides(path), path.exists()) == before
    with Store(path) as store:
        assert store.add(row(trial()))
    assert sides(path) == []


def test_names_with_special_characters(tmp_path: Path) -> None:
    path = tmp_path / "100% ?mode=memory#ü" / "store; drop.sqlite"
    with Store(path) as store:
        store.add(row(trial()))
    with Store(path, readonly=True) as store:
        assert store.has(trial())
    assert sides(path) == []


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


def test_a_name_that_is_no_text(filled: Path) -> None:
    columns = "experiment, version, parameters, seed, state, versions, ended"
    _sqlite(filled, f"INSERT INTO trials ({columns}) VALUES (CAST(x'ff' AS TEXT), 1, '{{}}', 1, 'failed', '{{}}', '')")
    with Store(filled, readonly=True) as store, pytest.raises(StoreError, match=r"^cannot read the store"):
        store.experiments()


def test_flipped_bytes_anywhere_are_one_line_at_most(filled: Path) -> None:
    """Wherever bytes are flipped, every query works or fails in one line, and reading changes nothing."""
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


def test_an_error_of_the_file_system_is_one_line(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize(("folder", "mode"), [(0o555, 0o644), (0o777, 0o444)], ids=["folder", "file"])
def test_what_cannot_be_written_can_be_read(shared: Path, folder: int, mode: int) -> None:
    shared.chmod(mode)
    shared.parent.chmod(folder)
    before = shared.read_bytes()
    for readonly in (True, False):
        *found, refusal = Elsewhere(as_nobody, shared, readonly, [row(trial(2))]).rest()
        assert found == ([[trial(1)]] if readonly or folder == 0o777 else [])  # writing needs files beside it
        assert refusal.startswith("StoreError: cannot write the store")
        assert "\n" not in refusal
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


@pytest.mark.parametrize(
    ("mode", "folder", "refusal"),
    [(0o000, 0o777, "cannot read"), (0o200, 0o777, "cannot read"), (0o644, 0o600, "cannot look at")],
)
def test_a_file_that_cannot_be_read(shared: Path, mode: int, folder: int, refusal: str) -> None:
    shared.chmod(mode)
    shared.parent.chmod(folder)
    (message,) = Elsewhere(as_nobody, shared, True, []).rest()
    assert message.startswith(f"InputError: {refusal} the store")
    assert "Permission denied" in message


def test_on_a_full_disk_finished_rows_stay(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    *added, refusal = Elsewhere(add_until_full, path, 200_000).rest()
    assert len(added) > 20
    assert refusal.startswith(f"StoreError: cannot write the store {path}")
    assert "finished trials stay in it; free some space" in refusal
    with Store(path) as store:
        assert store.finished("one", 1) == {trial(seed, n=1) for seed in added}
        assert store.add(row(trial(len(added), n=1)))  # there is space again
    assert sides(path) == []


@pytest.mark.parametrize("room", [5000, 20_480, 30_000])  # for less than the file, and than the files beside it
def test_a_disk_too_full_for_a_new_store(tmp_path: Path, room: int) -> None:
    (refusal,) = Elsewhere(add_until_full, tmp_path / "store.sqlite", room).rest()
    assert re.match("StoreError: cannot (write|read) the store", refusal)
    with Store(tmp_path / "store.sqlite") as store:  # what is left can be used
        assert store.add(row(trial()))


# Older schemas

FIRST = Path(__file__).with_name("data") / "store-schema-1.sqlite"  # its very bytes must be read for ever
POINT = '{"d": 96, "data": "imdb", "map": "rf", "n": 90}'
OTHER = '{"d": 8, "data": "gaussian", "map": "raf", "n": 10}'
COST = ("float32", 1.5, 250.0, '{"torch": "2.4.0", "wordsway": "0.1.0"}', None, "2024-05-06T07:08:09.010+00:00")
EXPECTED = [
    Row(Trial("fig2-rf", 1, POINT, 0), FAILED, None, "OSError: naïve, no", *COST),
    Row(Trial("fig2-rf", 1, POINT, 0), DONE, '{"sensitivity": 0.25}', None, *COST),
    Row(Trial("fig2-rf", 1, POINT, 1), DONE, '{"sensitivity": 0.375}', None, *COST),
    Row(Trial("fig3-raf", 2, OTHER, 5), DIED, None, "its process died", *COST),
]
CURRENT = (len(MIGRATIONS), list(range(1, len(MIGRATIONS) + 1)))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copy(FIRST, tmp_path / "store.sqlite"))


def _schema(path: Path) -> tuple[int, list[int], set[str]]:
    """The number of the schema, the migrations that were made, and the columns of the trials."""
    with closing(sqlite3.connect(path)) as db:
        number = db.execute("PRAGMA user_version").fetchone()[0]
        made = [found[0] for found in db.execute("SELECT number FROM migrations ORDER BY number")]
        return number, made, {found[1] for found in db.execute("PRAGMA table_info(trials)")}


def test_the_first_step_did_not_change_since_the_file_was_written() -> None:
    tables = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name"
    with closing(sqlite3.connect(":memory:")) as new, closing(sqlite3.connect(FIRST)) as first:
        for step in MIGRATIONS[0]:
            new.execute(step)
        assert new.execute(tables).fetchall() == first.execute(tables).fetchall()
    assert _schema(FIRST)[:2] == (1, [1])
    assert "machine" not in _schema(FIRST)[2]


def test_an_old_store_is_migrated_and_its_rows_stay(old: Path) -> None:
    with Store(old) as store:
        assert list(store.rows()) == EXPECTED
        assert store.costs("fig2-rf", 1)[POINT].seconds == 1.5
        finished = sorted(store.finished("fig2-rf", 1), key=str)
        assert [found["sensitivity"] for found in store.records(finished)] == [0.25, 0.375]
        assert store.add(row(trial(7)))
        assert next(store.rows(["one"])).machine == "here"
    Store(old.with_name("new.sqlite")).close()
    assert _schema(old) == _schema(old.with_name("new.sqlite"))
    assert _schema(old)[:2] == CURRENT
    with closing(sqlite3.connect(old)) as db:
        for change in ("UPDATE trials SET machine = 'there'", "DELETE FROM trials"):
            with pytest.raises(sqlite3.IntegrityError, match="appended"):
                db.execute(change)


def test_reading_migrates_nothing(old: Path) -> None:
    with Store(old, readonly=True) as store:
        assert list(store.rows()) == EXPECTED
        assert len(store.finished("fig2-rf", 1)) == 2
        assert next(store.rows()).to_dict()["machine"] is None
    assert old.read_bytes() == FIRST.read_bytes()
    assert sides(old) == []


@pytest.mark.parametrize("bad", ["no SQL at all", "INSERT INTO migrations VALUES (1, '', '')"], ids=["syntax", "key"])
def test_a_migration_that_fails_half_way_leaves_the_old_schema(
    old: Path, monkeypatch: pytest.MonkeyPatch, bad: str
) -> None:
    steps = (*MIGRATIONS, ("CREATE TABLE further (x)", "ALTER TABLE trials ADD COLUMN other TEXT"), (bad,))
    monkeypatch.setattr(module, "MIGRATIONS", steps)
    for path in (old, old.with_name("new.sqlite")):
        with pytest.raises(StoreError, match="cannot write the store") as caught:
            Store(path)
        assert "\n" not in str(caught.value)
    assert _schema(old) == _schema(FIRST)
    monkeypatch.undo()
    with Store(old) as store, Store(old.with_name("new.sqlite")) as new:
        assert list(store.rows()) == EXPECTED
        assert new.add(row(trial()))


def test_processes_migrate_one_store_at_once(old: Path) -> None:
    workers = [Elsewhere(add_all, old, [row(trial())]) for _ in range(4)]
    assert sorted(added for worker in workers for added in worker.rest()) == [False, False, False, True]
    assert _schema(old)[:2] == CURRENT
    with Store(old) as store:
        assert list(store.rows())[:-1] == EXPECTED
    assert sides(old) == []
