"""A score rule of one's own: fast responses, ceilings and every measurement, as for the rules that are there."""

import numpy as np
import pytest
import torch
from scipy.special import expit
from torch import Tensor

import wordsway as ws
from wordsway.errors import InputError
from wordsway.maps import FeatureMap, Score
from wordsway.testing import MapConformance

SOFTPLUS = Score("softplus", torch.nn.functional.softplus, lambda s: np.logaddexp(0, s), expit)


class TestSoftplus(MapConformance):
    """log(1 + exp(S_jk)) over the row's sum."""

    def make(self, seed: int) -> FeatureMap:
        return ws.RandomAttention(6, SOFTPLUS, seed=seed)

    def context(self, seed: int) -> Tensor:
        return ws.gaussian_context(7, 6, seed)


@pytest.mark.parametrize("seed", range(3))
def test_the_map_is_its_formula_and_the_response_is_the_map(seed: int) -> None:
    phi, X = ws.RandomAttention(5, SOFTPLUS, seed=seed), ws.gaussian_context(8, 5, seed)
    gains = torch.log1p(torch.exp(X @ phi.weight @ X.mT / 5**0.5))
    assert torch.allclose(phi(X), gains / gains.sum(1, keepdim=True) @ X, rtol=1e-12)
    response = ws.respond(phi, X, 2)
    moves = torch.randn(20, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    plain = [torch.linalg.vector_norm(phi(ws.perturb(X, 2, move)) - phi(X)) / phi(X).norm() for move in moves]
    assert torch.allclose(response.change(moves)[0], torch.stack(plain), rtol=1e-12)


@pytest.mark.parametrize("effort", ["quick", "tight"])
def test_no_point_is_above_its_ceiling(effort: str) -> None:
    phi, X = ws.RandomAttention(6, SOFTPLUS), ws.gaussian_context(10, 6)
    found = ws.word_sensitivity(phi, X, 1, ceiling=effort)
    moves = torch.randn(2000, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    moves *= 6**0.5 / moves.norm(dim=1, keepdim=True)
    assert found.ceiling is not None
    assert float(ws.respond(phi, X, 1).change(moves)[0].max()) <= found.value * (1 + 1e-9) <= found.ceiling * (1 + 2e-9)


def test_the_copy_without_output_keeps_the_rule() -> None:
    layer = ws.Attention(None, None, score=SOFTPLUS, output=torch.eye(4, dtype=torch.float64))
    assert ws.word_sensitivity(layer, ws.gaussian_context(5, 4), 0, ceiling="quick").ceiling is not None


def test_half_a_rule_is_refused() -> None:
    with pytest.raises(InputError, match="gain, array_gain and array_slope, or none of them"):
        Score("half", torch.relu)
