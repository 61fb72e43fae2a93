"""Activations agree with plain formulas, autograd and an independent quadrature."""

import dataclasses
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, special
from torch import Tensor

from wordsway.activations import ACTIVATIONS, Activation, activation
from wordsway.contexts import gaussian_context
from wordsway.errors import InputError, NumericalError
from wordsway.kernels.features import FeatureFormulas
from wordsway.maps import random_feature_response
from wordsway.seeds import generator, normal

NAMES = list(ACTIVATIONS)
# phi and phi' without torch: the twins that the package is compared with.
PLAIN: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "relu": (lambda x: np.maximum(x, 0), lambda x: np.where(x > 0, 1.0, 0.0)),
    "tanh": (np.tanh, lambda x: 1 / np.cosh(x) ** 2),
    "gelu": (
        lambda x: x * special.erfc(-x / math.sqrt(2)) / 2,
        lambda x: special.erfc(-x / math.sqrt(2)) / 2 + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi),
    ),
    "softplus": (lambda x: np.logaddexp(x, 0), special.expit),
    "cos": (np.cos, lambda x: -np.sin(x)),
    "square": (lambda x: x * x / 2, lambda x: x),
    "identity": (lambda x: x, lambda x: np.ones_like(x)),
    "sigmoid": (special.expit, lambda x: special.expit(x) * special.expit(-x)),
}


def gaussian_mean(f: Callable[[float], Any], variance: float = 1.0) -> float:
    s = math.sqrt(variance)

    def integrand(z: float) -> float:
        return float(f(s * z)) * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)

    pieces = [(-14, -1), (-1, 0), (0, 1), (1, 14)]
    return math.fsum(integrate.quad(integrand, a, b, epsabs=1e-14, epsrel=1e-13, limit=200)[0] for a, b in pieces)


def points(dtype: torch.dtype = torch.float64) -> Tensor:
    return 8 * normal(generator(0, "test"), 500, dtype)


