"""The loss along gradient flow stays below its bound, and the tangent kernel well conditioned."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean

from wordsway.contexts import gaussian_context
from wordsway.experiments import Estimate, Experiment, Parameters, RunConfig, Table, TrialRecord, TrialResult, Verdict
from wordsway.experiments.claims import check, curves, judge, points
from wordsway.figures import _assumed
from wordsway.figures import _style as style
from wordsway.kernels import Network, gradient_flow, ntk, smallest_eigenvalue
from wordsway.seeds import generator, signs

SAMPLES = {"quick": (6, 24), "paper": (6, 12, 24)}
WIDTHS = {"quick": (30, 90), "paper": (30, 60, 120, 240)}
D = 30
TIMES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0)  # in units of 1 / lambda_min
_BOUND = '"L_f(theta(t)) <= L_f(theta(0)) e^(-lambda_min(K) t / 2)" (slides)'
_KERNEL = (
    '"throughout the gradient flow trajectory we have f(x; theta(t)) ~ f(x; theta(0)) + <grad f(x; theta(0)), '
    'theta(t) - theta(0)>" (slides)'
)


def trial(parameters: Parameters, seed: int) -> TrialRecord:
    """Measure the losses of a network and of its linearisation at each time, their bound, and the kernel."""
    count = parameters["samples"]
    network = Network.drawn([D, parameters["width"], parameters["width"]], "tanh", seed)
    inputs = gaussian_context(count, D, seed)
    labels = signs(generator(seed, "labels"), count)
    slowest = smallest_eigenvalue(ntk(network, inputs)).value
    return gradient_flow(network, inputs, labels, [time / slowest for time in TIMES])


def grid(config: RunConfig) -> Iterable[Parameters]:
    for count in SAMPLES[config.scale]:
        for width in WIDTHS[config.scale]:
            yield {"samples": count, "width": width}


def as_written(count: int, time: float) -> float:
    """Return e^(-lambda_min s / 2), the bound as the slides write it, for their loss |f - y|^2 / N.

    `time` is that of the loss |f - y|^2 / 2 in units of 1 / lambda_min; the flow of their loss gets there at
    s = N / 2 times that.
    """
    return math.exp(-count * time / 4)


def table(results: Sequence[TrialResult]) -> Table:
    """Return one row per number of samples, width and time.

    Mean losses over those at the start, the largest shares of the bounds, and the least eigenvalue over its start.
    """
    rows: Table = []
    for point, trials in points(results, "samples", "width"):
        for place, time in enumerate(TIMES):
            actual, linear, bound = (
                [row[name][place] / row["actual"][0] for row in trials] for name in ("actual", "linear", "bound")
            )
            rows.append(
                {
                    **point,
                    "time": time,
                    "trials": len(trials),
                    "actual": fmean(actual),
                    "linear": fmean(linear),
                    "bound": fmean(bound),
                    "used": max(a / b for a, b in zip(actual, bound, strict=True)),
                    "linear_used": max(a / b for a, b in zip(linear, bound, strict=True)),
                    "written_used": max(actual) / as_written(point["samples"], time),
                    "kernel": min(row["lambda_min"][place] / row["lambda_min"][0] for row in trials),
                }
            )
    return rows


def claims(rows: Table) -> list[Verdict]:
    groups = curves(rows, "samples") or {(SAMPLES["quick"][0],): []}
    return [verdict for (count,), line in groups.items() for verdict in _claims(count, [dict(row) for row in line])]


def _claims(count: int, rows: Table) -> list[Verdict]:
    title = f"N = {count}"
    bound = _below(f"{title}: the loss of the network is below L(0) exp(-lambda_min t / 2)", rows, "used")
    written = _below(
        f"{title}: so is the mean square error, the loss of the slides, along its own flow", rows, "written_used"
    )
    if bound.holds and written.holds is False:
        written = replace(written, weaker="it is below L(0) exp(-lambda_min t / N), the bound at the rate of this loss")
    least = [row["kernel"] for row in rows]
    kernel = judge(
        f"{title}: min over t of lambda_min(K(t)) is at least lambda_min(K(0)) / 4",
        least,
        lambda: (f"{min(least):.3f} of it at least, at {len(TIMES)} times", min(least) >= 0.25),
    )
    linear = _below(f"{title}: the linearised network is below L(0) exp(-lambda_min t / 2)", rows, "linear_used")
    return [
        replace(bound, source=_BOUND),
        replace(written, source=_BOUND),
        replace(kernel, source=_KERNEL),
        check(linear),
    ]


def _below(claim: str, rows: Table, column: str) -> Verdict:
    later = [row[column] for row in rows if row["time"] > 0]
    end = [row[column] for row in rows if row["time"] == TIMES[-1]]
    return judge(claim, later, lambda: (f"at most {max(later):.3g} of it, {max(end):.2g} at the end", max(later) <= 1))


def plot(rows: Table, figure: style.Figure) -> None:
    """Draw the losses in the first row of panels, one for each N, and the smallest eigenvalues below."""
    groups = curves(rows, "samples")
    top = 1.4 * max((row["kernel"] for row in rows), default=1.0)  # space for the legend
    for place, ((count,), members) in enumerate(groups.items()):
        losses = style.panel(figure, 2 * len(groups), place, f"loss, N = {count}", columns=len(groups))
        kernels = style.panel(figure, 2 * len(groups), place + len(groups), f"kernel, N = {count}", columns=len(groups))
        for number, ((width,), line) in enumerate(curves(members, "width").items()):
            x = [row["time"] for row in line]
            style.curve(losses, x, [row["actual"] for row in line], f"width {width}", number)
            style.line(losses, x, [row["linear"] for row in line], f"width {width}, linearised", number)
            style.curve(kernels, x, [row["kernel"] for row in line], f"width {width}", number)
        style.theory(losses, TIMES, [math.exp(-time / 2) for time in TIMES], "bound")
        style.theory(losses, TIMES, [as_written(count, time) for time in TIMES], "bound as written for $1/N$")
        losses.get_lines()[-1].set_linestyle((0, (1, 1.5)))
        style.theory(kernels, (0, TIMES[-1]), (0.25, 0.25), "a quarter")
        for axes, label in ((losses, "loss / loss at the start"), (kernels, "smallest eigenvalue / that at the start")):
            style.label_axes(axes, "time, in units of $1/\\lambda_{\\min}$", label)
        losses.set_yscale("log")
        losses.set_ylim(1e-8, 1e5)  # all lines start at 1: the legend is above
        kernels.set_ylim(0, top)
        losses.legend(fontsize=8, loc="upper right", ncols=2)
        kernels.legend(fontsize=8, loc="upper right", ncols=2)


def estimate(parameters: Parameters) -> Estimate:
    """Estimate one trial: some thousand forward and backward passes."""
    return Estimate(0.2 + 1e-5 * parameters["samples"] * parameters["width"], 4 * 10**8)


FIGURE = Experiment(
    name="ntk-flow",
    title="Gradient flow fits the samples at the rate of the smallest eigenvalue",
    about="Above: the loss |f - y|^2 / 2 along gradient flow, of networks of three weights (tanh, solid lines with "
    "markers) and of their linearisations at the start (dashes of the same colour), next to the bound "
    "e^(-lambda_min t / 2) (dashed) and to what the same formula states for the mean square error |f - y|^2 / N "
    "(dotted), whose flow takes N / 2 times as long. Below: the smallest eigenvalue of the tangent kernel along the "
    "flow, the least of all trials, and the quarter that the bound needs (dashed).",
    trial=trial,
    grid=grid,
    trials={"quick": 2, "paper": 5},
    table=table,
    claims=claims,
    plot=plot,
    estimate=estimate,
    assumptions=partial(_assumed.along_flow, d=D),
    version=4,
)
