"""Sweeps of robustness against single measurements with the same seed."""

from typing import Any

import pytest
import torch
from torch import Tensor

from wordsway import InputError, NumericalError, feature_robustness
from wordsway.kernels import robustness_sweep


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("kind", ["rf", "ntk"])
def test_every_point_is_what_it_is_alone(kind: str, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wordsway.kernels.weights.CHUNK", 16)
    monkeypatch.setattr("wordsway.kernels.sweep._ROWS", 32)
    if not kept:
        monkeypatch.setattr("wordsway.kernels.sweep._KEPT", 0)
    X, y, x = normal(12, 6), normal(12, seed=1), normal(6, seed=2)
    found = robustness_sweep(kind, X, y, x, [20, 70, 45], [5, 12], ["tanh", "cos"], seed=3)
    points = {(one.width, one.samples, one.activation) for one in found}
    assert points == {(k, n, name) for k in (20, 45, 70) for n in (5, 12) for name in ("tanh", "cos")}
    assert len(found) == len(points)
    for one in found:
        alone = feature_robustness(kind, X[: one.samples], y[: one.samples], x, one.width, one.activation, seed=3)
        assert one.sensitivity == pytest.approx(alone.value, rel=1e-8)
        assert one.fit < 1e-6


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"samples": [13]}, InputError, "samples must be at most the 12 inputs, got 13"),
        ({"widths": 20}, InputError, "widths must be a sequence, got 20: put it in a list"),
        ({"activations": "tanh"}, InputError, "activations must be a sequence, got 'tanh': put it in a list"),
        ({"widths": [0]}, InputError, "widths must be an integer >= 1, got 0"),
        *(
            ({name: []}, InputError, "widths, samples and activations must each name at least one, got no " + name)
            for name in ("widths", "samples", "activations")
        ),
        ({"widths": [11]}, NumericalError, "12 samples need at least as many features, got 11"),
        ({"kind": "rg"}, InputError, "kind must be one of rf, ntk"),
        ({"x": torch.zeros(6)}, InputError, "x must not be zero"),
    ],
)
def test_bad_input_is_one_clear_line(changes: dict[str, Any], error: type[Exception], said: str) -> None:
    given = {"kind": "rf", "X": normal(12, 6), "y": normal(12), "x": normal(6), "widths": [20], "samples": [12]}
    with pytest.raises(error, match=said):
        robustness_sweep(**{**given, "activations": ["tanh"], **changes})
