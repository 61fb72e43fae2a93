"""Tangent kernels against one backward pass per sample, and robustness at the sizes of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

import wordsway as ws
from benchmarks.child import Child, job
from benchmarks.metering import measure
from benchmarks.report import Outcome, Row, agree, costs, faster, number, under, within
from wordsway.memory import human
from wordsway.seeds import generator, signs

AGAINST = "Tangent kernels: ours against one backward pass per sample"
LARGE = "Tangent kernels and robustness at the sizes of the paper (ours)"


def _drawn(count: int, width: int) -> tuple[ws.Network, torch.Tensor]:
    return ws.Network.drawn([width] * 3, "tanh"), ws.gaussian_context(count, width)


# Jobs


@job
def ntk_ours(count: int, width: int, runs: int) -> dict[str, Any]:
    """The kernel of a network of three weights, layer by layer."""
    network, X = _drawn(count, width)
    (kernel, *_), usage = measure(lambda _: ws.ntk(network, X), runs)
    return {**usage, "gap": _against_gradients(network, X, kernel), "trace": float(kernel.trace())}


@job
def ntk_published(count: int, width: int) -> dict[str, Any]:
    """The Jacobian by one backward pass per sample, then J J^T."""
    network, X = _drawn(count, width)
    weights = [weight.clone().requires_grad_(True) for weight in network.weights]

    def work(_: int) -> torch.Tensor:
        rows = [_gradient(network, weights, x) for x in X]
        jacobian = torch.stack(rows)
        return jacobian @ jacobian.mT

    (kernel,), usage = measure(work, warm=False)
    return {**usage, "trace": float(kernel.trace())}


def _gradient(network: ws.Network, weights: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    reached = x
    for weight in weights[:-1]:
        reached = network.activation(weight @ reached)
    return torch.cat([part.flatten() for part in torch.autograd.grad((weights[-1] @ reached)[0], weights)])


def _against_gradients(network: ws.Network, X: torch.Tensor, kernel: torch.Tensor) -> float:
    """The largest relative difference of some entries from products of autograd's gradients."""
    weights = [weight.clone().requires_grad_(True) for weight in network.weights]
    some = torch.stack([_gradient(network, weights, x) for x in X[:20]])
    exact = some @ some.mT
    return float(((kernel[:20, :20] - exact).abs() / exact.diagonal().max()).max())


@job
def ntk_large(count: int, width: int) -> dict[str, Any]:
    """The kernel and its smallest eigenvalue."""
    network, X = _drawn(count, width)
    (least,), usage = measure(lambda _: ws.smallest_eigenvalue(ws.ntk(network, X)), warm=False)
    return {**usage, "value": least.value, "residual": least.residual, "status": least.status}


@job
def robustness_large(kind: str, d: int, count: int, width: int) -> dict[str, Any]:
    """S at a new input."""
    X = ws.gaussian_context(count + 1, d)
    y = signs(generator(0, "labels"), count)
    (robustness,), usage = measure(lambda _: ws.feature_robustness(kind, X[:-1], y, X[-1], width, "tanh"), warm=False)
    return {**usage, "value": robustness.value, "fit": robustness.fit}


# Cases


def against(child: Child, size: Mapping[str, Any]) -> Outcome:
    """The same network and inputs."""
    shape = {"count": size["count"], "width": size["width"]}
    ours = child("ntk_ours", runs=size["runs"], **shape)
    theirs = child("ntk_published", **shape)
    ratio = theirs["seconds"] / ours["seconds"]
    case = f"N={size['count']}, width {size['width']}, 3 weights"
    gap = max(ours["gap"], abs(ours["trace"] / theirs["trace"] - 1))
    cells = {
        "case": case,
        "backward passes, s": number(theirs["seconds"]),
        "ours, s": number(ours["seconds"]),
        "times faster": number(ratio),
        "their memory": human(theirs["rise"]),
        "our memory": human(ours["rise"]),
    }
    targets = (
        faster(case, ratio, 50),
        agree(case, gap, 1e-10, "agreeing to 1e-10"),
    )
    return Outcome((Row(AGAINST, cells),), targets)


def eigenvalue(child: Child, size: Mapping[str, Any]) -> Outcome:
    """The kernel and its smallest eigenvalue."""
    got = child("ntk_large", count=size["count"], width=size["width"])
    case = f"tangent kernel and smallest eigenvalue, N={size['count']}, width {size['width']}"
    result = f"{got['value']:.4g} ({got['status']}, residual {got['residual']:.0e})"
    return _limited(case, got, size, {"result": result})


def robust(child: Child, size: Mapping[str, Any]) -> Outcome:
    """S at the largest size of a figure."""
    kind, d, count, width = size["kind"], size["d"], size["count"], size["width"]
    got = child("robustness_large", kind=kind, d=d, count=count, width=width)
    case = f"{kind} robustness, d={d}, N={count}, k={width:,}"
    return _limited(case, got, size, {"result": f"S = {got['value']:.3f}"})


def _limited(case: str, got: Mapping[str, Any], size: Mapping[str, Any], cells: Mapping[str, str]) -> Outcome:
    """A row with seconds and memory, and their limits."""
    targets = within(case, got, size["seconds"]), under(case, got, size["memory"])
    return Outcome((Row(LARGE, {"case": case, **costs(got), **cells}),), targets)
