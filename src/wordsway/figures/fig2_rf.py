"""Figure 2, left: random features forget one word in a long context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wordsway.experiments.claims import each, overlap
from wordsway.experiments.experiment import Experiment, Table, Verdict
from wordsway.figures import _sensitivity as shared

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTHS = {"quick": (90, 120, 150), "paper": tuple(range(90, 151, 10))}


def claims(table: Table) -> list[Verdict]:
    def judge(panel: str, rows: Table) -> list[Verdict]:
        return [
            shared.falls_like_root(panel, rows, 0.05, "d"),
            overlap(f"{panel}: the curves of all d coincide", rows, 0.05),
        ]

    return each(table, "panel", judge)


def plot(table: Table, figure: Figure) -> None:
    shared.draw(table, figure, "d", shared.inverse_root)


FIGURE = Experiment(
    name="fig2-rf",
    title="Random features forget one word in a long context",
    about="Word sensitivity of random features with ReLU, k = n d features, against the length of the context, for "
    "three dimensions of a word (Theorem 4.1).",
    trial=shared.trial,
    grid=shared.grid_over_d("rf", LENGTHS.__getitem__),
    trials={"quick": 8, "paper": 10},
    table=shared.table,
    claims=claims,
    plot=plot,
    estimate=shared.estimate,
    version=2,
)
