"""Texts inside small models of every family: maps over their embeddings, against plain passes of the whole network."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import wordsway as ws
from models import plain
from models import small_transformers as small
from wordsway.errors import InputError, NumericalError
from wordsway.maps import FeatureMap
from wordsway.models.response import TextFeatures, TransformerResponse
from wordsway.testing import MapConformance

FAMILIES = list(small.SMALL)
DECODERS = [name for name, one in small.SMALL.items() if one.causal]
N = 7
SPANS = plain.spans(N)


class _SmallText(MapConformance):
    """The map of a small model at a text of five tokens is a map like any other."""

    seeds = (0,)
    follows_dtype = False
    radius = 0.5
    family = "bert"
    on: str | int = "last"

    def make(self, seed: int) -> FeatureMap:
        return plain.features(small.make(self.family), _ids(5), self.on)

    def context(self, seed: int) -> Tensor:
        return plain.features(small.make(self.family), _ids(5), self.on).embedded


class TestEncoder(_SmallText):
    pass


class TestPooled(_SmallText):
    on = "pooled"


class TestDecoder(_SmallText):
    family = "gpt2"

    def still_rows(self, word: int, n: int) -> Sequence[int]:
        return range(word)


class TestLayerOfADecoder(_SmallText):
    family, on = "gpt2", 1


def _ids(n: int = N) -> list[int]:
    ids: list[int] = small.tokens(1, n)[0].tolist()
    return ids


def _agrees(network: Any, on: str | int, n: int = N) -> None:
    """Changes, divergences and gradients for one text are those of plain passes."""
    spans = plain.spans(n)
    phi = plain.features(network, _ids(n), on)
    response = phi.along(spans)
    X, e = phi.embedded, phi.embedded.shape[1]
    delta = plain.random_moves(len(spans), X).flatten(1)
    values, gradients = response.change(delta)
    divergences = response.divergence(delta)
    before = plain.output(network, X, on)
    torch.testing.assert_close(phi(X), before, rtol=1e-10, atol=1e-12)
    assert gradients is not None
    assert (divergences is not None) == (on in plain.DISTRIBUTIONS)
    size, close = (1e-3, 1e-2) if hasattr(network.base_model, "norm") else (1e-5, 1e-5)  # RMSNorm rounds to float32
    step = size * plain.random_moves(len(spans), X, seed=2).flatten(1)
    for place, span in enumerate(spans):
        now = plain.output(network, plain.moved(X, span, delta[place]), on)
        assert float(values[place]) == pytest.approx(plain.distance(before, now, on), rel=1e-10, abs=1e-14)
        torch.testing.assert_close(response.features(delta)[place], now, rtol=1e-9, atol=1e-12)
        if divergences is not None:
            expected = nn.functional.kl_div(before.log(), now, reduction="sum")
            assert float(divergences[place]) == pytest.approx(float(expected), rel=1e-8, abs=1e-12)
    for place in (1, len(spans) - 1):
        ahead, behind = (
            plain.output(network, plain.moved(X, spans[place], delta[place] + turn * step[place]), on)
            for turn in (1, -1)
        )
        measured = (plain.distance(before, ahead, on) - plain.distance(before, behind, on)) / 2
        along = float((gradients[place] * step[place]).sum())
        assert abs(along - measured) <= close * float(gradients[place].norm()) * size
        assert not gradients[place, len(spans[place]) * e :].any()


def _one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TextFeatures, "batch_size", lambda self, gradient: 1)


@pytest.mark.parametrize("name", FAMILIES)
def test_changes_and_gradients_are_those_of_plain_passes(name: str) -> None:
    network = small.make(name)
    for on in plain.outputs(network):
        _agrees(network, on)


@pytest.mark.parametrize("name", ["bert-decoder", "gpt2", "llama-yarn", "mistral", "qwen2"])
def test_decoders_that_keep_a_prefix_compute_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _one_at_a_time(monkeypatch)
    network = small.make(name)
    for on in plain.outputs(network):
        _agrees(network, on)


@pytest.mark.parametrize("name", ["bert", "bert-decoder", "roberta", "distilbert", "gpt2", "llama", "mistral", "qwen2"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_batch_computes_what_single_passes_do(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    network, close = small.make(name, dtype=dtype), 1e-10 if dtype == torch.float64 else 1e-5
    for on in ("last", 2) if dtype == torch.float32 else ("pooled",):
        response = plain.features(network, _ids(), on).along(SPANS)
        delta = plain.random_moves(len(SPANS), response.X).flatten(1)
        together, gradients = response.change(delta)
        with monkeypatch.context() as inside:
            _one_at_a_time(inside)
            alone, single = response.change(delta)
        assert gradients is not None
        assert single is not None
        assert together.dtype == dtype
        torch.testing.assert_close(together, alone, rtol=close, atol=close)
        torch.testing.assert_close(gradients, single, rtol=10 * close, atol=10 * close * float(single.abs().max()))


def test_the_order_of_words_and_repeated_words_do_not_matter() -> None:
    phi = plain.features(small.make("gpt2"), _ids(), "last")
    spans = [SPANS[place] for place in (4, 2, 5, 2)]
    delta = plain.random_moves(4, phi.embedded).flatten(1)
    values, _ = phi.along(spans).change(delta, gradient=False)
    e = phi.embedded.shape[1]
    for place, span in enumerate(spans):
        alone, _ = phi.along([span]).change(delta[place : place + 1, : len(span) * e], gradient=False)
        assert float(alone[0]) == pytest.approx(float(values[place]), rel=1e-10)


def test_a_context_of_another_shape_is_refused() -> None:
    phi = plain.features(small.make("bert"), _ids(), "last")
    with pytest.raises(InputError, match=r"shape of the embedded text, got 3 x \d+: use phi.embedded"):
        phi.respond(phi.embedded[:3], 0)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_layer_is_the_hidden_state_of_the_whole_model(name: str) -> None:
    network = small.make(name)
    with torch.no_grad():
        states = network.base_model(torch.tensor([_ids()]), output_hidden_states=True).hidden_states
    for layer, state in enumerate(states):
        phi = plain.features(network, _ids(), layer)
        torch.testing.assert_close(phi(phi.embedded), state[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_layers_above_are_not_run(name: str) -> None:
    network = small.make(name)
    phi = plain.features(network, _ids(), 1)
    expected = phi(phi.embedded)
    with torch.no_grad():
        for index in (1, 2):
            for weight in small.module(network.base_model, index).parameters():
                weight.fill_(torch.nan)
    phi = plain.features(network, _ids(), 1)
    assert torch.equal(phi(phi.embedded), expected)
    with pytest.raises(NumericalError, match="must return finite numbers for the text: check its weights"):
        plain.features(network, _ids(), "last").along(SPANS)


# What comes before a word


@pytest.mark.parametrize("name", DECODERS)
def test_rows_before_the_word_do_not_move(name: str) -> None:
    phi = plain.features(small.make(name), _ids(), "last")
    moved = plain.moved(phi.embedded, (4,), plain.random_moves(1, phi.embedded)[0])
    with torch.no_grad():
        rows, before = phi(moved), phi(phi.embedded)
    torch.testing.assert_close(rows[:4], before[:4], rtol=1e-10, atol=1e-10)
    assert float((rows[4:] - before[4:]).norm(dim=1).min()) > 1e-6


@pytest.mark.parametrize("name", ["bert", "bert-decoder", "gpt2", "llama", "qwen2"])
@pytest.mark.parametrize("on", ["last", 2])
def test_a_decoder_runs_over_the_rows_from_the_word_on(
    name: str, on: str | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    response = plain.features(small.make(name), _ids(), on).along([(4,), (5,)])
    delta = plain.random_moves(2, response.X)[:, 0]
    response.change(delta)
    lengths: list[int] = []
    run = TextFeatures.run

    def note(self: TextFeatures, batch: Tensor, past: Any = None) -> Tensor:
        lengths.append(batch.shape[1])
        return run(self, batch, past)

    monkeypatch.setattr(TextFeatures, "run", note)
    response.change(delta)
    assert lengths == [N if name == "bert" else N - 4]


@pytest.mark.parametrize("window", [2, 4, 6, 20])
@pytest.mark.parametrize("together", [True, False])
def test_a_model_with_a_window_is_read_right(window: int, together: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not together:
        _one_at_a_time(monkeypatch)
    network = small.make("mistral", sliding_window=window)
    for on in ("last", 1, 2):
        _agrees(network, on, n=10)


def test_some_layers_may_have_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    _one_at_a_time(monkeypatch)
    some: dict[str, Any] = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
    network = small.make("qwen2", **some)
    for on in plain.outputs(network):
        _agrees(network, on, n=10)


def test_a_decoder_that_counts_positions_anew_is_read_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """RoBERTa does where it is given embeddings, so that what it keeps must not be used."""
    _one_at_a_time(monkeypatch)
    network = plain.make("RobertaConfig", "RobertaForCausalLM", **small.SMALL["bert"].options, is_decoder=True)
    for on in ("last", 1, "next"):
        _agrees(network, on)


@pytest.mark.parametrize("padding", [None, 0])
def test_a_decoder_may_classify(padding: int | None) -> None:
    marks = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": padding, "num_labels": 3}
    _agrees(plain.make("GPT2Config", "GPT2ForSequenceClassification", **small.SMALL["gpt2"].options, **marks), "class")


def test_half_precision_is_measured_in_single_precision() -> None:
    for name, on in (("gpt2", "next"), ("bert", "last")):
        exact, network = small.make(name), small.make(name, dtype=torch.bfloat16)
        response = plain.features(network, _ids(), on).along(SPANS[3:5])
        delta = plain.random_moves(2, response.X)[:, 0]
        values, gradients = response.change(delta)
        assert gradients is not None
        assert (values.dtype, gradients.dtype) == (torch.float32, torch.float32)
        for place, span in enumerate(response.spans):
            rows = response.X.double()
            expected = plain.change(exact, rows, plain.moved(rows, span, delta[place].double()), on)
            assert float(values[place]) == pytest.approx(expected, rel=0.1, abs=0.02)


# Every measurement of maps takes the map of a text


def test_measurements_of_maps_take_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    network = small.make("gpt2")
    phi = plain.features(network, _ids(), "last")
    X = phi.embedded
    one = ws.word_sensitivity(phi, X, 3, 0.5)
    moved = plain.moved(X, (3,), one.delta)
    assert one.value == pytest.approx(plain.change(network, X, moved, "last"), rel=1e-9)
    profile = ws.sensitivity_profile(phi, X, radius=0.5)
    assert profile.gains is not None
    assert float(profile.values[3]) >= one.value * (1 - 1e-9)  # other words' witnesses are tried too
    together = ws.word_sensitivity(phi, X, (2, 5), 0.5, together=True)
    assert together.value >= max(float(profile.values[k]) for k in (2, 5)) * 0.8
    table = ws.load(network).embedded()[:40]
    swaps = ws.vocabulary_sensitivity(phi, X, 3, table)
    best = plain.change(network, X, plain.moved(X, (3,), table[swaps.best] - X[3]), "last")
    assert swaps.value == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("name", ["bert", "gpt2", "qwen2"])
def test_local_lipschitz_takes_a_text(name: str) -> None:
    phi = plain.features(small.make(name), _ids(4), "last")
    X = phi.embedded
    jacobian = torch.func.jacrev(phi)(X).reshape(phi(X).numel(), -1)
    exact = float(torch.linalg.matrix_norm(jacobian, 2))
    close = 1e-3 if name == "qwen2" else 1e-6  # RMSNorm rounds to float32
    assert ws.local_lipschitz(phi, X).value == pytest.approx(exact, rel=close)


# What is left behind


def _state(network: Any) -> list[Any]:
    parts = list(network.modules())
    hooks = [name for part in parts for name, table in vars(part).items() if "hooks" in name and table]
    flags = [(weight.requires_grad, weight.grad is None) for weight in network.parameters()]
    return [hooks, flags, [part.training for part in parts], torch.is_grad_enabled()]


def _fail(*_: Any) -> None:
    raise RuntimeError("half-way")


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
@pytest.mark.parametrize("on", ["last", 1])
def test_nothing_is_left_on_the_network(name: str, on: str | int, monkeypatch: pytest.MonkeyPatch) -> None:
    network = small.make(name).train()
    given = _state(network)
    assert all(flag for flag, _ in given[1])
    model = ws.load(network)
    own = _state(model.network)
    response = plain.model_features(model, _ids(), on).along(SPANS[2:5])
    delta = plain.random_moves(3, response.X)[:, 0]
    response.change(delta)
    with pytest.raises(IndexError):
        plain.model_features(model, _ids(), on).along([(40,)]).change(delta[:1])
    monkeypatch.setattr(TransformerResponse, "_perturbed", _fail)
    with pytest.raises(RuntimeError, match="half-way"):
        response.change(delta)
    assert _state(network) == given
    assert _state(model.network) == own
    assert torch.is_grad_enabled()
    assert not any(flag for flag, _ in own[1])
    assert not any(own[2])
