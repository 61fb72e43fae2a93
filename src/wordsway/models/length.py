"""Does a model still respond to one word when the text gets long? A sentence inside more and more of a review."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from wordsway.checks import check_several, check_size
from wordsway.contexts import gaussian_context
from wordsway.errors import InputError
from wordsway.maps.catalogue import MapOptions, map_named
from wordsway.models.ball import STEPS, ball_profile
from wordsway.models.words import Text, Word, WordLike
from wordsway.records import Record
from wordsway.sensitivity import response_sensitivity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from wordsway.models.model import Model

SENTENCE = "I love her smile"
LENGTHS = (16, 32, 64, 128, 256)
TEXTS = 3
MAPS = ("rf", "raf")


@dataclass(frozen=True, eq=False, repr=False)
class LengthCurve(Record):
    """Word sensitivity against the length of the context.

    Attributes
    ----------
    name : str
        The model, or a map of the paper at the same sizes.
    lengths : tuple of int
        Tokens of the context.
    values : tuple of tuple of float
        One for each length and text.
    """

    summary_fields = ("name", "lengths", "exponent")

    name: str
    lengths: tuple[int, ...]
    values: tuple[tuple[float, ...], ...]

    @property
    def mean(self) -> list[float]:
        return [statistics.fmean(values) for values in self.values]

    @property
    def deviation(self) -> list[float]:
        return [statistics.stdev(values) if len(values) > 1 else 0.0 for values in self.values]

    @property
    def exponent(self) -> float | None:
        """The slope of log S against log n: -1/2 where one word is forgotten, 0 where its effect does not fade."""
        if len(self.lengths) < 2 or min(self.mean) <= 0:  # a word that moves nothing has no power law
            return None
        return float(np.polyfit(np.log(self.lengths), np.log(self.mean), 1)[0])

    def rows(self) -> list[dict[str, Any]]:
        """Return plain values, one dictionary per length."""
        rows = zip(self.lengths, self.mean, self.deviation, self.values, strict=True)
        return [
            {"model": self.name, "n": n, "sensitivity": mean, "deviation": deviation, "texts": len(values)}
            for n, mean, deviation, values in rows
        ]

    def to_dict(self) -> dict[str, Any]:
        return {"model": self.name, "exponent": self.exponent, "lengths": self.rows()}

    def draw(self, ax: Axes) -> None:
        ax.errorbar(self.lengths, self.mean, self.deviation, fmt="o-", label=self.name)
        ax.set(xscale="log", yscale="log", xlabel="tokens", ylabel="sensitivity")
        ax.legend()


def length_curve(
    model: Model,
    lengths: Sequence[int] = LENGTHS,
    *,
    sentence: str = SENTENCE,
    word: WordLike | None = None,
    texts: int = TEXTS,
    on: str | int = "last",
    radius: float | None = None,
    steps: int = STEPS,
    seed: int = 0,
    progress: bool = False,
) -> LengthCurve:
    """Return the word sensitivity of a model against the length of the text around a sentence.

    Parameters
    ----------
    model
    lengths
        Numbers of tokens, special ones included.
    sentence, word
        The sentence, and its word that moves, as a position or as it is written; default: the last one.
    texts
        Number of film reviews whose words surround it, half before and half after.
    on, radius, steps, seed
        As for `Model.profile`; the seed also chooses the reviews.

    Notes
    -----
    `steps` forward and backward passes for each length and text.
    """
    sizes = check_lengths(model, lengths, sentence)
    read = model.read(sentence)
    chosen = read.scored[-1] if word is None else read.word(word)
    around = model.review_tokens(check_size(texts, "texts"), min(sizes[-1], model.positions), seed).tolist()
    opening = _opening(read)
    values = []
    for n in tqdm(sizes, desc="lengths", delay=2, leave=False, disable=not progress):
        row = []
        for number, tokens in enumerate(around):
            text, moved = _grown(read, chosen, tokens[opening:], n)
            measured = ball_profile(model, text, [moved], on=on, radius=radius, steps=steps, seed=seed + number)
            row.append(float(measured.values[0]))
        values.append(tuple(row))
    return LengthCurve(model.name, sizes, tuple(values))


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


def map_curves(lengths: Sequence[int], d: int, texts: int = TEXTS, seed: int = 0) -> Iterator[LengthCurve]:
    """The same for random features and random attention, at Gaussian contexts of the same sizes."""
    sizes = tuple(sorted(set(lengths)))

    def value(name: str, n: int, seed: int) -> float:
        response = map_named(name).respond(gaussian_context(n, d, seed), 0, MapOptions(), seed)
        return response_sensitivity(response, 0, ceiling=None, seed=seed).value

    for name in MAPS:
        rows = (tuple(value(name, n, number) for number in range(seed, seed + texts)) for n in sizes)
        yield LengthCurve(name, sizes, tuple(rows))


def _opening(text: Text) -> int:
    """How many special tokens open a text."""
    return next(place for place, word in enumerate(text.words) if not word.special)


def _grown(text: Text, word: Word, around: list[int], n: int) -> tuple[Text, Word]:
    """The sentence with tokens of another text before and after it, n in all, and its word at its new place."""
    opening = _opening(text)
    closing = text.scored[-1].tokens[-1] + 1
    extra = n - len(text.ids)
    before = extra // 2
    sentence = (*around[:before], *text.ids[opening:closing], *around[before:extra])
    moved = replace(word, tokens=tuple(place + before for place in word.tokens))
    return Text(text.text, (*text.ids[:opening], *sentence, *text.ids[closing:]), (moved,)), moved
