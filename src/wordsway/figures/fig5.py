"""Figure 5: the error itself is minimised, with a penalty on gamma."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from wordsway.experiments.experiment import Experiment, Parameters, RunConfig, Table, TrialResult, Verdict
from wordsway.figures import _generalization as shared

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAPS = (("raf", 40), ("raf", 120), ("relu-raf", 40), ("relu-raf", 120))
SAMPLES = {"quick": 200, "paper": 400}


def trial(parameters: Parameters, seed: int) -> dict[str, Any]:
    """One simulation with every loss and penalty, which the next two figures read too."""
    return shared.simulate(parameters, seed, ("alignment", "error", "swapped"), (0.0, *shared.PENALTIES))


def grid(config: RunConfig) -> Iterable[Parameters]:
    for name, n in MAPS:
        yield {"map": name, "n": n, "samples": SAMPLES[config.scale], **shared.dimension(config)}


def table(finished: Sequence[TrialResult]) -> Table:
    return shared.points(finished, ("error",), shared.PENALTIES)


def claims(rows: Table) -> list[Verdict]:
    return penalty_verdicts(rows)


def penalty_verdicts(rows: Table) -> list[Verdict]:
    """For each panel: the penalty lowers gamma."""
    verdicts = []
    for panel, members in shared.panels(rows).items():
        least, most = ([row for row in members if row["penalty"] == p] for p in (0.01, 1.0))
        said = f"{shared.named(panel)}: the penalty 1 leaves a smaller gamma than 0.01"
        verdicts.append(shared.smaller(said, most, least, "gamma"))
    return verdicts


def plot(rows: Table, figure: Figure) -> None:
    shared.scatter(rows, figure, "penalty", lambda row: "o", len(MAPS))


FIGURE = Experiment(
    name="fig5",
    title="Minimising the error with a penalty on gamma",
    about="As figure 4, with Delta from the penalised error (147), for penalties 1, 0.1 and 0.01.",
    trial=trial,
    grid=grid,
    trials={"quick": 12, "paper": 20},
    table=table,
    claims=claims,
    plot=plot,
    estimate=shared.estimate,
    version=2,
)
