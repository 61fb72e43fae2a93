"""Replacements of words: small vocabularies against brute force by plain passes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import wordsway as ws
from models import plain
from models.test_flips import WORDS
from wordsway.errors import InputError
from wordsway.models import swaps
from wordsway.models.candidates import candidates_named
from wordsway.models.rewrites import Rewriter
from wordsway.models.words import Word

TEXT = "I love her smile."
LONG = "i love unhappying rain"  # a word of three pieces
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


def _output(model: ws.Model, text: str, on: str | int) -> Tensor:
    rows = model.network.get_input_embeddings().weight.detach()[model.tokens(text)]
    return plain.output(model.network, rows, on)


def _effect(model: ws.Model, text: str, word: Word, replacement: str, on: str | int) -> float:
    """The effect of one replacement, by two plain passes."""
    before, now = (_output(model, one, on) for one in (text, text[: word.start] + replacement + text[word.end :]))
    if on == "class":
        place = int(before.argmax())
        return float(now[place] - before[place])
    if before.ndim == 2:  # rows: those of the word and of what is written there count as one
        first, after = word.tokens[0], len(before) - 1 - word.tokens[-1]
        before, now = (
            torch.cat([rows[:first], rows[first : len(rows) - after].mean(0, keepdim=True), rows[len(rows) - after :]])
            for rows in (before, now)
        )
    return plain.distance(before, now, on)


def _brute(model: ws.Model, text: str, position: int, on: str | int) -> dict[str, float]:
    read = model.read(text)
    word = read.scored[position]
    fitting = candidates_named(model, read, "vocabulary").of(word)
    return {one: _effect(model, text, word, one, on) for one in fitting}


@pytest.mark.parametrize(("name", "on"), KINDS)
@pytest.mark.parametrize(("text", "position"), [(TEXT, 1), (LONG, 2), ("rain", 0)])
def test_all_words_are_tried_as_brute_force_tries_them(
    name: str, on: str | int, text: str, position: int, tmp_path: Path
) -> None:
    model = _model(name, tmp_path)
    found = model.swaps(text, position, on=on, exhaustive=True, top=99)
    expected = _brute(model, text, position, on)
    assert len(expected) > 10
    close = 1e-6 if name == "llama" else 1e-9
    assert {swap.word: swap.effect for swap in found.swaps} == pytest.approx(expected, rel=close, abs=1e-12)
    values = [swap.value for swap in found.swaps]
    assert values == sorted(values, reverse=True)
    assert found.exhaustive
    assert found.candidates == found.checked == len(expected)
    assert all(swap.text == text.replace(found.swaps[0].replaced.text, swap.word, 1) for swap in found.swaps)


@pytest.mark.parametrize(("name", "on"), KINDS)
def test_ranking_finds_the_best_where_it_may_try_all(name: str, on: str | int, tmp_path: Path) -> None:
    model = _model(name, tmp_path)
    for position in (2, None):
        best = model.swaps(LONG, position, on=on, exhaustive=True).swaps
        ranked = model.swaps(LONG, position, on=on).swaps
        assert [swap.text for swap in ranked] == [swap.text for swap in best]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("checks", [1, 3, 10, 25])
@pytest.mark.parametrize("position", [3, None])
def test_ranking_tries_as_many_as_it_may(checks: int, seed: int, position: int | None, tmp_path: Path) -> None:
    model = _model("bert-classifier", tmp_path)
    found = model.swaps(TEXT, position, checks=checks, seed=seed, top=99)
    total = model.swaps(TEXT, position, exhaustive=True).candidates
    assert len(found.swaps) == found.checked == min(checks, total)
    assert len({(swap.replaced.tokens, swap.word) for swap in found.swaps}) == found.checked
    for swap in found.swaps:
        assert swap.effect == pytest.approx(_effect(model, TEXT, swap.replaced, swap.word, "class"), rel=1e-9)


def test_the_best_of_all_words_is_the_best_of_the_best_of_each(tmp_path: Path) -> None:
    model = _model("bert-classifier", tmp_path)
    whole = model.swaps(TEXT, exhaustive=True, top=1)
    each = [model.swaps(TEXT, place, exhaustive=True, top=1).swaps[0] for place in range(4)]
    assert whole.word is None
    assert whole.swaps[0] == max(each, key=lambda swap: swap.value)
    assert whole.candidates == sum(model.swaps(TEXT, place, exhaustive=True).candidates for place in range(4))


def test_both_directions_are_searched(tmp_path: Path) -> None:
    """With few tries, what raises the probability most and what lowers it most are both among them."""
    model = _model("bert-classifier", tmp_path)
    for position in range(4):
        every = [swap.effect for swap in model.swaps(TEXT, position, exhaustive=True, top=99).swaps]
        tried = [swap.effect for swap in model.swaps(TEXT, position, checks=14, top=99).swaps]
        assert len(tried) < len(every)
        assert (max(tried) > 0, min(tried) < 0) == (max(every) > 0, min(every) < 0)


def test_flips_are_those_of_the_decision(tmp_path: Path) -> None:
    model = _model("bert-classifier", tmp_path)
    found = model.swaps(TEXT, exhaustive=True, top=999)
    names = [str(name) for name in model.network.config.id2label.values()]
    own = int(_output(model, TEXT, "class").argmax())
    for swap in found.swaps:
        now = int(_output(model, swap.text, "class").argmax())
        assert (swap.flip, swap.becomes) == (now != own, names[now])
    verdict = model.flips(TEXT, candidates="vocabulary", exhaustive=True)
    assert any(swap.flip for swap in found.swaps) == verdict.flip


def test_what_is_learned_in_parts_is_the_regression_through_all_of_it() -> None:
    draw = torch.Generator().manual_seed(0)
    rows, values = torch.randn(30, 6, generator=draw), torch.randn(12, generator=draw)
    slopes = torch.randn(6, 6, generator=draw)
    learned = swaps._Surrogate(rows)
    for start, end, steep in ((0, 5, True), (5, 6, True), (6, 9, False), (9, 12, False)):
        learned.learn(list(range(start, end)), values[start:end].tolist(), slopes[start:end] if steep else None)
    centred = (rows - rows.mean(0)).double()
    cosines = torch.nn.functional.cosine_similarity(centred[:, None], centred[None], dim=2)
    some = zip(values, rows, slopes, strict=False)
    tangents = torch.stack([value + (rows - row) @ slope for value, row, slope in some], 1)
    promises = (torch.softmax(swaps._NEAR * cosines[:, :6], 1) * tangents).sum(1)
    promises = (promises - promises.mean()) / promises.std(correction=0)
    assert torch.allclose(learned.promises.double(), promises, atol=1e-5)
    kernel = torch.exp(swaps._WIDTH * (cosines - 1)) + torch.outer(promises, promises)
    weights = torch.linalg.solve(
        kernel[:12, :12] + swaps._NOISE * torch.eye(12), values.double() - values.double().mean()
    )
    expected = values.double().mean() + kernel[:, :12] @ weights
    assert torch.allclose(learned.values().double(), expected, atol=1e-5)


def test_slopes_are_derivatives_along_the_embedding_of_the_replacement(tmp_path: Path) -> None:
    from wordsway.models.outputs import chosen_output
    from wordsway.models.rewrites import Rewrite

    for name, on in (("bert-classifier", "class"), ("gpt2", "last"), ("bert", "last")):
        model = _model(name, tmp_path)
        read = model.read(LONG)
        rewriter = Rewriter(model, read, chosen_output(model, on))
        rewrite = Rewrite(read.scored[1], "hate")
        slopes = rewriter.effects([rewrite], steep=True).slopes
        assert slopes is not None
        (slope,) = slopes
        row = model.network.get_input_embeddings().weight.data[model.texts.backend.token_to_id("hate")]
        step = torch.randn(len(row), generator=torch.Generator().manual_seed(1), dtype=row.dtype) * 1e-5
        ranks = []
        for sign in (1, -1):
            row += sign * step
            effects = rewriter.effects([rewrite])
            ranks.append(float(effects.ranks))
            row -= sign * step
        assert (ranks[0] - ranks[1]) / 2 == pytest.approx(float(slope @ step), rel=1e-3)


def test_more_candidates_are_tried_where_the_text_is_short() -> None:
    model = ws.load("minilm")
    from wordsway.models.outputs import chosen_output

    output = chosen_output(model)
    counts = [
        swaps._affordable(Rewriter(model, model.read(" ".join(["rain"] * count)), output)) for count in (1, 28, 400)
    ]
    assert counts[0] == swaps._MOST > counts[1] > counts[2] == swaps._LEAST


def test_a_comparison_reports_how_far_ranking_falls_short(tmp_path: Path) -> None:
    model = _model("bert", tmp_path)
    exact = max(_brute(model, TEXT, 3, "pooled").values())
    for checks in (1, 400):
        ranked = model.swaps(TEXT, 3, checks=checks)
        found = model.swaps(TEXT, 3, checks=checks, compare=True)
        assert found.shortfall == pytest.approx(1 - ranked.swaps[0].value / exact, abs=1e-9)
        assert found.swaps[0].value == pytest.approx(exact, rel=1e-9)
        assert found.exhaustive
        assert ranked.shortfall is None
    assert found.shortfall == 0


@pytest.mark.parametrize(("name", "on"), [("gpt2", "next"), ("bert-classifier", "class")])
def test_divergences_are_those_of_torch(name: str, on: str, tmp_path: Path) -> None:
    model = _model(name, tmp_path)
    found = model.swaps(TEXT, 3, on=on, exhaustive=True)
    before = _output(model, TEXT, on)
    for swap in found.swaps:
        expected = torch.nn.functional.kl_div(before.log(), _output(model, swap.text, on), reduction="sum")
        assert swap.divergence == pytest.approx(float(expected), rel=1e-7)


def test_declared_sets_are_tried_and_named(tmp_path: Path) -> None:
    model = _model("bert-classifier", tmp_path)
    words = tmp_path / "words.txt"
    words.write_text("love, hate, sing\nsmile, film\n")
    found = model.swaps(TEXT, candidates=str(words), top=99)
    assert found.declared == str(words)
    assert {(swap.replaced.text, swap.word) for swap in found.swaps} == {
        ("love", "hate"),
        ("love", "sing"),
        ("smile", "film"),
    }
    assert found.exhaustive
    with pytest.raises(InputError, match=r"some of .* must fit in place of 'her', got none"):
        model.swaps(TEXT, "her", candidates=str(words))


def test_a_text_that_is_cut_has_replacements(tmp_path: Path) -> None:
    model = _model("bert", tmp_path)
    text = "the rain was long . " * 10
    found = model.swaps(text, 1, cut=True, exhaustive=True)
    assert found.text.cut > 0
    for swap in found.swaps:
        before, now = (_rows(model, list(model.read(one, cut=True).ids)).mean(0) for one in (text, swap.text))
        expected = (now / now.norm() - before / before.norm()).norm()
        assert swap.value == pytest.approx(float(expected), rel=1e-9)


def _rows(model: ws.Model, ids: list[int]) -> Tensor:
    return plain.output(model.network, model.network.get_input_embeddings().weight.detach()[ids], "last")


def test_records_are_plain_values(tmp_path: Path) -> None:
    found = _model("gpt2", tmp_path).swaps(TEXT, 3, on="next", top=4)
    again = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert again["swaps"] == found.rows()
    assert [record["rank"] for record in found.rows()] == [1, 2, 3, 4]
    first = found.rows()[0]
    assert (first["position"], first["replaced"], first["on"]) == (3, "smile", "next")
    assert (first["word"], first["sensitivity"]) == (found.swaps[0].word, found.swaps[0].value)
    assert again["checked"] == found.checked


def test_a_word_that_raises_the_other_class_is_found() -> None:
    """Both directions count: of a review that is nearly undecided, words that flip it are among the first."""
    model = ws.load("minilm-sentiment")
    text = "I rented this movie for a few laughs."
    found = model.swaps(text, "few", checks=100, top=100)
    assert any(swap.effect > 0 for swap in found.swaps)
    assert any(swap.effect < 0 for swap in found.swaps)
    assert any(swap.flip for swap in found.swaps)


def test_the_real_encoder_finds_words_in_little_time() -> None:
    model = ws.load("minilm")
    found = model.swaps("I love her smile", 3, on="last", checks=60, top=5)
    assert (found.checked, len(found.swaps)) == (60, 5)
    assert found.candidates > 15000
    for swap in found.swaps:
        assert swap.word.isalpha()
        assert swap.word == swap.word.lower()
        expected = _effect(model, "I love her smile", swap.replaced, swap.word, "last")
        assert swap.value == pytest.approx(expected, rel=1e-4)
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
        ({"word": 4}, "some of vocabulary must fit in place of '.', got none"),
        ({"on": "next"}, "next needs a model that predicts the next token"),
        ({"on": 9}, "on must be a layer from 0 to 3, got 9"),
        ({"candidates": "nearest"}, "candidates must be"),
        ({"text": ""}, "text must have at least one word"),
    ],
)
def test_bad_input_is_refused_in_one_line(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        _model("bert", tmp_path).swaps(**{"text": TEXT, "word": 3, **options})
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
