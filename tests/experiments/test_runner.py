"""The runner: what it runs and what not, errors, interrupts, and a summary that agrees with the store."""

import io
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from experiments import trials
from wordsway.errors import InputError, WordswayError
from wordsway.experiments import RunConfig, Store, executors, run, runner
from wordsway.experiments.executors import Backend
from wordsway.experiments.store import DONE, FAILED, StoreError


@pytest.fixture(scope="module")
def threads() -> Iterator[Executor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


class Immediate(Executor):
    """Runs what is submitted at once, in this thread; `special` may return something else from the k-th trial on."""

    def __init__(self, workers: int, special: Callable[[int], Future[Any] | None] = lambda count: None) -> None:
        self._max_workers, self.special = workers, special
        self.submitted: list[Any] = []  # trials
        self.tasks: list[int] = []  # how many trials each had

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = self.special(len(self.submitted))
        trials = [trial for _, trial in args[0]]
        self.submitted += trials
        self.tasks.append(len(trials))
        if future is None:
            future = Future()
            future.set_result(fn(*args, **kwargs))
        return future


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


def _values(path: Path) -> dict[tuple[str, int, int], float]:
    rows = [row for row in trials.stored(path) if row["state"] == DONE]
    return {(row["experiment"], row["x"], row["seed"]): row["value"] for row in rows}


# What is run


def test_all_trials_are_run_once_and_their_records_are_stored(path: Path, threads: Executor) -> None:
    summary = run(trials.experiment(points=3, trials=4), path, threads)
    counts = {"planned": 12, "stored": 0, "done": 12, "failed": 0, "died": 0, "elsewhere": 0}
    assert summary.to_dict() == counts
    assert summary.complete
    expected = {("tiny", x, seed): trials.draw({"x": x}, seed)["value"] for x in range(3) for seed in range(4)}
    assert _values(path) == expected
    with Store(path, readonly=True) as store:
        rows = list(store.rows())
    assert len(rows) == 12
    for row in rows:
        assert (row.seconds or 0) > 0
        assert (row.peak_mb or 0) > 10
        assert row.machine
        assert '"torch"' in row.versions


def test_stored_trials_are_not_run_again_and_more_are_those_of_one_long_run(path: Path, threads: Executor) -> None:
    planned = trials.experiment()
    run(planned, path, threads)
    before = trials.stored(path)
    unused = Immediate(1)
    summary = run(planned, path, unused)
    assert (summary.stored, summary.done, summary.complete, unused.submitted) == (8, 0, True, [])
    assert trials.stored(path) == before
    with Store(path) as store:
        summary = run(planned, store, threads, config=RunConfig(trials=5))
    assert (summary.stored, summary.done) == (8, 12)
    run(planned, path.with_name("at-once"), threads, config=RunConfig(trials=5))
    assert trials.stored(path) == trials.stored(path.with_name("at-once"))


def test_scale_seed_and_version_decide_which_trials_there_are(path: Path, threads: Executor) -> None:
    planned = trials.experiment(points=2, trials=2)
    run(planned, path, threads)
    summary = run(planned, path, threads, config=RunConfig("paper", seed=1))
    assert (summary.planned, summary.stored, summary.done) == (8, 2, 6)  # seed 1 of two of the four points was there
    assert run(trials.experiment(points=2, trials=2, version=2), path, threads).done == 4


def test_needed_experiments_are_run_too_and_shared_ones_once(path: Path, threads: Executor) -> None:
    base = trials.experiment(name="base")
    first, second = (trials.experiment(name=name, needs=(base,)) for name in ("first", "second"))
    summary = run([first, second], path, threads)
    assert (summary.planned, summary.done) == (24, 24)
    assert {name for name, _, _ in _values(path)} == {"base", "first", "second"}
    assert run(base, path, threads).stored == 8


def test_trials_are_submitted_in_random_order(path: Path) -> None:
    orders = []
    for name in ("one", "two"):
        pool = Immediate(1)
        run(trials.experiment(points=6, trials=10), path.with_name(name), pool)
        orders.append(pool.submitted)
    assert set(orders[0]) == set(orders[1])
    assert orders[0] != orders[1]


def test_at_most_two_trials_per_worker_are_submitted_at_once(path: Path) -> None:
    class Counting(ThreadPoolExecutor):
        running: frozenset[Future[Any]] = frozenset()
        most = 0

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            future = super().submit(fn, *args, **kwargs)
            self.running = frozenset([*(one for one in self.running if not one.done()), future])
            self.most = max(self.most, len(self.running))
            return future

    with Counting(3) as pool:
        run(trials.experiment(trials.slow, trials=10), path, pool)
    assert 3 <= pool.most <= 6


def test_what_another_run_finished_meanwhile_is_not_run_again(path: Path) -> None:
    planned = trials.experiment(points=4, trials=5)

    def finish_all(count: int) -> None:
        if count == 0:
            run(planned, path, Immediate(1))

    pool = Immediate(1, finish_all)
    summary = run(planned, path, pool)
    assert len(pool.submitted) <= 1
    assert (summary.done, summary.stored, summary.complete) == (0, 0, True)


# Several trials in one task


def _batching(pool: Executor, workers: int = 2, seconds: float = 0.5) -> Backend:
    return Backend("there", workers, lambda _: nullcontext(pool), batch=seconds)


def test_short_trials_share_tasks_and_the_last_ones_are_shared_among_workers(path: Path) -> None:
    pool = Immediate(2)
    summary = run(trials.experiment(points=2, trials=1000), path, _batching(pool))
    assert (summary.done, summary.complete, len(pool.submitted)) == (2000, True, 2000)
    assert pool.tasks[0] == 1  # nothing is known yet of what a trial takes
    assert max(pool.tasks) == runner._LARGEST
    assert len(pool.tasks) < 100
    assert pool.tasks[-1] == 1
    expected = {("tiny", x, seed): trials.draw({"x": x}, seed)["value"] for x in range(2) for seed in range(1000)}
    assert _values(path) == expected


def test_a_task_is_about_as_long_as_it_may_be(path: Path) -> None:
    pool = Immediate(1)
    run(trials.experiment(trials.slow, points=1, trials=40), path, _batching(pool, 1, 0.1))
    assert 2 <= max(pool.tasks) <= 4  # of 20 ms each
    pool = Immediate(1)
    run(trials.experiment(trials.slow, points=1, trials=10), path.with_name("long"), _batching(pool, 1, 0.01))
    assert pool.tasks == [1] * 10


def test_a_failing_trial_does_not_fail_those_of_its_task(path: Path) -> None:
    flag = path.with_name("flag")
    flag.touch()
    pool = Immediate(1)
    summary = run(trials.experiment(trials.flagged, points=2, trials=100, flag=str(flag)), path, _batching(pool))
    assert max(pool.tasks) > 10
    assert (summary.done, summary.failed, summary.died) == (100, 100, 0)
    assert {row["x"] for row in trials.stored(path) if row["state"] == FAILED} == {1}


class KilledWorker(Exception):
    """Named like Dask's error for a task whose worker died."""


@pytest.mark.parametrize("error", [OSError("the way back is closed"), KilledWorker()])
def test_the_trials_of_a_lost_task_are_run_again_alone(path: Path, error: Exception) -> None:
    def lose(count: int) -> Future[Any] | None:
        lost: Future[Any] = Future()
        lost.set_exception(error)
        return lost if 20 < count < 100 else None

    pool = Immediate(1, lose)
    summary = run(trials.experiment(points=1, trials=300), path, _batching(pool))
    assert (summary.done, summary.failed, summary.complete) == (300, 0, True)
    assert len(pool.submitted) > 300
    assert len(_values(path)) == len(trials.stored(path)) == 300


def test_an_interrupt_between_tasks_of_many_trials_loses_and_doubles_nothing(path: Path) -> None:
    def interrupt(count: int) -> Future[Any] | None:
        if count > 100:
            raise KeyboardInterrupt
        return None

    planned, pool = trials.experiment(points=1, trials=500), Immediate(2, interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(planned, path, _batching(pool))
    there = trials.count(path)
    assert there == sum(pool.tasks) > 100
    summary = run(planned, path, _batching(Immediate(2)))
    assert (summary.stored, summary.done) == (there, 500 - there)
    assert len(_values(path)) == len(trials.stored(path)) == 500


# Errors


def test_a_failing_trial_is_recorded_with_its_error_and_run_again_the_next_time(path: Path, threads: Executor) -> None:
    flag = path.with_name("flag")
    flag.touch()
    planned = trials.experiment(trials.flagged, points=3, flag=str(flag))
    summary = run(planned, path, threads)
    assert (summary.done, summary.failed, summary.died, summary.complete) == (2, 4, 0, False)
    assert len(summary.problems) == 4
    for row in summary.problems:
        assert (row.state, row.record) == (FAILED, None)
        assert re.fullmatch(r"ValueError: no answer for [12] \(trials\.py:\d+\)", str(row.error))
        assert row.seconds is not None  # it failed in the trial, which took some time
    flag.unlink()
    summary = run(planned, path, threads)
    assert (summary.stored, summary.done, summary.failed, summary.complete) == (2, 4, 0, True)
    assert [row["state"] for row in trials.stored(path)].count(FAILED) == 4  # rows are never deleted


def test_trials_that_return_no_plain_record_or_exit_fail(path: Path, threads: Executor) -> None:
    summary = run(trials.experiment(trials.not_plain, points=6, trials=1), path, threads)
    assert (summary.done, summary.failed) == (0, 6)
    errors = {row["x"]: row["error"] for row in trials.stored(path)}
    parts = ("float64 for 'value'", "finite numbers, got nan", "complex for 'value.0'", "to_dict(), got float", "key 7")
    for x, part in enumerate(parts):
        assert part in errors[x]
        assert errors[x].startswith("InputError: a record must ")
    assert errors[5].startswith("SystemExit: 3 (trials.py:")


def test_an_error_of_the_executor_itself_is_recorded(path: Path) -> None:
    def lose(count: int) -> Future[Any] | None:
        lost: Future[Any] = Future()
        lost.set_exception(OSError("the way\nback is closed"))
        return lost if count == 1 else None

    summary = run(trials.experiment(points=3, trials=1), path, Immediate(2, lose))
    assert (summary.done, summary.failed) == (2, 1)
    assert summary.problems[0].error == "OSError: the way back is closed"


def test_an_executor_must_be_one(path: Path) -> None:
    for executor in (4, "tcp://127.0.0.1:8786", executors.dask("tcp://127.0.0.1:8786")):
        wrong: Any = executor
        with pytest.raises(InputError, match=r"^executor must be a concurrent\.futures\.Executor, got \w+$"):
            run(trials.experiment(), path, wrong)


def _cancelled(count: int) -> Future[Any] | None:
    cancelled: Future[Any] = Future()
    cancelled.cancel()
    cancelled.set_running_or_notify_cancel()
    return cancelled if count >= 3 else None


def _shut_down(count: int) -> Future[Any] | None:
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    return pool.submit(int) if count >= 3 else None


@pytest.mark.parametrize(
    ("special", "reason"),
    [(_cancelled, "trials were cancelled"), (_shut_down, "RuntimeError: cannot schedule .* shutdown")],
)
def test_an_executor_that_is_shut_down_is_one_line_and_no_trial_is_blamed(
    path: Path, special: Callable[[int], Future[Any] | None], reason: str
) -> None:
    message = rf"^Immediate takes no more trials \({reason}\): run it again with a new one$"
    with pytest.raises(WordswayError, match=message):
        run(trials.experiment(trials=10), path, Immediate(1, special))
    assert {row["state"] for row in trials.stored(path)} == {DONE}


def test_a_lost_connection_is_one_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A future whose result is lost on the way never ends."""
    monkeypatch.setattr(runner, "POLL", 0.01)
    polls: list[int] = []

    def disconnected() -> bool:
        polls.append(trials.count(path))
        return len(polls) == 3

    silent = Immediate(1, lambda count: Future() if count >= 6 else None)
    backend = Backend("there", 1, lambda _: nullcontext(silent), disconnected=disconnected)
    message = r"^there takes no more trials \(the connection is lost\): run it again with a new one$"
    with pytest.raises(WordswayError, match=message):
        run(trials.experiment(trials=10), path, backend)
    assert polls == [6, 6, 6]
    assert {row["state"] for row in trials.stored(path)} == {DONE}


@pytest.mark.parametrize("disconnected", [True, False])
def test_an_executor_that_takes_nothing_is_one_line_where_the_connection_is_lost(
    path: Path, disconnected: bool
) -> None:
    def refuse(count: int) -> Future[Any] | None:
        raise ValueError("closed")

    backend = Backend("there", 1, lambda _: nullcontext(Immediate(1, refuse)), disconnected=lambda: disconnected)
    message = r"^there takes no more trials \(ValueError: closed\)" if disconnected else "^closed$"
    with pytest.raises(WordswayError if disconnected else ValueError, match=message):
        run(trials.experiment(), path, backend)


def test_a_store_that_cannot_be_written_ends_the_run_and_cancels_the_rest(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Store, row: Any) -> bool:
        raise StoreError("no space")

    waiting: list[Future[Any]] = []

    def wait(count: int) -> Future[Any] | None:
        if count == 1:
            return None
        waiting.append(Future())
        return waiting[-1]

    monkeypatch.setattr(Store, "add", full)
    with pytest.raises(StoreError, match="no space"):
        run(trials.experiment(), path, Immediate(2, wait))
    assert len(waiting) == 3
    assert all(future.cancelled() for future in waiting)


# Interrupts, and several runs on one store


def test_an_interrupt_reports_what_is_stored_and_keeps_what_has_ended(path: Path) -> None:
    def interrupt(count: int) -> Future[Any] | None:
        if count == 7:
            raise KeyboardInterrupt
        return None

    planned = trials.experiment(trials=10)
    with pytest.raises(KeyboardInterrupt) as stopped:
        run(planned, path, Immediate(50, interrupt))
    assert str(stopped.value) == "interrupted: 7 of 40 trials are stored, run the same command again to continue"
    summary = run(planned, path, Immediate(4))
    assert (summary.stored, summary.done) == (7, 33)


# The progress bar


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("screen", "progress", "shown"),
    [(_Terminal(), True, True), (io.StringIO(), True, False), (_Terminal(), False, False)],
)
def test_the_bar_is_for_terminals(
    path: Path, threads: Executor, monkeypatch: pytest.MonkeyPatch, screen: io.StringIO, progress: bool, shown: bool
) -> None:
    monkeypatch.setattr(sys, "stderr", screen)
    run(trials.experiment(trials.flagged, points=2, flag="/"), path, threads, progress=progress)
    printed = screen.getvalue()
    assert (("trials:" in printed), ("2 failed" in printed)) == (shown, shown)
    assert printed.split("\r")[-1].strip() == ""


def test_without_a_terminal_progress_is_lines(
    path: Path, threads: Executor, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("wordsway.experiments.runner._LINE", 0.0)
    run(trials.experiment(trials.flagged, points=2, flag="/"), path, threads, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines
    pattern = r"\d of 4 trials after 0\.0 min(, about 0 min left)?"
    assert [line for line in lines if not re.fullmatch(pattern, line)] == []
