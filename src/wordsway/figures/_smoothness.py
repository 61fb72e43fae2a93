"""What the figures of attention's Lipschitz constants share: the layers of real models, tables, exponents, pictures."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from wordsway.experiments.claims import TOO_FEW, curves, deviation, power_law
from wordsway.experiments.experiment import Estimate, Parameters, RunConfig, Table, TrialResult, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from wordsway.maps import Attention
    from wordsway.models import Model

ENCODER = "minilm"
_DECODERS: tuple[Any, ...] = (("gpt2-random", True, (0, 6, 11)), ("smollm2", True, (0, 15, 29)))
_SHOWN = 6  # layers of a model that was asked for
_SURE = 1.96  # standard errors of a 95% interval


def blocks(config: RunConfig) -> list[dict[str, Any]]:
    """The layers of a config: the encoder's, masked and not, and some of two decoders', or some of one model's."""
    if config.model is None:
        chosen: list[Any] = [(ENCODER, False, range(6)), (ENCODER, True, range(6)), *_DECODERS]
    else:
        from wordsway.models import load

        model = load(config.model)
        chosen = [(config.model, model.causal, range(0, model.layers, -(-model.layers // _SHOWN)))]
    return [{"model": name, "causal": causal, "layer": layer} for name, causal, layers in chosen for layer in layers]


def grid_over(lengths: dict[str, tuple[int, ...]]) -> Any:
    """The grid of all blocks over the lengths of a scale."""

    def grid(config: RunConfig) -> Iterable[Parameters]:
        for block in blocks(config):
            for n in lengths[config.scale]:
                yield {**block, "n": n}

    return grid


def layer_of(parameters: Parameters) -> tuple[Model, Attention]:
    """The model of a trial, and the attention of its layer."""
    from wordsway.models import load

    model = load(parameters["model"])
    return model, model.attention(parameters["layer"], causal=parameters["causal"])


def constant(found: Any) -> dict[str, Any]:
    """What is kept of a local Lipschitz constant."""
    return {
        "lipschitz": found.value,
        "residual": found.residual,
        "products": found.products,
        "status": found.status if found.converged else "stopped",
        "dtype": found.cost.dtype,
    }


def panel(parameters: Parameters) -> str:
    """What a curve of one model is drawn under."""
    masked = parameters["causal"] and parameters["model"] == ENCODER
    return f"{parameters['model']}, masked" if masked else str(parameters["model"])


def table(finished: Sequence[TrialResult]) -> Table:
    """One row for each layer and length."""
    rows: Table = []
    points = [{**one.parameters, **one.record, "panel": panel(one.parameters)} for one in finished]
    for (name, layer, n), members in curves(points, "panel", "layer", "n").items():
        values = [row["lipschitz"] for row in members]
        known = {key: members[0][key] for key in ("upper", "rotary") if key in members[0]}
        rows.append(
            {
                "panel": name,
                "layer": layer,
                "n": n,
                "trials": len(values),
                "mean": statistics.fmean(values),
                "deviation": deviation(values),
                "least": min(values),
                "most": max(values),
                "converged": sum(row["status"] == "converged" for row in members),
                **known,
            }
        )
    return rows


def exponent(claim: str, rows: Table, target: float, tolerance: float, below: bool = False) -> Verdict:
    """That the constants of all layers grow like n^target, with a 95% interval and the exponent of each layer.

    With `below`, that they grow no faster.
    """
    said = f"{claim}: exponent {'at most ' if below else ''}{target:g} +- {tolerance:g}"
    found = power_law(rows, "n", "mean", "layer")
    if found is None:
        return Verdict(said, TOO_FEW, None)
    low, high = found.exponent - _SURE * found.error, found.exponent + _SURE * found.error
    by_layer = [
        f"{layer}: {law.exponent:.2f}"
        for (layer,), members in curves(rows, "layer").items()
        if (law := power_law(members, "n", "mean")) is not None
    ]
    measured = f"{found.exponent:.3f} (95% interval {low:.3f} to {high:.3f}); by layer {', '.join(by_layer)}"
    apart = found.exponent - target
    return Verdict(said, measured, (apart if below else abs(apart)) <= tolerance)


def converged(rows: Table) -> Verdict:
    """That every constant has a residual below the tolerance."""
    done, asked = sum(row["converged"] for row in rows), sum(row["trials"] for row in rows)
    measured = f"{done} of {asked}"
    return Verdict("every constant converged to a residual of 1e-4 of it", measured, done == asked if rows else None)


def draw(rows: Table, figure: Figure, power: float, label: str) -> None:
    """A panel for each model, a curve for each layer, and the power of n through the middle of them."""
    from wordsway.figures import _style as style

    panels = list(curves(rows, "panel").items())
    for place, ((title,), members) in enumerate(panels):
        axes = style.panel(figure, len(panels), place, title, columns=2)
        for number, ((layer,), line) in enumerate(curves(members, "layer").items()):
            ordered = sorted(line, key=lambda row: float(row["n"]))
            x, mean, spread = ([row[name] for row in ordered] for name in ("n", "mean", "deviation"))
            style.curve(axes, x, mean, spread, [None] * len(x), label=f"layer {layer}", number=number)
        lengths = sorted({row["n"] for row in members})
        height = statistics.fmean(math.log(row["mean"]) - power * math.log(row["n"]) for row in members)
        style.theory(axes, lengths, [math.exp(height) * n**power for n in lengths], label)
        style.finish(axes, "context length n", "local Lipschitz constant", lengths, logarithmic=True)


def estimate(parameters: Parameters) -> Estimate:
    """Seconds and memory of one trial: the layers below on one text, and some 30 products of O(n^2 d + n d^2)."""
    big = parameters["model"] != ENCODER
    n, d = parameters["n"], 768 if big else 384
    below = 2e-10 * n * 12 * d**2 * parameters["layer"]
    return Estimate(0.1 + below + 30 * 8 * (n**2 * d + n * d**2) / 1.5e10, (14 if big else 6) * 10**8 + 40 * n**2)
