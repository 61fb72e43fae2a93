"""The attention family against its plain twin: every score, number of heads, mask, value and output."""

import itertools

import pytest
import torch
from torch import Tensor

from maps.twins import Setting, normal, plain_attention
from wordsway import Attention, RandomAttention, gaussian_context, perturb, respond
from wordsway.maps import FeatureMap
from wordsway.maps.one_word import OneWordResponse
from wordsway.maps.rows import RowsResponse
from wordsway.testing import MapConformance

SETTINGS = [
    Setting(*choice)
    for choice in itertools.product(
        ("softmax", "relu", "sigmoid", "linear"), (1, 2, 3), (False, True), (False, True), (False, True)
    )
]
N, D = 5, 6


class AttentionConformance(MapConformance):
    """Attention of a setting, on contexts of rows of norm sqrt(d)."""

    setting: Setting
    efforts = ("quick",)

    def make(self, seed: int) -> FeatureMap:
        return self.setting.attention(D, seed)

    def twin(self, phi: FeatureMap) -> FeatureMap:
        assert isinstance(phi, Attention)
        return plain_attention(phi)

    def context(self, seed: int) -> Tensor:
        return gaussian_context(N, D, seed)

    def still_rows(self, word: int, n: int) -> range:
        return range(word) if self.setting.causal else range(0)


