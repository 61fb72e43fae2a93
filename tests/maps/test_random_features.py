"""Random and deep random features: revealed and stored weights against dense twins, one map and one law."""

import math
from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from maps.twins import normal, plain_layers
from wordsway import DeepRandomFeatures, RandomFeatures, gaussian_context, random_feature_response, respond
from wordsway.activations import ACTIVATIONS
from wordsway.errors import InputError
from wordsway.maps import FeatureMap, Response, random_features
from wordsway.maps.layers import LayeredResponse
from wordsway.testing import MapConformance

Layered = RandomFeatures | DeepRandomFeatures
N, D, K = 3, 4, 10


class LayeredConformance(MapConformance):
    follows_dtype = False  # the weights set it
    activation = "relu"

    def twin(self, phi: FeatureMap) -> FeatureMap:
        assert isinstance(phi, Layered)
        return plain_layers(phi)

    def context(self, seed: int) -> Tensor:
        return gaussian_context(N, D, seed)


class TestLazy(LayeredConformance):
    @pytest.fixture(autouse=True, params=["relu", "tanh", "gelu", "cos", "square", "identity"])
    def _activation(self, request: pytest.FixtureRequest) -> None:
        self.activation = request.param

    def make(self, seed: int) -> FeatureMap:
        return RandomFeatures(N, D, activation=self.activation, seed=seed)


class TestLazyNarrow(LayeredConformance):
    def make(self, seed: int) -> FeatureMap:
        return RandomFeatures(N, D, k=5, seed=seed)


class TestStored(LayeredConformance):
    def make(self, seed: int) -> FeatureMap:
        return RandomFeatures(N, D, weight=normal(K, N * D, seed=seed) / math.sqrt(N * D))

    def twin(self, phi: FeatureMap) -> FeatureMap:
        """From the weights as they were given, not as the map keeps them."""
        assert isinstance(phi, RandomFeatures)
        given = [normal(K, N * D, seed=seed) / math.sqrt(N * D) for seed in self.seeds]
        weight = next(w for w in given if torch.equal(w, phi.weights[0].dense()))
        return lambda X: torch.relu(weight @ X.reshape(-1))


class TestDeepLazy(LayeredConformance):
    @pytest.fixture(autouse=True, params=[("relu", 3), ("gelu", 2)], ids=str)
    def _activation(self, request: pytest.FixtureRequest) -> None:
        self.activation, self.depth = request.param

    def make(self, seed: int) -> FeatureMap:
        return DeepRandomFeatures(N, D, self.depth, activation=self.activation, seed=seed)


class TestDeepStored(LayeredConformance):
    def make(self, seed: int) -> FeatureMap:
        widths = [N * D, K, K]
        weights = [normal(K, width, seed=seed + 50 * i) / 3 for i, width in enumerate(widths)]
        return DeepRandomFeatures(N, D, 3, activation="tanh", weights=weights)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("depth", [1, 2])
def test_features_and_a_response_of_one_draw_are_those_of_the_map(depth: int, stored: bool) -> None:
    contexts = torch.stack([gaussian_context(N, D, seed) for seed in range(4)])
    weights = [normal(K, N * D, seed=1), normal(K, K, seed=2)][:depth] if stored else None
    phi = DeepRandomFeatures(N, D, depth, K, seed=3, weights=weights)
    with pytest.raises(InputError, match=r"word must be 0\.\."):
        phi.features_along(contexts, -1)
    features, response = phi.features_along(contexts, 1)
    moves = normal(5, D, seed=7)
    torch.testing.assert_close(phi(contexts), features)
    torch.testing.assert_close(response.features(moves), phi.respond(contexts[-1], 1).features(moves))
    torch.testing.assert_close(response.features(torch.zeros(1, D, dtype=torch.float64))[0], features[-1])


def _flat(X: Tensor) -> Tensor:
    return X.reshape(*X.shape[:-2], -1)


@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_stored_weights_give_the_definition(name: str) -> None:
    X = torch.stack([gaussian_context(N, D, seed) for seed in range(5)])
    weights = [normal(K, N * D, seed=1), normal(K, K, seed=2)]
    phi = ACTIVATIONS[name]
    assert torch.allclose(
        RandomFeatures(N, D, activation=name, weight=weights[0])(X), phi(_flat(X) @ weights[0].mT), rtol=0, atol=1e-13
    )
    deep = DeepRandomFeatures(N, D, 2, activation=name, weights=weights)
    assert torch.allclose(deep(X), phi(phi(_flat(X) @ weights[0].mT) @ weights[1].mT), rtol=0, atol=1e-12)
    assert (deep.k, deep.depth, deep.dtype) == (K, 2, torch.float64)


