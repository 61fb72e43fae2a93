"""Processes that die: workers, from inside and outside, and the runner itself, by SIGKILL and from the keyboard."""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from experiments import trials
from wordsway.errors import InputError, WordswayError
from wordsway.experiments import executors, run
from wordsway.experiments.store import DIED, DONE, FAILED

TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


def _undisturbed(path: Path, points: int, count: int) -> list[dict[str, Any]]:
    """The rows of a run that nothing disturbed; `draw` returns at once what the slower trials here return."""
    with ThreadPoolExecutor(2) as pool:
        assert run(trials.experiment(trials.draw, points, count), path, pool).complete
    return trials.stored(path)


@contextmanager
def _program(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Start a runner in another process, the first of its group, as a shell would."""
    command = [sys.executable, "-m", "experiments.trials", *map(str, arguments)]
    folders = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": folders, "OMP_NUM_THREADS": "1"}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background, and inherited
    try:
        program = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with program:
        try:
            yield program
        finally:
            program.kill()


def _family(program: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes that a program has started so far: workers, and the tracker of their shared resources."""
    return list(psutil.Process(program.pid).children(recursive=True))


def _begun(program: subprocess.Popen[str], path: Path, before: int | None) -> bool:
    """Whether a program has stored more rows than there were before; or, for None, has started to start workers."""
    return len(_family(program)) >= 2 if before is None else trials.count(path) > before


def _assert_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=20)
    for process in alive:
        process.kill()
    assert alive == []


# Workers


