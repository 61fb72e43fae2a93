"""The interpolator against pseudo-inverses of the whole feature matrix, stored or streamed, and its identities."""

import math
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from generalization.plain import Array, Models, models, plain_features, scene, signs
from wordsway import Interpolator, NumericalError, RandomFeatures, StreamedFeatures
from wordsway.generalization import features_of

SEEDS = st.integers(0, 10_000)
quietly = settings(max_examples=30, deadline=None, derandomize=True)


def _normal(*shape: int, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def _close(found: Any, expected: Any, size: float = 1.0, tolerance: float = 1e-8) -> None:
    gap = float(np.abs(np.asarray(found) - expected).max())
    assert gap <= tolerance * max(size, 1.0), f"differ by {gap:.3g} at size {size:.3g}"


def _agrees(model: Interpolator, exact: Models, tolerance: float = 1e-8) -> None:
    """Compare every method with the pseudo-inverses."""
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


@quietly
@example(count=5, width=200, seed=1, label=1.0, from_zero=False)
@given(
    count=st.integers(2, 12),
    width=st.integers(1, 14),
    seed=SEEDS,
    label=st.sampled_from([-1.0, 1.0]),
    from_zero=st.booleans(),
)
def test_random_features_against_pseudo_inverses(
    count: int, width: int, seed: int, label: float, from_zero: bool
) -> None:
    rows, own, start = _normal(count, width, seed=seed), _normal(width, seed=seed + 1), _normal(width, seed=seed + 2)
    labels, first = signs(count, seed), None if from_zero else start
    exact = models(rows, labels, own, label, first)
    assume(max(np.linalg.cond(rows), np.linalg.cond(exact.bordered)) < 1e3)
    model = Interpolator(rows, labels, first)
    _agrees(model, exact)
    assert model.singular == (count > width)
    assert count > width or model.interpolates
    again = Interpolator(exact.bordered, np.append(labels, label), first).theta.numpy()
    _close(model.retrain(own, label), again, float(np.abs(again).max()))


def test_gradient_descent_from_the_start_ends_there() -> None:
    rows, labels, theta = _normal(3, 6, seed=1), signs(3), _normal(6, seed=2)
    model = Interpolator(rows, labels, theta)
    for _ in range(2000):
        theta = theta - 0.05 * rows.T @ (rows @ theta - labels)
    _close(model.theta, theta)


@pytest.mark.parametrize("start", [None, 3])
@pytest.mark.parametrize("contradiction", [False, True])
def test_repeated_samples_are_interpolated_where_their_labels_agree(start: int | None, contradiction: bool) -> None:
    order = [0, 1, 2, 3, 4, 0, 1]
    rows, labels = _normal(6, 10, seed=1)[order], signs(5)[order]
    if contradiction:
        labels[-1] *= -1
    first = None if start is None else _normal(10, seed=start)
    model = Interpolator(rows, labels, first)
    _agrees(model, models(rows, labels, _normal(10, seed=2), -1.0, first))
    assert model.singular
    assert model.interpolates != contradiction
    assert model.lambda_min <= 1e-12
    assert model.error == pytest.approx(float(contradiction), abs=1e-9)


@pytest.mark.parametrize(("count", "width"), [(5, 1000), (10, 20_000), (60, 300)])
@pytest.mark.parametrize("seed", range(3))
def test_dependent_samples_are_not_taken_for_independent_by_rounding(count: int, width: int, seed: int) -> None:
    """The kernel of many features has more rounding than N eps."""
    rows = _normal(count, width, seed=seed)
    rows[-1] = rows[0] + rows[1] - 0.3 * rows[2]
    model = Interpolator(rows, signs(count, seed))
    assert model.singular
    _agrees(model, models(rows, signs(count, seed), _normal(width, seed=9), 1.0))


@pytest.mark.parametrize("label", [-1.0, 1.0])
@pytest.mark.parametrize(("count", "width"), [(4, 9), (12, 5), (5, 5)])
def test_a_new_sample_inside_the_span(count: int, width: int, label: float) -> None:
    """Re-training is then a compromise with the other labels, and the alignment is undefined."""
    rows, labels = _normal(count, width, seed=1), signs(count)
    model = Interpolator(rows, labels)
    for own in (rows[0] - 2 * rows[1], rows[1].copy()):
        _agrees(model, models(rows, labels, own, label))
        with pytest.raises(NumericalError, match=f"the alignment is undefined: .*N={count}, p={width}") as error:
            model.alignment(own)
        assert "\n" not in str(error.value)
        moved = model.theta + model.direction(own) * (label - own @ model.theta.numpy())
        _close(moved, model.retrain(own, label).numpy())


@pytest.mark.parametrize("apart", [1e-2, 1e-4, 1e-6, 1e-9])
def test_nearly_repeated_samples_keep_their_digits_or_count_as_one(apart: float) -> None:
    """Up to a condition of the kernel of 1e12 eight digits of theta* are right."""
    rows, labels = _normal(8, 30, seed=1), np.array([1.0, -1.0] * 4)
    rows[-1] = rows[0] + apart * _normal(30, seed=2)
    model = Interpolator(rows, labels)
    assert model.singular == (apart < 1e-8)
    assert model.interpolates != model.singular
    if model.singular:
        assert model.error == pytest.approx(1.0, abs=1e-6)
    else:
        _agrees(model, models(rows, labels, _normal(30, seed=4), 1.0, rank=1e-13))


def test_samples_with_small_features_are_fitted_like_all_others() -> None:
    model = Interpolator([[1e-8, 0.0], [0.0, 1.0]], [1, -1])
    assert not model.singular
    assert model.interpolates
    np.testing.assert_allclose(model.theta, [1e8, -1.0], rtol=1e-9)


@quietly
@given(count=st.integers(2, 8), width=st.integers(8, 20), repeated=st.booleans(), seed=SEEDS)
def test_rows_of_unequal_norms(count: int, width: int, repeated: bool, seed: int) -> None:
    """Row i scaled by c scales the weight of sample i in theta*: theta* = Phi^+ y of rows and labels over c."""
    source = np.random.default_rng(seed)
    rows, scales, labels = source.standard_normal((count, width)), 10.0 ** source.uniform(-8, 0, count), signs(count)
    if repeated:
        rows, labels = np.vstack([rows, rows[0]]), np.append(labels, labels[0])
        scales = np.append(scales, scales[0])
    model = Interpolator(rows * scales[:, None], labels)
    exact = np.linalg.pinv(rows, rcond=1e-10) @ (labels / scales)
    assert model.singular == repeated
    assert model.interpolates
    np.testing.assert_allclose(model.theta, exact, rtol=1e-6, atol=1e-6 * np.abs(exact).max())


@quietly
@given(
    case=st.sampled_from(["repeated", "low rank", "float32", "unequal columns"]),
    count=st.integers(2, 30),
    share=st.sampled_from([0.5, 1.0, 10.0]),
    size=st.sampled_from([1e-100, 1e-8, 1.0, 1e100]),
    seed=SEEDS,
)
def test_samples_in_the_span_have_no_alignment(case: str, count: int, share: float, size: float, seed: int) -> None:
    source = np.random.default_rng(seed)
    rows = source.standard_normal((count, int(share * count) + 1))
    if case == "repeated":
        rows[source.integers(0, count, count // 2)] = rows[0]
    elif case == "low rank":
        rows = source.standard_normal((count, 1 + count // 3)) @ source.standard_normal((1 + count // 3, rows.shape[1]))
    elif case == "unequal columns":
        rows *= 10.0 ** source.uniform(-6, 6, rows.shape[1])
    model = Interpolator(rows.astype(np.float32) if case == "float32" else size * rows, signs(count))
    kept = model.features.rows(0, count).double().numpy()
    for own in (kept[-1], 1e-20 * kept[0], source.standard_normal(count) @ kept, kept[0] - 0.3 * kept[-1]):
        with pytest.raises(NumericalError, match="the alignment is undefined"):
            model.alignment(own)


@pytest.mark.parametrize("apart", [1e-3, 1e-6, 1e-9, 1e-11])
def test_the_alignment_is_right_or_refused(apart: float) -> None:
    """A sample along the difference of two that are nearly the same is in their span, which rounding may hide."""
    rows = _normal(8, 30, seed=1)
    rows[-1] = rows[0] + apart * _normal(30, seed=2)
    model, span = Interpolator(rows, signs(8)), np.vstack([rows[:-1], _normal(30, seed=2)])
    with pytest.raises(NumericalError, match="the alignment is undefined"):
        model.alignment(rows[-1] - rows[0])
    own = _normal(30, seed=3)
    if model.singular:
        with pytest.raises(NumericalError, match="too alike"):
            model.alignment(own)
    else:
        rest = own - np.linalg.pinv(span) @ (span @ own)
        _close(model.alignment(own), rest / (rest @ rest), tolerance=1e-7)


@quietly
@given(count=st.integers(2, 8), extra=st.integers(2, 12), seed=SEEDS, label=st.sampled_from([-1.0, 1.0]))
def test_retraining_moves_predictions_by_the_alignment(count: int, extra: int, seed: int, label: float) -> None:
    """(22) and (48): f(X', theta_r) - f(X', theta*) = F(X, X') (f(X, theta_r) - f(X, theta*)), and (49)."""
    width = count + extra
    rows, own = _normal(count, width, seed=seed), _normal(width, seed=seed + 1)
    others = _normal(5, width, seed=seed + 2)
    model = Interpolator(rows, signs(count, seed), _normal(width, seed=seed + 3))
    retrained, alignment = model.retrain(own, label).numpy(), model.alignment(own).numpy()
    moved = retrained - model.theta.numpy()
    _close(others @ moved, (others @ alignment) * (own @ moved))
    assert own @ retrained == pytest.approx(label)
    assert own @ alignment == pytest.approx(1.0)
    _close(rows @ alignment, np.zeros(count))
    rest = model.project(own)
    _close(alignment, rest.numpy() / float(rest @ rest))
    _close(model.direction(own), alignment)
    assert float(rest @ rest) >= model.with_sample(own) - 1e-9
    assert model.lambda_min >= model.with_sample(own) - 1e-9


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


def test_features_of_any_shape_and_dtype_and_labels_of_integers() -> None:
    rows, labels = _normal(4, 12, seed=1).astype(np.float32), [1, -1, -1, 1]
    before, state = rows.copy(), torch.get_rng_state()
    model = Interpolator(rows, labels)
    assert model.theta.dtype == model.kernel.dtype == torch.float64
    _agrees(model, models(rows.astype(np.float64), np.array(labels, float), _normal(12, seed=2), 1.0))
    for same in (rows.astype(np.float64), torch.from_numpy(rows).reshape(4, 3, 4)):
        assert torch.equal(Interpolator(same, torch.tensor(labels)).theta, model.theta)
    sample = torch.from_numpy(rows[2])
    assert torch.equal(model.predict(sample.reshape(3, 4)), model.predict(sample))
    assert model.predict(rows.reshape(2, 2, 12)).shape == (2, 2)
    assert torch.equal(model.project(sample.reshape(3, 4)), model.project(sample))
    assert np.array_equal(rows, before)
    assert torch.equal(torch.get_rng_state(), state)


def test_features_that_are_all_zero() -> None:
    model = Interpolator(np.zeros((4, 5)), signs(4))
    assert model.singular
    assert not model.interpolates
    assert not bool(model.theta.any())
    assert (model.lambda_min, model.error) == (0, 1)
    own = _normal(5, seed=1)
    _close(model.retrain(own, -1.0), -own / (own @ own))
    with pytest.raises(NumericalError, match="the sample's features are all zero: choose"):
        model.fine_tune(np.zeros(5), 1.0)


# Streamed features


class Counted(StreamedFeatures):
    """Streamed features that count the rows that are alive at once."""

    alive = most = largest = 0

    def rows(self, start: int, stop: int) -> Tensor:
        block = super().rows(start, stop)
        self.alive += len(block)
        self.most, self.largest = max(self.most, self.alive), max(self.largest, len(block))
        weakref.finalize(block, self._gone, len(block))
        return block

    def _gone(self, count: int) -> None:
        self.alive -= count


def _numbers(model: Interpolator, own: Tensor) -> list[Tensor]:
    """Everything that a model computes."""
    known = [model.kernel, model.theta, torch.tensor([model.lambda_min, model.error, model.with_sample(own)])]
    learned = [model.fine_tune(own, -1.0), model.retrain(own, -1.0), model.project(own), model.alignment(own)]
    return [*known, *learned, model.predict(own), model.apply(model.theta), model.pull(model.labels)]


@pytest.mark.parametrize("block", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("name", ["raf", "relu-raf", "rf", "own", "lazy"])
def test_streamed_features_have_the_numbers_of_stored_ones_in_two_blocks(name: str, block: int) -> None:
    given = scene("rf" if name == "lazy" else name)
    phi = RandomFeatures(5, 4, 30, seed=3) if name == "lazy" else given.phi  # it keeps what it has drawn
    own = torch.from_numpy(plain_features(phi, given.X[None])[0])
    counted = Counted(phi, given.contexts, block)
    streamed = Interpolator(counted, given.labels)
    stored = Interpolator(plain_features(phi, given.contexts), given.labels)
    for one, two in zip(_numbers(streamed, own), _numbers(stored, own), strict=True):
        assert one.shape == two.shape
        assert float((one - two).abs().max()) <= 1e-10
    assert (streamed.singular, streamed.interpolates) == (stored.singular, stored.interpolates)
    assert counted.largest == min(block, len(given.contexts))
    assert counted.most <= 2 * block
    assert counted.shape == (len(given.contexts), own.numel())


def test_features_of_maps_with_and_without_batches() -> None:
    contexts = scene("raf").contexts
    batched = RandomFeatures(5, 4, weight=_normal(8, 20, seed=1) / math.sqrt(20))
    for phi in (batched, lambda X: batched(X).reshape(2, 4)):
        found = features_of(phi, contexts)
        assert found.shape == (len(contexts), 8)
        assert not found.requires_grad
        np.testing.assert_allclose(found.numpy(), plain_features(phi, contexts), atol=1e-13)
    assert features_of(lambda X: X, contexts[:1]).shape == (1, 20)


def test_streamed_contexts_may_be_an_array_or_a_list() -> None:
    given = scene("raf")
    theta = Interpolator(StreamedFeatures(given.phi, given.contexts), given.labels).theta
    for contexts in (given.contexts.numpy(), list(given.contexts), given.contexts.tolist()):
        streamed = StreamedFeatures(given.phi, contexts)  # type: ignore[arg-type]
        assert torch.equal(Interpolator(streamed, given.labels).theta, theta)
