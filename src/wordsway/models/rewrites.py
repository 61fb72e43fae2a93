"""A text with one word replaced, read by the model as a text: every value is that of a plain forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wordsway.errors import InputError
from wordsway.models.candidates import embeddings_of
from wordsway.models.outputs import ROWS, Decision, Output, check_finite, wide
from wordsway.models.packed import PackedLayers
from wordsway.models.response import CleanPass, TextFeatures
from wordsway.models.words import Text, Word, encoded

if TYPE_CHECKING:
    from wordsway.models.model import Model


class Tokens(NamedTuple):
    """Token ids of a text, how many at the end belong to the second text of a pair, which token is read, and the first
    one that differs from those of the text: 0 for models that do not reuse what comes before."""

    ids: tuple[int, ...]
    second: int = 0
    at: int | None = None
    first: int = 0


class Rewrite(NamedTuple):
    """A word of a text and what is written in its place; an empty replacement deletes the word."""

    word: Word
    replacement: str


class Effects(NamedTuple):
    """What rewrites do: effects (T,), ranks (T,) as of `Output.rank`, and what was computed besides.

    Where the output decides these are margins (T,) and decisions, and where gradients were wanted, the slopes (T, e):
    the gradient of each rank in the embeddings of the replacement, summed over its tokens.
    """

    values: Tensor
    ranks: Tensor
    margins: Tensor | None = None
    decisions: list[Decision] | None = None
    slopes: Tensor | None = None


class Rewriter:
    """Rewrites one text, and evaluates a model at the rewritten texts.

    Parameters
    ----------
    model, text, output
    steep : bool
        Whether `gradient` will be called, once: the pass over the text then keeps what its gradient needs.

    Attributes
    ----------
    before : Tensor
        What the output reads for the text itself.
    passes : int
        Texts that were evaluated, the text itself included.
    """

    def __init__(self, model: Model, text: Text, output: Output, steep: bool = False) -> None:
        self.model, self.text, self.output = model, text, output
        self.phi = TextFeatures(model, text.ids, output, text.second)
        self._layers = PackedLayers(self.phi.network)
        self._embedded = self.phi.embedded.clone().requires_grad_(steep)
        with self._layers.used(gradients=steep):
            self._clean = CleanPass(self.phi, self._embedded)
            self._read = output.read(self._clean.values)
        self.before = self._read[0].detach()
        check_finite(model, self.before, "the text")
        self.passes = 1

    def written(self, rewrite: Rewrite) -> str:
        """The rewritten text; a deleted word takes one of the blanks around it with it."""
        whole, (word, replacement) = self.text.text, rewrite
        start, end = word.start, word.end
        if not replacement:
            if whole[:start].endswith(" "):
                start -= 1
            elif whole[end:].startswith(" "):
                end += 1
        return whole[:start] + replacement + whole[end:]

    def tokens(self, rewrites: Sequence[Rewrite]) -> list[Tokens]:
        """Token ids of the rewritten texts; a text that was cut stays cut, also where the rewritten one is too long."""
        suffix, limit = self.output.suffix, self.model.positions - len(self.output.suffix)
        written = [self.written(one) for one in rewrites]
        encodings = encoded(self.model.texts, written, self._seconds(rewrites, written), self.text.framed)
        closing = self._after(self.text.scored[-1])
        texts = []
        for rewrite, encoding in zip(rewrites, encodings, strict=True):
            ids = tuple(encoding.ids)
            at = self._moved(rewrite.word, len(ids))
            if len(ids) > limit:
                ids = (*ids[: limit - closing], *ids[len(ids) - closing :])
            ids += suffix
            texts.append(Tokens(ids, sum(encoding.type_ids), at, self._first(ids, rewrite.word)))
        return texts

    def _moved(self, word: Word, length: int) -> int | None:
        """Where the token that the output reads is in a rewritten text: a change of a word before it moves it.

        It is the first one of a replacement of its own word; where that is deleted, the token that follows it.
        """
        at = self.output.at
        if at is None or at <= word.tokens[-1]:
            return at
        if self.text.cut:
            raise InputError(f"a text with a token that is read ({self.output.name}) must not be cut: shorten it")
        return at + length - len(self.text.ids)

    def _seconds(self, rewrites: Sequence[Rewrite], written: Sequence[str]) -> list[int | None]:
        """Where the second text of a pair begins in each rewritten one: a change of the first one moves it."""
        start, whole = self.text.pair, len(self.text.text)
        if start is None:
            return [None] * len(written)
        return [
            start + (len(text) - whole if one.word.start < start else 0)
            for one, text in zip(rewrites, written, strict=True)
        ]

    def readings(self, texts: Sequence[Tokens]) -> Tensor:
        """What the output reads for token ids, (T, ...); not for rows, whose number differs between texts."""
        readings = self.before.new_empty(len(texts), *self.before.shape)
        for places, read, _ in self._passes(texts):
            readings[places] = read
        return readings

    def effects(self, rewrites: Sequence[Rewrite], steep: bool = False) -> Effects:
        """What each rewrite does; `steep` adds the slopes, from the same passes.

        Rows are compared one by one; those of the replaced word and of its replacement count as one, their mean.
        """
        texts, rows = self.tokens(rewrites), self.output.kind == ROWS
        ranks = self.before.new_empty(len(texts))
        readings = self.before.new_empty(0 if rows else len(texts), *self.before.shape)
        slopes = self.phi.embedded.new_empty(len(texts), self.phi.embedded.shape[1]) if steep else None
        for places, read, embedded in self._passes(texts, steep):
            if rows:
                pairs = zip(places, read, strict=True)
                some = torch.stack([self._change_of_rows(rewrites[place], now) for place, now in pairs])
            else:
                some, readings[places] = self.output.rank(self.before, read), read.detach()
            ranks[places] = some.detach()
            if slopes is not None:
                (gradients,) = torch.autograd.grad(some.sum(), embedded)
                for place, gradient in zip(places, gradients, strict=True):
                    word = rewrites[place].word
                    end = len(gradient) - len(self.output.suffix) - self._after(word)
                    slopes[place] = gradient[word.tokens[0] : end].sum(0)
        if rows:
            return Effects(ranks, ranks, slopes=slopes)
        values, margins, decisions = self.output.effect(self.before, readings), None, None
        if self.output.decides:
            margins, decisions = self.output.margin(self.before, readings), self.output.decisions(readings)
        return Effects(values, ranks, margins, decisions, slopes)

    def _change_of_rows(self, rewrite: Rewrite, now: Tensor) -> Tensor:
        word, deleted = rewrite.word, not rewrite.replacement
        before, after = (self._merged(one, word, deleted) for one in (self.before, now))
        return self.output.effect(before, after[None])[0]

    def _after(self, word: Word) -> int:
        """Number of tokens after a word."""
        return len(self.text.ids) - 1 - word.tokens[-1]

    def _merged(self, rows: Tensor, word: Word, deleted: bool) -> Tensor:
        """Rows with those of the word, or of its replacement, as one; without it where it is deleted."""
        first, end = word.tokens[0], len(rows) - self._after(word)
        middle = rows[:0] if deleted else rows[first:end].mean(0, keepdim=True)
        return torch.cat([rows[:first], middle, rows[end:]])

    def _passes(self, texts: Sequence[Tokens], steep: bool = False) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Places, readings and embeddings of batches of texts of one length, so that none is padded."""
        shapes = [(len(text.ids), text.second, text.at or 0) for text in texts]
        order = sorted(range(len(texts)), key=lambda place: (shapes[place], -texts[place].first))
        for (length, second, _), group in groupby(order, key=lambda place: shapes[place]):
            places = list(group)
            at = texts[places[0]].at
            size = self.phi.batch_size(steep, length)
            for batch in (places[start : start + size] for start in range(0, len(places), size)):
                with self._layers.used(gradients=steep):
                    embedded = wide(self.model.embedded([token for place in batch for token in texts[place].ids]))
                    embedded = embedded.reshape(len(batch), length, -1).requires_grad_(steep)
                    shared = min(texts[place].first for place in batch)
                    readings = self.output.read(self._clean.run(embedded, shared, second, at))
                check_finite(self.model, readings, "texts")
                self.passes += len(batch)
                yield batch, readings, embedded

    def gradient(self, function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Gradient of the output's margin or score in the embeddings of the text, (n, e)."""
        (gradient,) = torch.autograd.grad(function(self.before, self._read).sum(), self._embedded)
        return gradient

    def promises(
        self, words: Sequence[Word], replacements: Sequence[str], gradient: Tensor
    ) -> NDArray[np.floating[Any]]:
        """How far a function rises to first order when a word is replaced, (W, C), from its gradient (n, e)."""
        table = embeddings_of(self.model, replacements)  # C e
        rows = [list(word.tokens) for word in words]
        steep = torch.stack([gradient[tokens].sum(0) for tokens in rows])  # W e
        own = torch.stack([(gradient[tokens] * self.phi.embedded[tokens]).sum() for tokens in rows])
        return np.asarray((steep @ table.mT - own[:, None]).cpu().numpy())

    def _first(self, ids: Sequence[int], word: Word) -> int:
        if not self.model.causal:
            return 0
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ids, self.text.ids, strict=False)))
        return min(same, word.tokens[0], len(ids) - len(self.output.suffix) - 1, len(self.text.ids) - 1)
