"""Activations: phi, phi', phi'', Lipschitz constant, parity, mean derivative, and the He scale beta of equation (7)."""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from wordsway.checks import check_positive
from wordsway.errors import InputError, NumericalError, nearest

Elementwise: TypeAlias = Callable[[Tensor], Tensor]

_ROOT_2_PI = math.sqrt(2 * math.pi)
_POINTS, _WEIGHTS = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(16))  # Gauss-Legendre
_POINTS, _WEIGHTS = (1 + _POINTS) / 2, _WEIGHTS / 2  # moved from [-1, 1] to [0, 1]
_TOLERANCE = 1e-13  # of a quadrature, relative to the integral of the absolute value


@dataclass(frozen=True, repr=False)
class Activation:
    """An activation phi, applied to each entry of a tensor, with the constants that the theory needs.

    Call it for phi(x). All three functions keep shape, dtype (float32 or float64) and device, and autograd can
    differentiate them wherever they are smooth.

    Parameters
    ----------
    name
        The name in results and errors.
    phi, derivative, curvature
        phi, phi' and phi''. Where phi' jumps, derivative is either one-sided value and curvature that of either side.
    lipschitz
        max |phi'|, or inf if phi' is not bounded.
    parity
        "even" if phi(-x) = phi(x), "odd" if phi(-x) = -phi(x), None for neither.
    kinks
        Points other than 0 where phi' or phi'' jumps: quadrature is exact only on smooth pieces.
    mean_derivative
        E phi'(rho) for rho ~ N(0, 1). Default: computed to 1e-13.
    beta
        The He scale, if a closed form is known; see `he_scale`.

    Raises
    ------
    InputError
        On construction, if shapes or dtypes are not kept, a value is not finite, a derivative does not match its
        function, |phi'| exceeds `lipschitz`, or phi does not have `parity` (tested at points in [-4, 4]).
    """

    name: str
    phi: Elementwise
    derivative: Elementwise
    curvature: Elementwise
    lipschitz: float
    parity: Literal["even", "odd"] | None = None
    kinks: tuple[float, ...] = ()
    mean_derivative: float = math.nan
    beta: float | None = None

    def __post_init__(self) -> None:
        _check(self)
        if math.isnan(self.mean_derivative):
            object.__setattr__(self, "mean_derivative", _expect(self.derivative, 1.0, self))

    def __call__(self, x: Tensor) -> Tensor:
        """Return phi(x), entry by entry."""
        return self.phi(x)

    def __repr__(self) -> str:
        return f"Activation({self.name!r})"

    @property
    def nonsmooth(self) -> bool:
        """Whether phi' jumps, at 0 or at any of the `kinks`."""
        points = torch.tensor([0.0, *self.kinks], dtype=torch.float64, device="cpu")
        step = 1e-9 * points.abs().clamp_min(1)
        below, above = self.derivative(points - step), self.derivative(points + step)
        scale = self.derivative(_sample()).abs().max()  # of phi', so that a small phi may jump too
        return bool(((above - below).abs() > 1e-6 * torch.maximum(scale, above.abs() + below.abs())).any())

    def second_moment(self, variance: float) -> float:
        """Return E phi(rho)^2 for rho ~ N(0, variance) to 1e-13; a millisecond, or more where phi oscillates."""
        if not (math.isfinite(variance) and variance >= 0):
            raise InputError(f"variance must be a finite number >= 0, got {variance}")
        return _expect(lambda x: self.phi(x) ** 2, math.sqrt(variance), self)

    def he_scale(self) -> float:
        """Return the beta > 0 of equation (7): E phi(rho)^2 = 1 for rho ~ N(0, beta).

        With it, deep random features keep the size of their input from layer to layer. A closed form is used if it is
        given (relu 2, identity 1); otherwise variances from 2^-60 to 2^60 are scanned in factors of 4 and the first
        crossing of 1 is solved to rounding. That takes tens of milliseconds, once per activation.

        Raises
        ------
        NumericalError
            If there is no solution, as for activations bounded by 1.
        """
        return _solve_he(self) if self.beta is None else self.beta


def activation(name: str | Activation) -> Activation:
    """Return the activation of that name; an `Activation` is returned as it is.

    The names are relu, tanh, gelu (exact, with erf), softplus, cos, square (x^2 / 2), identity and sigmoid.
    """
    if isinstance(name, Activation):
        return name
    known = ", ".join(ACTIVATIONS)
    if not isinstance(name, str):
        kind = type(name).__name__
        raise InputError(f"activation must be one of {known}, or a custom Activation, got {kind}")
    if name not in ACTIVATIONS:
        raise InputError(f"unknown activation {name!r}{nearest(name.lower(), ACTIVATIONS)}: known are {known}")
    return ACTIVATIONS[name]


