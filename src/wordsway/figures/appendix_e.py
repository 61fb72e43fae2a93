"""Appendix E: one word moves the prediction of re-trained random features by O(sqrt(N / n)) at most."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from wordsway.experiments.claims import above, curves, deviation, exponent_near, falls
from wordsway.experiments.experiment import (
    Estimate,
    Experiment,
    Parameters,
    RunConfig,
    Table,
    TrialResult,
    Verdict,
)
from wordsway.figures._generalization import dimension
from wordsway.generalization import prediction_gap
from wordsway.maps.catalogue import map_named

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTHS = {"quick": (40, 160), "paper": (40, 80, 160, 240)}
SAMPLES = {"quick": (50, 200), "paper": (50, 100, 200, 400)}
_SHARE = 4  # the dimension is this part of the embedding's


def trial(parameters: Parameters, seed: int) -> dict[str, Any]:
    """How far the first word of a new review moves what the re-trained model says of it."""
    from wordsway.models import review_contexts

    n, d, samples = parameters["n"], parameters["d"], parameters["samples"]
    contexts, labels = review_contexts(samples + 1, n, d, seed, model=parameters.get("model"))
    phi = map_named("rf").build(n, d, None, seed)
    found = prediction_gap(phi, contexts[:-1], labels[:-1], contexts[-1], float(labels[-1]), seed=seed)
    return {
        "gap": found.value,
        "ceiling": found.ceiling,
        "lambda_min": found.lambda_min,
        "status": found.status,
        "dtype": found.cost.dtype,
    }


def grid(config: RunConfig) -> Iterable[Parameters]:
    data = dimension(config)
    for n in LENGTHS[config.scale]:
        for samples in SAMPLES[config.scale]:
            yield {"map": "rf", **data, "d": data["d"] // _SHARE, "n": n, "samples": samples}


def table(finished: Sequence[TrialResult]) -> Table:
    rows: Table = []
    for (n, samples), members in curves([{**one.parameters, **one.record} for one in finished], "n", "samples").items():
        gaps = [row["gap"] for row in members]
        ceilings = [row["ceiling"] for row in members]
        rows.append(
            {
                "n": n,
                "samples": samples,
                "root": math.sqrt(samples / n),
                "trials": len(gaps),
                "mean": statistics.fmean(gaps),
                "deviation": deviation(gaps),
                "room": math.sqrt(samples / n) / max(gaps),
                "ceiling": None if None in ceilings else statistics.fmean(ceilings),
            }
        )
    return rows


def claims(rows: Table) -> list[Verdict]:
    return [
        above("sqrt(N / n) over the gap is above 1 in every trial", rows, 1.0, "room"),
        exponent_near("the gap grows like N^(1/2)", rows, 0.5, 0.15, curve=("n",), x="samples"),
        falls("it falls with n for every N", rows, curve=("samples",)),
    ]


def plot(rows: Table, figure: Figure) -> None:
    from wordsway.figures import _style as style

    axes = style.panel(figure, 1, 0, "re-trained random features")
    for number, ((n,), line) in enumerate(curves(rows, "n").items()):
        ordered = sorted(line, key=lambda row: float(row["samples"]))
        x, mean, spread = ([row[name] for row in ordered] for name in ("root", "mean", "deviation"))
        style.curve(axes, x, mean, spread, [None] * len(ordered), label=f"n = {n}", number=number)
    ends = sorted(row["root"] for row in rows)
    style.theory(axes, (ends[0], ends[-1]), (ends[0], ends[-1]), "$\\sqrt{N/n}$")
    style.finish(axes, "$\\sqrt{N/n}$", "largest change of the prediction", (0.5, 1, 2, 3), logarithmic=True)


def estimate(parameters: Parameters) -> Estimate:
    """Seconds and memory of one trial: that of revealing V for N samples."""
    width, samples = parameters["n"] * parameters["d"], parameters["samples"]
    return Estimate(0.3 + 6e-10 * width * samples**2, 5 * 10**8 + 40 * samples * width)


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
    version=2,
)
