"""What `lipschitz` prints for people."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from rich.console import Console

from wordsway import report
from wordsway.cli.lipschitz import Plan
from wordsway.experiments.claims import curves, power_law


def print_constants(plan: Plan, records: Iterable[dict[str, Any]]) -> None:
    """Measure and print a line for each layer and length; what was finished is printed even when a later one fails."""
    console = Console(highlight=False)
    finished: list[dict[str, Any]] = []
    try:
        finished.extend(records)
    finally:
        if finished:
            _print(console, plan, finished)


def _print(console: Console, plan: Plan, records: list[dict[str, Any]]) -> None:
    mask = ", causal" if plan.causal else ""
    console.print(f"{plan.model.name}{mask}, {plan.data}, local Lipschitz constants of attention", style="bold")
    console.print()
    headings = ("layer", "n", "constant", "+-", "residual", "products", "lower", "upper")
    table = report.plain_table(headings, right=tuple(range(len(headings))))
    rows = [_row(layer, n, members) for (layer, n), members in curves(records, "layer", "n").items()]
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print()
    for (layer,), members in curves(records, "layer").items():
        law = power_law(members, "n", "lipschitz")
        if law is not None:
            said = f"layer {layer}: grows like n^{law.exponent:.2f} (standard error {law.error:.2f})"
            console.print(said, style="bold")
    stopped = sum(record["status"] != "converged" for record in records)
    if stopped:
        console.print(f"{stopped} of {len(records)} stopped before they converged: raise --products", style="yellow")
    radius = f"R = {min(r['radius'] for r in records):.4g} to {max(r['radius'] for r in records):.4g}"
    note = f"lower, upper: on the constant over all contexts in the ball of the layer's own norm, {radius}"
    console.print(note, style="bright_black")


def _row(layer: int, n: int, members: Iterable[Any]) -> tuple[str, ...]:
    found = list(members)
    values = [record["lipschitz"] for record in found]
    spread = f"{statistics.stdev(values):.2g}" if len(values) > 1 else ""
    residual = max(record["residual"] / record["lipschitz"] if record["lipschitz"] else 0.0 for record in found)
    lower, upper = found[0]["lower"], found[0]["upper"]
    bounds = ("" if lower is None else f"{lower:.4g}", f"{upper:.4g}")
    products = max(record["products"] for record in found)
    return (str(layer), str(n), f"{statistics.fmean(values):.4f}", spread, f"{residual:.0e}", str(products), *bounds)
