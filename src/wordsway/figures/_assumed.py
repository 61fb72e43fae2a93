"""What the theorems behind the figures on tangent kernels and on smoothness assume: one function of trials per figure.

`wordsway.sensitivity.assumptions` has those on feature maps and on robust features. Other figures are about
measurements and have none: no theorem states the n^(1/4) of smooth-real.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from scipy.special import lambertw

from wordsway.activations import ACTIVATIONS
from wordsway.experiments import TrialResult
from wordsway.sensitivity import Assumption, Assumptions

_WIDE = "slides, minimum over-parameterization"
_ONE_WIDE = "slides, one wide layer"
_FLOW = "slides, gradient flow"
_WORST = "poster, contribution 1"
_MEAN_FIELD = "poster, contribution 3"


def wide_enough(results: Sequence[TrialResult], activation: str = "tanh") -> Iterator[Assumptions]:
    """Yield those of ntk-lambda, ntk-loss and ntk-chain: networks of equal widths.

    Omega~(sqrt(N)) neurons per layer are compared with the constant 1 and without logarithms.
    """
    settings = {(one["samples"], one["width"], one.parameters.get("data", "gaussian")): None for one in results}
    for samples, width, data in settings:
        law = "independent Gaussian inputs" if data == "gaussian" else f"law of {data}"
        checks = (
            Assumption(_WIDE, "width = Omega~(sqrt(N))", "sqrt(N)", "width", math.sqrt(samples), float(width)),
            Assumption(_WIDE, "pyramidal topology", "equal widths", certain=True),
            Assumption(_WIDE, "phi is smooth", activation, certain=not ACTIVATIONS[activation].nonsmooth),
            Assumption(_WIDE, "concentrated i.i.d. inputs", law, certain=True if data == "gaussian" else None),
        )
        yield Assumptions("ntk", None, width, checks)


def one_wide_layer(results: Sequence[TrialResult]) -> Iterator[Assumptions]:
    """Yield those of ntk-pyramid: a wide layer and a `tail` of narrower ones, with the activation tanh."""
    for samples, width, tail in {(one["samples"], one["width"], one["tail"]): None for one in results}:
        widths = [width, *map(int, tail.split())]
        narrows = widths == sorted(widths, reverse=True)
        checks = (
            Assumption(_ONE_WIDE, "width = Omega(N)", "N", "width", float(samples), float(width)),
            Assumption(_ONE_WIDE, "pyramidal topology", f"tail {tail}", certain=narrows),
            Assumption(_ONE_WIDE, "phi is smooth", "tanh", certain=True),
        )
        yield Assumptions("ntk", None, None, checks)


def along_flow(results: Sequence[TrialResult], d: int) -> Iterator[Assumptions]:
    """Yield those of ntk-flow: networks of three weights, whose kernel may fall to a quarter for the bound to hold."""
    for one in results:
        parameters, smallest = one["width"] * (d + one["width"] + 1), one["lambda_min"]
        checks = (
            Assumption(_FLOW, "p >> N", "N", "p", float(one["samples"]), float(parameters)),
            Assumption(_FLOW, "K is positive definite", "rounding", "lambda_min(K(0))", one["floor"], smallest[0]),
            Assumption(
                _FLOW,
                "f stays near its linearisation",
                "lambda_min(K(0)) / 4",
                "the least lambda_min(K(t))",
                smallest[0] / 4,
                min(smallest),
            ),
        )
        yield Assumptions("ntk", None, d, checks)


def at_adversarial(results: Sequence[TrialResult]) -> Iterator[Assumptions]:
    """Yield those of smooth-adversarial: the lower bound grows like sqrt(n) up to n = exp(2 gamma R^2)."""
    for one in results:
        if not one["rotary"]:  # others are not judged
            log = math.log(one["n"])
            checks = (
                Assumption(_WORST, "V = I, one head", "heads and projections of a model", certain=False),
                Assumption(_WORST, "n = O(exp(2 gamma R^2))", "log n", "2 gamma R^2", log, one["exponent"]),
            )
            yield Assumptions("attention", one["n"], None, checks)


def between_bounds(results: Sequence[TrialResult]) -> Iterator[Assumptions]:
    """Yield those of smooth-bounds: the lower bounds are judged where they apply."""
    for one in results:
        applies = one["first_word"] is not None
        checks = (
            Assumption(_WORST, "words in B_R", "their norm, or that of the layer's normalisation", certain=True),
            Assumption(_WORST, "V = I, one head, A has a real eigenvalue", one["panel"], certain=applies),
        )
        yield Assumptions("attention", one["n"], None, checks)


def mean_field(results: Sequence[TrialResult]) -> Iterator[Assumptions]:
    """Yield those of meanfield, with gamma R^2 = x from the lower bound (x / 2) exp(x), which holds for large R."""
    for one in results:
        checks = (
            Assumption(_MEAN_FIELD, "V = I", "values are the words themselves", certain=True),
            Assumption(
                _MEAN_FIELD, "R is large", "a constant", "gamma R^2", 1.0, float(lambertw(2 * one["lower"]).real)
            ),
        )
        yield Assumptions("attention", None, one["d"], checks)
