"""Bad input of maps, responses and measurements: one line with what must hold and what was received."""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from maps.twins import normal
from wordsway import (
    Attention,
    DeepRandomFeatures,
    InputError,
    NumericalError,
    RandomAttention,
    RandomFeatures,
    Rotary,
    gaussian_context,
    memory,
    random_feature_response,
    respond,
    response_sensitivity,
    sensitivity_profile,
    vocabulary_sensitivity,
    word_sensitivity,
)
from wordsway.maps import SearchHints
from wordsway.sensitivity import SearchBudget

N, D = 4, 3
X = gaussian_context(N, D)


def refused(
    parts: Sequence[str], call: Callable[..., Any], *arguments: Any, kind: type[Exception] = InputError, **named: Any
) -> None:
    """Fail unless the call raises one line with these parts, in this order."""
    with pytest.raises(kind) as error:
        call(*arguments, **named)
    message = str(error.value)
    assert "\n" not in message
    assert re.search(".*".join(map(re.escape, parts)), message), message


class Untouched:
    """A map that fails the test when it is evaluated: bad arguments must be refused before that."""

    def __call__(self, X: Tensor) -> Tensor:
        pytest.fail("the map was evaluated before the arguments were checked")


def _matrix(*shape: int) -> Tensor:
    return normal(*shape, seed=1)


