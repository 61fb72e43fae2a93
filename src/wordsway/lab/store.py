"""The store: one SQLite file, one row for each trial that ended, appended and never rewritten.

A row is identified by (experiment, version, parameters, seed). A trial that failed or died leaves a row too and may be
tried again; of a finished one there is never a second row, whatever runs at once. Every row is committed when it
arrives, in write-ahead mode: what was committed survives the death of the process.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

from wordsway.errors import InputError, WordswayError
from wordsway.lab.experiment import Estimate, Finished, Trial

APPLICATION = 0x77737761  # "wswa": how SQLite files are told apart
DONE, FAILED, DIED = "done", "failed", "died"
STATES = (DONE, FAILED, DIED)

# Numbered steps from an empty file to the present schema. A step that was released is never changed: add another.
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
    """The store cannot be written any more; what it holds stays."""


@dataclass(frozen=True)
class Row:
    """One trial that ended, with what it took and what it was computed by."""

    trial: Trial
    state: str
    record: str | None  # JSON
    error: str | None
    dtype: str | None
    seconds: float | None
    peak_mb: float | None
    versions: str  # JSON: package -> version
    machine: str | None = None
    ended: str = ""  # UTC, filled in by the store

    def to_dict(self) -> dict[str, Any]:
        """A flat row: identity, parameters, record, then cost and origin."""
        versions = {f"{name}_version": version for name, version in json.loads(self.versions).items()}
        return {
            "experiment": self.trial.experiment,
            "version": self.trial.version,
            **json.loads(self.trial.parameters),
            "seed": self.trial.seed,
            "state": self.state,
            **(json.loads(self.record) if self.record else {}),
            "dtype": self.dtype,
            "seconds": self.seconds,
            "peak_mb": self.peak_mb,
            "error": self.error,
            "machine": self.machine,
            "ended": self.ended,
            **versions,
        }


class Store:
    """An open store; a context manager. Opening changes its state on disk only to create or migrate it.

    Parameters
    ----------
    path : path
        The file; made, with its folder, unless `readonly`.
    readonly : bool
        Look only: the file must exist, and an older one is read as it is.

    Notes
    -----
    Several processes may have one store open. A write waits up to a minute for the others'.
    """

    def __init__(self, path: str | os.PathLike[str], readonly: bool = False) -> None:
        self.path = Path(path)
        known = _inspect(self.path)
        if readonly:
            if known is None:
                raise InputError(f"there are no results at {self.path}: run `wordsway reproduce` first")
            self._db = _open_to_read(self.path)
            self._columns = _columns(self._db)
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.path, timeout=60, isolation_level=None)
            self._migrate()  # before write-ahead mode, so that the file itself says from the start whose it is
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
        except (sqlite3.OperationalError, OSError) as error:
            raise StoreError(
                f"cannot write the store {self.path} ({_reason(error)}): choose another folder, or free this one"
            ) from error
        self._columns = _columns(self._db)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was added is safe before that too."""
        self._db.close()

    def _migrate(self) -> None:
        """Take the missing steps, all in one transaction: the file has the old schema or the new one."""
        if _schema(self._db) == len(MIGRATIONS):
            return
        with _writing(self._db):
            for number, steps in enumerate(MIGRATIONS[_schema(self._db) :], start=_schema(self._db) + 1):
                for step in steps:
                    self._db.execute(step)
                done = (number, _now(), metadata.version("wordsway"))
                self._db.execute("INSERT INTO migrations VALUES (?, ?, ?)", done)
            self._db.execute(f"PRAGMA application_id = {APPLICATION}")
            self._db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")

    def add(self, row: Row) -> bool:
        """Append a row and commit it; False where the trial was finished before, by this run or another one."""
        rest = (row.record, row.error, row.dtype, row.seconds, row.peak_mb, row.versions, row.machine)
        values = (*_identity(row.trial), row.state, *rest, row.ended or _now())
        marks = ", ".join("?" * len(values))
        try:
            with _writing(self._db):
                if self.has(row.trial):
                    return False
                self._db.execute(f"INSERT INTO trials ({', '.join(_COLUMNS)}) VALUES ({marks})", values)
            return True
        except (sqlite3.OperationalError, sqlite3.DatabaseError) as error:
            raise StoreError(
                f"cannot write the store {self.path} ({_reason(error)}): finished trials stay in it; "
                "make room or give it a writable folder, then run the same command again"
            ) from error

    def has(self, trial: Trial) -> bool:
        """Whether the trial is finished."""
        where = " AND ".join(f"{name} = ?" for name in _IDENTITY)
        query = f"SELECT 1 FROM trials WHERE {where} AND state = 'done'"
        return self._db.execute(query, _identity(trial)).fetchone() is not None

    def finished(self, experiment: str, version: int) -> set[Trial]:
        """All finished trials of an experiment."""
        query = "SELECT parameters, seed FROM trials WHERE experiment = ? AND version = ? AND state = 'done'"
        found = self._db.execute(query, (experiment, version))
        return {Trial(experiment, version, parameters, seed) for parameters, seed in found}

    def records(self, trials: Sequence[Trial]) -> list[Finished]:
        """The records of those trials that are finished, in the given order."""
        query = "SELECT parameters, seed, record FROM trials WHERE experiment = ? AND version = ? AND state = 'done'"
        known: dict[Trial, str] = {}
        for experiment, version in dict.fromkeys((trial.experiment, trial.version) for trial in trials):
            for parameters, seed, record in self._db.execute(query, (experiment, version)):
                known[Trial(experiment, version, parameters, seed)] = record
        return [
            Finished(trial.experiment, json.loads(trial.parameters), trial.seed, json.loads(known[trial]))
            for trial in trials
            if trial in known
        ]

    def costs(self, experiment: str, version: int) -> dict[str, Estimate]:
        """What finished trials took, by parameters: mean seconds, largest memory."""
        query = """SELECT parameters, avg(seconds), max(peak_mb) FROM trials
            WHERE experiment = ? AND version = ? AND state = 'done' GROUP BY parameters"""
        found = self._db.execute(query, (experiment, version))
        return {parameters: Estimate(seconds, int(1e6 * peak)) for parameters, seconds, peak in found}

    def rows(
        self, experiments: Sequence[str] = (), states: Sequence[str] = STATES, trials: set[Trial] | None = None
    ) -> Iterator[Row]:
        """Rows in the order they arrived, of some experiments (all if none is named), states and trials."""
        wanted = [name if name in self._columns else f"NULL AS {name}" for name in _COLUMNS]
        query = f"SELECT {', '.join(wanted)} FROM trials WHERE state IN ({', '.join('?' * len(states))})"
        if experiments:
            query += f" AND experiment IN ({', '.join('?' * len(experiments))})"
        for found in self._db.execute(f"{query} ORDER BY id", (*states, *experiments)):
            trial = Trial(*found[:4])
            if trials is None or trial in trials:
                yield Row(trial, *found[4:])


