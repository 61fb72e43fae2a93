"""Stores of earlier schemas: migrated as a whole or not at all, read as they are.

`data/store-schema-1.sqlite` was written once with the first schema, by `write_first_schema` below; a later schema must
go on reading those very bytes.
"""

import shutil
import sqlite3
from pathlib import Path

import pytest

from experiments.made import Elsewhere, add_and_count, row, sides, trial
from wordsway.experiments import store as module
from wordsway.experiments.store import APPLICATION, DIED, DONE, FAILED, MIGRATIONS, Store, StoreError

FIRST = Path(__file__).with_name("data") / "store-schema-1.sqlite"
KEPT = (
    ("fig2-rf", 1, '{"d": 96, "data": "imdb", "map": "rf", "n": 90}', 0, FAILED, None, "OSError: naïve, no"),
    ("fig2-rf", 1, '{"d": 96, "data": "imdb", "map": "rf", "n": 90}', 0, DONE, '{"sensitivity": 0.25}', None),
    ("fig2-rf", 1, '{"d": 96, "data": "imdb", "map": "rf", "n": 90}', 1, DONE, '{"sensitivity": 0.375}', None),
    ("fig3-raf", 2, '{"d": 8, "data": "gaussian", "map": "raf", "n": 10}', 5, DIED, None, "its process died"),
)
COST = ("float32", 1.5, 250.0, '{"torch": "2.4.0", "wordsway": "0.1.0"}', "2024-05-06T07:08:09.010+00:00")


def write_first_schema(path: Path) -> None:
    """Write a store of the first schema, as a single file in write-ahead mode."""
    db = sqlite3.connect(path, isolation_level=None)
    for step in MIGRATIONS[0]:
        db.execute(step)
    db.execute("INSERT INTO migrations VALUES (1, '2024-05-06T07:08:09.000+00:00', '0.1.0')")
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute("PRAGMA user_version = 1")
    db.execute("PRAGMA journal_mode = WAL")
    names = "experiment, version, parameters, seed, state, record, error, dtype, seconds, peak_mb, versions, ended"
    for kept in KEPT:
        db.execute(f"INSERT INTO trials ({names}) VALUES ({', '.join('?' * 12)})", (*kept, *COST))
    db.close()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copy(FIRST, tmp_path / "store.sqlite"))


def _schema(path: Path) -> tuple[int, list[int], set[str]]:
    """The number of the schema, the migrations that were made, and the columns of the trials."""
    db = sqlite3.connect(path)
    number = db.execute("PRAGMA user_version").fetchone()[0]
    made = [found[0] for found in db.execute("SELECT number FROM migrations ORDER BY number")]
    columns = {found[1] for found in db.execute("PRAGMA table_info(trials)")}
    db.close()
    return number, made, columns


def _rows(store: Store) -> list[tuple[object, ...]]:
    rows = store.rows()
    return [
        (
            *(one.trial.experiment, one.trial.version, one.trial.parameters, one.trial.seed, one.state, one.record),
            *(one.error, one.dtype, one.seconds, one.peak_mb, one.versions, one.ended, one.machine),
        )
        for one in rows
    ]


EXPECTED = [(*kept, *COST, None) for kept in KEPT]


def test_the_stored_file_has_the_first_schema_and_the_steps_did_not_change_since(tmp_path: Path) -> None:
    write_first_schema(tmp_path / "again.sqlite")
    databases = [sqlite3.connect(path) for path in (FIRST, tmp_path / "again.sqlite")]
    first, again = (db.execute("SELECT * FROM sqlite_master ORDER BY name").fetchall() for db in databases)
    assert [found[:3] for found in first] == [found[:3] for found in again]
    assert [found[4] for found in first] == [found[4] for found in again]
    for db in databases:
        db.close()
    assert _schema(FIRST)[:2] == (1, [1])
    assert "machine" not in _schema(FIRST)[2]


def test_a_new_store_has_the_present_schema(tmp_path: Path) -> None:
    Store(tmp_path / "store.sqlite").close()
    number, made, columns = _schema(tmp_path / "store.sqlite")
    assert number == len(MIGRATIONS) == made[-1]
    assert made == list(range(1, number + 1))
    assert "machine" in columns


def test_an_old_store_is_migrated_and_its_rows_stay(old: Path) -> None:
    with Store(old) as store:
        assert _rows(store) == EXPECTED
        assert store.costs("fig2-rf", 1)[KEPT[0][2]].seconds == 1.5
        assert [found["sensitivity"] for found in store.records(sorted(store.finished("fig2-rf", 1), key=str))] == [
            0.25,
            0.375,
        ]
        assert store.add(row(trial(7)))
        assert next(store.rows(["one"])).machine == "here"
    assert _schema(old)[:2] == (len(MIGRATIONS), list(range(1, len(MIGRATIONS) + 1)))
    assert sides(old) == []
    with Store(old) as store:
        assert _rows(store)[:-1] == EXPECTED


def test_migrated_stores_refuse_changes_too(old: Path) -> None:
    Store(old).close()
    db = sqlite3.connect(old)
    for change in ("UPDATE trials SET machine = 'there'", "DELETE FROM trials"):
        with pytest.raises(sqlite3.IntegrityError, match="appended"):
            db.execute(change)
    db.close()


def test_looking_migrates_nothing(old: Path) -> None:
    with Store(old, readonly=True) as store:
        assert _rows(store) == EXPECTED
        assert len(store.finished("fig2-rf", 1)) == 2
        assert next(store.rows()).to_dict()["machine"] is None
    assert old.read_bytes() == FIRST.read_bytes()
    assert sides(old) == []


@pytest.mark.parametrize(
    "bad",
    ["no SQL at all", "INSERT INTO migrations VALUES (1, '', '')", "DELETE FROM trials"],
    ids=["syntax", "key", "trigger"],
)
def test_a_migration_that_fails_half_way_leaves_the_old_schema(
    old: Path, monkeypatch: pytest.MonkeyPatch, bad: str
) -> None:
    steps = (*MIGRATIONS, ("CREATE TABLE further (x)", "ALTER TABLE trials ADD COLUMN other TEXT"), (bad,))
    monkeypatch.setattr(module, "MIGRATIONS", steps)
    with pytest.raises(StoreError, match="cannot write the store") as caught:
        Store(old)
    assert "\n" not in str(caught.value)
    assert _schema(old) == _schema(FIRST)
    assert sides(old) == []
    monkeypatch.undo()
    with Store(old) as store:
        assert _rows(store) == EXPECTED
    assert _schema(old)[0] == len(MIGRATIONS)


def test_a_store_that_cannot_be_made_whole_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIGRATIONS", (*MIGRATIONS, ("no SQL at all",)))
    with pytest.raises(StoreError, match="cannot write the store"):
        Store(tmp_path / "store.sqlite")
    monkeypatch.undo()
    with Store(tmp_path / "store.sqlite") as store:
        assert store.add(row(trial()))


def test_processes_migrate_one_store_at_once(old: Path) -> None:
    workers = [Elsewhere(add_and_count, old, row(trial())) for _ in range(4)]
    answers = [worker.rest() for worker in workers]
    assert sorted(given[0] for given in answers) == [False, False, False, True]
    assert [given[1] for given in answers] == [len(KEPT) + 1] * 4
    assert _schema(old)[:2] == (len(MIGRATIONS), list(range(1, len(MIGRATIONS) + 1)))
    with Store(old) as store:
        assert _rows(store)[:-1] == EXPECTED
    assert sides(old) == []
