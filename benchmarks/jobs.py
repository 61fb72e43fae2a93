"""What is timed: each job runs in a process of its own and returns plain numbers, ready for JSON."""

from __future__ import annotations

import math
import statistics
import time
from typing import Any

import torch
from torch import Tensor

import wordsway as ws
from benchmarks import published
from benchmarks.child import job
from benchmarks.metering import measure
from wordsway.seeds import generator, normal

WORD = 1  # the first word of a review: row 0 is the opening token, the same in every context
SCORES = {"raf": "softmax", "relu-raf": "relu"}


def context(data: str, n: int, d: int, seed: int) -> Tensor:
    """The first review that a seed draws, or the Gaussian context of the seed."""
    if data == "reviews":
        return ws.review_contexts(1, n, d, seed=seed)[0][0]
    return ws.gaussian_context(n, d, seed=seed)


@job
def attention_ours(name: str, n: int, d: int, seed: int, runs: int) -> dict[str, Any]:
    """Our search along one word, and the same with the quick ceiling."""
    X = context("reviews", n, d, seed)
    phi = ws.RandomAttention(d, SCORES[name], seed=seed)
    _warm_attention(name)
    found, costs = measure(lambda _: ws.word_sensitivity(phi, X, WORD, ceiling=None), runs)
    bounded, with_ceiling = measure(lambda _: ws.word_sensitivity(phi, X, WORD, ceiling="quick"), min(runs, 3))
    return {**costs, "S": found[0].value, "ceiling": bounded[0].ceiling, "bounded_seconds": with_ceiling["seconds"]}


@job
def attention_published(name: str, n: int, d: int, seed: int) -> dict[str, Any]:
    """The published ascent with the same context and weights, and each side's value at the other's witness."""
    X = context("reviews", n, d, seed)
    phi = ws.RandomAttention(d, SCORES[name], seed=seed)
    plain = published.attention(phi.weight, SCORES[name])
    _warm_attention(name)
    (found,), costs = measure(lambda _: _ascend(name, plain, X, seed), warm=False)
    return {**costs, "S": found.value, **_cross_check(phi, plain, X, found)}


@job
def layered_ours(
    data: str, n: int, d: int, depth: int | None, draws: int, ceiling: str | None = None
) -> dict[str, Any]:
    """Our search along one word of (deep) random features, a new draw of the weights in each run."""
    X = context(data, n, d, 0)
    _warm_layers(depth)

    def work(draw: int) -> ws.Sensitivity:
        response = ws.random_feature_response(X, WORD, depth=depth, seed=draw)
        return ws.response_sensitivity(response, WORD, ceiling=ceiling)

    found, costs = measure(work, draws, warm=draws > 1)
    return {**costs, "values": [f.value for f in found], "ceilings": [f.ceiling for f in found]}


@job
def layered_published(n: int, d: int, depth: int | None, draws: int) -> dict[str, Any]:
    """The published ascent on dense weights, timed for one draw, and its values over several draws."""
    name = "rf" if depth is None else "drf"
    X = context("reviews", n, d, 0)
    _warm_layers(depth)

    def work(draw: int) -> tuple[list[Tensor], published.Ascent]:
        weights = published.draw_layers(n * d, depth, draw)
        return weights, _ascend(name, published.layers(weights), X, draw)

    [(weights, found)], costs = measure(work, warm=False)
    ours: Any = (
        ws.DeepRandomFeatures(n, d, depth, weights=weights) if depth else ws.RandomFeatures(n, d, weight=weights[0])
    )
    numbers = {**costs, "S": found.value, **_cross_check(ours, published.layers(weights), X, found)}
    if depth is None:
        columns = weights[0][:, WORD * d : (WORD + 1) * d].contiguous()
        again = _ascend_block((columns, weights[0] @ X.reshape(-1)), X, 0)
        numbers["block_gap"] = abs(again.value / found.value - 1)
        others = [_ascend_block(published.draw_block(X, WORD, draw), X, draw).value for draw in range(1, draws)]
    else:
        del weights
        others = [work(draw)[1].value for draw in range(1, draws)]
    return {**numbers, "values": [found.value, *others]}


@job
def profile(n: int, d: int, ceiling: str | None) -> dict[str, Any]:
    """All words of a Gaussian context, each on its own."""
    X = context("gaussian", n, d, 0)
    phi = ws.RandomAttention(d, seed=0)
    _warm_attention("raf")
    [found], costs = measure(lambda _: ws.sensitivity_profile(phi, X, ceiling=ceiling), warm=False)
    best = found.best
    return {**costs, "words": len(found.words), "S": best.value, "ceiling": best.ceiling}


