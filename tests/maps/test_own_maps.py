"""A user's own map: any callable by autograd, and a map that brings its own response."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from maps.twins import Setting, normal, plain_attention
from wordsway import (
    InputError,
    RandomAttention,
    gaussian_context,
    gaussian_samples,
    local_lipschitz,
    prediction_gap,
    respond,
    sensitivity_profile,
    vocabulary_sensitivity,
    word_sensitivity,
)
from wordsway.maps import Ceiling, FeatureMap, PlainResponse, Response, SearchHints
from wordsway.maps.response import Functional, ValueAndGradient
from wordsway.testing import MapConformance


class TestPlainCallable(MapConformance):
    """A function of one context at a time, with features of three dimensions."""

    def make(self, seed: int) -> FeatureMap:
        weight = normal(4, 4, seed=seed)
        return lambda X: torch.stack([torch.tanh(X @ weight.to(X)), torch.sin(X.cumsum(0))])

    def context(self, seed: int) -> Tensor:
        return gaussian_context(5, 4, seed)

    def test_falls_back_to_autograd(self) -> None:
        for phi, X in self._pairs():
            assert isinstance(respond(phi, X, 0), PlainResponse)
            assert respond(phi, X, 0).ceiling(1.0) is None


class TestModule(MapConformance):
    """A torch module that takes batches and declares it; its weights set the dtype."""

    follows_dtype = False

    def make(self, seed: int) -> FeatureMap:
        layer = torch.nn.Linear(12, 7, bias=False, dtype=torch.float64)
        layer.weight.data = normal(7, 12, seed=seed)

        class Mixer(torch.nn.Module):
            batched = True

            def __init__(self) -> None:
                super().__init__()
                self.layer = layer

            def forward(self, X: Tensor) -> Tensor:
                return torch.sigmoid(X.flatten(-2) @ self.layer.weight.to(X).mT)

        return Mixer()

    def context(self, seed: int) -> Tensor:
        return gaussian_context(3, 4, seed)


class TestPlainAttention(MapConformance):
    """The autograd fallback of attention, causal, so that rows before the word stay."""

    seeds = (0,)

    def make(self, seed: int) -> FeatureMap:
        phi = plain_attention(Setting("softmax", 2, causal=True).attention(4, seed))
        return lambda X: phi(X.double()).to(X)

    def context(self, seed: int) -> Tensor:
        return gaussian_context(4, 4, seed)

    def still_rows(self, word: int, n: int) -> range:
        return range(word)


class _Mean:
    """phi(X) = (sum_j x_j) W^T, with a response of its own: the features move by Delta W^T, wherever X is."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def __call__(self, X: Tensor) -> Tensor:
        return X.sum(-2) @ self.weight.to(X).mT

    def respond(self, X: Tensor, word: int | Sequence[int], together: bool = False) -> Response:
        return _MeanResponse(self, X, 0 if isinstance(word, int) else len(word), together)


class _MeanResponse:
    def __init__(self, phi: _Mean, X: Tensor, count: int, together: bool) -> None:
        d = X.shape[1]
        self.shape: tuple[int, ...] = (max(count, 1), d) if count or together else (d,)
        self.batch: tuple[int, ...] = (count,) if count and not together else ()
        self.hints = SearchHints(X.dtype)
        self.together = together
        self.weight = phi.weight.to(X)
        self.base = phi(X)

    def _total(self, delta: Tensor) -> Tensor:
        return delta.sum(-2) if self.together else delta

    def _spread(self, grad: Tensor, delta: Tensor) -> Tensor:
        return grad.unsqueeze(-2).expand_as(delta) if self.together else grad

    def features(self, delta: Tensor) -> Tensor:
        return self.base + self._total(delta) @ self.weight.mT

    def change(self, delta: Tensor, gradient: bool = True) -> ValueAndGradient:
        moved = self._total(delta) @ self.weight.mT
        size, norm = moved.square().sum(-1).sqrt(), self.base.square().sum().sqrt()
        if not gradient:
            return size / norm, None
        grad = (moved / size.clamp_min(1e-300).unsqueeze(-1)) @ self.weight / norm
        return size / norm, self._spread(grad, delta)

    def inner(self, u: Tensor) -> Functional:
        def functional(delta: Tensor) -> ValueAndGradient:
            grad = (u @ self.weight).expand_as(self._total(delta))
            return self.features(delta) @ u, self._spread(grad, delta)

        return functional

    def ceiling(self, radius: float, effort: str = "quick") -> Ceiling | None:
        words = self.shape[0] if self.together else 1
        value = words * radius * torch.linalg.matrix_norm(self.weight, 2) / self.base.square().sum().sqrt()
        return Ceiling((value * (1 + 1e-12)).expand(self.batch), "norm of the weight")


