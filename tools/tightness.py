"""Print the tables of docs/certificates.md: how far the ceilings of attention are above the values found.

python tools/tightness.py            about two minutes on one thread
"""

from __future__ import annotations

import math
import time

from torch import Tensor

import wordsway as ws

EFFORTS = ("simple", "quick", "tight")


def compare(
    phi: ws.RandomAttention, X: Tensor, word: int, radius: float | None = None
) -> tuple[float, list[float], float]:
    """The value, the ceilings of all efforts over it, and the CPU seconds of the tight one."""
    radius = math.sqrt(X.shape[1]) if radius is None else radius
    value = ws.word_sensitivity(phi, X, word, radius=radius, ceiling=None).value
    response, ratios, seconds = ws.respond(phi, X, word), [], 0.0
    for effort in EFFORTS:
        start = time.process_time()
        ceiling = response.ceiling(radius, effort)
        seconds = time.process_time() - start
        assert ceiling is not None
        ratios.append(float(ceiling.value) / value)
    return value, ratios, seconds


def by_radius() -> None:
    print("| score | r | value | simple | quick | tight |\n|---|---|---|---|---|---|")
    X = ws.gaussian_context(40, 64)
    for score in ("softmax", "relu", "sigmoid", "linear"):
        for radius in (1e-6, 1e-3, 0.1, 1.0, 8.0):
            value, ratios, _ = compare(ws.RandomAttention(64, score=score), X, 3, radius)
            print(f"| {score} | {radius:g} | {value:.3g} |", " | ".join(f"{ratio:.2f}" for ratio in ratios), "|")


def of_sigmoid() -> None:
    counts = (10, 25, 50, 100, 250)
    print("| sigmoid, n = |", " | ".join(map(str, counts)), "|\n" + 6 * "|---" + "|")
    for kind, d in (("Gaussian", 96), ("reviews", 384)):
        columns, seconds = [], []
        for n in counts:
            seeds = range(3 if kind == "reviews" and n == 100 else 1)
            reviews = ws.review_contexts(len(seeds), n, d)[0] if kind == "reviews" else None
            contexts = [ws.gaussian_context(n, d, seed) for seed in seeds] if reviews is None else list(reviews)
            rows = [compare(ws.RandomAttention(d, score="sigmoid", seed=seed), X, 3) for seed, X in enumerate(contexts)]
            columns.append([", ".join(f"{ratios[i]:.2f}" for _, ratios, _ in rows) for i in (1, 2)])
            seconds.append(f"{sum(spent for _, _, spent in rows) / len(rows):.1f}")
        for effort, cells in zip(("quick", "tight"), zip(*columns, strict=True), strict=True):
            print(f"| {kind}, {effort} |", " | ".join(cells), "|")
        print(f"| {kind}, CPU seconds of tight |", " | ".join(seconds), "|")


def by_context() -> None:
    print("| context | n | d | simple | quick | tight, each | tight, mean | CPU seconds |\n" + 8 * "|---" + "|")
    cases = [("Gaussian", n, d, seeds) for n, d, seeds in ((50, 96, 5), (100, 192, 3))] + [("reviews", 100, 384, 3)]
    for kind, n, d, count in cases:
        if kind == "reviews":
            contexts = list(ws.review_contexts(count, n, d)[0])
        else:
            contexts = [ws.gaussian_context(n, d, seed) for seed in range(count)]
        rows = [compare(ws.RandomAttention(d, seed=seed), X, 3) for seed, X in enumerate(contexts)]
        means = [sum(ratios[i] for _, ratios, _ in rows) / count for i in range(3)]
        each = ", ".join(f"{ratios[2]:.2f}" for _, ratios, _ in rows)
        seconds = sum(seconds for _, _, seconds in rows) / count
        print(f"| {kind} | {n} | {d} | {means[0]:.2f} | {means[1]:.2f} | {each} | {means[2]:.2f} | {seconds:.1f} |")


if __name__ == "__main__":
    by_radius()
    print()
    of_sigmoid()
    print()
    by_context()
