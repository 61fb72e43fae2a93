"""Replacements of a word: small vocabularies against brute force, and the rules that a replacement follows."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor

import wordsway as ws
from models import plain, tiny
from models import small_transformers as small
from wordsway.errors import InputError
from wordsway.models import swaps

VOCABULARY = """
    i love hate her his smile film the was long short house garden rain un ##happy ##ing sing ##er
    good bad dark blue o ##k ! . 7 ' don t
"""
CAPITALS = "[UNK] paris Paris London rain NASA UN I iPhone is good 7 rock-pop a'b"
WORDS = VOCABULARY.split()
TEXT = "I love her smile."
LONG = "i love unhappyinger rain"  # a word of four pieces
KINDS: list[tuple[str, str | int]] = [
    ("bert", "last"),
    ("bert", "pooled"),
    ("bert", 1),
    ("bert-classifier", "class"),
    ("gpt2", "last"),
    ("gpt2", "next"),
    ("llama", 2),
]


def _model(name: str, folder: Path, **options: Any) -> ws.Model:
    template = "[CLS] $A [SEP]" if name.startswith("bert") else ""
    return plain.with_words(name, folder, WORDS, template, **options)


def _output(model: ws.Model, ids: Sequence[int], on: str | int) -> Tensor:
    return plain.output(model.network, model.network.get_input_embeddings().weight.detach()[list(ids)], on)


def _brute(model: ws.Model, text: str, position: int, on: str | int) -> dict[int, float]:
    """All words of the vocabulary that fit in the place, with how far each moves the model."""
    assert model.tokenizer is not None
    read = model.read(text)
    word = read.scored[position]
    first, last = word.tokens[0], word.tokens[-1] + 1
    before = _output(model, read.ids, on)
    if before.ndim == 2:
        before = torch.cat([before[:first], before[first:last].mean(0, keepdim=True), before[last:]])
    found = {}
    for name, number in model.tokenizer.backend.get_vocab().items():
        ids = model.tokenizer.split(text[: word.start] + name + text[word.end :])
        expected = [*read.ids[:first], number, *read.ids[last:]]
        if name.isalpha() and ids == expected and ids != list(read.ids):
            found[number] = plain.distance(before, _output(model, ids, on), on)
    return found


# Values


@pytest.mark.parametrize(("name", "on"), KINDS)
@pytest.mark.parametrize(("text", "position"), [(TEXT, 0), (LONG, 2), ("rain", 0)])
def test_all_words_are_tried_as_brute_force_tries_them(
    name: str, on: str | int, text: str, position: int, tmp_path: Path
) -> None:
    model = _model(name, tmp_path)
    found = model.swaps(text, position, on=on, exhaustive=True, top=99)
    expected = _brute(model, text, position, on)
    assert len(expected) > 15
    assert len(found.word.tokens) == (4 if text == LONG else 1)
    assert {swap.token for swap in found.swaps} == set(expected)
    close = 1e-6 if name == "llama" else 1e-9
    for swap in found.swaps:
        assert swap.value == pytest.approx(expected[swap.token], rel=close)
    values = [swap.value for swap in found.swaps]
    assert values == sorted(values, reverse=True)
    assert found.exhaustive
    assert found.candidates == found.checked == len(expected)


@pytest.mark.parametrize(("name", "on"), KINDS)
def test_ranking_finds_the_best_where_it_may_try_all(name: str, on: str | int, tmp_path: Path) -> None:
    model = _model(name, tmp_path)
    for text, position in ((TEXT, 3), (LONG, 2)):
        best = model.swaps(text, position, on=on, exhaustive=True).swaps
        ranked = model.swaps(text, position, on=on).swaps
        assert [swap.token for swap in ranked] == [swap.token for swap in best]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("checks", "known"), [(1, 4000), (3, 4000), (10, 4000), (10, 4)])
def test_ranking_tries_as_many_as_it_may_and_finds_nothing_better(
    checks: int, known: int, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swaps, "_KNOWN", known)  # also where it tries more than it learns from
    model = _model("bert", tmp_path)
    exact = _brute(model, TEXT, 3, "last")
    found = model.swaps(TEXT, 3, checks=checks, seed=seed, top=99)
    assert len(found.swaps) == found.checked == checks
    assert found.cost.evaluations == checks
    assert not found.exhaustive
    for swap in found.swaps:
        assert swap.value == pytest.approx(exact[swap.token], rel=1e-9)
    assert found.swaps[0].value <= max(exact.values()) * (1 + 1e-9)


def test_what_is_learned_in_parts_is_the_regression_through_all_of_it() -> None:
    draw = torch.Generator().manual_seed(0)
    rows, values = torch.randn(30, 6, generator=draw), torch.randn(12, generator=draw)
    learned = swaps._Surrogate(rows, 12)
    for start, end in ((0, 5), (5, 6), (6, 12)):
        learned.learn(list(range(start, end)), values[start:end])
    centred = (rows - rows.mean(0)).double()
    cosines = torch.nn.functional.cosine_similarity(centred[:, None], centred[None], dim=2)
    kernel = torch.exp(swaps._WIDTH * (cosines - 1))
    weights = torch.linalg.solve(
        kernel[:12, :12] + swaps._NOISE * torch.eye(12), values.double() - values.double().mean()
    )
    expected = values.double().mean() + kernel[:, :12] @ weights
    assert torch.allclose(learned.values().double(), expected, atol=1e-5)


def test_more_candidates_are_tried_where_the_text_is_short() -> None:
    model = ws.load("minilm")
    shown = [model.read(" ".join(["rain"] * count)) for count in (1, 28, 400)]
    counts = [swaps._Place(model, text, text.scored[0], "last").affordable() for text in shown]
    assert counts[0] == swaps._MOST > counts[1] > counts[2] == swaps._LEAST
    operations = 2 * sum(one.numel() for name, one in model.network.named_parameters() if "word_emb" not in name)
    share = swaps._WORK / (swaps._MOST * operations * 30)
    assert counts[1] == round(swaps._MOST * share**swaps._FALL)


def test_a_comparison_reports_how_far_ranking_falls_short(tmp_path: Path) -> None:
    model = _model("bert", tmp_path)
    exact = _brute(model, TEXT, 3, "last")
    for checks in (1, 400):
        ranked = model.swaps(TEXT, 3, checks=checks)
        found = model.swaps(TEXT, 3, checks=checks, compare=True)
        assert found.shortfall == pytest.approx(1 - ranked.swaps[0].value / max(exact.values()), abs=1e-9)
        assert found.shortfall is not None
        assert found.shortfall >= 0
        assert found.swaps[0].value == pytest.approx(max(exact.values()), rel=1e-9)
        assert found.exhaustive
        assert ranked.shortfall is None
    assert found.shortfall == 0


@pytest.mark.parametrize(("name", "on"), [("gpt2", "next"), ("bert-classifier", "class")])
def test_divergences_are_those_of_torch(name: str, on: str, tmp_path: Path) -> None:
    model = _model(name, tmp_path)
    found = model.swaps(TEXT, 3, on=on, exhaustive=True)
    before = _output(model, found.text.ids, on)
    for swap in found.swaps:
        now = _output(model, model.tokens(swap.text), on)
        expected = torch.nn.functional.kl_div(before.log(), now, reduction="sum")
        assert swap.divergence == pytest.approx(float(expected), rel=1e-7)
        assert 0 <= swap.value <= 1


# Which words fit in the place


@pytest.mark.parametrize(("text", "position"), [(TEXT, 3), (LONG, 2), ("the rain, don't sing!", 3)])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("casing", [True, False])
def test_every_text_is_read_with_the_replacement_in_it(
    text: str, position: int, whole: bool, casing: bool, tmp_path: Path
) -> None:
    model = _model("bert", tmp_path)
    found = model.swaps(text, position, whole=whole, casing=casing, exhaustive=True, top=99)
    word = found.word
    assert model.tokenizer is not None
    specials = [model.tokenizer.backend.token_to_id(name) for name in tiny.SPECIAL]
    for swap in found.swaps:
        assert swap.text == text[: word.start] + swap.word + text[word.end :]
        ids = [*found.text.ids[: word.tokens[0]], swap.token, *found.text.ids[word.tokens[-1] + 1 :]]
        assert model.tokens(swap.text) == ids
        assert swap.token not in specials
    signs = {swap.word for swap in found.swaps if not swap.word.isalpha()}
    assert signs == set() if whole else signs >= {"7", "!"}


def test_a_vocabulary_of_small_letters_gets_the_casing_of_the_word(tmp_path: Path) -> None:
    model = _model("bert", tmp_path)
    shapes = {"rain": "good", "Rain": "Good", "RAIN": "GOOD", "rAIN": "good"}
    for word, expected in shapes.items():
        found = {swap.word: swap for swap in model.swaps(f"the {word} was long", 1, exhaustive=True, top=99).swaps}
        assert found[expected].text == f"the {expected} was long"
    loose = model.swaps("the RAIN was long", 1, exhaustive=True, top=99, casing=False)
    assert "good" in {swap.word for swap in loose.swaps}


def test_a_vocabulary_with_capitals_keeps_the_casing_of_the_word() -> None:
    names = CAPITALS.split()
    tokenizer = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["[UNK]"])
    model = ws.load(small.make("bert", vocab_size=len(names)), tokenizer=tokenizer)

    def words(text: str, **options: Any) -> set[str]:
        return {swap.word for swap in model.swaps(text, 0, exhaustive=True, top=99, **options).swaps}

    assert words("Paris is good") == {"London", "I"}
    assert words("rain is good") == {"paris", "is", "good", "rock-pop", "a'b"}
    assert words("NASA is good") == {"UN"}
    assert words("rain is good", casing=False) == {*names} - {"[UNK]", "rain", "7"}
    assert words("rain is good", casing=False, whole=False) == {*names} - {"[UNK]", "rain"}
    with pytest.raises(
        InputError, match=r"^some word of the vocabulary must fit in place of 'iPhone', got none: allow"
    ):
        words("iPhone is good")


def test_special_tokens_are_never_candidates(tmp_path: Path) -> None:
    tokenizer = tiny.write_tokenizer(tmp_path, [*WORDS, "secret"])
    tokenizer.add_special_tokens(["secret"])
    model = ws.load(small.make("bert", vocab_size=tokenizer.get_vocab_size()), tokenizer=tokenizer)
    found = model.swaps("the rain", 1, exhaustive=True, top=99, whole=False)
    assert "secret" not in {swap.word for swap in found.swaps}
    assert "good" in {swap.word for swap in found.swaps}


def test_a_text_that_is_cut_has_replacements(tmp_path: Path) -> None:
    model = _model("bert", tmp_path)
    text = "the rain was long . " * 10
    found = model.swaps(text, 1, cut=True, exhaustive=True)
    assert found.text.cut > 0
    before = _output(model, found.text.ids, "last")
    for swap in found.swaps:
        ids = list(found.text.ids)
        ids[2] = swap.token
        assert swap.value == pytest.approx(plain.distance(before, _output(model, ids, "last"), "last"), rel=1e-9)
        assert model.read(swap.text, cut=True).ids == tuple(ids)


# Records, the real encoder and bad input


def test_records_are_plain_values(tmp_path: Path) -> None:
    found = _model("gpt2", tmp_path).swaps(TEXT, 3, on="next", top=4)
    again = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert again["swaps"] == found.rows()
    assert [record["rank"] for record in found.rows()] == [1, 2, 3, 4]
    first = found.rows()[0]
    assert (first["position"], first["replaced"], first["on"]) == (3, "smile", "next")
    assert (first["word"], first["sensitivity"]) == (found.swaps[0].word, found.swaps[0].value)
    assert again["checked"] == found.checked


def test_the_real_encoder_finds_words_in_little_time() -> None:
    model = ws.load("minilm")
    found = model.swaps("I love her smile", 3, checks=60, top=5)
    assert (found.word.text, found.checked, len(found.swaps)) == ("smile", 60, 5)
    assert found.candidates > 15000
    before = _output(model, found.text.ids, "last")
    for swap in found.swaps:
        ids = model.tokens(swap.text)
        assert ids == [*found.text.ids[:4], swap.token, found.text.ids[5]]
        assert swap.word.isalpha()
        assert swap.word == swap.word.lower()
        assert swap.value == pytest.approx(plain.distance(before, _output(model, ids, "last"), "last"), rel=1e-4)
    assert found.swaps[0].value > 0.9
    first = model.swaps("I love her smile", 0, checks=20, top=1).swaps[0]
    assert first.word == first.word.capitalize()
    assert first.text == f"{first.word} love her smile"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top": 0}, "top must be an integer >= 1, got 0"),
        ({"top": 2.5}, "top must be an integer >= 1, got 2.5"),
        ({"checks": 0}, "checks must be an integer >= 1, got 0"),
        ({"checks": 2.5}, "checks must be an integer >= 1, got"),
        (
            {"word": 5},
            "word must be a position from 0 to 4 or a word of the text, got 5: 0 I, 1 love, 2 her, 3 smile, 4 .",
        ),
        ({"word": "laugh"}, "word must be a position from 0 to 4 or a word of the text, got 'laugh'"),
        ({"on": "next"}, "next needs a model that predicts the next token"),
        ({"on": 9}, "on must be a layer from 0 to 3, got 9"),
        ({"text": ""}, "text must have a word at least"),
    ],
)
def test_bad_input_is_refused_in_one_line(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        _model("bert", tmp_path).swaps(**{"text": TEXT, "word": 3, **options})
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
