"""Figure 5: the error itself is minimised, with a penalty on gamma."""

from collections.abc import Iterable, Sequence
from functools import partial

from wordsway.experiments import Parameters, RunConfig, Table, TrialRecord, TrialResult, Verdict
from wordsway.experiments.claims import more_often, share_interval
from wordsway.figures import _generalization as shared

MAPS = (("raf", 40), ("raf", 120), ("relu-raf", 40), ("relu-raf", 120))
_PANEL = ("map", "n", "training")
_BELOW = '"compared to the loss [without penalty], we can more easily obtain points that lie below" (appendix F)'
_BOTH = '"it remains difficult to find points where both the error and gamma are small" (appendix F)'
SAMPLES = {"quick": 200, "paper": 400}


def trial(parameters: Parameters, seed: int) -> TrialRecord:
    """Run one simulation with every loss and penalty, which the next two figures read too."""
    return shared.simulate(parameters, seed, ("alignment", "error", "swapped"), (0.0, *shared.PENALTIES))


def grid(config: RunConfig) -> Iterable[Parameters]:
    for name, n in MAPS:
        yield {"map": name, "n": n, "samples": SAMPLES[config.scale], **shared.dimension(config)}


def table(results: Sequence[TrialResult]) -> Table:
    """Return the penalised searches, each with whether that without a penalty ended below the line."""
    plain = shared.of_seed(shared.table(results, ["error"], [0.0]), *_PANEL)
    rows = shared.table(results, ["error"], shared.PENALTIES)
    bare = [plain[place] for place in (tuple(row[name] for name in ("seed", *_PANEL)) for row in rows)]
    return [{**row, "plain_below": other["error"] < other["bound"]} for row, other in zip(rows, bare, strict=True)]


def claims(rows: Table) -> list[Verdict]:
    verdicts = []
    for panel, members in shared.panels(rows).items():
        verdicts += [_easier(panel, members), _difficult(panel, members)]
    return verdicts + shared.penalty_verdicts(rows)


def _easier(panel: str, rows: Table) -> Verdict:
    """Judge that a penalty brings more simulations below the line than it brings above it."""
    changes = [(row["error"] < row["bound"]) - row["plain_below"] for row in rows if row["penalty"] == 1.0]
    claim = f"{panel}: of the simulations where the penalty 1 changes it, most come below the line"
    if changes and not any(changes):
        unchanged = sum(row["plain_below"] for row in rows if row["penalty"] == 1.0)
        measured = f"it changes none: {unchanged} of {len(changes)} are below with and without it"
        return Verdict(claim, measured, None, source=_BELOW)
    return more_often(claim, changes.count(1), changes.count(-1), source=_BELOW)


def _difficult(panel: str, rows: Table) -> Verdict:
    """Judge that at most points error and gamma are not both small."""
    claim = f"{panel}: at most points error and gamma are not both below {shared.SMALL:g}"
    both = sum(row["error"] < shared.SMALL and row["gamma"] < shared.SMALL for row in rows)
    low, high = share_interval(both, len(rows))
    measured = f"both are at {both} of {len(rows)} ({low:.0%} to {high:.0%})"
    return Verdict(claim, measured, None if low <= 0.5 <= high else high < 0.5, source=_BOTH)


FIGURE = shared.experiment(
    name="fig5",
    title="Minimising the error with a penalty on gamma",
    about="As figure 4, with Delta from the penalised error (147), for penalties 1, 0.1 and 0.01. The dashed line is "
    "(2 - gamma)^2; titles have the share of points below it.",
    trial=trial,
    grid=grid,
    trials={"quick": 12, "paper": 20},
    estimate=partial(shared.estimate, start=0.35),  # more losses and penalties than in figure 4
    table=table,
    claims=claims,
    plot=partial(shared.scatter, colour="penalty", columns=len(MAPS)),
)