@functools.lru_cache(maxsize=64)
def _solve_he(of: Activation) -> float:
    """Return the smallest variance at which E phi(rho)^2 crosses 1; touching 1, as cos does at 0, is no crossing."""
    from scipy.optimize import brentq  # only here: it takes longer to import than most commands to run

    side, low = 0, 0.0  # the last variance at which the moment was clearly on one side of 1
    reach = "2^60"
    for exponent in range(-60, 62, 2):
        variance = 2.0**exponent
        try:
            excess = of.second_moment(variance) - 1
        except NumericalError:  # from here on it oscillates too fast to be integrated, or has kinks that are not listed
            reach = f"2^{exponent - 2} (and cannot be integrated beyond: name its kinks if it has any)"
            break
        now = 0 if abs(excess) < 1e-12 else int(math.copysign(1, excess))
        if now * side < 0:
            beta = float(brentq(lambda v: of.second_moment(v) - 1, low, variance, xtol=1e-300, rtol=1e-15))
            if abs(of.second_moment(beta) - 1) > 1e-12:
                raise NumericalError(
                    f"the He scale of {of.name} was not found near {beta:.6g}: E phi(rho)^2 is too steep or too rough"
                )
            return beta
        side, low = (now, variance) if now else (side, low)
    stays = {-1: "below", 0: "at", 1: "above"}[side]
    raise NumericalError(
        f"{of.name} has no He scale: E phi(rho)^2 stays {stays} 1 for variances from 2^-60 to {reach}, so "
        "equation (7) fixes no beta: use relu, gelu, softplus, square or identity, or rescale it in a custom Activation"
    )


def _expect(f: Elementwise, deviation: float, of: Activation) -> float:
    """Return E f(rho), rho ~ N(0, deviation^2): Gauss-Legendre panels, halved until two results agree.

    Panels end at the kinks and shrink around 0 at the scale of f as well as at that of rho, so that a step that is
    narrow compared with the Gaussian is resolved at once.
    """
    if deviation == 0:
        return f(torch.zeros(1, dtype=torch.float64, device="cpu")).item()
    scales = [sign * 2.0**power / deviation for power in range(-6, 9) for sign in (-1, 1)]
    inner = [point for point in [*scales, *(kink / deviation for kink in of.kinks)] if abs(point) < 38]
    # Beyond 38 standard deviations the density is below the smallest number; from 14 on one panel is enough.
    edges = torch.tensor(sorted({-38, *range(-14, 15), 38, *inner}), dtype=torch.float64, device="cpu")
    before = math.inf
    for _ in range(7):
        width = edges.diff()[:, None]  # panels 1
        z = edges[:-1, None] + width * _POINTS  # panels 16
        terms = f(deviation * z) * _density(z) * (width * _WEIGHTS)  # panels 16
        now: float = terms.sum().item()
        if abs(now - before) <= _TOLERANCE * terms.abs().sum().item():
            return now
        before = now
        edges = torch.cat([edges, (edges[:-1] + edges[1:]) / 2]).sort().values
    raise NumericalError(
        f"a Gaussian mean of {of.name} did not settle to {_TOLERANCE:g} at variance {deviation**2:.4g}: "
        "name the points where its derivatives jump as kinks, or use a smaller variance"
    )


def _sample() -> Tensor:
    """Points in [-4, 4], irregular, so that no kink is likely to be hit."""
    return 4 * torch.sin(torch.arange(1, 65, dtype=torch.float64, device="cpu"))


def _check(of: Activation) -> None:
    """Raise if the parts of an activation do not fit together, before a measurement relies on them."""
    if not (isinstance(of.name, str) and of.name):
        raise InputError(f"name of an activation must be a word, got {of.name!r}")
    if of.parity not in ("even", "odd", None):
        raise InputError(f"parity must be 'even', 'odd' or None, got {of.parity!r}")
    if not (isinstance(of.lipschitz, int | float) and of.lipschitz > 0):
        raise InputError(f"lipschitz must be a number > 0 or inf, got {of.lipschitz}")
    if of.beta is not None:
        check_positive(of.beta, "beta")
    object.__setattr__(of, "kinks", tuple(of.kinks))
    x = _sample()
    for part in ("phi", "derivative", "curvature"):
        for dtype in (torch.float32, torch.float64):
            values = getattr(of, part)(x.to(dtype).reshape(8, 8))
            if values.shape != (8, 8) or values.dtype != dtype:
                got = f"{values.dtype} of shape {tuple(values.shape)} from {dtype} of shape (8, 8)"
                raise InputError(f"{part} of {of.name} must keep shape and dtype, got {got}")
            if not bool(torch.isfinite(values).all()):
                raise InputError(f"{part} of {of.name} must be finite on [-4, 4], got nan or inf")
    _check_derivative(of, x, "phi", "derivative")
    _check_derivative(of, x, "derivative", "curvature")
    steepest = of.derivative(x).abs().max().item()
    if steepest > of.lipschitz * (1 + 1e-9):
        got = f"{of.lipschitz} but |phi'| reaches {steepest:.6g}"
        raise InputError(f"lipschitz of {of.name} must be max |phi'|, got {got}")
    if of.parity is not None:
        mirrored = of.phi(-x) if of.parity == "even" else -of.phi(-x)
        if not torch.allclose(mirrored, of.phi(x), rtol=1e-9, atol=1e-9):
            raise InputError(f"parity of {of.name} must hold, got {of.parity!r} but phi is not: give None")


