"""Ceilings of random features with Gaussian weights, against dense layers, long searches and operator norms."""

import math

import pytest
import torch
from torch import Tensor

from maps.twins import normal
from wordsway import DeepRandomFeatures, RandomFeatures, gaussian_context, random_feature_response, respond
from wordsway.activations import ACTIVATIONS, Activation
from wordsway.maps import Response
from wordsway.maps.deep_ceiling import GaussianLayer, Perturbations, gaussian_radii
from wordsway.maps.layers import LayeredResponse
from wordsway.sensitivity import response_sensitivity


def _bounds(
    weights: list[Tensor], phi: Activation, scale: float, x: Tensor, ball: Perturbations
) -> tuple[list[Tensor], list[float]]:
    """Pre-activations of an input through dense layers, and the bounds on the mean change after each layer.

    A union bound that fails with certainty adds no deviations to the means, so that a wrong constant shows.
    """
    layers, hidden = [], x
    for weight in weights:
        layers.append(GaussianLayer(scale, float(hidden.norm()), weight @ hidden))
        hidden = phi(layers[-1].preactivations)
    radii = gaussian_radii(layers, ball, phi.lipschitz, phi is ACTIVATIONS["relu"], 2 * len(layers) - 1)
    return [layer.preactivations for layer in layers], radii


@pytest.mark.parametrize("name", ["relu", "identity"])
@pytest.mark.parametrize("d", [4, 60])
def test_bounds_are_just_above_the_norms_of_linear_layers(name: str, d: int) -> None:
    """Tiny changes see linear layers, of the active neurons only for ReLU: the supremum is an operator norm."""
    phi, k, depth, radius = ACTIVATIONS[name], 240, 3, 1e-7
    scale, x = math.sqrt(phi.he_scale() / k), torch.eye(k, dtype=torch.float64)[0]
    ball = Perturbations(radius, radius * math.sqrt(d), 0.0)  # in directions orthogonal to x
    exact, bounds = [], []
    for seed in range(8):
        weights = [normal(k, k, seed=100 * seed + layer) * scale for layer in range(depth)]
        at, radii = _bounds(weights, phi, scale, x, ball)
        product = torch.eye(k, dtype=torch.float64)[:, 1 : d + 1] * radius
        norms = []
        for weight, a in zip(weights, at, strict=True):
            product = phi.derivative(a)[:, None] * (weight @ product)
            norms.append(float(torch.linalg.matrix_norm(product, 2)))
        exact.append(norms)
        bounds.append(radii)
    suprema, above = torch.tensor(exact), torch.tensor(bounds)
    ratios = above.mean(0) / suprema.mean(0)
    assert bool((ratios >= 1).all())
    assert bool((ratios <= torch.tensor([1.1, 1.5, 2.1])).all())


@pytest.mark.parametrize("name", ["relu", "softplus", "gelu"])
@pytest.mark.parametrize("radius", [0.3, 1.0, 20.0])
def test_bounds_are_above_suprema_over_a_circle(name: str, radius: float) -> None:
    """Changes of any size in two directions, one of them partly along the input."""
    phi, k, depth, along = ACTIVATIONS[name], 400, 2, 0.6
    angles = torch.linspace(0, 2 * math.pi, 121, dtype=torch.float64)[:-1]
    scale, x = math.sqrt(phi.he_scale() / k), torch.eye(k, dtype=torch.float64)[0]
    circle = torch.zeros(k, 120, dtype=torch.float64)
    circle[:3] = radius * torch.stack([along * angles.cos(), math.sqrt(1 - along**2) * angles.cos(), angles.sin()])
    ball = Perturbations(radius, radius * math.sqrt(math.pi / 2), along * radius)
    suprema, bounds = [], []
    for seed in range(8):
        weights = [normal(k, k, seed=100 * seed + layer) * scale for layer in range(depth)]
        at, radii = _bounds(weights, phi, scale, x, ball)
        change = circle
        for weight, a in zip(weights, at, strict=True):
            change = phi(a[:, None] + weight @ change) - phi(a[:, None])
            suprema.append(float(change.norm(dim=0).max()))
        bounds.extend(radii)
    above, found = (torch.tensor(values).reshape(-1, depth).mean(0) for values in (bounds, suprema))
    assert bool((found <= above).all())


@pytest.mark.parametrize(
    ("n", "d", "k", "depth", "name", "radius"),
    [
        (4, 3, None, 1, "relu", None),
        (10, 4, None, 3, "relu", None),
        (1, 3, 30, 2, "relu", None),
        (6, 1, 100, 2, "relu", None),
        (3, 20, 10, 2, "relu", None),
        (10, 4, None, 2, "relu", 1e-3),
        (10, 4, None, 2, "relu", 50.0),
        (5, 4, 60, 2, "gelu", None),
        (5, 4, 60, 2, "softplus", None),
    ],
)
def test_no_search_exceeds_a_bound_that_may_fail_often(
    n: int, d: int, k: int | None, depth: int, name: str, radius: float | None
) -> None:
    """At most 0.3 of the draws may exceed the bound of failure 0.3; in fact, bounds are above the worst draw."""
    ball, exceeded, draws = math.sqrt(d) if radius is None else radius, 0, 10
    for seed in range(draws):
        X = gaussian_context(n, d, seed)
        response = respond(DeepRandomFeatures(n, d, depth, k, name, seed=seed), X, 0)
        assert isinstance(response, LayeredResponse)
        phi, first = response.phi, float(X.norm())
        inputs = [first, *(float(phi(start).norm()) for start in response.starts)]
        scales = [weight.scale or 0.0 for weight in (response.blocks[0], *response.deeper)]
        layers = [
            GaussianLayer(scale, size, start[:, 0])
            for scale, size, start in zip(scales, inputs[:-1], response.starts, strict=True)
        ]
        moved = Perturbations(ball, ball * math.sqrt(d), ball * float(X[0].norm()) / first)
        bound = gaussian_radii(layers, moved, phi.lipschitz, name == "relu", failure=0.3)[-1]
        value = response_sensitivity(response.stored(), 0, ball, ceiling=None).value
        exceeded += value > bound / inputs[-1]
    assert exceeded <= 0.3 * draws


