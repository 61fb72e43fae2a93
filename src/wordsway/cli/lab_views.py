"""What the commands of the laboratory print for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wordsway import report
from wordsway.errors import InputError, nearest
from wordsway.experiments.executors import Backend
from wordsway.experiments.experiment import SCALES, VERDICTS, RunConfig
from wordsway.experiments.results import FigureResult
from wordsway.experiments.runner import Plan, RunSummary
from wordsway.experiments.store import DONE, STATES, Row, Store
from wordsway.figures import all_figures
from wordsway.memory import human

_COLOURS = {True: "green", False: "bold red", None: "yellow"}
_LISTED = 20  # problems that are listed; the rest is counted


def _console() -> Console:
    return Console(highlight=False)


def _mark(holds: bool | None) -> Text:
    return Text(VERDICTS[holds], _COLOURS[holds])


def duration(seconds: float) -> str:
    """Seconds for people: "40 s", "3 min", "2.5 h"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def plan_line(plan: Plan, place: Backend) -> str:
    """One line before a run: how much there is to do, and where."""
    asked, missing = len(plan.trials), len(plan.missing)
    if not missing:
        return f"all {asked} trials are stored: nothing to run"
    stored = f", {asked - missing} of them stored" if missing < asked else ""
    seconds = _seconds(plan)
    time = "" if seconds is None else f", about {duration(seconds / min(place.workers, missing))}"
    trials = "1 trial" if asked == 1 else f"{asked} trials"
    return f"{trials}{stored}: running {missing} on {_workers(place.workers)} ({place.name}){time}"


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


def _seconds(plan: Plan) -> float | None:
    """Seconds on one core for all that is missing, where everything can be estimated."""
    known = [part.estimate for part in plan.parts]
    if None in known:
        return None
    return sum(estimate.seconds for estimate in known if estimate is not None)


def print_plan(plan: Plan, workers: int, as_json: bool) -> None:
    """The plan of a run: for each experiment its trials, sizes, seconds and memory."""
    rows = [
        {
            "experiment": part.experiment.name,
            "trials": len(part.trials),
            "stored": len(part.trials) - len(part.missing),
            "to_run": len(part.missing),
            "seconds": None if part.estimate is None else round(part.estimate.seconds, 1),
            "bytes": None if part.estimate is None else part.estimate.memory,
            "sizes": part.sizes,
        }
        for part in plan.parts
    ]
    if as_json:
        for row in rows:
            print(json.dumps(row), flush=True)
        return
    console = _console()
    table = report.plain_table(("experiment", "trials", "stored", "to run", "one core", "memory a trial", "sizes"))
    for row, part in zip(rows, plan.parts, strict=True):
        estimate = part.estimate
        cost = ("?", "?") if estimate is None else (duration(estimate.seconds), human(estimate.memory))
        if not part.missing:
            cost = ("-", "-")
        counts = (str(row[name]) for name in ("trials", "stored", "to_run"))
        table.add_row(part.experiment.name, *counts, *cost, part.sizes)
    console.print(table)
    seconds = _seconds(plan)
    if plan.missing and seconds is not None:
        time = duration(seconds / min(workers, len(plan.missing)))
        console.print(f"\nabout {time} on {_workers(workers)}; nothing was run", style="bold")


def print_answers(answers: Sequence[FigureResult], tally: RunSummary, page: Path, as_json: bool) -> None:
    """The verdict of each figure, and where the page is."""
    if as_json:
        for found in answers:
            print(json.dumps({**found.to_dict(), "page": str(page)}, ensure_ascii=False), flush=True)
        return
    console = _console()
    for found in answers:
        console.print(Text.assemble((found.experiment.name, "bold cyan"), "  ", found.experiment.title))
        lines = Table.grid(padding=(0, 2, 0, 0))
        for verdict in found.verdicts:
            said = Text.assemble(verdict.claim, (f"\nmeasured {verdict.measured}", "bright_black"))
            lines.add_row("", _mark(verdict.holds), said)
        if not found.verdicts:
            lines.add_row("", _mark(None), "no trial has finished")
        console.print(lines)
    _print_problems(console, tally.problems, f"see wordsway results show --out {page.parent}")
    console.print()
    console.print(Text(f"{tally.done} trials run, {tally.stored + tally.elsewhere} were stored; the page is {page}"))


