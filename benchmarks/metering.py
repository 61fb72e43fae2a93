"""Seconds and memory of repeated work in a process of its own."""

from __future__ import annotations

import ctypes
import gc
import statistics
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import psutil  # type: ignore[import-untyped]
import torch

from wordsway.memory import ResourceUsage

Result = TypeVar("Result")


def measure(work: Callable[[int], Result], runs: int = 1, warm: bool = True) -> tuple[list[Result], dict[str, Any]]:
    """Results of work(0), ..., work(runs - 1), the median of their seconds, and the memory they needed.

    Parameters
    ----------
    work : callable
        What is measured; its argument is the number of the run.
    runs : int
        How many timed runs.
    warm : bool
        Whether work(0) is done once before, untimed but metered: for work that takes less than a few seconds.

    Returns
    -------
    results : list
    costs : dict
        `seconds` (median), `slowest`, `rise` (bytes by which the peak of resident memory exceeds what was resident
        just before the first run) and `peak` (bytes of the whole process), `runs` and `threads`.
    """
    _give_back()
    before = int(psutil.Process().memory_info().rss)
    results, seconds, peak = [], [], 0.0
    if warm:
        with ResourceUsage() as meter:
            work(0)
        peak = meter.peak_mb
    for run in range(runs):
        with ResourceUsage() as meter:
            results.append(work(run))
        seconds.append(meter.seconds)
        peak = max(peak, meter.peak_mb)
    size = int(peak * 1e6)
    return results, {
        "seconds": statistics.median(seconds),
        "slowest": max(seconds),
        "rise": max(size - before, 0),
        "peak": size,
        "runs": runs,
        "threads": torch.get_num_threads(),
    }


def _give_back() -> None:
    """Return freed memory to the system, so that work cannot reuse it unseen."""
    gc.collect()
    if sys.platform == "linux":
        try:
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        except (OSError, AttributeError):
            return  # another C library: the rise may then be a little low, for both sides
