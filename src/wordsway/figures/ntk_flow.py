"""The loss along gradient flow stays below its bound."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from wordsway.contexts import gaussian_context
from wordsway.experiments import Estimate, Experiment, Parameters, RunConfig, Table, TrialRecord, TrialResult, Verdict
from wordsway.experiments.claims import check, curves, judge, points
from wordsway.figures import _style as style
from wordsway.kernels import Network, gradient_flow, ntk, smallest_eigenvalue
from wordsway.seeds import generator, signs

WIDTHS = {"quick": (30, 90), "paper": (30, 60, 120, 240)}
SAMPLES, D = 12, 30
TIMES = (0.0, 0.25, 0.5, 1.0, 2.0, 3.0)  # in units of 1 / lambda_min


def trial(parameters: Parameters, seed: int) -> TrialRecord:
    """Measure the losses of a network and of its linearisation at each time, and their bound."""
    network = Network.drawn([D, parameters["width"], parameters["width"]], "tanh", seed)
    inputs = gaussian_context(SAMPLES, D, seed)
    labels = signs(generator(seed, "labels"), SAMPLES)
    slowest = smallest_eigenvalue(ntk(network, inputs)).value
    return gradient_flow(network, inputs, labels, [time / slowest for time in TIMES])


def grid(config: RunConfig) -> Iterable[Parameters]:
    for width in WIDTHS[config.scale]:
        yield {"width": width}


def table(results: Sequence[TrialResult]) -> Table:
    """Return one row per width and time: mean losses over that at the start, and the largest share of the bound."""
    rows: Table = []
    for point, trials in points(results, "width"):
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
                }
            )
    return rows


def claims(rows: Table) -> list[Verdict]:
    return [
        _below("the loss of the network is below L(0) exp(-lambda_min t / 2)", rows, "used"),
        check(_below("so is that of its linearisation", rows, "linear_used")),
    ]


def _below(claim: str, rows: Table, column: str) -> Verdict:
    later = [row[column] for row in rows if row["time"] > 0]
    return judge(claim, later, lambda: (f"at most {max(later):.3f} of it", max(later) <= 1))


def plot(rows: Table, figure: style.Figure) -> None:
    axes = style.panel(figure, 1, 0, f"N = {SAMPLES} samples, three weights, tanh", size=(6.0, 4.0))
    for number, ((width,), line) in enumerate(curves(rows, "width").items()):
        x, actual, linear, bound = ([row[name] for row in line] for name in ("time", "actual", "linear", "bound"))
        style.curve(axes, x, actual, f"width {width}", number)
        style.line(axes, x, linear, f"width {width}, linear", number)
        if number == 0:
            style.theory(axes, x, bound, "bound $e^{-t/2}$")
    style.finish(axes, "time, in units of $1/\\lambda_{\\min}$", "loss / loss at the start", TIMES, False)
    low = max(min((min(row["actual"], row["linear"]) for row in rows), default=0.1), 1e-12) / 2
    axes.set_yscale("log")
    axes.set_ylim(low, low**-0.6)  # all lines start at 1: the legend is above


def estimate(parameters: Parameters) -> Estimate:
    """Estimate one trial: some thousand forward and backward passes."""
    return Estimate(1.0 + 1e-4 * parameters["width"] ** 2 / 4, 4 * 10**8)


FIGURE = Experiment(
    name="ntk-flow",
    title="Gradient flow fits the samples at the rate of the smallest eigenvalue",
    about="The loss |f - y|^2 / 2 along gradient flow, of networks of three weights and of their linearisations at the "
    "start, next to the bound that the smallest eigenvalue of the tangent kernel gives.",
    trial=trial,
    grid=grid,
    trials={"quick": 2, "paper": 5},
    table=table,
    claims=claims,
    plot=plot,
    estimate=estimate,
    version=3,
)
