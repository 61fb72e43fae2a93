"""Figure 7: each alignment loss does best on its own training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wordsway.experiments.claims import TOO_FEW
from wordsway.experiments.experiment import Experiment, Table, TrialResult, Verdict
from wordsway.figures import _generalization as shared
from wordsway.figures import fig5

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LENGTH = 120


def table(finished: Sequence[TrialResult]) -> Table:
    long = [one for one in finished if one["n"] == _LENGTH]
    return shared.points(long, ("alignment", "swapped"), (0.0,))


def claims(rows: Table) -> list[Verdict]:
    said = "its own alignment loss leaves a smaller error than the other training's in most simulations"
    wins: dict[str, list[bool]] = {}
    for panel, members in shared.panels(rows).items():
        own, swapped = (
            {row["seed"]: row["error"] for row in members if row["loss"] == loss} for loss in ("alignment", "swapped")
        )
        wins[shared.named(panel)] = [own[seed] < swapped[seed] for seed in own]
    every = [win for some in wins.values() for win in some]
    if not every:
        return [Verdict(said, TOO_FEW, None)]
    shares = ", ".join(f"{name}: {sum(some)} of {len(some)}" for name, some in wins.items())
    return [Verdict(said, f"{sum(every)} of {len(every)} ({shares})", 2 * sum(every) > len(every))]


def plot(rows: Table, figure: Figure) -> None:
    shared.scatter(rows, figure, "loss", lambda row: "o", 2)


FIGURE = Experiment(
    name="fig7",
    title="Each alignment loss does best on its own training",
    about="As figure 4 for n = 120 and one N, with Delta from the alignment loss (25) of the training that is tested, "
    "and from that of the other one (swapped). It reads the simulations of figure 5.",
    trial=fig5.trial,
    grid=lambda config: (),
    trials=fig5.FIGURE.trials,
    table=table,
    claims=claims,
    plot=plot,
    needs=(fig5.FIGURE,),
)
