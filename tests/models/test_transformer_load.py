"""Loading transformers: objects that stay as they are, folders, tokenizers, randomness, and what is refused."""

import copy
import importlib.util
import json
import socket
import sys
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from tokenizers import Tokenizer
from torch import nn

import wordsway as ws
from models import small_transformers as small
from models import tiny
from models.conftest import Library
from wordsway.errors import InputError, MissingExtra

TEXT = "the film was boring, and the ending was worse"


def _refusal(model: Any, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        ws.load(model, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def _same(first: ws.Model, second: ws.Model) -> None:
    """Both have the same weights as far as attention and its inputs show."""
    tokens = small.tokens(2, 6)
    for index in range(first.layers):
        X = first.layer_inputs(tokens, index)
        torch.testing.assert_close(X, second.layer_inputs(tokens, index))
        torch.testing.assert_close(first.attention(index)(X), second.attention(index)(X))
        assert first.radius(index) == second.radius(index)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small.make("bert", dtype=torch.float32).save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


# Objects of transformers


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_an_object_stays_as_it_is(name: str) -> None:
    network = small.make(name).train()
    calls: list[Any] = []
    for module in network.modules():
        module.register_forward_hook(lambda *given: calls.append(given))
    frozen = next(network.parameters())
    frozen.requires_grad_(False)
    before = {key: copy.copy(value) for key, value in vars(network).items()}
    config = network.config.to_json_string()
    weights = {key: value.clone() for key, value in network.state_dict().items()}
    hooks = [(module, dict(module._forward_hooks)) for module in network.modules()]

    model = ws.load(network)
    tokens = small.tokens(2, 5)
    inputs = model.layer_inputs(tokens, 2)
    model.attention(1)(inputs)
    with pytest.raises(InputError):
        model.layer_inputs([[999]], 1)

    assert calls == []
    assert all(module.training for module in network.modules())
    assert [weight.requires_grad for weight in network.parameters()] == [
        weight is not frozen for weight in network.parameters()
    ]
    assert all(weight.grad is None for weight in network.parameters())
    assert [(module, dict(module._forward_hooks)) for module in network.modules()] == hooks
    assert config == network.config.to_json_string()
    assert all(torch.equal(weights[key], value) for key, value in network.state_dict().items())
    assert set(before) == set(vars(network))
    assert not any(module._forward_pre_hooks for module in network.modules())
    assert torch.equal(inputs, ws.load(network.eval()).layer_inputs(tokens, 2))  # as without dropout


def test_an_object_that_fails_while_it_runs_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    network = small.make("bert").train()
    model = ws.load(network)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(type(network.encoder.layer[0]), "forward", fail)
    with pytest.raises(RuntimeError, match="out of order"):
        model.layer_inputs(small.tokens(1, 5), 2)
    assert all(module.training for module in network.modules())
    assert all(weight.requires_grad for weight in network.parameters())
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in network.modules())
    assert torch.is_grad_enabled()


def test_weights_are_not_copied_and_have_no_gradient_flags() -> None:
    network = small.make("llama")
    model = ws.load(network)
    attention = model.attention(0)
    assert attention.query is not None
    assert attention.query.data_ptr() == network.model.layers[0].self_attn.q_proj.weight.data_ptr()
    assert not any(weight.requires_grad for weight in model.network.parameters())
    assert not any(module.training for module in model.network.modules())


# Folders


@pytest.mark.parametrize("name", ["bert", "bert-classifier", "roberta", "distilbert", "gpt2", "llama", "qwen2"])
def test_a_folder_is_the_model_that_was_saved_there(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    network = small.make(name, dtype=torch.float32)
    network.save_pretrained(tmp_path)
    capfd.readouterr()
    model = ws.load(str(tmp_path))
    assert capfd.readouterr() == ("", "")
    _same(model, ws.load(network))
    assert model.name == str(tmp_path)
    assert not model.network.training
    assert not any(weight.requires_grad for weight in model.network.parameters())
    assert model.network.config._attn_implementation == "eager"


@pytest.mark.parametrize("said", [[None], {"a": 1}, 5, "BertForSequenceClassification", [], None])
def test_what_a_folder_says_of_its_kind_may_be_odd(said: Any, folder: Path) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "architectures": said}))
    assert ws.load(str(folder)).family == "bert"


