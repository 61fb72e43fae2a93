"""Measured Lipschitz constants between all bounds: a random head, and a layer of the encoder."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from wordsway.contexts import gaussian_context
from wordsway.experiments.claims import TOO_FEW, curves
from wordsway.experiments.experiment import (
    Estimate,
    Experiment,
    Parameters,
    RunConfig,
    Table,
    TrialResult,
    Verdict,
)
from wordsway.figures import _smoothness as shared
from wordsway.maps import Attention, RandomAttention
from wordsway.smoothness import adversarial_context, lipschitz_bounds, local_lipschitz

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

HEAD = "one random head"
LENGTHS = {"quick": (4, 16, 64), "paper": (2, 4, 8, 16, 32, 64, 128, 256)}
STEPS = {"quick": 15, "paper": 40}
_D, _RADIUS = 15, 2.0  # an odd dimension has a real eigenvalue
_LAYER = 3
_MEASURED = {"typical": "typical context", "adversarial": "adversarial context", "climbed": "climbed from there"}
_BOUNDS = {  # by name: what the legend says, colour and dash
    "first_word": ("lower: first word", 3, 4.0),
    "adversarial_bound": ("lower: adversarial", 3, 1.5),
    "covariance": ("upper: covariance", 5, 4.0),
    "discrete": ("upper: discrete", 5, 1.5),
}


def trial(parameters: Parameters, seed: int) -> dict[str, Any]:
    """The constant at a typical, an adversarial and a climbed context, and every bound."""
    n = parameters["n"]
    layer, context, radius = _setting(parameters, seed)
    steep = adversarial_context(layer, n, radius, seed=seed)
    climbed = adversarial_context(layer, n, radius, steps=parameters["steps"], seed=seed)
    bounds = lipschitz_bounds(layer, n, radius)
    field = bounds["mean field"].value
    return {
        "typical": local_lipschitz(layer, context, seed=seed).value,
        "adversarial": steep.lipschitz.value,
        "climbed": climbed.lipschitz.value,
        "first_word": bounds["first word"].value,
        "adversarial_bound": bounds["adversarial"].value,
        "covariance": bounds["covariance"].value,
        "discrete": bounds["discrete"].value,
        "mean_field": field if field is not None and math.isfinite(field) else None,
        "radius": radius,
    }


def _setting(parameters: Parameters, seed: int) -> tuple[Attention, Tensor, float]:
    """A layer, a typical context of it and its radius."""
    n = parameters["n"]
    if parameters["panel"] == HEAD:
        head = RandomAttention(_D, seed=seed).attention
        return head, gaussian_context(n, _D, seed) * (_RADIUS / math.sqrt(_D)), _RADIUS
    model, attention = shared.layer_of({"model": parameters["model"], "layer": _LAYER, "causal": None})
    context = model.layer_inputs(model.review_tokens(1, n, seed), _LAYER)[0].double()
    return attention, context, model.radius(_LAYER)


def grid(config: RunConfig) -> Iterable[Parameters]:
    steps = STEPS[config.scale]
    model = config.model or shared.ENCODER
    panels: tuple[dict[str, Any], ...] = ({"panel": HEAD}, {"panel": f"{model}, layer {_LAYER}", "model": model})
    for panel in panels:
        for n in LENGTHS[config.scale]:
            yield {**panel, "n": n, "steps": steps}


def table(finished: Sequence[TrialResult]) -> Table:
    """One row for each panel and length, with the mean of every constant and bound."""
    rows: Table = []
    points = [{**one.parameters, **one.record} for one in finished]
    for (panel, n), members in curves(points, "panel", "n").items():
        row: dict[str, Any] = {"panel": panel, "n": n, "trials": len(members)}
        for name in (*_MEASURED, *_BOUNDS, "mean_field"):
            known = [one[name] for one in members if one[name] is not None]
            row[name] = statistics.fmean(known) if known else None
        row["room"] = min(one["covariance"] / max(one[name] for name in _MEASURED) for one in members)
        row["sharper"] = min(one["discrete"] / one["covariance"] for one in members)
        row["above"] = min(
            (one["adversarial"] / one["first_word"] for one in members if one["first_word"]), default=None
        )
        rows.append(row)
    return rows


def claims(rows: Table) -> list[Verdict]:
    return [
        _at_least_one("every constant is below the covariance bound", rows, "room", "at least {:.2f} times below it"),
        _at_least_one("which is below the discrete bound", rows, "sharper", "at least {:.2f} times below it"),
        _at_least_one(
            "constants at adversarial contexts are above the lower bounds", rows, "above", "at least {:.3f} times them"
        ),
    ]


def _at_least_one(claim: str, rows: Table, column: str, told: str) -> Verdict:
    """That a ratio is never below 1, but for rounding."""
    known = [row[column] for row in rows if row[column] is not None]
    if not known:
        return Verdict(claim, TOO_FEW, None)
    return Verdict(claim, told.format(min(known)), min(known) >= 1 - 1e-6)


def plot(rows: Table, figure: Figure) -> None:
    from wordsway.figures import _style as style

    panels = list(curves(rows, "panel").items())
    for place, ((title,), members) in enumerate(panels):
        axes = style.panel(figure, len(panels), place, title, columns=2, size=(5.2, 4.6))
        ordered = sorted(members, key=lambda row: float(row["n"]))
        lengths = [row["n"] for row in ordered]
        for number, (name, label) in enumerate(_MEASURED.items()):
            values = [row[name] for row in ordered]
            style.curve(axes, lengths, values, [0.0] * len(values), [None] * len(values), label=label, number=number)
        for name, (label, number, dash) in _BOUNDS.items():
            known = [row for row in ordered if row[name] is not None]
            if known:
                style.line(axes, [row["n"] for row in known], [row[name] for row in known], label, number, dash)
        style.finish(axes, "context length n", "Lipschitz constant", lengths, logarithmic=True)


def estimate(parameters: Parameters) -> Estimate:
    """Seconds and memory of one trial: mostly the climb."""
    n, d = parameters["n"], _D if parameters["panel"] == HEAD else 384
    return Estimate(0.5 + parameters["steps"] * 40 * 8 * (n**2 * d + n * d**2) / 1e10, 7 * 10**8 + 2000 * n**2)


FIGURE = Experiment(
    name="smooth-bounds",
    title="Lipschitz constants of attention between their bounds",
    about="Local constants at typical, adversarial and climbed contexts of a random head (V = I) and of a layer of the "
    "encoder, against the length, with every bound on the constant over all contexts in the same ball.",
    trial=trial,
    grid=grid,
    trials={"quick": 2, "paper": 3},
    table=table,
    claims=claims,
    plot=plot,
    estimate=estimate,
    version=2,
)
