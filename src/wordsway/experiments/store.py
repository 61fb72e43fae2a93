"""The store: one SQLite file, one row for each trial that ended, appended and never rewritten.

A row is identified by (experiment, version, parameters, seed). A trial that failed or died leaves a row too and may be
tried again; of a finished one there is never a second row, whatever runs at once. Every row is committed when it
arrives, in write-ahead mode: what was committed survives the death of the process.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

from wordsway.errors import InputError, WordswayError
from wordsway.experiments.experiment import Estimate, Trial, TrialResult

APPLICATION = 0x77737761  # "wswa": how SQLite files are told apart
DONE, FAILED, DIED = "done", "failed", "died"
STATES = (DONE, FAILED, DIED)
_PATIENCE = 60.0  # seconds that a connection waits for others

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
        """A flat row: identity, parameters, record, then cost and origin.

        A parameter or an entry of the record that is named like a column is called parameter_NAME or record_NAME.
        """
        trial = self.trial
        versions = {f"{name}_version": version for name, version in _parsed(self.versions, trial).items()}
        origin = {"machine": self.machine, "ended": self.ended, **versions}
        cost = {"dtype": self.dtype, "seconds": self.seconds, "peak_mb": self.peak_mb, "error": self.error, **origin}
        taken = {"experiment", "version", "seed", "state", *cost}
        parameters = _beside(taken, "parameter", _parsed(trial.parameters, trial))
        record = _beside(taken | set(parameters), "record", _parsed(self.record, trial) if self.record else {})
        head = {"experiment": trial.experiment, "version": trial.version}
        return {**head, **parameters, "seed": trial.seed, "state": self.state, **record, **cost}


def _beside(taken: set[str], kind: str, values: dict[str, Any]) -> dict[str, Any]:
    return {f"{kind}_{name}" if name in taken else name: value for name, value in values.items()}


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
        if readonly and known is None:
            raise InputError(f"there are no results at {self.path}: run `wordsway reproduce` first")
        self._db = _open_to_read(self.path) if readonly else _open_to_write(self.path)
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

    def add(self, row: Row) -> bool:
        """Append a row and commit it; False where the trial was finished before, by this run or another one."""
        error = None if row.error is None else row.error.encode(errors="backslashreplace").decode()
        rest = (row.record, error, row.dtype, row.seconds, row.peak_mb, row.versions, row.machine)
        values = (*_identity(row.trial), row.state, *rest, row.ended or _now())
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
                "make room or give it a writable folder, then run the same command again"
            ) from problem

    def has(self, trial: Trial) -> bool:
        """Whether the trial is finished."""
        where = " AND ".join(f"{name} = ?" for name in _IDENTITY)
        query = f"SELECT 1 FROM trials WHERE {where} AND state = 'done'"
        return bool(self._ask(query, _identity(trial)))

    def finished(self, experiment: str, version: int) -> set[Trial]:
        """All finished trials of an experiment."""
        query = "SELECT parameters, seed FROM trials WHERE experiment = ? AND version = ? AND state = 'done'"
        found = self._ask(query, (experiment, version))
        return {Trial(experiment, version, parameters, seed) for parameters, seed in found}

    def records(self, trials: Sequence[Trial]) -> list[TrialResult]:
        """The records of those trials that are finished, in the given order."""
        query = "SELECT parameters, seed, record FROM trials WHERE experiment = ? AND version = ? AND state = 'done'"
        known: dict[Trial, str] = {}
        for experiment, version in dict.fromkeys((trial.experiment, trial.version) for trial in trials):
            for parameters, seed, record in self._ask(query, (experiment, version)):
                known[Trial(experiment, version, parameters, seed)] = record
        return [
            TrialResult(trial.experiment, json.loads(trial.parameters), trial.seed, _parsed(known[trial], trial))
            for trial in trials
            if trial in known
        ]

    def costs(self, experiment: str, version: int) -> dict[str, Estimate]:
        """What finished trials took, by parameters: mean seconds, largest memory."""
        query = """SELECT parameters, avg(seconds), max(peak_mb) FROM trials
            WHERE experiment = ? AND version = ? AND state = 'done'
            GROUP BY parameters HAVING count(seconds) AND count(peak_mb)"""
        found = self._ask(query, (experiment, version))
        return {parameters: Estimate(seconds, int(1e6 * peak)) for parameters, seconds, peak in found}

    def experiments(self) -> list[str]:
        """The names of the experiments that have rows, in the order they first came."""
        found = self._ask("SELECT experiment FROM trials GROUP BY experiment ORDER BY min(id)", ())
        return [name for (name,) in found]

    def rows(
        self, experiments: Sequence[str] = (), states: Sequence[str] = STATES, trials: set[Trial] | None = None
    ) -> Iterator[Row]:
        """Rows in the order they arrived, of some experiments (all if none is named), states and trials."""
        wanted = [name if name in self._columns else f"NULL AS {name}" for name in _COLUMNS]
        query = f"SELECT {', '.join(wanted)} FROM trials WHERE state IN ({', '.join('?' * len(states))})"
        if experiments:
            query += f" AND experiment IN ({', '.join('?' * len(experiments))})"
        for found in self._ask(f"{query} ORDER BY id", (*states, *experiments)):
            trial = Trial(*found[:4])
            if trials is None or trial in trials:
                yield Row(trial, *found[4:])

    def _ask(self, query: str, values: Sequence[str | int]) -> list[Any]:
        try:
            return self._db.execute(query, values).fetchall()
        except (sqlite3.Error, UnicodeError) as error:
            raise StoreError(
                f"cannot read the store {self.path} ({_reason(error)}): it was left as it is; choose another folder"
            ) from error


_IDENTITY = ("experiment", "version", "parameters", "seed")
_COST = ("dtype", "seconds", "peak_mb", "versions", "machine", "ended")
_COLUMNS = (*_IDENTITY, "state", "record", "error", *_COST)


def _identity(trial: Trial) -> tuple[str, int, str, int]:
    return trial.experiment, trial.version, trial.parameters, trial.seed


def _inspect(path: Path) -> int | None:
    """The schema of an existing store, None where there is no file yet; refuses what is not ours, touching nothing."""
    try:
        if path.is_dir():
            raise InputError(f"the store must be a file, got the folder {path}")
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
            if schema <= len(MIGRATIONS) and (damage := _damage(path, db)) != "ok":
                raise sqlite3.DatabaseError(damage)
        finally:
            db.close()
    except (sqlite3.OperationalError, OSError) as error:
        raise InputError(f"cannot read the store {path} ({_reason(error)}): wait, or choose another folder") from error
    except (sqlite3.DatabaseError, UnicodeError) as error:
        raise InputError(
            f"the store {path} is damaged ({_reason(error)}): it was left as it is; choose another folder"
        ) from error
    if schema > len(MIGRATIONS):
        raise InputError(
            f"the store {path} is of a newer wordsway (schema {schema}, this one knows {len(MIGRATIONS)}): "
            "it was left as it is; upgrade wordsway or choose another folder"
        )
    return schema or None  # 0: a process died while it made the file


def _application(path: Path) -> int:
    """Whose SQLite file it is, from its first bytes: 0 if nobody's, or no such file at all."""
    with path.open("rb") as stream:
        header = stream.read(72)
    return int.from_bytes(header[68:72], "big") if header.startswith(b"SQLite format 3\0") else 0


