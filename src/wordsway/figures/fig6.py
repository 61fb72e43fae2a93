"""Figure 6: the alignment is minimised, with a penalty on gamma."""

from collections.abc import Sequence

from wordsway.experiments import Table, TrialResult, Verdict
from wordsway.experiments.claims import more_often
from wordsway.figures import _generalization as shared
from wordsway.figures import fig5

_LOWER = '"it is easier to obtain final points that respect Assumption 6.1 with a lower value of gamma" (appendix F)'


def table(results: Sequence[TrialResult]) -> Table:
    """Return the penalised searches, each with the gamma that the penalised error leaves in the same simulation."""
    names = ("map", "n", "training", "penalty")
    other = shared.of_seed(shared.table(results, ["error"], shared.PENALTIES), *names)
    rows = shared.table(results, ["alignment"], shared.PENALTIES)
    places = (tuple(row[name] for name in ("seed", *names)) for row in rows)
    return [{**row, "error_gamma": other[place]["gamma"]} for row, place in zip(rows, places, strict=True)]


def claims(rows: Table) -> list[Verdict]:
    verdicts = []
    for panel, members in shared.panels(rows).items():
        pairs = [(row["gamma"], row["error_gamma"]) for row in members if row["penalty"] == 1.0]
        claim = f"{panel}: at penalty 1 gamma is lower than that of the penalised error (figure 5) in most simulations"
        verdicts.append(more_often(claim, sum(a < b for a, b in pairs), sum(a > b for a, b in pairs), source=_LOWER))
    return verdicts + shared.penalty_verdicts(rows)


FIGURE = shared.experiment(
    name="fig6",
    title="Minimising the alignment with a penalty on gamma",
    about="As figure 5, with Delta from the penalised alignment losses (148) and (149). It reads the simulations of "
    "figure 5, where all losses are minimised at once.",
    trial=fig5.trial,
    grid=lambda config: (),
    trials=fig5.FIGURE.trials,
    table=table,
    claims=claims,
    plot=fig5.FIGURE.plot,
    needs=(fig5.FIGURE,),
)
