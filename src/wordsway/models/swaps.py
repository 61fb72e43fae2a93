"""Which words of the vocabulary move a model most, in the place of one word of a text."""

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
from wordsway.memory import ResourceUsage
from wordsway.models.outputs import Output, output_named
from wordsway.models.reader import Reader
from wordsway.models.tokenizer import Tokenizer
from wordsway.models.words import Text, Word
from wordsway.seeds import generator

if TYPE_CHECKING:
    from wordsway.models.model import Model

_LEAST, _MOST = 400, 2000  # candidates that are tried exactly, unless told
_WORK = 1e12  # operations for which the most are tried: some ten seconds
_FALL = 1.25  # tries fall with work to this power: long texts end sooner, short ones are looked through
_KNOWN = 4000  # tries that are learned from: what is ranked after them is ranked by them
_ANCHORS = 8  # candidates at which the gradient is taken
_ROUND, _SHARE = 40, 20  # tries before the rest are ranked anew: so many, or one for so many that are known
_WIDTH, _NOISE = 2.0, 0.3  # of the kernel exp(_WIDTH (cos - 1)) between embeddings, and what it does not explain
_JOINTS = re.compile("['\u2019-]")  # of words of letters
_PORTION = 4096  # candidates of an exhaustive search at a time


@dataclass(frozen=True)
class Swap:
    """One replacement: the token, the word it is written as, how far it moves the model, and the whole new text."""

    token: int
    word: str
    value: float
    divergence: float | None
    text: str


