"""Robustness of regression on random and NTK features against autograd on the explicit model; sweeps of it."""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from maps.twins import normal
from torch import Tensor

from wordsway import NumericalError, gaussian_context
from wordsway.activations import activation
from wordsway.kernels import FeatureModel, feature_robustness, features, robustness, robustness_sweep
from wordsway.kernels.features import FeatureBlocks, feature_rows
from wordsway.seeds import generator, signs

SMOOTH = ("square", "tanh", "cos", "softplus", "gelu", "sigmoid")


def _features(model: FeatureModel) -> Callable[[Tensor], Tensor]:
    """The features of inputs, (N, d) -> (N, p), written out."""
    weights, phi = torch.cat(list(model.weights())), activation(model.activation)
    if model.kind == "rf":
        return lambda X: phi(X @ weights.mT)
    return lambda X: (X[:, :, None] * phi.derivative(X @ weights.mT)[:, None]).flatten(1)


def explicit(model: FeatureModel) -> Callable[[Tensor], Tensor]:
    """The interpolator written out: features of all inputs, pinv, and f as a function that autograd goes through."""
    features = _features(model)
    theta = torch.linalg.pinv(features(model.inputs)) @ model.labels
    return lambda x: features(x[None])[0] @ theta


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["rf", "ntk"]), st.sampled_from(SMOOTH), st.integers(2, 8), st.integers(0, 10**6))
def test_the_gradient_is_that_of_the_explicit_model(kind: str, name: str, count: int, seed: int) -> None:
    d, k = 12, 60
    X, y, x = normal(count, d, seed=seed), normal(count, seed=seed + 1), normal(d, seed=seed + 2)
    model = FeatureModel(kind, X, y, k, name, seed)
    plain = explicit(model)
    point = x.clone().requires_grad_(True)
    value = plain(point)
    (derivative,) = torch.autograd.grad(value, point)
    found = model.robustness(x)
    assert found.output == pytest.approx(float(value.detach()), rel=1e-7, abs=1e-7)
    torch.testing.assert_close(found.gradient, derivative, rtol=1e-6, atol=1e-6 * float(derivative.norm()))
    assert found.value == pytest.approx(float(x.norm() * derivative.norm()), rel=1e-6)
    assert found.fit < 1e-8


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("transform", [None, torch.tanh])
def test_blocks_of_any_size_are_the_same_in_every_pass(keep: bool, transform: Any) -> None:
    inputs = normal(4, 3)
    blocks = FeatureBlocks(inputs, [2500, 10, 1100], 5, transform, rows=1, keep=keep)
    whole = torch.cat(list(feature_rows(2500, 3, 5, 10**6))).double()
    products = inputs @ whole.mT
    for _ in range(2):
        parts = list(blocks)
        assert {10, 1100, 2500} <= {end for _, _, end in parts}
        assert max(len(block) for block, _, _ in parts) <= 1024
        assert torch.equal(torch.cat([block for block, _, _ in parts]), whole)
        values = torch.cat([values for _, values, _ in parts], 1)
        torch.testing.assert_close(values, products if transform is None else transform(products))


