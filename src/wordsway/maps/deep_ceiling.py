"""Ceilings of (deep) random features with Gaussian weights: the proof is on the page "Certificates" of the docs.

A perturbed context changes the inputs of a layer by vectors u of a set that is far smaller than a ball: it is the image
of the d dimensions of one word. Comparison of Gaussian processes bounds what a fresh Gaussian matrix does with this set
from its radius sup |u| and its Gaussian width E sup <h, u>, where norms of matrices see the radius only. Everything is
conditioned on the pre-activations at the context itself, and on nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_MEAN_ABS = math.sqrt(2 / math.pi)  # E |g|
_MEAN_POSITIVE = _MEAN_ABS / 2  # E g_+
# Tuned at n = 80, d = 768 and depth 8, where half or twice of each raises the ceiling by up to 5%.
_CUTS = (1.0, math.inf)  # neurons nearer to their kink, in deviations of a change, count as linear; inf for large radii
_SHARE = 0.25  # of |a| that the adversarial part of a change must exceed to turn a far neuron on; the rest, the random
_MARGIN = 4.0  # deviations above the width, up to which the effect of that adversarial part is interpolated
_FAR = 40.0  # beyond it a Gaussian tail is below the smallest number
_SLACK = 1e-9  # relative, for rounding
_ROWS = 2**16  # pre-activations that are summed over at a time, so that temporary arrays stay in the cache


@dataclass(frozen=True)
class Perturbations:
    """A set of changes u of the input x of a layer.

    Attributes
    ----------
    radius, width, along
        Upper bounds on sup |u|, on E sup <h, u> for a Gaussian vector h, and on sup |<u, x>| / |x|.
    """

    radius: float
    width: float
    along: float


@dataclass(frozen=True)
class GaussianLayer:
    """A layer phi(V x) at the context itself: deviation of V's entries, |x|, and V x (k,) in float64."""

    scale: float
    input_norm: float
    preactivations: Tensor


@dataclass(frozen=True)
class _Step:
    """How a layer reduces E sup B |u'| + C <h, u'> over changes u' of its outputs to E sup B' |u| + C' <h', u>.

    Each field holds the factors of B and of C: B' is the product with `radius`, C' with `width`; `constant` is added,
    and `deviation` is the Lipschitz constant in the layer's Gaussian matrix.
    """

    radius: tuple[float, float]
    width: tuple[float, float]
    constant: tuple[float, float]
    deviation: tuple[float, float]


def gaussian_radii(
    layers: Sequence[GaussianLayer],
    inputs: Perturbations,
    lipschitz: float,
    rectified: bool,
    failure: float = 1e-9,
) -> list[float]:
    """Upper bounds on sup |phi(V_l (x + u)) - phi(V_l x)| over the inputs x + u of each layer l, all valid at once.

    Parameters
    ----------
    layers : sequence of GaussianLayer
        The forward pass of the context itself.
    inputs : Perturbations
        The changes of the first layer's input.
    lipschitz : float
        Lipschitz constant of the activation.
    rectified : bool
        Whether the activation is ReLU, of which inactive neurons hardly respond.
    failure : float
        Probability, given the pre-activations at the context, that any of the bounds is wrong.

    Notes
    -----
    A few passes over the k pre-activations of each layer.
    """
    # Every layer has a bound on its radius that may fail, and every layer but the last one on its width.
    t = math.sqrt(2 * math.log((2 * len(layers) - 1) / failure))
    steps: list[_Step] = []
    radii: list[float] = []
    current = inputs
    for layer in layers:
        steps.append(_best_step(layer, current, lipschitz, rectified))
        radius = _supremum(steps, inputs, t, 1.0, 0.0) * (1 + _SLACK)
        crude = radius * math.sqrt(len(layer.preactivations))
        width = min(_supremum(steps, inputs, t, 0.0, 1.0), crude) * (1 + _SLACK)
        radii.append(radius)
        current = Perturbations(radius, width, radius)
    return radii


def _supremum(steps: Sequence[_Step], inputs: Perturbations, t: float, B: float, C: float) -> float:
    """Bound E sup B |u| + C <h, u>, given the weights, over the last layer's outputs u: a mean and t deviations."""
    mean = variance = 0.0
    for step in reversed(steps):
        variance += (B * step.deviation[0] + C * step.deviation[1]) ** 2
        mean += B * step.constant[0] + C * step.constant[1]
        B, C = B * step.radius[0] + C * step.radius[1], B * step.width[0] + C * step.width[1]
    return mean + B * inputs.radius + C * inputs.width + t * math.sqrt(variance)


