"""What `generalize` prints for people."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from rich.console import Console

from wordsway import report
from wordsway.cli.generalize import Plan


def print_simulations(plan: Plan, simulations: Iterable[list[dict[str, Any]]]) -> None:
    """Simulate and print a line for each search; what was finished is printed even when a later one fails."""
    console = Console(highlight=False)
    finished: list[dict[str, Any]] = []
    try:
        for records in simulations:
            finished += records
    finally:
        if finished:
            _print(console, plan, finished)


def _print(console: Console, plan: Plan, records: list[dict[str, Any]]) -> None:
    title = f"{plan.map.name}, n={plan.n} d={plan.d}, N={plan.samples}, {plan.data}, word {plan.word}"
    console.print(f"{title}, radius {plan.radius:.4g}", style="bold")
    console.print()
    headings = ("seed", "training", "loss", "penalty", "gamma", "error", "(2-gamma)^2", "F", "S")
    table = report.plain_table(headings, right=(0, 3, 4, 5, 6, 7, 8))
    for record in records:
        aligned = record["alignment_retrained" if record["training"] == "re-trained" else "alignment_fine_tuned"]
        numbers = (record[name] for name in ("gamma", "error", "bound"))
        cells = [f"{value:.3f}" for value in (*numbers, aligned, record["sensitivity"])]
        texts = (str(record["seed"]), record["training"], record["loss"], f"{record['penalty']:g}")
        table.add_row(*texts, *cells)
    console.print(table)
    console.print()
    share = statistics.fmean(record["error"] < record["bound"] for record in records)
    console.print(f"{share:.0%} of {len(records)} points below the line (2 - gamma)^2 of random features", style="bold")
    fits = all(record["interpolates"] for record in records)
    told = "every training label is fitted" if fits else "not every training label is fitted: too few features"
    console.print(f"gamma, error: at the word that the search found; {told}", style="bright_black")
