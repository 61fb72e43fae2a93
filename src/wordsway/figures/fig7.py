"""Figure 7: each alignment loss does best on its own training."""

from collections.abc import Sequence
from functools import partial

from wordsway.experiments import Table, TrialResult, Verdict
from wordsway.experiments.claims import more_often
from wordsway.figures import _generalization as shared
from wordsway.figures import fig5

_LENGTH = 120
_OWN = '"l_f performs better on the fine-tuned solution, and l_r better on the re-trained one" (appendix F)'
_LOSSES = ("alignment", "swapped")


def table(results: Sequence[TrialResult]) -> Table:
    return shared.table([result for result in results if result["n"] == _LENGTH], _LOSSES, (0.0,))


def claims(rows: Table) -> list[Verdict]:
    verdicts = []
    for panel, members in shared.panels(rows).items():
        own, swapped = (shared.of_seed([row for row in members if row["loss"] == loss]) for loss in _LOSSES)
        pairs = [(own[seed]["error"], swapped[seed]["error"]) for seed in own]
        claim = f"{panel}: its own alignment loss leaves a smaller error than the other training's in most simulations"
        verdicts.append(more_often(claim, sum(a < b for a, b in pairs), sum(a > b for a, b in pairs), source=_OWN))
    return verdicts


FIGURE = shared.experiment(
    name="fig7",
    title="Each alignment loss does best on its own training",
    about="As figure 4 for n = 120 and one N, with Delta from the alignment loss (25) of the training that is tested, "
    "and from that of the other one (swapped). It reads the simulations of figure 5.",
    trial=fig5.trial,
    grid=lambda config: (),
    trials=fig5.FIGURE.trials,
    table=table,
    claims=claims,
    plot=partial(shared.scatter, colour="loss", columns=2),
    needs=(fig5.FIGURE,),
)