SETTINGS: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "unknown score": (
        lambda: RandomAttention(D, "softmx"),
        ("score must be one of softmax, relu, sigmoid, linear", "got 'softmx'", "softmax"),
    ),
    "unknown score of attention": (
        lambda: Attention(None, None, score="max"),
        ("score must be one of softmax, relu, sigmoid, linear", "got 'max'"),
    ),
    "a list of scores": (lambda: RandomAttention(D, ["softmax"]), ("score must be one of", "got ['softmax']")),  # type: ignore[arg-type]
    "rotary of another kind": (
        lambda: Attention(None, None, rotary=3),  # type: ignore[arg-type]
        ("rotary must be a Rotary or None", "got int"),
    ),
    "rotary scaled by a word": (
        lambda: Rotary([1.0], scale="a"),  # type: ignore[arg-type]
        ("scale must be a finite number", "got 'a'"),
    ),
    "rotary scaled by nan": (lambda: Rotary([1.0], scale=math.nan), ("scale must be a finite number", "got nan")),
    "unknown activation": (
        lambda: RandomFeatures(N, D, activation="rely"),
        ("unknown activation 'rely'", "relu", "known are relu, tanh"),
    ),
    "unknown deep activation": (
        lambda: DeepRandomFeatures(N, D, 2, activation="step"),
        ("unknown activation 'step'", "known are relu, tanh"),
    ),
    "unknown cheap activation": (
        lambda: random_feature_response(X, activation="step"),
        ("unknown activation 'step'", "known are relu, tanh"),
    ),
    "no dimension": (lambda: RandomAttention(0), ("d must be an integer >= 1", "got 0")),
    "half a dimension": (lambda: RandomAttention(2.5), ("d must be an integer >= 1", "got 2.5")),  # type: ignore[arg-type]
    "no words": (lambda: RandomFeatures(0, D), ("n must be an integer >= 1", "got 0")),
    "no features": (lambda: RandomFeatures(N, D, k=0), ("k must be an integer >= 1", "got 0")),
    "negative features": (lambda: DeepRandomFeatures(N, D, 2, k=-4), ("k must be an integer >= 1", "got -4")),
    "no cheap features": (lambda: random_feature_response(X, k=0), ("k must be an integer >= 1", "got 0")),
    "no depth": (lambda: DeepRandomFeatures(N, D, 0), ("depth must be an integer >= 1", "got 0")),
    "no cheap depth": (lambda: random_feature_response(X, depth=0), ("depth must be an integer >= 1", "got 0")),
    "a depth that is no number": (
        lambda: DeepRandomFeatures(N, D, "two"),  # type: ignore[arg-type]
        ("depth must be an integer >= 1", "got 'two'"),
    ),
    "no heads": (lambda: Attention(None, None, heads=0), ("heads must be an integer >= 1", "got 0")),
    "a seed below 0": (lambda: RandomAttention(D, seed=-1), ("seed must be an integer", "got -1")),
    "a seed of features below 0": (lambda: RandomFeatures(N, D, seed=-1), ("seed must be an integer", "got -1")),
    "weight of another size": (
        lambda: RandomAttention(D, weight=_matrix(D, D + 1)),
        ("weight must be 3 x 3", "got 3 x 4"),
    ),
    "weight of another rank": (
        lambda: Attention(_matrix(2, D, D), None),
        ("query must have the shape (out, in)", "got"),
    ),
    "weight with nan": (
        lambda: RandomAttention(D, weight=_matrix(D, D) * math.nan),
        ("weight must be finite", "got"),
    ),
    "projections of different words": (
        lambda: Attention(_matrix(4, D), _matrix(4, D + 1)),
        ("must read the same d", "query 3, key 4"),
    ),
    "queries and keys that do not meet": (
        lambda: Attention(_matrix(4, D), _matrix(2, D)),
        ("query and key must have as many rows", "got 4 and 2"),
    ),
    "rows that heads do not divide": (
        lambda: Attention(_matrix(4, 6), _matrix(4, 6), heads=3),
        ("rows of query must be a multiple of heads=3", "got 4"),
    ),
    "an identity that heads do not divide": (
        lambda: Attention(_matrix(4, 5), _matrix(4, 5), heads=2),
        ("None needs d to be a multiple of heads=2", "got 5"),
    ),
    "output of another width": (
        lambda: Attention(_matrix(4, D), _matrix(4, D), output=_matrix(2, 5)),
        ("output must read the 3 columns of the heads", "got 5"),
    ),
    "first layer of another size": (
        lambda: RandomFeatures(N, D, weight=_matrix(5, N * D + 1)),
        ("weight of layer 1 must be 5 x 12", "got 5 x 13"),
    ),
    "features that are not k": (
        lambda: RandomFeatures(N, D, k=6, weight=_matrix(5, N * D)),
        ("weight of layer 1 must be 6 x 12", "got 5 x 12"),
    ),
    "second layer of another size": (
        lambda: DeepRandomFeatures(N, D, 2, weights=[_matrix(5, N * D), _matrix(5, 6)]),
        ("weight of layer 2 must be 5 x 5", "got 5 x 6"),
    ),
    "too few layers": (
        lambda: DeepRandomFeatures(N, D, 3, weights=[_matrix(5, N * D)]),
        ("one matrix for each of the 3 layers", "got 1"),
    ),
    "a ragged weight": (
        lambda: RandomAttention(2, weight=[[1.0, 2.0], [3.0]]),
        ("weight must be rectangular",),
    ),
    "a weight that is text": (lambda: Attention("ab", None), ("query must be real numbers", "got <U2")),
    "a bias that is text": (
        lambda: Attention(_matrix(2, D), _matrix(2, D), query_bias="ab"),
        ("query_bias must be real numbers", "got <U2"),
    ),
    "frequencies that are text": (lambda: Rotary("ab"), ("frequencies must be real numbers", "got <U2")),
    "a ragged layer": (
        lambda: RandomFeatures(1, 2, weight=[[1.0, 2.0], [3.0]]),
        ("weight of layer 1 must be rectangular numbers", "got rows"),
    ),
    "a layer that is nothing": (
        lambda: DeepRandomFeatures(1, 2, 2, weights=[_matrix(2, 2), None]),
        ("weight of layer 2 must be real numbers", "got NoneType"),
    ),
    "a weight with nan": (
        lambda: RandomFeatures(N, D, weight=_matrix(5, N * D) * math.inf),
        ("must be finite", "got"),
    ),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_a_map_with_bad_settings_is_refused_when_it_is_built(case: str) -> None:
    call, parts = SETTINGS[case]
    refused(parts, call)