class TestEverySetting(AttentionConformance):
    seeds = (0,)
    efforts = ("simple",)  # the others have tests of their own

    @pytest.fixture(autouse=True)
    def _setting(self, every_setting: Setting) -> None:
        self.setting = every_setting


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every setting for what is measured; for shapes, batches and dtypes, a quarter in which all values occur."""
    if "every_setting" in metafunc.fixturenames:
        measured = ("features_are", "change_is", "gradient_of", "inner_", "words_", "rows_that")
        chosen = metafunc.function.__name__.removeprefix("test_").startswith(measured)
        settings = SETTINGS if chosen else [s for i, s in enumerate(SETTINGS) if i % 4 == (i // 4) % 4]
        metafunc.parametrize("every_setting", settings, ids=str)


class TestCapturedRows(AttentionConformance):
    """Contexts so large that some rows give a moving word more than half of their weight."""

    radius = 2.0
    single_tolerance = 0.05  # weights of scores in the hundreds
    gradient_tolerance = 1e-5

    @pytest.fixture(
        autouse=True,
        params=[
            Setting("softmax", 1),
            Setting("softmax", 2, causal=True),
            Setting("softmax", 3, value=True),
            Setting("softmax", 2, value=True, output=True),
            Setting("relu", 1),
            Setting("relu", 3, causal=True, value=True),
            Setting("sigmoid", 2),
        ],
        ids=str,
    )
    def _setting(self, request: pytest.FixtureRequest) -> None:
        self.setting = request.param

    def context(self, seed: int) -> Tensor:
        return 3 * gaussian_context(N, D, seed)

    def test_rows_are_captured(self) -> None:
        for phi, X in self._pairs():
            response = respond(phi, X, range(N))
            if self.setting.output:
                continue  # by explicit rows, which know no such branch
            assert isinstance(response, OneWordResponse)
            assert response.captured is not None
            assert len(response.captured.row) > 0
            assert float(response.before.max()) > 0.5


class TestRowsWithoutWeight(AttentionConformance):
    """relu rows whose scores are all negative give no weight to any word, until one moves."""

    seeds = (0,)
    gradient_tolerance = 1e-5  # sums of weights near 0 bend sharply

    @pytest.fixture(autouse=True, params=[(1, False), (1, True), (2, False), (3, True)], ids=str)
    def _setting(self, request: pytest.FixtureRequest) -> None:
        heads, output = request.param
        self.setting = Setting("relu", heads, output=output)

    def context(self, seed: int) -> Tensor:
        """The first context drawn that has such a row."""
        drawn = (gaussian_context(N, D, 1000 * seed + trial) for trial in itertools.count())
        return next(X for X in drawn if self._silent(self.setting.attention(D, seed), X))

    @staticmethod
    def _silent(phi: Attention, X: Tensor) -> list[int]:
        """Rows, of the first head, that give no weight to any word."""
        queries, keys, _ = phi.project(X)
        return [int(row) for row in (phi.scores(queries, keys)[0] < 0).all(-1).nonzero().flatten()]

    def test_rows_without_weight_can_get_some(self) -> None:
        for phi, X in self._pairs():
            assert isinstance(phi, Attention)
            row = self._silent(phi, X)[0]
            if self.setting.heads == 1:
                assert not phi(X)[row].any()
            word = (row + 1) % N
            moved = perturb(X, word, 4 * normal(50, D, seed=3))
            woken = [context for context in moved if row not in self._silent(phi, context)]
            assert woken
            features = respond(phi, X, word).features(woken[0][word] - X[word])
            assert torch.allclose(features, plain_attention(phi)(woken[0]), rtol=0, atol=1e-12)
            assert not torch.equal(features[row], phi(X)[row])


class TestRandomAttention(MapConformance):
    seeds = (1,)
    score = "softmax"

    @pytest.fixture(autouse=True, params=["softmax", "relu", "sigmoid", "linear"])
    def _score(self, request: pytest.FixtureRequest) -> None:
        self.score = request.param

    efforts = ("quick",)

    def make(self, seed: int) -> FeatureMap:
        return RandomAttention(4, self.score, seed=seed)

    def twin(self, phi: FeatureMap) -> FeatureMap:
        assert isinstance(phi, RandomAttention)
        return plain_attention(phi.attention)

    def context(self, seed: int) -> Tensor:
        return gaussian_context(6, 4, seed)


def test_random_attention_is_equation_3() -> None:
    X, phi = gaussian_context(7, 5), RandomAttention(5, seed=2)
    expected = torch.softmax(X @ phi.weight @ X.T / 5**0.5, dim=-1) @ X
    assert torch.allclose(phi(X), expected, rtol=0, atol=1e-13)
    given = RandomAttention(5, weight=phi.weight)
    assert torch.equal(given(X), phi(X))
    scores = X @ phi.weight @ X.T / 5**0.5
    gains = scores.clamp_min(0)
    relu = RandomAttention(5, "relu", weight=phi.weight)(X)
    assert torch.allclose(relu, gains / gains.sum(-1, keepdim=True) @ X, rtol=0, atol=1e-13)


def test_random_weights_have_the_variance_of_the_paper() -> None:
    entries = torch.stack([RandomAttention(30, seed=seed).weight for seed in range(4)]) * 30**0.5
    assert abs(float(entries.mean())) < 4.5 / 3600**0.5
    assert abs(float(entries.square().mean()) - 1) < 4.5 * (2 / 3600) ** 0.5


@pytest.mark.parametrize(
    "setting", [Setting(), Setting("relu", 2, causal=True), Setting("sigmoid", 3, output=True)], ids=str
)
def test_leading_dimensions_are_contexts_of_their_own(setting: Setting) -> None:
    phi = setting.attention(D, seed=1)
    X = torch.stack([torch.stack([gaussian_context(N, D, seed=2 * i + j) for j in range(2)]) for i in range(3)])
    features = phi(X)
    for i, j in itertools.product(range(3), range(2)):
        assert torch.allclose(features[i, j], phi(X[i, j]), rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("setting", "kind"),
    [
        (Setting("softmax", 2, causal=True, value=True), OneWordResponse),
        (Setting("relu"), OneWordResponse),
        (Setting("sigmoid"), OneWordResponse),
        (Setting("linear"), RowsResponse),
        (Setting("softmax", output=True), RowsResponse),
    ],
    ids=str,
)
def test_the_closed_form_serves_normalised_scores_without_an_output(setting: Setting, kind: type) -> None:
    response = respond(setting.attention(D, seed=0), gaussian_context(N, D), 2)
    assert type(response) is kind


@pytest.mark.parametrize("score", ["softmax", "relu", "sigmoid"])
def test_a_row_that_gave_a_word_no_weight_at_all_can_be_won_by_it(score: str) -> None:
    """A weight below the smallest number is 0, but the word's score still decides what a move does."""
    X = torch.tensor([[40.0, 0.0], [0.0, 40.0], [0.0, -40.0]], dtype=torch.float64)
    phi = Attention(torch.eye(2).double(), torch.eye(2).double(), score=score)
    delta = torch.tensor([[0.0, -79.0], [0.0, -81.0], [-40.0, -82.0]], dtype=torch.float64)
    response, plain = respond(phi, X, 1), plain_attention(phi)
    moved = torch.stack([X.clone() for _ in delta])
    moved[:, 1] += delta
    assert torch.allclose(response.features(delta), plain(moved), rtol=0, atol=1e-10 * 40)
    base = plain(X)
    expected = (plain(moved) - base).flatten(1).norm(dim=1) / base.norm()
    assert torch.allclose(response.change(delta)[0], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("heads", [2, 3])
def test_heads_need_not_divide_d_where_every_projection_is_given(heads: int) -> None:
    query, key, value = (normal(2 * heads, 5, seed=seed) for seed in range(3))
    phi, X = Attention(query, key, value, heads=heads), gaussian_context(4, 5)
    assert torch.allclose(phi(X), plain_attention(phi)(X), rtol=0, atol=1e-12)
    assert respond(phi, X, 0).change(torch.ones(5).double())[0] > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("causal", [False, True])
def test_sigmoid_weights_do_not_underflow(causal: bool, dtype: torch.dtype) -> None:
    """Far below 0 the sigmoid is exp of the score, which is 0 as a float: its weights are still those of a softmax."""
    assert float(Attention(torch.eye(1), -torch.eye(1), score="sigmoid")(torch.tensor([[15.0]]))) == 15.0
    X = gaussian_context(5, 4, 1, dtype=dtype) + 40
    query = -torch.eye(4, dtype=dtype)
    sigmoid, softmax = (Attention(query, None, causal=causal, score=name) for name in ("sigmoid", "softmax"))
    assert float(sigmoid.scores(*sigmoid.project(X)[:2]).max()) < -1000
    delta = 0.1 * normal(6, 4, seed=2).to(dtype)
    torch.testing.assert_close(sigmoid(X), softmax(X))
    for words, together, moves in ((1, False, delta), ((0, 3), True, delta.reshape(3, 2, 4))):
        responses = [phi.respond(X, words, together) for phi in (sigmoid, softmax)]
        (value, grad), (expected, expected_grad) = (response.change(moves) for response in responses)
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(grad, expected_grad)
        torch.testing.assert_close(responses[0].features(moves), responses[1].features(moves))
