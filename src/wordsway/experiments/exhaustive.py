"""Exhaustive flips of one text, word by word, kept in a store: an interrupt loses one word at most."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from wordsway.experiments.experiment import Trial, canonical, canonical_record
from wordsway.experiments.store import DONE, Row, Store, versions
from wordsway.experiments.texts import weights_print
from wordsway.memory import ResourceUsage
from wordsway.models.candidates import candidates_named
from wordsway.models.flips import Flips, WordFlips
from wordsway.models.model import Model
from wordsway.models.words import Text, Word, WordLike

EXPERIMENT, VERSION = "flips", 1


def exhaustive_flips(
    model: Model,
    text: str,
    store: Store,
    *,
    candidates: str = "near:30",
    words: Sequence[WordLike] | None = None,
    pair: str | None = None,
    cut: bool = False,
    chat: bool = False,
    progress: bool = False,
    **directed: Any,
) -> Flips:
    """Return what ``model.flips(text, exhaustive=True)`` does, one trial per word, stored as soon as it is tried.

    `directed` are `on`, `label` and `answers`. The text itself is evaluated for each word.

    Raises
    ------
    KeyboardInterrupt
        When interrupted; its message states how many words are stored. The same call continues where it stopped.
    """
    read = model.read(text, pair=pair, cut=cut, chat=chat)
    chosen = list(dict.fromkeys(read.chosen(words)))
    counts = {word: len(candidates_named(model, read, candidates).of(word)) for word in chosen}
    replaced = [word for word in chosen if counts[word]]
    if not replaced:  # raises, and states why
        return model.flips(read, candidates=candidates, words=words, **directed)
    path = Path(candidates).expanduser()
    shared = {
        **directed,
        "answers": json.dumps(directed.get("answers")),
        "model": model.name,
        "weights": weights_print(model),
        "candidates": candidates,
        "listed": hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None,
        "text": text,
        "pair": pair,
        "cut": cut,
        "chat": chat,
    }
    parts: dict[Word, Flips] = {}
    bar = tqdm(total=sum(counts.values()), desc="candidates", delay=2, leave=False, disable=not progress)
    try:
        for word in replaced:
            trial = Trial(EXPERIMENT, VERSION, canonical({**shared, "position": word.position}), 0)
            if trial in store.finished(EXPERIMENT, VERSION):
                (known,) = store.records([trial])
                parts[word] = _restored(known.record, read, word)
            else:
                part = model.flips(read, candidates=candidates, words=[word], exhaustive=True, **directed)
                cost = (part.cost.dtype, part.cost.seconds, part.cost.peak_mb, json.dumps(versions()), platform.node())
                store.add(Row(trial, DONE, canonical_record(part), None, *cost))
                parts[word] = part
            bar.update(counts[word])
    except KeyboardInterrupt:
        stored = f"{len(parts)} of {len(replaced)} words are stored"
        raise KeyboardInterrupt(f"interrupted: {stored}, run the same command again to continue") from None
    finally:
        bar.close()
    return _joined(parts, chosen)


def _restored(stored: Mapping[str, Any], text: Text, word: Word) -> Flips:
    """The record of one word from what is stored."""
    (row,) = stored["words"]
    cost = ResourceUsage(**{name: stored[name] for name in ResourceUsage().to_dict() if name in stored})
    plain = (
        "model",
        "on",
        "candidates",
        "verdict",
        "replacement",
        "before",
        "after",
        "margin",
        "tried",
        "total",
        "passes",
    )
    return Flips(
        text=text,
        word=word if stored["flip"] else None,
        classes=(stored["class_before"], stored["class_after"])[: 1 + stored["flip"]],
        nearest=(word, stored["nearest"]["replacement"]),
        words=(WordFlips(word, row["candidates"], row["tried"], row["flips"]),),
        cost=cost,
        **{name: stored[name] for name in plain},
    )


def _joined(parts: Mapping[Word, Flips], chosen: Sequence[Word]) -> Flips:
    """The record of all words: the replacement with the smallest margin stands for the text."""
    every = list(parts.values())
    seconds = [one.cost.seconds for one in every]
    best = min(every, key=lambda one: one.margin)
    passes = sum(one.passes for one in every)
    return replace(
        best,
        words=tuple(parts[word].words[0] if word in parts else WordFlips(word, 0, 0, 0) for word in chosen),
        tried=sum(one.tried for one in every),
        total=sum(one.total for one in every),
        passes=passes,
        cost=replace(best.cost, seconds=sum(seconds), evaluations=passes),
    )
