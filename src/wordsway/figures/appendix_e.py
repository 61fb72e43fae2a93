"""Appendix E: one word moves the prediction of re-trained random features by O(sqrt(N / n)) at most."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean

from wordsway.experiments import Estimate, Experiment, Parameters, RunConfig, Table, TrialRecord, TrialResult, Verdict
from wordsway.experiments.claims import above, exponent_near, falls, points, statistics
from wordsway.figures import _generalization as shared
from wordsway.figures import _style as style
from wordsway.generalization import prediction_gap
from wordsway.maps.catalogue import map_named
from wordsway.sensitivity import Assumptions

LENGTHS = {"quick": (40, 160), "paper": (40, 80, 160, 240)}
SAMPLES = {"quick": (50, 200), "paper": (50, 100, 200, 400)}
_SHARE = 4  # the dimension is this part of the embedding's


def trial(parameters: Parameters, seed: int) -> TrialRecord:
    """Measure how far the first word of a new review moves the prediction of the re-trained model on it."""
    phi = map_named("rf").build(parameters["n"], parameters["d"], None, seed)
    reviews = shared.split_reviews(parameters, seed)
    gap = prediction_gap(phi, *reviews, seed=seed)
    measured = {"gap": gap.value, "ceiling": gap.ceiling, "lambda_min": gap.lambda_min, "status": gap.status}
    return {**measured, "assumptions": shared.data_assumptions(phi, *reviews, theorems=["Appendix E"])}


def grid(config: RunConfig) -> Iterable[Parameters]:
    data = shared.dimension(config)
    for n in LENGTHS[config.scale]:
        for samples in SAMPLES[config.scale]:
            yield {"map": "rf", **data, "d": data["d"] // _SHARE, "n": n, "samples": samples}


def table(results: Sequence[TrialResult]) -> Table:
    rows: Table = []
    for point, trials in points(results, "n", "samples"):
        gaps, ceilings = ([row[name] for row in trials] for name in ("gap", "ceiling"))
        root = math.sqrt(point["samples"] / point["n"])
        rows.append(
            {
                **point,
                "root": root,
                **statistics(gaps, "mean", "deviation"),
                "margin": root / max(gaps),
                "ceiling": None if None in ceilings else fmean(ceilings),
            }
        )
    return rows


def claims(rows: Table) -> list[Verdict]:
    return [
        above("sqrt(N / n) over the gap is above 1 in every trial", rows, 1.0, "margin"),
        exponent_near("the gap grows like N^(1/2)", rows, 0.5, 0.15, curve=("n",), x="samples"),
        falls("it falls with n for every N", rows, curve=("samples",)),
    ]


def plot(rows: Table, figure: style.Figure) -> None:
    axes = style.panel(figure, 1, 0, "re-trained random features")
    style.lines(axes, [{**row, "ceiling": None} for row in rows], "n", "n = {}", x="root")
    roots = [row["root"] for row in rows]
    ends = min(roots), max(roots)
    style.theory(axes, ends, ends, "$\\sqrt{N/n}$")
    style.finish(axes, "$\\sqrt{N/n}$", "largest change of the prediction", (0.5, 1, 2, 3), logarithmic=True)


def estimate(parameters: Parameters) -> Estimate:
    """Estimate one trial by a fit to CPU seconds at 50 to 400 samples of 40 to 240 words."""
    width, samples = parameters["n"] * parameters["d"], parameters["samples"]
    return Estimate(0.05 + 3.7e-10 * width * samples**2, 5 * 10**8 + 40 * samples * width)


FIGURE = Experiment(
    name="appendix-e",
    title="One word moves re-trained random features by less than sqrt(N / n)",
    about="The largest change of the prediction on a review that was trained on, when its first word moves, against "
    "sqrt(N / n): in long contexts the model cannot tell the two apart, whatever the perturbation (144).",
    trial=trial,
    grid=grid,
    trials={"quick": 3, "paper": 10},
    table=table,
    claims=claims,
    plot=plot,
    estimate=estimate,
    version=6,
    assumptions=lambda results: [Assumptions.from_dict(one["assumptions"]) for one in results],
)