class TestOwnResponse(MapConformance):
    def make(self, seed: int) -> FeatureMap:
        return _Mean(normal(3, 4, seed=seed))

    def context(self, seed: int) -> Tensor:
        return gaussian_context(5, 4, seed)

    def test_every_measurement_uses_it(self) -> None:
        for phi, X in self._pairs():
            assert isinstance(phi, _Mean)
            assert isinstance(respond(phi, X, 0), _MeanResponse)
            found = word_sensitivity(phi, X, "all")
            exact = 2 * float(torch.linalg.matrix_norm(phi.weight, 2) / phi(X).norm())
            assert found.value == pytest.approx(exact, rel=1e-6)
            assert found.ceiling == pytest.approx(exact, rel=1e-9)
            assert sensitivity_profile(phi, X).values.tolist() == pytest.approx([exact] * 5, rel=1e-6)
            assert word_sensitivity(phi, X, (0, 3), together=True).value == pytest.approx(2 * exact, rel=1e-6)


class _Lazy:
    """A map whose response is broken on purpose, in one way."""

    def __init__(self, fault: str) -> None:
        self.phi, self.fault = RandomAttention(4), fault

    def __call__(self, X: Tensor) -> Tensor:
        return self.phi(X)

    def respond(self, X: Tensor, word: int | Sequence[int], together: bool = False) -> Response:
        if self.fault == "word" and not isinstance(word, int):
            word = tuple(sorted(word))[::-1]
        response = self.phi.respond(X + (1e-6 if self.fault == "context" else 0), word, together)
        return _Faulty(response, self.fault)


class _Faulty:
    def __init__(self, response: Response, fault: str) -> None:
        self._response, self._fault = response, fault
        self.shape, self.batch, self.hints = response.shape, response.batch, response.hints

    def features(self, delta: Tensor) -> Tensor:
        return self._response.features(delta) * (1 + 1e-8 * (self._fault == "features"))

    def change(self, delta: Tensor, gradient: bool = True) -> ValueAndGradient:
        value, grad = self._response.change(delta, gradient)
        if self._fault == "double":
            value = value.double()
        if self._fault == "grad" and grad is not None:
            grad = grad * (1 + 1e-6)
        return value + 1e-6 * (self._fault == "zero"), grad

    def inner(self, u: Tensor) -> Functional:
        return self._response.inner(u * (1 + 1e-6 * (self._fault == "inner")))

    def ceiling(self, radius: float, effort: str = "quick") -> Ceiling | None:
        found = self._response.ceiling(radius, effort)
        if found is None or self._fault != "ceiling":
            return found
        return Ceiling(found.value / 2, found.kind)


@pytest.mark.parametrize(
    ("fault", "test"),
    [
        ("features", "features_are_those_of_the_perturbed_context"),
        ("context", "features_are_those_of_the_perturbed_context"),
        ("zero", "zero_perturbation_gives_zero_change"),
        ("zero", "change_is_that_of_the_features_relative_to_their_norm"),
        ("grad", "change_is_that_of_the_features_relative_to_their_norm"),
        ("inner", "inner_products_and_their_gradient"),
        ("word", "words_on_their_own_equal_single_words"),
        ("ceiling", "ceiling_is_above_every_value"),
        ("double", "dtype_follows_the_context"),
    ],
)
def test_the_suite_finds_faults(fault: str, test: str) -> None:
    class Suite(MapConformance):
        seeds = (0,)
        efforts = ("simple",)

        def make(self, seed: int) -> FeatureMap:
            return _Lazy(fault)

        def context(self, seed: int) -> Tensor:
            return gaussian_context(5, 4, seed)

    with pytest.raises(AssertionError):
        getattr(Suite(), f"test_{test}")()


