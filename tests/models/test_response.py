"""Texts inside small models of every family: maps over their embeddings, against plain passes of the whole network."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import wordsway as ws
from models import plain
from models import small_transformers as small
from wordsway.errors import InputError, NumericalError
from wordsway.maps import FeatureMap
from wordsway.models.response import TransformerResponse
from wordsway.testing import MapConformance

FAMILIES = list(small.SMALL)
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
        return plain.features(small.make(self.family), plain.ids(5), self.on)

    def context(self, seed: int) -> Tensor:
        return plain.features(small.make(self.family), plain.ids(5), self.on).embedded


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


_SOME: dict[str, Any] = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
_MARKS = {"bos_token_id": 1, "eos_token_id": 1, "num_labels": 3}


def _counting_anew() -> Any:
    """A decoder that counts positions from 0 again where it is given embeddings: what it keeps must not be used."""
    return plain.make("RobertaConfig", "RobertaForCausalLM", **small.SMALL["bert"].options, is_decoder=True)


def _classifier(padding: int | None) -> Any:
    options = {**small.SMALL["gpt2"].options, **_MARKS, "pad_token_id": padding}
    return plain.make("GPT2Config", "GPT2ForSequenceClassification", **options)


NETWORKS: dict[str, Callable[[], Any]] = {
    **{name: partial(small.make, name) for name in FAMILIES},
    **{f"mistral, window {size}": partial(small.make, "mistral", sliding_window=size) for size in (2, 4, 6, 9)},
    "qwen2, some windows": partial(small.make, "qwen2", **_SOME),
    "roberta decoder": _counting_anew,
    "classifier": partial(_classifier, None),
    "classifier with padding": partial(_classifier, 0),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_changes_and_gradients_are_those_of_plain_passes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network = NETWORKS[name]()
    for on in plain.outputs(network):
        plain.check(network, on, n=10 if "window" in name else 7)
    plain.one_at_a_time(monkeypatch)
    for on in plain.outputs(network) if ws.load(network).causal else ():
        plain.check(network, on, n=10 if "window" in name else 7)


def test_the_order_of_words_and_repeated_words_do_not_matter() -> None:
    phi = plain.features(small.make("gpt2"), plain.ids(), "last")
    spans = [SPANS[place] for place in (4, 2, 5, 2)]
    delta = plain.random_moves(4, phi.embedded).flatten(1)
    values, _ = phi.along(spans).change(delta, gradient=False)
    e = phi.embedded.shape[1]
    for place, span in enumerate(spans):
        alone, _ = phi.along([span]).change(delta[place : place + 1, : len(span) * e], gradient=False)
        assert float(alone[0]) == pytest.approx(float(values[place]), rel=1e-10)


def test_a_context_of_another_shape_is_refused() -> None:
    phi = plain.features(small.make("bert"), plain.ids(), "last")
    with pytest.raises(InputError, match=r"shape of the embedded text, got 3 x \d+: use phi.embedded"):
        phi.respond(phi.embedded[:3], 0)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_layers_above_are_not_run(name: str) -> None:
    network = small.make(name)
    phi = plain.features(network, plain.ids(), 1)
    expected = phi(phi.embedded)
    with torch.no_grad():
        for index in (1, 2):
            for weight in small.module(network.base_model, index).parameters():
                weight.fill_(torch.nan)
    phi = plain.features(network, plain.ids(), 1)
    assert torch.equal(phi(phi.embedded), expected)
    with pytest.raises(NumericalError, match="must return finite numbers for the text: check its weights"):
        plain.features(network, plain.ids(), "last").along(SPANS)


@pytest.mark.parametrize("name", ["bert", "bert-decoder", "gpt2", "llama", "qwen2"])
@pytest.mark.parametrize("on", ["last", 2])
def test_a_decoder_runs_over_the_rows_from_the_word_on(
    name: str, on: str | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    response = plain.features(small.make(name), plain.ids(), on).along([(4,), (5,)])
    assert plain.rows_run(response, monkeypatch) == [N if name == "bert" else N - 4]


def test_half_precision_is_measured_in_single_precision() -> None:
    for name, on in (("gpt2", "next"), ("bert", "last")):
        exact, network = small.make(name), small.make(name, dtype=torch.bfloat16)
        response = plain.features(network, plain.ids(), on).along(SPANS[3:5])
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
    phi = plain.features(network, plain.ids(), "last")
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
    phi = plain.features(small.make(name), plain.ids(4), "last")
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
    response = plain.model_features(model, plain.ids(), on).along(SPANS[2:5])
    delta = plain.random_moves(3, response.X)[:, 0]
    response.change(delta)
    with pytest.raises(IndexError):
        plain.model_features(model, plain.ids(), on).along([(40,)]).change(delta[:1])
    monkeypatch.setattr(TransformerResponse, "_perturbed", _fail)
    with pytest.raises(RuntimeError, match="half-way"):
        response.change(delta)
    assert _state(network) == given
    assert _state(model.network) == own
    assert torch.is_grad_enabled()
    assert not any(flag for flag, _ in own[1])
    assert not any(own[2])