def test_scales_of_the_weights_are_those_of_the_paper() -> None:
    plain, deep = RandomFeatures(N, D, k=K), DeepRandomFeatures(N, D, 3, k=K, activation="gelu")
    beta = ACTIVATIONS["gelu"].he_scale()
    assert [w.shape for w in deep.weights] == [(K, N * D), (K, K), (K, K)]
    assert [w.scale for w in plain.weights] == pytest.approx([1 / math.sqrt(N * D)])
    scales = [math.sqrt(beta / (N * D)), math.sqrt(beta / K), math.sqrt(beta / K)]
    assert [w.scale for w in deep.weights] == pytest.approx(scales)
    assert (RandomFeatures(N, D).k, DeepRandomFeatures(N, D, 2).k) == (N * D, N * D)


def test_every_layer_keeps_the_size_of_its_features() -> None:
    X = gaussian_context(20, 20)
    for depth in (1, 2, 6):
        # the mean square of one draw varies by sqrt(5 depth / k), 24% for six layers
        draws = [DeepRandomFeatures(20, 20, depth, k=500, seed=seed)(X) for seed in range(40)]
        assert float(torch.stack(draws).square().mean()) == pytest.approx(1.0, rel=0.15)


def test_one_map_stays_consistent_over_words_and_contexts() -> None:
    phi = DeepRandomFeatures(N, D, 2, seed=5)
    contexts = [gaussian_context(N, D, seed) for seed in range(3)]
    results = []
    for X in contexts:
        for word in range(N):
            delta = normal(2, D, seed=word)
            results.append((X, word, delta, respond(phi, X, word).features(delta), phi(X)))
    twin = plain_layers(phi)  # only now is the rest revealed
    for X, word, delta, moved, base in results:
        assert torch.allclose(base, twin(X), rtol=0, atol=1e-11)
        for step, features in zip(delta, moved, strict=True):
            Y = X.clone()
            Y[word] += step
            assert torch.allclose(features, twin(Y), rtol=0, atol=1e-11)


def test_layers_and_maps_of_other_seeds_are_different_weights() -> None:
    deep = DeepRandomFeatures(N, D, 3, seed=1)
    first, second, third = (w.dense() for w in deep.weights)
    assert not torch.allclose(second, third)
    assert not torch.allclose(first, second)
    assert not torch.allclose(first, DeepRandomFeatures(N, D, 3, seed=2).weights[0].dense())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_dtype_of_a_random_map_is_the_given_one(dtype: torch.dtype) -> None:
    phi = DeepRandomFeatures(N, D, 2, dtype=dtype)
    for X in (gaussian_context(N, D), gaussian_context(N, D, dtype=torch.float32)):
        assert phi(X).dtype == dtype
        response = respond(phi, X, 1)
        assert response.hints.dtype == dtype
        value, grad = response.change(normal(2, D, seed=1).to(X.dtype))
        assert grad is not None
        assert value.dtype == grad.dtype == dtype


@pytest.mark.parametrize("depth", [None, 3])
@pytest.mark.parametrize("word", [0, 2, (1,), (2, 0)])
def test_the_cheap_form_is_a_map_at_its_context(depth: int | None, word: int | tuple[int, ...]) -> None:
    """Its values agree with the layers that it has drawn, and with central differences."""
    X = gaussian_context(N, D, 4)
    response = random_feature_response(X, word, depth, seed=9)
    assert isinstance(response, LayeredResponse)
    assert response.shape == ((D,) if isinstance(word, int) else (len(word), D))
    delta = normal(3, *response.shape, seed=2)
    value, grad = response.change(delta)
    features, product = response.features(delta), response.inner(torch.arange(N * D).double())(delta)
    moves = delta.reshape(3, -1, D)
    hidden = response.starts[0] + sum(block.dense() @ moves[:, i].mT for i, block in enumerate(response.blocks))
    for layer in response.deeper:
        hidden = layer.dense() @ torch.relu(hidden)
    expected = torch.relu(hidden).mT
    assert torch.allclose(features, expected, rtol=0, atol=1e-11)
    base = response.features(torch.zeros_like(delta[0]))
    assert torch.allclose(value, (expected - base).norm(dim=1) / base.norm(), rtol=0, atol=1e-11)
    assert torch.allclose(product[0], expected @ torch.arange(N * D).double(), rtol=0, atol=1e-10)
    direction, step = normal(*response.shape, seed=7), 1e-6
    ends = [response.change(delta + sign * step * direction)[0] for sign in (1, -1)]
    assert grad is not None
    along = (grad * direction).flatten(1).sum(1)
    assert torch.allclose((ends[0] - ends[1]) / (2 * step), along, rtol=0, atol=1e-6 * float(along.abs().max()))


