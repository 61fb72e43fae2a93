"""The smallest eigenvalue of the tangent kernel is positive once parameters exceed samples."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from wordsway.experiments.claims import TOO_FEW, curves, deviation
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

SAMPLES = {
    "quick": {"gaussian": (200, 400), "digits": (400,)},
    "paper": {"gaussian": (1000, 2000, 3000), "digits": (1000,)},
}
WIDTHS = {"quick": (10, 13, 18, 25, 40, 60, 90), "paper": (30, 50, 71, 100, 141, 200, 316, 500, 707, 1000)}
_ENOUGH = 1.2  # times as many parameters as samples: then the eigenvalue has to be positive


def trial(parameters: Parameters, seed: int) -> dict[str, Any]:
    """The smallest eigenvalue of the block of the hidden weight of a network of three, over its mean eigenvalue."""
    from wordsway.kernels import Network, ntk, smallest_eigenvalue
    from wordsway.models import input_samples

    width, data = parameters["width"], parameters["data"]
    inputs, _ = input_samples(data, parameters["samples"], width if data == "gaussian" else None, seed)
    network = Network.drawn([inputs.shape[1], width, width], "tanh", seed)
    kernel = ntk(network, inputs, layer=1)
    found = smallest_eigenvalue(kernel)
    mean = float(kernel.diagonal().mean())
    return {
        "lambda_min": found.value,
        "share": max(found.value, 0.0) / mean,
        "residual": found.residual,
        "status": found.status,
    }


def grid(config: RunConfig) -> Iterable[Parameters]:
    for data, counts in SAMPLES[config.scale].items():
        for count in counts:
            for width in WIDTHS[config.scale]:
                yield {"data": data, "samples": count, "width": width}


def table(finished: Sequence[TrialResult]) -> Table:
    rows: Table = []
    points = [{**one.parameters, **one.record} for one in finished]
    for (data, count, width), members in curves(points, "data", "samples", "width").items():
        shares = [row["share"] for row in members]
        rows.append(
            {
                "data": data,
                "samples": count,
                "width": width,
                "parameters": width**2,
                "trials": len(members),
                "mean": statistics.fmean(shares),
                "deviation": deviation(shares),
                "lambda_min": statistics.fmean(row["lambda_min"] for row in members),
                "singular": sum(row["status"] == "singular" for row in members),
            }
        )
    return rows


def claims(rows: Table) -> list[Verdict]:
    few = [row for row in rows if row["parameters"] < row["samples"]]
    many = [row for row in rows if row["parameters"] >= _ENOUGH * row["samples"]]
    return [
        _all("with fewer parameters than samples the kernel is singular", few, singular=True),
        _all(f"with {_ENOUGH:g} times as many parameters as samples it is not", many, singular=False),
        _rises(rows),
    ]


def _all(claim: str, rows: Table, singular: bool) -> Verdict:
    if not rows:
        return Verdict(claim, TOO_FEW, None)
    count = sum(row["singular"] for row in rows)
    asked = sum(row["trials"] for row in rows)
    return Verdict(claim, f"{count} of {asked} kernels are singular", count == (asked if singular else 0))


def _rises(rows: Table) -> Verdict:
    """That the share of the smallest eigenvalue grows with the width, at every number of samples."""
    claim = "the smallest eigenvalue comes closer to the mean one as parameters grow"
    lines = [sorted(line, key=lambda row: float(row["width"])) for line in curves(rows, "data", "samples").values()]
    pairs = [(line[0]["mean"], line[-1]["mean"]) for line in lines if len(line) > 1]
    if not pairs:
        return Verdict(claim, TOO_FEW, None)
    told = ", ".join(f"{first:.2g} to {last:.2g}" for first, last in pairs)
    return Verdict(claim, f"from {told}", all(last > first for first, last in pairs))


def plot(rows: Table, figure: Figure) -> None:
    from wordsway.figures import _style as style

    axes = style.panel(figure, 1, 0, "block of the hidden weight, tanh", size=(6.0, 4.0))
    for number, ((data, count), line) in enumerate(curves(rows, "data", "samples").items()):
        ordered = sorted(line, key=lambda row: float(row["parameters"]))
        x, mean, spread = ([row[name] for row in ordered] for name in ("parameters", "mean", "deviation"))
        style.curve(axes, x, mean, spread, [None] * len(x), label=f"N = {count}, {data}", number=number)
    places = sorted({row["parameters"] for row in rows})
    style.finish(axes, "parameters $d^2$", "smallest / mean eigenvalue", places[:: max(1, len(places) // 4)], False)
    axes.set_xscale("log")


def estimate(parameters: Parameters) -> Estimate:
    """Seconds and memory of one trial: products of features, a factor, and a dense solution where it is singular."""
    count, width = parameters["samples"], parameters["width"]
    dense = 20 if width**2 < 1.2 * count else 1
    return Estimate(0.05 + (4.0 * count**2 * width + dense * count**3 / 2) / 1.5e10, 4 * 10**8 + 60 * count**2)


FIGURE = Experiment(
    name="ntk-lambda",
    title="The tangent kernel is well conditioned once parameters exceed samples",
    about="Smallest eigenvalue of the block of the tangent kernel that belongs to the hidden weight of a network of "
    "three, with d neurons a layer and inputs of dimension d (or images of digits), as a share of the mean eigenvalue, "
    "against its d^2 parameters: about sqrt(N) neurons a layer are enough.",
    trial=trial,
    grid=grid,
    trials={"quick": 3, "paper": 5},
    table=table,
    claims=claims,
    plot=plot,
    estimate=estimate,
    version=2,
)
