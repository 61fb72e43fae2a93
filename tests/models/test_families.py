"""Layers of transformers as `Attention` and what they read, against the models' own modules."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import wordsway as ws
from models import small_transformers as small
from wordsway.errors import InputError
from wordsway.models.families import family_of, is_causal

FAMILIES = list(small.SMALL)


def _rows(model: ws.Model, texts: int, n: int) -> torch.Tensor:
    return torch.randn(texts, n, model.d, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


# Attention


@pytest.mark.parametrize("name", FAMILIES)
def test_a_layer_is_what_the_models_own_module_computes(name: str) -> None:
    network = small.make(name)
    model = ws.load(network)
    for n in (1, 11):
        X = _rows(model, 2, n)
        for index in range(small.LAYERS):
            expected = small.own_attention(network, index, X, small.SMALL[name].causal)
            torch.testing.assert_close(model.attention(index)(X), expected, rtol=1e-9, atol=1e-9)
    for causal in (True, False):
        expected = small.own_attention(network, 1, X, causal)
        torch.testing.assert_close(model.attention(1, causal=causal)(X), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_attributes_of_a_model(name: str) -> None:
    network = small.make(name)
    model = ws.load(network)
    assert model.family == network.config.model_type
    assert model.causal == small.SMALL[name].causal == is_causal(network.base_model, name)
    assert (model.d, model.layers, model.vocabulary) == (24, small.LAYERS, small.VOCABULARY)
    assert model.positions == (38 if model.family in ("roberta", "xlm-roberta", "camembert", "mpnet") else 40)
    assert repr(model).startswith(f"Model(name='{model.family}', family='{model.family}', ")


def test_relative_positions_are_right_beyond_their_farthest_distance() -> None:
    network = small.make("mpnet", max_position_embeddings=300)
    model = ws.load(network)
    X = _rows(model, 1, 280)
    expected = small.own_attention(network, 0, X, causal=False)
    torch.testing.assert_close(model.attention(0)(X), expected, rtol=1e-9, atol=1e-9)
    assert float((ws.Attention(**_without(model, "relative"))(X) - expected).abs().max()) > 0.1


def _without(model: ws.Model, name: str) -> dict[str, Any]:
    """The arguments of the first layer of a model without one of them."""
    return {**family_of(model.network.config).attention(model.network.base_model, 0), name: None}


@pytest.mark.parametrize(("n", "agrees"), [(4, True), (5, False)])
def test_attention_with_a_window_is_exact_up_to_its_size(
    n: int, agrees: bool, caplog: pytest.LogCaptureFixture
) -> None:
    network = small.make("mistral", sliding_window=4)
    model = ws.load(network)
    assert model.window(0) == 4
    tokens = small.tokens(1, n)
    outputs: list[torch.Tensor] = []
    handle = network.layers[0].self_attn.register_forward_hook(lambda *given: outputs.append(given[2][0].detach()))
    network(tokens)
    handle.remove()
    with caplog.at_level(logging.WARNING):
        ours = model.attention(0)(model.layer_inputs(tokens, 0))
    assert [record.getMessage() for record in caplog.records] == [
        "layer 0 of mistral sees a window of 4 words: its attention is the layer's for n <= 4 only"
    ]
    assert bool((ours - outputs[0]).abs().max() < 1e-5) == agrees  # its angles are float32


def test_a_window_that_is_never_reached_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    ws.load(small.make("mistral")).attention(0)
    some: dict[str, Any] = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
    model = ws.load(small.make("qwen2", **some))
    model.attention(0)
    assert not caplog.records
    assert [model.window(index) for index in range(3)] == [None, 4, 4]
    assert ws.load(small.make("mistral-all")).window(0) is None


# What layers read


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", FAMILIES)
def test_layer_inputs_are_what_the_layer_reads_when_the_model_runs(name: str, dtype: torch.dtype) -> None:
    network = small.make(name, dtype=dtype)
    model = ws.load(network)
    tokens = small.tokens(3, 9)
    for index in range(small.LAYERS):
        ours = model.layer_inputs(tokens, index)
        expected = small.read_by(network, index, lambda: network(tokens))
        assert ours.dtype == dtype
        torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_only_the_layers_below_are_run(name: str) -> None:
    network = small.make(name)
    tokens = small.tokens(1, 5)
    expected = small.read_by(network, 1, lambda: network(tokens))
    with torch.no_grad():
        last = small.module(network.base_model, 2)
        for weight in [*last.parameters(), *small.module(network.base_model, 1).parameters()]:
            weight.fill_(torch.nan)
    torch.testing.assert_close(ws.load(network).layer_inputs(tokens, 1), expected)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_a_text_does_not_depend_on_the_others_and_padding_is_a_word(name: str) -> None:
    network = small.make(name)
    model = ws.load(network)
    tokens = small.tokens(4, 6)
    tokens[1, 2:] = 0
    together = model.layer_inputs(tokens, 2)
    read = small.read_by(network, 2, lambda: network(tokens, attention_mask=torch.ones_like(tokens)))
    torch.testing.assert_close(together, read, rtol=1e-5, atol=1e-5 * float(read.abs().max()))
    for k in range(4):
        assert torch.equal(model.layer_inputs(tokens[k : k + 1].tolist(), 2)[0], together[k])
    assert not together.requires_grad


# How large rows can be


@pytest.mark.parametrize("name", FAMILIES)
def test_no_row_is_longer_than_the_radius(name: str) -> None:
    model = ws.load(small.make(name))
    for index in range(small.LAYERS):
        longest = float(model.layer_inputs(small.tokens(20, 30), index).norm(dim=2).max())
        assert 0.2 * model.radius(index) < longest < model.radius(index)


_NORMS: dict[str, Callable[[Any, int], Any]] = {
    "bert": lambda body, k: body.encoder.layer[k - 1].output.LayerNorm if k else body.embeddings.LayerNorm,
    "distilbert": lambda body, k: body.transformer.layer[k - 1].output_layer_norm if k else body.embeddings.LayerNorm,
    "gpt2": lambda body, k: body.h[k].ln_1,
    "llama": lambda body, k: body.layers[k].input_layernorm,
}


@pytest.mark.parametrize("name", _NORMS)
@pytest.mark.parametrize("index", range(small.LAYERS))
def test_the_radius_is_reached_by_the_norm_that_feeds_the_layer(name: str, index: int) -> None:
    """The longest output of that norm, found by ascent, is the radius up to the mean that it subtracts."""
    network = small.make(name)
    model = ws.load(network)
    norm = _NORMS[name](network.base_model, index)
    rows = torch.cat([torch.eye(model.d), -torch.eye(model.d)]).double()
    with torch.no_grad():
        for _ in range(300):  # each step ascends, since the length is a convex function of the normalized row
            rows = 1e3 * norm.weight * norm(rows)
        longest = float(norm(rows).norm(dim=1).max())
    assert 0.93 * model.radius(index) < longest <= model.radius(index) * (1 + 1e-6)


# Bad input


@pytest.mark.parametrize("index", [-1, 3, 1.0, "0", None, True])
def test_a_layer_that_does_not_exist_is_refused(index: Any) -> None:
    model = ws.load(small.make("bert"))
    for method in (model.attention, model.radius, model.window, lambda k: model.layer_inputs([[1]], k)):
        with pytest.raises(InputError) as caught:
            method(index)
        assert str(caught.value) == f"the layer must be from 0 to 2, got {index!r}"


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([1, 2], r"tokens must be integers \(B, n\), got shape \(2,\) of torch.int64"),
        ([[]], r"got shape \(1, 0\)"),
        ([[1.0]], r"got shape \(1, 1\) of torch.float64"),
        ([[True]], r"of torch.bool"),
        ([[1], [1, 2]], "tokens must be rectangular numbers"),
        ("words", "tokens must be integers, got <U5: give an array or a list of numbers"),
        ([[-1]], r"tokens must be 0..49, got -1"),
        ([[3, 50]], r"tokens must be 0..49, got 50"),
        ([[1] * 41], "n must be at most 40, the positions that bert knows, got 41"),
    ],
)
def test_bad_tokens_are_refused_in_one_line(tokens: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        ws.load(small.make("bert")).layer_inputs(tokens, 0)
    assert "\n" not in str(caught.value)


def test_what_cannot_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ws.load(small.make("bert"))
    monkeypatch.setattr("wordsway.memory.available", lambda: 1000)
    monkeypatch.setattr("wordsway.memory.SMALL", 0)
    with pytest.raises(InputError, match="layer 1 of bert on 1 x 5 tokens needs"):
        model.layer_inputs(small.tokens(1, 5), 1)


class Adapted(nn.Linear):
    """A projection with something added to it."""


def _adapted(name: str, place: str) -> Any:
    network = small.make(name)
    parent, _, last = place.rpartition(".")
    setattr(network.get_submodule(parent), last, Adapted(24, 48))
    return network


def _relative() -> Any:
    network = small.make("bert")
    network.config.position_embedding_type = "relative_key"
    return network


def _qwen3() -> Any:
    from transformers import Qwen3Config, Qwen3Model

    config = Qwen3Config(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=4)
    config.vocab_size, config.intermediate_size = 10, 8
    return Qwen3Model(config)


_DYNAMIC = {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 2.0, "original_max_position_embeddings": 10}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_qwen3, "got the model_type 'qwen3': choose a model of the type bert, roberta, "),
        (_relative, "got the position_embedding_type 'relative_key'"),
        (lambda: small.make("llama", rope_parameters=_DYNAMIC), "got the rope_type 'dynamic'"),
        (
            lambda: _adapted("llama", "model.layers.1.self_attn.q_proj"),
            "self_attn.q_proj must be a plain linear layer, got Adapted: merge adapters",
        ),
        (
            lambda: _adapted("gpt2", "transformer.h.1.attn.c_attn"),
            "attn.c_attn must be a plain linear layer, got Ada",
        ),
    ],
)
def test_attention_that_is_not_known_is_refused_though_the_model_can_be_run(
    make: Callable[[], Any], message: str
) -> None:
    model = ws.load(make())
    assert model.layers >= 2
    with pytest.raises(InputError, match=message):
        model.attention(1)
