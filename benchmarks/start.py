"""How long a command takes from its start to its answer, and workers until the first is ready."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.child import Child, job
from benchmarks.report import Outcome, Row, number, within
from wordsway.experiments import Store
from wordsway.experiments.executors import open_processes

START = "Start-up (ours)"
_TEXT = "The film was not good, but the acting was brilliant."


@job
def command(arguments: list[str], runs: int) -> dict[str, Any]:
    """CPU seconds of a command in processes of its own, the median of those after the first."""
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "results" / "store.sqlite"
        store.parent.mkdir()
        Store(store).close()  # for `results`, which needs one
        for _ in range(runs + 1):
            before = _children()
            line = [sys.executable, "-m", "wordsway", *arguments]
            subprocess.run(line, cwd=folder, stdout=subprocess.DEVNULL, check=True)
            seconds.append(_children() - before)
    return {"seconds": statistics.median(seconds[1:])}


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@job
def pool(workers: int, runs: int) -> dict[str, Any]:
    """Seconds until worker processes take trials, the median."""
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        with open_processes(workers):
            seconds.append(time.perf_counter() - begin)
    return {"seconds": statistics.median(seconds)}


def started(child: Child, size: Mapping[str, Any]) -> Outcome:
    """The commands that list, one text with the loading of its model, and a pool of workers."""
    rows, targets = [], []
    lists = {f"wordsway {name}": ([name], 0.5) for name in size["lists"]}
    for case, (arguments, limit) in {**lists, "wordsway text, 12 words": (["text", _TEXT], 4.0)}.items():
        got = child("command", arguments=arguments, runs=size["runs"])
        rows.append(Row(START, {"case": case, "CPU seconds": number(got["seconds"])}))
        targets.append(within(case, got, limit))
    got = child("pool", workers=2, runs=size["runs"])
    rows.append(Row(START, {"case": "two workers are ready", "seconds": number(got["seconds"])}))
    targets.append(within("two workers are ready", got, 2.0))
    return Outcome(tuple(rows), tuple(targets))
