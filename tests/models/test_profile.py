"""Profiles by real words: every effect is that of a plain pass over the rewritten text."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import wordsway as ws
from models import plain
from models.test_flips import WORDS
from wordsway.errors import InputError
from wordsway.models.candidates import random_words
from wordsway.models.profile import TextProfile
from wordsway.models.rewrites import Effects
from wordsway.models.words import Word

TEXT = "I love her unhappying smile, film."
CASES: list[tuple[str, str | int]] = [
    ("bert-classifier", "class"),
    ("bert", "pooled"),
    ("bert", "last"),
    ("bert", 1),
    ("gpt2", "next"),
    ("gpt2", "last"),
    ("llama", 2),
]


def _model(name: str, folder: Path, **options: Any) -> ws.Model:
    template = "[CLS] $A [SEP]" if name.startswith("bert") else ""
    model = plain.with_words(name, folder, WORDS, template, **options)
    assert model.tokenizer is not None
    if name.startswith("bert"):
        model.tokenizer.backend.add_special_tokens(["[MASK]"])
    return model


def _output(model: ws.Model, text: str, on: str | int) -> Tensor:
    rows = model.network.get_input_embeddings().weight.detach()[model.tokens(text)]
    return plain.output(model.network, rows, on)


def _effect(model: ws.Model, word: Word, replacement: str, on: str | int) -> float:
    """The effect of one replacement, by two plain passes."""
    start = word.start - (not replacement and TEXT[: word.start].endswith(" "))
    end = word.end + (not replacement and start == word.start and TEXT[word.end :].startswith(" "))
    before, after = _output(model, TEXT, on), _output(model, TEXT[:start] + replacement + TEXT[end:], on)
    if on == "class":
        place = int(before.argmax())
        return float(after[place] - before[place])
    if before.ndim == 2:  # rows: those of the word and of what is written there count as one
        first, last = word.tokens[0], len(model.read(TEXT).ids) - 1 - word.tokens[-1]
        both = []
        for rows in (before, after):
            middle = rows[first : len(rows) - last].mean(0, keepdim=True) if replacement else rows[:0]
            both.append(torch.cat([rows[:first], middle, rows[len(rows) - last :]]))
        before, after = both
    return plain.distance(before, after, on)


@pytest.mark.parametrize(("name", "on"), CASES)
def test_plain_passes_reproduce_every_effect(name: str, on: str | int, tmp_path: Path) -> None:
    model = _model(name, tmp_path)
    profile = model.profile(TEXT, on=on, budget=1)
    close = 1e-6 if name == "llama" else 1e-9
    pool = random_words(model, 0)
    mask = "[MASK]" if name.startswith("bert") else ""
    for one in profile.words:
        assert one.masked == pytest.approx(_effect(model, one.word, mask, on), rel=close, abs=1e-12)
        if not one.word.text.isalpha():
            assert (one.typical, one.worst, one.draws) == (None, None, 0)
            continue
        drawn = pool.written(one.word.text, 0, one.draws)
        effects = [abs(_effect(model, one.word, written, on)) for written in drawn]
        assert one.draws == 6
        assert one.typical == pytest.approx(np.mean(effects), rel=close)
        assert one.typical_se == pytest.approx(np.std(effects, ddof=1) / math.sqrt(6), rel=close)
        assert one.median == pytest.approx(np.median(effects), rel=close)
        assert one.replacement is not None
        assert one.worst is not None
        assert one.worst == pytest.approx(_effect(model, one.word, one.replacement, on), rel=close)
        assert abs(one.worst) >= max(effects) * (1 - close)
    assert profile.signed == (on == "class")


def test_replacements_are_the_same_for_all_words_and_follow_their_case(tmp_path: Path) -> None:
    model = _model("bert", tmp_path)
    pool = random_words(model, 3)
    assert sorted(pool.words) == sorted(word for word in WORDS if word.isalpha() and len(word) > 1)
    assert pool.words != random_words(model, 4).words
    lower, title = pool.written("nothing", 0, 9), pool.written("Nothing", 0, 9)
    assert list(pool.words[:9]) == lower
    assert [word.capitalize() for word in lower] == title
    assert pool.words[0] not in pool.written(pool.words[0], 0, 99)
    assert pool.written("nothing", 2, 5) == lower[2:5]
    assert pool.written("nothing", 99, 105) == []


class _Fixed:
    """A rewriter whose effects are known: what a word does depends on its place and the draw."""

    def __init__(self, model: ws.Model, effects: Any) -> None:
        from wordsway.models.outputs import output_named
        from wordsway.models.rewrites import Rewriter

        read = model.read("love her smile film")
        self.real = Rewriter(model, read, output_named(model, "pooled"))
        self.model, self.text, self.output = model, read, self.real.output
        self.passes, self._effects = 1, effects

    def effects(self, rewrites: Any) -> Effects:
        self.passes += len(rewrites)
        values = torch.tensor([self._effects(one.word.position, one.replacement) for one in rewrites])
        return Effects(values, values)


def _study(model: ws.Model, effects: Any, budget: int) -> Any:
    from wordsway.models.profile import _Study

    rewriter: Any = _Fixed(model, effects)
    study = _Study(rewriter, rewriter.text.scored, 0)
    for _ in study.rounds(budget):
        pass
    return study


def test_sampling_stops_when_one_word_leads(tmp_path: Path) -> None:
    model = _model("bert", tmp_path)
    words = random_words(model, 0).words
    noise = {word: 0.01 * place for place, word in enumerate(words)}
    study = _study(model, lambda place, word: place + noise.get(word, 0.0), 1000)
    assert study.leading == [3]
    assert [len(values) for values in study.typical] == [6] * 4


def test_words_that_are_not_told_apart_all_lead(tmp_path: Path) -> None:
    model = _model("bert", tmp_path)
    words = random_words(model, 0).words
    noise = {word: float(place % 2) for place, word in enumerate(words)}
    # the last two differ by less than the noise, which is not shared between them
    study = _study(model, lambda place, word: noise.get(word, 0.0) if place < 3 else 1 - noise.get(word, 0.0), 30)
    assert len(study.leading) > 1
    assert study.rewriter.passes <= 30 + 4
    assert all(effect.leads == (place in study.leading) for place, effect in enumerate(study.effects()))


def test_a_vocabulary_that_is_used_up_ends_the_sampling(tmp_path: Path) -> None:
    model = _model("bert", tmp_path)
    profile = model.profile("love her", budget=10**6)
    assert all(one.draws <= len(random_words(model, 0).words) for one in profile.words)


def test_a_stored_profile_is_the_same_again(tmp_path: Path) -> None:
    model = _model("bert-classifier", tmp_path)
    profile = model.profile(TEXT, ball=True, steps=2, special=True)
    stored = json.loads(json.dumps(profile.to_dict()))
    again = TextProfile.from_dict(stored, profile.text, [one.word for one in profile.words])
    assert again.rows() == profile.rows()
    assert again.leaders == profile.leaders
    assert again.to_dict() == profile.to_dict()
    assert [row["position"] for row in profile.rows()][:2] == [None, 0]
    assert profile.rows()[0]["masked"] is None
    assert profile.rows()[0]["sensitivity"] > 0


def test_a_chosen_class_is_followed(tmp_path: Path) -> None:
    model = _model("bert-classifier", tmp_path, num_labels=3)
    before = _output(model, TEXT, "class")
    total = torch.zeros(len(model.read(TEXT).scored), dtype=torch.float64)
    for label in range(3):
        profile = model.profile(TEXT, label=label, budget=1)
        assert profile.before == pytest.approx(float(before[label]))
        total += torch.tensor([one.masked for one in profile.words], dtype=torch.float64)
    torch.testing.assert_close(total, torch.zeros_like(total), atol=1e-9, rtol=0)  # probabilities sum to 1


def test_flips_are_seen(tmp_path: Path) -> None:
    model = _model("bert-classifier", tmp_path, seed=1)
    with torch.no_grad():
        model.network.classifier.bias -= _output(model, TEXT, "class").log() * (1 - 1e-6)
    profile = model.profile(TEXT)
    assert any(one.flip for one in profile.words)
    for one in profile.words:
        if one.flip is False and one.replacement is not None:
            written = TEXT[: one.word.start] + one.replacement + TEXT[one.word.end :]
            assert int(_output(model, written, "class").argmax()) == int(_output(model, TEXT, "class").argmax())


def test_a_text_of_one_word_cannot_lose_it(tmp_path: Path) -> None:
    (one,) = _model("gpt2", tmp_path).profile("love").words
    assert one.masked is None
    assert one.typical is not None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"budget": 0}, "budget must be an integer >= 1"),
        ({"words": []}, "there must be a word to measure"),
        ({"words": "love"}, "words must be a sequence"),
        ({"label": "positive"}, "a label needs the output class"),
        ({"on": "nosuch"}, "on must be one of"),
    ],
)
def test_mistakes(call: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as error:
        _model("bert", tmp_path).profile(TEXT, **call)
    assert "\n" not in str(error.value)
