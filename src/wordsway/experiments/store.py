"""The store: one SQLite file, one row for each trial that ended, appended and never rewritten.

A row is identified by (experiment, version, parameters, seed). A trial that failed or died has a row too and may be run
again; a finished one never gets a second row, whatever runs at the same time. Every row is committed when it arrives,
in write-ahead mode: what was committed survives the death of the process.
"""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from wordsway.errors import InputError, WordswayError, one_line
from wordsway.experiments.experiment import Estimate, Trial, TrialResult

STORE = "store.sqlite"  # its name in a folder of results
APPLICATION = 0x77737761  # "wswa": the application id of a SQLite file
DONE, FAILED, DIED = "done", "failed", "died"
STATES = (DONE, FAILED, DIED)
_TIMEOUT = 60.0  # seconds that a connection waits for others

# Numbered steps from an empty file to the current schema. A released step is never changed: add another.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE migrations (
            number INTEGER PRIMARY KEY,
            applied TEXT NOT NULL,
            wordsway TEXT NOT NULL
        )""",
        """CREATE TABLE trials (
            id INTEGER PRIMARY KEY,
            experiment TEXT NOT NULL,
            version INTEGER NOT NULL,
            parameters TEXT NOT NULL,
            seed INTEGER NOT NULL,
            state TEXT NOT NULL CHECK (state IN ('done', 'failed', 'died')),
            record TEXT,
            error TEXT,
            dtype TEXT,
            seconds REAL,
            peak_mb REAL,
            versions TEXT NOT NULL,
            ended TEXT NOT NULL,
            CHECK ((state = 'done') = (record IS NOT NULL))
        )""",
        """CREATE UNIQUE INDEX once ON trials (experiment, version, parameters, seed) WHERE state = 'done'""",
        """CREATE TRIGGER no_update BEFORE UPDATE ON trials
            BEGIN SELECT RAISE(ABORT, 'rows are appended, never rewritten'); END""",
        """CREATE TRIGGER no_delete BEFORE DELETE ON trials
            BEGIN SELECT RAISE(ABORT, 'rows are appended, never deleted'); END""",
    ),
    ("""ALTER TABLE trials ADD COLUMN machine TEXT""",),
)


class StoreError(WordswayError):
    """The store cannot be read or written any more; what it holds stays."""


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Return the versions that numbers may depend on: of this package, of those it computes with, and of Python."""
    packages = ("wordsway", "torch", "numpy", "scipy")
    return {name: metadata.version(name) for name in packages} | {"python": platform.python_version()}


@dataclass(frozen=True)
class Row:
    """One trial that ended, with its cost and the versions that computed it."""

    trial: Trial
    state: str
    record: str | None = None  # JSON
    error: str | None = None
    dtype: str | None = None
    seconds: float | None = None
    peak_mb: float | None = None
    versions: str = field(default_factory=lambda: json.dumps(versions()))  # JSON: package -> version
    machine: str | None = None
    ended: str = ""  # UTC, filled in by the store

    def to_dict(self) -> dict[str, Any]:
        """Return a flat row: identity, parameters, record, then cost and origin.

        Nested values of the record have dotted names, such as `losses.0`. A parameter or an entry of the record that is
        named like a column is called parameter_NAME or record_NAME.
        """
        trial = self.trial
        origin = {"machine": self.machine, "ended": self.ended}
        origin |= {f"{name}_version": version for name, version in _parsed(self.versions, trial).items()}
        cost = {"dtype": self.dtype, "seconds": self.seconds, "peak_mb": self.peak_mb, "error": self.error, **origin}
        taken = {"experiment", "version", "seed", "state", *cost}
        parameters = _renamed(taken, "parameter", _parsed(trial.parameters, trial))
        record = dict(_flat(_parsed(self.record, trial))) if self.record else {}
        record = _renamed(taken | set(parameters), "record", record)
        head = {"experiment": trial.experiment, "version": trial.version}
        return {**head, **parameters, "seed": trial.seed, "state": self.state, **record, **cost}


def _renamed(taken: set[str], kind: str, values: dict[str, Any]) -> dict[str, Any]:
    return {f"{kind}_{name}" if name in taken else name: value for name, value in values.items()}


