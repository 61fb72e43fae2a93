"""The word profile of a text: what real words do in the place of each word."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from wordsway.checks import check_size
from wordsway.errors import InputError
from wordsway.memory import ResourceUsage
from wordsway.models.ball import SEARCH, STEPS, BallProfile, ball_profile
from wordsway.models.candidates import random_words
from wordsway.models.outputs import Decision, Output, chosen_output, decision_name, wide
from wordsway.models.rewrites import Rewrite, Rewriter
from wordsway.models.words import Text, Word, WordLike
from wordsway.records import Record, html_table, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from wordsway.models.model import Model

# Tuned on 20 short reviews of minilm-sentiment: with these the word that leads has 0.99 of the effect of the best word
# on average, and in 30 repetitions no text had two different words named as its leader.
_DRAWS = 6  # replacements of every word, then of those that may lead
_BUDGET = 16  # passes per word of the text
_APART = 3.0  # standard errors of a difference from which on two words are told apart
_LISTED = 5  # replacements of each word that are kept
_PROMISING = 2  # replacements of each word that the gradient ranks first, for each direction


class Replacement(NamedTuple):
    """What one word does in the place of another: its effect, the decision with it, and whether that is a flip."""

    word: str
    effect: float
    becomes: str | None
    flip: bool | None


@dataclass(frozen=True)
class WordEffect:
    """What replacing one word of a text does.

    Attributes
    ----------
    word : Word
    masked : float or None
        The effect of the mask in its place, or of its deletion where the model has no mask; None where nothing is left.
    typical, typical_se, median : float or None
        Mean of the absolute effects of random words, its standard error, and their median; None for what is no word,
        such as a comma.
    draws : int
        Number of random words.
    tried : tuple of Replacement
        The words that were tried with the largest effects, largest first, a flip among them where one was found. What
        they become is a class, or the most likely token; None where the model does not decide.
    flip : bool or None
        Whether some word that was tried flips the decision; None where the model does not decide.
    leads : bool
        Whether it is the word with the largest typical effect, or cannot be told apart from it.
    """

    word: Word
    masked: float | None
    typical: float | None
    typical_se: float | None
    median: float | None
    draws: int
    tried: tuple[Replacement, ...]
    flip: bool | None
    leads: bool

    @property
    def worst(self) -> float | None:
        """The largest effect of a word that was tried: a lower bound, exact for its replacement."""
        return self.tried[0].effect if self.tried else None

    @property
    def replacement(self) -> str | None:
        """The word that has the largest effect."""
        return self.tried[0].word if self.tried else None

    @property
    def becomes(self) -> str | None:
        """The decision with that word."""
        return self.tried[0].becomes if self.tried else None


_STORED = ("masked", "typical", "typical_se", "median", "draws", "flip", "leads")
_EFFECTS = (*_STORED[:5], "worst", "replacement", "becomes", *_STORED[5:])
_BALL = ("sensitivity", "radius", "status", "gain", "divergence")


@dataclass(frozen=True, eq=False, repr=False)
class TextProfile(Record):
    """Which word of a text a model depends on, by what real words do in its place.

    Attributes
    ----------
    model : str
    text : Text
        The text as the model reads it, with the words that were not measured.
    on : str
        What effects are measured on.
    signed : bool
        Whether effects are signed changes of `before`; otherwise they are changes >= 0.
    decision : str or None
        The class that is predicted for the text.
    before : float or None
        Its probability, or the number that is predicted.
    words : tuple of WordEffect
    passes : int
        Texts that were evaluated.
    cost : ResourceUsage
    ball : BallProfile or None
        How far each word can move the model when its embedding moves in a ball, where that was measured.
    """

    summary_fields = ("model", "on", "decision", "before", "passes")

    model: str
    text: Text
    on: str
    signed: bool
    decision: str | None
    before: float | None
    words: tuple[WordEffect, ...]
    passes: int
    cost: ResourceUsage
    ball: BallProfile | None = None

    @property
    def leaders(self) -> list[Word]:
        """The words with the largest typical effect that cannot be told apart, largest first; often one alone."""
        leading = sorted((one for one in self.words if one.leads), key=lambda one: -(one.typical or 0.0))
        return [one.word for one in leading]

    def rows(self) -> list[dict[str, Any]]:
        """Return plain values, one dictionary per word."""
        balls = [{}] * len(self.words) if self.ball is None else self.ball.rows()
        rows = []
        for one, ball in zip(self.words, balls, strict=True):
            start, end = self.text.span(one.word)
            effects = {name: getattr(one, name) for name in _EFFECTS}
            row = {"position": one.word.position, "word": one.word.text, "tokens": len(one.word.tokens), **effects}
            row |= {name: ball[name] for name in _BALL if name in ball}
            rows.append({**row, "start": start, "end": end, "on": self.on, "model": self.model})
        return rows

    def to_dict(self) -> dict[str, Any]:
        head = {"model": self.model, "text": self.text.text, "on": self.on, "signed": self.signed}
        decided = {"decision": self.decision, "before": self.before, "cut": self.text.cut, "passes": self.passes}
        ball = (
            {} if self.ball is None else {name: self.ball.to_dict()[name] for name in ("mode", "shortfall", "margin")}
        )
        words = [
            {**row, "tried": [swap._asdict() for swap in one.tried]}
            for row, one in zip(self.rows(), self.words, strict=True)
        ]
        return {**head, **decided, **ball, "words": words, **self.cost.to_dict()}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], text: Text, words: Sequence[Word]) -> TextProfile:
        """Return the record of stored values, for the text as the model reads it; witnesses are not stored."""
        effects = tuple(
            WordEffect(
                word, tried=tuple(Replacement(**one) for one in row["tried"]), **{name: row[name] for name in _STORED}
            )
            for word, row in zip(words, stored["words"], strict=True)
        )
        cost = ResourceUsage(**{name: stored[name] for name in ResourceUsage().to_dict() if name in stored})
        plain = {name: stored[name] for name in ("model", "on", "signed", "decision", "before", "passes")}
        ball = BallProfile.from_dict(stored, text, words) if "mode" in stored else None
        return cls(text=text, words=effects, cost=cost, ball=ball, **plain)

    def draw(self, ax: Axes) -> None:
        places = range(len(self.words))
        ax.bar(places, [one.typical or 0.0 for one in self.words], yerr=[one.typical_se or 0.0 for one in self.words])
        ax.plot(places, [abs(one.worst or 0.0) for one in self.words], "C3v", label="worst found")
        ax.set_xticks(places, [one.word.text for one in self.words], rotation=60, ha="right")
        ax.set_ylabel(f"typical change of {self.on}")
        ax.legend()

    def _repr_html_(self) -> str:
        """The text in colours, the masked effect below each word, and the numbers."""
        from wordsway.models.heat import heat_strip, pieces

        notes = {
            one.word.tokens: (one.typical or 0.0, f"typical {number(one.typical, 3)}, worst {number(one.worst, 3)}")
            for one in self.words
        }
        sign = "+" if self.signed else ""
        masked = {one.word.tokens: f"{one.masked:{sign}.3g}" for one in self.words if one.masked is not None}
        strip = [
            replace(piece, below=masked.get(word.tokens, ""))
            for piece, word in zip(pieces(self.text, notes), self.text.words, strict=True)
        ]
        names = ("position", "word", "masked", "typical", "typical_se", "worst", "replacement", "flip", "leads")
        table = html_table([{name: row[name] for name in names} for row in self.rows()])
        return self._framed(heat_strip(strip) + table)


def profile(
    model: Model,
    text: str | Text,
    words: Sequence[WordLike] | None = None,
    *,
    on: str | int | None = None,
    label: str | int | None = None,
    answers: Sequence[str] | None = None,
    target: str | None = None,
    pair: str | None = None,
    budget: int | None = None,
    ball: bool = False,
    radius: float | None = None,
    mode: str = SEARCH,
    steps: int = STEPS,
    special: bool = False,
    cut: bool = False,
    chat: bool = False,
    seed: int = 0,
    progress: bool = False,
) -> TextProfile:
    """Return which words of a text a model depends on, by what real words do in their place.

    For each word: the effect of masking it, the typical effect of a random word of the vocabulary in its place (with a
    standard error), and the worst that was found. Every effect is that of a plain pass over the rewritten text.

    Parameters
    ----------
    model, text
    words
        The words to measure, as positions or as they are written; default: all of them.
    on
        What effects are measured on: ``"class"`` (the probability of the predicted class, signed), ``"next"`` (the
        distribution of the next token of a decoder, by total variation), ``"pooled"`` (the mean of the last hidden
        state, of length 1, relative), ``"last"`` (the last hidden state of all tokens, relative), a layer, ``"mask"``
        (the distribution of the token that the text has a mask for) or ``"token WORD"`` (the class of a word, given as
        it is written or by its position, of a model that classifies tokens). Default: class, next or pooled, whichever
        the model has first.
    label
        A class whose probability is followed; default: the predicted one.
    answers
        Words of one token each, such as ``["Yes", "No"]``: what is measured is the probability that a decoder continues
        the text with one of them, or that one of them is in the place of the mask, summed over its spellings. The
        decision is which of them is the most probable.
    target
        A text: what is measured is the logarithm of the probability that a decoder continues the text with it.
    pair
        A second text, for models that read two; its words are measured too.
    budget
        Passes of the model; default: 16 per word.
    ball
        Whether to measure also how far each word can move the model when its embedding moves in a ball; `radius`,
        `mode` and `steps` are those of `wordsway.models.ball.ball_profile`.
    special
        Whether special tokens, those of a chat template and blanks are listed too; they have no effects of real words.
    cut, chat
        As for `Model.read`.
    seed
        Seed of the random words, which are the same for all words of the text.
    progress
        Show a bar on stderr when it takes longer than two seconds.

    Notes
    -----
    Random words are drawn for all words, then only for those that may still lead, until one word leads by three
    standard errors of the difference or the budget is spent; words that are not told apart are all marked as leading. A
    word of several tokens is replaced as a whole, so that the number of its tokens does not count.
    """
    read = model.read(text, pair=pair, cut=cut, chat=chat)
    output = chosen_output(model, on, label, answers, target, chat, read)
    rounds = profile_rounds(model, read, words, output, budget=budget, special=special, seed=seed)
    with tqdm(desc="passes", delay=2, leave=False, disable=not progress) as bar, ResourceUsage() as usage:
        for measured in rounds:
            bar.update(measured.passes - bar.n)
    cost = usage.computed_in(wide(model.embedded([0])).dtype, model.device, measured.passes)
    in_ball = None
    if ball:
        chosen = [one.word for one in measured.words]
        in_ball = ball_profile(
            model, read, chosen, on=output, radius=radius, mode=mode, steps=steps, seed=seed, progress=progress
        )
    return replace(measured, cost=cost, ball=in_ball)


def profile_rounds(
    model: Model,
    text: Text,
    words: Sequence[WordLike] | None,
    output: Output,
    *,
    budget: int | None = None,
    special: bool = False,
    seed: int = 0,
) -> Iterator[TextProfile]:
    """Yield the profile of a text as it gets more precise: words masked, each round of random words, and the last.

    See `profile`, which returns the last one. Whoever stops iterating saves the passes of the rest.
    """
    limit = None if budget is None else check_size(budget, "budget")
    chosen = text.chosen(words, special)
    if not chosen:
        raise InputError("there must be a word to measure, got none")
    rewriter = Rewriter(model, text, output, steep=output.signed)
    study, before = _Study(rewriter, chosen, seed), rewriter.before
    decision = decision_name(model, output, output.decisions(before[None])[0]) if output.decides else None
    score = float(output.score(before, before)) if output.predicts else None
    head = (model.name, text, output.name, output.signed, decision, score)
    for _ in study.rounds(_BUDGET * len(chosen) if limit is None else limit):
        yield TextProfile(*head, study.effects(), rewriter.passes, ResourceUsage())


class _Tried(NamedTuple):
    effect: float
    margin: float
    decision: Decision | None


class _Study:
    """The effects of replacements of some words of a text, as they are tried."""

    def __init__(self, rewriter: Rewriter, words: Sequence[Word], seed: int) -> None:
        self.rewriter, self.words = rewriter, words
        self.pool = random_words(rewriter.model, seed)
        self.masked: list[float | None] = [None] * len(words)
        self.typical: list[list[float]] = [[] for _ in words]
        self.tried: list[dict[str, _Tried]] = [{} for _ in words]
        # a mark is no word: what a random word does in the place of a comma is no measure of the comma
        self.active = [
            place for place, word in enumerate(words) if not word.special and any(sign.isalnum() for sign in word.text)
        ]
        self.leading = list(self.active)

    def rounds(self, budget: int) -> Iterator[None]:
        """Mask every word, try random words until one leads or the budget is spent, and the most promising words.

        Stops after the first, after each round of random words, and at the end.
        """
        self._mask()
        yield
        promising = self._promising() if self.rewriter.output.signed and self.active else []
        while self.leading:
            start = max(len(self.typical[place]) for place in self.leading)
            if start + _DRAWS >= len(self.pool.words) and start:
                break  # the vocabulary is used up
            if start and self.rewriter.passes + _DRAWS * len(self.leading) + len(promising) > budget:
                break
            self._draw(start)
            self._keep_leading()
            if len(self.leading) == 1:
                break
            yield
        self._try(promising)
        yield

    def _mask(self) -> None:
        mask = self.rewriter.model.texts.mask or ""
        places = [place for place, word in enumerate(self.words) if not word.special]
        if not places or (not mask and len(self.rewriter.text.scored) == 1):
            return
        effects = self.rewriter.effects([Rewrite(self.words[place], mask) for place in places])
        for place, effect in zip(places, effects.values.tolist(), strict=True):
            self.masked[place] = effect

    def _draw(self, start: int) -> None:
        """Try the next random words in the place of every word that may lead."""
        drawn = [
            (place, one)
            for place in self.leading
            for one in self.pool.written(self.words[place].text, start, start + _DRAWS)
        ]
        for (place, _), effect in zip(drawn, self._try(drawn), strict=True):
            self.typical[place].append(abs(effect))

    def _try(self, pairs: Sequence[tuple[int, str]]) -> list[float]:
        if not pairs:
            return []
        effects = self.rewriter.effects([Rewrite(self.words[place], one) for place, one in pairs])
        values: list[float] = effects.values.tolist()
        margins = [math.inf] * len(pairs) if effects.margins is None else effects.margins.tolist()
        decisions: Sequence[Decision | None] = effects.decisions or [None] * len(pairs)
        for (place, one), *tried in zip(pairs, values, margins, decisions, strict=True):
            self.tried[place][one] = _Tried(*tried)
        return values

    def _keep_leading(self) -> None:
        """Keep the words that cannot be told apart from the leader, on the random words that both have."""
        values = {place: np.array(self.typical[place]) for place in self.leading}
        leader = max(self.leading, key=lambda place: float(values[place].mean()))
        # a text that has all words of a small vocabulary has fewer of them for each of its words
        shared = min(map(len, values.values()))
        self.leading = [
            place for place in self.leading if not _is_apart(values[leader][:shared] - values[place][:shared])
        ]

    def _promising(self) -> list[tuple[int, str]]:
        """The random words that the gradient ranks first for each word, in both directions."""
        words = [self.words[place] for place in self.active]
        output = self.rewriter.output
        rises = self.rewriter.promises(words, self.pool.words, self.rewriter.gradient(output.score))  # W C
        order = np.argsort(rises, axis=1)
        columns = np.concatenate([order[:, :_PROMISING], order[:, -_PROMISING:]], axis=1)
        return [
            (place, self.pool.written_one(self.words[place].text, int(column)))
            for place, row in zip(self.active, columns, strict=True)
            for column in dict.fromkeys(row.tolist())
        ]

    def effects(self) -> tuple[WordEffect, ...]:
        return tuple(self._effect(place) for place in range(len(self.words)))

    def _effect(self, place: int) -> WordEffect:
        values = np.array(self.typical[place])
        return WordEffect(
            self.words[place],
            self.masked[place],
            float(values.mean()) if len(values) else None,
            float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None,
            float(np.median(values)) if len(values) else None,
            len(values),
            self._largest(place),
            any(one.margin < 0 for one in self.tried[place].values()) if self.rewriter.output.decides else None,
            place in self.leading and len(values) > 0,
        )

    def _largest(self, place: int) -> tuple[Replacement, ...]:
        """The replacements of a word with the largest effects, and the largest one that flips."""
        model, output = self.rewriter.model, self.rewriter.output
        ordered = sorted(self.tried[place].items(), key=lambda pair: -abs(pair[1].effect))
        flips = [pair for pair in ordered if pair[1].margin < 0]
        kept = ordered[:_LISTED]
        if flips and not any(pair in kept for pair in flips):
            kept[-1] = flips[0]
        return tuple(
            Replacement(
                word,
                one.effect,
                None if one.decision is None else decision_name(model, output, one.decision),
                one.margin < 0 if output.decides else None,
            )
            for word, one in kept
        )


def _is_apart(differences: NDArray[np.float64]) -> bool:
    """Whether the mean of paired differences is above 0 by enough standard errors."""
    error = differences.std(ddof=1) / math.sqrt(len(differences)) if len(differences) > 1 else math.inf
    return bool(differences.mean() > _APART * error)