@pytest.mark.parametrize("name", ["tanh", "relu", "cos"])
def test_large_features_in_float32_have_the_same_sensitivity_to_six_digits(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = gaussian_context(41, 30), signs(generator(0, "labels"), 40)
    monkeypatch.setattr(robustness, "_LARGE", 1)
    with monkeypatch.context() as always:
        always.setattr(robustness, "_CONDITION", 2)
        exact = feature_robustness("rf", X[:-1], y, X[-1], 3000, name)
    model = FeatureModel("rf", X[:-1], y, 3000, name)
    assert {block.dtype for block in model.weights()} == {torch.float32}
    assert model.kernel.dtype == torch.float64
    found = model.robustness(X[-1])
    assert found.value == pytest.approx(exact.value, rel=2e-6)
    assert found.value != exact.value
    assert torch.allclose(found.gradient, exact.gradient, rtol=0, atol=1e-5 * exact.value)


def test_features_of_inputs_that_nearly_repeat_are_computed_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = gaussian_context(21, 30), signs(generator(0, "labels"), 20)
    X[1] = X[0] + 1e-4 * X[2]
    monkeypatch.setattr(robustness, "_LARGE", 1)
    model = FeatureModel("rf", X[:-1], y, 3000)
    assert {block.dtype for block in model.weights()} == {torch.float64}
    assert model.fit < 1e-8


@pytest.mark.parametrize("count", [5, 12, 20])
def test_a_large_model_has_the_weights_that_it_yields(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The inputs of large models are rotated: fewer inputs than dimensions, as many, and more of them."""
    monkeypatch.setattr(robustness, "_LARGE", 1)
    monkeypatch.setattr(robustness, "_CONDITION", 2)
    X, y, x = normal(count, 12), normal(count, seed=1), normal(12, seed=2)
    model = FeatureModel("rf", X, y, 60, "tanh", seed=3)
    point = x.clone().requires_grad_(True)
    value = explicit(model)(point)
    (derivative,) = torch.autograd.grad(value, point)
    found = model.robustness(x, terms=True)
    assert found.output == pytest.approx(float(value.detach()), rel=1e-7)
    torch.testing.assert_close(found.gradient, derivative)
    torch.testing.assert_close(model.interaction(x) @ model.alpha, derivative)
    weights = torch.cat(list(model.weights()))
    drawn = torch.cat(list(feature_rows(60, 12, 3, 60))).double()
    assert float((weights - drawn).abs().max()) > 0.1
    torch.testing.assert_close(weights @ weights.mT, drawn @ drawn.mT)  # a rotation: the law is that of what was drawn


def test_inputs_of_large_dimension_are_not_rotated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rotation takes d^2 numbers, more than the features of few inputs."""
    monkeypatch.setattr(robustness, "_LARGE", 1)
    monkeypatch.setattr(robustness, "_CONDITION", 2)
    monkeypatch.setattr(robustness, "BLOCK", 8 * 12**2 - 1)
    model = FeatureModel("rf", normal(5, 12), normal(5, seed=1), 60, "tanh", seed=3)
    drawn = torch.cat(list(feature_rows(60, 12, 3, 60))).double()
    torch.testing.assert_close(torch.cat(list(model.weights())), drawn)


@pytest.mark.parametrize("count", [1, 5, 12, 20])
def test_triangular_inputs_have_the_same_products(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "_PANEL", 3)
    inputs = normal(count, 12).tril()
    plain, panels = (FeatureBlocks(inputs, [30], 5, torch.tanh, triangular=triangular) for triangular in (False, True))
    for (_, expected, _), (_, values, _) in zip(plain, panels, strict=True):
        torch.testing.assert_close(values, expected)


def test_rows_of_the_weights_depend_on_nothing_else() -> None:
    whole = torch.cat(list(feature_rows(3000, 5, 2, rows=1)))
    assert whole.shape == (3000, 5)
    for width, rows in ((1, 1), (1500, 4000), (2999, 2048)):
        assert torch.equal(torch.cat(list(feature_rows(width, 5, 2, rows))), whole[:width])
    assert float(whole.var()) * 5 == pytest.approx(1, rel=0.05)
    assert not torch.equal(whole[:1024], whole[1024:2048])


@pytest.mark.parametrize("kind", ["rf", "ntk"])
def test_the_terms_of_the_proofs(kind: str) -> None:
    X, y, x = normal(8, 5), normal(8, seed=1), normal(5, seed=2)
    model = FeatureModel(kind, X, y, 70, "tanh")
    found = model.robustness(x, terms=True)
    matrix = model.interaction(x)
    torch.testing.assert_close(matrix @ model.alpha, found.gradient)
    assert found.terms is not None
    assert found.terms.interaction == pytest.approx(float(torch.linalg.matrix_norm(matrix, ord=2)))
    assert found.terms.smallest.value == pytest.approx(float(torch.linalg.eigvalsh(model.kernel)[0]))
    assert found.value <= found.terms.bound
    Phi = _features(model)
    rows = Phi(X) - Phi(X).mean(0)
    columns = torch.func.jacrev(lambda point: rows @ Phi(point[None])[0])(x)  # N d
    assert found.terms.centred == pytest.approx(float(torch.linalg.matrix_norm(columns)))
    assert found.terms.largest == pytest.approx(float(torch.linalg.eigvalsh(rows @ rows.mT)[-1]))
    limit = 70 * math.sqrt(8 / 5) * activation("tanh").mean_derivative ** 2
    assert found.terms.law == (pytest.approx(limit) if kind == "rf" else None)
    assert (found.kind, found.samples, found.d, found.width) == (kind, 8, 5, 70)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.sampled_from(["rf", "ntk"]), st.sampled_from(SMOOTH), st.integers(1, 12), st.integers(0, 999))
def test_the_lower_bound_is_below_the_mean_square_over_random_labels(
    kind: str, name: str, count: int, seed: int
) -> None:
    """The mean of |A y|^2 over independent signs y is |A|_F^2."""
    x = normal(9, seed=seed)
    model = FeatureModel(kind, normal(count, 9, seed=seed + 1), normal(count, seed=seed + 2).sign(), 60, name, seed)
    terms = model.robustness(x, terms=True).terms
    assert terms is not None
    mean_square = torch.linalg.matrix_norm(model.interaction(x) @ torch.linalg.inv(model.kernel)) ** 2
    assert 0 <= terms.lower <= float(x.norm() * mean_square.sqrt()) * (1 + 1e-9)
    assert count == 1 or terms.lower > 0


@pytest.mark.parametrize("name", ["tanh", "softplus", "sigmoid"])
def test_the_centred_interaction_approaches_its_limit(name: str) -> None:
    """k sqrt(N / d) (E phi')^2, the slides' formula; E (phi')^2 in its place would be a misprint."""
    X, k = gaussian_context(121, 100, seed=1), 6000
    terms = FeatureModel("rf", X[:-1], normal(120).sign(), k, name).robustness(X[-1], terms=True).terms
    assert terms is not None
    assert terms.law is not None
    assert terms.centred / terms.law == pytest.approx(1, abs=0.04)
    theorem = 10 * terms.centred / terms.largest
    assert terms.lower == pytest.approx(theorem, rel=0.01)


@pytest.mark.parametrize("kind", ["rf", "ntk"])
def test_an_attack_does_what_the_gradient_says_for_small_steps(kind: str) -> None:
    model = FeatureModel(kind, normal(8, 5), normal(8, seed=1), 70, "tanh")
    x = normal(5, seed=2)
    real, linear = model.attack(x, 1e-5)
    assert real == pytest.approx(linear, rel=1e-3)
    assert linear == pytest.approx(1e-5 * model.robustness(x).value)
    far, straight = model.attack(x, 0.5)
    assert far != pytest.approx(straight, rel=1e-3)


@pytest.mark.parametrize("kind", ["rf", "ntk"])
def test_repeated_inputs_make_the_kernel_singular(kind: str) -> None:
    X = normal(6, 5)
    message = (
        "must be invertible, got a singular one of 7 samples with .* features: remove repeated or dependent inputs"
    )
    with pytest.raises(NumericalError, match=message):
        feature_robustness(kind, torch.cat([X, X[:1]]), torch.ones(7), normal(5), 50)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.sampled_from(["identity", "unequal rows", "square", "proportional", "ntk"]),
    st.integers(2, 6),
    st.integers(0, 999),
)
def test_dependent_features_are_refused_however_many_there_are(case: str, d: int, seed: int) -> None:
    """The rank is d, or d (d + 1) / 2 for squares: rounding must not pass for another direction."""
    source = np.random.default_rng(7000 + seed)
    count = d * (d + 1) // 2 + 1 if case == "square" else d + 1
    X, y, x = source.standard_normal((count, d)), source.standard_normal(count), source.standard_normal(d)
    if case == "unequal rows":
        X = X * 10.0 ** source.uniform(-7, 7, (count, 1))
    if case == "proportional":
        X[-1] = 3 * X[0]
    kind, name = "ntk" if case == "ntk" else "rf", {"square": "square", "proportional": "relu"}.get(case, "identity")
    with pytest.raises(NumericalError, match="must be invertible"):
        feature_robustness(kind, X, y, x, 100, name, seed=3)
    with pytest.raises(NumericalError, match="must be invertible"):
        robustness_sweep(kind, X, y, x, [50, 100], [2, count], [name], seed=3)


