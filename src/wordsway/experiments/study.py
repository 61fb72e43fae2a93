"""A text in detail: its profile, replacements of its top words, and how far the first of them moves each layer."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from wordsway.errors import InputError
from wordsway.experiments.texts import Options
from wordsway.models.layers import LayerProfile
from wordsway.models.model import Model
from wordsway.models.profile import TextProfile
from wordsway.models.swaps import Swaps
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
    swaps = []
    for word in ranked[:WORDS]:
        with suppress(InputError):  # where no word of the vocabulary fits
            swaps.append(model.swaps(profile.text, word, top=TOP, checks=CHECKS, on=options.on, seed=options.seed))
    by_layer = None
    if layers and ranked:
        by_layer = model.layer_profile(
            profile.text, ranked[0], radius=options.radius, steps=STEPS, seed=options.seed, progress=progress
        )
    return TextStudy(profile, tuple(swaps), by_layer)
