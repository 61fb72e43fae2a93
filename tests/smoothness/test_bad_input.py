"""What smoothness refuses: one line that states what must hold and what was received."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from maps.test_bad_input import refused

from smoothness.layers import Residual, Variant
from wordsway import (
    Attention,
    DiscreteMeasure,
    NumericalError,
    RandomAttention,
    Rotary,
    adversarial_context,
    lipschitz_bounds,
    local_lipschitz,
    local_lipschitz_many,
    mean_field,
    mean_field_lipschitz,
    wasserstein,
)
from wordsway.maps.scores import SCORES
from wordsway.smoothness import AttentionJacobian, neighbourhood_bound

LAYER, X = RandomAttention(4), torch.ones(2, 4)
EYE = torch.eye(4)
ROTARY = Attention(EYE, EYE, rotary=Rotary([1.0, 0.3]))
POINT, PLACED = DiscreteMeasure([[1.0]]), DiscreteMeasure([[1.0]], None, [1.0])
PAIR = [[1.0], [2.0]]
NAMED_SOFTMAX = RandomAttention(4, score=replace(SCORES["relu"], name="softmax"))  # the name alone does not make it one
CONTEXTS = "contexts must have the shape (count, n, d)"

GIVEN: dict[Callable[..., Any], dict[str, Any]] = {
    local_lipschitz: {"layer": LAYER, "X": X},
    local_lipschitz_many: {"layer": LAYER, "X": X[None]},
    lipschitz_bounds: {"layer": LAYER, "n": 5, "R": 1.0},
    adversarial_context: {"layer": LAYER, "n": 5, "R": 1.0},
    neighbourhood_bound: {"layer": LAYER, "X": X},
    mean_field: {"layer": LAYER, "mu": DiscreteMeasure(X)},
    mean_field_lipschitz: {"layer": LAYER, "R": 1.0},
    wasserstein: {"mu": POINT, "nu": POINT},
    DiscreteMeasure: {"points": PAIR},
    AttentionJacobian: {"layer": LAYER.attention, "X": X[None]},
}
CASES: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (local_lipschitz, {"X": torch.ones(2, 5)}, "reads words of d=4, got a context of d=5"),
    (local_lipschitz, {"X": torch.ones(3)}, "got shape (3,)"),
    (local_lipschitz, {"X": torch.full((2, 4), math.nan)}, "finite"),
    (local_lipschitz, {"tolerance": 0.0}, "tolerance must be between 0 and 1, got 0.0"),
    (local_lipschitz, {"tolerance": math.nan}, "tolerance must be between 0 and 1, got nan"),
    (local_lipschitz, {"products": 1}, "products must be at least 2"),
    (local_lipschitz, {"products": 0}, "products must be an integer >= 1, got 0"),
    (local_lipschitz, {"layer": 3}, "a layer must be callable on a context, got int"),
    *(
        (local_lipschitz, {"layer": hidden(lambda X: X @ EYE)}, "must depend on the context through torch operations")
        for hidden in (torch.no_grad(), torch.inference_mode())
    ),
    (local_lipschitz_many, {"X": X}, f"{CONTEXTS} with count, n, d >= 1, got (2, 4)"),
    (local_lipschitz_many, {"X": []}, "got none"),
    (local_lipschitz_many, {"X": [torch.ones(4)]}, "got shape (4,)"),
    (local_lipschitz_many, {"X": [X, torch.ones(3, 4)]}, "all contexts must have the same n x d, got 2 x 4 and 3 x 4"),
    (AttentionJacobian, {"layer": Attention(None, None, score="relu")}, "softmax attention, got relu scores"),
    (AttentionJacobian, {"X": torch.ones(1, 2, 5)}, "reads words of d=4, got a context of d=5"),
    *(
        (call, changes, message)
        for call in (lipschitz_bounds, adversarial_context)
        for changes, message in (
            ({"n": 0}, "n must be an integer >= 1, got 0"),
            ({"R": 0.0}, "radius must be a finite number > 0, got 0.0"),
            ({"R": math.inf}, "radius must be a finite number > 0, got inf"),
            ({"layer": RandomAttention(4, score="relu")}, "known for softmax attention, got relu scores"),
            ({"layer": NAMED_SOFTMAX}, "known for softmax attention"),
            ({"layer": torch.tanh}, "known for softmax attention, got builtin_function_or_method"),
            ({"layer": Attention(None, None)}, "dimension of a word must be known"),
            ({"layer": Residual(LAYER.attention)}, "known for softmax attention, got Residual: use local_lipschitz"),
        )
    ),
    (neighbourhood_bound, {"X": torch.ones(2, 5)}, "reads words of d=4, got a context of d=5"),
    (neighbourhood_bound, {"radius": -1.0}, "radius must be a finite number >= 0, got -1.0"),
    (neighbourhood_bound, {"radius": math.nan}, "radius must be a finite number >= 0, got nan"),
    (neighbourhood_bound, {"layer": RandomAttention(4, score="relu")}, "known for softmax attention, got relu scores"),
    (adversarial_context, {"n": 1}, "n must be at least 2, one word and others that attend to it, got 1"),
    (adversarial_context, {"layer": Variant().layer(), "head": 4}, "head must be from 0 to 3, got 4"),
    (adversarial_context, {"layer": Variant().layer(), "head": -1}, "head must be from 0 to 3, got -1"),
    *(
        (call, changes, message)
        for call in (mean_field, mean_field_lipschitz)
        for changes, message in (
            ({"layer": torch.tanh}, "must be an Attention or RandomAttention, got builtin_function_or_method"),
            ({"layer": Residual(LAYER.attention)}, "must be an Attention or RandomAttention, got Residual"),
            ({"layer": RandomAttention(4, score="relu")}, "needs softmax scores, got relu"),
            ({"layer": NAMED_SOFTMAX}, "needs softmax scores"),
            ({"layer": ROTARY}, "must have no positions, got some"),
        )
    ),
    (
        mean_field,
        {"layer": Attention(EYE, EYE, causal=True)},
        "a causal layer needs a measure with positions, got none",
    ),
    (mean_field, {"layer": RandomAttention(3)}, "reads words of d=3, got a context of d=4"),
    (mean_field, {"mu": X}, "mu must be a DiscreteMeasure, got Tensor: use DiscreteMeasure(X)"),
    (mean_field_lipschitz, {"layer": Attention(EYE, EYE, heads=2)}, "one head and no biases, got 2 heads or a bias"),
    (mean_field_lipschitz, {"layer": Attention(EYE, EYE, query_bias=torch.ones(4))}, "got 1 heads or a bias"),
    (mean_field_lipschitz, {"layer": Attention(None, None)}, "the dimension of a word must be known"),
    (
        mean_field_lipschitz,
        {"layer": Attention(EYE, EYE, causal=True), "masked": False},
        "a causal layer must be masked, got masked=False",
    ),
    (mean_field_lipschitz, {"R": 0.0}, "radius must be a finite number > 0, got 0.0"),
    (mean_field_lipschitz, {"points": 1}, "points must be at least 2"),
    (mean_field_lipschitz, {"points": 2.5}, "points must be an integer >= 1, got 2.5"),
    (mean_field_lipschitz, {"starts": 0}, "starts must be an integer >= 1, got 0"),
    (mean_field_lipschitz, {"steps": 0}, "steps must be an integer >= 1, got 0"),
    (mean_field_lipschitz, {"seed": -1}, "seed must be an integer"),
    (DiscreteMeasure, {"points": [1.0, 2.0]}, "points must have the shape (m, d), got (2,)"),
    (DiscreteMeasure, {"points": np.zeros((0, 2))}, "points must have the shape (m, d), got (0, 2)"),
    (DiscreteMeasure, {"points": [[1.0], [2.0, 3.0]]}, "points must be rectangular numbers"),
    (DiscreteMeasure, {"points": [["a"]]}, "points must be real numbers, got <U1"),
    (DiscreteMeasure, {"points": [[1j]]}, "points must be real numbers, got complex128"),
    (DiscreteMeasure, {"points": [[math.nan]]}, "points must be finite, got nan or inf"),
    (DiscreteMeasure, {"weights": [1.0]}, "weights must have the shape (2,), got (1,)"),
    (DiscreteMeasure, {"weights": [-0.5, 1.5]}, "weights must be at least 0, got -0.5: leave that point out"),
    (DiscreteMeasure, {"weights": [0.5, 0.6]}, "weights must sum to 1, got 1.1: divide them by their sum"),
    (DiscreteMeasure, {"weights": [math.inf, 0.6]}, "weights must be finite"),
    (DiscreteMeasure, {"positions": [1.0, 2.0]}, "positions must be from 0 to 1, got 1 to 2: divide them by"),
    (DiscreteMeasure, {"positions": [-0.1, 1.0]}, "positions must be from 0 to 1, got -0.1 to 1"),
    (DiscreteMeasure, {"positions": [[0.0], [1.0]]}, "positions must have the shape (2,), got (2, 1)"),
    (wasserstein, {"mu": X}, "mu must be a DiscreteMeasure, got Tensor: use DiscreteMeasure(X)"),
    (wasserstein, {"nu": [[1.0]]}, "nu must be a DiscreteMeasure, got list: use DiscreteMeasure(X)"),
    (wasserstein, {"nu": DiscreteMeasure([[1.0, 2.0]])}, "both measures must have points of the same d, got 1 and 2"),
    (wasserstein, {"mu": PLACED}, "or neither, got them for the first only"),
    (wasserstein, {"nu": PLACED}, "or neither, got them for the second only"),
    (
        wasserstein,
        {"mu": PLACED, "nu": DiscreteMeasure([[1.0]], None, [0.9])},
        "got 0 and 1 at 0.9: mass does not move along",
    ),
    (
        wasserstein,
        {"mu": DiscreteMeasure(PAIR, [0.4, 0.6], [0, 1]), "nu": DiscreteMeasure(PAIR, [0.5, 0.5], [0, 1])},
        "the same mass at each position, got 0.4 and 0.5 at 0:",
    ),
]


@pytest.mark.parametrize(("call", "changes", "message"), CASES)
def test_bad_input_is_one_clear_line(call: Callable[..., Any], changes: dict[str, Any], message: str) -> None:
    refused([message], partial(call, **(GIVEN[call] | changes)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            partial(local_lipschitz, lambda X: X.abs().sqrt(), torch.zeros(2, 2)),
            "the Jacobian is not finite at this context",
        ),
        (
            partial(adversarial_context, Attention([[0.0, -1.0], [1.0, 0.0]], torch.eye(2)), 5, 1.0),
            "no head has a real eigenvalue of A",
        ),
    ],
)
def test_computations_without_a_result_are_one_clear_line(call: Callable[[], Any], message: str) -> None:
    refused([message], call, kind=NumericalError)


def test_an_unknown_bound_is_refused_with_the_known_ones() -> None:
    bounds = lipschitz_bounds(LAYER, 5, 1.0)
    parts = ["must be one of discrete, covariance, mean field", "got 'mean-field' (did you mean 'mean field'?)"]
    refused(parts, bounds.__getitem__, "mean-field")