def test_deep_features_need_a_scale() -> None:
    refused(["tanh has no He scale"], DeepRandomFeatures, N, D, 2, activation="tanh", kind=NumericalError)


@pytest.mark.parametrize(
    ("phi", "context", "parts"),
    [
        (RandomAttention(D), gaussian_context(N, D + 1), ("reads words of d=3", "got a context of d=4")),
        (Attention(None, None, heads=2), X, ("None needs d to be a multiple of heads=2", "got 3")),
        (Attention(None, None, output=torch.ones(2, 5)), X, ("output must read the 3 columns of the heads", "got 5")),
        (Attention(None, None, rotary=Rotary([1.0, 2.0])), X, ("turn at most the 3 coordinates", "2 frequencies")),
        (RandomFeatures(N, D), gaussian_context(N + 1, D), ("reads contexts of n x d = 4 x 3", "got 5 x 3")),
        (DeepRandomFeatures(N, D, 2), gaussian_context(N, 2), ("reads contexts of n x d = 4 x 3", "got 4 x 2")),
    ],
)
def test_a_context_of_another_size_is_refused(phi: Any, context: Tensor, parts: tuple[str, ...]) -> None:
    refused(parts, phi, context)
    for together in (False, True):
        refused(parts, respond, phi, context, (0, 1), together=together)


@pytest.mark.parametrize("phi", [RandomAttention(D), RandomFeatures(N, D), DeepRandomFeatures(N, D, 2)])
@pytest.mark.parametrize(
    ("context", "parts"),
    [
        (X.numpy(), ("a map reads a tensor (..., n, d)", "got ndarray", "use torch.as_tensor")),
        (X.tolist(), ("a map reads a tensor (..., n, d)", "got list", "use torch.as_tensor")),
        (X[0], ("a map reads a tensor (..., n, d) of floats", "got shape (3,) of float64")),
        (X.long(), ("a map reads a tensor (..., n, d) of floats", "got shape (4, 3) of int64")),
    ],
)
def test_a_map_is_called_with_tensors(phi: Any, context: Any, parts: tuple[str, ...]) -> None:
    refused(parts, phi, context)


@pytest.mark.parametrize("phi", [RandomAttention(D), RandomAttention(D, "linear"), RandomFeatures(N, D), lambda X: X])
@pytest.mark.parametrize(
    ("delta", "got"),
    [
        (torch.zeros(D).numpy(), "got ndarray"),
        (torch.zeros(D + 1), "got shape (4,) of torch.float32"),
        (torch.zeros(D, dtype=torch.int64), "got shape (3,) of torch.int64"),
        (torch.tensor(0.0), "got shape () of torch.float32"),
    ],
)
def test_perturbations_have_a_shape(phi: Any, delta: Any, got: str) -> None:
    response = respond(phi, X, 0)
    parts = ["perturbations must be a tensor of floats (..., 3)", got]
    for gradient in (True, False):
        refused(parts, response.change, delta, gradient)
    refused(parts, response.features, delta)
    refused(parts, response.inner(phi(X)), delta)


