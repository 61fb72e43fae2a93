"""Texts measured in detail, and many texts whose profiles are kept in a store: what is stored is not measured again."""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from wordsway.checks import check_choice, check_seed, check_size
from wordsway.errors import InputError, NumericalError
from wordsway.experiments.experiment import Trial, canonical, canonical_record
from wordsway.experiments.store import DONE, Row, Store, versions
from wordsway.models.ball import MODES, SEARCH, STEPS
from wordsway.models.layers import LayerProfile
from wordsway.models.model import Model
from wordsway.models.outputs import Output, chosen_output
from wordsway.models.profile import TextProfile
from wordsway.models.swaps import Swaps
from wordsway.records import Record

EXPERIMENT, VERSION = "text-profile", 6
_SAMPLES = 256  # entries of each weight that distinguish two models
WORDS, TOP, CHECKS = 3, 3, 120  # of a study: words that get replacements, replacements of each, candidates tried
LAYER_STEPS = 12  # of the search at each layer


@dataclass(frozen=True)
class Options:
    """How texts are measured; see `Model.profile`. What does not depend on the model is checked here."""

    words: tuple[int | str, ...] | None = None
    on: str | None = None
    label: str | None = None
    answers: tuple[str, ...] | None = None
    target: str | None = None
    pair: str | None = None
    budget: int | None = None
    ball: bool = False
    radius: float | None = None
    mode: str = SEARCH
    steps: int = STEPS
    special: bool = False
    cut: bool = False
    chat: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, MODES)
        if self.radius is not None and not (math.isfinite(self.radius) and self.radius > 0):
            default = "leave it out for the norm of each word's embedding"
            raise InputError(f"radius must be a number > 0, got {self.radius:g}: {default}")
        check_size(self.steps, "steps")
        if self.budget is not None:
            check_size(self.budget, "budget")
        check_seed(self.seed)

    def checked(self, model: Model) -> Options:
        """Return the options with the full name of the output, if the model has it and, with `chat`, a template."""
        model.read("a", chat=self.chat)
        output = self.output(model)
        return self if self.answers or self.target else replace(self, on=output.name)

    def output(self, model: Model) -> Output:
        """What is measured."""
        return chosen_output(model, self.on, self.label, self.answers, self.target, self.chat)

    def measure(self, model: Model, text: str, progress: bool = False) -> TextProfile:
        """Measure one text."""
        return model.profile(text, progress=progress, **asdict(self))


@dataclass(frozen=True, eq=False, repr=False)
class TextStudy(Record):
    """What `study_text` measures.

    Attributes
    ----------
    profile : TextProfile
    swaps : tuple of Swaps
        Of the words with the largest typical effects; without those for which no word of the vocabulary fits.
    layers : LayerProfile or None
        How far the top word moves the hidden state of each layer, where that was measured.
    """

    profile: TextProfile
    swaps: tuple[Swaps, ...]
    layers: LayerProfile | None = None

    summary_fields = ("profile",)

    def to_dict(self) -> dict[str, Any]:
        swaps = [{"position": one.swaps[0].replaced.position, "swaps": one.rows()} for one in self.swaps]
        return {**self.profile.to_dict(), "swaps": swaps, "layers": None if self.layers is None else self.layers.rows()}

    def rows(self) -> list[dict[str, Any]]:
        return self.profile.rows()


def study_text(model: Model, text: str, options: Options, *, layers: bool = False, progress: bool = False) -> TextStudy:
    """Measure the words of a text, and of those with the largest typical effects also replacements and layers."""
    profile = options.measure(model, text, progress)
    ranked = [one.word for one in sorted(profile.words, key=lambda one: -(one.typical or 0.0)) if not one.word.special]
    swaps, output = [], options.output(model)
    for word in ranked[:WORDS]:
        with suppress(InputError):  # where no word of the vocabulary fits
            swaps.append(model.swaps(profile.text, word, top=TOP, checks=CHECKS, on=output, seed=options.seed))
    by_layer = None
    if layers and ranked:
        by_layer = model.layer_profile(
            profile.text, ranked[0], radius=options.radius, steps=LAYER_STEPS, seed=options.seed, progress=progress
        )
    return TextStudy(profile, tuple(swaps), by_layer)


def profile_texts(
    model: Model, texts: Sequence[str], options: Options, store: Store
) -> Iterator[tuple[TextProfile, bool] | InputError | NumericalError]:
    """Yield the profile of each text with whether it was in the store, or the error where it cannot be measured.

    Each profile is stored as soon as it is measured. It is identified by the text, the name and weights of the model,
    and all options.

    Raises
    ------
    StoreError
        Where the store cannot be written.
    KeyboardInterrupt
        When interrupted; its message states what is stored. The same call continues where it stopped.
    """
    shared = {**asdict(options), "model": model.name, "weights": weights_print(model)}
    del shared["seed"]
    shared |= {name: json.dumps(shared[name]) for name in ("words", "answers") if shared[name] is not None}
    trials = list(store.finished(EXPERIMENT, VERSION))
    known = dict(zip(trials, (row.record for row in store.records(trials)), strict=True))
    done = 0
    try:
        for text in texts:
            result: tuple[TextProfile, bool] | InputError | NumericalError
            try:
                trial = Trial(EXPERIMENT, VERSION, canonical({**shared, "text": text}), options.seed)
                if trial in known:
                    read = model.read(text, cut=options.cut, chat=options.chat)
                    words = read.chosen(options.words, options.special)
                    result = TextProfile.from_dict(known[trial], read, words), True
                else:
                    result = options.measure(model, text), False
                    known[trial] = _add(store, trial, result[0])
                done += 1
            except (InputError, NumericalError) as error:
                result = error
            yield result
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted: {done} of {len(texts)} texts are stored, run the same command again to continue"
        ) from None


def weights_print(model: Model) -> str:
    """Return a fingerprint of a model: its tokenizer and dtype, and some entries of each weight."""
    digest = hashlib.sha256(b"" if model.tokenizer is None else model.tokenizer.digest.encode())
    if model.dtype != torch.float32:  # weights may be equal where what is computed from them differs
        digest.update(str(model.dtype).encode())
    for name, weight in model.network.named_parameters():
        flat = weight.detach().flatten()
        some = flat[:: max(1, len(flat) // _SAMPLES)].to("cpu", torch.float64)
        digest.update(f"{name} {tuple(weight.shape)}".encode() + some.numpy().tobytes())
    return digest.hexdigest()[:16]


def _add(store: Store, trial: Trial, profile: TextProfile) -> dict[str, Any]:
    """Store a profile, and return it as it can be read again."""
    record, cost = canonical_record(profile), profile.cost
    usage = (cost.dtype, cost.seconds, cost.peak_mb, json.dumps(versions()), platform.node())
    store.add(Row(trial, DONE, record, None, *usage))
    restored: dict[str, Any] = json.loads(record)
    return restored
