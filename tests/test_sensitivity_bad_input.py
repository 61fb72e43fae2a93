"""What measurements refuse: one line that says what must hold and what was got, before anything is searched."""

import math
from typing import Any

import pytest
import torch
from maps.test_bad_input import refused
from torch import Tensor

from wordsway import (
    NumericalError,
    RandomAttention,
    RandomFeatures,
    gaussian_context,
    memory,
    random_feature_response,
    respond,
    response_sensitivity,
    sensitivity_profile,
    vocabulary_sensitivity,
    word_sensitivity,
)
from wordsway.sensitivity import SearchBudget

N, D = 4, 3
X = gaussian_context(N, D)
MAPS = {
    "raf": RandomAttention(D),
    "linear": RandomAttention(D, "linear"),
    "rf": RandomFeatures(N, D),
    "plain": lambda X: X.sin(),
}


class Untouched:
    """A map that fails the test when it is evaluated: what is wrong should be said before that."""

    def __call__(self, X: Tensor) -> Tensor:
        pytest.fail("the map was evaluated before the arguments were checked")


@pytest.mark.parametrize(
    ("radius", "got"),
    [
        (0, "got 0"),
        (0.0, "got 0.0"),
        (-1.5, "got -1.5"),
        (math.nan, "got nan"),
        (math.inf, "got inf"),
        ("wide", "got 'wide'"),
        (True, "got True"),
        ([1.0], "got [1.0]"),
    ],
)
def test_a_radius_must_be_finite_and_positive(radius: Any, got: str) -> None:
    parts = ["radius must be a finite number > 0", got, "leave it out for sqrt(d) = 1.732"]
    refused(parts, word_sensitivity, Untouched(), X, 0, radius)
    refused(parts, sensitivity_profile, Untouched(), X, radius=radius)
    refused(parts, word_sensitivity, RandomAttention(D), X, (0, 1), radius, together=True)
    refused(parts, response_sensitivity, random_feature_response(X), 0, radius)


@pytest.mark.parametrize("radius", [1e-160, 1e160])
def test_a_radius_must_have_a_square(radius: float) -> None:
    parts = ["radius must be from 1e-150 to 1e+150, so that it can be squared", f"got {radius:g}"]
    refused(parts, word_sensitivity, Untouched(), X, 0, radius)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of what overflows on the way
def test_a_change_that_overflows_is_no_witness() -> None:
    phi = RandomFeatures(N, D, dtype=torch.float32)
    refused(["is not finite: use a smaller radius"], word_sensitivity, phi, X, 0, 1e20, kind=NumericalError)


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        (N, ["word must be 0..3", "got 4"]),
        (-1, ["word must be 0..3", "got -1", "never from the end"]),
        (0.5, ["word must be 0..3", "got 0.5"]),
        (None, ["word must be 0..3", "got None"]),
        (True, ["word must be 0..3", "got True"]),
        ("some", ["word must be", '"all"', "got 'some'"]),
        ((), ["at least one position", "got none"]),
        ((0, 7), ["word must be 0..3", "got 7"]),
        ((2, 2), ["words must be distinct", "got 2 more than once"]),
    ],
)
def test_words_out_of_place(word: Any, parts: list[str]) -> None:
    refused(parts, word_sensitivity, Untouched(), X, word)
    refused(parts, word_sensitivity, Untouched(), X, word, together=True)
    if isinstance(word, tuple):
        refused(parts, sensitivity_profile, Untouched(), X, word)
    elif word != "some":
        refused(parts, vocabulary_sensitivity, Untouched(), X, word, X)


@pytest.mark.parametrize("words", [2, 1.5, "all words"])
def test_a_profile_is_of_several_words(words: Any) -> None:
    refused(["word", "got"], sensitivity_profile, Untouched(), X, words)


@pytest.mark.parametrize("phi", MAPS.values(), ids=MAPS)
@pytest.mark.parametrize("ceiling", ["thight", "", "none"])
def test_an_unknown_ceiling(phi: Any, ceiling: str) -> None:
    parts = ["ceiling must be one of simple, quick, tight", f"got {ceiling!r}"]
    refused(parts, word_sensitivity, phi, X, 0, ceiling=ceiling)
    refused(parts, sensitivity_profile, phi, X, ceiling=ceiling)
    refused(parts, word_sensitivity, phi, X, (0, 1), together=True, ceiling=ceiling)
    refused(parts, response_sensitivity, respond(phi, X, 0), 0, ceiling=ceiling)


def test_an_unknown_ceiling_has_a_hint() -> None:
    refused(["got 'thight'", "tight"], word_sensitivity, RandomAttention(D), X, 0, ceiling="thight")


