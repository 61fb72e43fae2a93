"""Where trials run: the same bits everywhere, one thread each, and clusters that cannot be used."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import pytest
import torch
from distributed import LocalCluster as Untyped
from threadpoolctl import threadpool_limits

from experiments import trials
from experiments.made import trial
from wordsway import cli, figures
from wordsway.errors import InputError, MissingExtra, WordswayError
from wordsway.experiments import executors, run
from wordsway.experiments.store import DIED, DONE, versions

LocalCluster: Any = Untyped
LOCAL: dict[str, Any] = {"dashboard_address": "127.0.0.1:0", "host": "127.0.0.1"}
MANY = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "3")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two worker processes that would use three threads, and a scheduler that forgives no death.

    It also hands out all tasks at once, so that most tasks that end their worker take another one with them.
    """
    config = {
        "distributed.nanny.pre-spawn-environ": MANY,
        "distributed.scheduler.allowed-failures": 0,
        "distributed.scheduler.worker-saturation": "inf",
    }
    with (
        dask.config.set(config),
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, **LOCAL) as cluster,
    ):
        yield cluster


@pytest.fixture
def address(cluster: Any) -> str:
    """The address of its scheduler, when both workers are there: one of them may have died in the last test."""
    cluster.wait_for_workers(2, timeout=trials.PATIENCE)
    return str(cluster.scheduler_address)


@pytest.fixture
def near() -> Iterator[Any]:
    """A cluster with one worker in this process, which starts at once."""
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, protocol="tcp://", **LOCAL) as cluster:
        yield cluster


@pytest.fixture
def threads() -> Iterator[Executor]:
    """A thread pool in this process, which starts with three threads for linear algebra."""
    before = torch.get_num_threads()
    with threadpool_limits(limits=3), ThreadPoolExecutor(2) as pool:
        torch.set_num_threads(3)
        yield pool
    torch.set_num_threads(before)


def _bits(rows: list[dict[str, Any]]) -> list[Any]:
    return [{name: value.hex() if isinstance(value, float) else value for name, value in row.items()} for row in rows]


# The same numbers