@dataclass(frozen=True, eq=False)
class Swaps:
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
        Entries of the vocabulary that may stand there.
    checked : int
        How many of them were tried. All of them in an exhaustive search, whose first is the best there is.
    shortfall : float or None
        How far the best that was found by ranking is below the best there is, as a share, where that was asked for.
    cost : ResourceUsage
    """

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

    def records(self) -> list[dict[str, Any]]:
        """Plain values, one record a replacement."""
        shared = {"position": self.word.position, "replaced": self.word.text, "on": self.on, "model": self.model}
        found = []
        for rank, swap in enumerate(self.swaps, 1):
            record = {"rank": rank, "word": swap.word, "sensitivity": swap.value, "token": swap.token, **shared}
            found.append(record if swap.divergence is None else {**record, "divergence": swap.divergence})
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        head = {"model": self.model, "text": self.text.text, "on": self.on, "exhaustive": self.exhaustive}
        counts = {"candidates": self.candidates, "checked": self.checked, "shortfall": self.shortfall}
        return {**head, **counts, "swaps": self.records(), **self.cost.to_dict()}


def swaps(
    model: Model,
    text: Text,
    word: Word,
    top: int = 10,
    on: str | int = "last",
    whole: bool = True,
    casing: bool = True,
    checks: int | None = None,
    exhaustive: bool = False,
    compare: bool = False,
    seed: int = 0,
    progress: bool = False,
) -> Swaps:
    """Find replacements of a word; see `Model.swaps`."""
    wanted, limit = check_size(top, "top"), None if checks is None else check_size(checks, "checks")
    with ResourceUsage() as usage:
        place = _Place(model, text, word, output_named(on, model.layers, model.network, model.name))
        vocabulary = _Vocabulary(model.texts, text, word, whole, casing)
        everything = exhaustive or compare
        allowed = vocabulary.surviving(vocabulary.likely) if everything else None
        search = _Search(place, vocabulary)
        if not exhaustive:
            search.ranked(limit or place.affordable(), seed, progress)
        ranked = max(search.values.values(), default=None)
        if allowed is not None:
            search.all(allowed, progress)
        best = max(search.values.values(), default=None)
        if best is None:
            raise InputError(
                f"some word of the vocabulary must fit the place of {word.text!r}, got none: ask for fewer rules"
            )
        chosen = sorted(search.values, key=lambda token: -search.values[token])[:wanted]
        apart = place.divergences(chosen)
    found = tuple(
        Swap(token, vocabulary.surface(token), search.values[token], apart[rank], vocabulary.written(token))
        for rank, token in enumerate(chosen)
    )
    shortfall = 1 - ranked / best if compare and ranked is not None and best else None
    cost = usage.computed_in(place.reader.rows.dtype, place.reader.rows.device, len(search.values))
    count = len(vocabulary.likely) if allowed is None else len(allowed)
    return Swaps(model.name, text, word, place.reader.output.name, found, count, len(search.values), shortfall, cost)


class _Place:
    """The place of a word, in which one token at a time stands.

    Where the word has several tokens, one takes the place of all. Rows are then compared with those of the text as it
    is, of which the rows of the word count as one, their mean.
    """

    def __init__(self, model: Model, text: Text, word: Word, output: Output) -> None:
        first, last = word.tokens[0], word.tokens[-1] + 1
        before = Reader(model, text.ids, output).before
        if output.name == "last" or output.layer is not None:
            before = torch.cat([before[:first], before[first:last].mean(0, keepdim=True), before[last:]])
        self.reader = Reader(model, [*text.ids[: first + 1], *text.ids[last:]], output)
        self.reader.before = before
        self.word = Word(0, word.text, 0, 0, (first,))
        self.table = model.embedded()

    def changes(self, tokens: Sequence[int], gradient: bool = False) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """How far each token moves the model, with the gradients in its embedding (T, e), and divergences."""
        moves = (self.table[list(tokens)] - self.reader.rows[self.word.tokens[0]])[:, None]
        values, gradients, apart = self.reader.changes([self.word] * len(tokens), moves, gradient)
        return values, None if gradients is None else gradients[:, 0], apart

    def affordable(self) -> int:
        """How many candidates are tried unless told: more where the text is short, or the model small."""
        weights = int(sum(one.numel() for one in self.reader.network.parameters())) - self.table.numel()
        work = _MOST * 2 * max(weights, 1) * len(self.reader.rows)
        return min(max(round(_MOST * math.pow(_WORK / work, _FALL)), _LEAST), _MOST)

    def divergences(self, tokens: Sequence[int]) -> list[float | None]:
        apart = self.changes(tokens)[2] if self.reader.output.distribution else None
        return [None] * len(tokens) if apart is None else apart.tolist()


class _Vocabulary:
    """The tokens that may stand in the place of a word."""

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
        surfaces = [one.strip() for one in self._decoded(numbers)]
        shape = _casing(word.text)
        if casing and shape != "lower" and self._is_blind_to_casing():  # its entries are small: they get capitals
            surfaces = [_CASES[shape](one) for one in surfaces]
            shape = "lower" if shape == "mixed" else shape
        self._surfaces = dict(zip(numbers, surfaces, strict=True))
        self.likely = [
            number
            for number, surface in self._surfaces.items()
            if surface
            and surface != word.text
            and (not whole or all(part.isalpha() for part in _JOINTS.split(surface)))
            and (not casing or _casing(surface) == shape)
        ]

    def surface(self, token: int) -> str:
        """A token as it is written."""
        return self._surfaces[token]

    def written(self, token: int) -> str:
        """The text with the token in the place of the word."""
        return self.text.text[: self.word.start] + self.surface(token) + self.text.text[self.word.end :]

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
        word = self.word
        small = self.text.text[: word.start] + word.text.lower() + self.text.text[word.end :]
        return self._read([small], [list(self.text.ids[word.tokens[0] : word.tokens[-1] + 1])])[0]

    def _read(self, texts: list[str], inside: list[list[int]]) -> list[bool]:
        """Whether each text has these tokens in the place of the word, and else those of the text as it is."""
        encodings = self.tokenizer.encode_batch_fast(texts, add_special_tokens=not self.text.framed)
        expected = [[*self.before, *tokens, *self.after] for tokens in inside]
        ends = [len(ids) if self.text.cut else None for ids in expected]
        return [one.ids[:end] == ids for one, ids, end in zip(encodings, expected, ends, strict=True)]

    def _decoded(self, numbers: list[int]) -> list[str]:
        found: list[str] = self.tokenizer.decode_batch([[number] for number in numbers], skip_special_tokens=False)
        return found


class _Search:
    """Tries candidates exactly, in an order that it learns."""

    def __init__(self, place: _Place, vocabulary: _Vocabulary) -> None:
        self.place, self.vocabulary = place, vocabulary
        self.values: dict[int, float] = {}

    def ranked(self, limit: int, seed: int, progress: bool) -> None:
        """Try up to `limit` candidates: those that the gradient at some of them promises, then those that a smooth
        function of the embedding through all that is known does.

        Cost: `limit` passes of the model, and O(V limit e) for a vocabulary of V embeddings of e entries.
        """
        likely = torch.tensor(self.vocabulary.likely, dtype=torch.long)
        if not len(likely):
            return
        rows = self.place.table[likely].cpu()  # what is ranked stays there, wherever the model is
        shuffled = generator(seed, "swaps").permutation(len(likely)).tolist()
        anchors = shuffled[:_ANCHORS]
        values, gradients, _ = self.place.changes(likely[anchors].tolist(), gradient=True)
        assert gradients is not None
        gradients = gradients.cpu()
        promised = (values.cpu() - (rows[anchors] * gradients).sum(1)).mean() + rows @ gradients.mean(0)
        surrogate = _Surrogate(rows, min(limit, len(likely), _KNOWN))
        tried = torch.zeros(len(likely), dtype=torch.bool)
        bar = tqdm(total=limit, desc="candidates", delay=2, leave=False, disable=not progress)
        chosen = self._next(promised, tried, 2 * _ROUND) + shuffled[:_ROUND]
        while chosen and len(self.values) < limit:
            fresh = [one for one in dict.fromkeys(chosen) if not tried[one]][: limit - len(self.values)]
            tried[fresh] = True
            kept = set(self.vocabulary.surviving(likely[fresh].tolist()))
            known = [one for one in fresh if int(likely[one]) in kept]
            if known:
                self._try(likely[known].tolist())
                surrogate.learn(known, torch.tensor([self.values[int(likely[one])] for one in known]))
                bar.update(len(known))
            promised = surrogate.values() if surrogate.known else promised
            chosen = self._next(promised, tried, max(_ROUND, len(surrogate.known) // _SHARE))
        bar.close()

    def all(self, allowed: Sequence[int], progress: bool) -> None:
        """Try every candidate."""
        left = [token for token in allowed if token not in self.values]
        starts = range(0, len(left), 512)
        for start in tqdm(starts, desc="vocabulary", unit_scale=512, delay=2, leave=False, disable=not progress):
            self._try(left[start : start + 512])

    def _try(self, tokens: list[int]) -> None:
        values, _, _ = self.place.changes(tokens)
        self.values.update(zip(tokens, values.tolist(), strict=True))

    def _next(self, promised: Tensor, tried: Tensor, count: int) -> list[int]:
        open_ones = torch.where(tried, -torch.inf, promised)
        count = min(count, int((~tried).sum()))
        found: list[int] = open_ones.topk(count).indices.tolist()
        return found


class _Surrogate:
    """A smooth function of the embedding through known values: kernel regression on the directions of embeddings.

    The Cholesky factor of the kernel grows with what is known: O(C^3) for C values in all, and O(V C) for V rows each
    time that it is asked.
    """

    def __init__(self, rows: Tensor, limit: int) -> None:
        centred = rows.float() - rows.float().mean(0)
        self.rows = centred / torch.linalg.vector_norm(centred, dim=1, keepdim=True).clamp_min(1e-12)
        self.known: list[int] = []
        self.targets = torch.empty(0, dtype=torch.float64)
        self._columns = torch.empty(limit, len(rows))  # of the kernel, one in a row
        self._factor = torch.zeros(limit, limit, dtype=torch.float64)

    def learn(self, places: list[int], values: Tensor) -> None:
        """Take some more values; those beyond the limit are not needed."""
        places = places[: len(self._columns) - len(self.known)]
        values = values[: len(places)]
        k, m = len(self.known), len(self.known) + len(places)
        new = torch.exp(_WIDTH * (self.rows[places] @ self.rows.mT - 1), out=self._columns[k:m])
        side = torch.linalg.solve_triangular(self._factor[:k, :k], new[:, self.known].mT.double(), upper=False)
        rest = new[:, places].double() + _NOISE * torch.eye(m - k, dtype=torch.float64) - side.mT @ side
        self._factor[k:m, :k], self._factor[k:m, k:m] = side.mT, torch.linalg.cholesky(rest)
        self.known += places
        self.targets = torch.cat([self.targets, values.double()])

    def values(self) -> Tensor:
        """What it says of every row."""
        k, mean = len(self.known), self.targets.mean()
        weights = torch.cholesky_solve((self.targets - mean)[:, None], self._factor[:k, :k])[:, 0]
        found: Tensor = float(mean) + weights.float() @ self._columns[:k]
        return found


def _title(word: str) -> str:
    return word[:1].upper() + word[1:]


_CASES: dict[str, Callable[[str], str]] = {"lower": str, "title": _title, "upper": str.upper, "mixed": str}


def _casing(word: str) -> str:
    """How a word is written: "lower", "upper", "title" or "mixed"; a single capital counts as a title."""
    if word == word.lower():
        return "lower"
    if word[:1].isupper() and word[1:] == word[1:].lower():
        return "title"
    return "upper" if word == word.upper() else "mixed"
