"""The smallest eigenvalues along the chain of matrices that bounds the tangent kernel from below."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean

from wordsway.contexts import gaussian_context
from wordsway.experiments import Estimate, Experiment, Parameters, RunConfig, Table, TrialRecord, TrialResult, Verdict
from wordsway.experiments.claims import at_least_one, check, curves, exponent, judge, points, statistics
from wordsway.figures import _assumed
from wordsway.figures import _style as style
from wordsway.kernels import Network, ntk_chain

SAMPLES = {"quick": (50, 150), "paper": (300, 1000)}
WIDTHS = {"quick": (16, 24, 40, 70, 120, 200), "paper": (36, 50, 71, 100, 141, 200, 316, 500)}
_RATE = -0.4  # an exponent of -1/2 with its tolerance; concentration of rows is an upper bound, without logarithms
_CONSTANT = 0.5  # up to which an order of matrices is judged
_CHAIN = '"J J^T >~ J_FB J_FB^T >~ J~_FB J~_FB^T ~ I_n" (slides)'
_CURVES = {
    "kernel": "$K$",
    "block": "$JJ^\\top$",
    "centred": "$J_{FB}J_{FB}^\\top$",
    "twice": "$\\tilde J_{FB}\\tilde J_{FB}^\\top$",
}


def trial(parameters: Parameters, seed: int) -> TrialRecord:
    """Measure the chain of a network of three weights."""
    width = parameters["width"]
    chain = ntk_chain(Network.drawn([width] * 3, "tanh", seed), gaussian_context(parameters["samples"], width, seed))
    names = ("scale", "distance", *(f"smallest_{name}" for name in _CURVES))
    return {name: getattr(chain, name) for name in names}


def grid(config: RunConfig) -> Iterable[Parameters]:
    """Yield widths with more parameters than samples: with fewer all matrices of the chain are singular."""
    for count in SAMPLES[config.scale]:
        for width in WIDTHS[config.scale]:
            if width**2 > count:
                yield {"samples": count, "width": width}


def table(results: Sequence[TrialResult]) -> Table:
    """Return one row per number of samples and width.

    Mean smallest eigenvalues over the multiple of I, the mean distance from it, and the least ratio of each matrix to
    the next one.
    """
    rows: Table = []
    for point, trials in points(results, "samples", "width"):
        least = [[row[f"smallest_{name}"] for name in _CURVES] for row in trials]
        ratios = [min(values[place] / values[place + 1] for values in least) for place in range(3)]
        rows.append(
            {
                **point,
                "ratio": point["width"] ** 2 / point["samples"],
                **statistics([row["distance"] for row in trials], "mean", "most", "deviation"),
                **{name: fmean(row[f"smallest_{name}"] / row["scale"] for row in trials) for name in _CURVES},
                "kernel_block": ratios[0],
                "block_centred": ratios[1],
                "centred_twice": ratios[2],
            }
        )
    return rows


def claims(rows: Table) -> list[Verdict]:
    first = "lambda_min(K) is at least lambda_min(J J^T) in every trial"
    near = f"the distance to a multiple of I falls at least like (N / p)^(1/2), p = d^2: exponent at most {_RATE:g}"
    nearer = exponent(near, rows, lambda fitted: fitted <= _RATE, curve=("samples",), x="ratio")
    return [
        _order("lambda_min(J J^T) is at least lambda_min(J_FB J_FB^T)", rows, "block_centred"),
        _order("lambda_min(J_FB J_FB^T) is at least that of J~_FB J~_FB^T", rows, "centred_twice"),
        replace(nearer, source=_CHAIN),
        _identity(rows),
        check(at_least_one(first, rows, "kernel_block", "{:.3f} times it at least")),
    ]


def _order(claim: str, rows: Table, column: str) -> Verdict:
    """Judge an order of two matrices by their smallest eigenvalues, up to a constant as the slides state it."""
    ratios = [row[column] for row in rows]
    claim = f"{claim} in every trial, up to a factor of {1 / _CONSTANT:g}"
    verdict = judge(claim, ratios, lambda: (f"{min(ratios):.3f} times it at least", min(ratios) >= _CONSTANT))
    return replace(verdict, source=_CHAIN)


def _identity(rows: Table) -> Verdict:
    """Judge that the last matrix is close to a multiple of I with the most parameters, for each number of samples."""
    last = [max(line, key=lambda row: float(row["width"])) for line in curves(rows, "samples").values()]
    claim = "with the most parameters the distance is below 1, which bounds lambda_min from below"

    def measured() -> tuple[str, bool]:
        parts = [f"{row['most']:.2f} at most (N = {row['samples']}, p = {row['ratio']:.0f} N)" for row in last]
        return ", ".join(parts), all(row["most"] < 1 for row in last)

    return replace(judge(claim, last, measured), source=_CHAIN)


def plot(rows: Table, figure: style.Figure) -> None:
    """Draw a panel for each N with the smallest eigenvalues, and one with the distances."""
    groups = curves(rows, "samples")
    low = min((row[name] for row in rows for name in _CURVES if row[name] > 0), default=0.01)
    high = max((row[name] for row in rows for name in _CURVES), default=1.0)
    for place, ((count,), line) in enumerate(groups.items()):
        axes = style.panel(figure, len(groups) + 1, place, f"smallest eigenvalues, N = {count}")
        x = [row["ratio"] for row in line]
        for number, (name, label) in enumerate(_CURVES.items()):
            style.curve(axes, x, [row[name] for row in line], label, number)
        style.theory(axes, x, [1.0] * len(x), "multiple of $I$")
        axes.set_ylim(low / 1.5, high * 1.5)  # one scale for all N
        style.finish(
            axes, "parameters / samples", "smallest eigenvalue / multiple of $I$", _powers(x), logarithmic=True
        )
    axes = style.panel(figure, len(groups) + 1, len(groups), "distance to a multiple of $I$")
    style.lines(axes, rows, "samples", "N = {}", x="ratio")
    style.law(axes, rows, lambda ratio: ratio**-0.5, "∝ $(N/p)^{1/2}$", x="ratio")
    style.finish(axes, "parameters / samples", "", _powers([row["ratio"] for row in rows]), logarithmic=True)
    axes.set_ylabel("operator norm / multiple of $I$")
    style.legend_below(figure, figure.axes[: len(groups)], 6)


def _powers(values: Sequence[float]) -> list[float]:
    """Return the powers of 4 between values, and the values themselves where there are none."""
    low, high = math.log(min(values), 4), math.log(max(values), 4)
    return [4.0**power for power in range(math.ceil(low), math.floor(high) + 1)] or list(values)


def estimate(parameters: Parameters) -> Estimate:
    """Estimate one trial: all eigenvalues of four matrices."""
    count, width = parameters["samples"], parameters["width"]
    return Estimate(0.02 + (8.0 * count**3 + 12.0 * count**2 * width) / 1e10, 3 * 10**8 + 80 * count**2)


FIGURE = Experiment(
    name="ntk-chain",
    title="The chain of matrices that bounds the smallest eigenvalue of the kernel",
    about="Smallest eigenvalues along the chain of the proof, for networks of three weights (tanh) with d neurons a "
    "layer and inputs of dimension d: of the kernel K, of the block J J^T of the hidden weight, of J_FB J_FB^T "
    "(features and back-propagated vectors centred) and of the matrix centred again (on the complement of the "
    "vector of ones, which centring maps to 0), over the multiple of I that the last one is close to (dashed), "
    "against the p = d^2 parameters over N samples. Right: how far the last matrix is from that multiple, with "
    "bands of one standard deviation; the dashed line is (N / p)^(1/2).",
    trial=trial,
    grid=grid,
    trials={"quick": 3, "paper": 5},
    table=table,
    claims=claims,
    plot=plot,
    estimate=estimate,
    assumptions=_assumed.wide_enough,
)
