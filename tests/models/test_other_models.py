"""Reviews as other encoders than the offline one embed them, against transformers itself."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import wordsway.data.reviews as library_module
from models import tiny
from models.conftest import MODEL, Library, load_library
from wordsway.errors import InputError
from wordsway.models import embedding_dimension, encoder, review_contexts, vocabulary_embeddings

Tables = dict[str, Tensor]


def _check(library: Library, folder: Path, model: Any, n: int = 30) -> Tensor:
    """All reviews of the small library have to come out as transformers embeds them, each once, with their labels."""
    contexts, labels = review_contexts(40, n, model.config.hidden_size, model=str(folder))
    expected = tiny.layer_zero(folder, model, library.texts, n)
    distances = (expected[None] - contexts[:, None]).abs().amax(dim=(2, 3))  # drawn x texts
    found = distances.argmin(dim=1).tolist()
    assert distances.min(dim=1).values.max() < 1e-6 * (expected.abs().max().item() + 1)
    assert sorted(found) == list(range(40))
    assert labels.tolist() == [library.labels[text] for text in found]
    return contexts


# What a context is


@pytest.mark.parametrize("n", [30, tiny.POSITIONS])
def test_contexts_are_layer_zero_of_a_bert_as_transformers_computes_it(
    library: Library, bert: tuple[Path, Any], n: int
) -> None:
    _check(library, *bert, n)


def _old_names(tables: Tables) -> Tables:
    """Names as in the file of bert-base-uncased."""
    new = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    return {f"bert.{name.replace(key, new[key])}": tables[name] for name in tables for key in new if key in name} | {
        f"bert.{name}": table for name, table in tables.items() if "LayerNorm" not in name
    }


def test_prefixes_and_old_names_of_weights_are_understood(library: Library, bert: tuple[Path, Any]) -> None:
    folder, model = bert
    plain = _check(library, folder, model)
    tiny.rewrite(folder, lambda tables: {**_old_names(tables), "cls.predictions.bias": torch.zeros(3)})
    assert torch.equal(plain, _check(library, folder, model))


def test_a_distilbert_has_no_segments(library: Library, tmp_path: Path) -> None:
    model = tiny.write_distilbert(tmp_path / "distilbert")
    _check(library, tmp_path / "distilbert", model)
    assert embedding_dimension(str(tmp_path / "distilbert")) == tiny.DIMENSION


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_half_precision_are_taken_as_they_are(
    library: Library, bert: tuple[Path, Any], dtype: torch.dtype
) -> None:
    from transformers import BertModel

    folder, _ = bert
    tiny.rewrite(folder, lambda tables: {name: table.to(dtype) for name, table in tables.items()})
    _check(library, folder, BertModel.from_pretrained(folder, dtype=torch.float32))


def test_token_numbers_above_65535_are_kept_whole(library: Library, tmp_path: Path) -> None:
    pieces = [*(f"<{number}>" for number in range(2**16)), *tiny.PIECES]
    model = tiny.write_bert(tmp_path / "large", pieces=pieces, dimension=4)
    first = _check(library, tmp_path / "large", model)
    library_module._open.cache_clear()
    assert torch.equal(first, review_contexts(40, 30, 4, model=str(tmp_path / "large"))[0])  # from the cache
    assert max(int(tokens.max()) for tokens in load_library(str(tmp_path / "large")).tokens(range(44))) > 2**16


def test_the_eps_is_berts_where_the_configuration_has_none(library: Library, bert: tuple[Path, Any]) -> None:
    folder, model = bert
    before = _check(library, folder, model)
    tiny.configure(folder, layer_norm_eps=None)
    assert encoder.load_embeddings(str(folder)).eps == 1e-12
    assert not torch.equal(before, review_contexts(40, 30, tiny.DIMENSION, model=str(folder))[0])


def test_fewer_dimensions_and_samples_are_a_part_of_more(library: Library, bert: tuple[Path, Any]) -> None:
    name = str(bert[0])
    many, labels = review_contexts(9, 20, 5, seed=3, model=name)
    few, labels_of_few = review_contexts(4, 20, 5, seed=3, dtype=torch.float32, model=name)
    assert torch.equal(many[:4].float(), few)
    assert torch.equal(labels[:4].float(), labels_of_few)
    torch.testing.assert_close(many.norm(dim=2), torch.full((9, 20), 5**0.5, dtype=torch.float64))
    assert abs(labels.sum()) == 1
    assert not torch.equal(many, review_contexts(9, 20, 5, seed=4, model=name)[0])


def test_short_and_repeated_reviews_are_skipped_by_the_models_own_tokens(
    library: Library, bert: tuple[Path, Any]
) -> None:
    name = str(bert[0])
    with pytest.raises(InputError, match="at most 40, twice the smaller of 20 positive and 20 negative"):
        review_contexts(41, 30, 8, model=name)
    # "Short too!" is [CLS] s h o r t t o o ! for this tokenizer
    assert len(review_contexts(42, 10, 8, model=name)[0]) == 42
    with pytest.raises(InputError, match="at most 40"):
        review_contexts(42, 11, 8, model=name)


def test_every_encoder_sees_the_reviews_in_the_same_order(library: Library, bert: tuple[Path, Any]) -> None:
    offline_labels = review_contexts(40, 30, 8, seed=7)[1]
    assert torch.equal(offline_labels, review_contexts(40, 30, 8, seed=7, model=str(bert[0]))[1])


def test_the_vocabulary_is_the_models(library: Library, bert: tuple[Path, Any]) -> None:
    folder, model = bert
    table, words = vocabulary_embeddings(position=3, model=str(folder))
    assert words == [*tiny.SPECIAL, *tiny.PIECES]
    assert table.shape == (len(words), tiny.DIMENSION)
    contexts = _check(library, folder, model)
    assert (table[None] - contexts[:, 3, None]).norm(dim=2).min(dim=1).values.max() < 1e-12


def test_rows_without_an_entry_are_told_apart(tmp_path: Path) -> None:
    tiny.write_bert(tmp_path / "padded", vocab_size=128)
    table, words = vocabulary_embeddings(4, model=str(tmp_path / "padded"))
    known = len(tiny.SPECIAL) + len(tiny.PIECES)
    assert table.shape == (128, 4)
    assert words[known - 1] == "and"
    assert words[known:] == ["[no entry]"] * (128 - known)


def test_tokens_are_kept_in_two_bytes_where_they_fit(library: Library, bert: tuple[Path, Any], tmp_path: Path) -> None:
    tiny.write_bert(tmp_path / "large", vocab_size=2**16 + 1, dimension=2)  # with the same tokenizer
    review_contexts(40, 30, 2, model=str(tmp_path / "large"))
    assert load_library(str(tmp_path / "large")).tokens([0])[0].dtype == np.uint32
    assert load_library(str(bert[0])).tokens([0])[0].dtype == np.uint16  # also when they come from its cache
    assert len(list(library.cache.iterdir())) == 1


# Several models


def test_models_do_not_mix_in_one_process(library: Library, tmp_path: Path) -> None:
    pieces = tiny.PIECES[::-1]
    models = {name: tiny.write_bert(tmp_path / name, seed, p) for name, seed, p in (("a", 1, None), ("b", 2, pieces))}
    offline = review_contexts(40, 30, 8)[0]
    first = {name: _check(library, tmp_path / name, model) for name, model in models.items()}
    assert len(list(library.cache.iterdir())) == 3  # one for each tokenizer
    for _ in range(2):
        assert torch.equal(offline, review_contexts(40, 30, 8, model="minilm")[0])
        for name, contexts in first.items():
            assert torch.equal(contexts, review_contexts(40, 30, tiny.DIMENSION, model=str(tmp_path / name))[0])
    assert library_module._open.cache_info().misses == 3  # and none was made twice


def test_models_with_one_tokenizer_share_its_tokens(
    library: Library, bert: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _check(library, *bert)
    other = tiny.write_bert(tmp_path / "other", seed=5)
    monkeypatch.setattr(library_module, "_read_texts", lambda *_: pytest.fail("read again"))
    _check(library, tmp_path / "other", other)
    assert len(list(library.cache.iterdir())) == 1


def test_a_model_that_is_saved_again_in_its_folder_is_read_again(library: Library, bert: tuple[Path, Any]) -> None:
    folder, model = bert
    before = _check(library, folder, model)
    shutil.rmtree(folder)
    after = _check(library, folder, tiny.write_bert(folder, seed=8, pieces=tiny.PIECES[::-1], layer_norm_eps=1e-3))
    assert not torch.allclose(before, after)


def test_tables_that_were_read_do_not_change_with_their_file(bert: tuple[Path, Any]) -> None:
    tables = encoder.load_embeddings(str(bert[0]))
    before = tables.word.clone()
    path = bert[0] / "model.safetensors"
    size = path.stat().st_size
    with path.open("r+b") as stream:  # in place: what is only mapped would change too
        stream.write(bytes(size))
    assert torch.equal(before, tables.word)


# How a model is named


def test_minilm_is_the_offline_encoder_also_beside_a_folder_of_that_name(
    library: Library, bert: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bert[0].rename("minilm")
    assert embedding_dimension() == embedding_dimension("minilm") == 384
    assert embedding_dimension("./minilm") == tiny.DIMENSION
    assert torch.equal(review_contexts(3, 30, 8)[0], review_contexts(3, 30, 8, model="minilm")[0])


def test_the_offline_encoder_named_by_its_folder_gives_the_same_bytes(library: Library) -> None:
    assert torch.equal(review_contexts(6, 30, 384)[0], review_contexts(6, 30, 384, model=str(MODEL))[0])
    assert vocabulary_embeddings(2)[1] == vocabulary_embeddings(2, model=str(MODEL))[1]


def test_a_folder_may_be_named_by_any_path(
    bert: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    for name in ("bert", "./bert", "bert/", "~/bert", str(bert[0]), "../" + tmp_path.name + "/bert"):
        assert embedding_dimension(name) == tiny.DIMENSION


def test_the_dimension_needs_only_the_configuration(bert: tuple[Path, Any]) -> None:
    (bert[0] / "model.safetensors").unlink()
    (bert[0] / "tokenizer.json").unlink()
    assert embedding_dimension(str(bert[0])) == tiny.DIMENSION


def test_nothing_of_a_model_library_is_imported_before_it_is_needed(bert: tuple[Path, Any]) -> None:
    program = (
        "import sys, wordsway.models as m\n"
        "libraries = {'transformers', 'tokenizers', 'safetensors', 'huggingface_hub'}\n"
        "print(sorted(libraries & set(sys.modules)))\n"
        "print(m.embedding_dimension(sys.argv[1]), sorted(libraries & set(sys.modules)))\n"
    )
    command = [sys.executable, "-c", program, str(bert[0])]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n16 []\n"