@pytest.mark.parametrize("apart", [1e-2, 1e-5, 1e-6, 1e-7])
def test_nearly_repeated_inputs_are_fitted_or_refused(apart: float) -> None:
    for seed in range(10):
        X, y = normal(10, 15, seed=seed), normal(10, seed=seed + 50)
        X[-1] = X[0] + apart * normal(15, seed=seed + 100)
        try:
            model = FeatureModel("rf", X, y, 200, "tanh", seed)
        except NumericalError:
            assert apart <= 1e-5
        else:
            assert apart >= 1e-6
            assert model.fit <= 1e-4 * float(y.abs().max())
            assert [model.output(x) for x in X] == pytest.approx(
                y.tolist(), abs=1e-2
            )  # rounding again, by another formula


def test_even_ntk_features_are_more_robust_than_odd_ones() -> None:
    """S of even activations falls with the width, that of odd ones stays."""

    def mean(name: str, k: int) -> float:
        found = [
            feature_robustness(
                "ntk", normal(60, 50, seed=s), normal(60, seed=s + 9).sign(), normal(50, seed=s + 99), k, name, s
            )
            for s in range(3)
        ]
        return sum(one.value for one in found) / 3

    assert mean("square", 64) < 0.65 * mean("square", 8)
    assert mean("tanh", 64) > 0.75 * mean("tanh", 8)


