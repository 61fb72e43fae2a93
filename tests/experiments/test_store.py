"""The store: rows are appended once, read back as they were, never changed, and shared by several processes."""

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.made import VERSIONS, Elsewhere, add_all, row, sides, trial
from wordsway.errors import WordswayError
from wordsway.experiments.experiment import Estimate, Trial, TrialResult, canonical_record
from wordsway.experiments.store import DIED, DONE, FAILED, STATES, Row, Store, StoreError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "er" / "store.sqlite"


# Rows


def test_rows_come_back_as_they_were_in_the_order_of_arrival(path: Path) -> None:
    rows = [
        row(trial(3, n=5), ended="2024-01-02T03:04:05.678+00:00"),
        row(trial(1, n=5, text='ü, "quotes"\n\''), FAILED, error="naïve: ünï\ncode", ended="later"),
        row(trial(2**63 - 1, "two", 7), DIED, dtype=None, seconds=None, peak_mb=None, machine=None, ended="x"),
    ]
    with Store(path) as store:
        assert [store.add(one) for one in rows] == [True] * 3
        assert list(store.rows()) == rows
        assert store.experiments() == ["one", "two"]
    for readonly in (False, True):
        with Store(path, readonly) as store:
            assert list(store.rows()) == rows
    assert sides(path) == []
    assert path.stat().st_mode & 0o777 == 0o644


def test_numbers_come_back_exactly(path: Path) -> None:
    values = [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, -0.0, 2**53 + 1]
    with Store(path) as store:
        store.add(row(trial(), record=canonical_record({"value": values})))
        (found,) = store.records([trial()])
    assert list(map(repr, found["value"])) == list(map(repr, values))


def test_the_store_adds_the_time_and_escapes_bytes_that_are_no_text(path: Path) -> None:
    with Store(path) as store:
        store.add(row(trial(), FAILED, error="no file \udcff"))
        (found,) = store.rows()
    assert found.error == r"no file \udcff"
    assert found.ended.endswith("+00:00")
    assert len(found.ended) == len("2024-01-02T03:04:05.678+00:00")


def test_rows_of_some_experiments_states_and_trials(path: Path) -> None:
    one, two, three = trial(1, "a"), trial(2, "b"), trial(3, "b")
    with Store(path) as store:
        for made in (row(one), row(two, FAILED), row(three, DIED), row(three)):
            store.add(made)

        def kept(*arguments: Any) -> list[tuple[Trial, str]]:
            return [(found.trial, found.state) for found in store.rows(*arguments)]

        assert kept() == [(one, DONE), (two, FAILED), (three, DIED), (three, DONE)]
        assert kept(["a"]) == [(one, DONE)]
        assert kept(["a", "b"], (FAILED, DIED)) == [(two, FAILED), (three, DIED)]
        assert kept((), STATES, {three}) == [(three, DIED), (three, DONE)]
        assert kept(["nothing"]) == kept(["a"], (DIED,)) == kept((), STATES, set()) == []


def test_a_row_as_a_flat_dictionary() -> None:
    made = row(trial(4, n=5), ended="now")
    assert list(made.to_dict().items()) == [
        *(("experiment", "one"), ("version", 1), ("n", 5), ("seed", 4), ("state", "done"), ("value", 1.0)),
        *(("dtype", "float32"), ("seconds", 2.0), ("peak_mb", 300.0), ("error", None), ("machine", "here")),
        *(("ended", "now"), ("wordsway_version", "0.1"), ("python_version", "3.12")),
    ]
    failed = row(trial(4), FAILED).to_dict()
    assert "value" not in failed
    assert failed["error"] == "ValueError: no"


def test_nested_values_have_dotted_names_and_those_named_like_a_column_a_prefix() -> None:
    record = '{"losses": [0.5, {"last": 0.25}], "at": {"n": {"d": true}}, "none": [], "n": 2, "state": "ok"}'
    made = row(Trial("one", 1, '{"seed": 5, "n": 1}', 4), record=record).to_dict()
    values = {"losses.0": 0.5, "losses.1.last": 0.25, "at.n.d": True, "record_n": 2, "record_state": "ok"}
    expected: dict[str, Any] = {"parameter_seed": 5, "n": 1, "seed": 4, "state": "done", **values}
    assert {name: made[name] for name in expected} == expected
    names = list(made)
    assert names[names.index("state") + 1 : names.index("dtype")] == list(values)


