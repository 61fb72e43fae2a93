"""Hand-made trials, rows and experiments, and functions that run in a process of their own."""

import json
import multiprocessing
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from wordsway.experiments.claims import above
from wordsway.experiments.experiment import Experiment, Trial, TrialResult, canonical, canonical_record
from wordsway.experiments.store import DONE, Row, Store

VERSIONS = '{"wordsway": "0.1", "python": "3.12"}'


def trial(seed: int = 0, experiment: str = "one", version: int = 1, **parameters: Any) -> Trial:
    return Trial(experiment, version, canonical(parameters), seed)


def row(of: Trial, state: str = DONE, value: float = 1.0, **changes: Any) -> Row:
    """A row that ended in some state: with the record {"value": value}, or with an error."""
    done = state == DONE
    made = Row(
        trial=of,
        state=state,
        record=canonical_record({"value": value}) if done else None,
        error=None if done else "ValueError: no",
        dtype="float32",
        seconds=2.0,
        peak_mb=300.0,
        versions=VERSIONS,
        machine="here",
    )
    return replace(made, **changes)


def record_of(experiment: Experiment, parameters: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    """The record of a trial as a store returns it."""
    record: dict[str, Any] = json.loads(canonical_record(experiment.trial(parameters, seed)))
    return record


def finished(seed: int, record: dict[str, Any], **parameters: Any) -> TrialResult:
    return TrialResult("one", parameters, seed, record)


def experiment(name: str = "one", **changes: Any) -> Experiment:
    """An experiment over n = 1, 2 whose trial gives n + seed, with the claim that all of them exceed 0."""
    made = Experiment(
        name=name,
        title=f"Title of {name}",
        about=f"About {name}.",
        trial=lambda parameters, seed: {"value": float(parameters["n"] + seed)},
        grid=lambda config: [{"n": 1}, {"n": 2}],
        trials={"quick": 2, "paper": 3},
        table=lambda found: [{"n": one["n"], "seed": one.seed, "value": one["value"]} for one in found],
        claims=lambda table: [above("every value exceeds 0", table, 0.0, "value")] if table else [],
        plot=_plot,
    )
    return replace(made, **changes)


def _plot(table: list[dict[str, Any]], figure: Any) -> None:
    figure.add_subplot().plot([row["n"] for row in table], [row["value"] for row in table])


# Stores


def sides(path: Path) -> list[str]:
    """The files beside a store."""
    return sorted(other.name for other in path.parent.iterdir() if other != path)


# Processes

# Fresh processes that have imported the store already, which takes seconds
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["wordsway.experiments.store"])


class Elsewhere:
    """A function at work in another process; what it yields comes through a pipe, one by one."""

    def __init__(self, work: Callable[..., Iterator[Any]], *arguments: Any) -> None:
        self._answers, there = _PROCESSES.Pipe(duplex=False)
        self.process = _PROCESSES.Process(target=_send, args=(there, work, arguments), daemon=True)
        self.process.start()
        there.close()

    def next(self) -> Any:
        return self._answers.recv()

    def rest(self) -> list[Any]:
        """Everything until it ends, or dies."""
        found = []
        try:
            while True:
                found.append(self.next())
        except EOFError:
            self.process.join(60)
            self._answers.close()
            self.process.close()
        return found

    def kill(self) -> None:
        self.process.kill()
        self.process.join(60)


def _send(pipe: Any, work: Callable[..., Iterator[Any]], arguments: tuple[Any, ...]) -> None:
    try:
        for result in work(*arguments):
            pipe.send(result)
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")


def add_all(path: Path, rows: list[Row] | None = None) -> Iterator[bool]:
    """Add rows to a store, by default without an end, and yield each time whether one was added."""
    with Store(path) as store:
        for one in (row(trial(seed)) for seed in count()) if rows is None else rows:
            yield store.add(one)


def add_until_full(path: Path, room: int) -> Iterator[Any]:
    """Add rows until no file may grow beyond `room` bytes, as on a full disk, and return the error."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    with Store(path) as store:
        for seed in count():
            store.add(row(trial(seed, n=1)))
            yield seed


def as_nobody(path: Path, readonly: bool, rows: list[Row]) -> Iterator[Any]:
    """Read a store, and add rows to it, as somebody whom permissions bind; root is bound by none."""
    _become_nobody()
    with Store(path, readonly) as store:
        yield [found.trial for found in store.rows()]
        for one in rows:
            yield store.add(one)


def page_as_nobody(folder: Path) -> Iterator[Any]:
    """Write the page of a folder as somebody whom permissions bind."""
    from wordsway.report.results import write_page

    with TemporaryDirectory() as name:
        write_page(Path(name))  # reads templates and codecs, which nobody may not be allowed to
    _become_nobody()
    yield write_page(folder)


def _become_nobody() -> None:
    if os.geteuid() == 0:
        os.setuid(65534)


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that everybody may look into; pytest's own are closed to others."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        try:
            yield folder
        finally:
            folder.chmod(0o777)
