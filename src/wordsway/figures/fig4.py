"""Figure 4: training on a sentence teaches attention, not random features, about the sentence with one word changed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from wordsway.experiments import Parameters, RunConfig, Table, TrialRecord, Verdict
from wordsway.figures import _generalization as shared
from wordsway.figures import _style as style

MAPS = (("rf", 40), ("raf", 40), ("raf", 120), ("relu-raf", 120))
SAMPLES = {"quick": (100, 400), "paper": (100, 700, 1300)}
CONSTANT = 6.0  # of the theorems' O(1 / sqrt(n)); that of the proof, 2 (2 - gamma) S sqrt(n) |y - f_0|, is of this size
_LOSSES, _PENALTIES = ("alignment", "error"), (0.0,)


def trial(parameters: Parameters, seed: int) -> TrialRecord:
    """Run one simulation, with both trainings and both losses."""
    return shared.simulate(parameters, seed, _LOSSES, _PENALTIES)


def grid(config: RunConfig) -> Iterable[Parameters]:
    for name, n in MAPS:
        for samples in SAMPLES[config.scale]:
            yield {"map": name, "n": n, "samples": samples, **shared.dimension(config)}


def claims(rows: Table) -> list[Verdict]:
    verdicts = []
    for panel, members in shared.panels([row for row in rows if row["map"] == "rf"]).items():
        largest = max(row["constant"] for row in members)
        claim = f"{panel}: no error below (2 - gamma)^2 - {CONSTANT:g} / sqrt(n)"
        share = f"{shared.below(members):.0%} of {len(members)} below the line"
        verdicts.append(Verdict(claim, f"largest constant {largest:.2f}; {share}", largest <= CONSTANT))
    aligned = [row for row in rows if row["loss"] == "alignment"]
    softmax, relu = ([row for row in aligned if row["map"] == name] for name in ("raf", "relu-raf"))
    long = [row for row in softmax if row["n"] == 120]
    claim = "relu-raf: without the softmax, the alignment losses leave a larger error than for raf"
    return [
        *verdicts,
        shared.share_below("raf: most alignment points with gamma < 2 lie below (2 - gamma)^2", softmax),
        shared.smaller(claim, long, relu, "error"),
    ]


def plot(rows: Table, figure: style.Figure) -> None:
    shared.scatter(rows, figure, "samples", len(MAPS), lambda row: "o" if row["loss"] == "alignment" else "x")


FIGURE = shared.experiment(
    name="fig4",
    title="Training on a sentence teaches attention about its neighbours, random features not",
    about="Error on a review with one word and its label changed, after fine-tuning or re-training on the review "
    "itself, against gamma, how far the model could tell the two apart before. Circles: the alignment losses (25), "
    "crosses: the error itself (16). The dashed line is the least error of random features (Theorems 6.2 and 6.3).",
    trial=trial,
    grid=grid,
    trials={"quick": 5, "paper": 20},
    table=partial(shared.table, losses=_LOSSES, penalties=_PENALTIES),
    claims=claims,
    plot=plot,
    assumptions=shared.assumed,
)
