"""One simulation of generalization: ours against the published algorithm, and sizes that it cannot reach."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

import wordsway as ws
from benchmarks import published
from benchmarks.child import Child, job
from benchmarks.metering import measure
from benchmarks.report import Outcome, Row, Target, costs, faster, number, under, within
from wordsway.maps.catalogue import map_named
from wordsway.memory import human
from wordsway.seeds import generator, normal

AGAINST = "Generalization: ours against the published algorithm"
LARGE = "Generalization at sizes whose projector does not fit (ours)"
WORD = 0
RATE, START = 10.0, 1e-3


def _samples(data: str, count: int, n: int, d: int, seed: int) -> tuple[Tensor, Tensor]:
    if data == "reviews":
        return ws.review_contexts(count, n, d, seed=seed)
    return ws.gaussian_samples(count, n, d, seed=seed)


# Jobs


@job
def generalization_ours(name: str, data: str, n: int, d: int, samples: int, runs: int) -> dict[str, Any]:
    """Both trainings and both losses at once, the features and the kernel included."""
    contexts, labels = _samples(data, samples + 1, n, d, 0)

    def work(_: int) -> list[ws.Generalization]:
        phi: Any = map_named(name).build(n, d, None, 0)
        return ws.one_word_generalization(phi, contexts[:-1], labels[:-1], contexts[-1], float(labels[-1]), WORD)

    (first, *_), usage = measure(work, runs, warm=runs > 1)
    losses = {f"{one.problem.training} {one.problem.loss}": one.loss for one in first}
    fitted = all(one.interpolates for one in first)
    return {**usage, "losses": losses, "gamma": first[0].gamma, "interpolates": fitted}


@job
def generalization_published(data: str, n: int, d: int, samples: int) -> dict[str, Any]:
    """raf by the published algorithm: pinv, a p x p projector, 50 n steps of the whole map for each loss."""
    contexts, labels = _samples(data, samples + 1, n, d, 0)
    phi = ws.RandomAttention(d, seed=0)
    plain = published.attention(phi.weight, "softmax")
    X, y = contexts[-1], float(labels[-1])

    def work(_: int) -> dict[str, float]:
        features = torch.stack([plain(context).reshape(-1) for context in contexts[:-1]])
        inverse = torch.linalg.pinv(features)
        theta = inverse @ labels[:-1]
        projector = torch.eye(features.shape[1], dtype=torch.float64) - inverse @ features
        own = plain(X).reshape(-1)
        rest = projector @ own
        fine, again = own / (own @ own), rest / (rest @ rest)
        missing = y - own @ theta
        moved = published.along(lambda context: plain(context).reshape(-1), X, WORD)
        losses = {
            "fine-tuned alignment": lambda f: (f @ fine + 1) ** 2,
            "fine-tuned error": lambda f: (f @ (theta + fine * missing) + y) ** 2,
            "re-trained alignment": lambda f: (f @ again + 1) ** 2,
            "re-trained error": lambda f: (f @ (theta + again * missing) + y) ** 2,
        }
        return {key: _descend(moved, loss, d, 50 * n) for key, loss in losses.items()}

    (losses,), usage = measure(work, warm=False)
    return {**usage, "losses": losses}


def _descend(moved: Any, loss: Any, d: int, steps: int) -> float:
    """Projected gradient descent on a loss of the features; the best value of all steps."""
    delta = START * normal(generator(0, "published start"), d)
    best, radius = math.inf, math.sqrt(d)
    for _ in range(steps):
        delta.requires_grad_(True)
        value = loss(moved(delta))
        (gradient,) = torch.autograd.grad(value, delta)
        best = min(best, value.item())
        delta = delta.detach() - RATE * gradient
        length = float(delta.norm())
        delta = delta if length <= radius else delta * (radius / length)
    return best


# Cases


def against(child: Child, size: Mapping[str, Any]) -> Outcome:
    """raf on reviews, all four searches."""
    n, d, samples = size["n"], size["d"], size["samples"]
    shape = {"data": "reviews", "n": n, "d": d, "samples": samples}
    ours = child("generalization_ours", name="raf", runs=size["runs"], **shape)
    theirs = child("generalization_published", **shape)
    case = f"raf, n={n}, d={d}, N={samples}, both trainings and losses"
    ratio = theirs["seconds"] / ours["seconds"]
    excess = max(ours["losses"][key] - value for key, value in theirs["losses"].items())
    cells = {
        "case": case,
        "published, s": number(theirs["seconds"]),
        "ours, s": number(ours["seconds"]),
        "times faster": number(ratio),
        "published memory": human(theirs["rise"]),
        "our memory": human(ours["rise"]),
        "published losses": " ".join(f"{value:.4f}" for value in theirs["losses"].values()),
        "our losses": " ".join(f"{ours['losses'][key]:.4f}" for key in theirs["losses"]),
    }
    targets = (
        faster(case, ratio, 20),
        Target(case, "every loss reached equal or lower, to 1e-4", f"{excess:.1e} more at most", excess <= 1e-4),
    )
    return Outcome((Row(AGAINST, cells),), targets)


def large(child: Child, size: Mapping[str, Any]) -> Outcome:
    """Everything at once, at a size where the p x p projector alone would not fit."""
    name, n, d, samples = size["name"], size["n"], size["d"], size["samples"]
    got = child("generalization_ours", name=name, data="gaussian", n=n, d=d, samples=samples, runs=1)
    case = f"{name}, n={n}, d={d}, N={samples}, both trainings and losses"
    cells = {
        "case": case,
        "a projector needs": human(8 * (n * d) ** 2),
        **costs(got),
        "losses": " ".join(f"{value:.4f}" for value in got["losses"].values()),
    }
    targets = (
        within(case, got, size["seconds"]),
        under(case, got, size["memory"]),
        Target(case, "every training label is fitted", str(got["interpolates"]).lower(), bool(got["interpolates"])),
    )
    return Outcome((Row(LARGE, cells),), targets)
