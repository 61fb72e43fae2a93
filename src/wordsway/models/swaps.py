"""Which words of the vocabulary move a model most in place of one word of a text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from tqdm import tqdm

from wordsway.checks import check_size
from wordsway.errors import InputError
from wordsway.maps.response import ValueAndGradient
from wordsway.memory import ResourceUsage
from wordsway.models.outputs import wide
from wordsway.models.response import TextFeatures
from wordsway.models.tokenizer import Tokenizer
from wordsway.models.words import Text, Word, WordLike
from wordsway.records import Record
from wordsway.seeds import generator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from wordsway.models.model import Model

# Tuned on 20 openings of reviews (12 to 32 tokens of minilm) whose best replacement of all is known: the ranking finds
# it in each of them, and takes below ten seconds for 64 tokens on two cores.
_LEAST, _MOST = 400, 2000  # candidates that are evaluated by default
_WORK = 1e12  # operations for which the most are evaluated: some ten seconds
_FALL = 1.25  # evaluations fall with the work to this power: long texts get fewer, short ones nearly all
_KNOWN = 4000  # evaluations that the ranking learns from
_ANCHORS = 8  # candidates at which the gradient is computed
_ROUND, _SHARE = 40, 20  # evaluations between two rankings: this many, or one per this many known values
_WIDTH, _NOISE = 2.0, 0.3  # of the kernel exp(_WIDTH (cos - 1)) between embeddings, and its ridge
_JOINTS = re.compile("['\u2019-]")  # inside words of letters
_PORTION = 4096  # candidates of an exhaustive search that are tokenised at once


@dataclass(frozen=True)
class Swap:
    """One replacement: the token, how it is written, how far it moves the model, and the whole new text."""

    token: int
    word: str
    value: float
    divergence: float | None
    text: str


@dataclass(frozen=True, eq=False, repr=False)
class Swaps(Record):
    """The replacements of one word that move a model most.

    Attributes
    ----------
    model : str
    text : Text
    word : Word
        The word that is replaced.
    on : str
        What the change was measured on.
    swaps : tuple of Swap
        The best first; every value is exact.
    candidates : int
        Entries of the vocabulary that are possible replacements.
    checked : int
        How many of them were evaluated: all in an exhaustive search, whose first is the best of all.
    shortfall : float or None
        How far the best of the ranking is below the best of all, as a share; None where that was not compared.
    cost : ResourceUsage
    """

    summary_fields = ("model", "on", "candidates", "checked", "shortfall")

    model: str
    text: Text
    word: Word
    on: str
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
        shared = {"position": self.word.position, "replaced": self.word.text, "on": self.on, "model": self.model}
        rows = []
        for rank, swap in enumerate(self.swaps, 1):
            row = {"rank": rank, "word": swap.word, "sensitivity": swap.value, "token": swap.token, **shared}
            rows.append(row if swap.divergence is None else {**row, "divergence": swap.divergence})
        return rows

    def draw(self, ax: Axes) -> None:
        ax.barh([swap.word for swap in self.swaps], [swap.value for swap in self.swaps], color="C0")
        ax.invert_yaxis()
        ax.set_xlabel(f"change of {self.on}, in place of {self.word.text!r}")

    def to_dict(self) -> dict[str, Any]:
        head = {"model": self.model, "text": self.text.text, "on": self.on, "exhaustive": self.exhaustive}
        counts = {"candidates": self.candidates, "checked": self.checked, "shortfall": self.shortfall}
        return {**head, **counts, "swaps": self.rows(), **self.cost.to_dict()}


def swaps(
    model: Model,
    text: str | Text,
    word: WordLike,
    *,
    top: int = 10,
    on: str | int = "last",
    whole: bool = True,
    casing: bool = True,
    checks: int | None = None,
    exhaustive: bool = False,
    compare: bool = False,
    cut: bool = False,
    chat: bool = False,
    seed: int = 0,
    progress: bool = False,
) -> Swaps:
    """Return the entries of the vocabulary that move the model most in place of one word of a text.

    Parameters
    ----------
    model, text
    word
        Position of the word, from 0, or the word as it is written.
    top
        Number of replacements to return.
    on
        What the change is measured on, as for `profile`.
    whole
        Whether a replacement must be a word of letters.
    casing
        Whether it must have the case of the word: lower, upper, or a capital first.
    checks
        Number of candidates that are evaluated exactly; default: from 400 to 2,000, more where the text is short and
        the model small. They are those that gradients, and then a function learned from the values so far, rank first.
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
    Special tokens are never candidates, and the tokenizer has to read the candidate again from the text that it is
    written into. One token replaces all tokens of the word; rows are then compared with those of the text, in which
    the rows of the word count as one, their mean. A decoder computes what comes before it once.
    """
    wanted, limit = check_size(top, "top"), None if checks is None else check_size(checks, "checks")
    read = model.read(text, cut=cut, chat=chat)
    replaced = read.word(word)
    with ResourceUsage() as usage:
        place = _Place(model, read, replaced, on)
        vocabulary = _Vocabulary(model.texts, read, replaced, whole, casing)
        candidates = vocabulary.likely
        search = _Search(place, vocabulary)
        if not exhaustive:
            search.ranked(limit or place.affordable(), seed, progress)
        ranked = max(search.values.values(), default=None)
        if exhaustive or compare:
            candidates = vocabulary.surviving(candidates)
            search.exhaust(candidates, progress)
        order = sorted(search.values, key=lambda token: -search.values[token])
        if not order:
            raise InputError(
                f"some word of the vocabulary must fit in place of {replaced.text!r}, got none: allow any form or case"
            )
        divergences = place.divergences(order[:wanted])
    best = tuple(
        Swap(token, vocabulary.surfaces[token], search.values[token], divergence, vocabulary.written(token))
        for token, divergence in zip(order, divergences, strict=False)
    )
    shortfall = 1 - ranked / best[0].value if compare and ranked is not None and best[0].value else None
    cost = usage.computed_in(place.response.hints.dtype, place.response.hints.device, len(order))
    name = place.response.phi.output.name
    return Swaps(model.name, read, replaced, name, best, len(candidates), len(order), shortfall, cost)


class _Place:
    """The place of a word, filled by one token at a time.

    Where the word has several tokens, one token replaces all of them. Rows are then compared with those of the text
    itself, of which the rows of the word count as one, their mean.
    """

    def __init__(self, model: Model, text: Text, word: Word, on: str | int) -> None:
        first, last = word.tokens[0], word.tokens[-1] + 1
        phi = TextFeatures(model, [*text.ids[: first + 1], *text.ids[last:]], on)
        base = None
        if last - first > 1:
            whole = TextFeatures(model, text.ids, on).along([word.tokens]).base
            rows = phi.output.name == "last" or phi.output.layer is not None
            merged = (whole[:first], whole[first:last].mean(0, keepdim=True), whole[last:])
            base = torch.cat(merged) if rows else whole
        self.response = phi.along([(first,)], base)
        self.table = model.embedded()
        self._own = phi.embedded[first]

    def changes(self, tokens: Sequence[int], gradient: bool = False) -> ValueAndGradient:
        """The change for each token (T,), and the gradients in its embedding (T, e)."""
        values, gradients = self.response.change(self._moves(tokens), gradient)
        return values[:, 0], None if gradients is None else gradients[:, 0]

    def divergences(self, tokens: Sequence[int]) -> list[float | None]:
        divergences = self.response.divergence(self._moves(tokens))
        return [None] * len(tokens) if divergences is None else divergences[:, 0].tolist()

    def affordable(self) -> int:
        """How many candidates are evaluated by default: more where the text is short, or the model small."""
        return min(max(round(_MOST * math.pow(_WORK / (_MOST * self.response.phi.operations), _FALL)), _LEAST), _MOST)

    def _moves(self, tokens: Sequence[int]) -> Tensor:
        return (wide(self.table[list(tokens)]) - self._own)[:, None]  # T 1 e


class _Vocabulary:
    """The tokens that may replace a word."""

    def __init__(self, tokenizer: Tokenizer, text: Text, word: Word, whole: bool, casing: bool) -> None:
        self.text, self.word = text, word
        self.tokenizer = tokenizer.backend
        first, last = word.tokens[0], word.tokens[-1] + 1
        read = text.scored[-1].tokens[-1] + 1 if text.cut else len(text.ids)  # what closes a text comes after the rest
        self.before, self.after = list(text.ids[:first]), list(text.ids[last:read])
        special = tokenizer.special
        names = {number: name for name, number in self.tokenizer.get_vocab().items() if number < tokenizer.vocabulary}
        own = set(text.ids[first:last]) if last - first == 1 else set()
        numbers = [number for number in sorted(names) if number not in special and number not in own]
        decoded = self.tokenizer.decode_batch([[number] for number in numbers], skip_special_tokens=False)
        surfaces = [one.strip() for one in decoded]
        shape = _casing(word.text)
        if casing and shape != "lower" and self._is_blind_to_casing():  # its entries are small: they get capitals
            surfaces = [_CASES[shape](one) for one in surfaces]
            shape = "lower" if shape == "mixed" else shape
        self.surfaces = dict(zip(numbers, surfaces, strict=True))  # how each token is written
        self.likely = [
            number
            for number, surface in self.surfaces.items()
            if surface
            and surface != word.text
            and (not whole or all(part.isalpha() for part in _JOINTS.split(surface)))
            and (not casing or _casing(surface) == shape)
        ]

    def written(self, token: int) -> str:
        """The text with the token in place of the word."""
        return self._with(self.surfaces[token])

    def surviving(self, tokens: Sequence[int]) -> list[int]:
        """Those that the tokenizer reads again from the text that they are written into."""
        kept = []
        for start in range(0, len(tokens), _PORTION):
            some = tokens[start : start + _PORTION]
            survived = self._read([self.written(token) for token in some], [[token] for token in some])
            kept += [token for token, same in zip(some, survived, strict=True) if same]
        return kept

    def _is_blind_to_casing(self) -> bool:
        """Whether the tokenizer reads the same where the word is written small."""
        own = self.text.ids[self.word.tokens[0] : self.word.tokens[-1] + 1]
        return self._read([self._with(self.word.text.lower())], [list(own)])[0]

    def _with(self, surface: str) -> str:
        return self.text.text[: self.word.start] + surface + self.text.text[self.word.end :]

    def _read(self, texts: list[str], inside: list[list[int]]) -> list[bool]:
        """Whether each text has these tokens in the place of the word, and else those of the text as it is."""
        encodings = self.tokenizer.encode_batch_fast(texts, add_special_tokens=not self.text.framed)
        expected = [[*self.before, *tokens, *self.after] for tokens in inside]
        ends = [len(ids) if self.text.cut else None for ids in expected]
        return [one.ids[:end] == ids for one, ids, end in zip(encodings, expected, ends, strict=True)]


class _Search:
    """Evaluates candidates exactly, in an order that it learns."""

    def __init__(self, place: _Place, vocabulary: _Vocabulary) -> None:
        self.place, self.vocabulary = place, vocabulary
        self.values: dict[int, float] = {}

    def ranked(self, limit: int, seed: int, progress: bool) -> None:
        """Evaluate up to `limit` candidates: first those that rank high by gradients at a few of them, then those that
        rank high by a smooth function of the embedding, fitted to all values so far.

        Cost: `limit` passes of the model, and O(V limit e) for a vocabulary of V embeddings of e entries.
        """
        likely = self.vocabulary.likely  # candidates are places in this list
        if not likely:
            return
        rows = wide(self.place.table[likely])
        shuffled = generator(seed, "swaps").permutation(len(likely)).tolist()
        anchors = shuffled[:_ANCHORS]
        values, gradients = self.place.changes([likely[one] for one in anchors], gradient=True)
        ahead = torch.zeros_like(rows[anchors]) if gradients is None else gradients
        predicted = (values - (rows[anchors] * ahead).sum(1)).mean() + rows @ ahead.mean(0)
        surrogate = _Surrogate(rows, min(limit, len(likely), _KNOWN))
        tried = [False] * len(likely)
        bar = tqdm(total=limit, desc="candidates", delay=2, leave=False, disable=not progress)
        chosen = self._next(predicted, tried, 2 * _ROUND) + shuffled[:_ROUND]
        while chosen and len(self.values) < limit:
            fresh = [one for one in dict.fromkeys(chosen) if not tried[one]][: limit - len(self.values)]
            for one in fresh:
                tried[one] = True
            kept = set(self.vocabulary.surviving([likely[one] for one in fresh]))
            known = [one for one in fresh if likely[one] in kept]
            if known:
                surrogate.learn(known, self._evaluate([likely[one] for one in known]))
                bar.update(len(known))
            predicted = surrogate.values() if surrogate.known else predicted
            chosen = self._next(predicted, tried, max(_ROUND, len(surrogate.known) // _SHARE))
        bar.close()

    def exhaust(self, allowed: Sequence[int], progress: bool) -> None:
        """Evaluate every candidate."""
        left = [token for token in allowed if token not in self.values]
        starts = range(0, len(left), 512)
        for start in tqdm(starts, desc="vocabulary", unit_scale=512, delay=2, leave=False, disable=not progress):
            self._evaluate(left[start : start + 512])

    def _evaluate(self, tokens: list[int]) -> Tensor:
        values, _ = self.place.changes(tokens)
        self.values.update(zip(tokens, values.tolist(), strict=True))
        return values

    def _next(self, predicted: Tensor, tried: Sequence[bool], count: int) -> list[int]:
        untried = torch.where(torch.tensor(tried, device=predicted.device), -torch.inf, predicted)
        count = min(count, len(tried) - sum(tried))
        best: list[int] = untried.topk(count).indices.tolist()
        return best


class _Surrogate:
    """A smooth function of the embedding through known values: kernel regression on the directions of embeddings.

    The Cholesky factor of the kernel grows with the known values: O(C^3) for C of them in all, and O(V C) for each
    prediction at V rows.
    """

    def __init__(self, rows: Tensor, limit: int) -> None:
        centred = rows.float() - rows.float().mean(0)
        self.rows = centred / torch.linalg.vector_norm(centred, dim=1, keepdim=True).clamp_min(1e-12)
        self.known: list[int] = []
        self.targets = self.rows.new_empty(0, dtype=torch.float64)
        self._columns = self.rows.new_empty(limit, len(rows))  # of the kernel, one in a row
        self._factor = self.rows.new_zeros(limit, limit, dtype=torch.float64)

    def learn(self, places: list[int], values: Tensor) -> None:
        """Add known values; those beyond the limit are not needed."""
        places = places[: len(self._columns) - len(self.known)]
        values = values[: len(places)]
        k, m = len(self.known), len(self.known) + len(places)
        new = torch.exp(_WIDTH * (self.rows[places] @ self.rows.mT - 1), out=self._columns[k:m])
        side = torch.linalg.solve_triangular(self._factor[:k, :k], new[:, self.known].mT.double(), upper=False)
        rest = (
            new[:, places].double() + _NOISE * torch.eye(m - k, dtype=torch.float64, device=new.device) - side.mT @ side
        )
        self._factor[k:m, :k], self._factor[k:m, k:m] = side.mT, torch.linalg.cholesky(rest)
        self.known += places
        self.targets = torch.cat([self.targets, values.double()])

    def values(self) -> Tensor:
        """Its values at every row."""
        k, mean = len(self.known), self.targets.mean()
        weights = torch.cholesky_solve((self.targets - mean)[:, None], self._factor[:k, :k])[:, 0]
        predictions: Tensor = float(mean) + weights.float() @ self._columns[:k]
        return predictions


_CASES: dict[str, Callable[[str], str]] = {
    "lower": str,
    "title": lambda word: word[:1].upper() + word[1:],
    "upper": str.upper,
    "mixed": str,
}


def _casing(word: str) -> str:
    """The case of a word: "lower", "upper", "title" or "mixed"; a single capital counts as a title."""
    if word == word.lower():
        return "lower"
    if word[:1].isupper() and word[1:] == word[1:].lower():
        return "title"
    return "upper" if word == word.upper() else "mixed"