@pytest.mark.parametrize(
    ("context", "parts"),
    [
        (torch.ones(3).double(), ("n words (rows) by d dimensions", "got shape (3,)")),
        (torch.ones(2, 3, 3).double(), ("n words (rows) by d dimensions", "got shape (2, 3, 3)")),
        (torch.ones(0, 3).double(), ("n, d >= 1", "got shape (0, 3)")),
        (torch.ones(3, 0).double(), ("n, d >= 1", "got shape (3, 0)")),
        (torch.ones(3, 3, dtype=torch.int64), ("must be float32 or float64", "got int64")),
        (torch.ones(3, 3, dtype=torch.float16), ("must be float32 or float64", "got float16")),
        (torch.ones(3, 3, dtype=torch.complex128), ("must be float32 or float64", "got complex128")),
        ([[1.0, 2.0], [1.0]], ("rectangular numbers", "got")),
        ("a sentence", ("must be float32 or float64", "got")),
        (torch.tensor([[1.0, 2.0], [1.0, math.nan]]), ("row 1 of the context has nan", "every entry must be finite")),
        (torch.tensor([[math.inf, 2.0], [1.0, 1.0]]), ("row 0 of the context has inf", "every entry must be finite")),
    ],
)
def test_an_invalid_context_is_refused(context: Any, parts: tuple[str, ...]) -> None:
    for phi in (RandomAttention(3), lambda X: X):
        refused(parts, respond, phi, context, 0)
    refused(parts, random_feature_response, context)
    for measure in (word_sensitivity, sensitivity_profile):
        refused(parts, measure, Untouched(), context)
    refused(parts, vocabulary_sensitivity, Untouched(), context, 0, X)


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        (N, ("word must be 0..3", "got 4")),
        (-1, ("word must be 0..3", "got -1", "never from the end")),
        (1.0, ("word must be 0..3", "got 1.0")),
        (True, ("word must be 0..3", "got True")),
        ("first", ("word must be 0..3", "got 'first'")),
        (None, ("word must be 0..3", "got None")),
        ((), ("at least one position", "got none")),
        ((0, N), ("word must be 0..3", "got 4")),
        ((1, 2, 1), ("words must be distinct", "got 1 more than once")),
    ],
)
def test_invalid_positions_are_refused(word: Any, parts: tuple[str, ...]) -> None:
    for phi in (RandomAttention(D), RandomFeatures(N, D), lambda X: X):
        refused(parts, respond, phi, X, word)
    refused(parts, random_feature_response, X, word)
    if isinstance(word, tuple):
        refused(parts, sensitivity_profile, Untouched(), X, word)
    elif not isinstance(word, str):
        refused(parts, vocabulary_sensitivity, Untouched(), X, word, X)
    for together in (False, True):
        parts = ("word must be", '"all"', "got 'first'") if word == "first" else parts
        refused(parts, word_sensitivity, Untouched(), X, word, together=together)


@pytest.mark.parametrize("word", [torch.tensor(1), torch.tensor([1])[0].numpy()[()]])
def test_integers_of_torch_and_numpy_are_words(word: Any) -> None:
    assert respond(RandomAttention(D), X, word).shape == (D,)
    assert respond(RandomAttention(D), X, (word, 0)).batch == (2,)
    assert random_feature_response(X, word).shape == (D,)


# Custom maps


@pytest.mark.parametrize(
    ("phi", "parts"),
    [
        (lambda X: X.numpy(), ("must return a torch tensor", "got ndarray")),
        (lambda X: [1.0, 2.0], ("must return a torch tensor", "got list")),
        (lambda X: None, ("must return a torch tensor", "got NoneType")),
        (lambda X: (X > 0).long(), ("must return real floating-point features", "got torch.int64")),
        (lambda X: X > 0, ("must return real floating-point features", "got torch.bool")),
        (lambda X: torch.complex(X, X), ("must return real floating-point features", "got torch.complex128")),
        ("raf", ("a map must be callable", "got str")),
    ],
)
def test_an_invalid_map_is_refused(phi: Any, parts: tuple[str, ...]) -> None:
    refused(parts, respond, phi, X, 0)
    for measure in (word_sensitivity, sensitivity_profile):
        refused(parts, measure, phi, X)


@pytest.mark.parametrize("phi", [lambda X: X.detach() + 1, lambda X: torch.ones(3).double()])
def test_features_without_gradient_are_refused_where_one_is_needed(phi: Any) -> None:
    response = respond(phi, X, 0)
    delta = torch.ones(D).double()
    assert response.change(delta, gradient=False)[1] is None
    parts = ["must depend on the context through torch operations", "got", "gradient"]
    refused(parts, response.change, delta)
    for measure in (word_sensitivity, sensitivity_profile):
        refused(parts, measure, phi, X)