def message(call: Callable[[], Any]) -> str:
    with pytest.raises(NumericalError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def cubic(factor: float = 1.0) -> Activation:
    return Activation(
        "cubic", lambda x: factor * x**3 / 3, lambda x: factor * x**2, lambda x: 2 * factor * x, math.inf, "odd"
    )


def leaky(kink: float = 0.0, below: float | Tensor = 0.1, size: float = 1.0, **changes: Any) -> Activation:
    """A line with derivative `below` below the kink and 1 above, times a size."""

    def slope(x: Tensor) -> Tensor:
        return torch.where(x > kink, 1.0, torch.as_tensor(below)).to(x.dtype)

    parts: dict[str, Any] = {"lipschitz": size, "kinks": (kink,) if kink else ()}
    return Activation(
        "leaky",
        lambda x: size * slope(x) * (x - kink),
        lambda x: size * slope(x),
        torch.zeros_like,
        **(parts | changes),
    )


@pytest.mark.parametrize("name", NAMES)
class TestKnown:
    def test_phi_and_derivative_are_the_plain_formulas(self, name: str) -> None:
        phi, x = activation(name), points()
        for ours, plain in zip((phi.phi, phi.derivative), PLAIN[name], strict=True):
            assert np.allclose(ours(x).numpy(), plain(x.numpy()), rtol=1e-13, atol=1e-15)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_derivatives_are_those_of_autograd(self, name: str, dtype: torch.dtype) -> None:
        phi, x = activation(name), points(dtype).requires_grad_()
        (derivative,) = torch.autograd.grad(phi(x).sum(), x, create_graph=True)
        rtol, atol = (1e-5, 1e-6) if dtype == torch.float32 else (1e-11, 1e-14)
        assert torch.allclose(phi.derivative(x), derivative, rtol=rtol, atol=atol)
        for slope in (derivative, phi.derivative(x)):
            if slope.requires_grad:
                (curvature,) = torch.autograd.grad(slope.sum(), x, retain_graph=True)
                assert torch.allclose(phi.curvature(x), curvature, rtol=rtol, atol=atol)
            else:  # phi is linear on each piece
                assert not phi.curvature(x).any()

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_large_arguments(self, name: str, dtype: torch.dtype) -> None:
        phi, top = activation(name), 37 if dtype == torch.float32 else 307
        top //= 2 if name == "square" else 1  # only the square itself may overflow
        x = torch.tensor([sign * 10.0**power for power in range(top) for sign in (-1, 1)], dtype=dtype).requires_grad_()
        for part in (phi, phi.derivative, phi.curvature):
            values = part(x)
            assert torch.isfinite(values).all()
            if values.requires_grad:
                assert torch.isfinite(torch.autograd.grad(values.sum(), x)[0]).all()
        assert (phi.derivative(x).abs() <= phi.lipschitz * (1 + 1e-6)).all()

    @pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3, 4)])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_shape_and_dtype_are_kept_and_the_argument_is_not_changed(
        self, name: str, shape: tuple[int, ...], dtype: torch.dtype
    ) -> None:
        phi, x = activation(name), torch.full(shape, 0.7, dtype=dtype)
        for part in (phi, phi.derivative, phi.curvature):
            values = part(x)
            assert values.shape == shape
            assert values.dtype == dtype
            values += 1  # what is returned must not be the argument
            assert (x == torch.tensor(0.7, dtype=dtype)).all()

    def test_lipschitz_is_attained_and_never_exceeded(self, name: str) -> None:
        phi = activation(name)
        steepest = phi.derivative(torch.linspace(-20, 20, 400_001, dtype=torch.float64)).abs().max().item()
        if math.isinf(phi.lipschitz):
            assert phi.derivative(torch.tensor(1e6, dtype=torch.float64)) > 1e5
        else:
            assert steepest <= phi.lipschitz * (1 + 1e-15)
            assert steepest == pytest.approx(phi.lipschitz, rel=1e-6)

    def test_parity(self, name: str) -> None:
        phi, x = activation(name), points()
        even, odd = (torch.allclose(phi(-x), sign * phi(x), rtol=1e-14, atol=0) for sign in (1, -1))
        assert phi.parity == ("even" if even else "odd" if odd else None)

    def test_mean_derivative(self, name: str) -> None:
        assert activation(name).mean_derivative == pytest.approx(gaussian_mean(PLAIN[name][1]), abs=1e-12)
        again = dataclasses.replace(activation(name), mean_derivative=math.nan)
        assert again.mean_derivative == pytest.approx(activation(name).mean_derivative, abs=1e-13)

    @pytest.mark.parametrize("variance", [0.01, 1.0, 7.0])
    def test_second_moment(self, name: str, variance: float) -> None:
        expected = gaussian_mean(lambda x: PLAIN[name][0](x) ** 2, variance)
        assert activation(name).second_moment(variance) == pytest.approx(expected, rel=1e-12)
        assert activation(name).second_moment(0) == PLAIN[name][0](np.float64(0)) ** 2

    def test_he_scale_solves_equation_7(self, name: str) -> None:
        phi = activation(name)
        if name in ("tanh", "cos", "sigmoid"):
            text = message(phi.he_scale)
            assert text.startswith(f"{name} has no He scale: E phi(rho)^2 stays below 1 for variances from 2^-60 to 2^")
            assert text.endswith("identity, or rescale it in a custom Activation")
        else:
            beta = phi.he_scale()
            assert abs(gaussian_mean(lambda x: PLAIN[name][0](x) ** 2, beta) - 1) < 1e-10
            assert dataclasses.replace(phi, beta=None).he_scale() == pytest.approx(beta, rel=1e-12)

    def test_activations_are_frozen_and_can_be_pickled(self, name: str) -> None:
        phi = activation(name)
        assert pickle.loads(pickle.dumps(phi)) == phi
        assert repr(phi) == f"Activation({name!r})"
        with pytest.raises(dataclasses.FrozenInstanceError):
            phi.lipschitz = 2.0  # type: ignore[misc]


def test_closed_forms() -> None:
    assert activation("relu").he_scale() == 2
    assert activation("identity").he_scale() == 1
    assert activation("gelu").lipschitz == pytest.approx(1.1289041451851550, abs=1e-12)
    assert float(activation("relu").derivative(torch.zeros(()))) == 0


def test_tails_keep_their_relative_accuracy() -> None:
    x = torch.tensor([-30.0, -20.0], dtype=torch.float64)
    tails = {
        "tanh": activation("tanh").derivative(x) / (4 * torch.exp(2 * x)),
        "sigmoid": activation("sigmoid").derivative(x) / torch.exp(x),
        "softplus": activation("softplus")(x) / torch.exp(x),
        "softplus above": (activation("softplus")(-x) + x) / torch.exp(x),
        "gelu": activation("gelu")(x) / (x * torch.from_numpy(special.ndtr(x.numpy()))),
    }
    for name, ratio in tails.items():
        rough = name == "softplus above"  # a difference of numbers near 20: six digits of its 2e-9 remain
        assert np.allclose(ratio[1:] if rough else ratio, 1, rtol=1e-6 if rough else 1e-8, atol=0), name


