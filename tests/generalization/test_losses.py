"""Every loss from its own definition, its gradient by central differences, and what makes both of them fast."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from maps.twins import Setting, normal
from torch import Tensor

from generalization.plain import MAPS, Array, Scene, scene
from wordsway import DeepRandomFeatures, DenseGaussian, RandomFeatures, gaussian_context, respond
from wordsway.generalization import LOSSES, TRAININGS, Interpolator, Losses, Problem, Simulation, features_of
from wordsway.generalization.losses import functionals
from wordsway.maps import FeatureMap, PlainResponse, Response
from wordsway.maps.layers import LayeredResponse
from wordsway.maps.response import Functional

PROBLEMS = [Problem(*choice) for choice in itertools.product(TRAININGS, LOSSES, (0.0, 0.3, 7.0))]
STEP = 1e-5


def _losses(given: Scene, problems: Sequence[Problem] = PROBLEMS) -> Losses:
    found = Simulation(given.phi, given.contexts, given.labels, given.X, given.y, given.word)
    return Losses(found.several, problems, given.y, found.before)


def _repeated(points: Array, count: int) -> Array:
    """The same points for every problem: (B, d) -> (B, G, d)."""
    return np.repeat(points[:, None], count, axis=1)


# Values and gradients


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", MAPS)
def test_every_loss_is_what_its_definition_says(name: str, seed: int) -> None:
    given = scene(name, seed)
    exact, points = given.models(), given.ball(6, seed)
    values, _ = _losses(given)(_repeated(points, len(PROBLEMS)))
    features = given.moved(points)
    for column, problem in zip(values.T, PROBLEMS, strict=True):
        np.testing.assert_allclose(column, exact.loss(problem, features), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", MAPS)
def test_every_gradient_is_that_of_the_definition(name: str, seed: int) -> None:
    given = scene(name, seed)
    exact, points = given.models(), given.ball(3, seed)
    _, gradients = _losses(given)(_repeated(points, len(PROBLEMS)))
    for axis in range(points.shape[1]):
        step = STEP * np.eye(points.shape[1])[axis]
        ahead, behind = given.moved(points + step), given.moved(points - step)
        for g, problem in enumerate(PROBLEMS):
            measured = (exact.loss(problem, ahead) - exact.loss(problem, behind)) / (2 * STEP)
            size = np.abs(gradients[:, g]).max()
            np.testing.assert_allclose(gradients[:, g, axis], measured, atol=1e-6 * (1 + size), err_msg=str(problem))


def test_predictions_after_training_are_those_of_the_definitions() -> None:
    """The fine-tuned model says f + a_f (y - f_0), the re-trained one f + F (y - f_0): (18) and (22)."""
    given = scene("raf", 2)
    exact, points = given.models(), given.ball(5, 1)
    losses = _losses(given)
    values, gradients = losses.several(torch.from_numpy(points))
    assert gradients is not None
    assert gradients.shape == (3, 5, 4)
    moved, fine, again = values.numpy()
    features, missing = given.moved(points), given.y - exact.before
    np.testing.assert_allclose(moved, features @ exact.theta, atol=1e-9)
    np.testing.assert_allclose(moved + fine * missing, features @ exact.fine, atol=1e-9)
    np.testing.assert_allclose(moved + again * missing, features @ exact.again, atol=1e-9)
    assert losses.before == pytest.approx(exact.before)


@pytest.mark.parametrize("name", ["raf", "drf"])
def test_problems_together_are_the_same_as_one_at_a_time(name: str) -> None:
    given = scene(name, 3)
    points = given.ball(2 * len(PROBLEMS), 4).reshape(2, len(PROBLEMS), -1)  # each problem at points of its own
    values, gradients = _losses(given)(points)
    for g, problem in enumerate(PROBLEMS):
        alone, pull = _losses(given, [problem])(points[:, g : g + 1])
        np.testing.assert_allclose(values[:, g], alone[:, 0], rtol=1e-12)
        np.testing.assert_allclose(gradients[:, g], pull[:, 0], rtol=1e-10, atol=1e-12)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 1000),
    training=st.sampled_from(TRAININGS),
    loss=st.sampled_from(LOSSES),
    penalty=st.floats(0, 100),
)
def test_losses_of_given_functionals(seed: int, training: str, loss: str, penalty: float) -> None:
    """The formula alone, with functionals that are linear in Delta."""
    rays, shifts = normal(3, 4, seed=seed), normal(3, seed=seed + 1)
    label, before = (-1.0) ** seed, float(normal(1, seed=seed + 2))

    def several(delta: Tensor) -> tuple[Tensor, Tensor]:
        return rays @ delta.mT + shifts[:, None], rays[:, None].expand(3, len(delta), 4)

    point = normal(1, 4, seed=seed + 3).numpy()
    f, fine, again = (rays.numpy() @ point[0] + shifts.numpy()).tolist()
    retrained = training == "re-trained"
    expected = {
        "alignment": ((again if retrained else fine) + 1) ** 2,
        "swapped": ((fine if retrained else again) + 1) ** 2,
        "error": (f + (again if retrained else fine) * (label - before) + label) ** 2,
    }[loss] + penalty * (f - before) ** 2
    value, grad = Losses(several, [Problem(training, loss, penalty)], label, before)(point[:, None])
    assert value[0, 0] == pytest.approx(expected, rel=1e-9)
    assert value.shape == (1, 1)
    assert grad.shape == (1, 1, 4)


def test_functionals_without_a_gradient_are_refused() -> None:
    losses = Losses(lambda delta: (torch.zeros(3, len(delta)), None), PROBLEMS[:1], 1.0, 0.0)
    with pytest.raises(TypeError, match="must return its gradient"):
        losses(np.zeros((1, 1, 4)))


# Several functionals at once


def _same(one: Functional, others: Sequence[Functional], delta: Tensor, tolerance: float = 1e-11) -> None:
    values, gradients = one(delta)
    assert gradients is not None
    assert len(values) == len(gradients) == len(others)
    for value, grad, other in zip(values, gradients, others, strict=True):
        single, pull = other(delta)
        assert pull is not None
        assert value.shape == single.shape
        assert grad.shape == pull.shape == delta.shape
        assert float((value - single).abs().max()) <= tolerance * (1 + float(single.abs().max()))
        assert float((grad - pull).abs().max()) <= tolerance * (1 + float(pull.abs().max()))


def _check_inners(response: Response, plain: PlainResponse, shape: Sequence[int], seed: int) -> None:
    vectors = [normal(*shape, seed=seed + k) for k in range(3)]
    together = response.inners  # type: ignore[attr-defined]
    for lead, count in (((), 1), ((2, 3), 3)):
        delta = normal(*lead, *response.shape, seed=seed)
        _same(together(vectors[:count]), [response.inner(u) for u in vectors[:count]], delta)
        _same(functionals(response, vectors[:count]), [plain.inner(u) for u in vectors[:count]], delta, 1e-9)


@pytest.mark.parametrize(("word", "value"), [(0, True), (3, False), ((4, 1), True)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("score", ["softmax", "relu", "sigmoid"])
def test_attention_answers_several_at_once(
    score: str, heads: int, causal: bool, value: bool, word: int | tuple[int, ...]
) -> None:
    phi, X = Setting(score, heads, causal, value).attention(6, seed=heads), gaussian_context(5, 6, seed=1)
    _check_inners(respond(phi, X, word), PlainResponse(phi, X, word), phi(X).shape, seed=5)


def test_captured_rows_are_answered_too() -> None:
    """A row that gives almost all of its weight to the word that moves."""
    phi = Setting("softmax", 2).attention(6, seed=1)
    X = gaussian_context(5, 6, seed=1)
    X[2] *= 4
    weights = phi.score.weights(phi.scores(*phi.project(X)[:2]), None)
    assert float(weights[..., 2].max()) > 0.9
    _check_inners(respond(phi, X, 2), PlainResponse(phi, X, 2), X.shape, seed=5)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("depth", [None, 1, 3])
@pytest.mark.parametrize("revealed", [False, True])
def test_layers_answer_several_at_once(depth: int | None, together: bool, revealed: bool) -> None:
    phi, X = _layers(depth, revealed), gaussian_context(5, 4, seed=1)
    word: int | tuple[int, ...] = (3, 0) if together else 2
    plain = PlainResponse(phi, X, word, together)
    _check_inners(respond(phi, X, word, together=together), plain, phi(X).shape, seed=5)


def test_maps_without_them_are_asked_one_after_another() -> None:
    for name in ("own", "linear"):
        given = scene(name)
        response = respond(given.phi, given.X, given.word)
        assert not hasattr(response, "inners")
        vectors = [normal(*given.phi(given.X).shape, seed=k) for k in range(2)]
        delta = torch.from_numpy(given.ball(4, 1))
        _same(functionals(response, vectors), [response.inner(u) for u in vectors], delta)


# Stored responses


def _layers(depth: int | None, revealed: bool) -> RandomFeatures | DeepRandomFeatures:
    first = None if revealed else normal(9, 20, seed=1) / math.sqrt(20)
    if depth is None:
        return RandomFeatures(5, 4, 9, activation="tanh", seed=3, weight=first)
    deeper = [normal(9, 9, seed=layer) / 3 for layer in range(2, depth + 1)]
    return DeepRandomFeatures(5, 4, depth, 9, "softplus", seed=3, weights=None if first is None else [first, *deeper])


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("depth", [None, 3])
@pytest.mark.parametrize("revealed", [False, True])
@pytest.mark.parametrize("before", [0, 4, 30])
def test_a_stored_response_is_that_of_the_same_map(
    depth: int | None, together: bool, revealed: bool, before: int
) -> None:
    """However much of the weights was known before: nothing, a few questions, or all of them."""
    phi, X = _layers(depth, revealed), gaussian_context(5, 4, seed=1)
    if before:
        features_of(phi, torch.stack([gaussian_context(5, 4, seed=10 + k) for k in range(before)]))
    word: int | tuple[int, ...] = (3, 0) if together else 2
    lazy = respond(phi, X, word, together=together)
    assert isinstance(lazy, LayeredResponse)
    stored = lazy.stored()
    assert all(isinstance(block, DenseGaussian) for block in stored.blocks)
    assert (stored.shape, stored.batch) == (lazy.shape, lazy.batch)
    for name in ("dtype", "random_starts", "nonsmooth", "expensive"):
        assert getattr(stored.hints, name) == getattr(lazy.hints, name)
    delta = normal(6, *lazy.shape, seed=2)
    plain = PlainResponse(phi, X, word, together)
    u = normal(9, seed=4)
    for other in (lazy, plain):
        assert float((stored.features(delta) - other.features(delta)).abs().max()) <= 1e-10
        for one, two in zip(stored.change(delta), other.change(delta), strict=True):
            assert one is not None
            assert two is not None
            assert float((one - two).abs().max()) <= 1e-9
        _same(stored.inners([u]), [other.inner(u)], delta, 1e-9)


def test_a_simulation_stores_what_it_asks_often() -> None:
    given = scene("rf")
    found = Simulation(RandomFeatures(5, 4, 30), given.contexts, given.labels, given.X, 1.0, 0)
    assert isinstance(found.response, LayeredResponse)
    assert isinstance(found.response.blocks[0], DenseGaussian)


# Problems


def test_problems_are_values() -> None:
    assert Problem("fine-tuned") == Problem("fine-tuned", "alignment", 0.0)
    assert Problem("fine-tuned", penalty=1) == Problem("fine-tuned", penalty=1.0)
    assert isinstance(Problem("re-trained", penalty=np.float64(0.5)).penalty, float)
    assert len({Problem("fine-tuned"), Problem("fine-tuned"), Problem("re-trained")}) == 2


def test_the_re_trained_functional_is_the_alignment_vector() -> None:
    given = scene("raf")
    phi: FeatureMap = given.phi
    own = phi(given.X)
    model = Interpolator(features_of(phi, given.contexts), given.labels)
    losses = _losses(given)
    point = given.ball(1, 3)
    features = torch.from_numpy(given.moved(point))
    expected = torch.stack(
        [features @ v for v in (model.theta, own.reshape(-1) / own.square().sum(), model.alignment(own))]
    )
    assert float((losses.several(torch.from_numpy(point))[0] - expected).abs().max()) <= 1e-10
