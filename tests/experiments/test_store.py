"""The store: rows are appended once, read back as they were, and refused changes."""

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.made import VERSIONS, row, sides, trial
from wordsway.errors import WordswayError
from wordsway.experiments.experiment import Estimate, Trial, TrialResult, canonical_record
from wordsway.experiments.store import DIED, DONE, FAILED, STATES, Row, Store, StoreError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "er" / "store.sqlite"


# Rows


def test_rows_come_back_as_they_were_in_the_order_they_came(path: Path) -> None:
    rows = [
        row(trial(3, n=5), ended="2024-01-02T03:04:05.678+00:00"),
        row(trial(1, n=5, text='ü, "quotes"\n\''), FAILED, error="naïve: ünï\ncode", ended="later"),
        row(trial(2**63 - 1, "two", 7), DIED, dtype=None, seconds=None, peak_mb=None, machine=None, ended="x"),
    ]
    with Store(path) as store:
        assert [store.add(one) for one in rows] == [True] * 3
        assert list(store.rows()) == rows
    with Store(path) as store:
        assert list(store.rows()) == rows
    with Store(path, readonly=True) as store:
        assert list(store.rows()) == rows


def test_numbers_come_back_exactly(path: Path) -> None:
    values = [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, -0.0, 2**53 + 1]
    with Store(path) as store:
        for seed, value in enumerate(values):
            store.add(row(trial(seed), record=canonical_record({"value": value}), seconds=value))
        found = [repr(one["value"]) for one in store.records([trial(seed) for seed in range(len(values))])]
        assert found == [repr(value) for value in values]
        assert [one.seconds for one in store.rows()][:-1] == values[:-1]


def test_the_store_says_when_a_trial_ended(path: Path) -> None:
    with Store(path) as store:
        store.add(row(trial()))
        (found,) = store.rows()
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


def test_nested_values_of_a_record_have_dotted_names() -> None:
    record = '{"losses": [0.5, {"last": 0.25}], "at": {"n": {"d": true}}, "none": [], "n": 2}'
    made = row(trial(n=1), record=record).to_dict()
    names = list(made)
    values = {"losses.0": 0.5, "losses.1.last": 0.25, "at.n.d": True, "record_n": 2}
    assert {name: made[name] for name in values} == values
    assert names[names.index("state") + 1 : names.index("dtype")] == list(values)


def test_names_that_the_store_uses_itself_are_kept_apart() -> None:
    asked = Trial("one", 1, '{"seed": 5, "n": 1}', 4)
    record = '{"error": 0.25, "seconds": 9, "state": "ok", "n": 2, "value": 3}'
    made = row(asked, record=record).to_dict()
    assert {name: made[name] for name in ("parameter_seed", "n", "record_error", "record_n", "value")} == {
        "parameter_seed": 5,
        "n": 1,
        "record_error": 0.25,
        "record_n": 2,
        "value": 3,
    }
    assert (made["record_seconds"], made["record_state"]) == (9, "ok")
    assert (made["seed"], made["error"], made["seconds"], made["state"]) == (4, None, 2.0, "done")


def test_an_error_with_bytes_of_no_text_can_be_stored(path: Path) -> None:
    with Store(path) as store:
        store.add(row(trial(), FAILED, error="no file \udcff"))
        (found,) = store.rows()
    assert found.error == r"no file \udcff"


# Once and never again


def test_a_finished_trial_is_never_doubled(path: Path) -> None:
    with Store(path) as store, Store(path) as other:
        assert store.add(row(trial(), value=1.0))
        assert not store.add(row(trial(), value=2.0))
        assert not other.add(row(trial(), value=3.0))
        assert not other.add(row(trial(), FAILED))
        assert not other.add(row(trial(), DIED))
        assert store.has(trial())
        assert other.has(trial())
        assert [found["value"] for found in other.records([trial()])] == [1.0]
        assert len(list(store.rows())) == 1


def test_the_file_itself_refuses_a_second_finished_row(path: Path) -> None:
    with Store(path) as store:
        store.add(row(trial()))
    names = "experiment, version, parameters, seed, state, record, versions, ended"
    db = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        db.execute(f"INSERT INTO trials ({names}) SELECT {names} FROM trials")
    db.close()


@pytest.mark.parametrize(
    "other", [trial(1), trial(0, "two"), trial(0, "one", 2), trial(0, n=1)], ids=["seed", "name", "version", "point"]
)
def test_what_tells_trials_apart(path: Path, other: Trial) -> None:
    with Store(path) as store:
        store.add(row(trial()))
        assert not store.has(other)
        assert store.add(row(other))


