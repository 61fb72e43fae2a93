"""How far one word moves a re-trained prediction: against the definition, random points and the bound."""

import math

import pytest
import torch

import wordsway as ws

N, LENGTH, D = 12, 5, 4
CONTEXTS, LABELS = ws.gaussian_samples(N + 1, LENGTH, D, seed=3)
X, Y = CONTEXTS[-1], float(LABELS[-1])
MAPS: dict[str, ws.maps.FeatureMap] = {
    "rf": ws.RandomFeatures(
        LENGTH, D, weight=torch.randn(60, LENGTH * D, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ),
    "raf": ws.RandomAttention(D, seed=1),
}


def _theta(phi: ws.maps.FeatureMap) -> torch.Tensor:
    features = torch.stack([phi(context).reshape(-1) for context in CONTEXTS])
    theta: torch.Tensor = torch.linalg.pinv(features) @ LABELS
    return theta


def _gap(phi: ws.maps.FeatureMap, theta: torch.Tensor, delta: torch.Tensor) -> float:
    return abs(float((phi(ws.perturb(X, 1, delta)) - phi(X)).reshape(-1) @ theta))


@pytest.mark.parametrize("name", MAPS)
def test_the_gap_is_that_of_its_witness_and_above_random_points(name: str) -> None:
    phi = MAPS[name]
    found = ws.prediction_gap(phi, CONTEXTS[:-1], LABELS[:-1], X, Y, 1)
    theta = _theta(phi)
    assert float(found.delta.norm()) <= math.sqrt(D) * (1 + 1e-9)
    assert found.value == pytest.approx(_gap(phi, theta, found.delta), rel=1e-6)
    points = torch.randn(300, D, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    points = math.sqrt(D) * points / points.norm(dim=-1, keepdim=True)
    assert found.value >= max(_gap(phi, theta, point) for point in points) - 1e-9
    assert found.ceiling is not None
    assert found.value <= found.ceiling
