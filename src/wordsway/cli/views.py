"""What the commands print for people."""

from __future__ import annotations

import json
from collections.abc import Iterable

from rich.console import Console

from wordsway import report
from wordsway.cli.plan import Plan
from wordsway.cli.trials import Record
from wordsway.maps.catalogue import MAPS, PAPER


def print_trials(plan: Plan, trials: Iterable[list[Record]]) -> None:
    """Measure and print; what was finished is printed even when a later trial fails or is interrupted."""
    console = Console(highlight=False)
    finished: list[list[Record]] = []
    try:
        for records in trials:
            if not finished:
                console.print(_title(plan), style="bold")
            finished.append(records)
            if plan.word is None:
                _print_words(console, plan, records)
    finally:
        if finished:
            _print_summary(console, plan, finished)


def print_maps(as_json: bool) -> None:
    """Print the catalogue of maps."""
    rows = [
        {
            "name": entry.name,
            "description": entry.description,
            "formula": entry.formula,
            "weights": entry.weights,
            "source": entry.source,
            "options": list(entry.options),
        }
        for entry in MAPS.values()
    ]
    if as_json:
        for row in rows:
            print(json.dumps(row), flush=True)
    else:
        console = Console(highlight=False)
        console.print(report.map_table(rows))
        console.print("\nX is a context (n x d), phi the --activation, k the --width, L the --depth.")
        console.print(f"Equations and sections: {PAPER}.", style="bright_black")


def _title(plan: Plan) -> str:
    """One line that says what was measured."""
    options = "".join(f" {name}={value}" for name, value in plan.options.given().items())
    word = "all words" if plan.word is None else f"word {plan.word}"
    return f"{plan.map.name}{options}, n={plan.n} d={plan.d}, {plan.data}, {word}, radius {plan.radius:.4g}"


def _print_words(console: Console, plan: Plan, records: list[Record]) -> None:
    values = [record["sensitivity"] for record in records]
    bounds = [record["ceiling"] for record in records]
    console.print()
    if plan.trials > 1:
        console.print(f"seed {records[0]['seed']}")
    console.print(report.word_bars(values, None if None in bounds else bounds))


def _print_summary(console: Console, plan: Plan, finished: list[list[Record]]) -> None:
    """The table of trials, of all words the one that moves the map most, and what the numbers are."""
    rows = []
    for trial, records in enumerate(finished):
        best = max(records, key=lambda record: record["sensitivity"])
        bounds = [record["ceiling"] for record in records]
        ceiling = None if None in bounds else max(bounds)
        status = "converged" if all(record["status"] == "converged" for record in records) else "step limit"
        rows.append({**best, "trial": trial, "ceiling": ceiling, "status": status})
    console.print()
    console.print(report.trial_table(rows, console.width))
    console.print()
    what = "largest of all words" if plan.word is None else "sensitivity"
    count = "1 trial" if len(rows) == 1 else f"mean and standard deviation of {len(rows)} trials"
    console.print(f"{what} {report.spread([row['sensitivity'] for row in rows])} ({count})", style="bold")
    console.print(_kinds(rows[0]), style="bright_black")


def _kinds(row: Record) -> str:
    """What each number rests on."""
    kinds = "sensitivity: lower bound with a witness"
    if row["ceiling"] is None:
        return kinds
    doubt = f", wrong with probability at most {row['failure']:.1g}" if row["failure"] else ""
    return f"{kinds}; ceiling: upper bound by {row['ceiling_kind']}{doubt}"
