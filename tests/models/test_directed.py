"""Directed outputs: answers and continuations of decoders, and pairs of texts, against plain passes."""

from typing import Any

import pytest
import torch
from tokenizers import processors
from torch import Tensor

import wordsway as ws
from models import plain
from models.test_flips import WORDS
from wordsway.errors import InputError
from wordsway.models.words import Text

TEXT = "i love her film"
SECOND = "the film was good"


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def decoder(request: Any, tmp_path_factory: pytest.TempPathFactory) -> ws.Model:
    return plain.with_words(request.param, tmp_path_factory.mktemp("decoder"), WORDS, "")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> ws.Model:
    model = plain.with_words("bert-classifier", tmp_path_factory.mktemp("classifier"), WORDS)
    numbers = [(name, model.texts.backend.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    model.texts.backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=numbers
    )
    return model


def _logs(model: ws.Model, ids: list[int]) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model.network(input_ids=torch.tensor([ids])).logits[0]
    return logits.double().log_softmax(-1)


def _rewritten(text: str, word: Any, replacement: str) -> str:
    return text[: word.start] + replacement + text[word.end :]


def test_answers_are_the_probabilities_of_their_tokens(decoder: ws.Model) -> None:
    found = decoder.profile(TEXT, answers=["good", "film"], budget=200)
    good, film = (decoder.texts.backend.token_to_id(word) for word in ("good", "film"))
    before = _logs(decoder, decoder.tokens(TEXT))[-1].exp()
    top = max((good, film), key=lambda token: float(before[token]))
    assert found.on == "answer good, film"
    assert found.decision == {good: "good", film: "film"}[top]
    assert found.before == pytest.approx(float(before[top]), rel=1e-5)
    for one in found.words:
        assert one.replacement is not None
        after = _logs(decoder, decoder.tokens(_rewritten(TEXT, one.word, one.replacement)))[-1].exp()
        assert one.worst == pytest.approx(float(after[top] - before[top]), rel=1e-4, abs=1e-7)
        best = max((good, film), key=lambda token: float(after[token]))
        assert one.becomes == {good: "good", film: "film"}[best]


def test_features_of_answers_sum_to_one_and_one_answer_stands_against_all_else(decoder: ws.Model) -> None:
    phi = decoder.features(TEXT, answers=["good"])
    good = decoder.texts.backend.token_to_id("good")
    expected = float(_logs(decoder, decoder.tokens(TEXT))[-1].exp()[good])
    values = phi(phi.embedded)
    assert values.tolist() == pytest.approx([expected, 1 - expected], rel=1e-5)
    found = decoder.flips(TEXT, answers=["good"], candidates="vocabulary", exhaustive=True)
    assert found.classes[0] == ("good" if expected > 0.5 else "other")


def test_a_flip_between_answers_is_one_of_plain_passes(decoder: ws.Model) -> None:
    found = decoder.flips(TEXT, answers=["good", "film"], candidates="vocabulary", exhaustive=True)
    good, film = (decoder.texts.backend.token_to_id(word) for word in ("good", "film"))

    def margin(text: str) -> float:
        logs = _logs(decoder, decoder.tokens(text))[-1]
        return float(logs[good] - logs[film])

    sign = 1 if margin(TEXT) > 0 else -1
    word, replacement = found.nearest
    assert found.flip == (sign * margin(_rewritten(TEXT, word, replacement)) < 0)
    assert found.tried == found.total


def test_a_target_is_the_logarithm_of_the_probability_of_a_continuation(decoder: ws.Model) -> None:
    target = "the good film"
    suffix = decoder.tokens(target)

    def log_probability(text: str) -> float:
        ids = decoder.tokens(text)
        logs = _logs(decoder, ids + suffix)
        return float(sum(logs[len(ids) - 1 + place, token] for place, token in enumerate(suffix)))

    found = decoder.profile(TEXT, target=target, budget=100)
    assert found.on == "target the good film"
    assert found.before == pytest.approx(log_probability(TEXT), rel=1e-5)
    for one in found.words:
        assert one.replacement is not None
        assert one.masked is not None
        after = log_probability(_rewritten(TEXT, one.word, one.replacement))
        assert one.worst == pytest.approx(after - log_probability(TEXT), rel=1e-4, abs=1e-5)
    with pytest.raises(InputError, match="a flip needs a model that decides"):
        decoder.flips(TEXT, on="last")


def test_a_text_must_leave_space_for_its_target(decoder: ws.Model) -> None:
    text = "the " * (decoder.positions - 1)
    with pytest.raises(InputError, match=r"the text and its target must have at most \d+ tokens"):
        decoder.profile(text, target="the good film")


def test_what_is_no_answer_or_target_is_refused(decoder: ws.Model, classifier: ws.Model) -> None:
    wrong: list[tuple[ws.Model, dict[str, Any], str]] = [
        (decoder, {"answers": ["good", "Good"]}, "must differ in more than their spelling, got good, Good"),
        (decoder, {"answers": ["unhappying"]}, "an answer must be one token"),
        (decoder, {"answers": []}, "answers must"),
        (decoder, {"answers": [" "]}, "answers must be words"),
        (decoder, {"target": " "}, "target must be a text"),
        (decoder, {"target": "film", "on": "next"}, "one output must be given, got on and target"),
        (decoder, {"target": "film", "label": "film"}, "leave the label out"),
        (classifier, {"answers": ["good"]}, "needs a model that predicts the next token"),
        (classifier, {"target": "good"}, "needs a model that predicts the next token"),
    ]
    for model, options, message in wrong:
        with pytest.raises(InputError, match=message):
            model.profile(TEXT, **options)


def _pair_logits(model: ws.Model, first: str, second: str) -> Tensor:
    encoding = model.texts.backend.encode(first, second)
    with torch.no_grad():
        logits: Tensor = model.network(
            input_ids=torch.tensor([encoding.ids]), token_type_ids=torch.tensor([encoding.type_ids])
        ).logits[0]
    return logits.double().softmax(-1)


def _parts(read: Text, word: Any, replacement: str) -> tuple[str, str]:
    """The two texts after a replacement, by where the word is."""
    assert read.pair is not None
    if word.start < read.pair:
        return _rewritten(TEXT, word, replacement), SECOND
    moved = word.start - read.pair
    return TEXT, SECOND[:moved] + replacement + SECOND[moved + len(word.text) :]


def test_words_of_both_texts_of_a_pair_are_measured(classifier: ws.Model) -> None:
    found = classifier.profile(TEXT, pair=SECOND, budget=200)
    assert [one.word.text for one in found.words] == [*TEXT.split(), *SECOND.split()]
    before = _pair_logits(classifier, TEXT, SECOND)
    top = int(before.argmax())
    assert found.before == pytest.approx(float(before[top]), rel=1e-5)
    for one in found.words:
        assert one.replacement is not None
        after = _pair_logits(classifier, *_parts(found.text, one.word, one.replacement))
        assert one.worst == pytest.approx(float(after[top] - before[top]), rel=1e-4, abs=1e-7)
    alone = classifier.profile(f"{TEXT} {SECOND}", budget=20)
    assert alone.before != pytest.approx(found.before, rel=1e-6)  # the model is told which text is the second


def test_flips_and_the_ball_of_a_pair(classifier: ws.Model) -> None:
    found = classifier.flips(TEXT, pair=SECOND, candidates="vocabulary", exhaustive=True)
    word, replacement = found.nearest
    after = _pair_logits(classifier, *_parts(found.text, word, replacement))
    top = int(_pair_logits(classifier, TEXT, SECOND).argmax())
    assert found.after == pytest.approx(float(after[top]), rel=1e-5)
    assert found.flip == (int(after.argmax()) != top)
    ball = classifier.profile(TEXT, pair=SECOND, budget=20, ball=True, steps=2).ball
    assert ball is not None
    assert len(ball.words) == len(found.words)


def test_a_deleted_word_of_a_pair_stays_in_its_text(classifier: ws.Model) -> None:
    found = classifier.flips(TEXT, pair=SECOND, candidates="delete", words=[3, 4], exhaustive=True)
    assert found.total == 2
    word, _ = found.nearest
    pair = {3: ("i love her", SECOND), 4: (TEXT, "film was good")}[word.position or 0]
    top = int(_pair_logits(classifier, TEXT, SECOND).argmax())
    assert found.after == pytest.approx(float(_pair_logits(classifier, *pair)[top]), rel=1e-5)


def test_a_pair_is_neither_cut_nor_chatted(classifier: ws.Model) -> None:
    with pytest.raises(InputError, match="can neither be cut nor"):
        classifier.profile(TEXT, pair=SECOND, cut=True)
    with pytest.raises(InputError, match="text must be a string, got int"):
        classifier.profile(TEXT, pair=3)  # type: ignore[arg-type]