# Ceilings of responses


def _value(response: Response, radius: float, effort: str = "quick") -> float:
    ceiling = response.ceiling(radius, effort)
    assert ceiling is not None
    assert 0 <= ceiling.failure <= 1.0001e-9
    return float(ceiling.value)


def test_ceilings_at_the_sizes_of_the_paper() -> None:
    """The values found there are .1276, .1332, .1402 and .1467; products of norms are .18, .52, 4.2 and 280."""
    X = gaussian_context(80, 768)
    for depth, least, most in ((1, 0.1276, 0.14), (2, 0.1332, 0.17), (4, 0.1402, 0.24), (8, 0.1467, 0.54)):
        assert least < _value(random_feature_response(X, 0, depth), math.sqrt(768)) < most


@pytest.mark.parametrize("name", ["relu", "tanh", "gelu", "softplus", "cos", "sigmoid", "identity"])
def test_more_effort_never_returns_more(name: str) -> None:
    X = gaussian_context(20, 8)
    for word in (0, (0, 3)):
        for k in (40, 600):
            response = random_feature_response(X, word, None, k, name)
            for radius in (1e-6, 0.1, 3.0, 1e6):
                simple, quick, tight = (_value(response, radius, effort) for effort in ("simple", "quick", "tight"))
                assert tight == quick <= simple


@pytest.mark.parametrize("name", ["relu", "gelu", "identity"])
def test_ceilings_grow_with_the_radius_and_the_depth(name: str) -> None:
    X = gaussian_context(50, 16)
    deep = [_value(random_feature_response(X, 0, depth, activation=name), 4.0) for depth in (1, 2, 3, 5)]
    assert deep == sorted(deep)
    response = random_feature_response(X, 0, 2, activation=name)
    radii = [1e-9, 1e-3, 0.1, 1.0, 4.0, 30.0, 1e6]
    values = [_value(response, radius) for radius in radii]
    assert values == sorted(values)
    slopes = [value / radius for value, radius in zip(values, radii, strict=True)]
    assert slopes[0] == pytest.approx(slopes[1], rel=0.01)  # linear in the radius near 0
    assert slopes[-1] < 3 * slopes[0]


def test_linear_features_are_bounded_nearly_by_their_norm() -> None:
    X = gaussian_context(40, 10)
    phi = DeepRandomFeatures(40, 10, 3, activation="identity")
    response = respond(phi, X, 0)
    ceiling = _value(response, 1.0) * float(phi(X).norm())
    first, *later = (weight.dense() for weight in phi.weights)
    product = first[:, :10]
    for weight in later:
        product = weight @ product
    exact = float(torch.linalg.matrix_norm(product, 2))
    norms = math.prod(float(torch.linalg.matrix_norm(weight, 2)) for weight in (first[:, :10], *later))
    assert exact < ceiling < 0.8 * norms


def test_stored_columns_keep_their_law() -> None:
    response = random_feature_response(gaussian_context(30, 8), 0, 2)
    assert isinstance(response, LayeredResponse)
    before = _value(response, 2.0)
    assert _value(response.stored(), 2.0) <= before * (1 + 1e-9)


def test_a_search_does_not_change_the_ceiling() -> None:
    """It rests on the clean forward pass alone, whatever has been drawn since."""
    response = random_feature_response(gaussian_context(30, 8), 0, 3)
    before = _value(response, 2.0)
    found = response_sensitivity(response, 0, 2.0)
    assert found.ceiling == before
    assert found.value < before


def test_given_weights_have_no_law_to_rest_on() -> None:
    X, weight = gaussian_context(3, 4), normal(12, 12, seed=1) / math.sqrt(12)
    for effort in ("simple", "quick"):
        ceiling = respond(RandomFeatures(3, 4, weight=weight), X, 0).ceiling(1.0, effort)
        assert ceiling is not None
        assert (ceiling.failure, ceiling.kind) == (0.0, "Lipschitz constants and norms")


def test_only_relu_itself_has_inactive_neurons() -> None:
    """An activation of that name whose negative side is as steep gets the bound of a Lipschitz function."""

    def absolute(name: str) -> Activation:
        return Activation(name, torch.abs, torch.sign, torch.zeros_like, 1.0, "even", (), 0.0, 1.0)

    X = gaussian_context(40, 16)
    impostor, plain = (random_feature_response(X, activation=absolute(name)) for name in ("relu", "absolute"))
    assert _value(impostor, 4.0) == _value(plain, 4.0)