def _check_derivative(of: Activation, x: Tensor, function: str, derivative: str) -> None:
    """Compare a derivative with central differences; loosely, to catch wrong signs and factors."""
    step = 1e-5
    f, g = getattr(of, function), getattr(of, derivative)(x)
    error = ((f(x + step) - f(x - step)) / (2 * step) - g).abs()
    for kink in of.kinks:
        error = torch.where((x - kink).abs() < 2 * step, 0, error)
    if error.max().item() > 1e-3 * (1 + g.abs().max().item()):
        at = f"{x[error.argmax()].item():.4g}"
        raise InputError(f"{derivative} of {of.name} must be the derivative of its {function}, and is not at {at}")


# Named functions, not lambdas, so that activations can be pickled; each returns a new tensor.


def _density(x: Tensor) -> Tensor:
    return torch.exp(-(x**2) / 2) / _ROOT_2_PI


def _relu_derivative(x: Tensor) -> Tensor:
    return (x > 0).to(x.dtype)  # 0 at 0, as autograd has it


def _tanh_derivative(x: Tensor) -> Tensor:
    # 1 - tanh^2 would lose every digit from |x| = 19 on; 4 s(2x) s(-2x) with the sigmoid s loses none.
    return 4 * torch.sigmoid(2 * x) * torch.sigmoid(-2 * x)


def _tanh_curvature(x: Tensor) -> Tensor:
    return -2 * torch.tanh(x) * _tanh_derivative(x)


def _distribution(x: Tensor) -> Tensor:
    return torch.erfc(x * -math.sqrt(0.5)) / 2  # Phi(x); torch.special.ndtr is 0 already at x = -9


def _gelu(x: Tensor) -> Tensor:
    return x * _distribution(x)


def _gelu_derivative(x: Tensor) -> Tensor:
    near = x.clamp(-40, 40)  # the density is 0 beyond, and x^2 does not overflow
    return _distribution(x) + near * _density(near)


def _gelu_curvature(x: Tensor) -> Tensor:
    near = x.clamp(-40, 40)
    return (2 - near**2) * _density(near)


def _softplus(x: Tensor) -> Tensor:
    # log(1 + e^x); torch's own softplus switches to x at 20, which is 2e-9 off there.
    return -torch.nn.functional.logsigmoid(-x)


def _sigmoid_derivative(x: Tensor) -> Tensor:
    return torch.sigmoid(x) * torch.sigmoid(-x)


def _sigmoid_curvature(x: Tensor) -> Tensor:
    return -torch.tanh(x / 2) * _sigmoid_derivative(x)


def _minus_sin(x: Tensor) -> Tensor:
    return -torch.sin(x)


def _minus_cos(x: Tensor) -> Tensor:
    return -torch.cos(x)


def _half_square(x: Tensor) -> Tensor:
    return x**2 / 2


# max of Phi(x) + x p(x), p the density: its derivative (2 - x^2) p(x) vanishes at sqrt(2), where p = e^-1 / sqrt(2 pi).
_GELU_LIPSCHITZ = (1 + math.erf(1)) / 2 + math.sqrt(2) * math.exp(-1) / _ROOT_2_PI

# name, phi, phi', phi'', Lipschitz constant, parity, kinks, E phi' and beta. E phi' is 1/2 where phi' is 1/2 plus an
# odd function (Phi, the sigmoid), and 0 where phi' is odd.
_ALL = (
    Activation("relu", torch.relu, _relu_derivative, torch.zeros_like, 1.0, None, (), 0.5, 2.0),
    Activation("tanh", torch.tanh, _tanh_derivative, _tanh_curvature, 1.0, "odd"),
    Activation("gelu", _gelu, _gelu_derivative, _gelu_curvature, _GELU_LIPSCHITZ, None, (), 0.5),
    Activation("softplus", _softplus, torch.sigmoid, _sigmoid_derivative, 1.0, None, (), 0.5),
    Activation("cos", torch.cos, _minus_sin, _minus_cos, 1.0, "even", (), 0.0),
    Activation("square", _half_square, torch.clone, torch.ones_like, math.inf, "even", (), 0.0, 2 / math.sqrt(3)),
    Activation("identity", torch.clone, torch.ones_like, torch.zeros_like, 1.0, "odd", (), 1.0, 1.0),
    Activation("sigmoid", torch.sigmoid, _sigmoid_derivative, _sigmoid_curvature, 0.25),
)
ACTIVATIONS: Mapping[str, Activation] = MappingProxyType({item.name: item for item in _ALL})
