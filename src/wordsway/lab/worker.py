"""What runs in a worker process: one trial, metered, with any error caught and described."""

from __future__ import annotations

import os
import platform
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from multiprocessing.connection import Connection
from typing import Any

from wordsway.lab.experiment import Parameters, Record, canonical_record
from wordsway.memory import Meter

_PACKAGES = ("wordsway", "torch", "numpy", "scipy")


@dataclass(frozen=True)
class Outcome:
    """What came of a trial: a record or an error, never both."""

    record: str | None  # JSON
    error: str | None
    dtype: str | None
    seconds: float
    peak_mb: float
    versions: dict[str, str]
    machine: str


def work(trial: Callable[[Parameters, int], Record], parameters: Parameters, seed: int) -> Outcome:
    """Run one trial with one thread, so that its numbers do not depend on who else works on this machine."""
    use_one_thread()
    record, error, dtype = None, None, None
    with Meter() as meter:
        try:
            found = trial(parameters, seed)
            record = canonical_record(found)
            dtype = found.get("dtype")
        except Exception as problem:
            error = _describe(problem)
    return Outcome(record, error, dtype, meter.seconds, meter.peak_mb, versions(), platform.node())


@lru_cache(maxsize=1)
def use_one_thread() -> None:
    """One thread for torch and for the linear algebra below NumPy and SciPy, from now on in this process."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    threadpool_limits(limits=1)


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """What numbers may depend on: this package, those it computes with, and Python."""
    return {name: metadata.version(name) for name in _PACKAGES} | {"python": platform.python_version()}


def begin(lifeline: Connection) -> None:
    """Start of a worker process: it ends when the other end of the lifeline closes, as it does when the runner dies.

    The keyboard's interrupt is for the runner, which decides what becomes of the trials.
    """
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        try:
            lifeline.recv()
        except (EOFError, OSError):
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _describe(problem: Exception) -> str:
    """One line with the place it came from: "ValueError: ... (figure.py:12)"."""
    frames: list[Any] = traceback.extract_tb(problem.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return " ".join(f"{type(problem).__name__}: {problem}".split()) + place