def test_weights_in_several_files_and_in_half_precision_come_in_float32(tmp_path: Path) -> None:
    network = small.make("llama", dtype=torch.float32)
    with torch.no_grad():
        for weight in network.parameters():
            weight.copy_(weight.bfloat16())
    copy.deepcopy(network).bfloat16().save_pretrained(tmp_path, max_shard_size="5KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    model = ws.load(str(tmp_path))
    assert {weight.dtype for weight in model.network.parameters()} == {torch.float32}
    _same(model, ws.load(network))


def test_a_pooler_that_is_not_saved_is_not_missed_and_global_randomness_not_touched(tmp_path: Path) -> None:
    small.make("bert", dtype=torch.float32).save_pretrained(tmp_path)
    tiny.rewrite(tmp_path, lambda tables: {name: t for name, t in tables.items() if not name.startswith("pooler")})
    before = torch.get_rng_state()
    ws.load(str(tmp_path)).attention(0)
    assert torch.equal(before, torch.get_rng_state())


def test_a_folder_needs_no_network(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("asked for an address"))
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("connected"))
    assert ws.load(str(folder)).layers == small.LAYERS


def test_settings_of_transformers_are_put_back(tmp_path: Path) -> None:
    from transformers.utils import logging

    small.make("bert", dtype=torch.float32).save_pretrained(tmp_path)
    settings: Any = logging
    settings.set_verbosity_info()
    try:
        for damage in (False, True):
            if damage:
                (tmp_path / "model.safetensors").write_bytes(b"garbage")
                _refusal(str(tmp_path))
            else:
                ws.load(str(tmp_path))
            assert settings.get_verbosity() == settings.INFO
            assert settings.is_progress_bar_enabled()
    finally:
        settings.set_verbosity_warning()


# Tokenizers


def _bert_with_tokenizer(folder: Path) -> Tokenizer:
    folder.mkdir()
    pieces = tiny.PIECES
    vocabulary = len(tiny.SPECIAL) + len(pieces)
    small.make("bert", dtype=torch.float32, vocab_size=vocabulary).save_pretrained(folder)
    return tiny.write_tokenizer(folder, pieces)


def test_texts_are_split_as_the_tokenizer_does_without_cutting_or_padding(tmp_path: Path) -> None:
    tokenizer = _bert_with_tokenizer(tmp_path / "bert")
    model = ws.load(str(tmp_path / "bert"))
    assert model.tokens(TEXT) == tokenizer.encode(TEXT).ids
    assert len(model.tokens("a")) == 3
    assert model.layer_inputs([model.tokens(TEXT)], 1).shape == (1, len(tokenizer.encode(TEXT).ids), model.d)


