"""What the commands print for people."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console

from wordsway import show
from wordsway.cli.plan import Plan
from wordsway.cli.trials import Record
from wordsway.maps.catalogue import MAPS


def print_trials(plan: Plan, trials: Iterable[list[Record]]) -> None:
    """Measure, then print the table; what was finished is printed even when a later trial fails or is interrupted."""
    console = Console(highlight=False)
    console.print(title(plan), style="bold")
    finished: list[list[Record]] = []
    try:
        for records in trials:
            finished.append(records)
            if plan.word is None:
                _print_words(console, plan, records)
    finally:
        if finished:
            best = [max(records, key=lambda record: record["sensitivity"]) for records in finished]
            rows = [{**record, "trial": trial, "status": _short(record["status"])} for trial, record in enumerate(best)]
            console.print(show.trial_table(rows, console.width))
            console.print(_summary(plan, best))


def title(plan: Plan) -> str:
    """One line that says what is measured."""
    options = "".join(f" {name}={value}" for name, value in plan.options.given().items())
    word = "all words" if plan.word is None else f"word {plan.word}"
    return f"{plan.map.name}{options}, n={plan.n} d={plan.d}, {plan.data}, {word}, radius {show.number(plan.radius)}"


def print_maps(as_json: bool) -> None:
    """The catalogue of maps."""
    import json

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
            print(json.dumps(row))
    else:
        Console(highlight=False).print(show.map_table(rows))


def _print_words(console: Console, plan: Plan, records: list[Record]) -> None:
    values = [record["sensitivity"] for record in records]
    bounds = [record["ceiling"] for record in records]
    if plan.trials > 1:
        console.print(f"seed {records[0]['seed']}")
    console.print(show.word_bars(values, None if None in bounds else bounds))


def _short(status: str) -> str:
    return status if status == "converged" else "step limit"


def _summary(plan: Plan, best: list[Record]) -> str:
    values = [record["sensitivity"] for record in best]
    count = "1 trial" if len(values) == 1 else f"{len(values)} trials"
    what = "largest over the words" if plan.word is None else "sensitivity"
    return f"{what}: {show.spread(values)} ({count})"
