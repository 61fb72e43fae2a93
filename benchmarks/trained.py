"""Generalization, tangent kernels and robustness against good short baselines: jobs and cases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

import wordsway as ws
from benchmarks import baselines
from benchmarks.child import Child, job
from benchmarks.report import Outcome, Target
from benchmarks.sides import Contest, Work, alternate, peak
from wordsway.maps.catalogue import map_named
from wordsway.seeds import generator, signs

_WORD = 7  # of the words that were tried, the one where searches from random starts alone ended highest above the best

# Jobs


@job
def generalization_sides(n: int, d: int, samples: int, runs: int, single: bool) -> dict[str, Any]:
    """Both trainings and losses of raf on reviews, both sides in float32 or both in float64."""
    dtype = torch.float32 if single else torch.float64
    contexts, labels = ws.review_contexts(samples + 1, n, d, dtype=dtype)
    phi: Any = map_named("raf").build(n, d)
    new, y = contexts[-1], float(labels[-1])

    def ours() -> dict[str, float]:
        found = ws.one_word_generalization(phi, contexts[:-1], labels[:-1], new, y, _WORD % n)
        return {f"{one.problem.training} {one.problem.loss}": one.loss for one in found}

    def theirs() -> dict[str, float]:
        return baselines.generalization(contexts[:-1], labels[:-1], new, y, phi.weight, _WORD % n)

    values, seconds = alternate({"baseline": theirs, "ours": ours}, runs)
    gap = max(values["ours"][name] - value for name, value in values["baseline"].items())
    return {**seconds, "gap": max(gap, 0.0), "peak": peak()}


@job
def tangent_sides(count: int, width: int, runs: int) -> dict[str, Any]:
    """The kernel of a tanh network of three weights."""
    network, X = ws.Network.drawn([width] * 3, "tanh"), ws.gaussian_context(count, width)
    sides = {"baseline": lambda: baselines.tangent_kernel(network.weights, X), "ours": lambda: ws.ntk(network, X)}
    values, seconds = alternate(sides, runs)
    gap = float((values["ours"] - values["baseline"]).abs().max() / values["baseline"].abs().max())
    return {**seconds, "gap": gap, "peak": peak()}


@job
def robustness_sides(d: int, count: int, width: int, runs: int) -> dict[str, Any]:
    """S of tanh random features; the weights are other draws of one law, so that S differs by its spread."""
    X, y = ws.gaussian_context(count + 1, d), signs(generator(0, "labels"), count)
    sides = {
        "baseline": lambda: baselines.robustness(X[:-1], y, X[-1], width, 0),
        "ours": lambda: ws.feature_robustness("rf", X[:-1], y, X[-1], width, "tanh").value,
    }
    values, seconds = alternate(sides, runs)
    return {**seconds, "gap": abs(values["ours"] / values["baseline"] - 1), "peak": peak()}


# Cases


def generalization(child: Child, size: Mapping[str, Any]) -> Outcome:
    """One row in float32 and one in float64; never a higher loss than the baseline's."""
    n, d, samples = size["n"], size["d"], size["samples"]
    rows, targets, remarks = [], [], []
    for dtype in ("float32", "float64"):
        got = child("generalization_sides", n=n, d=d, samples=samples, runs=size["runs"], single=dtype == "float32")
        least = samples * (2.0 * n * d * d + 4 * n * n * d) + samples**2 * n * d  # features and half the kernel
        work = Work(single=least) if dtype == "float32" else Work(double=least)
        contest = Contest(
            f"generalization, raf, n={n}, d={d}, N={samples}, {dtype}",
            got["baseline"],
            got["ours"],
            work.floor(got["peak"]),
            got["gap"],
            what=f"L-BFGS on an incremental kernel, {dtype}",
        )
        rows.append(contest.row)
        faster, _ = contest.targets(size["ratio"], 1e-4)
        higher = Target(contest.case, "no loss above the baseline's, to 1e-4", f"{got['gap']:.1e}", got["gap"] <= 1e-4)
        targets += [faster, higher]
        share = contest.floor / contest.baseline
        remarks.append(
            f"{contest.case}: features and half the kernel take {share:.0%} of the baseline's time at the peak, "
            f"so that without any search it would be {1 / share:.1f} times faster."
        )
    return Outcome(tuple(rows), tuple(targets), tuple(remarks))


def tangent(child: Child, size: Mapping[str, Any]) -> Outcome:
    """Tangent kernels against eight lines by hand."""
    count, width = size["count"], size["width"]
    got = child("tangent_sides", count=count, width=width, runs=size["runs"])
    least = Work(double=5.0 * count**2 * width + 6.0 * count * width**2)  # five triangles and three products by a layer
    case = f"tangent kernel, N={count}, width {width}, 3 weights"
    floor = least.floor(got["peak"])
    contest = Contest(case, got["baseline"], got["ours"], floor, got["gap"], what="eight lines by hand")
    return Outcome((contest.row,), contest.targets(1.3, 1e-10))


def robustness(child: Child, size: Mapping[str, Any]) -> Outcome:
    """robust-rf against what version 0.1 did."""
    d, count, width = size["d"], size["count"], size["width"]
    got = child("robustness_sides", d=d, count=count, width=width, runs=size["runs"])
    least = Work(single=2.0 * count * width * d + count**2 * width)
    case = f"robust-rf, tanh, d={d}, N={count}, k={width:,}"
    floor = least.floor(got["peak"])
    contest = Contest(case, got["baseline"], got["ours"], floor, got["gap"], what="version 0.1: float64, weights twice")
    return Outcome((contest.row,), contest.targets(2.5, size["spread"]))