@pytest.mark.parametrize(
    ("context", "parts"),
    [
        (torch.ones(3).double(), ["n words (rows) by d dimensions", "got shape (3,)"]),
        (torch.ones(0, 3).double(), ["n, d >= 1", "got shape (0, 3)"]),
        (torch.ones(3, 3, dtype=torch.int32), ["must be float32 or float64", "got int32"]),
        (torch.tensor([[1.0, 2.0], [-math.inf, 0.0]]), ["row 1 of the context has -inf in column 0", "must be finite"]),
        ("a sentence", ["must be float32 or float64", "got"]),
    ],
)
def test_what_is_no_context(context: Any, parts: list[str]) -> None:
    for measure in (word_sensitivity, sensitivity_profile):
        refused(parts, measure, Untouched(), context)
    refused(parts, vocabulary_sensitivity, Untouched(), context, 0, X)


@pytest.mark.parametrize(
    ("embeddings", "parts"),
    [
        (torch.ones(5, D + 1).double(), ["embeddings must have the context's d=3 columns", "got 4"]),
        (torch.ones(5).double(), ["embeddings", "got shape (5,)"]),
        (torch.ones(0, D).double(), ["embeddings", "got shape (0, 3)"]),
        (torch.ones(5, D, dtype=torch.int64), ["embeddings", "float32 or float64", "got int64"]),
        (torch.tensor([[1.0, 1.0, 1.0], [1.0, math.nan, 1.0]]), ["embeddings", "nan", "finite"]),
    ],
)
def test_what_is_no_table_of_embeddings(embeddings: Any, parts: list[str]) -> None:
    refused(parts, vocabulary_sensitivity, Untouched(), X, 0, embeddings)


@pytest.mark.parametrize("seed", [-1, 1.5, "today", 2**63])
def test_a_seed_must_be_a_natural_number(seed: Any) -> None:
    refused(["seed must be an integer", f"got {seed!r}"], word_sensitivity, RandomAttention(D), X, seed=seed)


def test_a_response_along_several_words_is_not_one() -> None:
    response = respond(RandomAttention(D), X, (0, 1))
    refused(["one word (or words together) is needed", "got one along 2"], response_sensitivity, response, (0, 1))


def test_maps_that_cannot_be_measured() -> None:
    for measure in (word_sensitivity, sensitivity_profile):
        refused(["a map must be callable", "got int"], measure, 3, X)
        refused(["must return a torch tensor", "got list"], measure, lambda X: [1.0], X)
        refused(["without gradient"], measure, lambda X: X.detach() * 2, X)
        refused(["real floating-point features", "got torch.int64"], measure, lambda X: X.long(), X)
        refused(["phi(X) is zero"], measure, lambda X: 0 * X, X, kind=NumericalError)
        refused(["phi(X) is not finite"], measure, lambda X: X / 0, X, kind=NumericalError)
    refused(["reads words of d=5", "got a context of d=3"], word_sensitivity, RandomAttention(5), X)


def test_features_without_gradient_have_a_vocabulary_all_the_same() -> None:
    found = vocabulary_sensitivity(lambda X: X.detach().sign() + 0.5, X, 0, -X)
    assert found.value > 0


@pytest.mark.parametrize("word", [0, "all"])
def test_what_does_not_fit_is_refused_with_the_estimate(word: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 2_000_000)
    parts = ["attention scores of 3000 x 3000 words", "needs", "MB, but 2.0 MB are free: "]
    refused(parts, word_sensitivity, RandomAttention(2), gaussian_context(3000, 2), word)


def test_features_that_stop_being_finite_within_the_ball_are_said_to() -> None:
    phi = RandomFeatures(N, D, activation="square", weight=1e150 * torch.ones(2, N * D).double())
    refused(["not finite"], word_sensitivity, phi, 1e-3 * X, 0, 1e100, kind=NumericalError)


@pytest.mark.parametrize(("word", "together"), [(0, False), ("all", False), ([0, 1], True)])
def test_a_map_that_is_not_finite_within_the_ball_is_to_blame(word: Any, together: bool) -> None:
    parts = ["the features of a perturbed context are not finite: use a smaller radius"]
    given = torch.zeros(N, D).double()
    refused(parts, word_sensitivity, lambda X: torch.log(X + 2), given, word, 3, together=together, kind=NumericalError)


@pytest.mark.parametrize("wrong", ["tight", "", 3, SearchBudget])
def test_a_budget_of_another_kind_is_refused(wrong: Any) -> None:
    parts = ["budget must be a SearchBudget", "got"]
    refused(parts, word_sensitivity, RandomAttention(D), X, budget=wrong)
    refused(parts, word_sensitivity, RandomAttention(D), X, (0, 1), together=True, budget=wrong)
