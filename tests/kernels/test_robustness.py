"""Robustness of regression on random and NTK features against autograd on the explicit model."""

import json
import math
import time
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from wordsway import InputError, NumericalError
from wordsway.activations import activation
from wordsway.kernels import FeatureModel, feature_robustness
from wordsway.kernels.weights import feature_rows

SMOOTH = ("square", "tanh", "cos", "softplus", "gelu", "sigmoid")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def explicit(model: FeatureModel) -> Any:
    """The interpolator written out: features of all inputs, pinv, and f as a function that autograd goes through."""
    weights = torch.cat(list(model.weights()))
    phi = activation(model.activation)

    def features(x: Tensor) -> Tensor:
        if model.kind == "rf":
            return phi(weights @ x)
        return torch.outer(x, phi.derivative(weights @ x)).flatten()

    Phi = torch.stack([features(x) for x in model.inputs])
    theta = torch.linalg.pinv(Phi) @ model.labels
    return lambda x: features(x) @ theta


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


@pytest.mark.parametrize("kind", ["rf", "ntk"])
def test_the_gradient_is_that_of_finite_differences(kind: str) -> None:
    model = FeatureModel(kind, normal(10, 6), normal(10, seed=1), 80, "tanh")
    x, step = normal(6, seed=2), 1e-5
    for place in range(6):
        unit = torch.zeros(6, dtype=torch.float64)
        unit[place] = step
        difference = (model.output(x + unit) - model.output(x - unit)) / (2 * step)
        assert float(model.gradient(x)[place]) == pytest.approx(difference, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("kind", ["rf", "ntk"])
def test_blocks_of_any_size_follow_the_same_law_and_repeat(
    kind: str, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kept:
        monkeypatch.setattr("wordsway.kernels.robustness._KEPT", 0)
    monkeypatch.setattr("wordsway.kernels.weights.CHUNK", 7)
    monkeypatch.setattr("wordsway.kernels.robustness._BLOCK", 8 * 16 * 14)  # two chunks of rows at a time
    model = FeatureModel(kind, normal(10, 6), normal(10, seed=1), 50, "softplus", seed=3)
    first, again = (torch.cat(list(model.weights())) for _ in range(2))
    assert torch.equal(first, again)
    assert first.shape == (50, 6)
    assert float(first.var()) * 6 == pytest.approx(1, rel=0.25)
    plain = explicit(model)
    x = normal(6, seed=4)
    assert model.output(x) == pytest.approx(float(plain(x)), rel=1e-8)


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
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    keys = {"kind", "samples", "d", "width", "activation", "seed", "sensitivity", "seconds", "lambda_min", "bound"}
    assert set(told) >= keys
    assert (told["kind"], told["samples"], told["d"], told["width"]) == (kind, 8, 5, 70)


@pytest.mark.parametrize("kind", ["rf", "ntk"])
def test_an_attack_does_what_the_gradient_says_for_small_steps(kind: str) -> None:
    model = FeatureModel(kind, normal(8, 5), normal(8, seed=1), 70, "tanh")
    x = normal(5, seed=2)
    real, linear = model.attack(x, 1e-5)
    assert real == pytest.approx(linear, rel=1e-3)
    assert linear == pytest.approx(1e-5 * model.robustness(x).value)
    far, straight = model.attack(x, 0.5)
    assert far != pytest.approx(straight, rel=1e-3)


def test_repeated_inputs_make_the_kernel_singular() -> None:
    X = normal(6, 5)
    with pytest.raises(NumericalError, match="the kernel is singular: inputs are repeated"):
        feature_robustness("rf", torch.cat([X, X[:1]]), torch.ones(7), normal(5), 50)


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


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kind": "rff"}, r"kind must be one of rf, ntk, got 'rff' \(did you mean 'rf'\?\)"),
        ({"X": torch.ones(0, 3)}, "inputs must be a matrix of floats with at least one row"),
        ({"X": [[1.0, 2.0], [1.0]]}, "inputs must be numbers in an array, got list"),
        ({"y": ["a"] * 4}, "y must be numbers in an array, got list"),
        ({"x": "abc"}, "x must be numbers in an array, got str"),
        ({"y": torch.ones(3)}, "one label for each of the 4 inputs"),
        ({"y": torch.full((4,), math.nan)}, "y must be finite"),
        ({"x": torch.ones(2)}, r"x must have the shape \(3,\), got \(2,\)"),
        ({"x": torch.zeros(3)}, "x must not be zero"),
        ({"k": 0}, "k must be an integer >= 1, got 0"),
        ({"activation": "tan"}, "unknown activation 'tan'"),
        ({"kind": "ntk", "activation": "relu"}, "needs phi'', which relu does not have"),
        ({"seed": -1}, "seed must be an integer"),
    ],
)
def test_bad_input_is_one_clear_line(changes: dict[str, Any], said: str) -> None:
    given = {"kind": "rf", "X": normal(4, 3), "y": normal(4), "x": normal(3), "k": 30, "activation": "tanh"}
    with pytest.raises(InputError, match=said) as caught:
        feature_robustness(**{**given, **changes})
    assert "\n" not in str(caught.value)


def test_seconds_are_those_of_building_and_of_the_call() -> None:
    model = FeatureModel("rf", normal(4, 3), normal(4), 30)
    begin = time.perf_counter()
    time.sleep(0.2)  # idle time does not count
    calls = [model.robustness(normal(3)).cost.seconds - model.cost.seconds for _ in range(2)]
    assert min(calls) > 0
    assert sum(calls) <= time.perf_counter() - begin - 0.2


def test_too_few_features_are_refused() -> None:
    with pytest.raises(NumericalError, match="4 samples need at least as many features, got 3"):
        feature_robustness("rf", normal(4, 3), normal(4), normal(3), 3)


@pytest.mark.parametrize("share", [0.0, -1.0, math.inf])
def test_an_attack_needs_a_size(share: float) -> None:
    model = FeatureModel("rf", normal(4, 3), normal(4), 30)
    with pytest.raises(InputError, match="share must be a finite number > 0"):
        model.attack(normal(3), share)
