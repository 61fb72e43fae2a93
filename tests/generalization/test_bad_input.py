"""What generalization refuses: one line that states what must hold and what was received."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from maps.test_bad_input import refused
from torch import Tensor

from generalization.plain import signs
from wordsway import (
    Interpolator,
    NumericalError,
    RandomAttention,
    StreamedFeatures,
    gaussian_context,
    memory,
    one_word_generalization,
    prediction_gap,
)
from wordsway.generalization import Problem

N, D = 4, 3
SAMPLES = torch.stack([gaussian_context(N, D, seed) for seed in range(1, 5)])
X = gaussian_context(N, D)
LABELS = signs(4)
ROWS = np.random.default_rng(1).standard_normal((4, 6))
MODEL = Interpolator(ROWS, LABELS)


def _broken(values: Any, place: Any, value: float) -> Any:
    copy = values.clone() if isinstance(values, Tensor) else values.copy()
    copy[place] = value
    return copy


def _untouched(X: Tensor) -> Tensor:
    pytest.fail("the map was evaluated before the arguments were checked")


SHAPE = "contexts must have the shape (count, n, d)"
LABEL_ERRORS: list[tuple[Any, list[str]]] = [
    ([1, -1, 0, 1], ["labels must be -1 or +1", "got 0"]),
    ([1, -1, math.nan, 1], ["labels must be -1 or +1", "got nan"]),
    ([True, False, True, True], ["labels must be -1 or +1", "got 0"]),
    ([1, -1, 1], ["labels must have the shape (4,)", "(3,)"]),
    ([[1], [-1], [1], [1]], ["labels must have the shape (4,)", "(4, 1)"]),
    (1, ["labels must have the shape (4,)", "()"]),
    ([1, 1, 1, 1], ["labels must be of both classes", "got only +1", "add samples of the other"]),
    (["good", "bad", "good", "bad"], ["labels must be real numbers", "got <U4"]),
    (None, ["labels must be real numbers", "got NoneType"]),
    ([1j, -1, 1, 1], ["labels must be real", "complex"]),
]
ARGUMENTS: list[tuple[dict[str, Any], list[str]]] = [
    *(({"labels": labels}, parts) for labels, parts in LABEL_ERRORS),
    ({"contexts": SAMPLES[:0]}, [SHAPE, "(0, 4, 3)"]),
    ({"contexts": []}, [SHAPE, "got none"]),
    ({"contexts": SAMPLES[0]}, [SHAPE, "(4, 3)"]),
    ({"contexts": SAMPLES.int()}, ["contexts must be float32 or float64", "int32"]),
    ({"contexts": SAMPLES[:, :3]}, ["all contexts must have the same n x d", "4 x 3 for the new sample and 3 x 3"]),
    ({"contexts": [SAMPLES[0], SAMPLES[1][:2]]}, ["all contexts must have the same n x d", "4 x 3 and 2 x 3"]),
    ({"contexts": [np.ones(3)]}, ["a context is n words (rows) by d dimensions", "(3,)"]),
    ({"contexts": "samples"}, ["contexts must be float32 or float64", "got <U7"]),
    ({"contexts": None}, ["contexts must be float32 or float64", "got NoneType"]),
    ({"contexts": _broken(SAMPLES, (2, 1, 0), math.nan)}, ["row 1 of context 2 has nan in column 0"]),
    ({"contexts": list(_broken(SAMPLES, (2, 1, 0), math.inf))}, ["row 1 of the context has inf in column 0"]),
    ({"contexts": torch.cat([SAMPLES[:3], X[None]])}, ["the new sample must not be a training sample", "leave it out"]),
    ({"X": X * math.nan}, ["row 0 of the context has nan"]),
    ({"X": X[None]}, ["a context is n words (rows) by d dimensions", "(1, 4, 3)"]),
    ({"X": X.int()}, ["a context must be float32 or float64", "int32"]),
    *(
        ({"y": y}, ["the new sample's label must be -1 or +1, got "])
        for y in (0, 2, 0.5, math.nan, None, "1", [1, 1], (), torch.ones(2), np.ones((2, 2)))
    ),
    ({"word": N}, ["word must be 0..3", "got 4"]),
    ({"word": -1}, ["word must be 0..3", "got -1"]),
    ({"word": (0, 1)}, ["word must be 0..3", "got (0, 1)"]),
    ({"radius": 0.0}, ["radius must be a finite number > 0", "got 0.0"]),
    ({"radius": math.nan}, ["radius must be a finite number > 0", "got nan"]),
    ({"start": -1.0}, ["start must be a number >= 0 or a vector", "got -1.0"]),
    ({"start": math.nan}, ["start must be finite"]),
    ({"start": "zero"}, ["start must be real numbers", "got <U4"]),
    ({"start": np.ones(5), "phi": RandomAttention(D)}, ["start must have 12 entries, got 5"]),
    ({"seed": -1, "phi": RandomAttention(D)}, ["seed must be an integer with 0 <= seed < 2^63", "got -1"]),
    ({"phi": 3}, ["a map must be callable on a context", "got int"]),
    ({"phi": lambda X: X.numpy()}, ["a map must return a torch tensor", "got ndarray"]),
    ({"phi": lambda X: X.int()}, ["a map must return features of floats", "torch.int32"]),
    ({"phi": RandomAttention(D + 1)}, ["reads words of d=4", "d=3"]),
    (
        {"phi": lambda X: torch.eye(4) + X.detach().sum()},
        ["must depend on the context through torch operations"],
    ),
]
ONE_OF_EACH = "losses, penalties and trainings must each name at least one"
SEARCHES: list[tuple[dict[str, Any], list[str]]] = [
    *(({name: []}, [ONE_OF_EACH, "got none"]) for name in ("losses", "penalties", "trainings")),
    ({"losses": "error"}, ["losses must be a sequence", "got 'error'", "put it in a list"]),
    ({"trainings": "re-trained"}, ["trainings must be a sequence", "got 're-trained'"]),
    ({"penalties": 0.1}, ["penalties must be a sequence", "got 0.1"]),
    ({"losses": ["alignmet"]}, ["loss must be one of alignment, error, swapped", "did you mean 'alignment'?"]),
    ({"trainings": ["tuned"]}, ["training must be one of fine-tuned, re-trained", "got 'tuned'"]),
    ({"penalties": [0.0, -1.0]}, ["penalty must be a finite number, at least 0", "got -1.0"]),
]


def _refused(call: Any, changed: dict[str, Any], parts: list[str]) -> None:
    given: dict[str, Any] = {"phi": _untouched, "contexts": SAMPLES, "labels": LABELS, "X": X, "y": 1}
    refused(parts, call, **(given | changed))


@pytest.mark.parametrize("call", [one_word_generalization, prediction_gap])
@pytest.mark.parametrize(("changed", "parts"), ARGUMENTS)
def test_arguments(call: Any, changed: dict[str, Any], parts: list[str]) -> None:
    _refused(call, changed, parts)


@pytest.mark.parametrize(("changed", "parts"), SEARCHES)
def test_searches(changed: dict[str, Any], parts: list[str]) -> None:
    _refused(one_word_generalization, changed, parts)


@pytest.mark.parametrize(
    ("phi", "parts"),
    [
        (lambda X: X / 0, ["the features must be finite"]),
        (lambda X: X * 1e200, ["the kernel must be finite"]),
        (lambda X: X * (X[0, 0] != X[0, 0]), ["phi(X) is zero"]),
    ],
)
def test_maps_without_usable_features(phi: Any, parts: list[str]) -> None:
    _refused(one_word_generalization, {"phi": phi, "kind": NumericalError}, parts)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("fine-tune",), ["training must be one of fine-tuned, re-trained", "'fine-tune'", "'fine-tuned'?"]),
        ((None,), ["training must be one of", "got None"]),
        (("fine-tuned", "zzz"), ["loss must be one of alignment, error, swapped, got 'zzz'"]),
        (("fine-tuned", ["error"]), ["loss must be one of", "got ['error']"]),
        *(
            (("fine-tuned", "error", penalty), ["penalty must be a finite number, at least 0", f"got {penalty!r}"])
            for penalty in (-0.1, math.nan, math.inf, "much", None)
        ),
    ],
)
def test_problems(arguments: Any, parts: list[str]) -> None:
    refused(parts, Problem, *arguments)


# Interpolators


@pytest.mark.parametrize(
    ("features", "parts"),
    [
        (ROWS[:0], ["features must have the shape (N, ...) with N >= 1", "(0, 6)"]),
        (ROWS[:, :0], ["features must have the shape (N, ...)", "(4, 0)"]),
        (ROWS[0], ["features must have the shape (N, ...)", "(6,)"]),
        (ROWS * 1j, ["features must be real", "complex128"]),
        ([[1.0, 2.0], [3.0]], ["features must be rectangular numbers"]),
        ("features", ["features must be real numbers", "got <U8"]),
    ],
)
def test_features(features: Any, parts: list[str]) -> None:
    refused(parts, Interpolator, features, LABELS)


@pytest.mark.parametrize(("labels", "parts"), LABEL_ERRORS)
def test_labels(labels: Any, parts: list[str]) -> None:
    refused(parts, Interpolator, ROWS, labels)


@pytest.mark.parametrize(
    ("features", "parts"),
    [
        (_broken(ROWS, (2, 3), math.nan), ["the features must be finite", "rescale the contexts"]),
        (_broken(ROWS, (2, 3), -math.inf), ["the features must be finite"]),
        (1e200 * ROWS, ["the kernel must be finite", "rescale the contexts"]),
        *(
            (StreamedFeatures(lambda X: X / (X[0, 0] - SAMPLES[2, 0, 0]), SAMPLES, block), ["features must be finite"])
            for block in (1, 3, 64)
        ),
    ],
)
def test_features_that_are_not_finite(features: Any, parts: list[str]) -> None:
    refused(parts, Interpolator, features, LABELS, kind=NumericalError)


@pytest.mark.parametrize(
    "name", ["predict", "project", "fine_tune", "retrain", "direction", "alignment", "with_sample"]
)
def test_new_samples_that_do_not_fit(name: str) -> None:
    method, label = getattr(MODEL, name), (1.0,) if name in ("fine_tune", "retrain") else ()
    refused(["features must have 6 entries", "got 5"], method, np.ones(5), *label)
    refused(["features must have 6 entries", "got 10"], method, np.ones((2, 5)), *label)
    refused(["features must be real numbers", "got <U8"], method, "features", *label)
    for value in (math.nan, math.inf):
        refused(["features must be finite"], method, np.full(6, value), *label, kind=NumericalError)


def test_a_start_that_does_not_fit() -> None:
    refused(["start must have 6 entries", "got 4"], Interpolator, ROWS, LABELS, np.ones(4))
    refused(["start must be finite"], Interpolator, ROWS, LABELS, np.full(6, math.nan), kind=NumericalError)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ((3, SAMPLES), ["a map must be callable on a context", "got int"]),
        ((lambda X: X.numpy(), SAMPLES), ["a map must return a torch tensor", "got ndarray"]),
        ((RandomAttention(D), SAMPLES[:0]), [SHAPE, "got (0, 4, 3)"]),
        *(
            ((RandomAttention(D), SAMPLES, block), [f"block must be an integer >= 1, got {block}"])
            for block in (0, -1, 1.5, True)
        ),
    ],
)
def test_streamed_features(arguments: Any, parts: list[str]) -> None:
    refused(parts, StreamedFeatures, *arguments)


def test_a_kernel_that_does_not_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 100)
    monkeypatch.setattr(memory, "SMALL", 0)
    refused(["the kernel of 4 samples needs 512 B", "100 B are free", "use fewer samples"], Interpolator, ROWS, LABELS)
