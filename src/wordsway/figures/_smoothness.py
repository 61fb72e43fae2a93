"""Shared by the figures of attention's Lipschitz constants: the layers of real models, tables, exponents, plots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from wordsway.experiments import Estimate, Experiment, Parameters, RunConfig, Table, TrialResult, Verdict
from wordsway.experiments.claims import TOO_FEW, count_of, curves, points, power_law, statistics
from wordsway.figures import _style as style
from wordsway.models import load

if TYPE_CHECKING:
    from wordsway.maps import Attention
    from wordsway.models import Model

ENCODER = "minilm"
_DECODERS: tuple[Any, ...] = (("gpt2-random", True, (0, 6, 11)), ("smollm2", True, (0, 15, 29)))
_SHOWN = 6  # layers of a model that was chosen
_SURE = 1.96  # standard errors of a 95% interval


def blocks(config: RunConfig) -> list[dict[str, Any]]:
    """Return the encoder's layers, masked and not, and some of two decoders, or some of the configuration's model."""
    if config.model is None:
        chosen: list[Any] = [(ENCODER, False, range(6)), (ENCODER, True, range(6)), *_DECODERS]
    else:
        model = load(config.model)
        chosen = [(config.model, model.causal, range(0, model.layers, -(-model.layers // _SHOWN)))]
    return [{"model": name, "causal": causal, "layer": layer} for name, causal, layers in chosen for layer in layers]


def grid_over(lengths: dict[str, tuple[int, ...]]) -> Callable[[RunConfig], Iterable[Parameters]]:
    """Return the grid of all blocks over the lengths of a scale."""

    def grid(config: RunConfig) -> Iterable[Parameters]:
        for block in blocks(config):
            for n in lengths[config.scale]:
                yield {**block, "n": n}

    return grid


def layer_of(parameters: Parameters) -> tuple[Model, Attention]:
    """Return the model of a trial, and the attention of its layer."""
    model = load(parameters["model"])
    return model, model.attention(parameters["layer"], causal=parameters["causal"])


def table(results: Sequence[TrialResult]) -> Table:
    """Return one row per layer and length."""
    rows: Table = []
    for point, trials in points(results, "model", "causal", "layer", "n"):
        masked = ", masked" if point["causal"] and point["model"] == ENCODER else ""
        values = statistics([row["lipschitz"] for row in trials], "mean", "deviation", "least", "most")
        converged = sum(row["status"] == "converged" for row in trials)
        known = {key: trials[0][key] for key in ("upper", "rotary") if key in trials[0]}
        place = {"panel": f"{point['model']}{masked}", "layer": point["layer"], "n": point["n"]}
        rows.append({**place, **values, "converged": converged, **known})
    return rows


def exponent(claim: str, rows: Table, target: float, tolerance: float, below: bool = False) -> Verdict:
    """Judge that the constants of all layers grow like n^target, with a 95% interval and the exponent of each layer.

    With `below`, that they grow no faster.
    """
    claim = f"{claim}: exponent {'at most ' if below else ''}{target:g} +- {tolerance:g}"
    law = power_law(rows, "n", "mean", "layer")
    if law is None:
        return Verdict(claim, TOO_FEW, None)
    low, high = law.exponent - _SURE * law.error, law.exponent + _SURE * law.error
    laws = {layer: power_law(members, "n", "mean") for (layer,), members in curves(rows, "layer").items()}
    by_layer = ", ".join(f"{layer}: {own.exponent:.2f}" for layer, own in laws.items() if own is not None)
    measured = f"{law.exponent:.3f} (95% interval {low:.3f} to {high:.3f}); by layer {by_layer}"
    difference = law.exponent - target
    return Verdict(claim, measured, (difference if below else abs(difference)) <= tolerance)


def converged(rows: Table) -> Verdict:
    """Judge that every constant has a residual below the tolerance."""
    return count_of("every constant converged to a residual of 1e-4 of it", rows, "converged", every=True)


def plot(rows: Table, figure: style.Figure, power: float, label: str) -> None:
    """Draw a panel for each model, a curve for each layer, and the power of n through the middle of them."""
    for axes, _, members in style.panels(figure, rows, ["panel"], columns=2):
        style.lines(axes, members, "layer", "layer {}")
        style.law(axes, members, lambda n: n**power, label)
        lengths = sorted({row["n"] for row in members})
        style.finish(axes, "context length n", "local Lipschitz constant", lengths, logarithmic=True)


def estimate(parameters: Parameters) -> Estimate:
    """Estimate one trial: the layers below on one text, and some 30 products of O(n^2 d + n d^2)."""
    big = parameters["model"] != ENCODER
    n, d = parameters["n"], 768 if big else 384
    below = 2e-10 * n * 12 * d**2 * parameters["layer"]
    return Estimate(0.1 + below + 30 * 8 * (n**2 * d + n * d**2) / 1.5e10, (14 if big else 6) * 10**8 + 40 * n**2)


experiment = partial(Experiment, table=table, estimate=estimate, version=3)
