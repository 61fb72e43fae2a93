"""What the interpolator refuses: one line that says what must hold and what was got."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from maps.test_bad_input import refused

from generalization.plain import signs
from wordsway import Interpolator, NumericalError, StreamedFeatures, gaussian_context, memory
from wordsway.maps import FeatureMap

ROWS = np.random.default_rng(1).standard_normal((4, 6))
LABELS = signs(4)
CONTEXTS = torch.stack([gaussian_context(3, 2, seed) for seed in range(4)])
MODEL = Interpolator(ROWS, LABELS)


def _with(value: float) -> Any:
    rows = ROWS.copy()
    rows[2, 3] = value
    return rows


@pytest.mark.parametrize(
    ("labels", "parts"),
    [
        ([1, -1, 0, 1], ["labels must be -1 or +1", "got 0"]),
        ([1, -1, 2.5, 1], ["labels must be -1 or +1", "got 2.5"]),
        ([1, -1, math.nan, 1], ["labels must be -1 or +1", "got nan"]),
        ([True, False, True, True], ["labels must be -1 or +1", "got 0"]),
        ([1, -1, 1], ["labels must be one for each of the 4 samples", "(3,)"]),
        ([[1], [-1], [1], [1]], ["labels must be one for each of the 4 samples", "(4, 1)"]),
        (1, ["labels must be one for each of the 4 samples", "()"]),
        ([], ["labels must be one for each of the 4 samples", "(0,)"]),
        ([1, 1, 1, 1], ["labels must be of both classes", "got only +1", "add samples of the other"]),
        ([-1, -1, -1, -1], ["labels must be of both classes", "got only -1"]),
        (["good", "bad", "good", "bad"], ["labels must be an array of numbers", "got list"]),
        (None, ["labels must be an array of numbers", "got NoneType"]),
        ([1j, -1, 1, 1], ["labels must be real", "complex"]),
    ],
)
def test_labels(labels: Any, parts: list[str]) -> None:
    refused(parts, Interpolator, ROWS, labels)


@pytest.mark.parametrize(
    ("features", "parts"),
    [
        (ROWS[:0], ["features must be floats, one sample a row, N >= 1", "(0, 6)"]),
        (ROWS[:, :0], ["features must be floats, one sample a row, N >= 1", "(4, 0)"]),
        (ROWS[0], ["features must be floats, one sample a row", "(6,)"]),
        (np.ones((4, 6), int), ["features must be floats", "torch.int64"]),
        (np.ones((4, 6), bool), ["features must be floats", "torch.bool"]),
        (ROWS * 1j, ["features must be real", "complex128", "take the real part"]),
        ([[1.0, 2.0], [3.0]], ["features must be an array of numbers", "got list"]),
        ("features", ["features must be an array of numbers", "got str"]),
    ],
)
def test_features(features: Any, parts: list[str]) -> None:
    refused(parts, Interpolator, features, LABELS)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_features_that_are_not_finite(value: float) -> None:
    parts = ["the features must be finite", "rescale the contexts"]
    refused(parts, Interpolator, _with(value), LABELS, kind=NumericalError)


def _broken(X: torch.Tensor) -> torch.Tensor:
    return X / (X[0, 0] - CONTEXTS[2, 0, 0])


@pytest.mark.parametrize("block", [1, 3, 64])
def test_streamed_features_that_are_not_finite(block: int) -> None:
    """Wherever the block with the bad sample comes."""
    streamed = StreamedFeatures(_broken, CONTEXTS, block)
    refused(["the features must be finite"], Interpolator, streamed, LABELS, kind=NumericalError)


def test_features_whose_squares_overflow() -> None:
    parts = ["the kernel must be finite", "rescale the contexts"]
    refused(parts, Interpolator, 1e200 * ROWS, LABELS, kind=NumericalError)


ASKED: dict[str, Callable[[Any], Any]] = {
    "predict": MODEL.predict,
    "project": MODEL.project,
    "fine_tune": lambda features: MODEL.fine_tune(features, 1.0),
    "retrain": lambda features: MODEL.retrain(features, 1.0),
    "direction": MODEL.direction,
    "alignment": MODEL.alignment,
    "with_sample": MODEL.with_sample,
}


@pytest.mark.parametrize("name", ASKED)
def test_new_samples_that_do_not_fit(name: str) -> None:
    ask = ASKED[name]
    refused(["features must have 6 entries", "got 5"], ask, np.ones(5))
    refused(["features must have 6 entries", "got 10"], ask, np.ones((2, 5)))
    refused(["features must be an array of numbers", "got str"], ask, "features")
    for value in (math.nan, math.inf):
        refused(["features must be finite"], ask, np.full(6, value), kind=NumericalError)


def test_a_start_that_does_not_fit() -> None:
    refused(["start must have 6 entries", "got 4"], Interpolator, ROWS, LABELS, np.ones(4))
    refused(["start must be finite"], Interpolator, ROWS, LABELS, np.full(6, math.nan), kind=NumericalError)


@pytest.mark.parametrize(
    ("phi", "parts"),
    [
        (3, ["a map must be callable on a context", "got int"]),
        (lambda X: X.numpy(), ["a map must return a torch tensor", "got ndarray"]),
    ],
)
def test_maps_that_are_none(phi: FeatureMap, parts: list[str]) -> None:
    refused(parts, StreamedFeatures, phi, CONTEXTS)


def test_a_kernel_that_cannot_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 100)
    monkeypatch.setattr(memory, "SMALL", 0)
    refused(["the kernel of 4 samples needs 512 B", "100 B are free", "use fewer samples"], Interpolator, ROWS, LABELS)
