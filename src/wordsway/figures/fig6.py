"""Figure 6: the alignment is minimised, with a penalty on gamma."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wordsway.experiments.experiment import Experiment, Table, TrialResult, Verdict
from wordsway.figures import _generalization as shared
from wordsway.figures import fig5

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def table(finished: Sequence[TrialResult]) -> Table:
    return shared.points(finished, ("alignment",), shared.PENALTIES)


def claims(rows: Table) -> list[Verdict]:
    softmax = [row for row in rows if row["map"] == "raf"]
    said = "raf: most points with gamma < 2 lie below (2 - gamma)^2"
    return [*fig5.penalty_verdicts(rows), shared.share_below(said, softmax, 0.5)]


def plot(rows: Table, figure: Figure) -> None:
    shared.scatter(rows, figure, "penalty", lambda row: "o", len(fig5.MAPS))


FIGURE = Experiment(
    name="fig6",
    title="Minimising the alignment with a penalty on gamma",
    about="As figure 5, with Delta from the penalised alignment losses (148) and (149). It reads the simulations of "
    "figure 5, where all losses are minimised at once.",
    trial=fig5.trial,
    grid=lambda config: (),
    trials=fig5.FIGURE.trials,
    table=table,
    claims=claims,
    plot=plot,
    needs=(fig5.FIGURE,),
)