def test_a_worker_watches_its_lifeline_before_it_loads_anything_heavy() -> None:
    """Loading PyTorch takes seconds, for which the worker of a killed runner would stay."""
    program = """
if __name__ == "__main__":
    from wordsway.experiments import executors
    with executors.open_processes(1) as pool:
        print(pool.submit(eval, "sorted({'torch', 'numpy', 'scipy'} & {*__import__('sys').modules})").result())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_trial_that_kills_its_worker_is_recorded_and_all_others_are_done(path: Path, tmp_path: Path) -> None:
    summary = run(trials.experiment(trials.die, points=6, trials=1), path, executors.local(2))
    assert (summary.done, summary.failed, summary.died, summary.complete) == (5, 0, 1, False)
    (dead,) = summary.problems
    assert (dead.trial.parameters, dead.state, dead.record) == ('{"x": 3}', DIED, None)
    assert dead.error == "its worker process ended before it did: out of memory, or killed"
    done = [row for row in trials.stored(path) if row["state"] == DONE]
    assert done == [row for row in _undisturbed(tmp_path / "good", 6, 1) if row["x"] != 3]


def test_a_worker_that_dies_amid_many_trials_of_a_task_costs_only_one_of_them(path: Path) -> None:
    backend = replace(executors.local(2), batch=0.5)
    summary = run(trials.experiment(trials.step_out_once, points=1, trials=300), path, backend)
    assert (summary.done, summary.failed, summary.died) == (299, 0, 1)
    rows = trials.stored(path)
    assert [row["seed"] for row in rows] == list(range(300))
    assert [row["seed"] for row in rows if row["state"] == DIED] == [150]


def test_a_worker_that_is_killed_from_outside_costs_no_trial(path: Path, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    planned = trials.experiment(trials.wait_to_be_killed, points=6, trials=1, pid=str(pid))

    def kill() -> None:
        trials.until(pid.exists)
        os.kill(int(pid.read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    summary = run(planned, path, executors.local(2))
    killer.join()
    assert (summary.done, summary.failed, summary.died, summary.problems) == (6, 0, 0, ())
    assert summary.complete
    signals = [(row["blocked"], row["ignored"]) for row in trials.stored(path)]
    assert signals == [(True, True)] * 6  # SIGINT, from its start and for good


def test_a_given_pool_that_breaks_is_one_line_and_what_was_running_is_recorded(path: Path) -> None:
    planned = trials.experiment(trials.die, points=4, trials=5)
    message = "the ProcessPoolExecutor broke when a worker died: {} trials that were under way are recorded as died, "
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        with pytest.raises(WordswayError) as stopped:
            run(planned, path, pool)
        rows = trials.stored(path)
        died = [row["x"] for row in rows if row["state"] == DIED]
        left = f"{20 - len(rows)} were not tried; run it again with a new one"
        assert str(stopped.value) == message.format(len(died)) + left
        assert len(died) <= 2
        assert 3 in died
        with pytest.raises(WordswayError, match=message.format(0)):  # the same pool again
            run(planned, path, pool)
        assert trials.stored(path) == rows


def test_a_function_that_cannot_be_pickled_is_refused_in_one_line(path: Path) -> None:
    message = r"^a trial must be a function at the top level of a module, which other processes can import: .*lambda"
    with pytest.raises(InputError, match=message):
        run(trials.experiment(lambda parameters, seed: {}), path, executors.local(1))
    assert trials.stored(path) == []


def test_a_function_that_workers_cannot_import_fails(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def vanish(parameters: Any, seed: int) -> Any:
        raise AssertionError

    vanish.__module__, vanish.__qualname__ = trials.__name__, "vanish"
    monkeypatch.setattr(trials, "vanish", vanish, raising=False)  # here only: the workers' own copy has no such thing
    summary = run(trials.experiment(vanish, points=1), path, executors.local(1))
    assert (summary.failed, summary.died) == (2, 0)
    assert "'vanish'" in str(summary.problems[0].error)
    assert {row["state"] for row in trials.stored(path)} == {FAILED}


@pytest.mark.parametrize(
    ("how", "times", "starts"),
    [("fails", 99, 1), ("is killed", 99, 2), ("is killed", 1, 1)],
    ids=["fails, which will not be better the next time", "is killed too often", "is killed once"],
)
def test_a_worker_that_does_not_start(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, times: int, starts: int
) -> None:
    """As those of a script that calls run() without a guard, which would call it again."""
    marks = tmp_path / "marks"
    monkeypatch.setattr(executors, "start_worker", partial(trials.stumble, str(marks), times, how))
    monkeypatch.setattr(executors, "MAX_STARTS", 2)
    if times == 1:
        assert run(trials.experiment(points=2), path, executors.local(1)).complete
    else:
        with pytest.raises(WordswayError, match=r"^worker processes end before their first trial: a script must call"):
            run(trials.experiment(), path, executors.local(1))
        assert trials.stored(path) == []
    assert len(list(marks.iterdir())) == starts


# The runner


def test_a_runner_that_is_killed_at_any_moment_loses_and_doubles_nothing(path: Path, tmp_path: Path) -> None:
    draw = random.Random(5)
    before = 0
    rounds = ((1, None), (1, draw.uniform(0, 0.5)), (2, draw.uniform(0, 0.5)))  # None: before there is a row
    for count, moment in rounds:
        with _program("run", path, 60, count) as program:
            trials.until(partial(_begun, program, path, None if moment is None else before))
            time.sleep(moment or 0.0)
            workers = _family(program)
            assert workers
            assert program.poll() is None
            program.kill()
            _assert_gone(workers)
        before = trials.count(path)
    assert 0 < before < 240
    with ThreadPoolExecutor(8) as pool:
        summary = run(trials.experiment(trials.slow, trials=60), path, pool)
    assert (summary.stored, summary.done) == (before, 240 - before)
    assert trials.stored(path) == _undisturbed(tmp_path / "undisturbed.sqlite", 4, 60)


# Runners that are children of one process, which has everything loaded: whole ones would take minutes. Every other one
# has workers and is killed while they start, the moment from which on they must end by themselves; loading PyTorch in
# them is what costs, so trials that are done are those of the others. Full runs are killed in the test above.
_KILLS = """
import os, random, signal, sys, time
from pathlib import Path

