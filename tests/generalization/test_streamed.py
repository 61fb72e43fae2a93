"""Features that are computed anew in blocks: the same numbers as stored ones, and never all of them at once."""

import math
import weakref

import numpy as np
import pytest
import torch
from maps.twins import normal
from torch import Tensor

from generalization.plain import plain_features, scene, signs
from wordsway import Interpolator, RandomFeatures, StreamedFeatures, gaussian_context
from wordsway.generalization import features_of

COUNT = 7
CONTEXTS = torch.stack([gaussian_context(5, 4, seed) for seed in range(COUNT)])
LABELS = signs(COUNT)


class Counted(StreamedFeatures):
    """Streamed features that count the rows that are alive at once."""

    alive = 0
    most = 0
    largest = 0

    def rows(self, start: int, stop: int) -> Tensor:
        found = super().rows(start, stop)
        self.alive += len(found)
        self.most, self.largest = max(self.most, self.alive), max(self.largest, len(found))
        weakref.finalize(found, self._gone, len(found))
        return found

    def _gone(self, count: int) -> None:
        self.alive -= count


def _numbers(model: Interpolator, own: Tensor) -> list[Tensor]:
    """Everything that a model says."""
    known = [model.kernel, model.theta, torch.tensor([model.lambda_min, model.error, model.with_sample(own)])]
    learned = [model.fine_tune(own, -1.0), model.retrain(own, -1.0), model.project(own), model.alignment(own)]
    return [*known, *learned, model.predict(own), model.apply(model.theta), model.pull(model.labels)]


@pytest.mark.parametrize("block", [1, 2, 3, 6, 7, 64])
@pytest.mark.parametrize("name", ["raf", "relu-raf", "rf", "own"])
def test_streamed_features_give_the_numbers_of_stored_ones(name: str, block: int) -> None:
    given = scene(name)
    phi, own = given.phi, torch.from_numpy(plain_features(given.phi, given.X[None])[0])
    contexts, labels = given.contexts, given.labels
    stored = Interpolator(plain_features(phi, contexts), labels)
    streamed = Interpolator(StreamedFeatures(phi, contexts, block), labels)
    for one, two in zip(_numbers(streamed, own), _numbers(stored, own), strict=True):
        assert one.shape == two.shape
        assert float((one - two).abs().max()) <= 1e-10
    assert (streamed.singular, streamed.interpolates) == (stored.singular, stored.interpolates)


@pytest.mark.parametrize("block", [1, 2, 3, 5])
def test_never_more_than_two_blocks_are_held(block: int) -> None:
    given = scene("raf", count=11)
    own = given.phi(given.X)
    counted = Counted(given.phi, given.contexts, block)
    model = Interpolator(counted, given.labels)
    _numbers(model, own)
    assert counted.largest == block
    assert counted.most <= 2 * block
    assert counted.shape == (11, own.numel())


@pytest.mark.parametrize("block", [2, 64])
def test_lazily_revealed_features_may_be_streamed(block: int) -> None:
    """The map remembers what it was asked, so that it gives the same features every time."""
    phi = RandomFeatures(5, 4, 30, seed=3)
    streamed = Interpolator(StreamedFeatures(phi, CONTEXTS, block), LABELS)
    stored = Interpolator(plain_features(phi, CONTEXTS), LABELS)
    assert float((streamed.theta - stored.theta).abs().max()) <= 1e-10


def test_a_map_of_one_context_at_a_time_and_one_of_batches() -> None:
    weight = normal(8, 20, seed=1) / math.sqrt(20)
    batched = RandomFeatures(5, 4, weight=weight)
    for phi in (batched, lambda X: batched(X).reshape(2, 4)):
        found = features_of(phi, CONTEXTS)
        assert found.shape == (COUNT, 8)
        assert not found.requires_grad
        np.testing.assert_allclose(found.numpy(), plain_features(phi, CONTEXTS), atol=1e-13)
    assert features_of(lambda X: X, CONTEXTS[:1]).shape == (1, 20)


def test_contexts_may_be_an_array_or_a_list() -> None:
    phi = scene("raf").phi
    theta = Interpolator(StreamedFeatures(phi, CONTEXTS), LABELS).theta
    for given in (CONTEXTS.numpy(), list(CONTEXTS), CONTEXTS.tolist()):
        assert torch.equal(Interpolator(StreamedFeatures(phi, given), LABELS).theta, theta)  # type: ignore[arg-type]
