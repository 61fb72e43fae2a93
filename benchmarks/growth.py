"""How costs grow with n, d, k and N: fitted exponents beside those that the docstrings state, and a picture of them."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

import wordsway as ws
from benchmarks.child import Child, job
from benchmarks.report import Outcome, Row, Target, number, table
from wordsway.seeds import generator, signs
from wordsway.smoothness import AttentionJacobian

GROWTH = "Growth: cost against size (ours)"
PAGE = Path(__file__).resolve().parent.parent / "docs" / "growth.md"
_MEASURED = re.compile(r"(?<=<!-- measured -->\n).*(?=<!-- end -->)", re.DOTALL)
_ENOUGH = 0.05  # CPU seconds for which a size is repeated; the least of its times counts
_LAST = 10  # exponents are those of the last decade: below it calls cost more than operations
_SLACK = 0.25  # of an exponent: where n x n scores no longer fit into caches, 0.16 was measured

Work: TypeAlias = Callable[[], object]


@dataclass(frozen=True)
class Kernel:
    """The cost of `make(size)()` as one size grows, and the exponent that its docstring states for large sizes."""

    name: str
    axis: str
    largest: int
    stated: int
    make: Callable[[int], Work]
    smallest: int = 16


def _call(n: int, d: int) -> Work:
    phi, X = ws.RandomAttention(d), ws.gaussian_context(n, d)
    return lambda: phi(X)


def _change(n: int, d: int) -> Work:
    response, delta = ws.respond(ws.RandomAttention(d), ws.gaussian_context(n, d), 0), ws.gaussian_context(16, d, 1)
    return lambda: response.change(delta)


def _product(n: int, d: int) -> Work:
    X = ws.gaussian_context(n, d)[None]
    jacobian = AttentionJacobian(ws.RandomAttention(d).attention, X)
    return lambda: jacobian.product(X)


def _lazy(size: int, inputs: int) -> Work:
    draws = ws.gaussian_context(inputs, size)

    def work() -> None:
        matrix = ws.LazyGaussian(size, size)
        for x in draws:
            matrix @ x

    return work


def _fit(count: int, width: int) -> Work:
    features, labels = ws.gaussian_context(count, width), signs(generator(0, "labels"), count)
    return lambda: ws.Interpolator(features, labels)


def _kernel(count: int, width: int) -> Work:
    network, X = ws.Network.drawn([width] * 3), ws.gaussian_context(count, width)
    return lambda: ws.ntk(network, X)


def _robustness(count: int, k: int) -> Work:
    X, labels = ws.gaussian_context(count, 32), signs(generator(0, "labels"), count)
    return lambda: ws.feature_robustness("rf", X, labels, X[0], k)


KERNELS = (
    Kernel("raf, a call", "n", 4096, 2, lambda n: _call(n, 32)),
    Kernel("raf, a call", "d", 2048, 2, lambda d: _call(16, d)),
    Kernel("raf along a word, 16 changes and gradients", "n", 2048, 1, lambda n: _change(n, 64)),
    Kernel("raf along a word, 16 changes and gradients", "d", 2048, 2, lambda d: _change(4, d)),
    Kernel("Jacobian of attention, a product", "n", 2048, 2, lambda n: _product(n, 32)),
    Kernel("Jacobian of attention, a product", "d", 2048, 2, lambda d: _product(16, d)),
    Kernel("Gaussian matrix as it is drawn, 16 inputs", "d", 131_072, 1, lambda d: _lazy(d, 16), 256),
    Kernel("Gaussian matrix as it is drawn, d = 1,000", "T", 512, 2, lambda T: _lazy(1000, T), 4),
    Kernel("re-training, p = 1,024", "N", 1024, 3, lambda N: _fit(N, 1024)),
    Kernel("re-training, N = 64", "p", 131_072, 1, lambda p: _fit(64, p), 256),
    Kernel("tangent kernel, three weights of width 64", "N", 2048, 2, lambda N: _kernel(N, 64)),
    Kernel("tangent kernel, N = 16", "width", 1024, 2, lambda width: _kernel(16, width)),
    Kernel("robustness of rf, N = 32", "k", 524_288, 1, lambda k: _robustness(32, k), 1024),
    Kernel("robustness of rf, k = 4,096", "N", 512, 2, lambda N: _robustness(N, 4096), 8),
)


# Jobs


@job
def growth(place: int, sizes: list[int]) -> dict[str, Any]:
    """CPU seconds of one kernel at each size, the least of several."""
    torch.set_num_threads(1)
    return {"seconds": [_least(KERNELS[place].make(size)) for size in sizes]}


def _least(work: Work) -> float:
    work()
    spent: list[float] = []
    while not spent or (sum(spent) < _ENOUGH and len(spent) < 1000):
        begin = time.process_time()
        work()
        spent.append(time.process_time() - begin)
    return min(spent)


# Case


def measured(child: Child, size: Mapping[str, Any]) -> Outcome:
    """Every kernel over two to three decades; at full size the page of the documentation is written."""
    rows, targets, curves = [], [], []
    for place, kernel in enumerate(KERNELS[: size["kernels"]]):
        sizes = list(_sizes(kernel.smallest, kernel.largest // size["part"]))
        seconds = child("growth", place=place, sizes=sizes)["seconds"]
        exponent = fitted(sizes, seconds)
        curves.append((kernel, sizes, seconds, exponent))
        cells = {
            "kernel": kernel.name,
            "size": f"{kernel.axis} = {sizes[0]:,} to {sizes[-1]:,}",
            "seconds": f"{number(seconds[0])} to {number(seconds[-1])}",
            "exponent, last decade": f"{exponent:.2f}",
            "stated": str(kernel.stated),
        }
        rows.append(Row(GROWTH, cells))
        claim = f"grows at most as {kernel.axis}^{kernel.stated}"
        holds = exponent <= kernel.stated + _SLACK
        targets.append(Target(f"growth, {kernel.name}", claim, f"{kernel.axis}^{exponent:.2f}", holds))
    if size["write"]:
        lines = table([row.cells for row in rows])
        PAGE.write_text(_MEASURED.sub(lambda _: f"\n{lines}\n", PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        draw(curves, PAGE.parent / "images" / "growth.png")
    return Outcome(tuple(rows), tuple(targets))


def _sizes(first: int, last: int) -> Iterator[int]:
    """Powers of two from one size to another, which both are."""
    while first <= last:
        yield first
        first *= 2


def fitted(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the slope of log seconds over log size in the last decade."""
    last = [place for place, n in enumerate(sizes) if n * _LAST >= sizes[-1]]
    return float(np.polyfit(np.log(sizes)[last], np.log(seconds)[last], 1)[0])


def draw(curves: Sequence[tuple[Kernel, list[int], list[float], float]], path: Path) -> None:
    """Draw each cost over its size, with a line of the stated exponent through the last point."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 2.5 * math.ceil(len(curves) / 4)), layout="constrained")
    for place, (kernel, sizes, seconds, exponent) in enumerate(curves, 1):
        ax = figure.add_subplot(math.ceil(len(curves) / 4), 4, place)
        ax.loglog(sizes, seconds, "o-", markersize=3)
        line = [seconds[-1] * (n / sizes[-1]) ** kernel.stated for n in sizes]
        ax.loglog(sizes, line, "--", color="0.5", label=f"{kernel.axis}^{kernel.stated} stated, {exponent:.2f} fitted")
        ax.set_ylim(bottom=min(seconds) / 2)
        ax.set_title(kernel.name, fontsize=7)
        ax.set_xlabel(kernel.axis, fontsize=8)
        ax.tick_params(which="both", labelsize=6)
        ax.legend(fontsize=7)
    figure.supylabel("CPU seconds, one core", fontsize=8)
    figure.savefig(path, dpi=100, metadata={"Software": None})
