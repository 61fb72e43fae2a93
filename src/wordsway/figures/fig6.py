"""Figure 6: the alignment is minimised, with a penalty on gamma."""

from functools import partial

from wordsway.experiments import Table, Verdict
from wordsway.figures import _generalization as shared
from wordsway.figures import fig5


def claims(rows: Table) -> list[Verdict]:
    softmax = [row for row in rows if row["map"] == "raf"]
    claim = "raf: most points with gamma < 2 lie below (2 - gamma)^2"
    return [*shared.penalty_verdicts(rows), shared.share_below(claim, softmax)]


FIGURE = shared.experiment(
    name="fig6",
    title="Minimising the alignment with a penalty on gamma",
    about="As figure 5, with Delta from the penalised alignment losses (148) and (149). It reads the simulations of "
    "figure 5, where all losses are minimised at once.",
    trial=fig5.trial,
    grid=lambda config: (),
    trials=fig5.FIGURE.trials,
    table=partial(shared.table, losses=["alignment"], penalties=shared.PENALTIES),
    claims=claims,
    plot=fig5.FIGURE.plot,
    needs=(fig5.FIGURE,),
)
