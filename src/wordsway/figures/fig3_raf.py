"""Figure 3, first plot: softmax attention is sensitive to one word at any length."""

from __future__ import annotations

from collections.abc import Iterable

from wordsway.experiments import Parameters, RunConfig, Table, Verdict
from wordsway.experiments.claims import above, each
from wordsway.figures import _sensitivity as shared
from wordsway.figures import _style as style

LENGTHS = {"quick": (10, 50, 100, 250), "paper": (10, 20, 50, 100, 150, 200, 250)}


def grid(config: RunConfig) -> Iterable[Parameters]:
    """Yield those of raf over three dimensions, and those of qkv at the largest."""
    yield from shared.grid_over_d("raf", LENGTHS)(config)
    for data, dimensions in shared.sizes(config):
        for n in LENGTHS[config.scale]:
            yield {"map": "qkv", **data, "d": dimensions[-1], "n": n}


def claims(table: Table) -> list[Verdict]:
    def judge(panel: str, rows: Table) -> list[Verdict]:
        with_projections = f"{panel}: also with queries, keys and values (Remark 5.2)"
        return [
            above(f"{panel}: S > 1 in every trial", of_map(rows, "raf"), 1.0),
            above(with_projections, of_map(rows, "qkv"), 1.0),
        ]

    return each(table, "panel", judge)


def plot(table: Table, figure: style.Figure) -> None:
    def guide(axes: style.Axes, rows: Table) -> None:
        line = [row for row in of_map(table, "qkv") if row["panel"] == rows[0]["panel"]]
        line.sort(key=lambda row: int(row["n"]))
        if line:
            label = f"qkv, d = {line[0]['d']}"
            style.line(axes, [row["n"] for row in line], [row["mean"] for row in line], label, number=3, dash=4.0)
        lengths = [row["n"] for row in rows]
        style.theory(axes, (min(lengths), max(lengths)), (1.0, 1.0), "S = 1")

    shared.plot(of_map(table, "raf"), figure, guide=guide, logarithmic=False)


def of_map(table: Table, name: str) -> Table:
    """Return the rows of one map."""
    return [row for row in table if row["map"] == name]


FIGURE = shared.experiment(
    name="fig3-raf",
    version=6,
    title="Softmax attention is sensitive to one word at any length",
    about="Word sensitivity of random attention features against the length of the context, for three dimensions of a "
    "word (Theorem 5.1), and of attention with queries, keys and values for the largest (Remark 5.2).",
    grid=grid,
    trials={"quick": 4, "paper": 10},
    claims=claims,
    plot=plot,
)