def test_seconds_are_those_of_building_and_of_the_call() -> None:
    model = FeatureModel("rf", normal(4, 3), normal(4), 30)
    begin = time.perf_counter()
    time.sleep(0.2)  # idle time does not count
    calls = [model.robustness(normal(3)).cost.seconds - model.cost.seconds for _ in range(2)]
    assert min(calls) > 0
    assert sum(calls) <= time.perf_counter() - begin - 0.2


@pytest.mark.parametrize("kind", ["rf", "ntk"])
def test_every_point_of_a_sweep_is_what_it_is_alone(kind: str) -> None:
    X, y, x = normal(12, 6), normal(12, seed=1), normal(6, seed=2)
    sweep = robustness_sweep(kind, X, y, x, [20, 1500, 45], [5, 12], ["tanh", "cos"], seed=3, terms=45)
    points = {(point.width, point.samples, point.activation) for point in sweep}
    assert points == {(k, n, name) for k in (20, 45, 1500) for n in (5, 12) for name in ("tanh", "cos")}
    assert len(sweep) == len(points)
    for point in sweep:
        count = point.samples
        alone = feature_robustness(kind, X[:count], y[:count], x, point.width, point.activation, seed=3, terms=True)
        assert point.sensitivity == pytest.approx(alone.value, rel=1e-8)
        assert point.fit < 1e-6
        assert (point.terms is not None) == (point.width == 45)
        if point.terms is not None and alone.terms is not None:
            expected = {name: value for name, value in alone.terms.to_dict().items() if value is not None}
            assert {name: point.terms.to_dict()[name] for name in expected} == pytest.approx(expected, rel=1e-6)