from experiments import trials
from wordsway.experiments import executors, run

store = Path(sys.argv[1])
run(trials.experiment(trials.draw), store.with_name("warm.sqlite"), executors.inline())  # loads what trials need
draw, killed = random.Random(7), 0
for number in range(66):
    before = trials.count(store)
    child = os.fork()
    if not child:
        backend = executors.local(2) if number % 2 else executors.inline()
        run(trials.experiment(trials.slow, trials=200), store, backend)
        os._exit(0)
    if number % 4 == 0:  # at least so many trials are done, however busy the machine is
        trials.until(lambda: trials.count(store) > before)
    time.sleep(draw.uniform(0, 0.4))
    os.kill(child, signal.SIGKILL)
    killed += os.WIFSIGNALED(os.waitpid(child, 0)[1])
print(killed)
"""


def _marked(mark: str) -> list[psutil.Process]:
    """The processes that inherited a mark in their environment."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("WORDSWAY_TEST_MARK") == mark:
                found.append(process)
    return found


def test_sixty_six_kills_at_random_moments_leave_no_worker_and_lose_and_double_nothing(
    path: Path, tmp_path: Path
) -> None:
    folders = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": folders, "OMP_NUM_THREADS": "1", "WORDSWAY_TEST_MARK": str(path)}
    command = [sys.executable, "-c", _KILLS, str(path)]
    printed, complaints = tmp_path / "printed", tmp_path / "complaints"
    with printed.open("w") as out, complaints.open("w") as err:  # no pipes: orphans would keep them open
        code = subprocess.call(command, stdout=out, stderr=err, env=environment)
    _assert_gone(_marked(str(path)))
    assert (code, printed.read_text()) == (0, "66\n"), complaints.read_text()
    before = trials.count(path)
    assert 17 <= before < 800
    with ThreadPoolExecutor(8) as pool:
        summary = run(trials.experiment(trials.slow, trials=200), path, pool)
    assert (summary.stored, summary.done) == (before, 800 - before)
    assert trials.stored(path) == _undisturbed(tmp_path / "undisturbed.sqlite", 4, 200)


@pytest.mark.parametrize("when", ["starting", "running"])
def test_an_interrupt_from_the_keyboard_ends_everything_in_one_line(path: Path, tmp_path: Path, when: str) -> None:
    count = 1 if when == "running" else 2
    with _program("command", "reproduce", "tiny", "--trials", 100, "--workers", count, "--out", tmp_path) as program:
        trials.until(partial(_begun, program, path, 10 if when == "running" else None))
        workers = _family(program)
        os.killpg(program.pid, signal.SIGINT)
        out, err = program.communicate(timeout=trials.PATIENCE)
    assert program.returncode == 130
    assert out == ""
    there = trials.count(path)
    assert (there > 10) is (when == "running")
    assert err.count("\n") == 2, err
    first, second = err.splitlines()
    assert first.startswith(f"400 trials: running 400 on {count} worker")
    assert second == (
        f"wordsway: interrupted: {there} of 400 trials are stored, run the same command again to continue"
    )
    _assert_gone(workers)
    assert len(_undisturbed(path, 4, 100)) == 400  # the same trials, now to their end


def test_two_runners_on_one_store_do_every_trial_once_and_both_end(path: Path, tmp_path: Path) -> None:
    with _program("run", path, 60, 1) as one, _program("run", path, 60, 1) as other:
        found = []
        for program in (one, other):
            out, err = program.communicate(timeout=trials.PATIENCE)
            assert (program.returncode, err) == (0, "")
            found.append(json.loads(out))
    assert sum(summary["done"] for summary in found) == 240
    for summary in found:
        assert summary["stored"] + summary["done"] + summary["elsewhere"] == summary["planned"] == 240
    assert trials.stored(path) == _undisturbed(tmp_path / "alone.sqlite", 4, 60)