# Once and never again


def test_a_finished_trial_is_stored_once(path: Path) -> None:
    with Store(path) as store, Store(path) as other:
        assert store.add(row(trial(), value=1.0))
        for again in (row(trial(), value=2.0), row(trial(), FAILED), row(trial(), DIED)):
            assert [opened.add(again) for opened in (store, other)] == [False, False]
        assert store.has(trial())
        assert other.has(trial())
        assert [found["value"] for found in other.records([trial()])] == [1.0]
        assert len(list(store.rows())) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("INSERT INTO trials ({0}) SELECT {0} FROM trials", "UNIQUE"),
        ("UPDATE trials SET record = '{{}}'", "rows are appended, never rewritten"),
        ("UPDATE trials SET id = 9", "rows are appended, never rewritten"),
        ("DELETE FROM trials", "rows are appended, never deleted"),
    ],
)
def test_the_file_itself_refuses_changes(path: Path, change: str, message: str) -> None:
    with Store(path) as store:
        store.add(row(trial()))
        before = list(store.rows())
    db = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match=message):
        db.execute(change.format("experiment, version, parameters, seed, state, record, versions, ended"))
    db.close()
    with Store(path) as store:
        assert list(store.rows()) == before


def test_the_identity_of_a_trial(path: Path) -> None:
    with Store(path) as store:
        for one in (trial(), trial(1), trial(0, "two"), trial(0, "one", 2), trial(0, n=1)):
            assert not store.has(one)
            assert store.add(row(one))


@pytest.mark.parametrize("state", [FAILED, DIED])
def test_a_trial_that_failed_may_be_run_until_it_is_done(path: Path, state: str) -> None:
    with Store(path) as store:
        assert store.add(row(trial(), state))
        assert not store.has(trial())
        assert (store.finished("one", 1), store.records([trial()])) == (set(), [])
        rest = [row(trial(), state), row(trial()), row(trial())]
        assert Elsewhere(add_all, path, rest).rest() == [True, True, False]
        assert not store.add(row(trial()))
        assert [found.state for found in store.rows()] == [state, state, DONE]


@pytest.mark.parametrize(
    "bad",
    [row(trial(), "lost"), row(trial(), record=None), row(trial(), FAILED, record="{}")],
    ids=["unknown state", "done without a record", "failed with a record"],
)
def test_inconsistent_rows_are_refused(path: Path, bad: Row) -> None:
    with Store(path) as store:
        with pytest.raises(StoreError, match="CHECK constraint"):
            store.add(bad)
        assert list(store.rows()) == []
        assert store.add(row(trial()))  # the refusal left no transaction open


# Queries


def test_finished_trials_and_records(path: Path) -> None:
    kept = [trial(seed, name, n=n) for name in ("one", "two") for n in (1, 2) for seed in (0, 1)]
    with Store(path) as store:
        for number, one in enumerate(kept):
            store.add(row(one, value=float(number)))
        store.add(row(trial(9, n=1), FAILED))
        store.add(row(trial(5, version=2)))
        assert store.finished("one", 1) == set(kept[:4])
        assert store.finished("one", 2) == {trial(5, version=2)}
        assert store.finished("three", 1) == set()
        found = store.records([kept[6], trial(9, n=1), kept[1], trial(0, "three"), kept[0], kept[7], kept[1]])
        assert [one["value"] for one in found] == [6.0, 1.0, 0.0, 7.0, 1.0]  # in the given order
        assert found[0] == TrialResult("two", {"n": 2}, 0, {"value": 6.0})
        assert store.records([]) == []


def test_costs_are_the_mean_time_and_the_largest_memory_of_a_point(path: Path) -> None:
    rows = [
        row(trial(0, n=1), seconds=1.0, peak_mb=100.0),
        row(trial(1, n=1), seconds=4.0, peak_mb=50.5),
        row(trial(2, n=1), FAILED, seconds=1e6, peak_mb=1e6),
        row(trial(0, n=2), seconds=7.0, peak_mb=70.0),
        row(trial(0, n=3), seconds=None, peak_mb=None),
        row(trial(0, n=1, version=2), seconds=9.0),
    ]
    with Store(path) as store:
        for one in rows:
            store.add(one)
        expected = {'{"n": 1}': Estimate(2.5, 100_000_000), '{"n": 2}': Estimate(7.0, 70_000_000)}
        assert store.costs("one", 1) == expected
        assert store.costs("two", 1) == {}


