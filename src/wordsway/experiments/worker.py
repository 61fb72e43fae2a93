"""What runs in a worker process: one trial, metered, with any error caught and described."""

from __future__ import annotations

import os
import pickle
import platform
import signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from multiprocessing.connection import Connection
from typing import Any

from wordsway.experiments.experiment import Parameters, Record, canonical_record
from wordsway.memory import ResourceUsage
from wordsway.threads import one_thread

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
    """Run one trial with one thread, so that its numbers do not depend on the machine or on what else runs there."""
    import scipy.linalg  # noqa: F401  # only libraries that are loaded are limited, and SciPy brings its own

    record, error, dtype = None, None, None
    with one_thread(), ResourceUsage() as usage:
        try:
            found = trial(parameters, seed)
            record = canonical_record(found)
            dtype = None if found.get("dtype") is None else str(found["dtype"])
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # SystemExit too: it must not end the runner
            error = _describe(problem)
    return Outcome(record, error, dtype, usage.seconds, usage.peak_mb, versions(), platform.node())


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """What numbers may depend on: this package, those it computes with, and Python."""
    return {name: metadata.version(name) for name in _PACKAGES} | {"python": platform.python_version()}


def begin(lifeline: Connection) -> None:
    """Start of a worker process: it ends when the other end of the lifeline closes, as it does when the runner dies.

    The keyboard's interrupt is for the runner, which decides what becomes of the trials.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # for libraries that a trial itself loads

    def watch() -> None:
        try:
            lifeline.recv()
        except (EOFError, OSError):
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def unpack(packed: bytes) -> Any:
    """Call a pickled function with pickled arguments.

    A pool's own unpickling ends the worker process where the function cannot be imported; here that is an error.
    """
    function, arguments, named = pickle.loads(packed)
    return function(*arguments, **named)


def _describe(problem: BaseException) -> str:
    """One line with the place it came from: "ValueError: ... (figure.py:12)"."""
    frames: list[Any] = traceback.extract_tb(problem.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return kind_and_text(problem) + place


def kind_and_text(problem: BaseException) -> str:
    """The kind and the text of an error."""
    return " ".join(f"{type(problem).__name__}: {problem}".split()).removesuffix(":")
