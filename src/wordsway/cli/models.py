"""The command `models`: which models there are, and which of them can be loaded here."""

from __future__ import annotations

import importlib.util
import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from wordsway.errors import install

if TYPE_CHECKING:
    from wordsway.data.offline import OfflineFile

Json = Annotated[bool, typer.Option("--json", help="one JSON object a line, for each model")]

_YES = ("1", "ON", "YES", "TRUE")  # what huggingface_hub takes for set


@dataclass(frozen=True)
class Entry:
    """A model that can be named; `install` is the command that makes it work here, None where it does."""

    name: str | None
    about: str
    kinds: tuple[str, ...]
    installed: bool
    install: str | None
    hub_offline: bool


def models(as_json: Json = False) -> None:
    """List the models that can be named, and whether they are installed here."""
    entries = listed()
    if as_json:
        for entry in entries:
            print(json.dumps(asdict(entry)), flush=True)
        return
    _print(entries)


def listed() -> list[Entry]:
    """The offline models, and last what else may be named. Nothing is loaded: files are only looked for."""
    from wordsway.data import offline
    from wordsway.models.families import FAMILIES

    known: tuple[tuple[str, str, str, OfflineFile, tuple[str, ...]], ...] = (
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
        install = _missing(file, ("transformers", *more))
        entries.append(Entry(name, about, (kind,), install is None, install, hub))
    about = "any other: a name on the hub, a folder that transformers saved, or a GGUF file"
    install = _lacking(("transformers", "huggingface_hub"))
    return [*entries, Entry(None, about, tuple(FAMILIES), install is None, install, hub)]


def _missing(file: OfflineFile, packages: tuple[str, ...]) -> str | None:
    """The command that installs what a model lacks, or None."""
    from wordsway.data import offline
    from wordsway.errors import InputError, MissingExtra

    try:
        offline.locate(file)
    except MissingExtra:
        return file.install
    except InputError:
        return file.remedy
    return _lacking(packages)


def _lacking(packages: tuple[str, ...]) -> str | None:
    return None if all(importlib.util.find_spec(name) for name in packages) else install("models")


def _print(entries: list[Entry]) -> None:
    from rich.console import Console
    from rich.text import Text

    from wordsway import report

    console = Console(highlight=False)
    table = report.plain_table(("model", "what it is", "kind", "installed"))
    table.columns[0].no_wrap = True
    *offline, other = entries
    for entry in offline:
        state = "yes" if entry.installed else f"no: {entry.install}"
        table.add_row(Text(str(entry.name), "bold cyan"), entry.about, entry.kinds[0], Text(state))
    console.print(table)
    console.print()
    console.print(f"A name on the hub, a folder or a GGUF file works too{_state(other)}.")
    console.print(f"Attention is known of the kinds {', '.join(other.kinds)}; other kinds are measured as a whole.")


def _state(other: Entry) -> str:
    if not other.installed:
        return f", after {other.install}"
    return "; HF_HUB_OFFLINE is set, so only what is cached" if other.hub_offline else ""
