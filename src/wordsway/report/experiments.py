"""Terminal views of experiments: plans, verdicts on figures, and stored trials."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wordsway.experiments.experiment import FAILS, HOLDS, UNCLEAR, WEAKER, tally
from wordsway.experiments.store import DONE, STATES, Row
from wordsway.figures import natural
from wordsway.memory import human
from wordsway.report.terminal import Columns, console, duration, table
from wordsway.report.terminal import Row as TableRow

if TYPE_CHECKING:
    from wordsway.experiments.executors import Backend
    from wordsway.experiments.results import FigureResult
    from wordsway.experiments.runner import Plan, RunSummary

_COLOURS = {True: "green", False: "bold red", None: "yellow"}
_WORDS = {HOLDS: "green", WEAKER: "yellow", FAILS: "bold red", UNCLEAR: "yellow"}  # others: checks of the code
_MET = {True: "met", False: "not met", None: "cannot tell"}
_LISTED = 20  # problems that are listed; the others are counted


def plan_line(plan: Plan, backend: Backend) -> str:
    """Return one line before a run: how much is to be done, and where."""
    planned, missing = len(plan.trials), len(plan.missing)
    if not missing:
        return f"all {planned} trials are stored: nothing to run"
    stored = f", {planned - missing} of them stored" if missing < planned else ""
    time = "" if (known := _time(plan, backend.workers)) is None else f", about {known}"
    workers = _count(backend.workers, "worker")
    return f"{_count(planned, 'trial')}{stored}: running {missing} on {workers} ({backend.name}){time}"


def _time(plan: Plan, workers: int) -> str | None:
    """Return the time of all missing trials, if there are some and all can be estimated."""
    estimates = [part.estimate for part in plan.parts]
    if None in estimates or not plan.missing:
        return None
    return duration(sum(one.seconds for one in estimates if one) / min(workers, len(plan.missing)))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def plan_rows(plan: Plan) -> list[dict[str, Any]]:
    """Return one row per experiment: its trials, sizes, seconds on one core and memory."""
    return [
        {
            "experiment": part.experiment.name,
            "trials": len(part.trials),
            "stored": len(part.trials) - len(part.missing),
            "to_run": len(part.missing),
            "seconds": None if part.estimate is None else round(part.estimate.seconds, 1),
            "bytes": None if part.estimate is None else part.estimate.memory,
            "sizes": part.sizes,
        }
        for part in sorted(plan.parts, key=lambda part: natural(part.experiment.name))
    ]


def print_plan(plan: Plan, workers: int) -> None:
    """Print the plan of a run that does not take place: seconds of all trials on one core, memory of the largest."""
    out = console()
    rows = plan_rows(plan)
    columns: Columns = {
        **{name: name for name in ("experiment", "trials", "stored")},
        "to run": "to_run",
        "one core": lambda row: _cost(row, row["seconds"], duration),
        "memory": lambda row: _cost(row, row["bytes"], human),
    }
    out.print(table(rows, columns, right=("one core", "memory")))
    out.print()
    sized = [row for row in rows if row["sizes"]]
    out.print(table(sized, {"experiment": "experiment", "sizes of its trials": "sizes"}, wrap=("sizes of its trials",)))
    if (time := _time(plan, workers)) is not None:
        out.print(f"\nabout {time} on {_count(workers, 'worker')}; nothing was run", style="bold")


def _cost(row: TableRow, value: Any, write: Callable[[Any], str]) -> str:
    return "-" if not row["to_run"] else "?" if value is None else write(value)


def print_figures(results: Sequence[FigureResult], summary: RunSummary, page: Path) -> None:
    """Print the verdicts on each figure, trials that failed, and where the page is."""
    out = console()
    for result in results:
        out.print(Text.assemble((result.figure, "bold cyan"), "  ", result.experiment.title))
        lines = Table.grid(padding=(0, 2, 0, 0))
        for verdict in result.verdicts:
            measured = (f"\nmeasured {verdict.details}", "bright_black")
            colour = _WORDS.get(verdict.word, _COLOURS[verdict.holds])
            lines.add_row("", Text(verdict.word, colour), Text.assemble(verdict.claim, measured))
        if not result.verdicts:
            lines.add_row("", Text(UNCLEAR, _COLOURS[None]), "no trial has finished")
        for one in result.assumptions:
            measured = (f"\n{one['measured']}", "bright_black")
            text = Text.assemble(f"{one['theorem']} assumes {one['assumption']}", measured)
            lines.add_row("", Text(_MET[one["met"]], _COLOURS[one["met"]]), text)
        out.print(lines)
    _print_problems(out, summary.problems, f"see wordsway results show --out {page.parent}")
    out.print()
    out.print(Text(tally(verdict.word for result in results for verdict in result.verdicts), "bold"))
    stored = summary.stored + summary.elsewhere
    out.print(Text(f"{summary.done} trials run, {stored} were stored; the page is {page}"))


def trouble(results: Sequence[FigureResult], summary: RunSummary, strict: bool = False) -> str | None:
    """Return one line about what went wrong, if anything did; strictly, claims that are not shown to hold count too.

    What a source states may turn out not to hold: that is a result. That a check of the code fails is not.
    """
    parts = []
    if problems := summary.failed + summary.died:
        parts.append(f"{problems} of {summary.planned} trials failed: run the same command again to repeat only those")
    verdicts = [(result.figure, verdict) for result in results for verdict in result.verdicts]
    if wrong := dict.fromkeys(name for name, one in verdicts if one.check and one.holds is False):
        parts.append(f"checks of the code that fail: {', '.join(wrong)}")
    claims = [(name, one) for name, one in verdicts if not one.check and not one.weaker]
    if strict and (failing := dict.fromkeys(name for name, one in claims if one.holds is False)):
        parts.append(f"claims that do not hold: {', '.join(failing)}")
    if strict and (unclear := dict.fromkeys(name for name, one in claims if one.holds is None)):
        parts.append(f"claims that the trials cannot tell: {', '.join(unclear)}")
    if empty := [result.figure for result in results if not result.verdicts]:
        parts.append(f"too few trials to tell: {', '.join(empty)}")
    return "; ".join(parts) or None


def stored_counts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return for each experiment and version how many trials ended in each state, and their seconds together."""
    counts: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows:
        name, version = row.trial.experiment, row.trial.version
        new = {"experiment": name, "version": version, **dict.fromkeys(STATES, 0), "seconds": 0.0}
        line = counts.setdefault((name, version), new)
        line[row.state] += 1
        line["seconds"] = round(line["seconds"] + (row.seconds or 0.0), 3)
    return [counts[key] for key in sorted(counts, key=lambda key: (natural(key[0]), key[1]))]


def print_stored(rows: Sequence[Row]) -> None:
    """Print what a store holds: counts for each experiment, and trials that failed and have not finished since."""
    out = console()
    columns: Columns = {name: name for name in ("experiment", "version", *STATES)}
    computed: Columns = {"computed for": lambda row: duration(row["seconds"])}
    if not rows:
        out.print("no trials are stored: wordsway reproduce FIGURE runs some")
        return
    out.print(table(stored_counts(rows), {**columns, **computed}, right=computed))
    done = {row.trial for row in rows if row.state == DONE}
    problems = {row.trial: row for row in rows if row.trial not in done}
    _print_problems(out, list(problems.values()), "wordsway results export --all has them")


def _print_problems(out: Console, rows: Sequence[Row], more: str) -> None:
    for row in rows[:_LISTED]:
        trial = row.trial
        out.print(Text(f"{row.state}: {trial.experiment} {trial.parameters} seed {trial.seed}: {row.error}"))
    if len(rows) > _LISTED:
        out.print(Text(f"and {len(rows) - _LISTED} more: {more}"))
