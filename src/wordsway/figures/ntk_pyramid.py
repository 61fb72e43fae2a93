"""One wide layer followed by a pyramid: trained to 0, by the kernel of the features of the wide layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean

from wordsway.contexts import gaussian_context
from wordsway.experiments import Estimate, Experiment, Parameters, RunConfig, Table, TrialRecord, TrialResult, Verdict
from wordsway.experiments.claims import by_most, check, count_of, curves, each, points, statistics
from wordsway.figures import _assumed
from wordsway.figures import _style as style
from wordsway.kernels import Network, descend, ntk, smallest_eigenvalue
from wordsway.seeds import generator, signs

SAMPLES = {"quick": (60,), "paper": (60, 200)}
SHARES = {"quick": (0.25, 0.5, 1.0, 2.0), "paper": (0.25, 0.5, 1.0, 1.5, 2.0)}  # of neurons over samples
TAILS = ("8 4", "8 6 4 2")  # widths of the layers after the wide one
STEPS = 8000
_D = 10
_FITTED = 1e-4
_ENOUGH = 1.2  # times as many neurons as samples: then the kernel of the features has to be regular
_FLOOR = 1e-10  # of drawn eigenvalues; those of singular kernels are rounding errors
_PYRAMID = '"Need only one wide layer + pyramidal topology" (slides)'
_WIDE = '"Need one wide layer with Omega(n) neurons!" (slides)'
_LEAST = '"Need only minimum over-parameterization" (slides)'


def trial(parameters: Parameters, seed: int) -> TrialRecord:
    """Measure the kernel and that of the first features at the start, and train on random labels."""
    count, width = parameters["samples"], parameters["width"]
    inputs, labels = gaussian_context(count, _D, seed), signs(generator(seed, "labels"), count)
    network = Network.drawn([_D, width, *map(int, parameters["tail"].split())], "tanh", seed)
    features = network.passes(inputs).features[1]
    record: dict[str, float | bool] = {"parameters": network.parameters}
    for name, kernel in (("features", features @ features.mT), ("kernel", ntk(network, inputs))):
        smallest = smallest_eigenvalue(kernel)
        record[name] = smallest.value / float(kernel.diagonal().mean())
        record[f"{name}_singular"] = smallest.singular
    descent = descend(network, inputs, labels, STEPS, enough=_FITTED / 10)
    return {**record, "loss": descent.loss}


def grid(config: RunConfig) -> Iterable[Parameters]:
    for tail in TAILS:
        for count in SAMPLES[config.scale]:
            for share in SHARES[config.scale]:
                yield {"samples": count, "tail": tail, "width": round(share * count)}


def table(results: Sequence[TrialResult]) -> Table:
    rows: Table = []
    for point, trials in points(results, "tail", "samples", "width", "parameters"):
        losses = [row["loss"] for row in trials]
        rows.append(
            {
                **point,
                "share": point["width"] / point["samples"],
                **statistics(losses, "mean", "most"),
                "fitted": sum(loss <= _FITTED for loss in losses),
                **{name: fmean(max(row[name], _FLOOR) for row in trials) for name in ("features", "kernel")},
                **{
                    f"{name}_singular": sum(row[f"{name}_singular"] for row in trials)
                    for name in ("features", "kernel")
                },
            }
        )
    return rows


def claims(rows: Table) -> list[Verdict]:
    enough = [row for row in rows if row["share"] >= _ENOUGH]
    narrow = [row for row in rows if row["share"] < 1]
    kernels = "{} of {} are singular"
    wide = f"with {_ENOUGH:g} times as many neurons as samples the kernel F_1 F_1^T of the wide layer is regular"
    least = "the tangent kernel is regular with fewer neurons than samples too"
    few = "with fewer neurons than samples F_1 F_1^T is singular"
    return [
        *each(rows, "tail", _fitted),
        replace(count_of(wide, enough, "features_singular", False, kernels), source=_WIDE),
        replace(count_of(least, narrow, "kernel_singular", False, kernels), source=_LEAST),
        check(count_of(few, narrow, "features_singular", True, kernels)),
    ]


def _fitted(tail: str, rows: Table) -> list[Verdict]:
    """Judge that all networks with a layer as wide as there are samples are fitted."""
    wide = [row for row in rows if row["share"] >= 1]
    claim = f"one layer of at least N neurons, then {', '.join(tail.split())}: every sample is fitted"
    verdict = count_of(claim, wide, "fitted", True, "{} of {} trainings")
    return [replace(by_most(verdict, wide, "fitted", "not from every start"), source=_PYRAMID)]


def plot(rows: Table, figure: style.Figure) -> None:
    """Draw smallest eigenvalues on the left, losses on the right; a curve for each pyramid and number of samples."""
    shares = sorted({row["share"] for row in rows})
    kernels = style.panel(figure, 2, 0, "smallest eigenvalue at the start", size=(5.6, 4.2))
    losses = style.panel(figure, 2, 1, "loss after training on random labels", size=(5.6, 4.2))
    for number, ((tail, count), line) in enumerate(curves(rows, "tail", "samples").items()):
        x, label = [row["share"] for row in line], f"{', '.join(tail.split())} (N = {count})"
        style.curve(kernels, x, [row["kernel"] for row in line], f"$K$, then {label}", number)
        if tail == TAILS[0]:  # the first features are those of the same first weight
            style.line(kernels, x, [row["features"] for row in line], f"$F_1F_1^\\top$, N = {count}", number)
        style.curve(losses, x, [max(row["mean"], 1e-8) for row in line], f"then {label}", number)
    style.theory(losses, shares, [_FITTED] * len(shares), "fitted")
    kernels.set_ylim(_FLOOR / 2, 1)
    losses.set_ylim(1e-8, 1)
    style.finish(kernels, "neurons of the wide layer / samples", "smallest / mean eigenvalue", shares, logarithmic=True)
    style.finish(losses, "neurons of the wide layer / samples", "", shares, logarithmic=True)
    losses.set_ylabel("loss")


def estimate(parameters: Parameters) -> Estimate:
    """Estimate one trial by a fit to CPU seconds: some hundred to some thousand steps of training."""
    return Estimate(0.03 + 3.5e-5 * parameters["samples"] * parameters["width"], 4 * 10**8)


FIGURE = Experiment(
    name="ntk-pyramid",
    title="One wide layer followed by a pyramid is enough",
    about="Networks (tanh) on N inputs of dimension 10, with one wide layer and then layers of 8 and 4, or of 8, 6, 4 "
    "and 2 neurons. Left: smallest over mean eigenvalue of the tangent kernel K (solid lines with markers) and of "
    "the kernel F_1 F_1^T of the features of the wide layer (dashes; at the bottom where it is singular), from "
    "which the proof for one wide layer starts: it needs N neurons, K does not. Right: the mean loss after "
    "training on random labels; below the dashed line they are fitted.",
    trial=trial,
    grid=grid,
    trials={"quick": 3, "paper": 5},
    table=table,
    claims=claims,
    plot=plot,
    estimate=estimate,
    assumptions=_assumed.one_wide_layer,
)
