"""Which real words move a model most in the place of a word of a text, or of any of its words."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from wordsway.checks import check_size
from wordsway.errors import InputError
from wordsway.memory import ResourceUsage
from wordsway.models.candidates import candidates_named, embeddings_of
from wordsway.models.outputs import Decision, Output, chosen_output, decision_name
from wordsway.models.rewrites import Rewrite, Rewriter
from wordsway.models.words import Text, Word, WordLike
from wordsway.records import Record
from wordsway.seeds import generator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from wordsway.models.model import Model

# Tuned on words of 12 short reviews, for which 7,000 replacements were all tried with minilm-sentiment: after 400 tries
# the largest effect is 0.984 of the largest of all on class and 0.997 on pooled; after 100, all 22 flips are found.
_LEAST, _MOST = 400, 2000  # candidates that are evaluated by default
_WORK = 1e12  # operations for which the most are evaluated: some ten seconds
_FALL = 1.25  # evaluations fall with the work to this power: long texts get fewer, short ones nearly all
# Tuned on near:300 of 36 words: 50 tries with gradients find 0.985 of the best effect, 0.98 where 24 of them have one.
_ANCHORS = 8  # candidates that are drawn and tried first, shared between the words
_STEEP = 50  # tries, the first ones, whose gradient is computed, too
_FIRST = 12  # candidates of each word that are tried next, those of which gradients promise most
_EXPLORED = 40  # one of this many tries is a candidate drawn before the ranking, which else missed 1 of 20 best ones
_ROUND, _SHARE = 10, 20  # evaluations between two rankings: this many, or one per this many known values
_WIDTH, _NOISE = 1.0, 0.3  # of the kernel exp(_WIDTH (cos - 1)) between embeddings, and its ridge
_NEAR = 3.0  # tangents at known values count exp(_NEAR cos) in a promise
_PORTION = 512  # candidates of an exhaustive search that are evaluated at once


@dataclass(frozen=True)
class Swap:
    """One replacement.

    Attributes
    ----------
    replaced : Word
    word : str
        What is written in its place.
    effect : float
        The signed change of the score where the output has one, otherwise the change.
    flip : bool or None
        Whether it flips the decision; None where the model does not decide.
    becomes : str or None
        The decision with it.
    divergence : float or None
        The Kullback-Leibler divergence of the new distribution from that of the text, in nats.
    token : int or None
        Its token, where it is one alone.
    text : str
        The whole new text.
    """

    replaced: Word
    word: str
    effect: float
    flip: bool | None
    becomes: str | None
    divergence: float | None
    token: int | None
    text: str

    @property
    def value(self) -> float:
        return abs(self.effect)


@dataclass(frozen=True, eq=False, repr=False)
class Swaps(Record):
    """The replacements that move a model most.

    Attributes
    ----------
    model : str
    text : Text
    word : Word or None
        The word that is replaced; None for all words of the text.
    on : str
        What the change was measured on.
    signed : bool
        Whether effects are signed changes of `before`; otherwise they are changes >= 0.
    before : float or None
        The probability or number of the text, where the output is a prediction.
    declared : str
        The declared set of replacements.
    swaps : tuple of Swap
        The largest effects first; every one is that of a plain pass over the new text.
    candidates : int
        Number of possible replacements.
    checked : int
        How many of them were evaluated: all in an exhaustive search, whose first is the best of all.
    shortfall : float or None
        How far the best of the ranking is below the best of all, as a share; None where that was not compared.
    cost : ResourceUsage
    """

    summary_fields = ("model", "on", "declared", "candidates", "checked", "shortfall")

    model: str
    text: Text
    word: Word | None
    on: str
    signed: bool
    before: float | None
    declared: str
    swaps: tuple[Swap, ...]
    candidates: int
    checked: int
    shortfall: float | None
    cost: ResourceUsage

    @property
    def exhaustive(self) -> bool:
        return self.checked == self.candidates

    def rows(self) -> list[dict[str, Any]]:
        """Return plain values, one dictionary per replacement."""
        rows = []
        for rank, swap in enumerate(self.swaps, 1):
            row = {"rank": rank, "word": swap.word, "sensitivity": swap.value, "effect": swap.effect}
            row |= {"flip": swap.flip, "becomes": swap.becomes, "token": swap.token}
            row |= {"position": swap.replaced.position, "replaced": swap.replaced.text}
            row |= {"on": self.on, "model": self.model}
            rows.append(row if swap.divergence is None else {**row, "divergence": swap.divergence})
        return rows

    def draw(self, ax: Axes) -> None:
        names = [swap.word if self.word else f"{swap.replaced.text} -> {swap.word}" for swap in self.swaps]
        ax.barh(range(len(names)), [swap.effect for swap in self.swaps], color="C0")
        ax.set_yticks(range(len(names)), names)
        ax.invert_yaxis()
        ax.set_xlabel(f"change of {self.on}" + (f", in place of {self.word.text!r}" if self.word else ""))

    def to_dict(self) -> dict[str, Any]:
        head = {"model": self.model, "text": self.text.text, "on": self.on, "exhaustive": self.exhaustive}
        head |= {"signed": self.signed, "before": self.before, "declared": self.declared}
        counts = {"candidates": self.candidates, "checked": self.checked, "shortfall": self.shortfall}
        return {**head, **counts, "swaps": self.rows(), **self.cost.to_dict()}


def swaps(
    model: Model,
    text: str | Text,
    word: WordLike | None = None,
    *,
    top: int = 10,
    on: str | int | Output | None = None,
    label: str | int | None = None,
    answers: Sequence[str] | None = None,
    target: str | None = None,
    pair: str | None = None,
    candidates: str = "vocabulary",
    checks: int | None = None,
    exhaustive: bool = False,
    compare: bool = False,
    cut: bool = False,
    chat: bool = False,
    seed: int = 0,
    progress: bool = False,
) -> Swaps:
    """Return the words that move a model most in the place of a word of a text.

    Parameters
    ----------
    model, text
    word
        Position of the word, from 0, or the word as it is written; default: any word of the text.
    top
        Number of replacements to return.
    on, label, answers, target, pair
        What the change is measured on, as for `profile`.
    candidates
        The declared set of replacements, as for `flips`.
    checks
        Number of candidates that are evaluated; default: from 400 to 2,000, more where the text is short and the model
        small. They are those that gradients, and then a function learned from the values so far, rank first: where
        effects have a sign, those that raise the score most and those that lower it most.
    exhaustive
        Whether all candidates are evaluated.
    compare
        Whether all are evaluated after the ranking, to measure how far it falls short.
    cut, chat
        As for `Model.read`.
    seed
        Seed of the first candidates.
    progress
        Show a bar on stderr when it takes longer than two seconds.

    Notes
    -----
    Every candidate is evaluated by a plain pass over the rewritten text. Rows are compared with those of the text, in
    which the rows of the word, and of its replacement, count as one, their mean. A decoder computes what comes before
    the word once. Besides the passes, ranking costs O(V C) for each round, for V candidates of which C were tried.
    """
    wanted, limit = check_size(top, "top"), None if checks is None else check_size(checks, "checks")
    read = model.read(text, pair=pair, cut=cut, chat=chat)
    words = list(read.scored) if word is None else [read.word(word)]
    output = chosen_output(model, on, label, answers, target, chat, read)
    with ResourceUsage() as usage:
        declared = candidates_named(model, read, candidates)
        rewrites = [[Rewrite(one, replacement) for replacement in declared.of(one)] for one in words]
        total = sum(map(len, rewrites))
        if not total:
            named = "a word of the text" if word is None else repr(words[0].text)
            raise InputError(f"some of {declared.name} must fit in place of {named}, got none: use other candidates")
        search = _Search(Rewriter(model, read, output), [some for some in rewrites if some])
        if not exhaustive:
            search.ranked(limit or _affordable(search.rewriter), seed, progress)
        ranked = max((abs(one.effect) for one in search.tried.values()), default=None)
        if exhaustive or compare:
            search.exhaust(progress)
        best = search.best(wanted)
    largest = best[0].value
    shortfall = 1 - ranked / largest if compare and ranked is not None and largest else None
    before = search.rewriter.before
    return Swaps(
        model.name,
        read,
        None if word is None else words[0],
        output.name,
        output.signed,
        float(output.score(before, before)) if output.predicts else None,
        declared.name,
        best,
        total,
        len(search.tried),
        shortfall,
        usage.computed_in(before.dtype, before.device, search.rewriter.passes),
    )


def _affordable(rewriter: Rewriter) -> int:
    """How many candidates are evaluated by default: more where the text is short, or the model small."""
    return min(max(round(_MOST * math.pow(_WORK / (_MOST * rewriter.phi.operations), _FALL)), _LEAST), _MOST)


@dataclass(frozen=True)
class _Tried:
    effect: float
    rank: float  # a smooth function of the effect, which is learned
    margin: float
    decision: Decision | None


class _Search:
    """Evaluates candidates, in an order that it learns. A candidate is the number of a word and that of its rewrite."""

    def __init__(self, rewriter: Rewriter, rewrites: Sequence[Sequence[Rewrite]]) -> None:
        self.rewriter, self.rewrites = rewriter, rewrites
        self.tried: dict[tuple[int, int], _Tried] = {}

    def ranked(self, limit: int, seed: int, progress: bool) -> None:
        """Evaluate up to `limit` candidates: a few that are drawn, those of which gradients promise most, and then
        those that rank high by a smooth function of the embedding, fitted to all values so far."""
        source = generator(seed, "swaps")
        shuffled = [source.permutation(len(some)).tolist() for some in self.rewrites]
        count = max(1, _ANCHORS // len(self.rewrites))
        drawn = max(count, limit // (_EXPLORED * len(self.rewrites)))
        learned = [
            _Surrogate(embeddings_of(self.rewriter.model, [one.replacement for one in some])) for some in self.rewrites
        ]
        bar = tqdm(total=limit, desc="candidates", delay=2, leave=False, disable=not progress)
        anchors = [(word, place) for word, order in enumerate(shuffled) for place in order[:count]][:limit]
        steep = max(_STEEP, len(anchors))
        self._learn(learned, anchors, steep)
        bar.update(len(anchors))
        first = [(word, place) for word, one in enumerate(learned) for place in one.steepest(_FIRST, self._signs)]
        first += [(word, place) for word, order in enumerate(shuffled) for place in order[count:drawn]]
        chosen = [one for one in dict.fromkeys(first) if one not in self.tried][: limit - len(self.tried)]
        while chosen:
            self._learn(learned, chosen, steep)
            bar.update(len(chosen))
            left = min(max(_ROUND, len(self.tried) // _SHARE), limit - len(self.tried))
            chosen = self._next([one.values() for one in learned], left)
        bar.close()

    @property
    def _signs(self) -> tuple[int, ...]:
        """The directions in which an effect counts."""
        return (1, -1) if self.rewriter.output.signed else (1,)

    def _learn(self, learned: Sequence[_Surrogate], chosen: Sequence[tuple[int, int]], steep: int) -> None:
        """Evaluate candidates, the first `steep` of the search with gradients, and learn from their values."""
        end = max(steep - len(self.tried), 0)
        for some, wanted in ((chosen[:end], True), (chosen[end:], False)):
            slopes = self._evaluate(some, wanted) if some else None
            for word, one in enumerate(learned):
                mine = [row for row, (owner, _) in enumerate(some) if owner == word]
                if mine:
                    values = [self.tried[some[row]].rank for row in mine]
                    one.learn([some[row][1] for row in mine], values, None if slopes is None else slopes[mine])

    def _next(self, predicted: Sequence[Tensor], count: int) -> list[tuple[int, int]]:
        """The candidates with the largest predictions that were not tried, in each direction in turn."""
        if count <= 0:
            return []
        flat = torch.cat(list(predicted))
        starts = [0]
        for one in predicted:
            starts.append(starts[-1] + len(one))
        known = torch.tensor([starts[word] + place for word, place in self.tried], dtype=torch.long, device=flat.device)
        kept = min(count, len(flat) - len(known))
        orders = [(sign * flat).index_fill(0, known, -torch.inf).topk(kept).indices.tolist() for sign in self._signs]
        mixed = list(dict.fromkeys(place for pair in zip(*orders, strict=True) for place in pair))[:kept]
        owners = [bisect_right(starts, place) - 1 for place in mixed]
        return [(word, place - starts[word]) for word, place in zip(owners, mixed, strict=True)]

    def exhaust(self, progress: bool) -> None:
        """Evaluate every candidate."""
        left = [
            (word, place)
            for word, some in enumerate(self.rewrites)
            for place in range(len(some))
            if (word, place) not in self.tried
        ]
        starts = range(0, len(left), _PORTION)
        for start in tqdm(starts, desc="candidates", unit_scale=_PORTION, delay=2, leave=False, disable=not progress):
            self._evaluate(left[start : start + _PORTION])

    def _evaluate(self, chosen: Sequence[tuple[int, int]], steep: bool = False) -> Tensor | None:
        effects = self.rewriter.effects([self.rewrites[word][place] for word, place in chosen], steep)
        margins = [math.inf] * len(chosen) if effects.margins is None else effects.margins.tolist()
        decisions: Sequence[Decision | None] = effects.decisions or [None] * len(chosen)
        ranks = effects.ranks.tolist()
        for key, *values in zip(chosen, effects.values.tolist(), ranks, margins, decisions, strict=True):
            self.tried[key] = _Tried(*values)
        return effects.slopes

    def best(self, count: int) -> tuple[Swap, ...]:
        """The candidates with the largest effects."""
        order = sorted(self.tried, key=lambda key: -abs(self.tried[key].effect))[:count]
        rewriter, output = self.rewriter, self.rewriter.output
        rewrites = [self.rewrites[word][place] for word, place in order]
        divergences: list[float | None] = [None] * len(order)
        if output.distribution:
            readings = rewriter.readings(rewriter.tokens(rewrites))
            divergences = output.divergence(rewriter.before, readings).tolist()
        encode = rewriter.model.texts.backend.encode
        found = []
        for key, rewrite, divergence in zip(order, rewrites, divergences, strict=True):
            tried, ids = self.tried[key], encode(f" {rewrite.replacement}", add_special_tokens=False).ids
            found.append(
                Swap(
                    rewrite.word,
                    rewrite.replacement,
                    tried.effect,
                    tried.margin < 0 if output.decides else None,
                    None if tried.decision is None else decision_name(rewriter.model, output, tried.decision),
                    divergence,
                    ids[0] if len(ids) == 1 else None,
                    rewriter.written(rewrite),
                )
            )
        return tuple(found)


class _Surrogate:
    """A smooth function of the embedding through known values: kernel regression on the directions of embeddings and on
    what the tangents at some known values promise.

    The Cholesky factor of the kernel grows with the known values: O(C^3) for C of them in all, and O(V C) for each
    prediction at V rows.
    """

    def __init__(self, rows: Tensor) -> None:
        centred = rows.float() - rows.float().mean(0)
        self._lengths = torch.linalg.vector_norm(centred, dim=1)
        self.rows = centred / self._lengths.clamp_min(1e-12)[:, None]
        self.promises = self.rows.new_zeros(len(rows))
        self.known: list[int] = []
        self.targets = self.rows.new_empty(0, dtype=torch.float64)
        self._steep: list[int] = []  # the known ones whose slopes are known
        self._slopes = self.rows.new_empty(0, rows.shape[1])
        self._forget()

    def steepest(self, count: int, signs: Sequence[int]) -> list[int]:
        """The places with the largest promises, in each direction as many."""
        share = min(-(-count // len(signs)), len(self.promises))
        return [place for sign in signs for place in (sign * self.promises).topk(share).indices.tolist()]

    def learn(self, places: Sequence[int], values: Sequence[float], slopes: Tensor | None = None) -> None:
        """Add known values, with the gradients there."""
        self.known += places
        measured = torch.tensor(list(values), dtype=torch.float64, device=self.targets.device)
        self.targets = torch.cat([self.targets, measured])
        if slopes is None:
            self._extend(places)
            return
        self._steep += places
        self._slopes = torch.cat([self._slopes, slopes.float()])
        self.promises = self._promised()
        self._forget()
        self._extend(self.known)

    def values(self) -> Tensor:
        """Its values at every row."""
        mean = self.targets.mean()
        weights = torch.cholesky_solve((self.targets - mean)[:, None], self._factor)[:, 0].to(self.rows)
        parts = torch.split(weights, [len(columns) for columns in self._columns])
        predictions = torch.full_like(self.promises, float(mean))
        for part, columns in zip(parts, self._columns, strict=True):
            predictions += part @ columns
        return predictions

    def _promised(self) -> Tensor:
        """The mean of the tangents, of which the nearest count most, standardised."""
        rises = self._lengths[:, None] * (self.rows @ self._slopes.mT)  # V S, from the mean embedding
        values = dict(zip(self.known, self.targets.tolist(), strict=True))
        some = [values[place] for place in self._steep]
        known = torch.tensor(some, dtype=self.rows.dtype, device=self.rows.device)
        tangents = known + rises - rises[self._steep].diagonal()
        near = torch.softmax(_NEAR * (self.rows @ self.rows[self._steep].mT), 1)
        promises = (near * tangents).sum(1)
        spread = promises - promises.mean()
        promised: Tensor = spread / spread.square().mean().sqrt().clamp_min(1e-12)
        return promised

    def _forget(self) -> None:
        self._columns: list[Tensor] = []  # of the kernel, one in a row
        self._factor = self.rows.new_empty(0, 0, dtype=torch.float64)

    def _extend(self, places: Sequence[int]) -> None:
        """Add columns to the kernel, and to its factor."""
        some, before = list(places), sum(map(len, self._columns))
        new = torch.exp(_WIDTH * (self.rows[some] @ self.rows.mT - 1))
        new += self.promises[some][:, None] * self.promises
        across = new[:, self.known[:before]].double()
        side = torch.linalg.solve_triangular(self._factor, across.mT, upper=False)
        ridge = _NOISE * torch.eye(len(some), dtype=torch.float64, device=new.device)
        rest = new[:, some].double() + ridge - side.mT @ side
        factor = rest.new_zeros(before + len(some), before + len(some))
        factor[:before, :before], factor[before:, :before] = self._factor, side.mT
        factor[before:, before:] = torch.linalg.cholesky(rest)
        self._factor = factor
        self._columns.append(new)