def trouble(answers: Sequence[FigureResult], tally: RunSummary) -> str | None:
    """One line that says what went wrong, if anything did."""
    parts = []
    if tally.failed or tally.died:
        count = tally.failed + tally.died
        parts.append(f"{count} of {tally.planned} trials failed: run the same command again to repeat only those")
    if wrong := [found.experiment.name for found in answers if found.holds is False]:
        parts.append(f"claims that do not hold: {', '.join(wrong)}")
    if unclear := [found.experiment.name for found in answers if found.holds is None]:
        parts.append(f"too few trials to tell: {', '.join(unclear)}")
    return "; ".join(parts) or None


def print_figures(as_json: bool) -> None:
    """The figures there are."""
    table = report.plain_table(("figure", "what it shows", *SCALES), right=(2, 3))
    for figure in all_figures().values():
        counts = {scale: len(figure.planned(RunConfig(scale))) for scale in SCALES}
        table.add_row(figure.name, figure.title, *(str(counts[scale]) for scale in SCALES))
        if as_json:
            row = {"name": figure.name, "title": figure.title, "about": figure.about, "trials": counts}
            print(json.dumps(row, ensure_ascii=False), flush=True)
    if as_json:
        return
    console = _console()
    console.print(table)
    console.print("\nNumbers are trials, those of the figures it needs included. Example: wordsway reproduce fig2-rf")


def print_results(store: Store, names: Sequence[str], as_json: bool) -> None:
    """What a store holds: counts for each experiment, and the trials that failed and were not finished since."""
    check_stored(names, store.experiments())
    kept = list(store.rows(names))
    lines = _counts(kept)
    if as_json:
        for line in lines:
            print(json.dumps(line), flush=True)
        return
    headings = ("experiment", "version", *STATES, "computed for")
    table = report.plain_table(headings, right=range(1, len(headings)))
    for line in lines:
        cells = (str(line[name]) for name in ("version", *STATES))
        table.add_row(str(line["experiment"]), *cells, duration(line["seconds"]))
    console = _console()
    console.print(table)
    done = {row.trial for row in kept if row.state == DONE}
    problems = {row.trial: row for row in kept if row.trial not in done}
    _print_problems(console, list(problems.values()), "wordsway results export --all has them")


def check_stored(names: Sequence[str], known: Sequence[str]) -> None:
    """Whether a store has trials of these experiments."""
    for name in names:
        if name not in known:
            there = f"it has {', '.join(known)}" if known else "it is empty"
            raise InputError(f"the store has no trials of {name!r}{nearest(name, known)}: {there}")


def _counts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For each experiment and version: how many trials ended in each state, and the seconds they took together."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows:
        name, version = row.trial.experiment, row.trial.version
        new = {"experiment": name, "version": version, **dict.fromkeys(STATES, 0), "seconds": 0.0}
        line = found.setdefault((name, version), new)
        line[row.state] += 1
        line["seconds"] = round(line["seconds"] + (row.seconds or 0.0), 3)
    return list(found.values())


def _print_problems(console: Console, rows: Sequence[Row], more: str) -> None:
    """The first trials that failed or died, a line each."""
    for row in rows[:_LISTED]:
        trial = row.trial
        console.print(Text(f"{row.state}: {trial.experiment} {trial.parameters} seed {trial.seed}: {row.error}"))
    if len(rows) > _LISTED:
        console.print(Text(f"and {len(rows) - _LISTED} more: {more}"))
