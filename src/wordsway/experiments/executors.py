"""Where trials run: in processes of this machine, in a given executor, or on a Dask cluster by its address."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import platform
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeAlias, TypeVar

from wordsway.checks import check_size
from wordsway.errors import InputError, MissingExtra, WordswayError, one_line
from wordsway.experiments.experiment import Parameters, Trial, TrialRecord, canonical_record
from wordsway.experiments.store import DONE, FAILED, Row, versions
from wordsway.memory import ResourceUsage
from wordsway.threads import one_thread
from wordsway.workers import call_pickled, start_worker

TrialFunction: TypeAlias = Callable[[Parameters, int], TrialRecord]
P = ParamSpec("P")
T = TypeVar("T")

MAX_STARTS = 5  # how often workers are started again that something kills before they are ready
_BATCH = 0.5  # seconds of work in a task: many times what sending it takes, and little to lose with the runner
_TIMEOUT = 10  # seconds until a scheduler must have answered, and then until it must have a worker


# In a worker


def run_trials(batch: Sequence[tuple[TrialFunction, Trial]]) -> list[Row]:
    """Run trials one after another, each with the function of its experiment; return their rows."""
    return [run_trial(function, trial) for function, trial in batch]


def run_trial(function: TrialFunction, trial: Trial) -> Row:
    """Run one trial and return its row; an error is part of it.

    With one thread, so that the numbers do not depend on the machine or on what else runs there.
    """
    import scipy.linalg  # noqa: F401  # only libraries that are loaded are limited, and SciPy brings its own

    record, error, dtype = None, None, None
    with one_thread(), ResourceUsage() as usage:
        try:
            record = canonical_record(function(json.loads(trial.parameters), trial.seed))
            dtype = json.loads(record).get("dtype")
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # SystemExit too: it must not end the runner
            error = f"{describe_error(problem)}{_location(problem)}"
    cost = (None if dtype is None else str(dtype), usage.seconds, usage.peak_mb)
    return Row(trial, DONE if error is None else FAILED, record, error, *cost, machine=platform.node())


def describe_error(error: BaseException) -> str:
    """Return the kind and the text of an error in one line."""
    return one_line(f"{type(error).__name__}: {error}").removesuffix(":")


def _location(error: BaseException) -> str:
    """Return the line that raised an error: " (figure.py:12)"."""
    frames: list[Any] = traceback.extract_tb(error.__traceback__)
    return f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""


# In the runner


@dataclass(frozen=True)
class Backend:
    """Executors of one kind.

    Attributes
    ----------
    workers : int
        Number of trials that run at the same time.
    open : callable
        Number of workers -> context manager that yields an executor.
    renewable : bool
        Whether a new executor can be opened when one breaks because a worker process died.
    disconnected : callable
        Whether the connection is lost, so that trials may never end; called now and then.
    batch : float
        Seconds of work that several trials may make up in one task; 0 for one trial per task.
    """

    name: str
    workers: int
    open: Callable[[int], AbstractContextManager[Executor]]
    renewable: bool = True
    disconnected: Callable[[], bool] = bool  # bool() is False: always connected
    batch: float = 0.0


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def local(workers: int | None = None) -> Backend:
    """Return a backend of processes of this machine, one per core by default."""
    count = cores() if workers is None else check_size(workers, "workers")
    return Backend("local processes", count, open_processes)


class _Inline(Executor):
    """Runs what is submitted at once, in this thread."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def inline() -> Backend:
    """Return a backend that runs one trial after another in this process, with the objects that it has."""
    return Backend("this process", 1, lambda count: nullcontext(_Inline()))


