"""Searches, swaps and Lipschitz constants against good short baselines: jobs and cases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import wordsway as ws
from benchmarks import baselines
from benchmarks.child import Child, job
from benchmarks.jobs import WORD, context
from benchmarks.report import Outcome
from benchmarks.sides import Contest, Work, alternate, peak

# Jobs


@job
def swaps_sides(n: int, d: int, runs: int) -> dict[str, Any]:
    """Every entry of the encoder's vocabulary in place of one word."""
    X = context("reviews", n, d, 0)
    phi = ws.RandomAttention(d, seed=0)
    embeddings, _ = ws.vocabulary_embeddings(d, position=WORD)
    sides = {
        "baseline": lambda: baselines.swaps(phi.weight, X, WORD, embeddings),
        "ours": lambda: ws.vocabulary_sensitivity(phi, X, WORD, embeddings).values,
    }
    values, seconds = alternate(sides, runs)
    ours, theirs = values["ours"].square(), values["baseline"].square()  # roots of nearly 0 have half the digits
    gap = float((ours - theirs).abs().max() / theirs.max())
    return {**seconds, "gap": gap, "candidates": len(embeddings), "peak": peak()}


# Cases


def swaps(child: Child, size: Mapping[str, Any]) -> Outcome:
    """Swaps of a map's word against the closed form."""
    n, d = size["n"], size["d"]
    got = child("swaps_sides", n=n, d=d, runs=size["runs"])
    # scores of both sides, products with the context and half the symmetric form of the word's score of itself
    least = Work(double=2.0 * got["candidates"] * (3 * n * d + d * d / 2 + 2 * n * n))
    contest = Contest(
        f"raf, n={n}, d={d}, {got['candidates']:,} replacements of a word",
        got["baseline"],
        got["ours"],
        least.floor(got["peak"]),
        got["gap"],
        what="closed form, float64",
    )
    return Outcome((contest.row,), contest.targets(2, 1e-10))
