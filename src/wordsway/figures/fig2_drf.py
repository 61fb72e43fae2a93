"""Figure 2, right: deep random features forget it too, at any depth."""

from collections.abc import Iterable
from functools import partial

from wordsway.experiments import Parameters, RunConfig, Table, Verdict
from wordsway.experiments.claims import each, falls
from wordsway.figures import _sensitivity as shared

TOLERANCE = 0.1  # every further layer makes S a little steeper in short contexts than the first layer's factor says
LENGTHS = {"quick": (50, 80), "paper": (50, 60, 70, 80)}
DEPTHS = (2, 4, 8)


def grid(config: RunConfig) -> Iterable[Parameters]:
    for data, (*_, d) in shared.sizes(config):
        for depth in DEPTHS:
            for n in LENGTHS[config.scale]:
                yield {"map": "drf", **data, "d": d, "depth": depth, "n": n}


def claims(table: Table) -> list[Verdict]:
    def judge(panel: str, rows: Table) -> list[Verdict]:
        return [
            falls(f"{panel}: S falls with n at every depth", rows, curve=("depth",)),
            shared.falls_like_root(panel, rows, TOLERANCE, "depth"),
        ]

    return each(table, "panel", judge)


FIGURE = shared.experiment(
    name="fig2-drf",
    title="Deep random features forget it too, at any depth",
    about="Word sensitivity of deep random features with ReLU, k = n d features in each of L layers, against the "
    "length of the context (Theorem 4.3).",
    grid=grid,
    trials={"quick": 4, "paper": 10},
    claims=claims,
    plot=partial(shared.plot, curve="depth"),
)
