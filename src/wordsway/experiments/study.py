"""A text in detail: its profile, replacements of its top words, and how far the first of them moves each layer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wordsway.errors import InputError
from wordsway.experiments.texts import Options
from wordsway.models import words
from wordsway.models.layers import LayerProfile
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
    layers : LayerProfile or None
        How far the top word moves the hidden state of each layer, where that was measured.
    """

    profile: TextProfile
    swaps: tuple[Swaps, ...]
    layers: LayerProfile | None = None

    summary_fields = ("profile",)

    def to_dict(self) -> dict[str, Any]:
        swaps = [{"position": one.word.position, "swaps": one.rows()} for one in self.swaps]
        return {**self.profile.to_dict(), "swaps": swaps, "layers": None if self.layers is None else self.layers.rows()}

    def rows(self) -> list[dict[str, Any]]:
        return self.profile.rows()


def study_text(model: Model, text: str, options: Options, *, layers: bool = False, progress: bool = False) -> TextStudy:
    """Measure the words of a text, and of those that move the model most also replacements and layers."""
    profile = options.measure(model, text, progress)
    order = profile.values.argsort(descending=True).tolist()
    ranked = [word for place in order if not (word := profile.words[place]).special]
    log = logging.getLogger(words.__name__)
    level = log.level
    try:
        if profile.text.cut:
            log.setLevel(logging.ERROR)  # that it is cut has been logged once
        swaps = _swaps(model, text, ranked[:WORDS], options)
        by_layer = None
        if layers and ranked[0].position is not None:
            rest: dict[str, Any] = {"radius": options.radius, "cut": options.cut, "chat": options.chat}
            place = ranked[0].position
            by_layer = model.layer_profile(text, place, steps=STEPS, seed=options.seed, progress=progress, **rest)
    finally:
        log.setLevel(level)
    return TextStudy(profile, swaps, by_layer)


def _swaps(model: Model, text: str, chosen: Sequence[Word], options: Options) -> tuple[Swaps, ...]:
    rest: dict[str, Any] = {"on": options.on, "cut": options.cut, "chat": options.chat, "seed": options.seed}
    swaps = []
    for word in chosen:
        if word.position is None:
            continue
        try:
            swaps.append(model.swaps(text, word.position, top=TOP, checks=CHECKS, **rest))
        except InputError:  # no word of the vocabulary fits there
            continue
    return tuple(swaps)
