"""Flips of decisions: small models and vocabularies against brute force over plain passes of rewritten texts."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import wordsway as ws
from models import plain
from wordsway.errors import InputError, NumericalError
from wordsway.models import flips as module
from wordsway.models.candidates import candidates_named

WORDS = ["i", "love", "hate", "her", "his", "smile", "film", "the", "was", "long", "short", "house", "garden", "rain"]
WORDS += ["un", "##happy", "##ing", "sing", "good", "bad", "dark", "blue", "!", ".", ",", "7", "[MASK]"]
TEXT = "I love her unhappying smile, film."
LETTERS = [word for word in WORDS if word.isalpha()]


def _model(name: str, folder: Path, **options: Any) -> ws.Model:
    """A small model; a classifier is undecided about the text, so that some words flip it and some do not."""
    template = "[CLS] $A [SEP]" if name.startswith("bert") else ""
    model = plain.with_words(name, folder, WORDS, template, **options)
    assert model.tokenizer is not None
    model.tokenizer.backend.add_special_tokens(["[MASK]"])
    if name == "bert-classifier":
        bias = model.network.classifier.bias
        with torch.no_grad():
            bias -= _logits(model, TEXT) * (1 - 1e-3)
    return model


def _logits(model: ws.Model, text: str) -> Tensor:
    """What transformers' own model predicts for the token ids of a text."""
    assert model.tokenizer is not None
    ids = torch.tensor([model.tokenizer.backend.encode(text).ids])
    with torch.no_grad():
        logits: Tensor = model.network(input_ids=ids).logits
    return logits[0, -1] if logits.ndim == 3 else logits[0]


def _written(text: str, word: Any, replacement: str) -> str:
    return text[: word.start] + replacement + text[word.end :]


def _brute(model: ws.Model, text: str, candidates: list[str]) -> dict[tuple[int, str], bool]:
    """Whether each replacement of each word of letters flips the most probable class."""
    before = int(_logits(model, text).argmax())
    flipped = {}
    for word in model.read(text).scored:
        for one in candidates:
            if word.text.isalpha() and one != word.text.lower() and (len(one) > 1 or len(word.text) == 1):
                new = one.capitalize() if word.text[0].isupper() else one
                flipped[word.position or 0, new] = int(_logits(model, _written(text, word, new)).argmax()) != before
    return flipped


@pytest.mark.parametrize(
    ("name", "seed"), [("bert-classifier", seed) for seed in range(4)] + [("gpt2", 0), ("llama", 1)]
)
def test_all_candidates_are_judged_as_brute_force_judges_them(name: str, seed: int, tmp_path: Path) -> None:
    model = _model(name, tmp_path, seed=seed)
    expected = _brute(model, TEXT, LETTERS)
    result = model.flips(TEXT, candidates="vocabulary", exhaustive=True)
    assert (result.tried, result.total) == (len(expected), len(expected))
    assert result.passes == len(expected) + 1  # the text itself, whose pass also gives the gradient
    by_word = {one.word.position: (one.tried, one.flips) for one in result.words}
    for position in {position for position, _ in expected}:
        mine = [flip for (place, _), flip in expected.items() if place == position]
        assert by_word[position] == (len(mine), sum(mine))
    assert result.verdict == ("flips" if any(expected.values()) else "safe")
    assert 0 < sum(one.flips for one in result.words) < len(expected) or name != "bert-classifier"


def test_the_first_flip_is_a_flip_of_the_rewritten_text(tmp_path: Path) -> None:
    model = _model("bert-classifier", tmp_path, seed=1)
    result = model.flips(TEXT, candidates="vocabulary")
    assert result.flip
    assert result.word is not None
    assert result.replacement is not None
    before, after = _logits(model, TEXT), _logits(model, _written(TEXT, result.word, result.replacement))
    place = int(before.argmax())
    assert int(after.argmax()) != place
    assert result.before == pytest.approx(float(before.softmax(-1)[place]))
    assert result.after == pytest.approx(float(after.softmax(-1)[place]))
    assert result.classes == (f"LABEL_{place}", f"LABEL_{int(after.argmax())}")
    assert result.tried < result.total