@job
def vocabulary(n: int, d: int, sample: int, runs: int) -> dict[str, Any]:
    """Every entry of the encoder's vocabulary in place of one word; some of them again by the plain map."""
    X = context("reviews", n, d, 0)
    phi = ws.RandomAttention(d, seed=0)
    embeddings, words = ws.vocabulary_embeddings(d, position=WORD)
    _warm_attention("raf")
    found, costs = measure(lambda _: ws.vocabulary_sensitivity(phi, X, WORD, embeddings), runs)
    chosen = generator(0, "candidates").permutation(len(embeddings))[:sample].tolist()
    plain = published.attention(phi.weight, "softmax")
    gaps = [abs(published.change(plain, X, WORD, embeddings[v] - X[WORD]) - found[0].values[v].item()) for v in chosen]
    top = words[found[0].best]
    return {**costs, "candidates": len(embeddings), "S": found[0].value, "top": top, "gap": max(gaps), "sample": sample}


@job
def ceilings(n: int, d: int, contexts: int, efforts: list[str]) -> dict[str, Any]:
    """Certified ceiling over value found, for several contexts and every effort."""
    _warm_attention("raf")
    numbers: dict[str, Any] = {"threads": torch.get_num_threads(), "efforts": {}}
    for effort in efforts:
        ratios, seconds = [], []
        for seed in range(contexts):
            X = context("reviews", n, d, seed)
            phi = ws.RandomAttention(d, seed=seed)
            value = ws.word_sensitivity(phi, X, WORD, ceiling=None).value
            begin = time.perf_counter()
            bound = ws.respond(phi, X, WORD).ceiling(math.sqrt(d), effort)
            seconds.append(time.perf_counter() - begin)
            ratios.append(math.inf if bound is None else float(bound.value) / value)
        numbers["efforts"][effort] = {"ratios": ratios, "seconds": statistics.median(seconds)}
    return numbers


@job
def accuracy(name: str, n: int, d: int, count: int) -> dict[str, Any]:
    """Largest relative difference between the fast response and the plain map over random Deltas in the ball."""
    X = context("reviews", n, d, 0)
    phi: Any
    if name in SCORES:
        phi = ws.RandomAttention(d, SCORES[name], seed=0)
        plain = published.attention(phi.weight, SCORES[name])
    else:
        depth = 3 if name == "drf" else None
        weights = published.draw_layers(n * d, depth, 0)
        plain = published.layers(weights)
        phi = ws.DeepRandomFeatures(n, d, 3, weights=weights) if depth else ws.RandomFeatures(n, d, weight=weights[0])
    source = generator(0, "accuracy")
    deltas = normal(source, (count, d))
    lengths = math.sqrt(d) * torch.from_numpy(source.random((count, 1)))
    deltas = deltas / torch.linalg.vector_norm(deltas, dim=-1, keepdim=True) * lengths
    fast, _ = ws.respond(phi, X, WORD).change(deltas, gradient=False)
    slow = torch.tensor([published.change(plain, X, WORD, delta) for delta in deltas], dtype=torch.float64)
    return {"gap": float((fast / slow - 1).abs().max()), "count": count}


def _ascend(name: str, phi: published.Map, X: Tensor, seed: int) -> published.Ascent:
    n, d = X.shape
    features = published.along(phi, X, WORD)
    return published.ascend(features, d, math.sqrt(d), published.RATE[name], published.steps_of(name, n), seed)


def _ascend_block(drawn: tuple[Tensor, Tensor], X: Tensor, seed: int) -> published.Ascent:
    n, d = X.shape
    features = published.one_block(*drawn)
    return published.ascend(features, d, math.sqrt(d), published.RATE["rf"], published.steps_of("rf", n), seed)


def _cross_check(phi: ws.maps.FeatureMap, plain: published.Map, X: Tensor, found: published.Ascent) -> dict[str, Any]:
    """Our value with the same weights, and how well each side's value is confirmed by the other's evaluation."""
    ours = ws.word_sensitivity(phi, X, WORD, ceiling=None)
    theirs, _ = ws.respond(phi, X, WORD).change(found.delta, gradient=False)
    return {
        "ours_same_weights": ours.value,
        "published_by_ours": abs(theirs.item() / found.value - 1),
        "ours_by_plain": abs(published.change(plain, X, WORD, ours.delta) / ours.value - 1),
    }


def _warm_attention(name: str) -> None:
    """Load and start everything that both sides use, at a tiny size."""
    X = ws.gaussian_context(6, 4, seed=0)
    phi = ws.RandomAttention(4, SCORES[name], seed=0)
    ws.word_sensitivity(phi, X, WORD)
    published.ascend(published.along(published.attention(phi.weight, SCORES[name]), X, WORD), 4, 2.0, 1.0, 2, 0)


def _warm_layers(depth: int | None) -> None:
    X = ws.gaussian_context(3, 4, seed=0)
    ws.response_sensitivity(ws.random_feature_response(X, WORD, depth=depth), WORD)
    weights = published.draw_layers(12, depth, 0)
    published.ascend(published.along(published.layers(weights), X, WORD), 4, 2.0, 1.0, 2, 0)