def _flat(values: dict[str, Any] | list[Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the plain values in nested dictionaries and lists with their dotted names."""
    for name, value in values.items() if isinstance(values, dict) else enumerate(values):
        if isinstance(value, dict | list):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


class Store:
    """An open store; a context manager. Opening writes to the disk only to create or migrate the file.

    Parameters
    ----------
    path : path
        The file; it is made, with its folder, unless `readonly`.
    readonly : bool
        Only read: the file must exist, and one of an older schema is read as it is.

    Notes
    -----
    Several processes may have one store open. A write waits up to a minute for those of the others.
    """

    def __init__(self, path: str | os.PathLike[str], readonly: bool = False) -> None:
        self.path = Path(path)
        exists = _inspect(self.path)
        if readonly and not exists:
            raise InputError(f"there are no results at {self.path}: run `wordsway reproduce` first")
        self._db = _open_to_read(self.path) if readonly else _open_to_write(self.path)
        try:
            self._columns = {column[1] for column in self._select(_TABLE, ())}
        except StoreError:
            self.close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was added is safe before that too."""
        self._db.close()

    def add(self, row: Row) -> bool:
        """Append a row and commit it; return False where the trial is finished already, by this run or another."""
        error = None if row.error is None else row.error.encode(errors="backslashreplace").decode()
        cost = (row.dtype, row.seconds, row.peak_mb, row.versions, row.machine, row.ended or _now())
        values = (*astuple(row.trial), row.state, row.record, error, *cost)
        marks = ", ".join("?" * len(values))
        try:
            with _writing(self._db):
                if self.has(row.trial):
                    return False
                self._db.execute(f"INSERT INTO trials ({', '.join(_COLUMNS)}) VALUES ({marks})", values)
            return True
        except sqlite3.Error as problem:
            raise StoreError(
                f"cannot write the store {self.path} ({_reason(problem)}): finished trials stay in it; "
                "free some space or give it a writable folder, then run the same command again"
            ) from problem

    def has(self, trial: Trial) -> bool:
        """Return whether the trial is finished."""
        where = " AND ".join(f"{name} = ?" for name in _IDENTITY)
        query = f"SELECT 1 FROM trials WHERE {where} AND state = 'done'"
        return bool(self._select(query, astuple(trial)))

    def finished(self, experiment: str, version: int) -> set[Trial]:
        """Return all finished trials of an experiment."""
        rows = self._select(f"SELECT parameters, seed {_DONE}", (experiment, version))
        return {Trial(experiment, version, parameters, seed) for parameters, seed in rows}

    def records(self, trials: Sequence[Trial]) -> list[TrialResult]:
        """Return the results of those trials that are finished, in the given order."""
        known: dict[Trial, str] = {}
        for experiment, version in dict.fromkeys((trial.experiment, trial.version) for trial in trials):
            rows = self._select(f"SELECT parameters, seed, record {_DONE}", (experiment, version))
            known |= {Trial(experiment, version, parameters, seed): record for parameters, seed, record in rows}
        return [
            TrialResult(trial.experiment, json.loads(trial.parameters), trial.seed, _parsed(known[trial], trial))
            for trial in trials
            if trial in known
        ]

    def costs(self, experiment: str, version: int) -> dict[str, Estimate]:
        """Return the cost of finished trials by their parameters: mean seconds, largest memory."""
        query = f"""SELECT parameters, avg(seconds), max(peak_mb) {_DONE}
            GROUP BY parameters HAVING count(seconds) AND count(peak_mb)"""
        rows = self._select(query, (experiment, version))
        return {parameters: Estimate(seconds, int(1e6 * peak)) for parameters, seconds, peak in rows}

    def experiments(self) -> list[str]:
        """Return the names of the experiments that have rows, in the order of their first rows."""
        rows = self._select("SELECT experiment FROM trials GROUP BY experiment ORDER BY min(id)", ())
        return [name for (name,) in rows]

    def rows(
        self, experiments: Sequence[str] = (), states: Sequence[str] = STATES, trials: set[Trial] | None = None
    ) -> Iterator[Row]:
        """Yield rows in the order of their arrival, of some experiments (default: all), states and trials."""
        columns = [name if name in self._columns else f"NULL AS {name}" for name in _COLUMNS]
        query = f"SELECT {', '.join(columns)} FROM trials WHERE state IN ({', '.join('?' * len(states))})"
        if experiments:
            query += f" AND experiment IN ({', '.join('?' * len(experiments))})"
        for values in self._select(f"{query} ORDER BY id", (*states, *experiments)):
            trial = Trial(*values[:4])
            if trials is None or trial in trials:
                yield Row(trial, *values[4:])

    def _select(self, query: str, values: Sequence[str | int]) -> list[Any]:
        try:
            return self._db.execute(query, values).fetchall()
        except (sqlite3.Error, UnicodeError) as error:
            raise StoreError(
                f"cannot read the store {self.path} ({_reason(error)}): it was not changed; choose another folder"
            ) from error


_TABLE = "PRAGMA table_info(trials)"
_DONE = "FROM trials WHERE experiment = ? AND version = ? AND state = 'done'"
_IDENTITY = ("experiment", "version", "parameters", "seed")
_COST = ("dtype", "seconds", "peak_mb", "versions", "machine", "ended")
_COLUMNS = (*_IDENTITY, "state", "record", "error", *_COST)


def _inspect(path: Path) -> bool:
    """Return whether there is a store; refuse a file that is not one, without touching it."""
    try:
        if path.is_dir():
            raise InputError(f"the store must be a file, got the folder {path}")
        if not path.exists() or path.stat().st_size == 0:
            return False
    except OSError as error:
        raise InputError(f"cannot look at the store {path} ({_reason(error)}): choose another folder") from error
    try:
        if _application(path) != APPLICATION:
            raise InputError(
                f"{path} is not a store of wordsway, but another file: it was not changed; choose another folder"
            )
        with closing(_open_to_read(path)) as db:
            schema = _schema(db)
            if schema <= len(MIGRATIONS) and (damage := _damage(path, db)) != "ok":
                raise sqlite3.DatabaseError(damage)
    except (sqlite3.OperationalError, OSError) as error:
        raise InputError(f"cannot read the store {path} ({_reason(error)}): wait, or choose another folder") from error
    except (sqlite3.DatabaseError, UnicodeError) as error:
        raise InputError(
            f"the store {path} is damaged ({_reason(error)}): it was not changed; choose another folder"
        ) from error
    if schema > len(MIGRATIONS):
        raise InputError(
            f"the store {path} is of a newer wordsway (schema {schema}, this one knows {len(MIGRATIONS)}): "
            "it was not changed; upgrade wordsway or choose another folder"
        )
    return schema > 0  # 0: a process died while it made the file


def _application(path: Path) -> int:
    """Return the application id in the first bytes of a SQLite file; 0 for any other file."""
    with path.open("rb") as stream:
        header = stream.read(72)
    return int.from_bytes(header[68:72], "big") if header.startswith(b"SQLite format 3\0") else 0


def _open_to_read(path: Path) -> sqlite3.Connection:
    """Open a connection that cannot write, and that needs no side files where the folder is read-only.

    A side file that exists holds rows which are not in the file yet: then it is read too.
    """
    mode = "mode=ro" if _has_wal(path) else "mode=ro&immutable=1"
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        mode = "mode=rw"
    db = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=_TIMEOUT, isolation_level=None)
    db.execute("PRAGMA query_only = ON")
    return db


def _has_wal(path: Path) -> bool:
    """Return whether the write-ahead log beside a store holds rows."""
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0


def _damage(path: Path, db: sqlite3.Connection) -> str:
    """Return what is wrong with a store, "ok" if nothing is; not every value is checked."""
    db.execute(_TABLE).fetchall()  # raises where the schema cannot be read
    if path.stat().st_size % db.execute("PRAGMA page_size").fetchone()[0] and not _has_wal(path):
        return "it ends within a page"
    return str(db.execute("PRAGMA quick_check(1)").fetchone()[0])


def _open_to_write(path: Path) -> sqlite3.Connection:
    """Open a connection to a store of the current schema, made or migrated where necessary."""
    db = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(path, timeout=_TIMEOUT, isolation_level=None)
        _migrate(db)  # before write-ahead mode, so that the file itself has the application id from the start
        _write_ahead(db)
        return db
    except (sqlite3.Error, OSError) as error:
        if db is not None:
            db.close()
        raise StoreError(
            f"cannot write the store {path} ({_reason(error)}): choose another folder, or free this one"
        ) from error


def _migrate(db: sqlite3.Connection) -> None:
    """Apply the missing steps, all in one transaction: the file has the old schema or the new one."""
    if _schema(db) == len(MIGRATIONS):
        return
    with _writing(db):
        for number, steps in enumerate(MIGRATIONS[_schema(db) :], start=_schema(db) + 1):
            for step in steps:
                db.execute(step)
            db.execute("INSERT INTO migrations VALUES (?, ?, ?)", (number, _now(), metadata.version("wordsway")))
        db.execute(f"PRAGMA application_id = {APPLICATION}")
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _write_ahead(db: sqlite3.Connection) -> None:
    """Switch to write-ahead mode; SQLite itself does not wait for other processes here, whatever its timeout."""
    end = time.monotonic() + _TIMEOUT
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)
    db.execute("PRAGMA synchronous = NORMAL")


def _schema(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


@contextmanager
def _writing(db: sqlite3.Connection) -> Iterator[None]:
    """Run a transaction that holds the write lock from its start."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _parsed(text: str, trial: Trial) -> dict[str, Any]:
    """Return the JSON object of a row; bytes that changed on the disk may have left something else."""
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise StoreError(
            f"the store is damaged (a row of {trial.experiment} with seed {trial.seed} holds {text[:40]!r}): "
            "choose another folder"
        )
    return values


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _reason(error: Exception) -> str:
    return one_line(error.strerror if isinstance(error, OSError) and error.strerror else error)