def test_a_budget_that_finds_nothing_proves_nothing(tmp_path: Path) -> None:
    model = _model("bert-classifier", tmp_path, seed=1)
    safe = [one.word.position for one in model.flips(TEXT, candidates="near:5", exhaustive=True).words if not one.flips]
    words = [position for position in safe if position is not None][:1]
    assert model.flips(TEXT, candidates="near:5", words=words).verdict == "safe"
    result = model.flips(TEXT, candidates="near:5", words=words, budget=4)
    assert (result.verdict, result.tried, result.total, result.word) == ("not found", 4, 5, None)
    assert result.nearest[0].position == words[0]


@pytest.mark.parametrize("budget", [1, 9, 30])
def test_shares_of_some_candidates_enclose_those_of_all(budget: int, tmp_path: Path) -> None:
    model = _model("bert-classifier", tmp_path, seed=1)
    whole = model.flips(TEXT, candidates="vocabulary", exhaustive=True)
    some = model.flips(TEXT, candidates="vocabulary", exhaustive=True, budget=budget)
    assert sum(one.tried for one in some.words) == budget < whole.tried
    for row, exact in zip(some.rows(), whole.rows(), strict=True):
        if not row["candidates"]:
            assert row["low"] is row["high"] is exact["share"] is None
            continue
        assert exact["low"] == exact["high"] == exact["share"]
        assert row["low"] <= exact["share"] <= row["high"]
        assert row["high"] - row["low"] == pytest.approx(1 - row["tried"] / row["candidates"])


def test_a_long_search_says_how_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = _model("bert-classifier", tmp_path, seed=1)
    monkeypatch.setattr(module, "_LARGEST", 16)
    for seconds, shown in ((1e9, False), (0, True)):
        monkeypatch.setattr(module, "_LONG", seconds)
        total = model.flips(TEXT, candidates="vocabulary", exhaustive=True, progress=True).total
        err = capsys.readouterr().err
        assert (f"{total} candidates: " in err) == shown
        assert err.count("minutes at most") == shown


