"""The interpolator against pseudo-inverses of the whole feature matrix, and the identities it rests on."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from generalization.plain import Array, Models, models, signs
from wordsway import Interpolator, NumericalError

SIZES = [(4, 9), (2, 2), (7, 7), (2, 1), (12, 5), (5, 200)]
SEEDS = st.integers(0, 10_000)
quietly = settings(max_examples=30, deadline=None, derandomize=True)


def _normal(*shape: int, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def _close(found: Tensor | float, expected: Array | float, size: float = 1.0, tolerance: float = 1e-8) -> None:
    gap = float(np.abs(np.asarray(found) - expected).max())
    assert gap <= tolerance * max(size, 1.0), f"differ by {gap:.3g} at size {size:.3g}"


def _agrees(model: Interpolator, exact: Models, tolerance: float = 1e-8) -> None:
    """Everything that is asked of a model, as the pseudo-inverses have it."""
    size = float(np.abs(np.concatenate([exact.theta, exact.fine, exact.again])).max())
    _close(model.theta, exact.theta, size, tolerance)
    _close(model.fine_tune(exact.own, exact.label), exact.fine, size, tolerance)
    _close(model.retrain(exact.own, exact.label), exact.again, size, tolerance)
    _close(model.project(exact.own), exact.rest, float(np.abs(exact.own).max()), tolerance)
    _close(model.predict(exact.bordered), exact.bordered @ exact.theta, size, tolerance)
    missing = model.labels.numpy() - exact.rows @ exact.theta
    _close(model.error, float(np.abs(missing).max()), tolerance=tolerance)
    for found, rows in ((model.lambda_min, exact.rows), (model.with_sample(exact.own), exact.bordered)):
        kernel = rows @ rows.T
        _close(found, max(float(np.linalg.eigvalsh(kernel)[0]), 0.0), float(np.abs(kernel).max()), 1e-12)


@pytest.mark.parametrize("from_zero", [True, False])
@pytest.mark.parametrize(("count", "width"), SIZES)
def test_every_size_against_pseudo_inverses(count: int, width: int, from_zero: bool) -> None:
    rows, labels, own = _normal(count, width, seed=1), signs(count), _normal(width, seed=2)
    start = None if from_zero else _normal(width, seed=3)
    model = Interpolator(rows, labels, start)
    exact = models(rows, labels, own, 1.0, start)
    _agrees(model, exact)
    assert model.singular == (count > width)
    assert model.interpolates == (count <= width)
    again = Interpolator(exact.bordered, np.append(labels, 1.0), start)
    _close(model.retrain(own, 1.0), again.theta.numpy())


@quietly
@given(count=st.integers(2, 12), width=st.integers(1, 14), seed=SEEDS, label=st.sampled_from([-1.0, 1.0]))
def test_random_features_against_pseudo_inverses(count: int, width: int, seed: int, label: float) -> None:
    rows, own, start = _normal(count, width, seed=seed), _normal(width, seed=seed + 1), _normal(width, seed=seed + 2)
    assume(np.linalg.cond(rows) < 1e3)
    labels = signs(count, seed)
    _agrees(Interpolator(rows, labels, start), models(rows, labels, own, label, start))


def test_gradient_descent_from_the_start_finds_it() -> None:
    rows, labels, theta = _normal(3, 6, seed=1), signs(3), _normal(6, seed=2)
    model = Interpolator(rows, labels, theta)
    for _ in range(2000):
        theta = theta - 0.05 * rows.T @ (rows @ theta - labels)
    _close(model.theta, theta)


@pytest.mark.parametrize("start", [None, 3])
def test_repeated_samples_with_equal_labels_are_interpolated(start: int | None) -> None:
    rows = _normal(6, 10, seed=1)[[0, 1, 2, 3, 4, 0, 1]]
    labels = signs(5)[[0, 1, 2, 3, 4, 0, 1]]
    first = None if start is None else _normal(10, seed=start)
    model = Interpolator(rows, labels, first)
    _agrees(model, models(rows, labels, _normal(10, seed=2), -1.0, first))
    assert model.singular
    assert model.interpolates
    assert model.lambda_min <= 1e-12


def test_repeated_samples_with_contradicting_labels_are_not() -> None:
    rows = _normal(4, 10, seed=1)[[0, 1, 2, 3, 0]]
    labels = np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    model = Interpolator(rows, labels)
    _agrees(model, models(rows, labels, _normal(10, seed=2), 1.0))
    assert model.singular
    assert not model.interpolates
    _close(model.predict(rows), [0.0, -1.0, 1.0, 1.0, 0.0])  # type: ignore[arg-type]
    assert model.error == pytest.approx(1.0)


@pytest.mark.parametrize(("count", "width"), [(5, 1000), (10, 20_000), (60, 300)])
@pytest.mark.parametrize("seed", range(3))
def test_samples_that_depend_on_others_are_told_from_rounding(count: int, width: int, seed: int) -> None:
    """The kernel of many features has more rounding than N eps, which must not pass for a direction of its own."""
    rows = _normal(count, width, seed=seed)
    rows[-1] = rows[0] + rows[1] - 0.3 * rows[2]
    labels = signs(count, seed)
    model = Interpolator(rows, labels)
    assert model.singular
    _agrees(model, models(rows, labels, _normal(width, seed=9), 1.0))


@pytest.mark.parametrize("label", [-1.0, 1.0])
@pytest.mark.parametrize(("count", "width"), [(4, 9), (12, 5), (5, 5)])
def test_a_new_sample_inside_the_span(count: int, width: int, label: float) -> None:
    """Nothing new can be told of it, so that re-training is a compromise with what is known."""
    rows, labels = _normal(count, width, seed=1), signs(count)
    for own in (rows[0] - 2 * rows[1], rows[1].copy()):
        model = Interpolator(rows, labels)
        _agrees(model, models(rows, labels, own, label))
        with pytest.raises(NumericalError, match=f"the alignment is undefined: .*N={count}, p={width}") as error:
            model.alignment(own)
        assert "\n" not in str(error.value)
        _close(
            model.theta + model.direction(own) * (label - own @ model.theta.numpy()), model.retrain(own, label).numpy()
        )


@pytest.mark.parametrize("apart", [1e-2, 1e-4, 1e-6])
def test_nearly_repeated_samples_keep_their_digits(apart: float) -> None:
    """The kernel has a condition of up to 1e12, and still eight digits of theta* are right."""
    rows = _normal(8, 30, seed=1)
    rows[-1] = rows[0] + apart * _normal(30, seed=2)
    labels = np.array([1.0, -1.0] * 4)
    model = Interpolator(rows, labels)
    _agrees(model, models(rows, labels, _normal(30, seed=4), 1.0, rank=1e-13))
    assert not model.singular
    assert model.interpolates


def test_samples_too_near_to_be_told_apart_are_one() -> None:
    rows = _normal(8, 30, seed=1)
    rows[-1] = rows[0] + 1e-9 * _normal(30, seed=2)
    model = Interpolator(rows, [1.0, -1.0] * 4)
    assert model.singular
    assert not model.interpolates
    assert model.error == pytest.approx(1.0, abs=1e-6)


@quietly
@given(count=st.integers(2, 8), extra=st.integers(2, 12), seed=SEEDS, label=st.sampled_from([-1.0, 1.0]))
def test_retraining_moves_predictions_by_the_alignment(count: int, extra: int, seed: int, label: float) -> None:
    """(22) and (48): f(X', theta_r) - f(X', theta*) = F(X, X') (f(X, theta_r) - f(X, theta*)), and (49)."""
    width = count + extra
    rows, own, others = (
        _normal(count, width, seed=seed),
        _normal(width, seed=seed + 1),
        _normal(5, width, seed=seed + 2),
    )
    model = Interpolator(rows, signs(count, seed), _normal(width, seed=seed + 3))
    retrained, alignment = model.retrain(own, label).numpy(), model.alignment(own).numpy()
    theta = model.theta.numpy()
    _close(torch.from_numpy(others @ (retrained - theta)), (others @ alignment) * (own @ (retrained - theta)))
    assert own @ retrained == pytest.approx(label)
    assert own @ alignment == pytest.approx(1.0)
    _close(torch.from_numpy(rows @ alignment), np.zeros(count))
    rest = model.project(own)
    _close(model.alignment(own), rest.numpy() / float(rest @ rest))
    _close(model.direction(own), alignment)
    assert float(rest @ rest) >= model.with_sample(own) - 1e-9
    assert model.lambda_min >= model.with_sample(own) - 1e-9


@quietly
@given(count=st.integers(2, 8), width=st.integers(1, 12), seed=SEEDS)
def test_projecting_is_a_projection(count: int, width: int, seed: int) -> None:
    rows, own = _normal(count, width, seed=seed), _normal(width, seed=seed + 1)
    model = Interpolator(rows, signs(count))
    rest = model.project(own)
    _close(model.project(rest), rest.numpy())
    _close(torch.from_numpy(rows @ rest.numpy()), np.zeros(count), tolerance=1e-7)
    _close(float(rest @ torch.from_numpy(own)), float(rest @ rest))


@quietly
@given(count=st.integers(2, 8), width=st.integers(3, 12), seed=SEEDS, size=st.sampled_from([1e-30, 1e-3, 1e3, 1e30]))
def test_the_scale_of_the_features_does_not_matter(count: int, width: int, seed: int, size: float) -> None:
    rows, own = _normal(count, width, seed=seed), _normal(width, seed=seed + 1)
    assume(np.linalg.cond(rows) < 1e4)
    one, two = (Interpolator(factor * rows, signs(count)) for factor in (1.0, size))
    assert one.singular == two.singular
    _close(two.theta * size, one.theta.numpy(), tolerance=1e-6)
    _close(two.retrain(size * own, 1.0) * size, one.retrain(own, 1.0).numpy(), tolerance=1e-6)
    assert two.lambda_min == pytest.approx(one.lambda_min * size**2, rel=1e-6, abs=1e-12 * size**2)


def test_features_of_float32_are_taken_as_they_are() -> None:
    rows = _normal(4, 9, seed=1).astype(np.float32)
    model = Interpolator(rows, signs(4))
    assert model.theta.dtype == model.kernel.dtype == torch.float64
    _agrees(model, models(rows.astype(np.float64), signs(4), _normal(9, seed=2), 1.0))
    same = Interpolator(rows.astype(np.float64), signs(4))
    assert torch.equal(model.theta, same.theta)
    assert torch.equal(model.predict(rows), same.predict(rows))


def test_features_may_have_any_shape() -> None:
    rows, labels = _normal(4, 12, seed=1), signs(4)
    model = Interpolator(torch.from_numpy(rows).reshape(4, 3, 4), labels)
    assert torch.equal(model.theta, Interpolator(rows, labels).theta)
    one = torch.from_numpy(rows[2])
    assert model.predict(one.reshape(3, 4)).shape == ()
    assert torch.equal(model.predict(one.reshape(3, 4)), model.predict(one))
    assert model.predict(rows.reshape(2, 2, 12)).shape == (2, 2)
    assert torch.equal(model.project(one.reshape(3, 4)), model.project(one))


def test_labels_may_be_integers_and_given_arrays_are_not_changed() -> None:
    rows, labels = _normal(4, 9, seed=1), [1, -1, -1, 1]
    before = rows.copy()
    model = Interpolator(rows, labels)
    model.retrain(rows[0] + 1, 1)
    assert np.array_equal(rows, before)
    assert torch.equal(model.theta, Interpolator(rows, torch.tensor(labels)).theta)
    state = torch.get_rng_state()
    assert torch.equal(Interpolator(rows, labels).theta, model.theta)
    assert torch.equal(torch.get_rng_state(), state)


def test_features_that_are_all_zero_have_nothing_to_say() -> None:
    model = Interpolator(np.zeros((4, 5)), signs(4))
    assert model.singular
    assert not model.interpolates
    assert not bool(model.theta.any())
    assert model.lambda_min == 0
    own = _normal(5, seed=1)
    _close(model.retrain(own, -1.0), -own / (own @ own))
    with pytest.raises(NumericalError, match="the sample's features are all zero: choose"):
        model.fine_tune(np.zeros(5), 1.0)
    assert math.isclose(model.error, 1.0)
