"""Word profiles of many texts, kept in a store: what is stored is not measured again."""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from wordsway.checks import check_choice, check_size
from wordsway.errors import InputError, NumericalError
from wordsway.experiments.experiment import Trial, canonical, canonical_record
from wordsway.experiments.store import DONE, Row, Store, versions
from wordsway.models.model import Model
from wordsway.models.outputs import output_named
from wordsway.models.profile import MODES, SEARCH, STEPS, TextProfile
from wordsway.models.words import Text, Word
from wordsway.seeds import check_seed

EXPERIMENT, VERSION = "text-profile", 2
_SAMPLES = 256  # entries of each weight that tell two models apart


@dataclass(frozen=True)
class Options:
    """How texts are measured; see `Model.profile`. What does not depend on the model is checked here."""

    words: tuple[int | str, ...] | None = None
    on: str = "last"
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
            default = "leave it out for the norm of each word's own"
            raise InputError(f"radius must be a number > 0, got {self.radius:g}: {default}")
        check_size(self.steps, "steps")
        check_seed(self.seed)

    def checked(self, model: Model) -> Options:
        """Return the options with the full name of the output, if the model has it and, with `chat`, a template."""
        model.read("a", chat=self.chat)
        return replace(self, on=output_named(self.on, model.layers, model.network, model.name).name)

    def measure(self, model: Model, text: str, progress: bool = False) -> TextProfile:
        """Measure one text."""
        return model.profile(text, progress=progress, **asdict(self))

    def measured(self, text: Text) -> list[Word]:
        """The words of a text that are measured, in their order."""
        if self.words is not None:
            return [text.word(word) for word in self.words]
        return list(text.words if self.special else text.scored)


@dataclass(frozen=True, eq=False)
class Profiled:
    """The profile of a text as plain values, measured or from a store.

    Attributes
    ----------
    text : Text
    words : tuple of Word
        Those that were measured.
    records : list of dict
        One record for each of them, in the same order; see `TextProfile.records`.
    shortfall : float or None
        For the fast mode; see `TextProfile`.
    stored : bool
        Whether nothing had to be measured.
    """

    text: Text
    words: tuple[Word, ...]
    records: list[dict[str, Any]]
    shortfall: float | None = None
    stored: bool = False


def plain(found: TextProfile) -> Profiled:
    """A profile as plain values."""
    return Profiled(found.text, tuple(score.word for score in found.scores), found.records(), found.shortfall)


def profile_texts(
    model: Model, texts: Sequence[str], options: Options, store: Store
) -> Iterator[Profiled | InputError | NumericalError]:
    """The profile of each text in its turn, or why it cannot be measured; each is stored as soon as it is measured.

    A text is known again by itself, the model's name and weights, and all options.

    Raises
    ------
    StoreError
        Where the store cannot be written.
    KeyboardInterrupt
        When interrupted; its text says what is stored. Asking again goes on where it stopped.
    """
    shared = {**asdict(options), "model": model.name, "weights": weights_print(model)}
    del shared["seed"]
    shared["words"] = None if options.words is None else json.dumps(options.words)
    known = _known(store)
    done = 0
    try:
        for text in texts:
            answer: Profiled | InputError | NumericalError
            try:
                trial = Trial(EXPERIMENT, VERSION, canonical({**shared, "text": text}), options.seed)
                if trial in known:
                    answer = _restored(model, text, options, known[trial])
                else:
                    found = options.measure(model, text)
                    known[trial] = _keep(store, trial, found)
                    answer = plain(found)
                done += 1
            except (InputError, NumericalError) as error:
                answer = error
            yield answer
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted: {done} of {len(texts)} texts are stored, run the same command again to go on"
        ) from None


def weights_print(model: Model) -> str:
    """A fingerprint of a model: its tokenizer, and some entries of each weight, which differ after more training."""
    digest = hashlib.sha256(b"" if model.tokenizer is None else model.tokenizer.digest.encode())
    for name, weight in model.network.named_parameters():
        flat = weight.detach().flatten()
        some = flat[:: max(1, len(flat) // _SAMPLES)].to("cpu", torch.float64)
        digest.update(f"{name} {tuple(weight.shape)}".encode() + some.numpy().tobytes())
    return digest.hexdigest()[:16]


def _known(store: Store) -> dict[Trial, dict[str, Any]]:
    """What the store has, read at once."""
    trials = list(store.finished(EXPERIMENT, VERSION))
    return dict(zip(trials, (found.record for found in store.records(trials)), strict=True))


def _keep(store: Store, trial: Trial, found: TextProfile) -> dict[str, Any]:
    record = {"profile": json.dumps(found.records(), ensure_ascii=False), "shortfall": found.shortfall}
    cost = (found.cost.dtype, found.cost.seconds, found.cost.peak_mb)
    rest = (json.dumps(versions()), platform.node())
    store.add(Row(trial, DONE, canonical_record(record), None, *cost, *rest))
    return record


def _restored(model: Model, text: str, options: Options, record: Mapping[str, Any]) -> Profiled:
    read = model.read(text, cut=options.cut, chat=options.chat)
    words = tuple(options.measured(read))
    return Profiled(read, words, json.loads(record["profile"]), record["shortfall"], stored=True)
