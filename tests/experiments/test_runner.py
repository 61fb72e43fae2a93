"""The runner: what is run and what is not, what becomes of errors, and a summary that agrees with the store."""

import io
import re
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from experiments import trials
from wordsway.errors import InputError, WordswayError
from wordsway.experiments import RunConfig, Store, executors, run, runner
from wordsway.experiments.store import DONE, FAILED, StoreError


@pytest.fixture(scope="module")
def threads() -> Iterator[Executor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


class Immediate(Executor):
    """Runs what is submitted at once, in this thread."""

    def __init__(self, workers: int) -> None:
        self._max_workers = workers
        self.count = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.count += 1
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


def _values(path: Path) -> dict[tuple[str, int, int], float]:
    return {
        (row["experiment"], row["x"], row["seed"]): row["value"] for row in trials.stored(path) if row["state"] == DONE
    }


# What is run


def test_all_trials_are_run_once_and_their_records_are_stored(path: Path, threads: Executor) -> None:
    summary = run(trials.experiment(points=3, trials=4), path, threads)
    assert (summary.planned, summary.stored, summary.done, summary.failed, summary.died, summary.elsewhere) == (
        12,
        0,
        12,
        0,
        0,
        0,
    )
    assert summary.complete
    expected = {("tiny", x, seed): trials.draw({"x": x}, seed)["value"] for x in range(3) for seed in range(4)}
    assert _values(path) == expected
    assert len(trials.stored(path)) == 12
    with Store(path, readonly=True) as store:
        for row in store.rows():
            assert row.seconds is not None
            assert row.seconds > 0
            assert row.peak_mb is not None
            assert row.peak_mb > 10
            assert row.machine
            assert '"torch"' in row.versions


def test_a_second_run_does_nothing(path: Path, threads: Executor) -> None:
    asked = trials.experiment()
    run(asked, path, threads)
    before = trials.stored(path)

    class Unused(Executor):
        pass

    summary = run(asked, path, Unused())
    assert (summary.stored, summary.done, summary.elsewhere) == (8, 0, 0)
    assert summary.complete
    assert trials.stored(path) == before


def test_more_trials_later_add_only_the_new_ones_and_are_those_of_one_long_run(
    path: Path, tmp_path: Path, threads: Executor
) -> None:
    asked = trials.experiment()
    run(asked, path, threads, config=RunConfig(trials=2))
    with Store(path) as store:
        summary = run(asked, store, threads, config=RunConfig(trials=5))
    assert (summary.stored, summary.done) == (8, 12)
    run(asked, tmp_path / "at-once.sqlite", threads, config=RunConfig(trials=5))
    assert trials.stored(path) == trials.stored(tmp_path / "at-once.sqlite")


def test_scale_seed_and_version_decide_which_trials_there_are(path: Path, threads: Executor) -> None:
    asked = trials.experiment(points=2, trials=2)
    run(asked, path, threads)
    summary = run(asked, path, threads, config=RunConfig("paper", seed=1))
    assert (summary.planned, summary.stored, summary.done) == (8, 2, 6)  # seed 1 of two of the four points was there
    assert {(x, seed) for _, x, seed in _values(path)} == {(x, s) for x in range(4) for s in (1, 2)} | {(0, 0), (1, 0)}
    newer = trials.experiment(points=2, trials=2, version=2)
    assert run(newer, path, threads).done == 4
    assert run(newer, path, threads).stored == 4


def test_experiments_that_are_needed_are_run_too_and_shared_ones_once(path: Path, threads: Executor) -> None:
    base = trials.experiment(name="base")
    first, second = (trials.experiment(name=name, needs=(base,)) for name in ("first", "second"))
    summary = run([first, second], path, threads)
    assert (summary.planned, summary.done) == (24, 24)
    assert {name for name, _, _ in _values(path)} == {"base", "first", "second"}
    assert run(base, path, threads).stored == 8


def test_trials_go_out_in_random_order(path: Path) -> None:
    class Noting(ThreadPoolExecutor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            order.append((args[1].parameters, args[1].seed))
            return super().submit(fn, *args, **kwargs)

    orders = []
    for name in ("one", "two"):
        order: list[tuple[str, int]] = []
        with Noting(1) as pool:
            run(trials.experiment(points=6, trials=10), path.with_name(name), pool)
        orders.append(order)
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]


def test_few_trials_are_under_way_at_once(path: Path) -> None:
    under_way = most = 0
    lock = threading.Lock()

    class Counting(ThreadPoolExecutor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            nonlocal under_way, most
            with lock:
                under_way += 1
                most = max(most, under_way)
            future = super().submit(fn, *args, **kwargs)
            future.add_done_callback(ended)
            return future

    def ended(future: Future[Any]) -> None:
        nonlocal under_way
        with lock:
            under_way -= 1

    with Counting(3) as pool:
        run(trials.experiment(trials=20), path, pool)
    assert 3 <= most <= 6


# Errors


def test_a_failing_trial_is_recorded_with_its_error_and_place_and_repeated_by_the_next_run(
    path: Path, tmp_path: Path, threads: Executor
) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    asked = trials.experiment(trials.flagged, points=3, flag=str(flag))
    summary = run(asked, path, threads)
    assert (summary.done, summary.failed, summary.died) == (2, 4, 0)
    assert not summary.complete
    assert len(summary.problems) == 4
    for row in summary.problems:
        assert row.state == FAILED
        assert row.record is None
        assert re.fullmatch(r"ValueError: no answer for [12] \(trials\.py:\d+\)", str(row.error))
        assert row.seconds is not None  # it failed in the trial, which took a time
    flag.unlink()
    summary = run(asked, path, threads)
    assert (summary.stored, summary.done, summary.failed) == (2, 4, 0)
    assert summary.complete
    assert [row["state"] for row in trials.stored(path)].count(FAILED) == 4  # what happened stays


def test_records_that_are_not_plain_fail(path: Path, threads: Executor) -> None:
    summary = run(trials.experiment(trials.not_plain, points=5, trials=1), path, threads)
    assert (summary.done, summary.failed) == (0, 5)
    found = {row["x"]: row["error"] for row in trials.stored(path)}
    said = ("float64 for 'value'", "finite numbers, got nan", "complex for 'value.0'", "to_dict(), got float", "key 7")
    for x, words in enumerate(said):
        assert words in found[x]
        assert found[x].startswith("InputError: a record must ")


def test_a_trial_that_exits_fails_and_does_not_end_the_run(path: Path, threads: Executor) -> None:
    summary = run(trials.experiment(trials.leave, points=2, trials=1), path, threads)
    assert summary.failed == 2
    assert str(summary.problems[0].error).startswith("SystemExit: 3 (trials.py:")


def test_what_the_executor_itself_cannot_do_fails(path: Path) -> None:
    class Lossy(ThreadPoolExecutor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            if args[1].parameters != '{"x": 1}':
                return super().submit(fn, *args, **kwargs)
            lost: Future[Any] = Future()
            lost.set_exception(OSError("the way\nback is closed"))
            return lost

    with Lossy(2) as pool:
        summary = run(trials.experiment(points=3, trials=1), path, pool)
    assert (summary.done, summary.failed) == (2, 1)
    assert summary.problems[0].error == "OSError: the way back is closed"


@pytest.mark.parametrize("executor", [4, "tcp://127.0.0.1:8786", executors.dask("tcp://127.0.0.1:8786")])
def test_what_is_no_executor_is_refused(path: Path, executor: Any) -> None:
    with pytest.raises(InputError, match=r"^executor must be a concurrent\.futures\.Executor, got \w+$"):
        run(trials.experiment(), path, executor)


@pytest.mark.parametrize("workers", [0, -1, 1.5, "2"])
def test_a_number_of_workers_that_makes_no_sense_is_refused(workers: Any) -> None:
    with pytest.raises(InputError, match=rf"^workers must be an integer >= 1, got {workers!r}$"):
        executors.local(workers)


def test_an_executor_that_was_shut_down_is_one_line(path: Path) -> None:
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    said = r"^ThreadPoolExecutor takes no more trials \(RuntimeError: cannot schedule .* after shutdown\): run it again"
    with pytest.raises(WordswayError, match=said):
        run(trials.experiment(), path, pool)


def test_an_executor_that_is_shut_down_meanwhile_is_one_line_and_nothing_is_recorded_as_died(path: Path) -> None:
    class Closing(Immediate):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            future = super().submit(fn, *args, **kwargs)
            if self.count > 3:
                future = Future()
                future.cancel()
                future.set_running_or_notify_cancel()
            return future

    said = r"^Closing takes no more trials \(trials were cancelled\): run it again with a new one$"
    with pytest.raises(WordswayError, match=said):
        run(trials.experiment(trials=10), path, Closing(1))
    assert [row["state"] for row in trials.stored(path)] == [DONE] * 3


def test_a_place_that_goes_away_without_a_word_is_one_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A future whose outcome is lost on the way never ends."""
    monkeypatch.setattr(runner, "POLL", 0.01)
    asked: list[int] = []

    class Silent(Immediate):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            return Future() if self.count == 6 else super().submit(fn, *args, **kwargs)

    def gone() -> bool:
        asked.append(trials.count(path))
        return len(asked) == 3

    lost = executors.Backend("there", 1, lambda _: nullcontext(Silent(1)), disconnected=gone)
    said = r"^there takes no more trials \(the connection is lost\): run it again with a new one$"
    with pytest.raises(WordswayError, match=said):
        run(trials.experiment(trials=10), path, lost)
    assert asked == [6, 6, 6]
    assert {row["state"] for row in trials.stored(path)} == {DONE}


def test_a_place_that_takes_nothing_since_it_has_gone_is_one_line(path: Path) -> None:
    class Closed(Executor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            raise ValueError("closed")

    def place(gone: bool) -> executors.Backend:
        return executors.Backend("there", 1, lambda _: nullcontext(Closed()), disconnected=lambda: gone)

    with pytest.raises(WordswayError, match=r"^there takes no more trials \(ValueError: closed\)"):
        run(trials.experiment(), path, place(True))
    with pytest.raises(ValueError, match="closed"):
        run(trials.experiment(), path, place(False))


def test_when_the_store_cannot_be_written_the_run_ends_and_what_waited_is_cancelled(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Store, row: Any) -> bool:
        raise StoreError("no space")

    futures: list[Future[Any]] = []

    class Stuck(Executor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            futures.append(Future())
            if len(futures) == 2:
                futures[1].set_result(fn(*args, **kwargs))
            return futures[-1]

    monkeypatch.setattr(Store, "add", full)
    with pytest.raises(StoreError, match="no space"):
        run(trials.experiment(), path, Stuck())
    assert len(futures) >= 2
    assert [future.cancelled() for future in futures] == [place != 1 for place in range(len(futures))]


# Interrupts, and others at the same store


def test_an_interrupt_says_what_is_stored_and_keeps_what_has_ended(path: Path) -> None:
    class Interrupted(Immediate):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            if self.count == 7:
                raise KeyboardInterrupt
            return super().submit(fn, *args, **kwargs)

    asked = trials.experiment(trials=10)
    with pytest.raises(KeyboardInterrupt) as stopped:
        run(asked, path, Interrupted(50))
    assert str(stopped.value) == "interrupted: 7 of 40 trials are stored, run the same command again to go on"
    summary = run(asked, path, Immediate(4))
    assert (summary.stored, summary.done) == (7, 33)


def test_two_runs_on_one_store_share_the_trials(path: Path, tmp_path: Path, threads: Executor) -> None:
    asked = trials.experiment(trials.slow, trials=40)
    summaries = []
    start = threading.Barrier(2)

    def one() -> None:
        start.wait()
        with ThreadPoolExecutor(2) as pool:
            summaries.append(run(asked, path, pool))

    both = [threading.Thread(target=one) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert len(summaries) == 2
    assert sum(summary.done for summary in summaries) == 160
    assert all(summary.complete for summary in summaries)
    assert all(summary.elsewhere > 0 for summary in summaries)
    run(asked, tmp_path / "alone.sqlite", threads)
    assert trials.stored(path) == trials.stored(tmp_path / "alone.sqlite")


# The bar


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "progress", "shown"), [(_Terminal, True, True), (io.StringIO, True, False), (_Terminal, False, False)]
)
def test_the_bar_is_for_terminals(
    path: Path,
    threads: Executor,
    monkeypatch: pytest.MonkeyPatch,
    stream: type[io.StringIO],
    progress: bool,
    shown: bool,
) -> None:
    screen = stream()
    monkeypatch.setattr(sys, "stderr", screen)
    run(trials.experiment(trials.flagged, points=2, flag="/"), path, threads, progress=progress)
    said = screen.getvalue()
    assert ("trials:" in said) is shown
    assert ("2 failed" in said) is shown
    assert said.split("\r")[-1].strip() == ""
