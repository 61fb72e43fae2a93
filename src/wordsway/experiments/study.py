"""A text in detail: its profile, replacements of its top words, and how far the first of them moves each layer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tqdm import tqdm

from wordsway.errors import InputError
from wordsway.experiments.texts import Options
from wordsway.models import words
from wordsway.models.model import Model
from wordsway.models.profile import TextProfile
from wordsway.models.swaps import Swaps
from wordsway.models.words import Word
from wordsway.records import Record

WORDS, TOP, CHECKS = 3, 3, 120  # words that get replacements, replacements of each, and candidates that are tried
STEPS = 12  # of the search at each layer


@dataclass(frozen=True, eq=False, repr=False)
class TextStudy(Record):
    """What `study_text` measures.

    Attributes
    ----------
    profile : TextProfile
    swaps : tuple of Swaps
        Of the words that move the model most; without those for which no word of the vocabulary fits.
    layers : tuple of float
        Change of the hidden state of each layer by the top word, from the input of the first one; empty by default.
    """

    profile: TextProfile
    swaps: tuple[Swaps, ...]
    layers: tuple[float, ...]

    summary_fields = ("profile", "layers")

    def to_dict(self) -> dict[str, Any]:
        swaps = [{"position": one.word.position, "swaps": one.records()} for one in self.swaps]
        return {**self.profile.to_dict(), "swaps": swaps, "layers": list(self.layers)}

    def rows(self) -> list[dict[str, Any]]:
        return self.profile.records()


def study_text(model: Model, text: str, options: Options, *, layers: bool = False, progress: bool = False) -> TextStudy:
    """Measure the words of a text, and of those that move the model most also replacements and layers."""
    profile = options.measure(model, text, progress)
    ranked = sorted((score for score in profile.scores if not score.word.special), key=lambda score: -score.value)
    log = logging.getLogger(words.__name__)
    level = log.level
    try:
        if profile.text.cut:
            log.setLevel(logging.ERROR)  # that it is cut has been logged once
        swaps = _swaps(model, text, [score.word for score in ranked[:WORDS]], options)
        by_layer = _by_layer(model, text, ranked[0].word, options, progress) if layers else ()
    finally:
        log.setLevel(level)
    return TextStudy(profile, swaps, by_layer)


def _swaps(model: Model, text: str, chosen: Sequence[Word], options: Options) -> tuple[Swaps, ...]:
    rest: dict[str, Any] = {"on": options.on, "cut": options.cut, "chat": options.chat, "seed": options.seed}
    found = []
    for word in chosen:
        assert word.position is not None
        try:
            found.append(model.swaps(text, word.position, top=TOP, checks=CHECKS, **rest))
        except InputError:  # no word of the vocabulary fits there
            continue
    return tuple(found)


def _by_layer(model: Model, text: str, word: Word, options: Options, progress: bool) -> tuple[float, ...]:
    assert word.position is not None
    moved = replace(options, words=(word.position,), special=False, steps=STEPS)
    layers = tqdm(range(model.layers + 1), desc="layers", delay=2, leave=False, disable=not progress)
    return tuple(replace(moved, on=f"layer {layer}").measure(model, text).best.value for layer in layers)
