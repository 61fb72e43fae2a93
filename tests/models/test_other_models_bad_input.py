"""Folders with models that are not there, damaged or of another type: each is refused in one line."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models import tiny
from models.conftest import Library
from wordsway.errors import InputError, MissingExtra
from wordsway.models import embedding_dimension, review_contexts, vocabulary_embeddings

Tables = dict[str, Tensor]


def _refusal(folder: Path | str, kind: type[Exception] = InputError, n: int = 10, d: int = 4) -> str:
    with pytest.raises(kind) as caught:
        review_contexts(2, n, d, model=str(folder))
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


def test_sizes_beyond_the_model_are_refused_with_its_name(bert: tuple[Path, Any]) -> None:
    name = str(bert[0])
    assert _refusal(name, n=65) == (
        f"n must be at most 64, the positions that {name} knows, got 65: choose a smaller n"
    )
    too_wide = f"d must be at most 16, {name}'s embedding dimension, got 17: choose a smaller d"
    assert _refusal(name, d=17) == too_wide
    with pytest.raises(InputError) as caught:
        vocabulary_embeddings(17, model=name)
    assert str(caught.value) == too_wide
    with pytest.raises(InputError, match=r"must be 0\.\.63, got 64"):
        vocabulary_embeddings(position=64, model=name)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_folder_without_one_of_the_files_is_refused(library: Library, bert: tuple[Path, Any], name: str) -> None:
    (bert[0] / name).unlink()
    message = _refusal(bert[0])
    assert f"{bert[0]} must hold {name}, got no such file: save the " in message
    assert "save_pretrained" in message


def test_pickled_weights_are_refused_before_any_review_is_read(library: Library, bert: tuple[Path, Any]) -> None:
    (bert[0] / "model.safetensors").rename(bert[0] / "pytorch_model.bin")
    message = _refusal(bert[0])
    assert "must hold model.safetensors, got only pytorch_model.bin, a pickle" in message
    assert "save the model again as safetensors" in message
    assert not library.cache.exists()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
@pytest.mark.parametrize("damage", ["cut", "altered", "empty"])
def test_damaged_files_are_refused(library: Library, bert: tuple[Path, Any], name: str, damage: str) -> None:
    path = bert[0] / name
    content = path.read_bytes()
    path.write_bytes({"cut": content[: len(content) // 2], "altered": b"\xff" * 8 + content[8:], "empty": b""}[damage])
    message = _refusal(bert[0])
    assert f"{path} must" in message
    assert ": save the model there again" in message


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert _refusal(tmp_path / "none").endswith("model.safetensors, got nothing there: check it")
    (tmp_path / "file").touch()
    assert _refusal(tmp_path / "file").endswith("model.safetensors, got a file: check it")
    with pytest.raises(InputError, match=r"none must be a folder with config\.json"):
        embedding_dimension("./none")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "roberta"}, "of a bert or distilbert encoder .* got the model_type 'roberta': save .* choose"),
        ({"model_type": None}, "got the model_type None: save"),
        ({"model_type": ["bert"]}, r"got the model_type \['bert'\]: save"),
        ({"position_embedding_type": "relative_key"}, "got the position_embedding_type 'relative_key': save"),
        ({"embedding_size": 8}, "got embedding_size 8 in place of 16: save"),
        ({"vocab_size": None}, "got vocab_size None: save"),
        ({"hidden_size": "16"}, "got hidden_size '16': save"),
        ({"max_position_embeddings": 0}, "got max_position_embeddings 0: save"),
        ({"type_vocab_size": True}, "got type_vocab_size True: save"),
        ({"layer_norm_eps": -1}, "got layer_norm_eps -1: save"),
        ({"hidden_size": 32}, r"word_embeddings.weight of shape \(\d+, 16\) in place of \(\d+, 32\): save"),
        ({"max_position_embeddings": 65}, r"position_embeddings.weight of shape \(64, 16\) in place of \(65, 16\)"),
        ({"type_vocab_size": 1}, r"token_type_embeddings.weight of shape \(2, 16\) in place of \(1, 16\)"),
        ({"vocab_size": 50}, "tokenizer.json must have token numbers below the 50 that config.json says, got"),
    ],
)
def test_configurations_that_cannot_be_right_are_refused(
    library: Library, bert: tuple[Path, Any], changes: dict[str, Any], message: str
) -> None:
    tiny.configure(bert[0], **changes)
    with pytest.raises(InputError, match=message):
        review_contexts(2, 10, 4, model=str(bert[0]))
    _refusal(bert[0])


def test_a_configuration_that_is_no_object_is_refused(bert: tuple[Path, Any]) -> None:
    (bert[0] / "config.json").write_text("[1]")
    assert "got a list: save the model there again, or choose another model" in _refusal(bert[0])


def _without(end: str) -> Callable[[Tables], Tables]:
    return lambda tables: {name: table for name, table in tables.items() if not name.endswith(end)}


def _with(name: str, make: Callable[[Tensor], Tensor]) -> Callable[[Tables], Tables]:
    return lambda tables: {**tables, name: make(tables[name])}


_WORD = "embeddings.word_embeddings.weight"
_BIAS = "embeddings.LayerNorm.bias"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_without(_WORD), f"got 0 tables called {_WORD}"),
        (lambda tables: {**tables, f"question.{_WORD}": tables[_WORD]}, f"got 2 tables called {_WORD}"),
        (_without("embeddings.LayerNorm.weight"), "got no embeddings.LayerNorm.weight"),
        (_without("token_type_embeddings.weight"), "got no embeddings.token_type_embeddings.weight"),
        (_with(_BIAS, lambda bias: bias[:3]), rf"got {_BIAS} of shape \(3,\) in place of \(16,\)"),
        (_with(_BIAS, lambda bias: bias / 0), f"got {_BIAS} with entries that are not finite floats"),
        (_with(_WORD, lambda word: word.to(torch.int8)), f"got {_WORD} with entries that are not finite floats"),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    library: Library, bert: tuple[Path, Any], change: Callable[[Tables], Tables], message: str
) -> None:
    tiny.rewrite(bert[0], change)
    with pytest.raises(InputError, match=f"weights of the bert encoder that config.json describes, {message}: save"):
        review_contexts(2, 10, 4, model=str(bert[0]))
    _refusal(bert[0])


@pytest.mark.parametrize("template", ["", "[CLS] $A", "$A [SEP]", "[CLS] [UNK] $A [SEP]", "[CLS] [SEP] $A"])
def test_tokenizers_that_do_not_open_and_close_a_text_are_refused(
    library: Library, bert: tuple[Path, Any], template: str
) -> None:
    tiny.write_tokenizer(bert[0], tiny.PIECES, template)
    message = _refusal(bert[0])
    assert "must put one token before and one after a text, got" in message
    assert message.endswith("choose a model with a tokenizer like BERT's")


def test_a_tokenizer_that_is_too_large_is_refused_also_where_its_tokens_are_cached(
    library: Library, tmp_path: Path
) -> None:
    tiny.write_bert(tmp_path / "good")
    review_contexts(4, 10, 4, model=str(tmp_path / "good"))
    tiny.write_bert(tmp_path / "small", pieces=tiny.PIECES[:40])
    shutil.copy(tmp_path / "good" / "tokenizer.json", tmp_path / "small")
    assert "must have token numbers below the 44" in _refusal(tmp_path / "small")


@pytest.mark.parametrize("missing", ["tokenizers", "safetensors"])
def test_a_missing_library_is_named(
    library: Library, bert: tuple[Path, Any], missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtra, match=rf"needs {missing}: run `pip install 'wordsway\[models\]'`"):
        review_contexts(2, 10, 4, model=str(bert[0]))


def test_a_model_is_named_by_a_string(bert: tuple[Path, Any]) -> None:
    for wrong in (bert[0], 3, True):
        with pytest.raises(InputError, match="model must be None or a string, got"):
            embedding_dimension(wrong)  # type: ignore[arg-type]


def test_a_vocabulary_that_cannot_fit_is_refused(bert: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wordsway.memory.available", lambda: 1000)
    monkeypatch.setattr("wordsway.memory.SMALL", 0)
    with pytest.raises(
        InputError, match=r"a vocabulary of \d+ x 16 needs .*, but 1\.0 kB are free: use a smaller model"
    ):
        vocabulary_embeddings(model=str(bert[0]))