@pytest.mark.parametrize("word", [0, 2, (2, 0)])
def test_many_features_are_drawn_in_float32_and_changes_keep_their_digits(
    word: int | tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also changes that are far smaller than a rounding error of the features in float32."""
    monkeypatch.setattr(random_features, "_MANY", 1000)
    X = gaussian_context(N, D, 4)
    response = random_feature_response(X, word, k=1000, seed=9)
    assert isinstance(response, LayeredResponse)
    assert [block.dtype for block in response.blocks] == [torch.float32] * len(response.blocks)
    for size in (1e-9, 1.0):
        delta = (size * normal(3, *response.shape, seed=2)).float().double()
        value, grad = response.change(delta)
        moved = delta.clone().requires_grad_(True)
        parts = moved.reshape(3, -1, D).unbind(1)
        shift = sum(block.dense().double() @ part.mT for block, part in zip(response.blocks, parts, strict=True))
        change = torch.relu(response.starts[0] + shift) - torch.relu(response.starts[0])
        expected = change.norm(dim=0) / response.norm
        expected.sum().backward()
        assert value.dtype == torch.float64
        assert torch.allclose(value, expected.detach(), rtol=1e-5, atol=0)
        assert grad is not None
        assert moved.grad is not None
        assert torch.allclose(grad, moved.grad, rtol=1e-4, atol=1e-5 * float(moved.grad.abs().max()))


def test_the_cheap_form_starts_from_features_of_the_right_law() -> None:
    """Pre-activations of V flat(X) are N(0, |X|^2 / nd): 1 for normalised rows, and so is their rest."""
    X = gaussian_context(N, D, 1)
    X[0] *= 3
    response = random_feature_response(X, 1, k=4000, seed=3)
    assert isinstance(response, LayeredResponse)
    scale = math.sqrt(float(X.square().sum()) / (N * D))
    assert stats.kstest(response.starts[0].flatten().numpy() / scale, "norm").pvalue > 1e-3


@pytest.mark.parametrize("depth", [None, 3])
def test_single_words_of_one_seed_share_their_first_weight(depth: int | None) -> None:
    """Their blocks are those of one matrix of independent entries, whose product with X is common to all words."""
    X, k = gaussian_context(5, 3, 1), 20_000
    X[1] *= 3
    X[3] = 0
    responses = [random_feature_response(X, word, depth, k, seed=4) for word in range(5)]
    starts, blocks = [], []
    for response in responses:
        assert isinstance(response, LayeredResponse)
        starts.append(response.starts[0][:, 0])
        blocks.append(response.blocks[0].dense())
    V, beta = torch.cat(blocks, dim=1), 1.0 if depth is None else 2.0  # k nd
    for start in starts:
        assert torch.allclose(start, V @ X.reshape(-1), rtol=0, atol=1e-11)
    # the standard deviation of its entries is 1 / sqrt(k), on the diagonal sqrt(2) times that
    covariance = V.mT @ V * (X.numel() / beta) / k
    assert float((covariance - torch.eye(X.numel())).abs().max()) < 5 * 2**0.5 / k**0.5
    rest = torch.zeros(3, dtype=torch.float64)
    features = [response.features(rest) for response in responses]
    assert all(torch.allclose(one, features[0], rtol=0, atol=1e-11) for one in features)


class TestLaw:
    """Word sensitivity has one distribution, whether weights are stored, drawn lazily, or drawn for one word only."""

    n, d, draws = 6, 8, 60
    cache: ClassVar[dict[str, list[float]]] = {}

    def _response(self, kind: str, depth: int | None, seed: int) -> Response:
        X, inputs = gaussian_context(self.n, self.d), self.n * self.d
        if kind == "one word":
            return random_feature_response(X, 2, depth, seed=seed)
        if kind == "lazy":
            phi: FeatureMap = (
                RandomFeatures(self.n, self.d, seed=500 + seed)
                if depth is None
                else DeepRandomFeatures(self.n, self.d, depth, seed=500 + seed)
            )
            return respond(phi, X, 2)
        beta = 1 if depth is None else 2
        weights = [
            normal(inputs, inputs, seed=10_000 + 10 * seed + i) * math.sqrt(beta / inputs) for i in range(depth or 1)
        ]
        if depth is None:
            return respond(RandomFeatures(self.n, self.d, weight=weights[0]), X, 2)
        return respond(DeepRandomFeatures(self.n, self.d, depth, weights=weights), X, 2)

    def _value(self, response: Response) -> float:
        """S by five steps of the power iteration: inputs that depend on outputs, and few of them."""
        delta, values = normal(self.d, seed=0), []
        for _ in range(5):
            value, grad = response.change(delta * math.sqrt(self.d) / delta.norm())
            values.append(float(value))
            assert grad is not None
            delta = grad
        return max(values)

    def _sample(self, kind: str, depth: int | None) -> list[float]:
        name = f"{kind} {depth}"
        if name not in self.cache:
            responses = (self._response(kind, depth, seed) for seed in range(self.draws))
            self.cache[name] = [self._value(r) for r in responses]
        return self.cache[name]

    @pytest.mark.parametrize("depth", [None, 3])
    @pytest.mark.parametrize("kind", ["one word", "lazy"])
    def test_same_law_as_stored_weights(self, kind: str, depth: int | None) -> None:
        ours, stored = self._sample(kind, depth), self._sample("stored", depth)
        assert stats.ks_2samp(ours, stored).pvalue > 1e-3
        assert np.std(ours) > 0.01 * np.mean(ours)

    def test_the_test_has_power(self) -> None:
        """A scale that is wrong by a quarter would be noticed."""
        stored = self._sample("stored", None)
        assert stats.ks_2samp(np.multiply(stored, 1.25), self._sample("one word", None)).pvalue < 1e-3


def _operator_norm(weight: Tensor) -> float:
    return float(torch.linalg.matrix_norm(weight, 2))


def test_the_ceiling_of_stored_weights_is_the_lipschitz_bound() -> None:
    weights = [normal(K, N * D, seed=1), normal(K, K, seed=2)]
    X = gaussian_context(N, D)
    phi = DeepRandomFeatures(N, D, 2, activation="gelu", weights=weights)
    steepest = ACTIVATIONS["gelu"].lipschitz ** 2
    expected = (
        steepest * _operator_norm(weights[0][:, D : 2 * D]) * _operator_norm(weights[1]) * 1.5 / float(phi(X).norm())
    )
    ceiling = respond(phi, X, 1).ceiling(1.5)
    assert ceiling is not None
    assert float(ceiling.value) == pytest.approx(expected, rel=1e-9)
    assert ceiling.failure == 0
    together = respond(phi, X, (1, 2), together=True).ceiling(1.5)
    assert together is not None
    both = expected + steepest * _operator_norm(weights[0][:, 2 * D :]) * _operator_norm(weights[1]) * 1.5 / float(
        phi(X).norm()
    )
    assert float(together.value) == pytest.approx(both, rel=1e-9)


def test_the_ceiling_of_lazy_weights_has_a_failure_probability() -> None:
    X = gaussian_context(N, D)
    for response in (respond(DeepRandomFeatures(N, D, 3), X, 1), random_feature_response(X, 1, depth=3)):
        ceiling = response.ceiling(2.0)
        assert ceiling is not None
        assert 0 < ceiling.failure <= 1.0001e-9
    assert respond(RandomFeatures(N, D, activation="square"), X, 1).ceiling(2.0) is None  # no Lipschitz constant


@pytest.mark.parametrize("word", [0, (0,)])
def test_words_that_stay_are_not_lost_beside_a_long_one(word: int | tuple[int, ...]) -> None:
    X = torch.tensor([[1e4, 0.0], [0.0, 1.0]])  # float32: |X|^2 has no digits left for the second word
    response = random_feature_response(X, word, k=20_000, activation="identity")
    found = response.features(-X[0] if isinstance(word, int) else -X[:1])  # the first word moved to 0
    assert float(found.square().mean()) == pytest.approx(1 / 4, rel=0.05)  # |x_rest|^2 / (n d)
