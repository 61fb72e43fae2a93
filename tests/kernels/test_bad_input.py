"""What kernels refuse: one line that states what must hold and what was received."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from maps.test_bad_input import refused
from torch import nn

from wordsway import NumericalError, gaussian_context
from wordsway.kernels import (
    FeatureModel,
    Network,
    descend,
    feature_robustness,
    gradient_flow,
    ntk,
    ntk_chain,
    robustness_sweep,
    smallest_eigenvalue,
    train_first_weight,
    two_halves,
)

X, Y, POINT = gaussian_context(4, 3), torch.tensor([1.0, -1.0, 2.0, 0.5]), torch.ones(3)
NETWORK = Network.drawn([3, 4])
REGRESSION = {"kind": "rf", "X": X, "y": Y, "x": POINT}
GIVEN: dict[Callable[..., Any], dict[str, Any]] = {
    ntk: {"network": NETWORK, "X": X},
    ntk_chain: {"network": Network.drawn([3, 4, 4]), "X": X},
    gradient_flow: {"network": NETWORK, "X": X, "y": Y, "times": [0.0, 1.0]},
    descend: {"network": NETWORK, "X": X, "y": Y, "steps": 2},
    train_first_weight: {"network": NETWORK, "X": X, "y": Y, "steps": 2},
    two_halves: {"d": 3, "k": 4},
    feature_robustness: {**REGRESSION, "k": 30},
    robustness_sweep: {**REGRESSION, "widths": [20], "samples": [4], "activations": ["tanh"]},
    smallest_eigenvalue: {},
    Network: {},
    Network.drawn: {},
}
CASES: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (Network, {"weights": []}, "a network must have at least one weight"),
    (Network, {"weights": [torch.ones(2, 3)]}, "the last weight must have one row, got 2"),
    (Network, {"weights": [torch.ones(2, 3), torch.ones(1, 4)]}, "weight 2 must read the 2 outputs of weight 1, got 4"),
    (Network, {"weights": [torch.ones(1, 3)], "biases": [torch.ones(2)]}, "a bias of the right length"),
    (Network, {"weights": [torch.full((1, 2), math.nan)]}, "weight 1 must be finite"),
    (Network, {"weights": [torch.ones(3)]}, "weight 1 must have the shape (out, in), got (3,)"),
    (Network.drawn, {"widths": [3, 0]}, "widths must be an integer >= 1, got 0"),
    (Network.drawn, {"widths": [3, 2], "scale": -1.0}, "scale must be a number > 0, got -1.0"),
    (ntk, {"X": torch.ones(4, 2)}, "inputs must have the shape (N, 3), got (4, 2)"),
    (ntk, {"X": torch.ones(0, 3)}, "inputs must have the shape (N, d), got (0, 3)"),
    (ntk, {"X": None}, "inputs must be real numbers, got NoneType"),
    (ntk, {"layer": 2}, "layer must be from 0 to 1, got 2"),
    (ntk, {"layer": -1}, "layer must be from 0 to 1, got -1"),
    (ntk, {"layer": 0, "network": nn.Linear(3, 1)}, "layer is for a Network"),
    (ntk, {"network": 3}, "network must be a Network or a torch module, got int"),
    (ntk, {"network": nn.Flatten()}, "a module must have parameters"),
    (ntk, {"network": nn.Sequential(nn.Linear(3, 1), nn.Dropout())}, "call its eval() first"),
    (ntk, {"network": nn.Sequential(nn.Linear(3, 1), nn.BatchNorm1d(1))}, "call its eval() first"),
    (ntk, {"network": nn.Linear(3, 2)}, "one output for each input, got 2"),
    (ntk_chain, {"network": nn.Linear(3, 1)}, "network must be a Network, got Linear"),
    (ntk_chain, {"network": Network([torch.ones(1, 3)])}, "at least 2 inputs, got 1 and 4"),
    (smallest_eigenvalue, {"K": torch.ones(2, 3)}, "a kernel must be square"),
    (smallest_eigenvalue, {"K": torch.tensor([[1.0, 2.0], [0.0, 1.0]])}, "a kernel must be symmetric"),
    *(
        (call, changes, message)
        for call in (gradient_flow, descend, train_first_weight)
        for changes, message in (
            ({"X": torch.ones(4, 2)}, "inputs must have the shape (N, 3)"),
            ({"network": nn.Linear(3, 1)}, "network must be a Network, got Linear"),
            ({"y": torch.ones(3)}, "y must have the shape (4,), got (3,)"),
            ({"y": torch.full((4,), math.inf)}, "y must be finite"),
        )
    ),
    (two_halves, {"d": 0}, "d must be an integer >= 1, got 0"),
    (two_halves, {"k": 0}, "k must be an integer >= 1, got 0"),
    (two_halves, {"seed": -1}, "seed must be an integer"),
    (train_first_weight, {"steps": 0}, "steps must be an integer >= 1, got 0"),
    (descend, {"steps": 0}, "steps must be an integer >= 1, got 0"),
    (gradient_flow, {"times": []}, "times must have the shape (T,), got (0,)"),
    (gradient_flow, {"times": [0.0, 0.0]}, "times must be numbers >= 0 that increase"),
    (gradient_flow, {"times": [-1.0, 0.0]}, "times must be numbers >= 0 that increase"),
    (gradient_flow, {"times": [0.0, math.inf]}, "times must be finite, got nan or inf"),
    *(
        (call, changes, message)
        for call in (feature_robustness, robustness_sweep)
        for changes, message in (
            ({"kind": "rff"}, "kind must be one of rf, ntk, got 'rff' (did you mean 'rf'?)"),
            ({"X": torch.ones(0, 3)}, "inputs must have the shape (N, d), got (0, 3)"),
            ({"X": [[1.0, 2.0], [1.0]]}, "inputs must be rectangular numbers"),
            ({"y": ["a"] * 4}, "y must be real numbers, got <U1"),
            ({"y": torch.ones(3)}, "y must have the shape (4,), got (3,)"),
            ({"y": torch.full((4,), math.nan)}, "y must be finite"),
            ({"x": "abc"}, "x must be real numbers, got <U3"),
            ({"x": torch.ones(2)}, "x must have the shape (3,), got (2,)"),
            ({"x": torch.zeros(3)}, "x must not be zero"),
            ({"seed": -1}, "seed must be an integer"),
        )
    ),
    (feature_robustness, {"k": 0}, "k must be an integer >= 1, got 0"),
    (feature_robustness, {"activation": "tan"}, "unknown activation 'tan'"),
    (feature_robustness, {"kind": "ntk", "activation": "relu"}, "needs phi'', which relu does not have"),
    (robustness_sweep, {"samples": [13]}, "samples must be at most the 4 inputs, got 13"),
    (robustness_sweep, {"widths": 20}, "widths must be a sequence, got 20: put it in a list"),
    (robustness_sweep, {"activations": "tanh"}, "activations must be a sequence, got 'tanh': put it in a list"),
    (robustness_sweep, {"widths": [0]}, "widths must be an integer >= 1, got 0"),
    *(
        (robustness_sweep, {name: []}, f"widths, samples and activations must each name at least one, got no {name}")
        for name in ("widths", "samples", "activations")
    ),
]


@pytest.mark.parametrize(("call", "changes", "message"), CASES)
def test_bad_input_is_one_clear_line(call: Callable[..., Any], changes: dict[str, Any], message: str) -> None:
    refused([message], partial(call, **(GIVEN[call] | changes)))


def test_too_few_features_are_refused() -> None:
    message = ["4 samples need at least as many features, got 3"]
    refused(message, feature_robustness, "rf", X, Y, POINT, 3, kind=NumericalError)
    refused(message, robustness_sweep, "rf", X, Y, POINT, [3, 9], [2, 4], ["tanh"], kind=NumericalError)


@pytest.mark.parametrize("share", [0.0, -1.0, math.inf])
def test_an_attack_needs_a_size(share: float) -> None:
    refused(["share must be a number > 0"], FeatureModel("rf", X, Y, 30).attack, POINT, share)
