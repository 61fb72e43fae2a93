"""Local Lipschitz constants: ours against power iteration and SciPy, and lengths that n x n matrices do not reach."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, svds
from torch import Tensor

import wordsway as ws
from benchmarks.child import Child, job
from benchmarks.metering import measure
from benchmarks.report import Outcome, Row, Target, agree, costs, faster, number, under, within
from wordsway.memory import human

AGAINST = "Lipschitz constants: ours against power iteration by autograd"
SHORT = "Lipschitz constants: ours against short competent code"
LARGE = "Lipschitz constants of long contexts (ours)"
MODEL, LAYER = "minilm", 3
TOLERANCE = 1e-4
_MOST = 10_000  # products of a power iteration


def _layer() -> Any:
    return ws.load(MODEL).attention(LAYER)


def _texts(count: int, n: int) -> Tensor:
    """What the layer reads on reviews, (count, n, d)."""
    model = ws.load(MODEL)
    return model.layer_inputs(model.review_tokens(count, n), LAYER).double()


# Jobs


@job
def lipschitz_ours(n: int, inputs: int, runs: int) -> dict[str, Any]:
    """The constants of a layer on several texts, in one batch."""
    layer, contexts = _layer(), _texts(inputs, n)
    (constants, *_), usage = measure(lambda _: ws.local_lipschitz_many(layer, contexts, TOLERANCE), runs)
    return {**usage, "values": [one.value for one in constants], "products": [one.products for one in constants]}


@job
def lipschitz_published(n: int, inputs: int, steps: int) -> dict[str, Any]:
    """Power iteration on J^T J, one text at a time, to the same residual; and when each was first within it."""
    layer, contexts = _layer(), _texts(inputs, n)
    warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
    (histories,), usage = measure(lambda _: [_power(layer, X, steps) for X in contexts], warm=False)
    values = [history[-1] for history in histories]
    early = [next(k for k, value in enumerate(h, 1) if abs(value / h[-1] - 1) <= TOLERANCE) for h in histories]
    return {**usage, "values": values, "products": [2 * len(history) for history in histories], "early": sum(early)}


def _power(layer: Callable[[Tensor], Tensor], X: Tensor, steps: int) -> list[float]:
    """The values of all steps until |J^T u - s v| <= 1e-4 s, from a random vector."""
    v = torch.randn(X.shape, generator=torch.Generator().manual_seed(0), dtype=X.dtype)
    v = v / torch.linalg.vector_norm(v)
    values: list[float] = []
    for _ in range(steps):
        moved: Tensor = torch.func.jvp(layer, (X,), (v,))[1]
        value = torch.linalg.vector_norm(moved)
        backward: Any = torch.func.vjp(layer, X)
        pulled: Tensor = backward[1](moved / value)[0]
        values.append(float(value))
        if float(torch.linalg.vector_norm(pulled - value * v)) <= TOLERANCE * float(value):
            break
        v = pulled / torch.linalg.vector_norm(pulled)
    return values


@job
def lipschitz_short(known: list[float], method: str, n: int, inputs: int, runs: int) -> dict[str, Any]:
    """What a good engineer writes: SciPy's svds on jvp and vjp, or a power iteration that stops in time."""
    layer, contexts = _layer(), _texts(inputs, n)
    warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
    solve = {"svds": _svds, "power iteration": _short_power}[method]
    texts = list(zip(contexts, known, strict=True))
    (found, *_), usage = measure(lambda _: [solve(layer, X, value) for X, value in texts], runs, warm=False)
    return {**usage, "values": [value for value, _ in found], "products": [count for _, count in found]}


