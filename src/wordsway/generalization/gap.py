"""How far one word moves the prediction of a re-trained model: O(sqrt(N / n)) for random features (appendix E)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from wordsway.checks import check_radius, check_word
from wordsway.generalization.interpolator import Interpolator, check_labels, features_of
from wordsway.generalization.losses import Array
from wordsway.generalization.samples import check_label, check_samples
from wordsway.maps import FeatureMap, respond
from wordsway.memory import ResourceUsage
from wordsway.records import Record, bars
from wordsway.seeds import generator, normal
from wordsway.sensitivity.records import status
from wordsway.sensitivity.search import SearchBudget, maximise

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, repr=False)
class PredictionGap(Record):
    """max over Delta of |f(X^i(Delta), theta_r) - f(X, theta_r)|: `value` <= it <= `ceiling`.

    Attributes
    ----------
    value : float
        The gap at the witness: a lower bound.
    ceiling : float or None
        (143): |phi(X^i(Delta)) - phi(X)| bounded over the ball, times sqrt(N + 1) / sqrt(lambda_min(K_r)).
    delta : Tensor (d,)
        The witness.
    lambda_min : float
        Of the kernel K_r of all N + 1 samples.
    status : str
        "converged", or why the search stopped.
    """

    value: float
    ceiling: float | None
    delta: Tensor
    lambda_min: float
    status: str
    cost: ResourceUsage

    json_names: ClassVar = {"value": "gap"}

    def draw(self, ax: Axes) -> None:
        """Draw the gap and its upper bound on a logarithmic axis."""
        bars(ax, {"gap": self.value, "ceiling": self.ceiling}, logarithmic=True)


def prediction_gap(
    phi: FeatureMap,
    contexts: Any,
    labels: Any,
    X: Any,
    y: float,
    word: int = 0,
    *,
    radius: float | None = None,
    seed: int = 0,
) -> PredictionGap:
    """How far one word can move what a model says of X, after it was trained on X too.

    Parameters are those of `one_word_generalization`. Cost: that of the kernel, then about 60 functionals of the
    response.
    """
    context, samples = check_samples(contexts, X)
    label, values = check_label(y), check_labels(labels, len(samples))
    position = check_word(len(context), word)
    r = check_radius(radius, context.shape[1])
    with ResourceUsage() as usage:
        model = Interpolator(features_of(phi, samples), values)
        with torch.no_grad():
            own = phi(context).to(torch.float64)
        theta = model.retrain(own, label)
        before = float(own.reshape(-1) @ theta)
        lambda_min = model.with_sample(own)
        response = respond(phi, context, position)
        hints = response.hints
        response = response if hints.prepare is None else hints.prepare()
        functional = response.inner(theta.reshape(own.shape))

        def objective(point: Array, gradient: bool) -> tuple[Array, Array | None]:
            value, grad = functional(hints.cast(torch.from_numpy(np.ascontiguousarray(point[:, 0, 0]))))
            gap = value.numpy() - before
            gradients = np.zeros_like(point[:, 0, 0]) if grad is None else grad.numpy()
            return np.abs(gap)[:, None], (np.sign(gap)[:, None] * gradients)[:, None, None]

        found = maximise(
            objective, _starts(functional, hints.cast(context), seed), r, SearchBudget(power=3, screen=8, polish=24)
        )
        bound = response.ceiling(r, "quick")
    ceiling = None
    if bound is not None and lambda_min > 0:
        ceiling = float(bound.value) * float(own.norm()) * math.sqrt((len(samples) + 1) / lambda_min)
    cost = usage.computed_in(hints.dtype, hints.device, found.evaluations)
    ended = status(bool(found.converged[0]))
    return PredictionGap(float(found.value[0]), ceiling, torch.from_numpy(found.delta[0, 0]), lambda_min, ended, cost)


def _starts(functional: Any, context: Tensor, seed: int) -> Array:
    """Both signs of the steepest direction at 0, and a random one: the prediction is nearly linear in Delta."""
    d = context.shape[1]
    _, grad = functional(context.new_zeros(1, d))
    random = normal(generator(seed, "gap starts"), (1, d))
    return np.asarray(torch.cat([grad, -grad, random]).numpy()[:, None, None])