@pytest.mark.parametrize("state", [FAILED, DIED])
def test_a_trial_that_failed_may_be_tried_until_it_is_done(path: Path, state: str) -> None:
    with Store(path) as store:
        assert store.add(row(trial(), state))
        assert not store.has(trial())
        assert store.finished("one", 1) == set()
        assert store.records([trial()]) == []
        assert store.add(row(trial(), state))
        assert store.add(row(trial()))
        assert not store.add(row(trial()))
        assert [found.state for found in store.rows()] == [state, state, DONE]


@pytest.mark.parametrize(
    "change", ["UPDATE trials SET record = '{}'", "DELETE FROM trials", "UPDATE trials SET id = 9"]
)
def test_rows_can_be_neither_changed_nor_deleted(path: Path, change: str) -> None:
    with Store(path) as store:
        store.add(row(trial()))
        before = list(store.rows())
    db = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match=r"rows are appended, never (rewritten|deleted)"):
        db.execute(change)
    db.close()
    with Store(path) as store:
        assert list(store.rows()) == before


@pytest.mark.parametrize(
    "bad",
    [row(trial(), "lost"), row(trial(), record=None), row(trial(), FAILED, record="{}")],
    ids=["unknown state", "done without a record", "failed with a record"],
)
def test_rows_that_make_no_sense_are_refused(path: Path, bad: Row) -> None:
    with Store(path) as store:
        with pytest.raises(StoreError, match="CHECK constraint"):
            store.add(bad)
        assert list(store.rows()) == []
        assert store.add(row(trial()))  # the refusal left no transaction open


# What is asked of it


def test_finished_trials_of_one_experiment_and_version(path: Path) -> None:
    with Store(path) as store:
        for made in (
            row(trial(1)),
            row(trial(2)),
            row(trial(3), FAILED),
            row(trial(4, "two")),
            row(trial(5, version=2)),
        ):
            store.add(made)
        assert store.finished("one", 1) == {trial(1), trial(2)}
        assert store.finished("one", 2) == {trial(5, version=2)}
        assert store.finished("three", 1) == set()


def test_records_come_in_the_order_asked_for(path: Path) -> None:
    kept = [trial(seed, name, n=n) for name in ("one", "two") for n in (1, 2) for seed in (0, 1)]
    with Store(path) as store:
        for number, one in enumerate(kept):
            store.add(row(one, value=float(number)))
        store.add(row(trial(9, n=1), FAILED))
        asked = [kept[6], trial(9, n=1), kept[1], trial(0, "three"), kept[0], kept[7], kept[1]]
        found = store.records(asked)
        assert [one["value"] for one in found] == [6.0, 1.0, 0.0, 7.0, 1.0]
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


# The file


def test_folders_are_made_and_nothing_is_left_beside_the_file(path: Path) -> None:
    with Store(path) as store:
        store.add(row(trial()))
    assert sides(path) == []
    with Store(path, readonly=True) as store:
        list(store.rows())
    assert sides(path) == []
    assert path.stat().st_mode & 0o777 == 0o644


def test_looking_changes_no_byte(path: Path) -> None:
    with Store(path) as store:
        store.add(row(trial()))
    before = path.read_bytes(), path.stat().st_mtime_ns
    with Store(path, readonly=True) as store:
        assert store.finished("one", 1) == {trial()}
        with pytest.raises(StoreError, match=r"readonly.*finished trials stay"):
            store.add(row(trial(1)))
    with Store(path):
        pass
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_a_reader_sees_what_a_writer_adds_meanwhile(path: Path) -> None:
    with Store(path) as store, Store(path, readonly=True) as reader:
        store.add(row(trial(1)))
        assert reader.has(trial(1))
        store.add(row(trial(2)))
        assert reader.finished("one", 1) == {trial(1), trial(2)}
    assert sides(path) == []


def test_names_of_files_that_mean_something_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "100% ?mode=memory#ü" / "store; drop.sqlite"
    with Store(path) as store:
        store.add(row(trial()))
    with Store(path, readonly=True) as store:
        assert store.has(trial())
    assert sides(path) == []


def test_a_closed_store_says_so_in_one_line(path: Path) -> None:
    store = Store(path)
    store.close()
    for use in (lambda: store.add(row(trial())), lambda: store.has(trial()), lambda: list(store.rows())):
        with pytest.raises(StoreError, match="closed"):
            use()


@pytest.mark.parametrize("bad", ["not JSON", "[1]", '{"value": '])
def test_a_record_that_was_damaged_is_told_in_one_line(path: Path, bad: str) -> None:
    with Store(path) as store:
        store.add(row(trial(7), record=bad))
        for use in (lambda: store.records([trial(7)]), lambda: next(store.rows()).to_dict()):
            with pytest.raises(WordswayError, match=r"damaged .*one with seed 7") as caught:
                use()
            assert "\n" not in str(caught.value)
    made = replace(row(trial(7)), versions=VERSIONS[:-1])
    with pytest.raises(WordswayError, match="damaged"):
        made.to_dict()
