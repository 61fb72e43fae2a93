"""Measuring a plan, one trial after another: each is a list of records, one for each word that was asked."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

from wordsway.cli.plan import Plan
from wordsway.memory import ResourceUsage
from wordsway.sensitivity import Sensitivity, response_sensitivity, sensitivity_profile

Record = dict[str, Any]

_DELAY = 2.0  # seconds before a bar appears
_TICK = 0.5


def run(plan: Plan) -> Iterator[list[Record]]:
    """Yield the records of each trial as it ends; trial k uses the seed S + k for its context, weights and search."""
    with _progress(plan.trials) as bar:
        for seed in range(plan.seed, plan.seed + plan.trials):
            records = _trial(plan, seed)
            with bar.get_lock():  # so that the bar and what the caller prints do not share a line
                bar.clear(nolock=True)
                yield records
            bar.update()


def _trial(plan: Plan, seed: int) -> list[Record]:
    """Draw the weights, search and bound; drawing or reading the context is not counted in the seconds."""
    context = plan.context(seed)
    r, bound = plan.radius, plan.ceiling
    with ResourceUsage() as usage:
        if plan.word is None:
            phi = plan.map.build(plan.n, plan.d, plan.options, seed, plan.dtype)
            shown = sys.stderr.isatty()
            profile = sensitivity_profile(phi, context, radius=r, ceiling=bound, seed=seed, progress=shown)
            found = [profile.at(place) for place in range(plan.n)]
        else:
            response = plan.map.respond(context, plan.word, plan.options, seed)
            found = [response_sensitivity(response, plan.word, r, ceiling=bound, seed=seed)]
    return [_record(plan, seed, one, usage) for one in found]


def _record(plan: Plan, seed: int, found: Sensitivity, usage: ResourceUsage) -> Record:
    record: Record = {
        "map": plan.map.name,
        "n": plan.n,
        "d": plan.d,
        "word": found.word,
        "seed": seed,
        "sensitivity": found.value,
        "ceiling": found.ceiling,
        "seconds": round(usage.seconds, 6),
        "peak_mb": round(usage.peak_mb, 3),
        "dtype": found.cost.dtype,
        "status": found.status,
        "radius": found.radius,
        "data": plan.data,
        "ceiling_kind": found.ceiling_kind,
        "failure": found.failure,
        **plan.options.given(),
    }
    if plan.contexts is not None:
        record["context"] = seed % len(plan.contexts)
    return record


@contextmanager
def _progress(trials: int) -> Iterator[Any]:
    """A bar over the trials on a terminal, which appears after two seconds and ticks while a trial runs."""
    over = threading.Event()

    def tick() -> None:
        wait = _DELAY
        while not over.wait(wait):
            bar.refresh()
            wait = _TICK

    with tqdm(total=trials, desc="trials", unit="trial", delay=_DELAY, leave=False, disable=None) as bar:
        ticker = threading.Thread(target=tick, daemon=True)
        if not bar.disable:
            ticker.start()
        try:
            yield bar
        finally:
            over.set()
            if ticker.is_alive():
                ticker.join()
            bar.clear()  # tqdm itself only removes what its own updates drew
