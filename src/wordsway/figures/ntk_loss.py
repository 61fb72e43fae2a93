"""Networks fit their samples as soon as parameters exceed them: a phase diagram."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from wordsway.contexts import gaussian_context
from wordsway.experiments.claims import TOO_FEW, curves
from wordsway.experiments.experiment import (
    Estimate,
    Experiment,
    Parameters,
    RunConfig,
    Table,
    TrialResult,
    Verdict,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAMPLES = {"quick": (50, 150), "paper": (50, 100, 200, 400, 800)}
WIDTHS = {"quick": (3, 5, 8, 14, 24), "paper": (3, 4, 6, 8, 11, 16, 22, 32)}
STEPS = {"quick": 4000, "paper": 15000}
_FITTED = 1e-4
_MANY, _FEW = 3.0, 0.8  # parameters over samples: then samples are fitted, or are not


def trial(parameters: Parameters, seed: int) -> dict[str, Any]:
    """The loss after training a network of four weights on random labels."""
    from wordsway.kernels import Network, descend
    from wordsway.seeds import generator, signs

    count, width = parameters["samples"], parameters["width"]
    labels = signs(generator(seed, "labels"), count)
    network = Network.drawn([width] * 4, "tanh", seed, scale=2.0)
    found = descend(network, gaussian_context(count, width, seed), labels, parameters["steps"], enough=_FITTED / 10)
    return {"loss": found.loss, "parameters": network.parameters, "steps_taken": len(found.losses)}


def grid(config: RunConfig) -> Iterable[Parameters]:
    for count in SAMPLES[config.scale]:
        for width in WIDTHS[config.scale]:
            yield {"samples": count, "width": width, "steps": STEPS[config.scale]}


def table(finished: Sequence[TrialResult]) -> Table:
    rows: Table = []
    points = [{**one.parameters, **one.record} for one in finished]
    for (count, width), members in curves(points, "samples", "width").items():
        losses = [row["loss"] for row in members]
        rows.append(
            {
                "samples": count,
                "width": width,
                "parameters": members[0]["parameters"],
                "ratio": members[0]["parameters"] / count,
                "trials": len(losses),
                "mean": statistics.fmean(losses),
                "most": max(losses),
                "fitted": sum(loss <= _FITTED for loss in losses),
            }
        )
    return rows


def claims(rows: Table) -> list[Verdict]:
    many = [row for row in rows if row["ratio"] >= _MANY]
    few = [row for row in rows if row["ratio"] <= _FEW]
    return [
        _share(f"with {_MANY:g} times as many parameters as samples every sample is fitted", many, True),
        _share(f"with {_FEW:g} times as many they are not", few, False),
    ]


def _share(claim: str, rows: Table, fitted: bool) -> Verdict:
    if not rows:
        return Verdict(claim, TOO_FEW, None)
    done, asked = sum(row["fitted"] for row in rows), sum(row["trials"] for row in rows)
    return Verdict(claim, f"{done} of {asked} trainings", done == (asked if fitted else 0))


def plot(rows: Table, figure: Figure) -> None:
    from wordsway.figures import _style as style

    axes = style.panel(figure, 1, 0, "training loss on random labels, four weights, tanh", size=(6.4, 4.2))
    for number, ((count,), line) in enumerate(curves(rows, "samples").items()):
        ordered = sorted(line, key=lambda row: float(row["ratio"]))
        x = [row["ratio"] for row in ordered]
        mean = [max(row["mean"], 1e-8) for row in ordered]
        style.curve(axes, x, mean, [0.0] * len(x), [None] * len(x), label=f"N = {count}", number=number)
    low, high = min(row["ratio"] for row in rows), max(row["ratio"] for row in rows)
    places = [2.0**power for power in range(math.floor(math.log2(low)), math.ceil(math.log2(high)) + 1)]
    style.theory(axes, (1, 1), axes.get_ylim(), "parameters = samples")
    style.finish(axes, "parameters / samples", "loss", places[:: max(1, len(places) // 6)], logarithmic=True)


def estimate(parameters: Parameters) -> Estimate:
    """Seconds and memory of one trial: a forward and a backward pass for each step."""
    work = parameters["samples"] * 18.0 * parameters["width"] ** 2 / 5e9
    return Estimate(0.5 + parameters["steps"] * (3e-4 + work), 4 * 10**8)


FIGURE = Experiment(
    name="ntk-loss",
    title="About sqrt(N) neurons a layer fit N samples",
    about="The loss after training networks of four weights on random labels, against parameters over samples: it "
    "falls to 0 soon after there are more parameters than samples, for every N.",
    trial=trial,
    grid=grid,
    trials={"quick": 1, "paper": 5},
    table=table,
    claims=claims,
    plot=plot,
    estimate=estimate,
    version=2,
)