class _Pool(ProcessPoolExecutor):
    """Processes that never receive SIGINT, and to which functions are sent as bytes."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        try:
            pickled = pickle.dumps((fn, args, kwargs))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InputError(
                f"a trial must be a function at the top level of a module, which other processes can import: {error}"
            ) from error
        with hold_interrupts():
            return super().submit(call_pickled, pickled)


@contextmanager
def hold_interrupts() -> Iterator[None]:
    """Block SIGINT: a process that is started inside the block never receives it, not even while it still imports.

    Such a process inherits the signal mask. In this process the mask does not suffice: another thread may receive the
    signal, and Python would interrupt the main thread between starting a process and sending it its first task. So the
    signal is recorded, and raised again at the end.
    """
    if not hasattr(signal, "pthread_sigmask"):  # not POSIX
        yield
        return
    received: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    replace = callable(handler) and threading.current_thread() is threading.main_thread()
    if replace:
        signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if replace:
            signal.signal(signal.SIGINT, handler)
        if received:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def open_processes(count: int) -> Iterator[Executor]:
    """Open a pool whose workers end with this process, however it ends, and when the block is left.

    Fresh processes (spawned), because a fork would copy the locks of threads.
    """
    for _ in range(MAX_STARTS):
        with _pool(count) as pool:
            if _starts(pool, count):
                yield pool
                return
            if not _was_killed(pool):
                break
    raise WordswayError(
        "worker processes end before their first trial: a script must call run() under "
        'if __name__ == "__main__", and there must be memory for one process per worker'
    )


@contextmanager
def _pool(count: int) -> Iterator[_Pool]:
    reader, writer = multiprocessing.Pipe(duplex=False)
    pool = _Pool(count, multiprocessing.get_context("spawn"), start_worker, (reader,))
    try:
        yield pool
        pool.shutdown()
    finally:
        writer.close()
        for process in list((pool._processes or {}).values()):  # none after a shutdown; public from Python 3.14
            process.terminate()  # after an error or an interrupt: within a trial, or while it starts
        pool.shutdown(cancel_futures=True)
        reader.close()


def _starts(pool: Executor, count: int) -> bool:
    """Start all workers and wait for the first."""
    try:
        ready = [pool.submit(os.getpid) for _ in range(count)]
        done, _ = wait(ready, return_when=FIRST_COMPLETED)
        return all(future.result() for future in done)
    except BrokenExecutor:
        return False


def _was_killed(pool: _Pool) -> bool:
    """Return whether a signal ended all processes of a pool that did not start; one that fails ends by itself."""
    processes = list((pool._processes or {}).values())
    pool.shutdown()  # its own thread waits for each of them, and of two that wait one may get no exit code
    return all(process.exitcode is not None and process.exitcode < 0 for process in processes)


def wrap(executor: Executor) -> Backend:
    """Return a backend of a given executor, which stays open."""
    if not callable(getattr(executor, "submit", None)):
        raise InputError(f"executor must be a concurrent.futures.Executor, got {type(executor).__name__}")

    @contextmanager
    def lend(count: int) -> Iterator[Executor]:
        yield executor

    return Backend(type(executor).__name__, getattr(executor, "_max_workers", None) or cores(), lend, renewable=False)


@contextmanager
def dask(address: str, timeout: float = _TIMEOUT) -> Iterator[Backend]:
    """Connect to the Dask scheduler at an address such as tcp://10.0.0.5:8786.

    Every worker must have this version of wordsway installed; how they were started (dask-jobqueue on Slurm, the Dask
    operator on Kubernetes, an SSH cluster) does not matter.
    """
    try:
        from distributed import Client as Untyped
        from distributed.client import ClosedClientError
    except ImportError as error:
        raise MissingExtra.of("a Dask cluster needs distributed", "cluster") from error
    Client: Any = Untyped
    try:
        _check_listening(address, timeout)
        client = Client(address, timeout=timeout, set_as_default=False)
    except (OSError, ValueError, TypeError, ImportError) as error:
        raise InputError(
            f"a Dask scheduler must answer at {address} within {timeout:g} s, got {one_line(error)}: "
            "check the address and that the scheduler runs"
        ) from error

    def disconnected() -> bool:
        stream = client.scheduler_comm
        return client.status != "running" or stream is None or bool(stream.closed())

    @contextmanager
    def lend(count: int) -> Iterator[Executor]:
        executor = client.get_executor(pure=False, retries=0)
        try:
            yield executor
        finally:
            with suppress(ClosedClientError):
                executor.shutdown(wait=False)  # cancels what an interrupt or an error left behind

    with client:
        _check_workers(client, address, timeout)
        count = sum(client.nthreads().values())
        yield Backend(f"Dask at {address}", count, lend, disconnected=disconnected, batch=_BATCH)


def _check_workers(client: Any, address: str, timeout: float) -> None:
    """Raise unless the cluster has workers, all with this version of wordsway."""
    try:
        client.wait_for_workers(1, timeout=timeout)
    except TimeoutError:
        raise InputError(
            f"the Dask scheduler at {address} must have workers, got none in {timeout:g} s: start some"
        ) from None
    expected = versions()["wordsway"]
    for name, version in client.run(installed_version, on_error="return").items():
        if version != expected:
            received = f"version {version}" if isinstance(version, str) else one_line(version)
            raise InputError(f"Dask worker {name} must have wordsway {expected} installed, got {received}")


def installed_version() -> str:
    """Return the version of wordsway where this is called, such as in a worker."""
    return versions()["wordsway"]


def _check_listening(address: str, timeout: float) -> None:
    """Raise unless something listens at an address: a client that finds nothing there leaves threads behind."""
    from distributed.comm.addressing import get_address_host_port, parse_address
    from distributed.comm.registry import get_backend

    scheme = parse_address(address)[0]
    get_backend(scheme)  # raises for schemes that Dask does not know
    if scheme == "inproc":
        raise ValueError("an address inside another process")
    if scheme not in ("tcp", "tls"):
        return
    host_and_port = get_address_host_port(address)
    end = time.monotonic() + timeout
    while True:
        try:
            socket.create_connection(host_and_port, timeout=timeout).close()
        except OSError:  # it may be about to start
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return
