"""The list of cases: what is run at full size, what at small size, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks import (
    alone,
    attributions,
    compare,
    competent,
    generalization,
    greedy,
    growth,
    kernels,
    laboratory,
    models,
    searches,
    smoothness,
    start,
    trained,
)
from benchmarks import jobs as jobs  # registers those of alone and compare
from benchmarks.child import Child
from benchmarks.report import Outcome

_GB = 10**9


@dataclass(frozen=True)
class Case:
    """A benchmark: `run` takes a way to run jobs and a size, of which there are two."""

    summary: str
    run: Callable[[Child, Mapping[str, Any]], Outcome]
    full: Mapping[str, Any]
    small: Mapping[str, Any]


def _attention(name: str) -> Case:
    return Case(
        f"{name}, n=100, d=384, reviews, against the published algorithm",
        compare.attention,
        {"name": name, "n": 100, "d": 384, "trials": 3, "runs": 7},
        {"name": name, "n": 6, "d": 8, "trials": 1, "runs": 1},
    )


def _search(name: str, published: float, remark: str) -> Case:
    size = {"name": name, "least": 4.0, "published": published, "remark": remark}
    return Case(
        f"{name}, n=100, d=384, reviews, against batched L-BFGS in float32",
        competent.search,
        {"n": 100, "d": 384, "trials": 3, "runs": 5, **size},
        {"n": 6, "d": 8, "trials": 1, "runs": 1, **size},
    )


def _large(summary: str, n: int, d: int, depth: int | None, draws: int, seconds: float, memory: int) -> Case:
    shape = {"depth": depth, "seconds": seconds, "memory": memory}
    return Case(
        summary,
        alone.large,
        {"n": n, "d": d, "draws": draws, **shape},
        {"n": 8, "d": 6, "draws": min(draws, 2), **shape},
    )


_SENSITIVITY = ["fig2-rf", "fig2-drf", "fig3-raf", "fig3-relu"]
_KERNELS = ["ntk-lambda", "ntk-loss", "ntk-flow", "robust-rf", "robust-ntk"]
_GENERALIZATION = ["fig4", "fig5", "fig6", "fig7"]


def _figures(scale: str, seconds: int, names: list[str], memory: int = 4 * _GB) -> Case:
    size = {"scale": scale, "seconds": seconds, "memory": memory, "names": names}
    small = {**size, "scale": "quick", "trials": 1, "names": names[-1:]}
    if scale == "paper":
        size["keep"] = f"{scale}-{names[0]}"
    return Case(f"{', '.join(names)} at {scale} scale", laboratory.figures, size, small)


def _simulation(name: str, n: int) -> Case:
    size = {"name": name, "seconds": 60, "memory": 8 * _GB}
    summary = f"{name}, n={n}, d=768, N=1300, Gaussian: all trainings and losses at once"
    large = {**size, "n": n, "d": 768, "samples": 1300}
    return Case(summary, generalization.large, large, {**size, "n": 4, "d": 6, "samples": 8})


def _robust(kind: str, width: int, seconds: int, memory: int) -> Case:
    limits = {"kind": kind, "seconds": seconds, "memory": memory}
    return Case(
        f"{kind} robustness, d=1000, N=1200, k={width:,}",
        kernels.robust,
        {**limits, "d": 1000, "count": 1200, "width": width},
        {**limits, "d": 6, "count": 5, "width": 8},
    )


CASES: dict[str, Case] = {
    "raf": _attention("raf"),
    "relu-raf": _attention("relu-raf"),
    "raf-lbfgs": _search(
        "raf",
        1000.0,
        "raf against L-BFGS: of our time about a quarter is the set-up and the starts, a third five power iterations "
        "from 72 starts, a third L-BFGS from up to 24. Matrix products run near the machine's peak; fewer starts or "
        "iterations lose up to 4% of S in some contexts.",
    ),
    "relu-raf-lbfgs": _search(
        "relu-raf",
        600.0,
        "relu-raf against L-BFGS: quasi-Newton steps stop at kinks, so that the baseline ends early and up to a fifth "
        "lower. Ours takes 128 steps of shrinking length on few starts, whose time goes into calls on small arrays; "
        "half as many steps lose 0.5% of S on average.",
    ),
    "rf": Case(
        "rf, n=90, d=192, reviews, against the published algorithm",
        compare.random_features,
        {"n": 90, "d": 192, "depth": None, "draws": 10},
        {"n": 6, "d": 8, "depth": None, "draws": 3},
    ),
    "drf": Case(
        "drf, L=4, n=50, d=64, reviews, against the published algorithm",
        compare.deep_random_features,
        {"n": 50, "d": 64, "depth": 4, "draws": 5},
        {"n": 6, "d": 8, "depth": 2, "draws": 2},
    ),
    "rf-150": _large("rf, n=150, d=768: a dense V would need 106 GB", 150, 768, None, 3, 2, 2 * _GB),
    "drf-8": _large("drf, L=8, n=80, d=768: dense weights would need 242 GB", 80, 768, 8, 3, 6, 4 * _GB),
    "rf-10000": _large("rf, n=10,000, d=768: a dense V would need 472 TB", 10_000, 768, None, 1, 8, 2 * _GB),
    "profile": Case(
        "raf, n=250, d=768, along each of the 250 words",
        alone.profile,
        {"n": 250, "d": 768, "seconds": 60},
        {"n": 8, "d": 6, "seconds": 60},
    ),
    "vocabulary": Case(
        "raf, n=100, d=384, every entry of the vocabulary in place of a word",
        alone.vocabulary,
        {"n": 100, "d": 384, "sample": 200, "runs": 3, "seconds": 5},
        {"n": 6, "d": 8, "sample": 5, "runs": 1, "seconds": 5},
    ),
    "vocabulary-closed": Case(
        "the same against the closed form",
        competent.swaps,
        {"n": 100, "d": 384, "runs": 5},
        {"n": 6, "d": 8, "runs": 1},
    ),
    "ceilings": Case(
        "raf, n=100, d=384, reviews: certified ceiling over value",
        alone.ceilings,
        {"n": 100, "d": 384, "contexts": 5, "limits": {"quick": 1.5, "tight": 1.3}},
        {"n": 6, "d": 8, "contexts": 2, "limits": {"quick": 1.5, "tight": 1.3}},
    ),
    "accuracy": Case(
        "the fast responses against the plain maps at 100 random Deltas",
        alone.accuracy,
        {
            "maps": {"raf": (100, 384), "relu-raf": (100, 384), "rf": (40, 48), "drf": (40, 48)},
            "count": 100,
        },
        {"maps": {"raf": (6, 8), "rf": (6, 8)}, "count": 5},
    ),
    "generalization": Case(
        "raf, n=40, d=384, N=400, reviews: all trainings and losses, against the published algorithm",
        generalization.against,
        {"n": 40, "d": 384, "samples": 400, "runs": 3},
        {"n": 4, "d": 6, "samples": 8, "runs": 1},
    ),
    "generalization-raf": _simulation("raf", 120),
    "generalization-rf": _simulation("rf", 40),
    "lipschitz": Case(
        "layer 3 of the encoder, n=100 and n=240, 10 texts, against power iteration by autograd",
        smoothness.against,
        {"lengths": (100, 240), "inputs": 10, "runs": 3, "steps": 5000},
        {"lengths": (4,), "inputs": 2, "runs": 1, "steps": 5},
    ),
    "lipschitz-short": Case(
        "the same at n=100, against SciPy's svds and a power iteration that stops in time",
        smoothness.short,
        {"n": 100, "inputs": 10, "runs": 1, "methods": {"svds": 6, "power iteration": 9}},
        {"n": 12, "inputs": 2, "runs": 1, "methods": {"svds": 6, "power iteration": 9}},
    ),
    "lipschitz-4096": Case(
        "layer 3 of the encoder at 4,096 words",
        smoothness.long,
        {"kind": "layer", "n": 4096, "size": 256, "threads": 1, "seconds": 120, "memory": 3 * _GB},
        {"kind": "layer", "n": 8, "size": 4, "threads": 1, "seconds": 120, "memory": 3 * _GB},
    ),
    "lipschitz-16384": Case(
        "one head of 64 at 16,384 words",
        smoothness.long,
        {"kind": "head", "n": 16_384, "size": 64, "threads": 2, "seconds": None, "memory": 3 * _GB},
        {"kind": "head", "n": 8, "size": 4, "threads": 1, "seconds": None, "memory": 3 * _GB},
    ),
    "ntk": Case(
        "tangent kernel, N=1000, width 300, 3 weights, against one backward pass per sample",
        kernels.against,
        {"count": 1000, "width": 300, "runs": 5},
        {"count": 25, "width": 4, "runs": 1},
    ),
    "generalization-short": Case(
        "raf, n=40, d=384, N=400, reviews, against L-BFGS on an incremental kernel",
        trained.generalization,
        {"n": 40, "d": 384, "samples": 400, "runs": 5, "ratio": 3},
        {"n": 4, "d": 6, "samples": 8, "runs": 1, "ratio": 3},
    ),
    "ntk-short": Case(
        "tangent kernel, N=1000, width 300, 3 weights, against eight lines by hand",
        trained.tangent,
        {"count": 1000, "width": 300, "runs": 9},
        {"count": 25, "width": 4, "runs": 1},
    ),
    "robust-rf-short": Case(
        "rf robustness, d=1000, N=1200, k=200,000, against version 0.1",
        trained.robustness,
        {"d": 1000, "count": 1200, "width": 200_000, "runs": 1, "spread": 0.02},
        {"d": 6, "count": 5, "width": 8, "runs": 1, "spread": 0.02},
    ),
    "ntk-3000": Case(
        "tangent kernel and its smallest eigenvalue, N=3000, width 1000",
        kernels.eigenvalue,
        {"count": 3000, "width": 1000, "seconds": 60, "memory": 4 * _GB},
        {"count": 6, "width": 4, "seconds": 60, "memory": 4 * _GB},
    ),
    "robust-rf": _robust("rf", 200_000, 60, 6 * _GB),
    "robust-ntk": _robust("ntk", 300, 10, 6 * _GB),
    "text-profile": Case(
        "profile of a review of 64 tokens, the encoder, all words, against one search per word",
        models.profile,
        {"n": 64, "threads": 2, "runs": 1, "seconds": 30},
        {"n": 6, "threads": 1, "runs": 1, "seconds": 30},
    ),
    "text-memory": Case(
        "profile of words of a review of 512 tokens, the encoder",
        models.memory,
        {"n": 512, "words": 32, "steps": 2, "threads": 2, "memory": 4 * _GB},
        {"n": 6, "words": 2, "steps": 1, "threads": 1, "memory": 4 * _GB},
    ),
    "text-words": Case(
        "which word matters most: profiles of 20 reviews against other attributions, by 100 swaps of each word",
        attributions.compared,
        {
            "count": 20,
            "tokens": (10, 20),
            "draws": 100,
            "threads": 1,
            "runs": 3,
            "seeds": 10,
            "limits": ((14, 1.0), (64, 12.0)),
        },
        {"count": 1, "tokens": (8, 9), "draws": 2, "threads": 1, "runs": 1, "seeds": 1, "limits": ((6, 1.0),)},
    ),
    "text-flips": Case(
        "can one word flip the class: verdicts on 40 reviews against greedy search by word importance",
        greedy.compared,
        {"count": 40, "tokens": (10, 20), "candidates": "near:30", "threads": 1},
        {"count": 1, "tokens": (8, 9), "candidates": "near:2", "threads": 1},
    ),
    "text-loop": Case(
        "all candidates of near:30 in 12 reviews, against a plain loop over padded batches",
        searches.loop,
        {"count": 12, "tokens": (10, 20), "candidates": "near:30", "threads": 1},
        {"count": 1, "tokens": (8, 9), "candidates": "near:2", "threads": 1},
    ),
    "text-tries": Case(
        "the best replacement of a word after 50 tries, against all of near:300, 40 words",
        searches.tries,
        {
            "words": {"minilm-sentiment class": 20, "minilm pooled": 10, "smollm2 next": 10},
            "tokens": (10, 20),
            "candidates": "near:300",
            "tries": 50,
            "threads": 1,
        },
        {
            "words": {f"{attributions.MODEL} class": 1},
            "tokens": (8, 9),
            "candidates": "near:9",
            "tries": 17,
            "threads": 1,
        },
    ),
    "serve": Case(
        "the local page: first colours, replacements of a word, and 100 requests at once",
        searches.page,
        {"tokens": 30, "runs": 5, "requests": 100},
        {"tokens": 8, "runs": 1, "requests": 2},
    ),
    "text-swaps": Case(
        "ranked replacements of a word, a review of 64 tokens, the encoder",
        models.swaps,
        {"n": 64, "threads": 2, "runs": 3, "exhaustive": False, "seconds": 10},
        {"n": 6, "threads": 1, "runs": 1, "exhaustive": False, "seconds": 10},
    ),
    "text-shortfall": Case(
        "ranked replacements against the best of all, in 20 texts",
        models.shortfall,
        {"count": 20, "threads": 2, "limit": 0.01},
        {"count": 1, "threads": 1, "limit": 0.01},
    ),
    "text-exhaustive": Case(
        "every replacement of a word, a review of 32 tokens, the encoder",
        models.swaps,
        {"n": 32, "threads": 2, "runs": 1, "exhaustive": True, "seconds": 180},
        {"n": 6, "threads": 1, "runs": 1, "exhaustive": False, "seconds": 180},
    ),
    "growth": Case(
        "cost against n, d, k, N over two to three decades, one core",
        growth.measured,
        {"kernels": None, "part": 1, "write": True},
        {"kernels": 2, "part": 64, "write": False},
    ),
    "start": Case(
        "commands from their start to their answer, and workers until they are ready",
        start.started,
        {"lists": ["maps", "figures", "models", "results"], "runs": 3},
        {"lists": ["maps"], "runs": 1},
    ),
    "runner": Case(
        "the laboratory's own cost: 5,000 trials that do nothing",
        laboratory.runner,
        {"count": 5000, "milliseconds": 2},
        {"count": 20, "milliseconds": 2},
    ),
    "soak": Case(
        "20,000 trials while workers are killed",
        laboratory.soak,
        {"count": 20_000, "every": 4, "rise": 20_000_000},
        {"count": 20, "every": 100, "rise": 20_000_000},
    ),
    "workers": Case(
        "a sweep on two workers against one",
        laboratory.workers,
        {"count": 200, "ratio": 1.7},
        {"count": 2, "ratio": 1.7},
    ),
    "audit": Case(
        "an audit of 200 short reviews on two workers against one",
        laboratory.audits,
        {"count": 200, "words": 14, "seconds": 300, "ratio": 1.7},
        {"count": 2, "words": 4, "seconds": 300, "ratio": 1.7},
    ),
    "figures-quick": _figures("quick", 180, _SENSITIVITY),
    "figures-paper": _figures("paper", 900, _SENSITIVITY),
    "figures-generalization": _figures("quick", 120, _GENERALIZATION),
    "figures-kernels": _figures("quick", 120, _KERNELS),
    "figures-kernels-paper": _figures("paper", 2400, _KERNELS, memory=8 * _GB),
    "figures-smooth": _figures("quick", 180, ["smooth-real", "smooth-adversarial", "smooth-bounds", "meanfield"]),
    "figures-smooth-paper": _figures("paper", 600, ["smooth-real"]),
    "figures-generalization-paper": _figures("paper", 2400, _GENERALIZATION, memory=8 * _GB),
}
