"""The models that can be named, and whether they can be loaded here."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass

from wordsway.data import offline
from wordsway.errors import InputError, MissingExtra, install
from wordsway.models.families import FAMILIES

_YES = ("1", "ON", "YES", "TRUE")  # what huggingface_hub takes for set


@dataclass(frozen=True)
class KnownModel:
    """A model that can be named.

    Attributes
    ----------
    name : str or None
        None for all models that are not listed by name.
    about : str
    kinds : tuple of str
        Model types whose layers are known.
    installed : bool
    install : str or None
        The command that makes it work here; None where it does.
    hub_offline : bool
        Whether HF_HUB_OFFLINE is set.
    """

    name: str | None
    about: str
    kinds: tuple[str, ...]
    installed: bool
    install: str | None
    hub_offline: bool


def known_models() -> list[KnownModel]:
    """Return the offline models, and last an entry for all others. Nothing is loaded: files are only looked for."""
    known: tuple[tuple[str, str, str, offline.OfflineFile, tuple[str, ...]], ...] = (
        ("minilm", "all-MiniLM-L6-v2, an encoder of sentences: 6 layers, d = 384", "bert", offline.WEIGHTS, ()),
        (
            "smollm2",
            "SmolLM2-135M-Instruct, a decoder for chats: 30 layers, d = 576",
            "llama",
            offline.DECODER,
            ("gguf", "accelerate"),
        ),
        ("gpt2-random", "a GPT-2 with random weights: 12 layers, d = 768", "gpt2", offline.TOKENIZER, ()),
    )
    hub = os.environ.get("HF_HUB_OFFLINE", "").upper() in _YES
    entries = []
    for name, about, kind, file, more in known:
        command = _missing(file, ("transformers", *more))
        entries.append(KnownModel(name, about, (kind,), command is None, command, hub))
    about = "any other: a name on the hub, a folder that transformers saved, or a GGUF file"
    command = _lacking(("transformers", "huggingface_hub"))
    return [*entries, KnownModel(None, about, tuple(FAMILIES), command is None, command, hub)]


def _missing(file: offline.OfflineFile, packages: tuple[str, ...]) -> str | None:
    """Return the command that installs what a model lacks, or None."""
    try:
        offline.locate(file)
    except MissingExtra:
        return file.install
    except InputError:
        return file.remedy
    return _lacking(packages)


def _lacking(packages: tuple[str, ...]) -> str | None:
    return None if all(importlib.util.find_spec(name) for name in packages) else install("models")
