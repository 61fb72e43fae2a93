"""The models that can be named, and whether they can be loaded here."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wordsway.data import offline
from wordsway.errors import InputError, MissingExtra, install

_YES = ("1", "ON", "YES", "TRUE")  # what huggingface_hub takes for set


@dataclass(frozen=True)
class KnownModel:
    """A model that can be named."""

    name: str | None  # None for all models that are not listed by name
    about: str
    kinds: tuple[str, ...]  # model types whose layers are known
    installed: bool
    install: str | None  # the command that makes it work here; None where it does
    hub_offline: bool  # whether HF_HUB_OFFLINE is set


def known_models(families: Sequence[str]) -> list[KnownModel]:
    """Return the offline models, and last an entry for all others, with the types of models whose layers are known.

    Nothing is loaded: files are only looked for.
    """
    encoder = "all-MiniLM-L6-v2, an encoder of sentences: 6 layers, d = 384"
    classifier = "minilm with a linear head for sentiment, fitted to reviews at first use"
    large = "all-mpnet-base-v2, an encoder of sentences: 12 layers, d = 768"
    decoder = "SmolLM2-135M-Instruct, a decoder for chats: 30 layers, d = 576"
    random = "a GPT-2 with random weights: 12 layers, d = 768"
    other = "any other: a name on the hub, a folder that transformers saved, or a GGUF file"
    return [
        _entry("minilm", encoder, ["bert"], offline.WEIGHTS),
        _entry("minilm-sentiment", classifier, ["bert"], offline.WEIGHTS),
        _entry("mpnet", large, ["mpnet"], offline.MPNET[-1]),
        _entry("smollm2", decoder, ["llama"], offline.DECODER, "gguf", "accelerate"),
        _entry("gpt2-random", random, ["gpt2"], offline.TOKENIZER),
        _entry(None, other, families, None, "huggingface_hub"),
    ]


def _entry(
    name: str | None,
    about: str,
    kinds: Iterable[str],
    file: offline.OfflineFile | offline.DownloadedFile | None,
    *packages: str,
) -> KnownModel:
    complete = all(importlib.util.find_spec(package) for package in ("transformers", *packages))
    command = None if complete else install("models")
    if file is not None:
        try:
            offline.locate(file)
        except MissingExtra:
            command = file.install
        except InputError:
            command = file.remedy
    hub_offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in _YES
    return KnownModel(name, about, tuple(kinds), command is None, command, hub_offline)