def test_a_response_of_another_kind_is_refused() -> None:
    class Broken:
        def __call__(self, X: Tensor) -> Tensor:
            return X

        def respond(self, X: Tensor, word: Any, together: bool = False) -> Any:
            return "soon"

    parts = ["Broken.respond must return a Response", "got str", "it lacks shape, batch, hints"]
    refused(parts, respond, Broken(), X, 0)

    class Incomplete:
        shape, batch, hints = (3,), (), SearchHints()
        features = change = inner = None

    class Partial(Broken):
        def respond(self, X: Tensor, word: Any, together: bool = False) -> Any:
            return Incomplete()

    refused(["Partial.respond must return a Response", "it lacks ceiling"], respond, Partial(), X, 0)

    class Short(Broken):
        def respond(self, X: Tensor, word: Any) -> Any:  # type: ignore[override]
            return "no response"

    refused(["Short.respond must take (X, word, together)"], respond, Short(), X, 0)


@pytest.mark.parametrize(
    "phi",
    [
        RandomAttention(D, weight=torch.zeros(D, D).double(), score="relu"),
        RandomAttention(D, weight=torch.zeros(D, D).double(), score="linear"),
        RandomFeatures(N, D, weight=torch.zeros(5, N * D).double()),
        DeepRandomFeatures(N, D, 2, weights=[torch.zeros(5, N * D).double(), torch.zeros(5, 5).double()]),
        lambda X: 0 * X,
    ],
)
def test_features_that_are_zero_have_no_relative_change(phi: Any) -> None:
    parts = ["phi(X) is zero", "relative change is undefined"]
    for word, together in ((0, False), ((0, 1), False), ((0, 1), True)):
        refused(parts, respond, phi, X, word, together=together, kind=NumericalError)
        refused(parts, word_sensitivity, phi, X, word, together=together, kind=NumericalError)


@pytest.mark.parametrize("phi", [lambda X: X / 0, lambda X: X * math.nan, lambda X: (1000 * X.abs()).exp()])
def test_features_that_are_not_finite_have_no_relative_change(phi: Any) -> None:
    for call in (respond, word_sensitivity):
        refused(["phi(X) is not finite"], call, phi, X, 0, kind=NumericalError)
    refused(["phi(X) is not finite"], sensitivity_profile, phi, X, kind=NumericalError)


# Measurements


@pytest.mark.parametrize("phi", [RandomAttention(D), RandomAttention(D, "linear"), RandomFeatures(N, D), torch.sin])
@pytest.mark.parametrize(("ceiling", "suggestion"), [("thight", "tight"), ("", ""), ("none", "")])
def test_an_unknown_ceiling_is_refused(phi: Any, ceiling: str, suggestion: str) -> None:
    parts = ["ceiling must be one of simple, quick, tight", f"got {ceiling!r}", suggestion]
    refused(parts, word_sensitivity, phi, X, 0, ceiling=ceiling)
    refused(parts, sensitivity_profile, phi, X, ceiling=ceiling)
    refused(parts, word_sensitivity, phi, X, (0, 1), together=True, ceiling=ceiling)
    refused(parts, response_sensitivity, respond(phi, X, 0), 0, ceiling=ceiling)
    if phi is not torch.sin:
        refused(parts, respond(phi, X, 0).ceiling, 1.0, ceiling)


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
    for phi in (RandomAttention(D), RandomAttention(D, "linear"), RandomFeatures(N, D)):
        refused(parts[:2], respond(phi, X, 0).ceiling, radius)


@pytest.mark.parametrize("radius", [1e-160, 1e160])
def test_a_radius_must_have_a_square(radius: float) -> None:
    parts = ["radius must be from 1e-150 to 1e+150, so that it can be squared", f"got {radius:g}"]
    refused(parts, word_sensitivity, Untouched(), X, 0, radius)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of what overflows on the way
def test_a_change_that_overflows_is_no_witness() -> None:
    phi = RandomFeatures(N, D, dtype=torch.float32)
    refused(["is not finite: use a smaller radius"], word_sensitivity, phi, X, 0, 1e20, kind=NumericalError)


