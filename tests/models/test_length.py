"""One word against the length of the text around it: plain passes over the written texts, and honest error bars."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection
from numpy.typing import NDArray
from torch import Tensor

import wordsway as ws
from models import small_transformers as small
from models import tiny
from wordsway.errors import InputError
from wordsway.models import Model
from wordsway.models.ball import ball_profile
from wordsway.models.candidates import random_words
from wordsway.models.length import LengthCurve, length_curve, map_curves

SENTENCE = "I love her smile"
AROUND = "The film was shot in a small town by people who had never seen a camera before and it shows in every scene"


@pytest.fixture(scope="module")
def minilm() -> Model:
    return ws.load("minilm")


def plain_change(model: Model, on: str, text: str, rewritten: str) -> float:
    """The change from one text to another by plain passes over their tokens; both must have as many."""

    def rows(written: str) -> Tensor:
        ids = torch.tensor([model.tokens(written)])
        with torch.no_grad():
            last: Tensor = model.network.base_model(input_ids=ids, attention_mask=torch.ones_like(ids))[0][0]
        return last if on == "last" else last.mean(0) / last.mean(0).norm()

    before, after = rows(text), rows(rewritten)
    return float((after - before).norm() / before.norm())


@pytest.mark.parametrize("on", ["last", "pooled"])
def test_changes_are_those_of_plain_passes_over_the_written_texts(minilm: Model, on: str) -> None:
    curve = length_curve(minilm, [16, 6], texts=[AROUND], draws=3, on=on, seed=5)
    words = random_words(minilm, 5).written("smile", 0, 3)
    assert len({len(minilm.tokens(f"I love her {word}")) for word in words}) == 1  # rows are compared one by one
    texts = {6: "I love her {}", 16: "The film was shot in I love her {} a small town by people"}
    assert curve.lengths == (6, 16)
    assert curve.on == on
    for n, (drawn,) in zip(curve.lengths, curve.draws, strict=True):
        text = texts[n].format("smile")
        assert len(minilm.tokens(text)) == n
        expected = [plain_change(minilm, on, text, texts[n].format(word)) for word in words]
        assert drawn == pytest.approx(expected, rel=1e-4)
    assert curve.mean == pytest.approx([np.mean(drawn) for drawn in curve.draws])


def test_reviews_have_exactly_as_many_tokens_as_they_should(minilm: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    from wordsway.models import length

    read: list[tuple[int, str]] = []

    def note(model: Any, text: Any, word: Any, words: Any, output: Any) -> NDArray[np.float64]:
        assert text.text[word.start : word.end] == "smile"
        read.append((len(text.ids), text.text))
        return np.ones(len(words))

    monkeypatch.setattr(length, "_effects", note)
    length_curve(minilm, [6, 7, 16, 100], texts=4)
    assert [n for n, _ in read] == [n for n in (6, 7, 16, 100) for _ in range(4)]
    assert all(SENTENCE in text for _, text in read)
    before, after = read[-1][1].split(SENTENCE)
    assert 0.8 < len(minilm.tokens(before)) / len(minilm.tokens(after)) < 1.25


def test_words_of_several_tokens_and_models_with_other_tokens(tmp_path: Any) -> None:
    network = tiny.write_bert(tmp_path / "bert")
    model = ws.load(network, tiny.tokenizer(tmp_path / "bert"))
    text = "the film was the film and the film was the film and the film was"
    curve = length_curve(
        model, [12, 14], sentence="the filming was", word="filming", texts=[text], draws=2, on="pooled"
    )
    (word, other) = random_words(model, 0).written("filming", 0, 2)
    whole = "the film was the {} was the film and"
    expected = [plain_change(model, "pooled", whole.format("filming"), whole.format(one)) for one in (word, other)]
    assert len(model.tokens(whole.format("filming"))) == 12
    assert curve.draws[0][0] == pytest.approx(expected, rel=1e-4)


def test_the_ball_is_that_of_profiles(minilm: Model) -> None:
    curve = length_curve(minilm, [6], texts=[AROUND] * 2, ball=True, on="last", radius=0.5, steps=3, seed=4)
    expected = [
        float(ball_profile(minilm, SENTENCE, [3], on="last", radius=0.5, steps=3, seed=seed).values[0])
        for seed in (4, 5)
    ]
    assert curve.values == (tuple(expected),)
    assert (curve.by, curve.draws) == ("ball", ())


def test_effects_on_a_class_lose_their_sign() -> None:
    model = ws.load("minilm-sentiment")
    curve = length_curve(model, [16], texts=[AROUND], draws=4)
    assert curve.on == "class"
    assert all(change > 0 for change in curve.draws[0][0])


# Exponents


def drawn(law: Any, seed: int, texts: int = 6, draws: int = 8, common: float = 0.2) -> LengthCurve:
    """A curve whose texts and words each have their own height and slope, with the same words in every text."""
    source = np.random.default_rng(seed)
    sizes = np.array([16, 32, 64, 128, 256])
    logs = np.log(sizes / 16)[:, None, None]
    shape_t, shape_d = (1, texts, 1), (1, 1, draws)
    height = common * (source.normal(size=shape_t) + source.normal(size=shape_d))
    tilt = 0.1 * (source.normal(size=shape_t) + source.normal(size=shape_d))
    noise = 0.1 * source.normal(size=(5, texts, draws))
    changes = np.exp(height + tilt * logs + noise) * law(sizes)[:, None, None]
    return LengthCurve.of("made", tuple(sizes.tolist()), changes, True, "last")


def test_intervals_cover_the_exponent_over_texts_and_draws() -> None:
    """The exponent of the mean over many texts and words is that which the interval is about."""
    truth = drawn(lambda n: n**-0.4, 0, 400, 400).exponent
    assert truth is not None
    covered, blind = 0, 0
    for seed in range(1, 301):
        curve = drawn(lambda n: n**-0.4, seed)
        law = curve.law
        assert law is not None
        assert law.low is not None
        assert law.high is not None
        covered += law.low <= truth <= law.high
        # words that are the same in all texts do not average out over texts
        alone = LengthCurve("made", curve.lengths, curve.values).law
        assert alone is not None
        assert alone.error is not None
        assert law.error is not None
        blind += alone.error < law.error
    assert 0.92 <= covered / 300 <= 1
    assert blind == 300


def test_a_bent_curve_is_no_power_law() -> None:
    straight = [drawn(lambda n: n**-0.4, seed).is_power_law for seed in range(100)]
    assert straight.count(False) <= 8
    bent = [drawn(lambda n: np.where(n < 64, 1.0, (64 / n) ** 0.8), seed) for seed in range(50)]
    assert [curve.is_power_law for curve in bent].count(False) >= 45
    fit = bent[0].fit()
    assert fit["exponent_short"] > -0.3 > -0.6 > fit["exponent_long"]


def test_the_error_of_a_mean_is_that_of_its_texts() -> None:
    values = ((1.0, 2.0, 4.0), (1.0, 1.0, 1.0))
    curve = LengthCurve("made", (8, 16), values)
    assert curve.errors == pytest.approx([np.std(values[0], ddof=1) / math.sqrt(3), 0])


def test_exponents_of_curves() -> None:
    lengths = (10, 100, 1000)
    halves = LengthCurve("half", lengths, tuple((n**-0.5, n**-0.5) for n in lengths))
    assert halves.exponent == pytest.approx(-0.5)
    assert halves.deviation == [0, 0, 0]
    assert halves.is_power_law is True
    assert LengthCurve("one", (10,), ((1.0,),)).exponent is None
    assert LengthCurve("zero", (10, 20), ((0.0,), (0.0,))).exponent is None
    single = LengthCurve("one text", lengths, tuple((n**-0.5,) for n in lengths))
    assert single.fit() == {
        "exponent": pytest.approx(-0.5),
        "exponent_error": None,
        "exponent_low": None,
        "exponent_high": None,
        "exponent_short": pytest.approx(-0.5),
        "exponent_long": pytest.approx(-0.5),
        "power_law": None,
    }
    lonely = LengthCurve("one text moves it", (10, 20), ((0.0, 1.0), (0.0, 0.5)))
    assert lonely.exponent == pytest.approx(-1)
    assert lonely.exponent_error is None


def test_maps_in_a_ball_and_by_other_words() -> None:
    rf, raf = map_curves((16, 64), 32, texts=2)
    assert (rf.name, raf.name, rf.by) == ("rf", "raf", "ball")
    assert rf.exponent is not None
    assert raf.exponent is not None
    assert rf.exponent < -0.3 < raf.exponent
    for curve in map_curves((16, 64, 256), 32, texts=2, draws=3):  # a word that is drawn does not attract attention
        assert np.array(curve.draws).shape == (3, 2, 3)
        assert curve.exponent is not None
        assert curve.exponent < -0.3


def test_the_picture_has_error_bars_and_the_fitted_line() -> None:
    curve = drawn(lambda n: n**-0.4, 0)
    axes = curve.plot()
    assert axes.get_xscale() == axes.get_yscale() == "log"
    points = next(line for line in axes.lines if line.get_marker() == "o")
    assert points.get_ydata() == pytest.approx(curve.mean)
    (bars,) = axes.collections
    assert isinstance(bars, LineCollection)
    reach = [float(np.ptp(segment[:, 1])) / 2 for segment in np.asarray(bars.get_segments())]
    assert reach == pytest.approx(curve.errors)
    fitted = next(line for line in axes.lines if str(line.get_label()).startswith("exponent"))
    heights = np.asarray(fitted.get_ydata())
    assert np.polyfit(np.log(curve.lengths), np.log(heights), 1)[0] == pytest.approx(curve.exponent)


@pytest.mark.parametrize(
    ("lengths", "options", "message"),
    [
        ([3, 16], {}, "lengths must be at least 6, the tokens of the sentence, got 3"),
        ([16, 600], {}, "lengths must be at most 512, which minilm reads, got 600"),
        ([], {}, "lengths must name at least one number of tokens, got none"),
        (16, {}, "lengths must be a sequence, got 16: put it in a list"),
        ([16], {"texts": 0}, "texts must be an integer >= 1, got 0"),
        ([16], {"texts": ["short"]}, "some text must have 16 tokens, the largest length, got at most 1"),
        ([16], {"texts": "one"}, "texts must be a sequence, got 'one'"),
        ([16], {"draws": 0}, "draws must be an integer >= 1, got 0"),
        ([16], {"draws": 10**6}, "draws must be at most [0-9]+, the words of the vocabulary, got 1000000"),
        ([16], {"word": 7}, "word must be a position from 0 to 3 or a word of the text, got 7"),
        ([16], {"sentence": " "}, "text must have at least one word"),
        ([16], {"on": "next"}, "next needs a model that predicts the next token"),
    ],
)
def test_bad_lengths_are_refused(lengths: Any, options: dict[str, Any], message: str, minilm: Model) -> None:
    with pytest.raises(InputError, match=message):
        length_curve(minilm, lengths, **options)


def test_a_decoder_is_measured_on_the_next_token(tmp_path: Any) -> None:
    tiny.write_bert(tmp_path / "bert")
    network = small.make("gpt2", dtype=torch.float32, vocab_size=len(tiny.SPECIAL) + len(tiny.PIECES))
    model = ws.load(network, tiny.tokenizer(tmp_path / "bert"))
    curve = length_curve(model, [8], sentence="the film was", word="film", texts=["and the film was " * 9], draws=2)
    assert curve.on == "next"
    whole = "and the {} was the film"
    words = random_words(model, 0).written("film", 0, 2)

    def probabilities(text: str) -> Tensor:
        with torch.no_grad():
            logits: Tensor = model.network(input_ids=torch.tensor([model.tokens(text)])).logits[0, -1]
        return logits.softmax(-1)

    assert len(model.tokens(whole.format("film"))) == 8
    before = probabilities(whole.format("film"))
    expected = [float((probabilities(whole.format(word)) - before).abs().sum() / 2) for word in words]
    assert curve.draws[0][0] == pytest.approx(expected, rel=1e-4)
