"""Shared by the figures of attention's Lipschitz constants: the layers of real models, tables, exponents, plots."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from wordsway.experiments import Estimate, Experiment, Parameters, RunConfig, Table, TrialResult, Verdict
from wordsway.experiments.claims import TOO_FEW, Points, check, count_of, curves, points, power_law, statistics
from wordsway.figures import _style as style
from wordsway.models import load

if TYPE_CHECKING:
    from wordsway.maps import Attention
    from wordsway.models import Model

ENCODER, _ENCODER_LAYERS = "minilm", 6
_DECODERS: tuple[Any, ...] = (("gpt2-random", True, (0, 6, 11)), ("smollm2", True, (0, 15, 29)))
_SHOWN = 6  # layers of a model that was chosen
_TOLERANCE = 0.1  # how far an exponent may be from that of the source
_ROUNDING = 1e-9  # of fitted exponents


def blocks(config: RunConfig) -> list[dict[str, Any]]:
    """Return the encoder's layers, masked and not, and some of two decoders, or some of the configuration's model."""
    if config.model is None:
        chosen: list[Any] = [
            (ENCODER, False, range(_ENCODER_LAYERS)),
            (ENCODER, True, range(_ENCODER_LAYERS)),
            *_DECODERS,
        ]
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


def published_blocks(config: RunConfig, heads: int = 1) -> list[dict[str, Any]]:
    """Return the layers of the published runs, masked and not: the first and the middle one of a BERT encoder.

    None of other models, nor of one with fewer than `heads` heads.
    """
    name, count = config.model or ENCODER, _ENCODER_LAYERS
    if config.model is not None:
        model = load(name)
        settings = model.network.config
        if model.causal or settings.model_type != "bert" or settings.num_attention_heads < heads:
            return []
        count = model.layers
    layers = (0, count // 2)
    return [{"model": name, "causal": causal, "layer": layer} for causal in (False, True) for layer in layers]


def published_number(layer: Callable[[Tensor], Tensor], context: Tensor) -> float:
    """Return |D_X f^T f(X)|^(1/2), to which the published iteration converges.

    It takes the first output of `torch.func.jvp`, which is f(X), for the product D_X f u. |f(X)| grows like n^(1/2)
    where words keep their norms, so that this number grows like n^(1/4) if D_X f^T acts on f(X) alike at every length.
    """
    with torch.enable_grad():
        moving = context.detach().requires_grad_(True)
        features = layer(moving)
        (pulled,) = torch.autograd.grad(features, moving, features.detach())
    return math.sqrt(float(torch.linalg.vector_norm(pulled)))


def table(results: Sequence[TrialResult]) -> Table:
    """Return one row per curve and length; curves of the published protocol are in panels of their own."""
    rows: Table = []
    for point, trials in points(results, "model", "causal", "layer", "protocol", "n"):
        own = point["model"] != ENCODER and not point["protocol"]  # the model's own mask
        parts = (point["model"], "masked" if point["causal"] and not own else "", point["protocol"])
        place = {"panel": ", ".join(filter(None, parts)), "n": point["n"]}
        known = {key: trials[0][key] for key in ("upper", "rotary") if key in trials[0]}
        known["converged"] = sum(row["status"] == "converged" for row in trials)
        for column, label in (("lipschitz", ""), ("published", ", number of the script")):
            if column in trials[0]:
                curve = {"curve": f"layer {point['layer']}{label}", "constant": column == "lipschitz"}
                values = statistics([row[column] for row in trials], "mean", "deviation", "least", "most")
                rows.append({**place, **curve, **values, **known})
    return rows


def constants(table: Table) -> Table:
    """Return the rows of Lipschitz constants: the number of the published script is none."""
    return [row for row in table if row["constant"]]


@dataclass(frozen=True)
class Growth:
    """The exponent of y ~ n^exponent with a 95% interval of this half-width; None where nothing is known of it."""

    exponent: float
    half_width: float | None

    def near(self, target: float) -> bool:
        return abs(self.exponent - target) <= _TOLERANCE

    def includes(self, value: float) -> bool:
        """Whether the interval is known and has a value in it."""
        return self.half_width is not None and abs(self.exponent - value) <= self.half_width + _ROUNDING

    def __str__(self) -> str:
        if self.half_width is None:
            return f"{self.exponent:.2f}"
        return f"{self.exponent:.2f} ({self.exponent - self.half_width:.2f} to {self.exponent + self.half_width:.2f})"


def growth(rows: Points) -> Growth | None:
    """Fit the exponent of the means of one layer.

    Its interval is that of the draw of texts, by the deviations over trials and a quantile of Student's distribution;
    without several trials there is none. Residuals are no part of it: they tell that there is no power law, which a
    comparison of shorter with longer contexts shows better.
    """
    law = power_law(rows, "n", "mean")
    if law is None:
        return None
    trials = min(row["trials"] for row in rows)
    if trials < 2:
        return Growth(law.exponent, None)
    from scipy.stats import t

    logs = np.log([row["n"] for row in rows])
    weights = (logs - logs.mean()) / ((logs - logs.mean()) ** 2).sum()
    errors = [row["deviation"] / row["mean"] / math.sqrt(row["trials"]) for row in rows]
    return Growth(law.exponent, math.hypot(*(weights * errors)) * float(t.ppf(0.975, trials - 1)))


def layers_grow(name: str, rows: Table, target: float, law: str, rivals: Sequence[float], source: str) -> list[Verdict]:
    """Judge for each layer that its constant grows like n^target, also in shorter and in longer contexts alone.

    Nothing can be told where the interval of the exponent has both the target and one of its `rivals`, other rates
    that the source speaks of, and both halves may have the exponent of the target. An exponent beyond the tolerance
    does not hold. One within it is weaker than the source where its interval excludes the target, or where one of the
    halves has another exponent: there is no single power.
    """
    verdicts = []
    for (curve,), members in curves(rows, "curve").items():
        claim = f"{name}, {curve}: grows like {law}, exponent {target:g} +- {_TOLERANCE:g}"
        whole, ordered = growth(members), sorted(members, key=lambda row: int(row["n"]))
        middle = ordered[(len(ordered) - 1) // 2]["n"]
        short = growth([row for row in ordered if row["n"] <= middle])
        long = growth([row for row in ordered if row["n"] >= middle])
        if whole is None or short is None or long is None:
            verdicts.append(Verdict(claim, TOO_FEW, None, source=source))
            continue
        measured = f"{whole}; {short} up to n = {middle}, {long} from there on"
        single = all(own.near(target) or own.includes(target) for own in (short, long))
        if single and whole.includes(target) and any(whole.includes(rival) for rival in rivals):
            verdicts.append(Verdict(claim, f"{measured}: the interval is too wide", None, source=source))
            continue
        how = ""
        if whole.near(target):
            excluded = whole.half_width is not None and not whole.includes(target)
            how = "no single power of n" if not single else f"the interval excludes {target:g}" if excluded else ""
        verdicts.append(Verdict(claim, measured, whole.near(target) and not how, weaker=how, source=source))
    return verdicts


def layers_grow_slowly(name: str, rows: Table, target: float, law: str) -> list[Verdict]:
    """Judge for each layer that its constant grows no faster than n^target."""
    verdicts = []
    for (curve,), members in curves(rows, "curve").items():
        claim = f"{name}, {curve}: grows no faster than {law}, exponent at most {target:g}"
        own = growth(members)
        verdicts.append(
            Verdict(claim, TOO_FEW, None)
            if own is None
            else Verdict(claim, str(own), own.exponent <= target + _ROUNDING)
        )
    return verdicts


def converged(rows: Table) -> Verdict:
    """Check that every constant has a residual below the tolerance."""
    return check(
        count_of("every constant converged to a residual of 1e-4 of it", constants(rows), "converged", every=True)
    )


def plot(rows: Table, figure: style.Figure, power: float, label: str) -> None:
    """Draw a panel for each model, a curve for each layer, and the power of n through the middle of them.

    A model with and without a mask is on one scale.
    """
    compared: dict[str, list[style.Axes]] = {}
    for axes, (panel,), members in style.panels(figure, rows, ["panel"], columns=2):
        compared.setdefault(panel.replace(", masked", ""), []).append(axes)
        style.lines(axes, members, "curve", "{}")
        style.law(axes, members, lambda n: n**power, label)
        lengths = sorted({row["n"] for row in members})
        style.finish(axes, "context length n", "local Lipschitz constant", lengths, logarithmic=True)
    for group in compared.values():
        style.common_scale(group)


def estimate(parameters: Parameters, speed: float = 8e10) -> Estimate:
    """Estimate one trial: the layers below on one text, and some 30 products of O(n^2 d + n d^2).

    Constants are CPU seconds that were measured on layers of the models at 2 to 240 words: 8e10 operations per second
    in closed form, 2.8e10 by automatic differentiation with the residual and the norm.
    """
    big = parameters["model"] != ENCODER
    n, d = parameters["n"], 768 if big else 384
    start, rate = (0.05, 2.8e10) if "protocol" in parameters else (0.025, speed)
    below = 2e-11 * n * 12 * d**2 * parameters["layer"]
    seconds = start + below + 30 * 8 * (n**2 * d + n * d**2) / rate
    return Estimate(seconds, (14 if big else 6) * 10**8 + 40 * n**2)


experiment = partial(Experiment, table=table, estimate=estimate, version=3)
