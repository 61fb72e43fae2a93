"""Can any single word flip the decision of a model? One verdict per text, over a declared set of candidates."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm.auto import tqdm

from wordsway.checks import check_size
from wordsway.errors import InputError
from wordsway.memory import ResourceUsage
from wordsway.models.candidates import candidates_named
from wordsway.models.outputs import chosen_output, decision_name, where_it_decides
from wordsway.models.rewrites import Rewrite, Rewriter
from wordsway.models.words import Text, Word, WordLike
from wordsway.records import Record

if TYPE_CHECKING:
    from wordsway.models.model import Model

FLIPS, SAFE, NOT_FOUND = "flips", "safe", "not found"
_FIRST = 2  # candidates of the first batch, where 30 of 51 reviews flip; each later one is twice as large
_LARGEST = 256
_LONG = 10  # seconds


@dataclass(frozen=True)
class WordFlips:
    """A word: how many of its candidates were tried, and how many of these flip the decision."""

    word: Word
    candidates: int
    tried: int
    flips: int

    @property
    def low(self) -> float | None:
        """The share of its candidates that flip the decision, at least: those that were found."""
        return self.flips / self.candidates if self.candidates else None

    @property
    def high(self) -> float | None:
        """The same at most: also all that were not tried. It is the lower end where all were."""
        return (self.flips + self.candidates - self.tried) / self.candidates if self.candidates else None


@dataclass(frozen=True, eq=False, repr=False)
class Flips(Record):
    """Whether a change of one word flips the decision of a model.

    Attributes
    ----------
    model : str
    text : Text
    on : str
        The prediction that may flip.
    candidates : str
        The declared set of replacements.
    verdict : {"flips", "safe", "not found"}
        A flip that was found; no flip although every candidate was tried, which proves that there is none in this set;
        or none among those that were tried, which proves nothing.
    word : Word or None
        The word whose replacement flips the decision.
    replacement : str or None
        What is written in its place; "" deletes it.
    classes : tuple of str
        The decision before, and after the replacement where there is one.
    before, after : float
        Probability of the decision before; for the text, and after the replacement (of the candidate that came nearest
        to a flip where there is none). Of several labels it is that of the label which changes, or comes nearest to it.
    nearest : tuple of (Word, str)
        The candidate with the smallest margin that was tried.
    margin : float
        How far the decision is from another one with that candidate, in logits; below 0 it has flipped.
    words : tuple of WordFlips
    tried, total : int
        Candidates that were tried, and all of them.
    passes : int
        Texts that were evaluated, the text itself included.
    cost : ResourceUsage
    """

    summary_fields = ("model", "verdict", "candidates", "tried", "total", "replacement")

    model: str
    text: Text
    on: str
    candidates: str
    verdict: str
    word: Word | None
    replacement: str | None
    classes: tuple[str, ...]
    before: float
    after: float
    nearest: tuple[Word, str]
    margin: float
    words: tuple[WordFlips, ...]
    tried: int
    total: int
    passes: int
    cost: ResourceUsage

    @property
    def flip(self) -> bool:
        return self.verdict == FLIPS

    def rows(self) -> list[dict[str, Any]]:
        """Return plain values, one dictionary per word."""
        return [
            {
                "position": one.word.position,
                "word": one.word.text,
                "candidates": one.candidates,
                "tried": one.tried,
                "flips": one.flips,
                "share": one.flips / one.tried if one.tried else None,
                "low": one.low,
                "high": one.high,
            }
            for one in self.words
        ]

    def to_dict(self) -> dict[str, Any]:
        word, replacement = self.nearest
        return {
            "model": self.model,
            "text": self.text.text,
            "on": self.on,
            "verdict": self.verdict,
            "flip": self.flip,
            "word": None if self.word is None else self.word.text,
            "position": None if self.word is None else self.word.position,
            "replacement": self.replacement,
            "before": self.before,
            "after": self.after,
            "class_before": self.classes[0],
            "class_after": self.classes[-1],
            "nearest": {"word": word.text, "position": word.position, "replacement": replacement},
            "margin": self.margin,
            "candidates": self.candidates,
            "tried": self.tried,
            "total": self.total,
            "passes": self.passes,
            "words": self.rows(),
            **self.cost.to_dict(),
        }


def flips(
    model: Model,
    text: str | Text,
    *,
    candidates: str = "near:30",
    words: Sequence[WordLike] | None = None,
    on: str | None = None,
    label: str | int | None = None,
    answers: Sequence[str] | None = None,
    pair: str | None = None,
    budget: int | None = None,
    exhaustive: bool = False,
    cut: bool = False,
    chat: bool = False,
    progress: bool = False,
) -> Flips:
    """Return whether replacing one word of a text flips the decision of a model.

    Parameters
    ----------
    model, text
    candidates
        The replacements that are tried for each word: ``"near:K"``, the K words of the vocabulary with the nearest
        embeddings; ``"vocabulary"``; ``"mask"``; ``"delete"``; or a file of words that may replace each other.
    words
        The words that may be replaced, as positions or as they are written; default: all of them.
    on
        The prediction: ``"class"`` or ``"next"``; default: the one that the model makes.
    label
        A class: the decision is then whether the model predicts it. Default: which class is predicted.
    answers, pair
        As for `profile`.
    budget
        Number of candidates to try; default: all of them.
    exhaustive
        Whether to continue after the first flip, so that the share of flips is known for each word.
    cut, chat
        As for `Model.read`.
    progress
        Show a bar on stderr when it takes longer than two seconds; before, print how long it will take where that is
        longer than ten.

    Notes
    -----
    Every candidate is evaluated by a plain pass over the rewritten text. They are tried in the order that the gradient
    of the margin in the embeddings promises, so that a flip is found early; that order does not change the verdict
    where all are tried.
    """
    limit = None if budget is None else check_size(budget, "budget")
    read = model.read(text, pair=pair, cut=cut, chat=chat)
    chosen = read.chosen(words)
    output = chosen_output(model, on, label, answers, None, chat, read)
    if not output.decides:
        remedy = where_it_decides(model.network)
        raise InputError(f"a flip needs a model that decides, got {model.name} on {output.name}: {remedy}")
    with ResourceUsage() as usage:
        declared = candidates_named(model, read, candidates)
        rewrites = [Rewrite(word, one) for word in chosen for one in declared.of(word)]
        if not rewrites:
            raise InputError(f"some word of the text must have a candidate in {declared.name}, got none: use near:30")
        several = len(rewrites) > 1
        rewriter = Rewriter(model, read, output, steep=several)
        order = _promising(rewriter, rewrites) if several else [0]
        margins = np.full(len(rewrites), np.inf)
        after: dict[int, Any] = {}
        tried = order if limit is None else order[:limit]
        bar = tqdm(total=len(tried), desc="candidates", delay=2, leave=False, disable=not progress)
        start, size, begin = 0, _FIRST, time.monotonic()
        while start < len(tried):
            batch = tried[start : start + size]
            readings = rewriter.readings(rewriter.tokens([rewrites[place] for place in batch]))
            margins[batch] = output.margin(rewriter.before, readings).cpu().numpy()
            least = batch[int(margins[batch].argmin())]
            after[least] = readings[batch.index(least)]
            start, size = start + len(batch), min(2 * size, _LARGEST)
            bar.update(len(batch))
            if margins[least] < 0 and not exhaustive:
                break
            if size == _LARGEST > start:  # once, when batches are as large as they get
                seconds = (time.monotonic() - begin) * (len(tried) - start) / start
                if progress and seconds > _LONG:
                    bar.write(f"{len(tried):,} candidates: {seconds / 60:.1f} minutes at most", file=sys.stderr)
        bar.close()
    tried = tried[:start]
    nearest = tried[int(margins[tried].argmin())]
    flipped = bool(margins[nearest] < 0)
    before, reading = rewriter.before, after[nearest]
    place = output.decisive(before, reading)
    return Flips(
        model.name,
        read,
        output.name,
        declared.name,
        FLIPS if flipped else SAFE if len(tried) == len(rewrites) else NOT_FOUND,
        rewrites[nearest].word if flipped else None,
        rewrites[nearest].replacement if flipped else None,
        tuple(decision_name(model, output, output.decisions(one[None])[0]) for one in (before, reading)[: 1 + flipped]),
        float(output.features(before)[place]),
        float(output.features(reading)[place]),
        (rewrites[nearest].word, rewrites[nearest].replacement),
        float(margins[nearest]),
        _by_word(chosen, rewrites, tried, margins),
        len(tried),
        len(rewrites),
        rewriter.passes,
        usage.computed_in(before.dtype, before.device, rewriter.passes),
    )


def _promising(rewriter: Rewriter, rewrites: Sequence[Rewrite]) -> list[int]:
    """The order in which candidates are tried: by how far the margin falls to first order, the best of each word early.

    The gradient compares candidates of one word well and words badly, so that the two orders alternate: all candidates
    by their promise, and the best of every word, then the second of every word, and so on.
    """
    words = list({one.word.tokens: one.word for one in rewrites}.values())
    replacements = list(dict.fromkeys(one.replacement for one in rewrites))
    rises = rewriter.promises(words, replacements, rewriter.gradient(rewriter.output.margin))  # W C
    row_of = {word.tokens: row for row, word in enumerate(words)}
    column_of = {one: column for column, one in enumerate(replacements)}
    rows = np.array([row_of[one.word.tokens] for one in rewrites])
    promise = -rises[rows, [column_of[one.replacement] for one in rewrites]]  # how far the margin falls
    by_promise = np.argsort(-promise, kind="stable")
    rank = np.empty(len(rewrites), int)  # among the candidates of the same word
    for row in range(len(words)):
        mine = by_promise[rows[by_promise] == row]
        rank[mine] = np.arange(len(mine))
    by_rank = np.lexsort((-promise, rank))
    alternating = np.stack([by_promise, by_rank], 1).ravel().tolist()
    return list(dict.fromkeys(alternating))


def _by_word(
    chosen: Sequence[Word], rewrites: Sequence[Rewrite], tried: Sequence[int], margins: Any
) -> tuple[WordFlips, ...]:
    total = Counter(one.word.tokens for one in rewrites)
    counts = Counter(rewrites[place].word.tokens for place in tried)
    flipped = Counter(rewrites[place].word.tokens for place in tried if margins[place] < 0)
    return tuple(WordFlips(word, total[word.tokens], counts[word.tokens], flipped[word.tokens]) for word in chosen)
