"""What one-word generalization refuses: one line, before the map is evaluated."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from maps.test_bad_input import refused
from torch import Tensor

from generalization.plain import signs
from wordsway import NumericalError, RandomAttention, gaussian_context, one_word_generalization

N, D = 4, 3
SAMPLES = torch.stack([gaussian_context(N, D, seed) for seed in range(1, 5)])
X = gaussian_context(N, D)
LABELS = signs(4)


class Untouched:
    """A map that fails the test when it is evaluated."""

    def __call__(self, X: Tensor) -> Tensor:
        pytest.fail("the map was evaluated before the arguments were checked")


def _refused(parts: list[str], **changed: Any) -> None:
    given: dict[str, Any] = {"contexts": SAMPLES, "labels": LABELS, "X": X, "y": 1} | changed
    refused(parts, one_word_generalization, given.pop("phi", Untouched()), **given)


def _broken(value: float) -> Tensor:
    samples = SAMPLES.clone()
    samples[2, 1, 0] = value
    return samples


@pytest.mark.parametrize(
    ("contexts", "parts"),
    [
        (SAMPLES[:0], ["contexts must be floats of shape (N, n, d), N >= 1", "(0, 4, 3)"]),
        ([], ["contexts must be floats of shape (N, n, d), N >= 1", "got none"]),
        (SAMPLES[0], ["contexts must be floats of shape (N, n, d), N >= 1", "(4, 3)"]),
        (SAMPLES.int(), ["contexts must be floats of shape (N, n, d)", "torch.int32"]),
        (SAMPLES[:, :3], ["all contexts must have the same n x d", "4 x 3 for the new sample and 3 x 3"]),
        (SAMPLES[:, :, :2], ["all contexts must have the same n x d", "4 x 3 for the new sample and 4 x 2"]),
        ([SAMPLES[0], SAMPLES[1][:2]], ["all contexts must have the same n x d", "4 x 3 and 2 x 3"]),
        ([np.ones(3)], ["a context is n words (rows) by d dimensions", "(3,)"]),
        ("samples", ["contexts must be floats of shape (N, n, d)", "got str"]),
        (None, ["contexts must be floats of shape (N, n, d)", "got NoneType"]),
        (_broken(math.nan), ["contexts must be finite"]),
        (_broken(math.inf), ["contexts must be finite"]),
        (list(_broken(math.nan)), ["row 1 of the context has nan in column 0"]),
        (torch.cat([SAMPLES[:3], X[None]]), ["the new sample must not be a training sample", "leave it out"]),
    ],
)
def test_contexts(contexts: Any, parts: list[str]) -> None:
    _refused(parts, contexts=contexts)


@pytest.mark.parametrize(
    ("new", "parts"),
    [
        (X * math.nan, ["row 0 of the context has nan"]),
        (X[None], ["a context is n words (rows) by d dimensions", "(1, 4, 3)"]),
        (X.int(), ["a context must be float32 or float64", "int32"]),
    ],
)
def test_the_new_sample(new: Any, parts: list[str]) -> None:
    _refused(parts, X=new)


@pytest.mark.parametrize("y", [0, 2, 0.5, -1.5, math.nan, None, "1", [1, 1], (), torch.ones(2), np.ones((2, 2))])
def test_the_label_of_the_new_sample(y: Any) -> None:
    _refused(["the new sample's label must be -1 or +1, got "], y=y)


@pytest.mark.parametrize(
    ("labels", "parts"),
    [
        ([1, -1, 1], ["labels must be one for each of the 4 samples", "(3,)"]),
        ([1, 1, 1, 1], ["labels must be of both classes", "got only +1"]),
        ([1, 0, 1, 0], ["labels must be -1 or +1", "got 0"]),
        (None, ["labels must be an array of numbers"]),
    ],
)
def test_labels(labels: Any, parts: list[str]) -> None:
    _refused(parts, labels=labels)


@pytest.mark.parametrize(
    ("named", "parts"),
    [
        ({"losses": ()}, ["losses, penalties and trainings must each name at least one", "got none"]),
        ({"penalties": ()}, ["losses, penalties and trainings must each name at least one", "got none"]),
        ({"trainings": []}, ["losses, penalties and trainings must each name at least one", "got none"]),
        ({"losses": "error"}, ["losses must be a sequence", "got 'error'", "put it in a list"]),
        ({"trainings": "re-trained"}, ["trainings must be a sequence", "got 're-trained'"]),
        ({"penalties": 0.1}, ["penalties must be a sequence", "got 0.1"]),
        ({"losses": ["alignmet"]}, ["loss must be one of alignment, error, swapped", "did you mean 'alignment'?"]),
        ({"trainings": ["tuned"]}, ["training must be one of fine-tuned, re-trained", "got 'tuned'"]),
        ({"penalties": [0.0, -1.0]}, ["penalty must be a finite number, at least 0", "got -1.0"]),
        ({"penalties": ["much"]}, ["penalty must be a finite number, at least 0", "got 'much'"]),
        ({"word": N}, ["word must be 0..3", "got 4"]),
        ({"word": -1}, ["word must be 0..3", "got -1"]),
        ({"word": (0, 1)}, ["word must be 0..3", "got (0, 1)"]),
        ({"radius": 0.0}, ["radius must be a finite number > 0", "got 0.0"]),
        ({"radius": math.nan}, ["radius must be a finite number > 0", "got nan"]),
    ],
)
def test_what_is_searched(named: dict[str, Any], parts: list[str]) -> None:
    _refused(parts, **named)


@pytest.mark.parametrize(
    ("phi", "parts"),
    [
        (3, ["a map must be callable on a context", "got int"]),
        (lambda X: X.numpy(), ["a map must return a torch tensor", "got ndarray"]),
        (lambda X: X.int(), ["features must be floats", "torch.int32"]),
        (RandomAttention(D + 1), ["reads words of d=4", "d=3"]),
        (lambda X: torch.eye(4) + X.detach().sum(), ["must depend on the context through torch operations"]),
    ],
)
def test_maps(phi: Any, parts: list[str]) -> None:
    _refused(parts, phi=phi)


def test_seeds() -> None:
    _refused(["seed must be an integer with 0 <= seed < 2^63", "got -1"], phi=RandomAttention(D), seed=-1)


@pytest.mark.parametrize(
    ("phi", "parts"),
    [
        (lambda X: X / 0, ["the features must be finite"]),
        (lambda X: X * 1e200, ["the kernel must be finite"]),
        (lambda X: X * (X[0, 0] != X[0, 0]), ["phi(X) is zero"]),
    ],
)
def test_maps_without_usable_features(phi: Any, parts: list[str]) -> None:
    refused(parts, one_word_generalization, phi, SAMPLES, LABELS, X, 1, kind=NumericalError)
