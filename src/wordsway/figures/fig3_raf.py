"""Figure 3, first plot: softmax attention hears one word at any length."""

from __future__ import annotations

from functools import partial

from wordsway.experiments import Table, Verdict
from wordsway.experiments.claims import above, each
from wordsway.figures import _sensitivity as shared
from wordsway.figures import _style as style

LENGTHS = {"quick": (10, 50, 100, 250), "paper": (10, 20, 50, 100, 150, 200, 250)}


def claims(table: Table) -> list[Verdict]:
    return each(table, "panel", lambda panel, rows: [above(f"{panel}: S > 1 in every trial", rows, 1.0)])


def _one(axes: style.Axes, rows: Table) -> None:
    lengths = [row["n"] for row in rows]
    style.theory(axes, (min(lengths), max(lengths)), (1.0, 1.0), "S = 1")


FIGURE = shared.experiment(
    name="fig3-raf",
    title="Softmax attention hears one word at any length",
    about="Word sensitivity of random attention features against the length of the context, for three dimensions of a "
    "word (Theorem 5.1).",
    grid=shared.grid_over_d("raf", LENGTHS),
    trials={"quick": 4, "paper": 10},
    claims=claims,
    plot=partial(shared.plot, guide=_one, logarithmic=False),
)
