"""Networks fit their samples as soon as parameters exceed them: a phase diagram."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from wordsway.contexts import gaussian_context
from wordsway.experiments import Estimate, Experiment, Parameters, RunConfig, Table, TrialRecord, TrialResult, Verdict
from wordsway.experiments.claims import count_of, points, statistics
from wordsway.figures import _assumed
from wordsway.figures import _style as style
from wordsway.kernels import Network, descend
from wordsway.seeds import generator, signs

SAMPLES = {"quick": (50, 150), "paper": (50, 100, 200, 400, 800)}
WIDTHS = {"quick": (3, 5, 8, 14, 24), "paper": (3, 4, 6, 8, 11, 16, 22, 32)}
STEPS = {"quick": 4000, "paper": 15000}
_FITTED = 1e-4
_MANY, _FEW = 3.0, 0.8  # parameters over samples: then samples are fitted, or are not


def trial(parameters: Parameters, seed: int) -> TrialRecord:
    """Train a network of four weights on random labels, and return its loss."""
    count, width = parameters["samples"], parameters["width"]
    labels = signs(generator(seed, "labels"), count)
    network = Network.drawn([width] * 4, "tanh", seed, scale=2.0)
    descent = descend(network, gaussian_context(count, width, seed), labels, parameters["steps"], enough=_FITTED / 10)
    return {"loss": descent.loss, "parameters": network.parameters, "steps_taken": len(descent.losses)}


def grid(config: RunConfig) -> Iterable[Parameters]:
    for count in SAMPLES[config.scale]:
        for width in WIDTHS[config.scale]:
            yield {"samples": count, "width": width, "steps": STEPS[config.scale]}


def table(results: Sequence[TrialResult]) -> Table:
    rows: Table = []
    for point, trials in points(results, "samples", "width", "parameters"):
        losses = [row["loss"] for row in trials]
        ratio = point["parameters"] / point["samples"]
        fitted = sum(loss <= _FITTED for loss in losses)
        rows.append({**point, "ratio": ratio, **statistics(losses, "mean", "most"), "fitted": fitted})
    return rows


def claims(rows: Table) -> list[Verdict]:
    many = [row for row in rows if row["ratio"] >= _MANY]
    few = [row for row in rows if row["ratio"] <= _FEW]
    more = f"with {_MANY:g} times as many parameters as samples every sample is fitted"
    return [
        count_of(more, many, "fitted", True, "{} of {} trainings"),
        count_of(f"with {_FEW:g} times as many they are not", few, "fitted", False, "{} of {} trainings"),
    ]


def plot(rows: Table, figure: style.Figure) -> None:
    axes = style.panel(figure, 1, 0, "training loss on random labels, four weights, tanh", size=(6.4, 4.2))
    style.lines(axes, [{**row, "mean": max(row["mean"], 1e-8)} for row in rows], "samples", "N = {}", x="ratio")
    low, high = min(row["ratio"] for row in rows), max(row["ratio"] for row in rows)
    places = [2.0**power for power in range(math.floor(math.log2(low)), math.ceil(math.log2(high)) + 1)]
    style.theory(axes, (1, 1), axes.get_ylim(), "parameters = samples")
    style.finish(axes, "parameters / samples", "loss", places[:: max(1, len(places) // 6)], logarithmic=True)


def estimate(parameters: Parameters) -> Estimate:
    """Estimate one trial: a forward and a backward pass for each step."""
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
    assumptions=_assumed.wide_enough,
    version=3,
)