@pytest.mark.parametrize("batched", [False, True])
def test_features_may_be_one_number(batched: bool) -> None:
    def total(X: Tensor) -> Tensor:
        return X.square().sum((-2, -1))

    total.batched = batched  # type: ignore[attr-defined]
    X = gaussian_context(3, 2)
    response, delta = respond(total, X, 1), normal(4, 2, seed=1)
    value, grad = response.change(delta)
    expected = ((X[1] + delta).square().sum(1) - 2) / 6  # |X|^2 = n d = 6
    assert torch.allclose(value, expected.abs(), rtol=0, atol=1e-12)
    assert grad is not None
    assert torch.allclose(grad, 2 * (X[1] + delta) / 6 * expected.sign()[:, None], rtol=0, atol=1e-12)
    assert torch.allclose(response.inner(torch.tensor(2.0))(delta)[0], 2 * (6 + 6 * expected), rtol=0, atol=1e-12)
    assert respond(total, X, (0, 2)).change(torch.stack([delta, delta], dim=1))[0].shape == (4, 2)
    assert word_sensitivity(total, X, 1).value == pytest.approx(1.0, rel=1e-3)  # all of the word and as much again


def test_the_record_has_the_dtype_of_the_witness_also_where_features_have_another_than_the_context() -> None:
    X = gaussian_context(3, 2, dtype=torch.float32)
    found = word_sensitivity(lambda X: X.double().sin(), X, 1)
    assert found.value > 0
    assert str(found.delta.dtype) == f"torch.{found.cost.dtype}"


def test_a_context_that_requires_a_gradient_leaves_no_graph_behind() -> None:
    X = gaussian_context(4, 4).requires_grad_()
    for phi in (RandomAttention(4), RandomAttention(4, "linear"), lambda X: X.sin()):
        for word, together in ((0, False), ((0, 1), False), ((0, 1), True)):
            response = respond(phi, X, word, together=together)
            delta = torch.ones(2, *response.shape, dtype=torch.float64)
            for value in (*response.change(delta), *response.change(delta, gradient=False), response.features(delta)):
                assert value is None or not value.requires_grad


def _module(dtype: torch.dtype) -> torch.nn.Module:
    module = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))
    for number, parameter in enumerate(module.parameters()):
        parameter.data = normal(*parameter.shape, seed=number)
    return module.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_torch_module_reads_contexts_in_the_dtype_of_its_parameters(dtype: torch.dtype) -> None:
    module, X = _module(dtype), gaussian_context(5, 4)
    contexts, labels = gaussian_samples(7, 5, 4)
    table = gaussian_context(3, 4, seed=2)

    def values(phi: FeatureMap, X: Any) -> list[float]:
        return [
            word_sensitivity(phi, X, 1).value,
            word_sensitivity(phi, X, (0, 2), together=True).value,
            *vocabulary_sensitivity(phi, X, 1, table).values.tolist(),
            local_lipschitz(phi, X).value,
            prediction_gap(phi, contexts, labels, X, 1.0).value,
        ]

    expected = values(lambda X: module(X.to(dtype)), X.to(dtype))
    for given in (X, X.float(), X.numpy()):
        assert values(module, given) == pytest.approx(expected, rel=1e-4)
        assert respond(module, given, 1).hints.dtype == word_sensitivity(module, given, 1).delta.dtype == dtype


def test_a_torch_module_in_half_precision_is_refused() -> None:
    with pytest.raises(InputError, match=r"^the dtype of Sequential must be float32 or float64, got bfloat16: "):
        word_sensitivity(_module(torch.bfloat16), gaussian_context(5, 4), 1)
