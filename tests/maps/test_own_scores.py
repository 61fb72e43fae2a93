"""Custom scores: fast responses, ceilings and every measurement, as for the built-in ones."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from torch import Tensor

import wordsway as ws
from wordsway.errors import InputError
from wordsway.maps import FeatureMap, Score
from wordsway.maps.scores import Array
from wordsway.testing import MapConformance

SOFTPLUS = Score("softplus", torch.nn.functional.softplus, lambda s: np.logaddexp(0, s), expit)


class TestSoftplus(MapConformance):
    """log(1 + exp(S_jk)) over the row's sum."""

    def make(self, seed: int) -> FeatureMap:
        return ws.RandomAttention(6, SOFTPLUS, seed=seed)

    def context(self, seed: int) -> Tensor:
        return ws.gaussian_context(7, 6, seed)


def test_without_a_normaliser_there_must_be_a_gain() -> None:
    with pytest.raises(InputError, match="a score without a normaliser must have a gain, got none"):
        Score("mine", normalised=False)


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
    with pytest.raises(InputError, match="gain, array_gain and array_derivative, or none of them"):
        Score("half", torch.relu)


def _power(power: int, normalised: bool = True) -> Score:
    """relu(S)^power, or S^power where there is no normaliser."""

    def tensor_gain(s: Tensor) -> Tensor:
        return (torch.relu(s) if normalised else s) ** power

    def gain(s: Array) -> Array:
        return np.asarray((np.maximum(s, 0) if normalised else s) ** power)

    def grad(s: Array) -> Array:
        return np.asarray(power * (np.maximum(s, 0) if normalised else s) ** (power - 1))

    return Score(f"power{power}", tensor_gain, gain, grad, normalised)


def _bounded() -> Score:
    """0 up to -1, 1 from 1 on, a line between."""

    def gain(s: Array) -> Array:
        return np.asarray(np.clip((s + 1) / 2, 0, 1))

    def grad(s: Array) -> Array:
        return np.asarray((np.abs(s) < 1) / 2, s.dtype)

    return Score("bounded", lambda s: ((s + 1) / 2).clamp(0, 1), gain, grad)


OWN = {
    "relu squared": _power(2),
    "relu cubed": _power(3),
    "relu under another name": _power(1),
    "softplus": SOFTPLUS,
    "bounded": _bounded(),
    "cubic": _power(3, normalised=False),
}
LOST = [[1, 0.01], [1, 0.5], [1.01, 0.5], [0.99, 0.5]]  # a small move turns the first word's scores negative


def _worst(response: ws.Response, radius: float) -> Tensor:
    """The largest changes seen: on the edge of the ball and inside, uphill of that, and along the axes."""
    source = torch.Generator().manual_seed(0)
    moves = torch.randn(400, *response.shape, generator=source, dtype=torch.float64)
    axes = torch.eye(response.shape[-1], dtype=torch.float64)
    axes = torch.cat([axes, -axes]).reshape(-1, *[1] * (len(response.shape) - 1), response.shape[-1])
    moves = torch.cat([moves, axes.expand(-1, *response.shape)])
    moves = radius * moves / moves.norm(dim=-1, keepdim=True)
    moves = torch.cat([moves, 0.5 * moves])
    value, grad = response.change(moves)
    assert grad is not None
    uphill = radius * grad / grad.norm(dim=-1, keepdim=True).clamp_min(1e-300)
    return torch.maximum(value.amax(0), response.change(uphill)[0].amax(0))


def _check_ceilings(phi: FeatureMap, X: Tensor, radius: float, known: bool) -> None:
    """No change is above any ceiling, for each word, for words each on its own, and for words together."""
    for word, together in ((0, False), (range(len(X)), False), ((0, 1), True), (range(len(X)), True)):
        response = ws.respond(phi, X, word, together=together)
        worst = _worst(response, radius)
        for effort in ("simple", "quick", "tight"):
            ceiling = response.ceiling(radius, effort)
            assert (ceiling is not None) == known
            assert ceiling is None or bool((worst <= ceiling.value * (1 + 1e-9)).all()), (word, together, effort)


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("output", [None, torch.eye(2).double()])
def test_no_ceiling_is_below_a_row_that_loses_its_weights(name: str, output: Tensor | None) -> None:
    score = OWN[name]
    weight = torch.tensor([[0.0, 0.0], [1.0, 0.0]]).double()
    phi = ws.Attention(weight.mT, None, score=score, output=output)
    _check_ceilings(phi, torch.tensor(LOST).double(), 0.1, score.normalised)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(sorted(OWN)),
    seed=st.integers(0, 10**6),
    heads=st.sampled_from([1, 2]),
    causal=st.booleans(),
    spread=st.sampled_from([0.02, 0.5, 2.0]),
    share=st.sampled_from([0.05, 0.5, 2.0]),
)
def test_no_ceiling_of_any_score_is_below_a_change(
    name: str, seed: int, heads: int, causal: bool, spread: float, share: float
) -> None:
    """Words close together, with scores near 0: small moves turn whole rows on and off."""
    score, source = OWN[name], torch.Generator().manual_seed(seed)
    centre, words, query, key = (torch.randn(*shape, generator=source).double() for shape in ((1, 4), *[(4, 4)] * 3))
    X = centre + spread * words
    near = centre[0] / centre.norm()
    query -= 0.99 * torch.outer(query @ near, near)  # queries of all words are nearly 0 before they move
    phi = ws.Attention(query, key, heads=heads, causal=causal, score=score)
    if not bool(phi(X).any()):
        return
    _check_ceilings(phi, X, share * float(X.norm(dim=1).mean()), score.normalised)


def test_ceilings_of_the_scores_that_are_there_stay() -> None:
    X = ws.gaussian_context(6, 4)
    for name, kind in (("softmax", "convex"), ("relu", "convex"), ("sigmoid", "convex"), ("linear", "row norms")):
        found = ws.respond(ws.RandomAttention(4, name), X, (0, 1), together=True).ceiling(1.0)
        assert found is not None
        assert found.kind.startswith(kind)


def test_a_score_of_its_name_alone_is_not_the_linear_one() -> None:
    fake = Score("linear", lambda s: s**3, normalised=False)
    assert ws.respond(ws.RandomAttention(4, fake), ws.gaussian_context(6, 4), 0).ceiling(1.0) is None


def test_a_score_that_is_zero_somewhere_is_not_positive() -> None:
    relu = _power(1)
    with pytest.raises(InputError, match=r"gains of a positive score must be > 0, got 0 at -10"):
        Score("relu", relu.gain, relu.array_gain, relu.array_derivative, positive=True)