@pytest.mark.parametrize("words", [2, 1.5, "all words"])
def test_a_profile_is_of_several_words(words: Any) -> None:
    refused(["word", "got"], sensitivity_profile, Untouched(), X, words)


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
def test_invalid_embeddings_are_refused(embeddings: Any, parts: list[str]) -> None:
    refused(parts, vocabulary_sensitivity, Untouched(), X, 0, embeddings)


@pytest.mark.parametrize("seed", [-1, 1.5, "today", 2**63])
def test_a_seed_must_be_a_natural_number(seed: Any) -> None:
    refused(["seed must be an integer", f"got {seed!r}"], word_sensitivity, RandomAttention(D), X, seed=seed)


def test_a_response_along_several_words_is_not_one() -> None:
    response = respond(RandomAttention(D), X, (0, 1))
    refused(["one word (or words together) is needed", "got one along 2"], response_sensitivity, response, (0, 1))


def test_features_without_gradient_have_a_vocabulary_all_the_same() -> None:
    found = vocabulary_sensitivity(lambda X: X.detach().sign() + 0.5, X, 0, -X)
    assert found.value > 0


def test_random_features_that_overflow_within_the_ball_are_refused() -> None:
    phi = RandomFeatures(N, D, activation="square", weight=1e150 * torch.ones(2, N * D).double())
    refused(["not finite"], word_sensitivity, phi, 1e-3 * X, 0, 1e100, kind=NumericalError)


@pytest.mark.parametrize(("word", "together"), [(0, False), ("all", False), ([0, 1], True)])
def test_a_map_that_is_not_finite_within_the_ball_is_refused(word: Any, together: bool) -> None:
    parts = ["the features of a perturbed context are not finite: use a smaller radius"]
    given = torch.zeros(N, D).double()
    refused(parts, word_sensitivity, lambda X: torch.log(X + 2), given, word, 3, together=together, kind=NumericalError)


@pytest.mark.parametrize("wrong", ["tight", "", 3, SearchBudget])
def test_a_budget_of_another_kind_is_refused(wrong: Any) -> None:
    parts = ["budget must be a SearchBudget", "got"]
    refused(parts, word_sensitivity, RandomAttention(D), X, budget=wrong)
    refused(parts, word_sensitivity, RandomAttention(D), X, (0, 1), together=True, budget=wrong)


# Sizes that cannot fit, refused before anything is allocated


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 2_000_000)


def _fits_nowhere(call: Callable[..., Any], *arguments: Any, **named: Any) -> None:
    refused(["needs", "B, but 2.0 MB are free: "], call, *arguments, **named)


def test_attention_scores_that_do_not_fit(little: None) -> None:
    phi, long = RandomAttention(2), gaussian_context(2000, 2)
    _fits_nowhere(phi, long)
    _fits_nowhere(respond, phi, long, 0)
    _fits_nowhere(respond, phi, long, (0, 1), together=True)
    for word in (0, "all"):
        _fits_nowhere(word_sensitivity, phi, long, word)
    assert phi(long[:50]).shape == (50, 2)


def test_a_weight_that_does_not_fit(little: None) -> None:
    _fits_nowhere(RandomAttention, 1000)


def test_features_of_a_batch_that_do_not_fit(little: None) -> None:
    X = gaussian_context(60, 8)
    for phi in (RandomAttention(8), RandomAttention(8, "linear"), RandomFeatures(60, 8), lambda X: X.sin()):
        response = respond(phi, X, 0)
        response.features(torch.ones(1, 8).double())
        _fits_nowhere(response.features, torch.ones(2000, 8).double())


@pytest.mark.parametrize("depth", [None, 2])
def test_features_that_no_machine_can_hold(depth: int | None) -> None:
    parts = ["needs", "PB, but", "are free: "]
    refused(parts, random_feature_response, X, k=10**15, depth=depth)
    refused(parts, lambda: RandomFeatures(N, D, k=10**15)(X))
