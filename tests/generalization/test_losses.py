"""Every loss from its definition, its gradient by central differences, and the responses that make both fast."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from maps.twins import Setting, normal
from torch import Tensor

from generalization.plain import MAPS, Scene, scene
from wordsway import DeepRandomFeatures, DenseGaussian, RandomFeatures, gaussian_context, respond
from wordsway.generalization import LOSSES, TRAININGS, Losses, Problem, Simulation, features_of
from wordsway.generalization.losses import functionals
from wordsway.maps import PlainResponse, Response
from wordsway.maps.layers import LayeredResponse
from wordsway.maps.response import Functional, Functionals

PROBLEMS = [Problem(*choice) for choice in itertools.product(TRAININGS, LOSSES, (0.0, 0.3, 7.0))]
STEP = 1e-5


def _losses(given: Scene, problems: Sequence[Problem] = PROBLEMS) -> Losses:
    found = Simulation(*given.arguments)
    return Losses(found.several, problems, given.y, found.before)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", MAPS)
def test_every_loss_and_gradient_is_that_of_the_definition(name: str, seed: int) -> None:
    given = scene(name, seed)
    exact, points = given.models(), given.ball(3, seed)
    values, gradients = _losses(given)(np.repeat(points[:, None], len(PROBLEMS), axis=1))
    features = given.moved(points)
    for column, problem in zip(values.T, PROBLEMS, strict=True):
        np.testing.assert_allclose(column, exact.loss(problem, features), rtol=1e-8, atol=1e-8)
    for axis in range(points.shape[1]):
        step = STEP * np.eye(points.shape[1])[axis]
        ahead, behind = given.moved(points + step), given.moved(points - step)
        for g, problem in enumerate(PROBLEMS):
            measured = (exact.loss(problem, ahead) - exact.loss(problem, behind)) / (2 * STEP)
            size = np.abs(gradients[:, g]).max()
            np.testing.assert_allclose(gradients[:, g, axis], measured, atol=1e-6 * (1 + size), err_msg=str(problem))


def test_problems_are_values() -> None:
    assert Problem("fine-tuned", penalty=1) == Problem("fine-tuned", "alignment", 1.0)
    assert isinstance(Problem("re-trained", penalty=np.float64(0.5)).penalty, float)
    assert len({Problem("fine-tuned"), Problem("fine-tuned"), Problem("re-trained")}) == 2


# Several functionals at once


def _same(one: Functionals, others: Sequence[Functional], delta: Tensor, tolerance: float = 1e-11) -> None:
    values, pull_back = one(delta)
    assert len(values) == len(others)
    weights = normal(*values.shape, seed=9)
    pulls = [other(delta)[1] for other in others]
    mixed = sum(
        c.reshape(*c.shape, *[1] * (delta.ndim - c.ndim)) * pull for c, pull in zip(weights, pulls, strict=True)
    )
    assert float((pull_back(weights) - mixed).abs().max()) <= len(others) * tolerance * (1 + float(mixed.abs().max()))
    for place, (value, other) in enumerate(zip(values, others, strict=True)):
        alone = torch.zeros_like(values)
        alone[place] = 1
        grad = pull_back(alone)
        single, pull = other(delta)
        assert pull is not None
        assert value.shape == single.shape
        assert grad.shape == pull.shape == delta.shape
        assert float((value - single).abs().max()) <= tolerance * (1 + float(single.abs().max()))
        assert float((grad - pull).abs().max()) <= tolerance * (1 + float(pull.abs().max()))


def _check_inners(response: Response, plain: PlainResponse, shape: Sequence[int], seed: int = 5) -> None:
    vectors = [normal(*shape, seed=seed + k) for k in range(3)]
    assert response.hints.inners is not None
    for lead, count in (((), 1), ((2, 3), 3)):
        delta = normal(*lead, *response.shape, seed=seed)
        _same(response.hints.inners(vectors[:count]), [response.inner(u) for u in vectors[:count]], delta)
        _same(functionals(response, vectors[:count]), [plain.inner(u) for u in vectors[:count]], delta, 1e-9)


@pytest.mark.parametrize(("word", "value"), [(0, True), (3, False), ((4, 1), True)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("score", ["softmax", "relu", "sigmoid"])
def test_attention_computes_several_at_once(
    score: str, heads: int, causal: bool, value: bool, word: int | tuple[int, ...]
) -> None:
    phi, X = Setting(score, heads, causal, value).attention(6, seed=heads), gaussian_context(5, 6, seed=1)
    _check_inners(respond(phi, X, word), PlainResponse(phi, X, word), phi(X).shape)


def test_rows_that_give_almost_all_weight_to_the_moving_word() -> None:
    phi, X = Setting("softmax", 2).attention(6, seed=1), gaussian_context(5, 6, seed=1)
    X[2] *= 4
    weights = phi.score.weights(phi.scores(*phi.project(X)[:2]), None)
    assert float(weights[..., 2].max()) > 0.9
    _check_inners(respond(phi, X, 2), PlainResponse(phi, X, 2), X.shape)


@pytest.mark.parametrize("name", ["own", "linear"])
def test_maps_without_inners_are_evaluated_one_after_another(name: str) -> None:
    given = scene(name)
    response = respond(given.phi, given.X, given.word)
    assert response.hints.inners is None
    vectors = [normal(*given.phi(given.X).shape, seed=k) for k in range(2)]
    delta = torch.from_numpy(given.ball(4, 1))
    _same(functionals(response, vectors), [response.inner(u) for u in vectors], delta)


# Random features: several functionals, and responses with stored weights


def _layers(depth: int | None, lazy: bool) -> RandomFeatures | DeepRandomFeatures:
    first = None if lazy else normal(9, 20, seed=1) / math.sqrt(20)
    if depth is None:
        return RandomFeatures(5, 4, 9, activation="tanh", seed=3, weight=first)
    deeper = [normal(9, 9, seed=layer) / 3 for layer in range(2, depth + 1)]
    return DeepRandomFeatures(5, 4, depth, 9, "softplus", seed=3, weights=None if first is None else [first, *deeper])


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("depth", [None, 1, 3])
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("before", [0, 4, 30])
def test_a_stored_response_is_that_of_the_same_map(depth: int | None, together: bool, lazy: bool, before: int) -> None:
    """However much of the weights was drawn before: nothing, a few products, or all of them."""
    phi, X = _layers(depth, lazy), gaussian_context(5, 4, seed=1)
    if before:
        features_of(phi, torch.stack([gaussian_context(5, 4, seed=10 + k) for k in range(before)]))
    word: int | tuple[int, ...] = (3, 0) if together else 2
    response, plain = respond(phi, X, word, together=together), PlainResponse(phi, X, word, together)
    _check_inners(response, plain, phi(X).shape)
    assert isinstance(response, LayeredResponse)
    stored = response.stored()
    assert all(isinstance(block, DenseGaussian) for block in stored.blocks)
    assert (stored.shape, stored.batch) == (response.shape, response.batch)
    for name in ("dtype", "random_starts", "nonsmooth", "expensive"):
        assert getattr(stored.hints, name) == getattr(response.hints, name)
    delta = normal(6, *response.shape, seed=2)
    for other in (response, plain):
        assert float((stored.features(delta) - other.features(delta)).abs().max()) <= 1e-10
        for one, two in zip(stored.change(delta), other.change(delta), strict=True):
            assert one is not None
            assert two is not None
            assert float((one - two).abs().max()) <= 1e-9
    _check_inners(stored, plain, phi(X).shape)


def test_a_simulation_stores_weights_that_it_uses_often() -> None:
    given = scene("rf")
    found = Simulation(RandomFeatures(5, 4, 30), *given.arguments[1:])
    assert isinstance(found.response, LayeredResponse)
    assert isinstance(found.response.blocks[0], DenseGaussian)
