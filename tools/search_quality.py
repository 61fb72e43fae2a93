"""Print how far the default search stays below the best of many long ones: the table of docs/word-sensitivity.md.

    python tools/search_quality.py [CASES [SCORE ...]]     20 cases are enough to look

Cases are held out: their seeds are used nowhere else. Sizes are log-uniform, half of the contexts are Gaussian and half
are reviews. A long search starts from other random directions and takes every start to the end.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

import wordsway as ws
from wordsway.sensitivity import SearchBudget

SCORES = ("softmax", "relu", "sigmoid")
SEARCHES = 40
FIRST_SEED = 70_000
LONG = {
    "softmax": SearchBudget(power=8, select=40, screen=20, keep=12, polish=80, tolerance=1e-7),
    "sigmoid": SearchBudget(power=8, select=40, screen=20, keep=12, polish=80, tolerance=1e-7),
    "relu": SearchBudget(
        power=3, select=40, screen=2, keep=40, polish=0, anneal=120, follow=6, scatter=10, tolerance=1e-7
    ),
}


def case(score: str, seed: int) -> tuple[float, float]:
    """How far the default search is below the best value known, relative to it, and how much longer the rest took."""
    source = np.random.default_rng(seed)
    n, d = int(np.exp(source.uniform(np.log(5), np.log(250)))), int(np.exp(source.uniform(np.log(8), np.log(384))))
    word = int(source.integers(n))
    gaussian = bool(source.integers(2))
    X = ws.gaussian_context(n, d, seed) if gaussian else ws.review_contexts(1, n, d, seed=seed)[0][0]
    phi = ws.RandomAttention(d, score=score, seed=seed)
    start = time.process_time()
    value = ws.word_sensitivity(phi, X, word, ceiling=None).value
    seconds = time.process_time() - start
    budget = LONG[score]
    best = max(ws.word_sensitivity(phi, X, word, ceiling=None, seed=k, budget=budget).value for k in range(1, SEARCHES))
    return max(0.0, 1 - value / max(best, value)), (time.process_time() - start) / seconds


def main(cases: int, scores: Sequence[str] = SCORES) -> None:
    gaps, ratios = defaultdict(list), defaultdict(list)
    for number in range(cases):
        for score in scores:
            gap, ratio = case(score, FIRST_SEED + number)
            gaps[score].append(gap)
            ratios[score].append(ratio)
        if sys.stderr.isatty() or number % 10 == 9:
            worst = {score: round(100 * max(gaps[score]), 3) for score in scores}
            print(f"{number + 1} of {cases} cases, worst gaps in percent {worst}", file=sys.stderr, flush=True)
    print(
        "| score | contexts | within 0.5% | median gap | 90% are below | worst gap "
        "| time of the long ones / default |\n" + 7 * "|---" + "|"
    )
    for score in scores:
        below = np.array(gaps[score])
        print(
            f"| {score} | {cases} | {np.mean(below <= 0.005):.0%} | {np.median(below):.2%} "
            f"| {np.quantile(below, 0.9):.2%} | {below.max():.1%} "
            f"| {np.median(ratios[score]):.0f} |"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200, sys.argv[2:] or SCORES)