def test_a_tokenizer_can_be_given_and_stays_as_it_is(tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    plain = _bert_with_tokenizer(tmp_path / "bert")
    cutting = Tokenizer.from_str(plain.to_str())
    cutting.enable_truncation(4)
    make: Any = PreTrainedTokenizerFast
    fast = make(tokenizer_object=plain)
    network = small.make("bert", vocab_size=200)
    for given in (plain, cutting, fast):
        assert ws.load(network, tokenizer=given).tokens(TEXT) == plain.encode(TEXT).ids
    assert cutting.truncation is not None
    assert cutting.truncation["max_length"] == 4


def test_reviews_are_split_too(library: Library, tmp_path: Path) -> None:
    tokenizer = _bert_with_tokenizer(tmp_path / "bert")
    model = ws.load(str(tmp_path / "bert"))
    tokens = model.review_tokens(40, 30)
    assert tokens.shape == (40, 30)
    assert sorted(tokens.tolist()) == sorted(tokenizer.encode(text).ids[:30] for text in library.texts)
    assert torch.equal(model.review_tokens(5, 30), tokens[:5])
    assert not torch.equal(model.review_tokens(40, 30, seed=1), tokens)
    contexts, _ = ws.review_contexts(40, 30, 24, model=str(tmp_path / "bert"))
    torch.testing.assert_close(ws.normalize(model.layer_inputs(tokens, 0).double()), contexts, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("template", "before", "after"), [("[CLS] $A [SEP]", 1, 1), ("[CLS] $A", 1, 0), ("", 0, 0)])
def test_what_closes_a_text_is_never_one_of_its_tokens(
    library: Library, tmp_path: Path, template: str, before: int, after: int
) -> None:
    tokenizer = tiny.write_tokenizer(tmp_path, tiny.PIECES, template)
    model = ws.load(small.make("gpt2", vocab_size=200), tokenizer=tokenizer)
    short = tokenizer.encode("Short too!").ids
    assert len(model.tokens("Short too!")) == len(short)
    longest = len(short) - after
    assert short[:longest] in model.review_tokens(42, longest).tolist()
    with pytest.raises(InputError, match="count must be at most 40"):
        model.review_tokens(42, longest + 1)


def test_without_a_tokenizer_texts_are_refused() -> None:
    model = ws.load(small.make("gpt2"))
    for ask in (lambda: model.tokens("a film"), lambda: model.review_tokens(2, 5)):
        with pytest.raises(
            InputError, match="gpt2 must have a tokenizer to read texts, got none: load it with tokeniz"
        ):
            ask()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "count must be an integer >= 1"),
        ({"count": 50}, "count must be at most 44, the number of reviews"),
        ({"n": 41}, "n must be at most 40, the positions that"),
        ({"n": 0}, "n must be"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_bad_requests_for_reviews_are_refused(
    library: Library, tmp_path: Path, arguments: dict[str, int], message: str
) -> None:
    _bert_with_tokenizer(tmp_path / "bert")
    with pytest.raises(InputError, match=message):
        ws.load(str(tmp_path / "bert")).review_tokens(**{"count": 2, "n": 5, **arguments})


def test_a_text_must_be_one_string(tmp_path: Path) -> None:
    _bert_with_tokenizer(tmp_path / "bert")
    wrong: Any = ["a", "film"]
    with pytest.raises(InputError, match="text must be a string, got list"):
        ws.load(str(tmp_path / "bert")).tokens(wrong)


def test_tokenizers_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    tokenizer = tiny.write_tokenizer(tmp_path, tiny.PIECES)
    assert "token numbers below the 50 that config.json says" in _refusal(small.make("bert"), tokenizer=tokenizer)
    assert "tokenizer must be a fast one" in _refusal(small.make("bert"), tokenizer="bert-base-uncased")


# What is refused


@pytest.mark.parametrize(("kind", "both"), [("t5", True), ("bart", True), (None, False), (7, False)])
def test_what_is_no_stack_of_layers_is_refused_before_weights_are_read(kind: Any, both: bool, tmp_path: Path) -> None:
    config = {"model_type": kind, "is_encoder_decoder": both} if kind else {}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"never read")
    message = _refusal(str(tmp_path))
    assert f"got {kind}, which is both" in message if both else f"must say its model_type, got {kind!r}" in message


def test_a_model_of_another_kind_can_be_run_but_its_attention_is_not_known() -> None:
    from transformers import Qwen3Config, Qwen3Model

    config = Qwen3Config(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=4)
    config.vocab_size, config.intermediate_size = 10, 8
    loaded = ws.load(Qwen3Model(config))
    assert (loaded.family, loaded.causal, loaded.layers, loaded.d) == ("qwen3", True, 1, 8)
    with pytest.raises(InputError, match="got the model_type 'qwen3': choose a model of the type bert, roberta, "):
        loaded.attention(0)