class TestCustom:
    def test_parameters_that_require_gradients(self) -> None:
        phi = leaky(below=torch.tensor(0.1, dtype=torch.float64, requires_grad=True))
        assert phi.mean_derivative == pytest.approx(0.55, rel=1e-13)
        assert phi.he_scale() == pytest.approx(2 / 1.01, rel=1e-12)

    @pytest.mark.parametrize("factor", [1e-6, 0.3, 1.0, 1e6])
    def test_means_are_computed(self, factor: float) -> None:
        phi = cubic(factor)
        assert activation(phi) is phi
        assert phi.mean_derivative == pytest.approx(factor, rel=1e-13)  # of E rho^2
        assert phi.he_scale() == pytest.approx((9 / 15 / factor**2) ** (1 / 3), rel=1e-12)  # E rho^6 = 15 beta^3

    def test_he_scale_where_the_moment_falls(self) -> None:
        c = 1.2
        phi = Activation(
            "1.2 cos", lambda x: c * torch.cos(x), lambda x: -c * torch.sin(x), lambda x: -c * torch.cos(x), c
        )
        assert phi.he_scale() == pytest.approx(-math.log(2 / c**2 - 1) / 2, rel=1e-12)

    def test_no_he_scale_above_or_at_1(self) -> None:
        above = Activation("x + 2", lambda x: x + 2, torch.ones_like, torch.zeros_like, 1.0)
        assert "E phi(rho)^2 stays above 1 for variances from 2^-60 to 2^60" in message(above.he_scale)
        one = Activation("one", torch.ones_like, torch.zeros_like, torch.zeros_like, 1.0)
        assert "E phi(rho)^2 stays at 1 for" in message(one.he_scale)

    def test_a_moment_that_jumps_over_1_is_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Activation, "second_moment", lambda _, variance: 0.5 if variance < 1.3 else 2.0)
        assert message(cubic().he_scale) == (
            "the He scale of cubic was not found near 1.3: E phi(rho)^2 is too steep or too rough"
        )

    def test_kinks_are_integrated_exactly(self) -> None:
        c, v = 0.7, 2.5
        phi, s = leaky(c, 0.0), math.sqrt(v)
        assert phi.mean_derivative == pytest.approx(special.ndtr(-c), rel=1e-13)
        density = math.exp(-c * c / v / 2) / math.sqrt(2 * math.pi)
        assert phi.second_moment(v) == pytest.approx((v + c * c) * special.ndtr(-c / s) - c * s * density, rel=1e-12)
        assert abs(phi.second_moment(phi.he_scale()) - 1) < 1e-12

    def test_kinks_that_are_not_listed_are_noticed(self) -> None:
        assert message(lambda: leaky(0.7, 0.0, kinks=())) == (
            "a Gaussian mean of leaky did not settle to 1e-13 at variance 1: "
            "name the points where its derivatives jump as kinks, or use a smaller variance"
        )
        given = leaky(0.7, 0.0, kinks=(), mean_derivative=0.25)
        assert given.mean_derivative == 0.25
        assert "cannot be integrated beyond: name its kinks" in message(given.he_scale)


@pytest.mark.parametrize("kink", [0.0, 1.5, -300.0])
@pytest.mark.parametrize("size", [1.0, 1e-12])
def test_a_jump_of_the_derivative_is_nonsmooth(kink: float, size: float) -> None:
    assert leaky(kink, size=size).nonsmooth


def test_a_jump_of_the_curvature_is_smooth() -> None:
    half = Activation(
        "half",
        lambda x: torch.relu(x) ** 2 / 2 + torch.relu(x - 1) ** 2 / 2,
        lambda x: torch.relu(x) + torch.relu(x - 1),
        lambda x: (x > 0).to(x.dtype) + (x > 1).to(x.dtype),
        lipschitz=math.inf,
        kinks=(1.0,),
    )
    assert not half.nonsmooth


@pytest.mark.parametrize("name", NAMES)
def test_only_relu_is_nonsmooth(name: str) -> None:
    assert activation(name).nonsmooth == (name == "relu")
    response = random_feature_response(gaussian_context(3, 2), k=8, activation=name)
    assert response.hints.nonsmooth == (name == "relu")
    if name == "relu":
        with pytest.raises(InputError, match=r"needs phi'', which relu does not have"):
            FeatureFormulas("ntk", name)
    else:
        FeatureFormulas("ntk", name)


def test_custom_nonsmooth_activations_are_treated_as_such() -> None:
    assert random_feature_response(gaussian_context(3, 2), k=8, activation=leaky()).hints.nonsmooth
    with pytest.raises(InputError, match=r"needs phi'', which leaky does not have"):
        FeatureFormulas("ntk", leaky())