def _best_step(layer: GaussianLayer, of: Perturbations, lipschitz: float, rectified: bool) -> _Step:
    """The step that bounds the width best, among those of all cuts."""
    a = layer.preactivations
    if not rectified:
        return _step(layer, of, lipschitz, a, a[:0], a, a[:0])
    cuts = [cut * layer.scale * of.radius for cut in _CUTS]
    on, off = a[a > 0], -a[a <= 0]
    steps = [_step(layer, of, lipschitz, on, off, a[a > -cut], -a[a <= -cut]) for cut in cuts]
    return min(steps, key=lambda step: step.radius[1] * of.radius + step.width[1] * of.width + step.constant[1])


def _step(
    layer: GaussianLayer, of: Perturbations, lipschitz: float, on: Tensor, off: Tensor, near: Tensor, far: Tensor
) -> _Step:
    """One comparison: neurons are divided by their |a| into on and off in the norm |u'|, near and far in <h, u'>."""
    scale, rho = layer.scale, layer.scale * of.radius
    size = math.sqrt(max(len(near), 1))
    off_square = _excess(off, _threshold(layer, of, 1.0), rho)[1]
    far_mean, far_square = _excess(far, _threshold(layer, of, 1.0 - _SHARE), rho)
    turned = turned_square = 0.0
    for part in torch.split(far, _ROWS):
        c = (2 * _SHARE * size / (scale * (of.width + _MARGIN * of.radius)) * part).clamp_max(_FAR)
        tail = _tail(c)
        turned += float(tail.sum()) / (2 * size)
        turned_square += float(((3 + c.square()) * tail - c * _density(c)).clamp_min(0).sum())
    spread = math.sqrt(len(near) / 8) / size + math.sqrt(turned_square) / (4 * size)
    beyond = math.sqrt(math.pi / 2) * math.exp(-(_MARGIN**2) / 2) * len(far) / (4 * size)
    along = _ratio(layer, of) * float(torch.linalg.vector_norm(near))
    linear = _MEAN_POSITIVE * rho * math.sqrt(len(near)) + _MEAN_ABS * along
    constant = linear + math.sqrt(far_square / 8) + scale * of.width * spread + rho * beyond
    return _Step(
        radius=(
            lipschitz * math.sqrt(_linear_square(layer, of, on) + off_square) / of.radius,
            lipschitz * _MEAN_POSITIVE * far_mean / of.radius,
        ),
        width=(lipschitz * scale, lipschitz * scale * (size / 2 + len(near) / (2 * size) + turned)),
        constant=(lipschitz * rho / 2, lipschitz * constant),
        deviation=(lipschitz * rho, lipschitz * rho * (1 + math.sqrt(len(far) / 2))),
    )


def _ratio(layer: GaussianLayer, of: Perturbations) -> float:
    """The largest multiple of the pre-activations that a change adds to them; a zero input has zero ones."""
    return of.along / layer.input_norm if layer.input_norm > 0 else 0.0


def _linear_square(layer: GaussianLayer, of: Perturbations, a: Tensor) -> float:
    """Bound E sup |alpha a + rho g|^2 over the changes, g a Gaussian vector."""
    ratio, rho, unit = _ratio(layer, of), layer.scale * of.radius, (layer.scale * layer.input_norm) ** 2
    square = float(a.square().sum())
    excess = max(square - unit * len(a), 0.0) + unit * math.sqrt(len(a) / 2)
    return rho**2 * len(a) + ratio**2 * excess + 2 * ratio * rho * _MEAN_ABS * math.sqrt(square)


def _threshold(layer: GaussianLayer, of: Perturbations, share: float) -> float:
    """The multiple of |a| that rho g must exceed so that alpha a + rho g exceeds share |a|; may be negative."""
    if layer.input_norm == 0:
        return share
    left, relative = share - _ratio(layer, of), of.radius / layer.input_norm
    return max(left, math.sqrt(share**2 - relative**2)) if relative <= share else left


def _excess(a: Tensor, share: float, rho: float) -> tuple[float, float]:
    """Sums over x = share a of E (rho g - x)_+ and of E (rho g - x)_+^2."""
    first = second = 0.0
    for part in torch.split(a, _ROWS):
        y = (share / rho * part).clamp_max(_FAR)
        density, tail = _density(y), _tail(y)
        first += float((density - y * tail).clamp_min(0).sum())
        second += float(((1 + y.square()) * tail - y * density).clamp_min(0).sum())
    return rho * first, rho**2 * second


def _density(x: Tensor) -> Tensor:
    return torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi)


def _tail(x: Tensor) -> Tensor:
    """P(g > x)."""
    return torch.erfc(x * math.sqrt(0.5)) / 2
