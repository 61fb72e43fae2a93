"""Predictions at one token of a text, masked or classified, against plain passes of transformers over the new text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import wordsway as ws
from models import small_transformers as small
from models import tiny
from wordsway.errors import InputError

MASK = "[MASK]"
WORDS = [MASK, "i", "love", "her", "smile", "the", "film", "was", "good", "##ly", "and", "boring"]
TEXT = f"the film was {MASK} and i love her"


def _network(name: str, folder: Path) -> tuple[Any, Any]:
    tokenizer = tiny.write_tokenizer(folder, WORDS)
    tokenizer.add_special_tokens([MASK])
    tokenizer.save(str(folder / "tokenizer.json"))
    return small.make(name, vocab_size=tokenizer.get_vocab_size()), tokenizer


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> ws.Model:
    return ws.load(*_network("xlm-roberta", tmp_path_factory.mktemp("masked")))


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> ws.Model:
    return ws.load(*_network("bert-tokens", tmp_path_factory.mktemp("tagger")))


def _probabilities(model: ws.Model, text: str, at: int) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model.network(input_ids=torch.tensor([model.tokens(text)])).logits[0]
    return logits[at].double().softmax(-1)


def _rewritten(text: str, word: Any, replacement: str) -> str:
    return text[: word.start] + replacement + text[word.end :]


def _place(model: ws.Model, text: str) -> int:
    return model.texts.backend.encode(text).tokens.index(MASK)


def test_the_prediction_at_the_mask_is_that_of_plain_passes(masked: ws.Model) -> None:
    found = masked.profile(TEXT, on="mask", budget=200)
    before = _probabilities(masked, TEXT, _place(masked, TEXT))
    assert (found.on, found.signed) == ("mask", False)
    assert found.decision == masked.texts.backend.decode([int(before.argmax())])
    assert found.before == pytest.approx(float(before.max()), rel=1e-6)
    assert [one.word.text for one in found.words] == ["the", "film", "was", "and", "i", "love", "her"]
    for one in found.words:
        assert one.replacement is not None
        after = _rewritten(TEXT, one.word, one.replacement)
        now = _probabilities(masked, after, _place(masked, after))
        assert one.worst == pytest.approx(float((now - before).abs().sum() / 2), rel=1e-6)
        # the mask in the place of a word does not become the token that is read
        twice = _rewritten(TEXT, one.word, MASK)
        now = _probabilities(masked, twice, _place(masked, TEXT))
        assert one.masked == pytest.approx(float((now - before).abs().sum() / 2), rel=1e-6)


def test_a_replacement_of_several_tokens_moves_the_mask(masked: ws.Model, tmp_path: Path) -> None:
    (tmp_path / "words").write_text("film, goodly\nlove, goodly\n")
    before = _probabilities(masked, TEXT, _place(masked, TEXT))
    for word, text in (("film", TEXT.replace("film", "goodly")), ("love", TEXT.replace("love", "goodly"))):
        found = masked.flips(TEXT, on="mask", candidates=str(tmp_path / "words"), words=[word])
        now = _probabilities(masked, text, _place(masked, text))
        assert len(masked.tokens(text)) == len(masked.tokens(TEXT)) + 1
        assert found.after == pytest.approx(float(now[int(before.argmax())]), rel=1e-6)
        assert found.flip == (int(now.argmax()) != int(before.argmax()))


def test_answers_are_those_at_the_mask(masked: ws.Model) -> None:
    tokens = [masked.texts.backend.token_to_id(word) for word in ("good", "boring")]
    before = _probabilities(masked, TEXT, _place(masked, TEXT))[tokens]
    found = masked.flips(TEXT, answers=["good", "boring"], candidates="vocabulary", exhaustive=True)
    assert found.before == pytest.approx(float(before.max()), rel=1e-6)
    word, replacement = found.nearest
    after = _rewritten(TEXT, word, replacement)
    now = _probabilities(masked, after, _place(masked, after))[tokens]
    assert found.after == pytest.approx(float(now[int(before.argmax())]), rel=1e-6)
    assert found.flip == (int(now.argmax()) != int(before.argmax()))
    phi = masked.features(TEXT, answers=["good", "boring"])
    assert phi(phi.embedded)[:2].tolist() == pytest.approx(before.tolist(), rel=1e-6)


@pytest.mark.parametrize("which", ["film", "1"])
def test_the_class_of_a_word_is_that_of_plain_passes(tagger: ws.Model, which: str) -> None:
    text = "the film was good and i love her"
    before = _probabilities(tagger, text, 2)
    top = int(before.argmax())
    found = tagger.profile(text, on=f"token {which}", budget=200)
    assert found.on == f"token {which}"
    assert found.decision == f"LABEL_{top}"
    for one in found.words:
        assert one.replacement is not None
        now = _probabilities(tagger, _rewritten(text, one.word, one.replacement), 2)
        assert one.worst == pytest.approx(float(now[top] - before[top]), rel=1e-6, abs=1e-9)
    other = tagger.profile(text, on=f"token {which}", label=(top + 1) % 3, budget=30)
    assert other.before == pytest.approx(float(before[(top + 1) % 3]), rel=1e-6)


def test_swaps_and_the_ball_of_one_token(tagger: ws.Model) -> None:
    text = "the film was good and i love her"
    before = _probabilities(tagger, text, 4)
    best = tagger.swaps(text, "and", on="token good", exhaustive=True, top=1).swaps[0]
    now = _probabilities(tagger, best.text, 4)
    top = int(before.argmax())
    assert abs(best.value) == pytest.approx(abs(float(now[top] - before[top])), rel=1e-6)
    ball = tagger.profile(text, ["and"], on="token good", budget=20, ball=True, steps=2).ball
    assert ball is not None
    assert 0 < ball.values[0] <= 1


def test_what_has_no_such_token_is_refused(masked: ws.Model, tagger: ws.Model) -> None:
    wrong: list[tuple[ws.Model, str, dict[str, Any], str]] = [
        (masked, "the film was good", {"on": "mask"}, r"must have the mask \[MASK\] once, got it 0 times"),
        (masked, f"the {MASK} was {MASK}", {"on": "mask"}, "got it 2 times"),
        (masked, TEXT, {"on": "token film"}, "token needs a model with classes of tokens"),
        (masked, TEXT, {"target": "good"}, "needs a model that predicts the next token"),
        (tagger, "the film", {"on": "mask"}, "mask needs a model that predicts masked tokens"),
        (tagger, "the film", {"on": "token good"}, "word must be a position from 0 to 1 or a word of the text"),
        (
            tagger,
            "the film",
            {"on": "token film", "label": "x"},
            "label must be a class of the model, got 'x': one of 0 ",
        ),
    ]
    for model, text, options, message in wrong:
        with pytest.raises(InputError, match=message):
            model.profile(text, **options)


@pytest.mark.parametrize("name", ["xlm-roberta", "bert-tokens"])
def test_heads_are_loaded_from_folders(name: str, tmp_path: Path) -> None:
    network, _ = _network(name, tmp_path)
    network.save_pretrained(tmp_path)
    loaded = ws.load(tmp_path, dtype="float64")
    assert type(loaded.network) is type(network)
    on = "mask" if name == "xlm-roberta" else "token film"
    before = loaded.profile(TEXT, on=on, budget=20).before
    at = _place(loaded, TEXT) if on == "mask" else 2
    assert before == pytest.approx(float(_probabilities(ws.load(network, loaded.texts.backend), TEXT, at).max()))


def test_an_encoder_that_is_named_after_a_masked_head_is_loaded_without_it(tmp_path: Path) -> None:
    network, _ = _network("xlm-roberta", tmp_path)
    network.base_model.save_pretrained(tmp_path)
    tiny.configure(tmp_path, architectures=[type(network).__name__])
    loaded = ws.load(tmp_path, dtype="float64")
    assert type(loaded.network).__name__ == "XLMRobertaModel"
    with pytest.raises(InputError, match="mask needs a model that predicts masked tokens"):
        loaded.profile(TEXT, on="mask")