def _open_to_read(path: Path) -> sqlite3.Connection:
    """A connection that cannot write; where the folder cannot be written it asks for no side files either.

    Side files that are there hold rows which are not in the file yet: then they are read too.
    """
    mode = "mode=ro" if _aside(path) else "mode=ro&immutable=1"
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        mode = "mode=rw"
    db = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=_PATIENCE, isolation_level=None)
    db.execute("PRAGMA query_only = ON")
    return db


def _aside(path: Path) -> bool:
    """Whether a side file holds rows."""
    beside = path.with_name(f"{path.name}-wal")
    return beside.exists() and beside.stat().st_size > 0


def _damage(path: Path, db: sqlite3.Connection) -> str:
    """What is wrong with a store, as far as can be seen without comparing every value: "ok" if nothing is."""
    _columns(db)  # readable at all
    if path.stat().st_size % db.execute("PRAGMA page_size").fetchone()[0] and not _aside(path):
        return "it ends within a page"
    return str(db.execute("PRAGMA quick_check(1)").fetchone()[0])


def _open_to_write(path: Path) -> sqlite3.Connection:
    """A connection to a store of the present schema, made or migrated where it has to be."""
    db = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
        _migrate(db)  # before write-ahead mode, so that the file itself says from the start whose it is
        _write_ahead(db)
        return db
    except (sqlite3.Error, OSError) as error:
        if db is not None:
            db.close()
        raise StoreError(
            f"cannot write the store {path} ({_reason(error)}): choose another folder, or free this one"
        ) from error


def _migrate(db: sqlite3.Connection) -> None:
    """Take the missing steps, all in one transaction: the file has the old schema or the new one."""
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
    """Switch to write-ahead mode; SQLite itself does not wait for others here, whatever its timeout is."""
    end = time.monotonic() + _PATIENCE
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


def _parsed(text: str, trial: Trial) -> dict[str, Any]:
    """The JSON of a row; bytes that changed on the disk may have left something else."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise StoreError(
            f"the store is damaged (a row of {trial.experiment} with seed {trial.seed} holds {text[:40]!r}): "
            "choose another folder"
        )
    return found


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _reason(error: Exception) -> str:
    said = str(error.strerror if isinstance(error, OSError) and error.strerror else error)
    return " ".join(said.split())
