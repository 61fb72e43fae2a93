"""The smallest eigenvalue of the tangent kernel is positive once parameters exceed samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from wordsway.experiments import Estimate, Experiment, Parameters, RunConfig, Table, TrialRecord, TrialResult, Verdict
from wordsway.experiments.claims import check, count_of, curves, judge, points, statistics
from wordsway.figures import _assumed
from wordsway.figures import _style as style
from wordsway.kernels import Network, ntk, smallest_eigenvalue
from wordsway.models import input_samples

SAMPLES = {
    "quick": {"gaussian": (200, 400), "mnist": (400,)},
    "paper": {"gaussian": (1000, 2000, 3000), "mnist": (1000,)},
}
WIDTHS = {"quick": (10, 13, 18, 25, 40, 60, 90), "paper": (30, 50, 71, 100, 141, 200, 316, 500, 707, 1000)}
_ENOUGH = 1.2  # times as many parameters as samples: then the eigenvalue has to be positive


def trial(parameters: Parameters, seed: int) -> TrialRecord:
    """Measure the smallest eigenvalue of the block of the hidden weight of a network of three, and the mean one."""
    width, data = parameters["width"], parameters["data"]
    inputs, _ = input_samples(data, parameters["samples"], width if data == "gaussian" else None, seed)
    network = Network.drawn([inputs.shape[1], width, width], "tanh", seed)
    kernel = ntk(network, inputs, layer=1)
    return {"mean_eigenvalue": float(kernel.diagonal().mean()), **smallest_eigenvalue(kernel).to_dict()}


def grid(config: RunConfig) -> Iterable[Parameters]:
    for data, counts in SAMPLES[config.scale].items():
        for count in counts:
            for width in WIDTHS[config.scale]:
                yield {"data": data, "samples": count, "width": width}


def table(results: Sequence[TrialResult]) -> Table:
    rows: Table = []
    for point, trials in points(results, "data", "samples", "width"):
        shares = [max(row["smallest_eigenvalue"], 0.0) / row["mean_eigenvalue"] for row in trials]
        rows.append(
            {
                **point,
                "parameters": point["width"] ** 2,
                **statistics(shares, "mean", "deviation"),
                "lambda_min": fmean(row["smallest_eigenvalue"] for row in trials),
                "singular": sum(row["status"] == "singular" for row in trials),
            }
        )
    return rows


def claims(rows: Table) -> list[Verdict]:
    few = [row for row in rows if row["parameters"] < row["samples"]]
    many = [row for row in rows if row["parameters"] >= _ENOUGH * row["samples"]]
    more = f"with {_ENOUGH:g} times as many parameters as samples it is not"
    measured = "{} of {} kernels are singular"
    return [
        check(count_of("with fewer parameters than samples the kernel is singular", few, "singular", True, measured)),
        count_of(more, many, "singular", False, measured),
        _rises(rows),
    ]


def _rises(rows: Table) -> Verdict:
    """Judge that the share of the smallest eigenvalue grows with the width, at every number of samples."""
    lines = [sorted(line, key=lambda row: float(row["width"])) for line in curves(rows, "data", "samples").values()]
    pairs = [(line[0]["mean"], line[-1]["mean"]) for line in lines if len(line) > 1]
    changes = ", ".join(f"{first:.2g} to {last:.2g}" for first, last in pairs)
    claim = "the smallest eigenvalue comes closer to the mean one as parameters grow"
    return judge(claim, pairs, lambda: (f"from {changes}", all(last > first for first, last in pairs)))


def plot(rows: Table, figure: style.Figure) -> None:
    axes = style.panel(figure, 1, 0, "block of the hidden weight, tanh", size=(6.0, 4.0))
    named = [{**row, "line": f"N = {row['samples']}, {row['data']}"} for row in rows]
    style.lines(axes, named, "line", "{}", x="parameters")
    places = sorted({row["parameters"] for row in rows})
    style.finish(axes, "parameters $d^2$", "smallest / mean eigenvalue", places[:: max(1, len(places) // 4)], False)
    axes.set_xscale("log")


def estimate(parameters: Parameters) -> Estimate:
    """Estimate one trial: products of features, and a factor of the kernel or, where it is singular, eigenvalues.

    Constants are a fit to CPU seconds at 1,000 to 3,000 samples and widths of 30 to 1,000.
    """
    count, width = parameters["samples"], parameters["width"]
    return Estimate(0.02 + 4.0 * count**2 * width / 3e10 + count**3 / 1.5e10, 4 * 10**8 + 60 * count**2)


FIGURE = Experiment(
    name="ntk-lambda",
    title="The tangent kernel is well conditioned once parameters exceed samples",
    about="Smallest eigenvalue of the block of the tangent kernel that belongs to the hidden weight of a network of "
    "three, with d neurons a layer and inputs of dimension d (or images of MNIST), as a share of the mean eigenvalue, "
    "against its d^2 parameters: about sqrt(N) neurons a layer are enough.",
    trial=trial,
    grid=grid,
    trials={"quick": 3, "paper": 5},
    table=table,
    claims=claims,
    plot=plot,
    estimate=estimate,
    assumptions=_assumed.wide_enough,
    version=4,
)
