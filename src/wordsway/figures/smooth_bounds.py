"""Measured Lipschitz constants between all bounds: a random head, and a layer of the encoder."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from wordsway.contexts import gaussian_context
from wordsway.experiments import Estimate, Experiment, Parameters, RunConfig, Table, TrialRecord, TrialResult, Verdict
from wordsway.experiments.claims import at_least_one, check, points
from wordsway.figures import _assumed
from wordsway.figures import _smoothness as shared
from wordsway.figures import _style as style
from wordsway.maps import Attention, RandomAttention
from wordsway.records import finite
from wordsway.smoothness import (
    Ellipsoid,
    adversarial_context,
    lipschitz_bounds,
    local_lipschitz,
    neighbourhood_bound,
)

if TYPE_CHECKING:
    from torch import Tensor

HEAD = "one random head"
LENGTHS = {"quick": (4, 16, 64), "paper": (2, 4, 8, 16, 32, 64, 128, 256)}
STEPS = {"quick": 15, "paper": 40}
_D, _RADIUS = 15, 2.0  # an odd dimension has a real eigenvalue
_LAYER = 3
_MEASURED = {
    "typical": "typical context",
    "adversarial": "adversarial context",
    "climbed": "after gradient ascent from there",
}
_LOCAL = {"at_typical": ("", "upper: at the typical context", 0, 4.0)}
_BOUNDS = {  # by column: name of the bound, label, colour and dash
    "first_word": ("first word", "lower: first word", 3, 4.0),
    "adversarial_bound": ("adversarial", "lower: adversarial", 3, 1.5),
    "ellipsoid": ("ellipsoid", "upper: ellipsoid", 5, 8.0),
    "covariance": ("covariance", "upper: covariance", 5, 4.0),
    "discrete": ("discrete", "upper: discrete", 5, 1.5),
}


def trial(parameters: Parameters, seed: int) -> TrialRecord:
    """Measure the constant at a typical, an adversarial and a climbed context, and compute every bound."""
    n = parameters["n"]
    layer, context, words, radius = _setting(parameters, seed)
    bounds = lipschitz_bounds(layer, n, radius, words)
    return {
        "at_typical": neighbourhood_bound(layer, context).value,
        "typical": local_lipschitz(layer, context, seed=seed).value,
        "adversarial": adversarial_context(layer, n, radius, seed=seed).lipschitz.value,
        "climbed": adversarial_context(layer, n, radius, steps=parameters["steps"], seed=seed).lipschitz.value,
        **{column: bounds[name].value for column, (name, *_) in _BOUNDS.items()},
        "mean_field": finite(bounds["mean field"].value),
        "radius": radius,
    }


def _setting(parameters: Parameters, seed: int) -> tuple[Attention, Tensor, Ellipsoid, float]:
    """Return a layer, a typical context of it, and the ellipsoid and the ball of all its words."""
    n = parameters["n"]
    if parameters["panel"] == HEAD:
        head = RandomAttention(_D, seed=seed).attention
        return head, gaussian_context(n, _D, seed) * (_RADIUS / math.sqrt(_D)), Ellipsoid.ball(_D, _RADIUS), _RADIUS
    model, attention = shared.layer_of({"model": parameters["model"], "layer": _LAYER, "causal": None})
    context = model.layer_inputs(model.review_tokens(1, n, seed), _LAYER)[0].double()
    return attention, context, model.ellipsoid(_LAYER), model.radius(_LAYER)


def grid(config: RunConfig) -> Iterable[Parameters]:
    model = config.model or shared.ENCODER
    panels: tuple[dict[str, Any], ...] = ({"panel": HEAD}, {"panel": f"{model}, layer {_LAYER}", "model": model})
    for panel in panels:
        for n in LENGTHS[config.scale]:
            yield {**panel, "n": n, "steps": STEPS[config.scale]}


def table(results: Sequence[TrialResult]) -> Table:
    """Return one row per panel and length, with the mean of every constant and bound."""
    rows: Table = []
    for point, trials in points(results, "panel", "n"):
        row: dict[str, Any] = {**point, "trials": len(trials)}
        for name in (*_MEASURED, *_BOUNDS, *_LOCAL, "mean_field"):
            known = [one[name] for one in trials if one[name] is not None]
            row[name] = fmean(known) if known else None
        row["local_margin"] = min(one["at_typical"] / one["typical"] for one in trials)
        row["margin"] = min(
            min(one["covariance"], one["ellipsoid"]) / max(one[name] for name in _MEASURED) for one in trials
        )
        row["sharper"] = min(one["discrete"] / one["covariance"] for one in trials)
        over = [one["adversarial"] / one["first_word"] for one in trials if one["first_word"]]
        rows.append({**row, "above": min(over, default=None)})
    return rows


def claims(rows: Table) -> list[Verdict]:
    times = "at least {:.2f} times below it"
    lower = "constants at adversarial contexts are above the lower bounds"
    theorems = [
        at_least_one("every constant is below the covariance and the ellipsoid bound", rows, "margin", times),
        at_least_one("at typical contexts it is below the bound for that context", rows, "local_margin", times),
        at_least_one("the covariance bound is below the discrete bound", rows, "sharper", times),
        at_least_one(lower, rows, "above", "at least {:.3f} times them"),
    ]
    return [check(theorem) for theorem in theorems]


def plot(rows: Table, figure: style.Figure) -> None:
    for axes, _, members in style.panels(figure, rows, ["panel"], columns=2, size=(5.2, 4.6)):
        ordered = sorted(members, key=lambda row: float(row["n"]))
        lengths = [row["n"] for row in ordered]
        for number, (name, label) in enumerate(_MEASURED.items()):
            style.curve(axes, lengths, [row[name] for row in ordered], label, number)
        for column, (_, label, number, dash) in (_BOUNDS | _LOCAL).items():
            known = [row for row in ordered if row[column] is not None]
            if known:
                style.line(axes, [row["n"] for row in known], [row[column] for row in known], label, number, dash)
        style.finish(axes, "context length n", "Lipschitz constant", lengths, logarithmic=True)
        axes.autoscale(axis="y")
        style.common_scale([axes])
    style.legend_below(figure, figure.axes)


def estimate(parameters: Parameters) -> Estimate:
    """Estimate one trial: the bounds, which the length hardly changes, and the climb.

    Constants are a fit to CPU seconds at 2 to 256 words.
    """
    n = parameters["n"]
    start, d = (0.25, _D) if parameters["panel"] == HEAD else (2.0, 384)
    return Estimate(start + parameters["steps"] * 40 * 8 * (n**2 * d + n * d**2) / 5.6e10, 7 * 10**8 + 2000 * n**2)


FIGURE = Experiment(
    name="smooth-bounds",
    title="Lipschitz constants of attention between their bounds",
    about="Local constants at typical, adversarial and climbed contexts of a random head (V = I) and of a layer of the "
    "encoder, against the length, with every bound on the constant over all contexts in the same ball, "
    "and the bound for the typical context itself.",
    trial=trial,
    grid=grid,
    trials={"quick": 2, "paper": 3},
    table=table,
    claims=claims,
    plot=plot,
    estimate=estimate,
    assumptions=_assumed.between_bounds,
    version=5,
)
