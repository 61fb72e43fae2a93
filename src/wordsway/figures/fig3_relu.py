"""Figure 3, second plot: without the softmax, attention forgets."""

from __future__ import annotations

from wordsway.experiments import Table, Verdict
from wordsway.experiments.claims import below, each, falls
from wordsway.figures import _sensitivity as shared
from wordsway.figures import _style as style
from wordsway.figures import fig3_raf


def claims(table: Table) -> list[Verdict]:
    def judge(panel: str, rows: Table) -> list[Verdict]:
        relu, softmax = fig3_raf.of_map(rows, "relu-raf"), fig3_raf.of_map(rows, "raf")
        return [
            falls(f"{panel}: S falls with n for every d", relu, curve=("d",)),
            below(f"{panel}: it is below that of softmax attention at every point", relu, softmax, ("d", "n")),
        ]

    return each(table, "panel", judge)


def plot(table: Table, figure: style.Figure) -> None:
    def guide(axes: style.Axes, rows: Table) -> None:
        widest = max(row["d"] for row in rows)
        line = [row for row in fig3_raf.of_map(table, "raf") if (row["panel"], row["d"]) == (rows[0]["panel"], widest)]
        line.sort(key=lambda row: int(row["n"]))
        style.theory(axes, [row["n"] for row in line], [row["mean"] for row in line], f"softmax, d = {widest}")

    shared.plot(fig3_raf.of_map(table, "relu-raf"), figure, guide=guide)


FIGURE = shared.experiment(
    name="fig3-relu",
    version=6,
    title="Without the softmax, attention forgets",
    about="Word sensitivity of random attention features with ReLU in place of the softmax, against the length of the "
    "context, for three dimensions of a word (section 5).",
    grid=shared.grid_over_d("relu-raf", fig3_raf.LENGTHS),
    trials=fig3_raf.FIGURE.trials,
    claims=claims,
    plot=plot,
    needs=(fig3_raf.FIGURE,),
    assumptions=None,  # no theorem is about relu scores
)
