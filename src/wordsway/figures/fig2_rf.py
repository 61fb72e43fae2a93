"""Figure 2, left: random features forget one word in a long context."""

from wordsway.experiments import Table, Verdict
from wordsway.experiments.claims import each, overlap
from wordsway.figures import _sensitivity as shared

LENGTHS = {"quick": (90, 120, 150), "paper": tuple(range(90, 151, 10))}


def claims(table: Table) -> list[Verdict]:
    def judge(panel: str, rows: Table) -> list[Verdict]:
        return [
            shared.falls_like_root(panel, rows, 0.05, "d"),
            overlap(f"{panel}: the curves of all d coincide", rows, 0.05),
        ]

    return each(table, "panel", judge)


FIGURE = shared.experiment(
    name="fig2-rf",
    title="Random features forget one word in a long context",
    about="Word sensitivity of random features with ReLU, k = n d features, against the length of the context, for "
    "three dimensions of a word (Theorem 4.1).",
    grid=shared.grid_over_d("rf", LENGTHS),
    trials={"quick": 8, "paper": 10},
    claims=claims,
    plot=shared.plot,
)
