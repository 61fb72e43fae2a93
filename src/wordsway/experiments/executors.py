"""Where trials run: processes of this machine, or a Dask cluster by its address."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from wordsway.errors import InputError, MissingExtra, WordswayError, one_line
from wordsway.experiments import worker

P = ParamSpec("P")
T = TypeVar("T")

_PATIENCE = 10  # seconds until a scheduler must have answered, and then until it must have a worker
_STARTS = 5  # how often processes are started again that somebody kills before they have begun


@dataclass(frozen=True)
class Backend:
    """Executors of one kind.

    Attributes
    ----------
    workers : int
        How many trials run at once unless told.
    open : callable
        Count of workers -> context manager that gives an executor.
    renewable : bool
        Whether a new executor can be opened when one breaks because a worker process died.
    gone : callable
        Whether it has gone away, so that what runs there may never end; asked now and then.
    """

    name: str
    workers: int
    open: Callable[[int], AbstractContextManager[Executor]]
    renewable: bool = True
    gone: Callable[[], bool] = bool  # False: it stays


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def local(workers: int | None = None) -> Backend:
    """Processes of this machine, as many as there are cores unless told."""
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise InputError(f"workers must be at least 1, got {workers}")
    return Backend("local processes", workers or cores(), _processes)


class _Pool(ProcessPoolExecutor):
    """Processes that are started deaf to the keyboard, and to which functions travel as bytes."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        try:
            packed = pickle.dumps((fn, args, kwargs))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InputError(
                f"a trial must be a function at the top level of a module, which other processes can import: {error}"
            ) from error
        with _deaf():
            return super().submit(worker.unpack, packed)


@contextmanager
def _deaf() -> Iterator[None]:
    """Hold SIGINT back: a process that is started meanwhile never gets it, not even while it still imports.

    The mask is what such a process inherits. Here it does not suffice: another thread may take the signal, and Python
    would interrupt this one between starting a process and telling it what to do. So the signal is noted, and raised
    again at the end.
    """
    if not hasattr(signal, "pthread_sigmask"):  # not POSIX
        yield
        return
    noted: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    ours = callable(handler) and threading.current_thread() is threading.main_thread()
    if ours:
        signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if ours:
            signal.signal(signal.SIGINT, handler)
        if noted:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def _processes(count: int) -> Iterator[Executor]:
    """A pool whose workers hold a lifeline: they end with this process, however it ends, and when the block is left.

    Fresh processes (spawned), because a fork would copy the threads' locks.
    """
    for _ in range(_STARTS):
        with _pool(count) as pool:
            if _starts(pool, count):
                yield pool
                return
            if not _killed(pool):
                break
    raise WordswayError(
        "worker processes end before their first trial: a script must call run() under "
        'if __name__ == "__main__", and there must be memory for one process a worker'
    )


@contextmanager
def _pool(count: int) -> Iterator[_Pool]:
    reader, writer = multiprocessing.Pipe(duplex=False)
    pool = _Pool(count, multiprocessing.get_context("spawn"), worker.begin, (reader,))
    try:
        yield pool
        pool.shutdown()
    finally:
        writer.close()
        for process in list((pool._processes or {}).values()):  # none after a shutdown; public from Python 3.14
            process.terminate()  # after an error or an interrupt: in the middle of a trial, or of starting
        pool.shutdown(cancel_futures=True)
        reader.close()


def _starts(pool: Executor, count: int) -> bool:
    """Start all workers and wait for the first."""
    try:
        ready = [pool.submit(os.getpid) for _ in range(count)]
        ended, _ = wait(ready, return_when=FIRST_COMPLETED)
        return all(future.result() for future in ended)
    except BrokenExecutor:
        return False


def _killed(pool: _Pool) -> bool:
    """Whether all processes of a pool that did not start were ended from outside; one that fails ends by itself."""
    processes = list((pool._processes or {}).values())
    pool.shutdown()  # its own thread asks how each ended, and two that ask at once may get no answer
    return all(process.exitcode is not None and process.exitcode < 0 for process in processes)


def given(executor: Executor) -> Backend:
    """Somebody's own executor: it is used, and left open."""
    if not callable(getattr(executor, "submit", None)):
        raise InputError(f"executor must be a concurrent.futures.Executor, got {type(executor).__name__}")

    @contextmanager
    def lend(count: int) -> Iterator[Executor]:
        yield executor

    return Backend(type(executor).__name__, getattr(executor, "_max_workers", None) or cores(), lend, renewable=False)


@contextmanager
def dask(address: str, patience: float = _PATIENCE) -> Iterator[Backend]:
    """The workers of the Dask scheduler at an address such as tcp://10.0.0.5:8786.

    Every worker must have this version of wordsway installed; whatever started them (dask-jobqueue on Slurm, the Dask
    operator on Kubernetes, an SSH cluster) does not matter here.
    """
    try:
        from distributed import Client as Untyped
        from distributed.client import ClosedClientError
    except ImportError as error:
        raise MissingExtra.of("a Dask cluster needs distributed", "cluster") from error
    Client: Any = Untyped
    try:
        _knock(address, patience)
        client = Client(address, timeout=patience, set_as_default=False)
    except (OSError, ValueError, TypeError, ImportError) as error:
        raise InputError(
            f"a Dask scheduler must answer at {address} within {patience:g} s, got {one_line(error)}: "
            "check the address and that the scheduler runs"
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=patience)
        except TimeoutError:
            raise InputError(
                f"the Dask scheduler at {address} must have workers, got none in {patience:g} s: start some"
            ) from None

        def gone() -> bool:
            stream = client.scheduler_comm
            return client.status != "running" or stream is None or bool(stream.closed())

        threads = client.nthreads()
        ours = worker.versions()["wordsway"]
        for name, found in client.run(_version_there, on_error="return").items():
            if found != ours:
                what = f"version {found}" if isinstance(found, str) else one_line(found)
                raise InputError(f"Dask worker {name} must have wordsway {ours} installed, got {what}")

        @contextmanager
        def lend(count: int) -> Iterator[Executor]:
            executor = client.get_executor(pure=False, retries=0)
            try:
                yield executor
            finally:
                with suppress(ClosedClientError):
                    executor.shutdown(wait=False)  # cancels what an interrupt or an error left behind

        yield Backend(f"Dask at {address}", sum(threads.values()), lend, gone=gone)


def _knock(address: str, patience: float) -> None:
    """Raise unless something listens at an address: a client that finds nothing there leaves threads behind."""
    from distributed.comm.addressing import get_address_host_port, parse_address
    from distributed.comm.registry import get_backend

    scheme = parse_address(address)[0]
    get_backend(scheme)  # refuses what Dask does not speak
    if scheme == "inproc":
        raise ValueError("an address inside another process")
    if scheme not in ("tcp", "tls"):
        return
    place = get_address_host_port(address)
    end = time.monotonic() + patience
    while True:
        try:
            socket.create_connection(place, timeout=patience).close()
        except OSError:  # it may be about to start
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


def _version_there() -> str:
    return worker.versions()["wordsway"]
