"""Kernels against good short baselines: sides that run in turn in one process, and a floor from the machine's peak.

A job calls `alternate` with a baseline of `benchmarks.baselines` and ours, and `peak`; a case makes a `Contest` of the
seconds that both returned, whose `row` and `targets` go into the report.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.report import Row, Target, agree, faster, number
from wordsway.threads import one_thread

TABLE = "Ours against good short baselines, in CPU seconds of one core"
_SIDE, _LONG = 1024, 2**27  # of the matrices, and bytes of the arrays, with which the peak is measured


def alternate(sides: Mapping[str, Callable[[], Any]], runs: int) -> tuple[dict[str, Any], dict[str, float]]:
    """Return the last result of each side, and the median of its CPU seconds over `runs` rounds of all in turn.

    One thread; an untimed round goes before. What other programs do meanwhile slows all sides alike.
    """
    results: dict[str, Any] = {}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    with one_thread():
        for turn in range(runs + 1):
            for name, work in sides.items():
                begin = time.process_time()
                results[name] = work()
                if turn:
                    seconds[name].append(time.process_time() - begin)
    return results, {name: statistics.median(times) for name, times in seconds.items()}


@dataclass(frozen=True)
class Work:
    """The least that a kernel does: operations in float32 and in float64, and bytes read from and written to memory."""

    single: float = 0.0
    double: float = 0.0
    traffic: float = 0.0

    def floor(self, peak: Mapping[str, float]) -> float:
        """Return the CPU seconds that this takes at the peak, arithmetic and traffic at the same time."""
        return max(self.single / peak["single"] + self.double / peak["double"], self.traffic / peak["traffic"])


def peak() -> dict[str, float]:
    """Return operations per second of large matrix products and bytes per second of a copy, the best of some."""

    def best(work: Callable[[], Any], amount: float) -> float:
        times = []
        for _ in range(8):
            begin = time.process_time()
            work()
            times.append(time.process_time() - begin)
        return amount / min(times)

    numbers = {}
    with one_thread():
        for name, dtype in (("single", torch.float32), ("double", torch.float64)):
            square, target = torch.ones(_SIDE, _SIDE, dtype=dtype), torch.ones(_SIDE, _SIDE, dtype=dtype)
            numbers[name] = best(lambda a=square, b=target: torch.mm(a, a, out=b), 2.0 * _SIDE**3)  # type: ignore[misc]
        source, copy = torch.ones(_LONG, dtype=torch.uint8), torch.ones(_LONG, dtype=torch.uint8)
        numbers["traffic"] = best(lambda: copy.copy_(source), 2.0 * _LONG)
    return numbers


@dataclass(frozen=True)
class Contest:
    """CPU seconds of the sides of one case.

    Attributes
    ----------
    case : str
    baseline, ours : float
    floor : float
        Seconds that the least work takes at the machine's peak, see `Work`.
    gap : float
        How far our values are from the baseline's, relative to them.
    published : float or None
    what : str
        What the baseline is, for the table.
    """

    case: str
    baseline: float
    ours: float
    floor: float
    gap: float
    published: float | None = None
    what: str = ""

    @property
    def ratio(self) -> float:
        """How many times faster ours is than the baseline."""
        return self.baseline / self.ours

    @property
    def row(self) -> Row:
        against = {} if self.published is None else {"times published": number(self.published / self.ours)}
        cells = {
            "case": self.case,
            "good baseline": self.what,
            "published, s": "" if self.published is None else number(self.published),
            "baseline, s": number(self.baseline),
            "ours, s": number(self.ours),
            "floor, s": number(self.floor),
            "times baseline": number(self.ratio),
            **against,
            "ours / floor": number(self.ours / self.floor),
            "values apart": f"{self.gap:.0e}",
        }
        return Row(TABLE, cells)

    def targets(self, least: float, tolerance: float, published: float | None = None) -> tuple[Target, ...]:
        """Return the targets: so many times faster, at values no farther apart than the tolerance."""
        case = f"{self.case}, against {self.what}"
        found = [
            faster(case, self.ratio, least),
            agree(case, self.gap, tolerance, f"the same values, to {tolerance:g}"),
        ]
        if published is not None and self.published is not None:
            found.append(faster(self.case, self.published / self.ours, published, " than published"))
        return tuple(found)
