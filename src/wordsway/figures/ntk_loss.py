"""Networks fit their samples as soon as parameters exceed them: a phase diagram."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from wordsway.contexts import gaussian_context
from wordsway.experiments import Estimate, Experiment, Parameters, RunConfig, Table, TrialRecord, TrialResult, Verdict
from wordsway.experiments.claims import by_most, count_of, curves, judge, points, statistics
from wordsway.figures import _assumed
from wordsway.figures import _style as style
from wordsway.kernels import Network, descend
from wordsway.seeds import generator, signs

SAMPLES = {"quick": (400, 1200), "paper": (400, 1000, 2000, 4000, 8000, 12_000)}
WIDTHS = {"quick": (8, 11, 16, 22, 32, 45), "paper": (22, 32, 45, 63, 90, 122)}
STEPS = 6000
_FITTED = 1e-4
_MANY, _FEW = 3.0, 0.8  # parameters over samples: then samples are fitted, or are not
_SPREAD = 1.5  # of the least widths over sqrt(N), which are known up to the step of the grid, sqrt(2)
_ROOT = '"[Bombari, Amani and M., \'22] Layer width Omega~(sqrt(n)), # wide layers: all" (slides)'
_NECESSARY = '"Omega(sqrt(n)) neurons necessary to interpolate (parameter counting or VC dimension bound)" (slides)'


def trial(parameters: Parameters, seed: int) -> TrialRecord:
    """Train a network of four weights on random labels in float32, and return its loss."""
    count, width = parameters["samples"], parameters["width"]
    labels = signs(generator(seed, "labels"), count)
    network = Network.drawn([width] * 4, "relu", seed, scale=2.0)
    inputs = gaussian_context(count, width, seed).float()
    descent = descend(network, inputs, labels, parameters["steps"], enough=_FITTED / 10)
    return {"loss": descent.loss, "parameters": network.parameters, "steps_taken": len(descent.losses)}


def grid(config: RunConfig) -> Iterable[Parameters]:
    for count in SAMPLES[config.scale]:
        for width in WIDTHS[config.scale]:
            yield {"samples": count, "width": width, "steps": STEPS}


def table(results: Sequence[TrialResult]) -> Table:
    rows: Table = []
    for point, trials in points(results, "samples", "width", "parameters"):
        losses = [row["loss"] for row in trials]
        ratio = point["parameters"] / point["samples"]
        fitted = sum(loss <= _FITTED for loss in losses)
        rows.append({**point, "ratio": ratio, **statistics(losses, "mean", "most"), "fitted": fitted})
    return rows


def claims(rows: Table) -> list[Verdict]:
    few = [row for row in rows if row["ratio"] <= _FEW]
    never = count_of(f"with {_FEW:g} times as many they are not", few, "fitted", False, "{} of {} trainings")
    return [_fits(rows), _root(rows), replace(never, source=_NECESSARY)]


def _fits(rows: Table) -> Verdict:
    many = [row for row in rows if row["ratio"] >= _MANY]
    claim = f"with {_MANY:g} times as many parameters as samples every sample is fitted"
    verdict = count_of(claim, many, "fitted", True, "{} of {} trainings")
    return replace(by_most(verdict, many, "fitted", "not from every start"), source=_ROOT)


def _root(rows: Table) -> Verdict:
    """Judge that the least width that fits is the same multiple of sqrt(N), where some widths fit and others do not."""
    least: dict[int, int] = {}
    for (count,), line in curves(rows, "samples").items():
        fits = {row["width"]: row["fitted"] == row["trials"] for row in line}
        if len(set(fits.values())) == 2:
            least[count] = min(width for width, fit in fits.items() if fit)
    shares = [width / math.sqrt(count) for count, width in least.items()]

    def measured() -> tuple[str, bool]:
        parts = [f"{width} (N = {count})" for count, width in least.items()]
        text = f"{', '.join(parts)}: {min(shares):.2f} to {max(shares):.2f} sqrt(N)"
        return text, max(shares) <= _SPREAD * min(shares)

    claim = f"the least width that fits is a multiple of sqrt(N), the same within a factor of {_SPREAD:g}"
    return replace(judge(claim, shares[1:], measured), source=_ROOT)


def plot(rows: Table, figure: style.Figure) -> None:
    axes = style.panel(figure, 1, 0, "training loss on random labels, four weights, ReLU", size=(6.4, 4.2))
    style.lines(axes, [{**row, "mean": max(row["mean"], 1e-8)} for row in rows], "samples", "N = {:,}", x="ratio")
    low, high = min(row["ratio"] for row in rows), max(row["ratio"] for row in rows)
    places = [2.0**power for power in range(math.floor(math.log2(low)), math.ceil(math.log2(high)) + 1)]
    style.theory(axes, (1, 1), axes.get_ylim(), "parameters = samples")
    style.finish(axes, "parameters / samples", "loss", places[:: max(1, len(places) // 6)], logarithmic=True)


def estimate(parameters: Parameters) -> Estimate:
    """Estimate one trial: a forward and a backward pass for each step, up to where the samples are fitted.

    Constants are a fit to CPU seconds per step at 1,000 to 12,000 samples and widths of 22 to 122, and to the steps of
    trainings of 400 to 4,000 samples: all of them with 1.45 times as many parameters as samples, 3,751 with 1.52 times.
    """
    samples, width = parameters["samples"], parameters["width"]
    ratio = 3 * width**2 / samples
    steps = min(parameters["steps"], 150 + 120 * math.sqrt(samples) / ratio**2 if ratio > 1.5 else math.inf)
    return Estimate(0.05 + steps * (3e-4 + samples * (2e-8 * width + 1.2e-10 * width**2)), 4 * 10**8)


FIGURE = Experiment(
    name="ntk-loss",
    title="About sqrt(N) neurons a layer fit N samples",
    about="The loss after training networks of four weights (ReLU, Adam on all samples at once, in float32) on random "
    "labels, against parameters over samples, a line for each N: it falls to 0 soon after there are more parameters "
    "than samples (dashed). Training ends at a loss of 1e-5; samples are fitted below 1e-4.",
    trial=trial,
    grid=grid,
    trials={"quick": 1, "paper": 1},
    table=table,
    claims=claims,
    plot=plot,
    estimate=estimate,
    assumptions=partial(_assumed.wide_enough, activation="relu"),
    version=4,
)
