"""Figure 4: training on a sentence teaches attention, not random features, about the sentence with one word changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from wordsway.experiments.experiment import Experiment, Parameters, RunConfig, Table, TrialResult, Verdict
from wordsway.figures import _generalization as shared

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAPS = (("rf", 40), ("raf", 40), ("raf", 120), ("relu-raf", 120))
SAMPLES = {"quick": (100, 400), "paper": (100, 700, 1300)}
CONSTANT = 6.0  # of the theorems' O(1 / sqrt(n)); that of the proof, 2 (2 - gamma) S sqrt(n) |y - f_0|, is of this size
_LOSSES, _PENALTIES = ("alignment", "error"), (0.0,)


def trial(parameters: Parameters, seed: int) -> dict[str, Any]:
    """One simulation, both trainings and both losses."""
    return shared.simulate(parameters, seed, _LOSSES, _PENALTIES)


def grid(config: RunConfig) -> Iterable[Parameters]:
    for name, n in MAPS:
        for samples in SAMPLES[config.scale]:
            yield {"map": name, "n": n, "samples": samples, **shared.dimension(config)}


def table(finished: Sequence[TrialResult]) -> Table:
    return shared.points(finished, _LOSSES, _PENALTIES)


def claims(rows: Table) -> list[Verdict]:
    aligned = [row for row in rows if row["loss"] == "alignment"]
    verdicts = []
    for panel, members in shared.panels(rows).items():
        if panel[0] == "rf":
            worst = max(row["constant"] for row in members)
            said = f"{shared.named(panel)}: no error below (2 - gamma)^2 - {CONSTANT:g} / sqrt(n)"
            share = f"{shared.below(members):.0%} of {len(members)} below the line"
            verdicts.append(Verdict(said, f"largest constant {worst:.2f}; {share}", worst <= CONSTANT))
    softmax = [row for row in aligned if row["map"] == "raf"]
    said = "raf: most alignment points with gamma < 2 lie below (2 - gamma)^2"
    verdicts.append(shared.share_below(said, softmax, 0.5))
    relu = [row for row in aligned if row["map"] == "relu-raf"]
    said = "relu-raf: without the softmax, the alignment losses leave a larger error than for raf"
    verdicts.append(shared.smaller(said, [row for row in softmax if row["n"] == 120], relu, "error"))
    return verdicts


def plot(rows: Table, figure: Figure) -> None:
    shared.scatter(rows, figure, "samples", lambda row: "o" if row["loss"] == "alignment" else "x", len(MAPS))


FIGURE = Experiment(
    name="fig4",
    title="Training on a sentence teaches attention about its neighbours, random features not",
    about="Error on a review with one word and its label changed, after fine-tuning or re-training on the review "
    "itself, against gamma, how far the model could tell the two apart before. Circles: the alignment losses (25), "
    "crosses: the error itself (16). The dashed line is the least error of random features (Theorems 6.2 and 6.3).",
    trial=trial,
    grid=grid,
    trials={"quick": 5, "paper": 20},
    table=table,
    claims=claims,
    plot=plot,
    estimate=shared.estimate,
    version=2,
)
