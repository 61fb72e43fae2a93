"""Closed-form Jacobians of attention against autograd, for every kind of layer."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from smoothness.layers import VARIANTS, D, Variant, explicit, normal
from wordsway import Attention, RandomAttention
from wordsway.maps.scores import SCORES
from wordsway.smoothness import AttentionJacobian, AutogradJacobian, jacobian_of, local_lipschitz
from wordsway.smoothness.jacobian import Jacobian

N, BATCH = 7, 3


def dense(operator: Jacobian) -> Tensor:
    """The matrices of an operator by its products with unit vectors, (B, outputs, inputs)."""
    batch, *shape = operator.inputs
    size = torch.Size(shape).numel()
    columns = []
    for place in range(size):
        unit = torch.zeros(batch, size, dtype=operator.like.dtype)
        unit[:, place] = 1
        columns.append(operator.product(unit.reshape(operator.inputs)).reshape(batch, -1))
    return torch.stack(columns, dim=-1)


@pytest.mark.parametrize("store", [True, False], ids=["stored", "tiled"])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_products_are_those_of_autograd(variant: Variant, store: bool) -> None:
    layer, draw = variant.layer(), normal(1)
    X = draw(BATCH, N, D)
    ours, plain = AttentionJacobian(layer, X, store), AutogradJacobian(layer, X)
    assert (ours.inputs, ours.outputs) == (plain.inputs, plain.outputs)
    change, back = draw(*ours.inputs), draw(*ours.outputs)
    torch.testing.assert_close(ours.product(change), plain.product(change), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(ours.adjoint(back), plain.adjoint(back), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("variant", VARIANTS[::3], ids=str)
def test_the_adjoint_is_the_transpose(variant: Variant) -> None:
    draw = normal(2)
    operator = AttentionJacobian(variant.layer(scale=1.0), draw(BATCH, N, D))
    change, back = draw(*operator.inputs), draw(*operator.outputs)
    left = (operator.product(change) * back).flatten(1).sum(-1)
    right = (change * operator.adjoint(back)).flatten(1).sum(-1)
    torch.testing.assert_close(left, right, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("variant", VARIANTS[::5], ids=str)
def test_the_matrix_is_the_jacobian(variant: Variant) -> None:
    layer, X = variant.layer(), normal(3)(2, 4, D)
    expected = torch.stack([explicit(layer, one) for one in X])
    torch.testing.assert_close(dense(AttentionJacobian(layer, X)), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("variant", [Variant(), Variant(causal=True), Variant(True, True, True, True, True)], ids=str)
def test_tiles_of_any_size_give_the_same(variant: Variant, store: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, draw = variant.layer(), normal(4)
    X = draw(2, N, D)
    whole = AttentionJacobian(layer, X, store)
    change, back = draw(*whole.inputs), draw(*whole.outputs)
    for size in (1, 3 * N, N * N, 3 * N * N):  # numbers: some rows, one head, some heads
        monkeypatch.setattr("wordsway.smoothness.jacobian._SHORT_TILE", 8 * size)
        pieces = AttentionJacobian(layer, X, store)
        torch.testing.assert_close(pieces.product(change), whole.product(change), rtol=1e-11, atol=1e-12)
        torch.testing.assert_close(pieces.adjoint(back), whole.adjoint(back), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("heads", [0, 1, 5, 100])
def test_as_many_weights_are_kept_as_fit(heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, draw = Variant(causal=True, output=True).layer(), normal(15)
    X = draw(BATCH, N, D)
    whole = AttentionJacobian(layer, X, store=True)
    monkeypatch.setattr("wordsway.smoothness.jacobian._STORED", 12 * heads * N * N)
    part = AttentionJacobian(layer, X)
    assert len(part._weights) == min(heads, BATCH * layer.heads)
    change, back = draw(*whole.inputs), draw(*whole.outputs)
    torch.testing.assert_close(part.product(change), whole.product(change))
    torch.testing.assert_close(part.adjoint(back), whole.adjoint(back))
    torch.testing.assert_close(part.take(torch.tensor([1])).product(change[1:2]), whole.product(change)[1:2])


@pytest.mark.parametrize("store", [True, False])
def test_some_of_a_batch_are_what_they_were(store: bool) -> None:
    layer, draw = Variant(True, True, True, True, True).layer(), normal(14)
    X = draw(BATCH, N, D)
    for whole in (AttentionJacobian(layer, X, store), AutogradJacobian(layer, X)):
        part = whole.take(torch.tensor([2, 0]))
        change, back = draw(*whole.inputs), draw(*whole.outputs)
        torch.testing.assert_close(part.product(change[[2, 0]]), whole.product(change)[[2, 0]])
        torch.testing.assert_close(part.adjoint(back[[2, 0]]), whole.adjoint(back)[[2, 0]])
        assert (part.inputs, part.outputs) == ((2, N, D), (2, N, D + 1))


def test_masked_layers_are_block_lower_triangular() -> None:
    matrix = dense(AttentionJacobian(Variant(causal=True).layer(), normal(5)(1, N, D)))[0]
    blocks = matrix.reshape(N, -1, N, D).abs().amax((1, 3))  # what row i hears of word j
    assert torch.equal(blocks > 0, torch.ones(N, N).tril().bool())


def test_scores_in_the_thousands_are_stable() -> None:
    layer, X = Variant().layer(scale=8.0), normal(6, 3.0)(1, N, D)
    for store in (True, False):
        operator = AttentionJacobian(layer, X, store)
        assert torch.isfinite(operator.product(torch.ones(1, N, D, dtype=torch.float64))).all()
        torch.testing.assert_close(dense(operator)[0], explicit(layer, X[0]), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 7e3), (torch.float32, 1e6), (torch.float64, 2e9)])
@pytest.mark.parametrize("causal", [False, True])
def test_large_tied_scores_keep_the_sums_of_the_weights(
    causal: bool, dtype: torch.dtype, size: float, store: bool
) -> None:
    """Equal words have equal weights, whatever the scores: the output moves like the mean, with the norm 1."""
    word = normal(2)(D)
    word = (word * math.sqrt(size * math.sqrt(D)) / word.norm()).to(dtype)
    layer, X = Attention(torch.eye(D), torch.eye(D), causal=causal), word.expand(1, N, D)
    change, counts = normal(3)(1, N, D).to(dtype), torch.arange(1, N + 1)[:, None]
    expected = change.cumsum(1) / counts if causal else change.mean(1, keepdim=True).expand(1, N, D)
    moved = AttentionJacobian(layer, X, store).product(change)
    torch.testing.assert_close(moved, expected, rtol=1e-4, atol=1e-4)
    if not causal:
        assert local_lipschitz(layer, X[0], store=store).value == pytest.approx(1, rel=1e-4)


def test_no_n_by_n_matrix_is_kept_on_request() -> None:
    operator = AttentionJacobian(Variant().layer(), normal(7)(1, 40, D), store=False)
    largest = max(value.numel() for value in vars(operator).values() if isinstance(value, Tensor))
    assert largest < 40 * 40


def test_single_precision_stays_single() -> None:
    layer, X = Variant(biases=True).layer(), normal(8)(2, N, D)
    single = AttentionJacobian(layer, X.float())
    change = normal(9)(2, N, D)
    got = single.product(change.float())
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), AttentionJacobian(layer, X).product(change), rtol=1e-4, atol=1e-4)


def test_which_jacobian_a_layer_has() -> None:
    X = normal(10)(1, N, D)
    assert isinstance(jacobian_of(RandomAttention(D), X), AttentionJacobian)
    assert isinstance(jacobian_of(Variant().layer(), X), AttentionJacobian)
    assert isinstance(jacobian_of(RandomAttention(D, score="relu"), X), AutogradJacobian)
    assert isinstance(jacobian_of(torch.tanh, X), AutogradJacobian)
    named = RandomAttention(D, score=replace(SCORES["relu"], name="softmax"))  # the name alone does not make it one
    assert isinstance(jacobian_of(named, X), AutogradJacobian)


# Any callable


class Bend(torch.autograd.Function):
    """x^3 with a backward rule only: forward-mode differentiation is refused."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x**3

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return 3 * x**2 * gradient


def test_a_callable_takes_one_context_at_a_time_unless_it_is_batched() -> None:
    seen = []

    def mean(X: Tensor) -> Tensor:
        seen.append(X.ndim)
        return torch.sin(X).mean(0)

    X = normal(11)(BATCH, N, D)
    operator = AutogradJacobian(mean, X)
    assert operator.outputs == (BATCH, D)
    change = normal(12)(BATCH, N, D)
    torch.testing.assert_close(operator.product(change), (torch.cos(X) * change).mean(1))
    torch.testing.assert_close(operator.adjoint(X[:, 0]), torch.cos(X) * X[:, :1] / N)
    assert set(seen) == {2}


def test_operations_without_a_forward_rule_are_differentiated_backward_twice() -> None:
    X = normal(13)(2, 3, D)
    operator = AutogradJacobian(Bend.apply, X)
    torch.testing.assert_close(operator.product(X), 3 * X**3)
    torch.testing.assert_close(operator.adjoint(X), 3 * X**3)