def test_all_backends_return_the_same_bits(
    tmp_path: Path, address: str, threads: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in MANY.items():
        monkeypatch.setenv(name, value)  # for the processes
    planned = trials.experiment(trials.algebra, points=2, trials=3)
    with executors.dask(address) as cluster:
        assert (cluster.name, cluster.workers) == (f"Dask at {address}", 2)
        backends: dict[str, Any] = {
            "one": executors.local(1),
            "two": executors.local(2),
            "threads": threads,
            "dask": cluster,
        }
        for name, backend in backends.items():
            summary = run(planned, tmp_path / name, backend)
            assert (summary.done, summary.failed) == (6, 0)
    rows = {name: _bits(trials.stored(tmp_path / name)) for name in backends}
    for name in backends:
        assert rows[name] == rows["one"], name
    assert {row["threads"] for row in rows["one"]} == {1}
    assert {row["dtype"] for row in rows["one"]} == {"float64"}
    assert len({row["sensitivity"] for row in rows["one"]}) == 3  # one for each seed


def test_a_trial_uses_one_thread_in_every_thread_and_for_libraries_that_only_it_loads(threads: Executor) -> None:
    for pool in (threads, ThreadPoolExecutor(1)):
        row = pool.submit(executors.run_trial, trials.algebra, trial(x=0)).result()
        assert json.loads(str(row.record))["threads"] == 1
    pool.shutdown()
    code = """
from wordsway.experiments.executors import run_trial
from wordsway.experiments.experiment import Trial

def trial(parameters, seed):
    import scipy.linalg
    from threadpoolctl import threadpool_info
    return {"threads": [pool["num_threads"] for pool in threadpool_info()]}

print(run_trial(trial, Trial("one", 1, "{}", 0)).record)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=os.environ | MANY, capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)["threads"]) == {1}


# A Dask cluster


def test_a_dask_worker_that_dies_in_a_trial_costs_only_that_trial(tmp_path: Path, address: str) -> None:
    with executors.dask(address) as cluster:
        summary = run(trials.experiment(trials.step_out, points=6, trials=1), tmp_path / "store", cluster)
    assert (summary.done, summary.failed, summary.died) == (5, 0, 1)
    rows = trials.stored(tmp_path / "store")
    assert [row["state"] for row in rows] == [DIED if x == 3 else DONE for x in range(6)]
    assert rows[3]["error"] == "its worker process ended before it did: out of memory, or killed"


def test_an_interrupt_leaves_a_cluster_that_can_go_on(tmp_path: Path, near: Any) -> None:
    store, planned = tmp_path / "store", trials.experiment(trials.slow, trials=50)

    def interrupt() -> None:
        trials.until(lambda: trials.count(store) > 5)
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    thread = threading.Thread(target=interrupt)
    try:
        with executors.dask(near.scheduler_address) as cluster:
            thread.start()
            with pytest.raises(KeyboardInterrupt, match=r"^interrupted: \d+ of 200 trials are stored"):
                run(planned, store, cluster)
            there = trials.count(store)
            summary = run(planned, store, cluster)
    finally:
        signal.signal(signal.SIGINT, before)
        thread.join()
    assert (summary.stored, summary.done) == (there, 200 - there)
    assert len(trials.stored(store)) == 200


def test_the_command_runs_on_a_cluster(
    tmp_path: Path, near: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    local = trials.experiment(lambda parameters, seed: {"value": parameters["x"] + seed / 2})  # cannot be imported
    monkeypatch.setattr(figures, "all_figures", lambda: {"tiny": local})
    address = near.scheduler_address
    with pytest.raises(SystemExit) as ended:
        cli.main(["reproduce", "tiny", "--dask", address, "--out", str(tmp_path), "--json"])
    out, err = capsys.readouterr()
    assert ended.value.code == 0
    assert err == f"8 trials: running 8 on 1 worker (Dask at {address}), about 1 s\n"
    assert json.loads(out)["finished"] == 8


def _none() -> str:
    raise ModuleNotFoundError("No module named 'wordsway'")


@pytest.mark.parametrize(("there", "got"), [(lambda: "9.9", "version 9.9"), (_none, "No module named 'wordsway'")])
def test_a_worker_with_another_version_or_none_is_refused(
    near: Any, monkeypatch: pytest.MonkeyPatch, there: Callable[[], str], got: str
) -> None:
    monkeypatch.setattr(executors, "installed_version", there)
    message = rf"^Dask worker tcp://\S+ must have wordsway {versions()['wordsway']} installed, got {got}$"
    with pytest.raises(InputError, match=message), executors.dask(near.scheduler_address):
        pass


def test_a_scheduler_without_workers_is_refused_after_a_while() -> None:
    with LocalCluster(n_workers=0, **LOCAL) as empty:
        address = empty.scheduler_address
        message = rf"^the Dask scheduler at {address} must have workers, got none in 0\.5 s: start some$"
        with pytest.raises(InputError, match=message), executors.dask(address, timeout=0.5):
            pass


def test_a_cluster_that_goes_away_is_one_line_and_no_trial_is_blamed(tmp_path: Path, near: Any) -> None:
    store = tmp_path / "store"

    def close() -> None:
        trials.until(lambda: trials.count(store) > 5)
        near.close()

    closer = threading.Thread(target=close)
    closer.start()
    message = r"^Dask at tcp://\S+ takes no more trials \(.*\): run it again with a new one$"
    with executors.dask(near.scheduler_address) as cluster, pytest.raises(WordswayError, match=message):
        run(trials.experiment(trials.slow, trials=1000), store, cluster)
    closer.join()
    assert {row["state"] for row in trials.stored(store)} == {DONE}


@pytest.mark.parametrize(
    ("address", "got"),
    [
        ("tcp://127.0.0.1:1", f"[Errno {errno.ECONNREFUSED}] {os.strerror(errno.ECONNREFUSED)}"),
        ("nowhere", "missing port number in address 'nowhere'"),
        ("tcp://127.0.0.1:port", "invalid literal for int() with base 10: 'port'"),
        ("", "missing port number in address ''"),
        ("http://h:1", "unknown address scheme 'http'"),
        ("inproc://h", "an address inside another process"),
    ],
)
def test_an_address_where_no_scheduler_answers_is_refused_before_a_client_is_made(
    address: str, got: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that is half made waits 20 s at the end of the process, and writes a traceback."""
    monkeypatch.setattr("distributed.Client", lambda *_, **__: pytest.fail("a client was made"))
    with pytest.raises(InputError) as refused, executors.dask(address, timeout=0.5):
        pass
    message = str(refused.value)
    assert message.startswith(f"a Dask scheduler must answer at {address} within 0.5 s, got {got}")
    assert message.endswith(": check the address and that the scheduler runs")


def test_without_distributed_the_message_has_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtra, match=r"run `pip install 'wordsway\[cluster\]'`$"), executors.dask("tcp://x:1"):
        pass


# Interrupts while processes start


def test_an_interrupt_that_another_thread_takes_waits_until_processes_have_started() -> None:
    reached = []

    def work() -> None:
        thread = threading.Thread(target=signal.raise_signal, args=(signal.SIGINT,))
        before = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # which the thread inherits
        thread.start()
        thread.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        reached.append(sum(range(1000)))

    ignored = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background
    with pytest.raises(KeyboardInterrupt), executors.hold_interrupts():
        work()
    assert reached == [499500]
    assert signal.signal(signal.SIGINT, ignored) is signal.default_int_handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())


def test_ignored_interrupts_stay_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with executors.hold_interrupts():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_worker_that_is_terminated_leaks_no_semaphore(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os\n"
        "from wordsway.experiments.executors import open_processes\n"
        "if __name__ == '__main__':\n"
        "    try:\n"
        "        with open_processes(1) as pool:\n"
        "            bar = 'import os, tqdm; tqdm.tqdm(total=1, file=open(os.devnull, \"w\"))'\n"
        "            pool.submit(exec, bar).result()\n"
        "            raise KeyboardInterrupt\n"
        "    except KeyboardInterrupt:\n"
        "        print('interrupted')\n"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")
