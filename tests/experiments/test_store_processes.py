"""One store and several processes: every trial once, nothing lost, also when a process is killed."""

import sqlite3
import threading
from pathlib import Path

import pytest

from experiments.made import Elsewhere, add_all, add_for_ever, row, sides, trial
from wordsway.experiments.store import FAILED, Store


@pytest.mark.parametrize("known", [True, False], ids=["store is there", "store is made at once"])
def test_processes_add_the_same_and_different_trials(tmp_path: Path, known: bool) -> None:
    path = tmp_path / "store.sqlite"
    if known:
        Store(path).close()
    same = [row(trial(seed)) for seed in range(40)]
    own = [[row(trial(seed, n=k)) for seed in range(40)] for k in range(3)]
    workers = [Elsewhere(add_all, path, [one for pair in zip(same, mine, strict=True) for one in pair]) for mine in own]
    answers = [worker.rest() for worker in workers]
    assert [len(given) for given in answers] == [80] * 3
    assert all(all(given[1::2]) for given in answers)  # its own trials
    assert [sum(given) for given in zip(*(one[::2] for one in answers), strict=True)] == [1] * 40  # one of them each
    with Store(path, readonly=True) as store:
        rows = list(store.rows())
        assert len(rows) == len({one.trial for one in rows}) == 4 * 40
    assert sides(path) == []


def test_opening_waits_for_somebody_who_has_the_right_to_write_before_write_ahead_mode(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    Store(path).close()
    writer = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    assert writer.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    writer.execute("BEGIN IMMEDIATE")
    leave = threading.Timer(0.2, writer.execute, ["COMMIT"])
    leave.start()
    with Store(path) as store:
        assert store.add(row(trial()))
        assert "store.sqlite-wal" in sides(path)
    leave.join()
    writer.close()
    assert sides(path) == []


@pytest.mark.parametrize("round_", range(3))
def test_what_was_added_outlives_a_killed_process(tmp_path: Path, round_: int) -> None:
    path = tmp_path / "store.sqlite"
    worker = Elsewhere(add_for_ever, path)
    told = [worker.next() for _ in range(1 + 60 * round_)]
    worker.kill()
    told += worker.rest()
    assert all(told)
    with Store(path) as store:
        kept = store.finished("one", 1)
        assert kept == {trial(seed) for seed in range(len(kept))}
        assert len(told) <= len(kept) <= len(told) + 1  # the last one was perhaps not told any more
        assert store.add(row(trial(len(kept))))
    assert sides(path) == []


def test_reading_after_a_killed_process_sees_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    worker = Elsewhere(add_for_ever, path)
    assert [worker.next() for _ in range(20)] == [True] * 20
    worker.kill()
    worker.rest()
    assert "store.sqlite-wal" in sides(path)
    with Store(path, readonly=True) as store:
        assert {trial(seed) for seed in range(20)} <= store.finished("one", 1)
    assert sides(path) == []


def test_a_failed_row_of_another_process_may_be_followed_by_a_done_one(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with Store(path) as store:
        assert store.add(row(trial(), FAILED))
        assert Elsewhere(add_all, path, [row(trial(), FAILED), row(trial()), row(trial())]).rest() == [
            True,
            True,
            False,
        ]
        assert not store.add(row(trial()))
        assert len(list(store.rows())) == 3
