"""One thread for small kernels, where starting and joining threads costs more than they save."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import Any, TypeAlias

import torch

Setting: TypeAlias = tuple[Any, int]  # a library's controller, and a number of threads

# Operations from which on a product is worth several threads: 30 ms of one core, some hundred times what starting and
# joining threads takes on a busy machine.
LARGE = 1e9

_LOCK = threading.Lock()
# The state below is read and written under the lock.
_INSIDE: set[int] = set()  # threads that are inside a block
_PROCESS: dict[str, Setting] = {}  # libraries with one setting per process, by file, as they were before
_DEFAULT = [1]  # torch's number of threads before the first thread entered


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch, BLAS and OpenMP to one thread inside a block, and restore their settings afterwards.

    Blocks may be nested, and several threads may be inside at the same time: each restores its own settings, and the
    last one those that exist once per process. Entering and leaving take about 30 microseconds together, and some
    milliseconds where modules were imported since the last block, because those may have loaded another library.

    Notes
    -----
    A library that is first loaded inside a block keeps its own number of threads. OpenBLAS has one setting per process,
    so threads outside the block use one thread meanwhile, too. torch hands its latest setting to each thread that first
    computes with it: a thread that does so while another one is inside a block keeps one thread.
    """
    me = threading.get_ident()
    if me in _INSIDE:
        yield
        return
    with _LOCK:
        threads, own = _limit(me)
    try:
        yield
    finally:
        with _LOCK:
            _INSIDE.discard(me)
            _apply(own)
            torch.set_num_threads(threads)  # after `own`, which has torch's OpenMP library too
            if not _INSIDE:
                _apply(_PROCESS.values())
                _PROCESS.clear()


def suited(operations: float | None) -> AbstractContextManager[None]:
    """Return `one_thread` for work of few operations; otherwise, and for None, the threads stay as they are."""
    return one_thread() if operations is not None and operations < LARGE else nullcontext()


def _limit(me: int) -> tuple[int, list[Setting]]:
    """Set one thread everywhere; return what this thread had: torch's number of threads, and its other settings."""
    per_thread, per_process = _libraries(len(sys.modules))
    threads = torch.get_num_threads()
    if not _INSIDE:
        _DEFAULT[0] = threads
    elif threads == 1:  # handed down by a thread that is inside
        threads = _DEFAULT[0]
    own = [(library, library.get_num_threads()) for library in per_thread]
    for library in per_process:
        _PROCESS.setdefault(library.filepath, (library, library.get_num_threads()))
    _INSIDE.add(me)
    _apply((library, 1) for library in (*per_thread, *per_process))
    torch.set_num_threads(1)
    return threads, own


def _apply(settings: Iterable[Setting]) -> None:
    from threadpoolctl import OpenBLASController

    # From version 3.7, OpenBLAS obeys only the first thread that sets a limit, until that thread gives up control.
    release = getattr(OpenBLASController, "clear_controlling_thread", lambda force: None)
    release(force=True)
    for library, threads in settings:
        library.set_num_threads(threads)
    release(force=True)


@lru_cache(maxsize=1)
def _libraries(modules: int) -> tuple[list[Any], list[Any]]:
    """Controllers of the loaded libraries: those with a setting per thread, and those with one per process.

    The number of imported modules is the key of the cache: libraries are loaded by imports.
    """
    from threadpoolctl import ThreadpoolController

    found = ThreadpoolController().lib_controllers
    openmp = [
        library for library in found if "openmp" in (library.internal_api, getattr(library, "threading_layer", None))
    ]
    return openmp, [library for library in found if library not in openmp]
