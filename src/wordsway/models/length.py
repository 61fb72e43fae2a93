"""Does a model still respond to one word when the text gets long? A sentence inside more and more of another text."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from tqdm.auto import tqdm

from wordsway.checks import check_several, check_size
from wordsway.contexts import gaussian_context
from wordsway.data.reviews import load_reviews
from wordsway.errors import InputError
from wordsway.maps.catalogue import MapOptions, map_named
from wordsway.models.ball import STEPS, ball_profile
from wordsway.models.candidates import random_words
from wordsway.models.outputs import Output, default_output, output_named
from wordsway.models.rewrites import Rewrite, Rewriter
from wordsway.models.words import Text, Word, WordLike
from wordsway.records import Record
from wordsway.seeds import derive
from wordsway.sensitivity import response_sensitivity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from wordsway.models.model import Model

SENTENCE = "I love her smile"
LENGTHS = (16, 32, 64, 128, 256)
TEXTS = 6  # reviews, and seeds of a map
DRAWS = 8
MAPS = ("rf", "raf")
SWAPS, BALL = "swaps", "ball"
_CONFIDENCE = 0.95
_BEND = 0.05  # smaller differences of exponents are of no use to anyone, however certain they are
_NEARBY = 8  # tokens around the expected end of a text that are tried to make it exactly as long as it has to be


class Estimate(NamedTuple):
    """A number with its standard error and its confidence interval, None where there is nothing to estimate them by."""

    value: float
    error: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, eq=False, repr=False)
class LengthCurve(Record):
    """The change that one word makes against the length of the context.

    Attributes
    ----------
    name : str
        The model, or a map of the paper at the same sizes.
    lengths : tuple of int
        Tokens of the context.
    values : tuple of tuple of float
        One for each length and text: the mean over the draws, or the largest change in a ball.
    draws : tuple of tuple of tuple of float
        The change for each length, text and replacement; empty where the word moves in a ball.
    on : str or None
        What the change is measured on; None for a map.

    Notes
    -----
    Standard errors are those of the jackknife: each text, then each draw, is left out in turn, and the two variances
    are added, since the texts and the draws are the same for all lengths. Intervals are those of Student's t at 95%,
    with as many degrees of freedom as the smaller of the two samples has.
    """

    summary_fields = ("name", "on", "by", "lengths", "exponent", "exponent_error")

    name: str
    lengths: tuple[int, ...]
    values: tuple[tuple[float, ...], ...]
    draws: tuple[tuple[tuple[float, ...], ...], ...] = ()
    on: str | None = None

    @classmethod
    def of(
        cls, name: str, lengths: tuple[int, ...], changes: NDArray[np.float64], drawn: bool, on: str | None = None
    ) -> LengthCurve:
        """Return the curve of changes (L, T, D); those that are not drawn are of one search for each text."""
        values = tuple(tuple(row) for row in changes.mean(2).tolist())
        draws = tuple(tuple(tuple(one) for one in row) for row in changes.tolist()) if drawn else ()
        return cls(name, lengths, values, draws, on)

    @property
    def by(self) -> str:
        """How the word is changed: by "swaps" with other words, or in a "ball" around its embedding."""
        return SWAPS if self.draws else BALL

    @property
    def mean(self) -> list[float]:
        return [statistics.fmean(values) for values in self.values]

    @property
    def deviation(self) -> list[float]:
        """Standard deviations over the texts."""
        return [statistics.stdev(values) if len(values) > 1 else 0.0 for values in self.values]

    @property
    def errors(self) -> list[float | None]:
        """Standard errors of the means, over texts and draws."""
        return [self._estimate(partial(_entry, place)).error for place in range(len(self.lengths))]

    @property
    def exponent(self) -> float | None:
        """The slope of log change against log n; 0 where the effect of one word does not fade."""
        return None if self.law is None else self.law.value

    @property
    def exponent_error(self) -> float | None:
        return None if self.law is None else self.law.error

    @cached_property
    def law(self) -> Estimate | None:
        """The exponent with its interval; None for one length, and for a word that moves nothing."""
        return None if len(self.lengths) < 2 or min(self.mean) <= 0 else self._estimate(self._slope)

    @cached_property
    def parts(self) -> tuple[Estimate, Estimate] | None:
        """The exponents of the shorter and of the longer half of the lengths, which share the middle one."""
        if self.law is None or len(self.lengths) < 3:
            return None
        short, long = self._halves
        return self._estimate(partial(self._slope, part=short)), self._estimate(partial(self._slope, part=long))

    @cached_property
    def is_power_law(self) -> bool | None:
        """Whether one exponent suits both halves of the lengths.

        False where theirs differ by 0.05 at least and the interval of the difference excludes 0; None where that cannot
        be tested: with fewer than three lengths, or without standard errors.
        """
        if self.law is None or len(self.lengths) < 3:
            return None
        short, long = self._halves
        bend = self._estimate(lambda means: self._slope(means, long) - self._slope(means, short))
        if bend.low is None or bend.high is None:
            return None
        return abs(bend.value) < _BEND or bend.low <= 0 <= bend.high

    @property
    def _halves(self) -> tuple[slice, slice]:
        middle = len(self.lengths) // 2
        return slice(0, middle + 1), slice(middle, None)

    def _slope(self, means: NDArray[np.float64], part: slice = slice(None)) -> float:
        return float(np.polyfit(np.log(self.lengths[part]), np.log(means[part]), 1)[0])

    def _estimate(self, function: Callable[[NDArray[np.float64]], float]) -> Estimate:
        """A function of the means (L,), with its jackknife error over texts and draws."""
        changes = np.array(self.draws) if self.draws else np.array(self.values)[..., None]  # L T D
        value = function(changes.mean((1, 2)))
        variance, freedom = 0.0, np.inf
        for axis in (1, 2) if self.draws else (1,):
            count = changes.shape[axis]
            if count < 2:
                return Estimate(value, None, None, None)
            left_out = [np.delete(changes, place, axis).mean((1, 2)) for place in range(count)]
            if min(means.min() for means in left_out) <= 0:  # one text or word alone moves the model: no logarithm
                return Estimate(value, None, None, None)
            variance += (count - 1) * float(np.var([function(means) for means in left_out]))
            freedom = min(freedom, count - 1)
        error = float(np.sqrt(variance))
        reach = float(stats.t.ppf((1 + _CONFIDENCE) / 2, freedom)) * error
        return Estimate(value, error, value - reach, value + reach)

    def rows(self) -> list[dict[str, Any]]:
        """Return plain values, one dictionary per length."""
        rows = zip(self.lengths, self.mean, self.deviation, self.errors, self.values, strict=True)
        count = len(self.draws[0][0]) if self.draws else None
        return [
            {
                "model": self.name,
                "n": n,
                "sensitivity": mean,
                "deviation": deviation,
                "error": error,
                "texts": len(values),
                "draws": count,
                "on": self.on,
                "by": self.by,
            }
            for n, mean, deviation, error, values in rows
        ]

    def fit(self) -> dict[str, Any]:
        """Return the fitted power law as plain values."""
        law = self.law or Estimate(np.nan, None, None, None)
        short, long = self.parts or (None, None)
        return {
            "exponent": self.exponent,
            "exponent_error": law.error,
            "exponent_low": law.low,
            "exponent_high": law.high,
            "exponent_short": None if short is None else short.value,
            "exponent_long": None if long is None else long.value,
            "power_law": self.is_power_law,
        }

    def to_dict(self) -> dict[str, Any]:
        return {"model": self.name, "on": self.on, "by": self.by, **self.fit(), "lengths": self.rows()}

    def draw(self, ax: Axes) -> None:
        errors = [error or 0.0 for error in self.errors]
        points = ax.errorbar(self.lengths, self.mean, errors, fmt="o", capsize=3, label=self.name)
        if self.law is not None:
            sizes = np.array(self.lengths, float)
            height = np.exp(np.log(self.mean).mean() - self.law.value * np.log(sizes).mean())
            spread = "" if self.law.error is None else f" +- {self.law.error:.2f}"
            label = f"exponent {self.law.value:.2f}{spread}"
            ax.plot(sizes, height * sizes**self.law.value, "--", color=points.lines[0].get_color(), label=label)
        ax.set(xscale="log", yscale="log", xlabel="tokens", ylabel=f"change of {self.on or 'features'}")
        ax.legend()


def _entry(place: int, means: NDArray[np.float64]) -> float:
    return float(means[place])


def length_curve(
    model: Model,
    lengths: Sequence[int] = LENGTHS,
    *,
    sentence: str = SENTENCE,
    word: WordLike | None = None,
    texts: int | Sequence[str] = TEXTS,
    draws: int = DRAWS,
    on: str | int | None = None,
    ball: bool = False,
    radius: float | None = None,
    steps: int = STEPS,
    seed: int = 0,
    progress: bool = False,
) -> LengthCurve:
    """Return how far one word of a sentence moves a model, against the length of the text around the sentence.

    By default the mean absolute change over random words of the vocabulary in its place: the same words for every
    length and text, each evaluated by a plain pass over the rewritten text.

    Parameters
    ----------
    model
    lengths
        Numbers of tokens, special ones included.
    sentence, word
        The sentence, and its word that is replaced, as a position or as it is written; default: the last one.
    texts
        The texts whose words surround the sentence, half before and half after; or a number of film reviews. Texts
        that are too short for the largest length are left out.
    draws
        Number of words that replace it.
    on
        What the change is measured on, as for `Model.profile`; default: class, next or pooled, whichever the model has
        first.
    ball
        Whether the embedding of the word moves in a ball instead, and the largest change is searched; `radius` and
        `steps` are those of `wordsway.models.ball.ball_profile`.
    seed
        Chooses the reviews, the words, and the starts of a search.
    progress
        Show a bar on stderr when it takes longer than two seconds.

    Notes
    -----
    draws + 1 passes for each length and text; in a ball `steps` forward and backward passes. The two differ: inside
    the ball are embeddings that no word has and to which attention turns at any length, so that its exponent says
    nothing about real words.
    """
    sizes = check_lengths(model, lengths, sentence)
    count = check_size(draws, "draws")
    read = model.read(sentence)
    chosen = read.scored[-1] if word is None else read.word(word)
    output = output_named(model, default_output(model.network) if on is None else on)
    words = _words(model, chosen, count, seed) if not ball else []
    surroundings = _surroundings(model, texts, sizes[-1], seed)
    changes = np.empty((len(sizes), len(surroundings), max(len(words), 1)))
    bar = tqdm(total=changes[..., 0].size, desc="texts", delay=2, leave=False, disable=not progress)
    for place, n in enumerate(sizes):
        for number, around in enumerate(surroundings):
            text, moved = grown(model, read, chosen, around, n)
            if ball:
                options: dict[str, Any] = {"on": output, "radius": radius, "steps": steps, "seed": seed + number}
                changes[place, number] = float(ball_profile(model, text, [moved], **options).values[0])
            else:
                changes[place, number] = _effects(model, text, moved, words, output)
            bar.update()
    bar.close()
    return LengthCurve.of(model.name, sizes, changes, not ball, output.name)


def _words(model: Model, word: Word, count: int, seed: int) -> list[str]:
    words = random_words(model, seed).written(word.text, 0, count)
    if len(words) < count:
        raise InputError(f"draws must be at most {len(words)}, the words of the vocabulary, got {count}: draw fewer")
    return words


def _effects(model: Model, text: Text, word: Word, words: Sequence[str], output: Output) -> NDArray[np.float64]:
    effects = Rewriter(model, text, output).effects([Rewrite(word, one) for one in words])
    return np.asarray(effects.values.abs().cpu().numpy(), np.float64)


def check_lengths(model: Model, lengths: Sequence[int], sentence: str) -> tuple[int, ...]:
    """The lengths in order, each once, where the sentence fits into all and the model reads them."""
    check_several(lengths, "lengths")
    sizes = tuple(sorted({check_size(n, "lengths") for n in lengths}))
    if not sizes:
        raise InputError("lengths must name at least one number of tokens, got none")
    shortest = len(model.read(sentence).ids)
    if sizes[0] < shortest:
        raise InputError(f"lengths must be at least {shortest}, the tokens of the sentence, got {sizes[0]}")
    if sizes[-1] > model.positions:
        raise InputError(f"lengths must be at most {model.positions}, which {model.name} reads, got {sizes[-1]}")
    return sizes


def map_curves(
    lengths: Sequence[int], d: int, texts: int = TEXTS, seed: int = 0, draws: int | None = None
) -> Iterator[LengthCurve]:
    """The same for random features and random attention, at Gaussian contexts of the same sizes.

    The word is replaced by other Gaussian words, the same ones for every length and context, or moves in a ball where
    `draws` is None.
    """
    sizes = tuple(sorted(set(lengths)))
    others = None if draws is None else gaussian_context(draws, d, derive(seed, "words"))

    def changes(name: str, n: int, seed: int) -> list[float]:
        context = gaussian_context(n, d, seed)
        response = map_named(name).respond(context, 0, MapOptions(), seed)
        if others is None:
            return [response_sensitivity(response, 0, ceiling=None, seed=seed).value]
        values: list[float] = response.change(others - context[0], gradient=False)[0].tolist()
        return values

    for name in MAPS:
        measured = np.array([[changes(name, n, number) for number in range(seed, seed + texts)] for n in sizes])
        yield LengthCurve.of(name, sizes, measured, draws is not None)


# Texts that grow around a sentence


@dataclass(frozen=True)
class _Surrounding:
    """A text, and where each of its tokens ends."""

    text: str
    ends: tuple[int, ...]


def _surroundings(model: Model, texts: int | Sequence[str], n: int, seed: int) -> list[_Surrounding]:
    """The texts around the sentence, each with n tokens at least."""
    if isinstance(texts, Sequence):
        check_several(texts, "texts")
        split = [_split(model, text) for text in texts]
        long = [one for one in split if len(one.ends) >= n]
        if not long:
            most = max((len(one.ends) for one in split), default=0)
            raise InputError(f"some text must have {n} tokens, the largest length, got at most {most}: use fewer")
        return long
    reviews = load_reviews(model.texts)
    return [_split(model, text) for text in reviews.texts(reviews.draw(check_size(texts, "texts"), n, seed))]


def _split(model: Model, text: str) -> _Surrounding:
    if not isinstance(text, str):
        raise InputError(f"texts must be a number or strings, got {type(text).__name__}")
    offsets = model.texts.backend.encode(text, add_special_tokens=False).offsets
    return _Surrounding(text, tuple(end for _, end in offsets))


def grown(model: Model, read: Text, word: Word, around: _Surrounding, n: int) -> tuple[Text, Word]:
    """The sentence inside the first words of another text, n tokens in all, and its word there.

    About half of the other tokens come before it, up to the end of a word. The text ends where it has n tokens, which
    may be inside a word; where the tokenizer allows no such end, it has a few tokens less.
    """
    extra = n - len(read.ids)
    before = max((end for end in around.ends[: extra // 2] if around.text[end : end + 1].isspace()), default=0)
    opening = around.text[:before].strip()
    opening += " " if opening else ""
    head = opening + read.text
    left = n - len(model.tokens(head))
    ends = [end for end in around.ends if end > before]
    # a token more or less where the two texts meet
    for end in [ends[place] for place in range(min(left + _NEARBY, len(ends)) - 1, max(left - _NEARBY, 0) - 1, -1)]:
        closing = around.text[before:end].strip()
        whole = f"{head} {closing}" if closing else head
        if len(model.tokens(whole)) <= n:
            break
    else:
        whole = head
    text = model.read(whole)
    return text, next(one for one in text.scored if one.start <= word.start + len(opening) < one.end)
