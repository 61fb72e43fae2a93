"""Trained networks of two halves, next to the regression on their NTK features."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean

import torch

from wordsway.activations import ACTIVATIONS
from wordsway.contexts import gaussian_context
from wordsway.experiments import Estimate, Experiment, Parameters, RunConfig, Table, TrialRecord, TrialResult, Verdict
from wordsway.experiments.claims import check, curves, each, exponent, judge, points, statistics
from wordsway.figures import _style as style
from wordsway.kernels import FeatureModel, ntk, train_first_weight, two_halves
from wordsway.seeds import generator, normal

SIZES = {"quick": (60, 30), "paper": (100, 50)}  # dimension and samples
WIDTHS = {"quick": (10, 20, 40, 80, 160), "paper": (10, 20, 40, 80, 160, 320)}
NAMES = ("square", "cos", "tanh", "softplus")
TESTS = 20  # new inputs
STEPS = 20_000  # a few hundred are enough at these sizes
_FITTED = 1e-12
_ALIKE = 0.05
# Weights move by O(1 / k): without halves the second-order terms add up to O(1 / k), with them the third-order ones to
# O(1 / k^2).
_FASTER = -1.5
_LINEAR = (
    '"throughout the gradient flow trajectory we have f(x; theta(t)) ~ f(x; theta(0)) + <grad f(x; theta(0)), '
    'theta(t) - theta(0)>", for p >> n (slides)'
)
_MORE_ROBUST = '"Even activations more robust than odd ones" (slides)'


def trial(parameters: Parameters, seed: int) -> TrialRecord:
    """Train a network from equal halves, and compare it with its NTK features at new inputs."""
    d, count, k, name = (parameters[key] for key in ("d", "samples", "width", "activation"))
    inputs = gaussian_context(count + TESTS, d, seed)
    X, new = inputs[:count], inputs[count:]
    y = normal(generator(seed, "labels"), count)
    start, model = two_halves(d, k, name, seed), FeatureModel("ntk", X, y, k, name, seed)
    descent = train_first_weight(start, X, y, STEPS)
    linear = [model.robustness(x) for x in new]
    outputs = torch.tensor([one.output for one in linear], dtype=torch.float64)
    lengths = torch.linalg.vector_norm(new, dim=1)
    gradients = descent.network.passes(new).backward[0] @ descent.network.weights[0]
    kernel = ntk(start, X, layer=0)
    return {
        "loss": descent.loss,
        "start": float(start(inputs).abs().max()),
        "kernel_gap": float((kernel / 2 - model.kernel).abs().max() / model.kernel.abs().max()),
        "difference": float((descent.network(new) - outputs).norm() / outputs.norm()),
        "sensitivity": float((lengths * torch.linalg.vector_norm(gradients, dim=1)).mean()),
        "linear_sensitivity": fmean(one.value for one in linear),
    }


def grid(config: RunConfig) -> Iterable[Parameters]:
    d, count = SIZES[config.scale]
    for name in NAMES:
        for width in WIDTHS[config.scale]:
            yield {"activation": name, "d": d, "samples": count, "width": width}


def table(results: Sequence[TrialResult]) -> Table:
    rows: Table = []
    for point, trials in points(results, "activation", "width"):
        pairs = [(row["sensitivity"], row["linear_sensitivity"]) for row in trials]
        rows.append(
            {
                **point,
                **statistics([trained for trained, _ in pairs], "mean", "deviation"),
                "linear": fmean(linear for _, linear in pairs),
                "apart": max(abs(trained / linear - 1) for trained, linear in pairs),
                "difference": fmean(row["difference"] for row in trials),
                "fitted": sum(row["loss"] <= _FITTED for row in trials),
                "off": max(max(row["start"], row["kernel_gap"]) for row in trials),
            }
        )
    return rows


def claims(rows: Table) -> list[Verdict]:
    off = [row["off"] for row in rows]
    same = "it starts at 0, and its kernel is twice that of the features of k neurons"
    return [
        *each(rows, "activation", _claims),
        _even_below_odd(_widest(rows)),
        check(judge(same, off, lambda: (f"up to {max(off):.1g}", max(off) <= 1e-9))),
    ]


def _widest(rows: Table) -> Table:
    most = max((row["width"] for row in rows), default=0)
    return [row for row in rows if row["width"] == most]


def _claims(name: str, rows: Table) -> list[Verdict]:
    """Judge whether the trained network is its linear model, from outputs and from sensitivities."""
    nearer = exponent(
        f"{name}: the trained network comes closer to the regression on its NTK features faster than 1 / k: "
        f"exponent at most {_FASTER:g}",
        rows,
        lambda fitted: fitted <= _FASTER,
        y="difference",
        x="width",
    )
    apart = [row["apart"] for row in _widest(rows)]
    alike = judge(
        f"{name}: with the most neurons its S is that of the NTK features, within {_ALIKE:.0%}",
        apart,
        lambda: (f"{max(apart):.2%} apart at most", max(apart) <= _ALIKE),
    )
    return [replace(one, source=_LINEAR) for one in (nearer, alike)]


def _even_below_odd(rows: Table) -> Verdict:
    """Judge that trained networks of even activations are more robust than those of odd ones, where they fit."""
    fitted = [row for row in rows if row["fitted"] == row["trials"]]
    even, odd = (
        [row["mean"] for row in fitted if ACTIVATIONS[row["activation"]].parity == parity] for parity in ("even", "odd")
    )
    claim = "S of trained networks of even activations is below that of odd ones with the most neurons"

    def measured() -> tuple[str, bool]:
        return f"{max(even):.3g} at most against {min(odd):.3g} at least", max(even) < min(odd)

    return replace(judge(claim, even and odd, measured), source=_MORE_ROBUST)


def plot(rows: Table, figure: style.Figure) -> None:
    places = sorted({row["width"] for row in rows})
    distance = style.panel(figure, 2, 0, "trained network against NTK features", size=(5.2, 4.0))
    apart = [{"activation": row["activation"], "width": row["width"], "mean": row["difference"]} for row in rows]
    style.lines(distance, apart, "activation", "{}", x="width")
    style.law(distance, apart, lambda k: k**-2.0, "∝ $k^{-2}$", "width")
    style.finish(distance, "neurons of a half k", "distance of outputs / output", places, logarithmic=True)
    robust = style.panel(figure, 2, 1, "sensitivity at new inputs", size=(5.2, 4.0))
    for number, ((name,), line) in enumerate(curves(rows, "activation").items()):
        x = [row["width"] for row in line]
        even = " (even)" if ACTIVATIONS[name].parity == "even" else ""
        means, deviations = ([row[key] for row in line] for key in ("mean", "deviation"))
        style.curve(robust, x, means, f"{name}{even}", number, deviations)
        style.line(robust, x, [row["linear"] for row in line], "NTK features" if number == 0 else "", number)
    style.finish(robust, "neurons of a half k", "$S$", places, logarithmic=True)
    robust.set_ylabel("$S$")


def estimate(parameters: Parameters) -> Estimate:
    """Estimate one trial: some hundred steps of gradient descent."""
    work = parameters["samples"] * parameters["width"] * parameters["d"]
    return Estimate(0.1 + 300 * 8.0 * work / 5e9, 4 * 10**8)


FIGURE = Experiment(
    name="ntk-halves",
    title="A trained network of two halves is the regression on its NTK features",
    about="Networks f(x) = sum of k neurons phi(w x) minus the sum of k others, both halves equal at the start, with "
    "the first weight trained by gradient descent until N labels are fitted, next to the regression on the NTK "
    "features x (x) phi'(W x) of the start. Left: |f - f_NTK| / |f_NTK| over 20 new inputs against k; the dashed "
    "line is 1 / k^2. Right: S = |x| |grad f(x)| there, of the trained networks (solid lines with markers, bands "
    "of one standard deviation) and of the features (dashes of the same colour, below them).",
    trial=trial,
    grid=grid,
    trials={"quick": 3, "paper": 5},
    table=table,
    claims=claims,
    plot=plot,
    estimate=estimate,
)