def test_what_is_no_model_is_refused() -> None:
    assert "model must be a name, a path or a model of transformers, got Linear" in _refusal(nn.Linear(2, 2))
    assert "got int" in _refusal(3)


def test_positions_that_depend_on_more_than_the_place_are_refused() -> None:
    relative = small.make("bert")
    relative.config.position_embedding_type = "relative_key"
    with pytest.raises(InputError, match="got the position_embedding_type 'relative_key'"):
        ws.load(relative).attention(0)
    dynamic = {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 2.0, "original_max_position_embeddings": 10}
    with pytest.raises(InputError, match="got the rope_type 'dynamic'"):
        ws.load(small.make("llama", rope_parameters=dynamic)).attention(0)


@pytest.mark.parametrize(
    ("name", "place", "message"),
    [
        ("llama", "model.layers.1.self_attn.q_proj", "the query projection must be a plain Linear layer, got Adapted"),
        ("gpt2", "transformer.h.1.attn.c_attn", "c_attn must be a Conv1D of GPT-2, got Adapted"),
    ],
)
def test_projections_with_something_added_are_refused(name: str, place: str, message: str) -> None:
    class Adapted(nn.Linear):
        pass

    network = small.make(name)
    parent, _, last = place.rpartition(".")
    setattr(network.get_submodule(parent), last, Adapted(24, 48))
    model = ws.load(network)
    model.attention(0)
    with pytest.raises(InputError, match=message):
        model.attention(1)


def test_pickles_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "got only pytorch_model.bin, a pickle, which can run code" in _refusal(str(folder))


@pytest.mark.parametrize("damage", ["cut", "garbage", "weight gone", "other shape", "config", "config gone"])
def test_damaged_folders_are_refused(folder: Path, damage: str) -> None:
    weights = folder / "model.safetensors"
    query = "encoder.layer.1.attention.self.query.weight"
    if damage == "cut":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif damage == "garbage":
        weights.write_bytes(b"garbage")
    elif damage == "weight gone":
        tiny.rewrite(folder, lambda tables: {name: table for name, table in tables.items() if name != query})
    elif damage == "other shape":
        tiny.rewrite(folder, lambda tables: {**tables, query: torch.zeros(3, 3)})
    elif damage == "config":
        (folder / "config.json").write_text("{")
    else:
        (folder / "config.json").unlink()
    message = _refusal(str(folder))
    assert str(folder) in message
    assert message.endswith(": save the model there again") or "save_pretrained" in message
    if damage == "weight gone":
        assert f"got none for {query}: " in message


def test_code_that_comes_with_a_model_is_not_run(folder: Path) -> None:
    (folder / "evil.py").write_text("raise SystemExit('code of the model was run')\n")
    tiny.configure(folder, auto_map={"AutoModel": "evil.Evil", "AutoConfig": "evil.EvilConfig"})
    assert ws.load(str(folder)).layers == small.LAYERS


def test_names_and_files_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "must be in the local hub cache while HF_HUB_OFFLINE is set" in _refusal("someone/else")
    assert _refusal("smolm2").endswith("(did you mean 'smollm2'?)")
    assert "must be a folder" in _refusal(str(tmp_path / "none"))
    (tmp_path / "model.gguf").write_bytes(b"GGUF no more")
    before = gguf.GGUFReader, gguf.get_tensor_name_map
    assert f"{tmp_path / 'model.gguf'} must hold a whole model, got " in _refusal(str(tmp_path / "model.gguf"))
    assert (gguf.GGUFReader, gguf.get_tensor_name_map) == before


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    find = importlib.util.find_spec
    for missing in ("gguf", "accelerate"):
        with monkeypatch.context() as patch:
            patch.setattr("importlib.util.find_spec", lambda name, gone=missing: None if name == gone else find(name))
            with pytest.raises(MissingExtra, match=rf"needs {missing}: run `pip install 'wordsway\[models\]'`"):
                ws.load(str(tmp_path / "model.gguf"))
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"needs transformers: run `pip install 'wordsway\[models\]'`"):
        ws.load(object())