@pytest.mark.parametrize("bad", ["not JSON", "[1]", '{"value": '])
def test_a_damaged_record_is_one_line(path: Path, bad: str) -> None:
    with Store(path) as store:
        store.add(row(trial(7), record=bad))
        uses: list[Callable[[], Any]] = [lambda: store.records([trial(7)]), lambda: next(store.rows()).to_dict()]
        for use in (*uses, row(trial(7), versions=VERSIONS[:-1]).to_dict):
            with pytest.raises(WordswayError, match=r"damaged .*one with seed 7") as caught:
                use()
            assert "\n" not in str(caught.value)


# Several at once


def test_reading_changes_no_byte_and_sees_what_is_added_meanwhile(path: Path) -> None:
    with Store(path) as store, Store(path, readonly=True) as reader:
        store.add(row(trial(1)))
        assert reader.has(trial(1))
    before = path.read_bytes(), path.stat().st_mtime_ns
    with Store(path, readonly=True) as reader:
        assert reader.finished("one", 1) == {trial(1)}
        with pytest.raises(StoreError, match=r"readonly.*finished trials stay"):
            reader.add(row(trial(2)))
    Store(path).close()
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert sides(path) == []


@pytest.mark.parametrize("known", [True, False], ids=["store exists", "store is made at once"])
def test_processes_add_the_same_and_different_trials(tmp_path: Path, known: bool) -> None:
    path = tmp_path / "store.sqlite"
    if known:
        Store(path).close()
    same = [row(trial(seed)) for seed in range(40)]
    own = [[row(trial(seed, n=k)) for seed in range(40)] for k in range(3)]
    workers = [Elsewhere(add_all, path, [one for pair in zip(same, mine, strict=True) for one in pair]) for mine in own]
    added = [worker.rest() for worker in workers]
    assert [len(some) for some in added] == [80] * 3
    assert all(all(some[1::2]) for some in added)  # its own trials
    assert [sum(some) for some in zip(*(one[::2] for one in added), strict=True)] == [1] * 40  # one of them each
    with Store(path, readonly=True) as store:
        rows = list(store.rows())
        assert len(rows) == len({one.trial for one in rows}) == 4 * 40
    assert sides(path) == []


def test_opening_waits_for_a_writer_before_write_ahead_mode(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    Store(path).close()
    writer = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    assert writer.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    writer.execute("BEGIN IMMEDIATE")
    commit = threading.Timer(0.2, writer.execute, ["COMMIT"])
    commit.start()
    with Store(path) as store:
        assert store.add(row(trial()))
        assert "store.sqlite-wal" in sides(path)
    commit.join()
    writer.close()
    assert sides(path) == []


def test_a_commit_reaches_the_disk(path: Path) -> None:
    """With synchronous = OFF (0), a power failure could damage the file; no test with killed processes notices."""
    for _ in ("made", "opened again"):
        with Store(path) as store:
            assert store._db.execute("PRAGMA synchronous").fetchone()[0] >= 1
            assert store._db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


@pytest.mark.parametrize("count", [1, 20, 121])
def test_what_was_added_survives_a_killed_process(tmp_path: Path, count: int) -> None:
    path = tmp_path / "store.sqlite"
    worker = Elsewhere(add_all, path)
    added = [worker.next() for _ in range(count)]
    worker.kill()
    added += worker.rest()
    assert all(added)
    assert "store.sqlite-wal" in sides(path)
    with Store(path, readonly=True) as store:
        kept = store.finished("one", 1)
    assert kept == {trial(seed) for seed in range(len(kept))}
    assert len(added) <= len(kept) <= len(added) + 1  # the last one was perhaps not reported any more
    with Store(path) as store:
        assert store.finished("one", 1) == kept
        assert store.add(row(trial(len(kept))))
    assert sides(path) == []
