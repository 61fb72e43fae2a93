"""Figure 5: the error itself is minimised, with a penalty on gamma."""

from collections.abc import Iterable
from functools import partial

from wordsway.experiments import Parameters, RunConfig, TrialRecord
from wordsway.figures import _generalization as shared

MAPS = (("raf", 40), ("raf", 120), ("relu-raf", 40), ("relu-raf", 120))
SAMPLES = {"quick": 200, "paper": 400}


def trial(parameters: Parameters, seed: int) -> TrialRecord:
    """Run one simulation with every loss and penalty, which the next two figures read too."""
    return shared.simulate(parameters, seed, ("alignment", "error", "swapped"), (0.0, *shared.PENALTIES))


def grid(config: RunConfig) -> Iterable[Parameters]:
    for name, n in MAPS:
        yield {"map": name, "n": n, "samples": SAMPLES[config.scale], **shared.dimension(config)}


FIGURE = shared.experiment(
    name="fig5",
    title="Minimising the error with a penalty on gamma",
    about="As figure 4, with Delta from the penalised error (147), for penalties 1, 0.1 and 0.01.",
    trial=trial,
    grid=grid,
    trials={"quick": 12, "paper": 20},
    table=partial(shared.table, losses=["error"], penalties=shared.PENALTIES),
    claims=shared.penalty_verdicts,
    plot=partial(shared.scatter, colour="penalty", columns=len(MAPS)),
)