def test_near_words_are_those_with_the_nearest_embeddings(tmp_path: Path) -> None:
    model = _model("bert-classifier", tmp_path)
    table = model.embedded()
    numbers = {word: place for place, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    own = table[numbers["film"]]
    several = [word for word in LETTERS if word != "film" and len(word) > 1]
    expected = sorted(several, key=lambda word: float((table[numbers[word]] - own).norm()))[:3]
    result = model.flips("film", candidates="near:3", exhaustive=True)
    assert result.total == 3
    tried = {result.nearest[1]}
    assert tried <= set(expected)
    read = model.read("film")
    assert candidates_named(model, read, "near:3").of(read.scored[0]) == expected


def test_near_words_follow_embeddings_that_are_changed_in_place(tmp_path: Path) -> None:
    model = _model("bert-classifier", tmp_path)
    read = model.read("film house")
    before = [candidates_named(model, read, "near:3").of(word) for word in read.scored]
    table = model.network.get_input_embeddings().weight
    with torch.no_grad():
        table.copy_(torch.randn(table.shape, generator=torch.Generator().manual_seed(1)))
    changed = [candidates_named(model, read, "near:3").of(word) for word in read.scored]
    again = _model("bert-classifier", tmp_path)
    with torch.no_grad():
        again.network.get_input_embeddings().weight.copy_(table)
    assert changed == [candidates_named(again, read, "near:3").of(word) for word in read.scored] != before


@pytest.mark.parametrize(
    ("candidates", "written"),
    [("mask", "I love her unhappying [MASK], film."), ("delete", "I love her unhappying, film.")],
)
def test_a_word_can_be_masked_or_deleted(candidates: str, written: str, tmp_path: Path) -> None:
    model = _model("bert-classifier", tmp_path)
    result = model.flips(TEXT, candidates=candidates, words=["smile"])
    place = int(_logits(model, TEXT).argmax())
    assert result.after == pytest.approx(float(_logits(model, written).softmax(-1)[place]))


def test_a_file_lists_words_that_may_replace_each_other(tmp_path: Path) -> None:
    model = _model("bert-classifier", tmp_path)
    path = tmp_path / "groups.txt"
    path.write_text("love, hate\nfilm, house, garden\n\n")
    result = model.flips(TEXT, candidates=str(path), exhaustive=True)
    assert {one.word.text: one.candidates for one in result.words if one.candidates} == {"love": 1, "film": 2}
    path.write_text("love\nhate\nsmile\n")
    result = model.flips(TEXT, candidates=str(path), exhaustive=True)
    assert {one.word.text: one.candidates for one in result.words if one.candidates} == {"love": 2, "smile": 2}


def test_a_chosen_class_flips_where_it_becomes_or_stops_being_the_prediction(tmp_path: Path) -> None:
    model = _model("bert-classifier", tmp_path, seed=2, num_labels=3)
    place = int(_logits(model, TEXT).argmax())
    for label in range(3):
        result = model.flips(TEXT, candidates="vocabulary", label=label, exhaustive=True)
        flips = 0
        for word in model.read(TEXT).scored:
            for one in LETTERS:
                if word.text.isalpha() and one != word.text.lower() and (len(one) > 1 or len(word.text) == 1):
                    new = one.capitalize() if word.text[0].isupper() else one
                    flips += (int(_logits(model, _written(TEXT, word, new)).argmax()) == label) != (place == label)
        assert sum(one.flips for one in result.words) == flips
        assert result.before == pytest.approx(float(_logits(model, TEXT).softmax(-1)[label]))


def test_several_labels_flip_where_one_of_them_does(tmp_path: Path) -> None:
    model = _model("bert-classifier", tmp_path, seed=3, num_labels=3, problem_type="multi_label_classification")
    before = _logits(model, TEXT) > 0
    result = model.flips(TEXT, candidates="vocabulary", words=["smile"], exhaustive=True)
    word = model.read(TEXT).word("smile")
    others = [one for one in LETTERS if one != "smile" and len(one) > 1]
    expected = sum(bool(((_logits(model, _written(TEXT, word, one)) > 0) != before).any()) for one in others)
    assert (result.words[0].tried, result.words[0].flips) == (len(others), expected)
    logits = _logits(model, _written(TEXT, word, str(result.replacement)))
    label = int(torch.where(before, logits, -logits).argmin())  # the one that changes, whatever the others do
    assert result.flip
    assert bool(logits[label] > 0) != bool(before[label])
    assert result.before == pytest.approx(float(_logits(model, TEXT)[label].sigmoid()))
    assert result.after == pytest.approx(float(logits[label].sigmoid()))


def test_a_file_of_candidates_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    model = _model("bert-classifier", tmp_path)
    path = tmp_path / "words.txt"
    path.write_text("love, hate\n", encoding="utf-8-sig")
    assert model.flips(TEXT, candidates=str(path)).total == 1


def test_numbers_beyond_the_range_of_float16_are_told_from_wrong_weights(tmp_path: Path) -> None:
    model = _model("bert-classifier", tmp_path)
    with torch.no_grad():
        model.network.classifier.weight.fill_(1e9)
    model.network.half()
    with pytest.raises(NumericalError, match="which it does not in float16: use bfloat16 or float32"):
        model.flips(TEXT)


@pytest.mark.parametrize(
    ("name", "options", "call", "message"),
    [
        ("bert", {}, {}, "a flip needs a model that decides"),
        ("bert-classifier", {"num_labels": 1}, {}, "a flip needs a model that decides"),
        ("bert-tokens", {}, {}, "a flip needs a model that decides, .* on pooled: measure on token WORD"),
        ("xlm-roberta", {}, {}, "a flip needs a model that decides, .* on pooled: measure on mask, or give answers"),
        ("bert-classifier", {}, {"candidates": "near"}, "candidates must be near:K, vocabulary, mask, delete"),
        ("bert-classifier", {}, {"candidates": "near:0"}, "candidates must be near:K"),
        ("bert-classifier", {}, {"candidates": 3}, "candidates must be near:K"),
        ("bert-classifier", {}, {"label": "nosuch"}, "label must be a class of the model, got 'nosuch'"),
        ("bert-classifier", {}, {"budget": 0}, "budget must be an integer >= 1"),
        (
            "bert-classifier",
            {},
            {"text": "film", "candidates": "delete"},
            "some word of the text must have a candidate",
        ),
        ("bert-classifier", {}, {"words": ["."]}, "some word of the text must have a candidate"),
        ("gpt2", {}, {"candidates": "mask", "on": "class"}, "class needs a model with classes"),
    ],
)
def test_mistakes(name: str, options: dict[str, Any], call: dict[str, Any], message: str, tmp_path: Path) -> None:
    model = _model(name, tmp_path, **options)
    with pytest.raises(InputError, match=message) as error:
        model.flips(**{"text": TEXT, **call})
    assert "\n" not in str(error.value)