_IDENTITY = ("experiment", "version", "parameters", "seed")
_COST = ("dtype", "seconds", "peak_mb", "versions", "machine", "ended")
_COLUMNS = (*_IDENTITY, "state", "record", "error", *_COST)


def _identity(trial: Trial) -> tuple[str, int, str, int]:
    return trial.experiment, trial.version, trial.parameters, trial.seed


def _inspect(path: Path) -> int | None:
    """The schema of an existing store, None where there is no file yet; refuses what is not ours, touching nothing."""
    if path.is_dir():
        raise InputError(f"the store must be a file, got the folder {path}")
    try:
        if not path.exists() or path.stat().st_size == 0:
            return None
    except OSError as error:
        raise InputError(f"cannot look at the store {path} ({_reason(error)}): choose another folder") from error
    refusal = f"{path} is not a store of wordsway"
    try:
        if _application(path) != APPLICATION:
            raise InputError(f"{refusal}, but another file: it was left as it is; choose another folder")
        db = _open_to_read(path)
        try:
            schema = _schema(db)
            if schema <= len(MIGRATIONS) and (damage := db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise sqlite3.DatabaseError(damage)
        finally:
            db.close()
    except (sqlite3.OperationalError, OSError) as error:
        raise InputError(f"cannot read the store {path} ({_reason(error)}): wait, or choose another folder") from error
    except sqlite3.DatabaseError as error:
        raise InputError(
            f"the store {path} is damaged ({_reason(error)}): it was left as it is; choose another folder"
        ) from error
    if schema > len(MIGRATIONS):
        raise InputError(
            f"the store {path} is of a newer wordsway (schema {schema}, this one knows {len(MIGRATIONS)}): "
            "it was left as it is; upgrade wordsway or choose another folder"
        )
    return schema


def _application(path: Path) -> int:
    """Whose SQLite file it is, from its first bytes: 0 if nobody's, or no such file at all."""
    with path.open("rb") as stream:
        header = stream.read(72)
    return int.from_bytes(header[68:72], "big") if header.startswith(b"SQLite format 3\0") else 0


def _open_to_read(path: Path) -> sqlite3.Connection:
    """A connection that cannot write; where the folder cannot be written it asks for no side files either."""
    writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    mode = "mode=rw" if writable else "mode=ro&immutable=1"
    db = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=60, isolation_level=None)
    db.execute("PRAGMA query_only = ON")
    return db


def _schema(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _columns(db: sqlite3.Connection) -> set[str]:
    return {column[1] for column in db.execute("PRAGMA table_info(trials)")}


@contextmanager
def _writing(db: sqlite3.Connection) -> Iterator[None]:
    """One transaction that holds the right to write from its start."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _reason(error: Exception) -> str:
    return str(error.strerror if isinstance(error, OSError) and error.strerror else error)
