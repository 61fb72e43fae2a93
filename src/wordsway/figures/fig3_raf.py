"""Figure 3, first plot: softmax attention hears one word at any length."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wordsway.experiments.claims import above, each
from wordsway.experiments.experiment import Experiment, Table, Verdict
from wordsway.figures import _sensitivity as shared

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LENGTHS = {"quick": (10, 50, 100, 250), "paper": (10, 20, 50, 100, 150, 200, 250)}


def claims(table: Table) -> list[Verdict]:
    return each(table, "panel", lambda panel, rows: [above(f"{panel}: S > 1 in every trial", rows, 1.0)])


def plot(table: Table, figure: Figure) -> None:
    shared.draw(table, figure, "d", _one, logarithmic=False)


def _one(axes: Axes, rows: Table) -> None:
    from wordsway.figures import _style as style

    ends = min(row["n"] for row in rows), max(row["n"] for row in rows)
    style.theory(axes, ends, (1.0, 1.0), "S = 1")


FIGURE = Experiment(
    name="fig3-raf",
    title="Softmax attention hears one word at any length",
    about="Word sensitivity of random attention features against the length of the context, for three dimensions of a "
    "word (Theorem 5.1).",
    trial=shared.trial,
    grid=shared.grid_over_d("raf", LENGTHS.__getitem__),
    trials={"quick": 4, "paper": 10},
    table=shared.table,
    claims=claims,
    plot=plot,
    estimate=shared.estimate,
    version=2,
)