def _svds(layer: Callable[[Tensor], Tensor], X: Tensor, _: float) -> tuple[float, int]:
    """The largest singular value by ARPACK, and the number of products, float64."""
    value, backward = torch.func.vjp(layer, X)[:2]
    count = 0

    def product(v: Any) -> Any:
        nonlocal count
        count += 1
        return torch.func.jvp(layer, (X,), (torch.from_numpy(v).reshape(X.shape),))[1].numpy().ravel()

    def adjoint(u: Any) -> Any:
        nonlocal count
        count += 1
        return backward(torch.from_numpy(u).reshape(value.shape))[0].numpy().ravel()

    shape = value.numel(), X.numel()
    whole = LinearOperator(shape, matvec=product, rmatvec=adjoint, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(min(shape))
    return float(svds(whole, k=1, tol=TOLERANCE, v0=start, return_singular_vectors=False)[0]), count


def _short_power(layer: Callable[[Tensor], Tensor], X: Tensor, known: float) -> tuple[float, int]:
    """Power iteration with one forward pass for all adjoints, which is told when it is within 1e-4 of the value."""
    backward: Any = torch.func.vjp(layer, X)[1]
    v = torch.randn(X.shape, generator=torch.Generator().manual_seed(0), dtype=X.dtype)
    value, count = 0.0, 0
    while value < (1 - TOLERANCE) * known and count < _MOST:
        moved: Tensor = torch.func.jvp(layer, (X,), (v / torch.linalg.vector_norm(v),))[1]
        value = float(torch.linalg.vector_norm(moved))
        (v,) = backward(moved)
        count += 2
    return value, count


@job
def lipschitz_long(kind: str, n: int, size: int, threads: int) -> dict[str, Any]:
    """One constant at a long context: the encoder's layer on rows of many texts, or one random head."""
    torch.set_num_threads(threads)
    if kind == "layer":
        layer, context = _layer(), _texts(-(-n // size), size).flatten(0, 1)[:n]
    else:
        layer, context = ws.RandomAttention(size), ws.gaussian_context(n, size)
    (constant,), usage = measure(lambda _: ws.local_lipschitz(layer, context, TOLERANCE), warm=False)
    share = constant.residual / constant.value
    return {**usage, "value": constant.value, "share": share, "products": constant.products, "status": constant.status}


# Cases


def against(child: Child, size: Mapping[str, Any]) -> Outcome:
    """The same layer and texts, to the same residual."""
    rows, targets = [], []
    for n in size["lengths"]:
        shape = {"n": n, "inputs": size["inputs"]}
        ours = child("lipschitz_ours", runs=size["runs"], **shape)
        theirs = child("lipschitz_published", steps=size["steps"], **shape)
        case = f"{MODEL}, layer {LAYER}, n={n}, {size['inputs']} texts"
        ratio = theirs["seconds"] / ours["seconds"]
        share = 2 * theirs["early"] / sum(theirs["products"])
        gap = max(abs(a / b - 1) for a, b in zip(ours["values"], theirs["values"], strict=True))
        cells = {
            "case": case,
            "power iteration, s": number(theirs["seconds"]),
            "ours, s": number(ours["seconds"]),
            "times faster": number(ratio),
            "its products": f"{sum(theirs['products']):,}",
            "our products": f"{sum(ours['products']):,}",
            "its memory": human(theirs["rise"]),
            "our memory": human(ours["rise"]),
            "times faster than if it stopped in time": number(ratio * share),
        }
        rows.append(Row(AGAINST, cells))
        targets += [
            faster(case, ratio, 15, ", to a residual of 1e-4"),
            agree(case, gap, 1e-4, "the same values, to 1e-4"),
        ]
    return Outcome(tuple(rows), tuple(targets))


def short(child: Child, size: Mapping[str, Any]) -> Outcome:
    """The same constants by SciPy's svds and by a power iteration that stops in time."""
    shape = {"n": size["n"], "inputs": size["inputs"]}
    ours = child("lipschitz_ours", runs=size["runs"], **shape)
    rows, targets = [], []
    for method, least in size["methods"].items():
        theirs = child("lipschitz_short", known=ours["values"], method=method, runs=size["runs"], **shape)
        case = f"{MODEL}, layer {LAYER}, n={size['n']}, {size['inputs']} texts, {method}"
        ratio = theirs["seconds"] / ours["seconds"]
        gap = max(abs(a / b - 1) for a, b in zip(ours["values"], theirs["values"], strict=True))
        cells = {
            "case": case,
            "baseline, s": number(theirs["seconds"]),
            "ours, s": number(ours["seconds"]),
            "times faster": number(ratio),
            "its products": f"{sum(theirs['products']):,}",
            "our products": f"{sum(ours['products']):,}",
        }
        rows.append(Row(SHORT, cells))
        targets += [faster(case, ratio, least), agree(case, gap, 1.01 * TOLERANCE, "the same values, to 1e-4")]
    return Outcome(tuple(rows), tuple(targets))


def long(child: Child, size: Mapping[str, Any]) -> Outcome:
    """A context so long that its n x n matrices must not be made all at once."""
    kind, n = size["kind"], size["n"]
    got = child("lipschitz_long", **{name: size[name] for name in ("kind", "n", "size", "threads")})
    name = f"{MODEL}, layer {LAYER}, 12 heads" if kind == "layer" else f"one random head of {size['size']}"
    case = f"{name}, n={n:,}" + (f", {size['threads']} threads" if size["threads"] > 1 else "")
    cells = {
        "case": case,
        **costs(got),
        "constant": f"{got['value']:.4f}",
        "products": str(got["products"]),
    }
    targets = [
        under(case, got, size["memory"]),
        Target(case, "converges to 1e-4", f"{got['status']}, {got['share']:.1e}", got["share"] <= TOLERANCE),
    ]
    if size["seconds"] is not None:
        targets.append(within(case, got, size["seconds"]))
    return Outcome((Row(LARGE, cells),), tuple(targets))
