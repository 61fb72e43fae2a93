"""The one-word response of attention in closed form: O(n d) for a value with its gradient, no n x d intermediate.

For the word i that moves by Delta, let w_j be the weight of row j on it (w0_j before), p_j row j of
phi(X), U_i the value of the word, D the value of Delta, and c_j the mean of row j without the word. Then
p_j = (1 - w0_j) c_j + w0_j U_i, and row j != i changes by

    (w_j - w0_j) f_j + w_j D,   f_j = U_i - c_j = (U_i - p_j) / (1 - w0_j),

so the squared change needs only |f_j|, the products f_j . D (that is, P D), and the moved score t_j = q_j . key(Delta).
Row i is recomputed in full. Everything linear in Delta is computed by one product with a matrix that all words share,
and gradients by a product with its transpose. The steps in between are on small arrays, where a call of NumPy costs a
fraction of a call of torch.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import logsumexp
from torch import Tensor

from wordsway import memory
from wordsway.maps.response import (
    Ceiling,
    Functional,
    Functionals,
    Piece,
    SearchHints,
    ValueAndGradient,
    check_moves,
    layout,
    positive_norm,
    single_functional,
)
from wordsway.maps.scores import Array, OddsShare, RatioShare, over
from wordsway.threads import suited

if TYPE_CHECKING:
    from wordsway.maps.attention import Attention

Index = npt.NDArray[np.intp]
Part = TypeVar("Part")
_NAMES = ("value", "key", "query")
# Starts of a search, tuned on Gaussian contexts of 20 to 100 words: their number, the shares of rows that they raise,
# and how much of the direction that raises the word's score of itself, of which there are a few, is mixed in.
_CAPTURING, _SUBSETS, _MIX, _ATTRACTING = 60, (0.05, 0.1, 0.25, 0.5), (0.0, 0.5, 1.0, 2.0), 8
# From a witness, a search goes on towards or away from so many rows and keys, by such a step relative to the witness,
# and by others along the directions that raise the word's score of itself; tuned on 9 contexts of 9 to 172 words.
_EXCHANGED, _STEP, _OWN_STEPS = 64, 0.6, (0.5, 1.0, 2.0)
# Contexts of at most so many words and dimensions are searched from so many random starts; with relu scores also from
# so many that cancel the word up to so much of its length. Tuned on 180 contexts of 1 to 15 words, 2 to 12 dimensions;
# in larger ones the short search misses less, and the long one of all words at once would take much memory.
_SMALL, _RANDOM, _CANCELLING, _NEAR = 20, 200, 100, 0.003
# Of relu scores, tuned on 50 contexts of 5 to 250 words: to how many keys, besides the word itself, the moved row is
# led to give all its weight, and the share of the largest score from which on a key counts as one it attends to.
_FAR_KEYS, _ATTENDED = 8, 0.05


_MODERATE = 1000.0  # scores up to which a search is in float32, where they have an error of 1e-4


def product(left: Array, right: Array) -> Array:
    """left @ right by torch, so that torch.set_num_threads applies to all products."""
    return np.asarray(torch.matmul(torch.from_numpy(left), torch.from_numpy(right)).numpy())


@dataclass(frozen=True)
class Captured:
    """Rows with more than half of their weight on a moving word: 1 - w0 loses digits there, so f is stored.

    A row has at most one such key, so there are at most n of them per head, whatever the number of words.
    """

    head: Index  # c
    row: Index  # c
    slot: Index  # c, which of the moving words
    f: Array  # c v

    @property
    def place(self) -> tuple[Index, Index, Index]:
        """Index of the rows in an array (W, H, n)."""
        return self.slot, self.head, self.row


@dataclass(frozen=True)
class Move:
    """One batch of Deltas: the quantities that values, gradients and functionals share."""

    value: Array  # B W H v, value of Delta
    key: Array  # B W H q, key of Delta (unused with one head)
    query: Array  # B W H q, query of the moved word; with one head, half the gradient of its score of itself
    t: Array  # B W H n, shift of the scores that the other rows give the word
    w: Array  # B W H n, their new weights
    f_value: Array  # B W H n, products f . D
    own: Array  # B W H n, scores of the moved row
    own_weights: Array  # B W H n
    own_scale: Array | float  # B W H 1, one over the sum of its gains; 1 where weights come from odds


def _single(whole: Part) -> Part:
    """A shallow copy with the float64 arrays rounded to float32."""
    part = copy.copy(whole)
    for name, array in vars(whole).items():
        if isinstance(array, np.ndarray) and array.dtype == np.float64:
            object.__setattr__(part, name, array.astype(np.float32))
    return part


def _unit(rows: Array) -> Array:
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0))


class OneWordResponse:
    """Response of attention with a normalised score and no output, along words that move one at a time.

    Cost: O(n^2 d + n d^2) once, shared by all words; O(H n d + d^2) for each Delta with its gradient, in four products.
    Computed on the CPU, in the dtype of the context.
    """

    def __init__(self, attention: Attention, X: Tensor, word: int | Sequence[int]) -> None:
        words = (word,) if isinstance(word, int) else tuple(word)
        self.attention = attention
        self.shape, self.batch = layout(X.shape[1], word, together=False)
        self.context = X
        self.words = np.array(words)
        X = X.detach().cpu()
        queries, keys, values = attention.project(X)  # H n q, H n q, H n v
        scores = attention.scores(queries, keys)
        visible = attention.visible(X)
        weights = attention.score.weights(scores, visible)  # H n n
        mixed = weights @ values
        self.norm = positive_norm(mixed)
        self.heads, self.n, size = queries.shape
        self.size = math.sqrt(size)
        self.visible = None if visible is None else visible.numpy()
        self.queries, self.keys, self.values, self.mixed = (x.numpy() for x in (queries, keys, values, mixed))
        self._set_up_reading()
        self._set_up_rows(scores.numpy(), weights.numpy())

    @property
    def hints(self) -> SearchHints:
        relu = self.attention.score.name == "relu"
        return SearchHints(
            self.context.dtype,
            self.context.device,
            starts=self._starts,
            nearby=self._nearby if relu else None,
            pieces=self._pieces if relu else None,
            exchange=None if relu else self._exchange,
            part=self._part,
            # short contexts have many local maxima, and are cheap
            random_starts=_RANDOM if self._small else min(max(10, 1000 // self.n), 48),
            work=4.0 * self.reading.size * len(self.words),
            nonsmooth=relu,
            cheap=self._small,
            inners=self.inners,
            single=self.single if self._searched_in_single else None,
        )

    def single(self) -> OneWordResponse:
        """The same in float32. It is rounded from float64, so that nothing is lost where the set-up cancels digits."""
        twin = _single(self)
        twin.context, twin.share = self.context.float(), _single(self.share)
        twin.captured = None if self.captured is None else _single(self.captured)
        return twin

    def _part(self, numbers: Sequence[int]) -> OneWordResponse:
        """The same along some of the words."""
        return OneWordResponse(self.attention, self.context, [int(self.words[number]) for number in numbers])

    @property
    def _moderate(self) -> bool:
        """Whether float32 resolves the weights and saves time: rounding moves a weight by 1e-7 times its score."""
        if self.context.dtype != torch.float64:
            return False
        return max(float(np.abs(part).max()) for part in (self.own_start, self.reading)) <= _MODERATE

    @property
    def _searched_in_single(self) -> bool:
        """Whether a search in float32 ends where one in float64 does, and saves time.

        Many heads, and the kinks of relu scores, have so many maxima that rounding decides among them.
        """
        relu = self.attention.score.name == "relu"
        return self._moderate and not (self._small or self.heads > 1 or relu)

    @property
    def _small(self) -> bool:
        """Whether there are so few scores that calls take longer than their arithmetic."""
        return max(self.context.shape) <= _SMALL

    def _set_up_reading(self) -> None:
        """The matrix that maps Delta to t, P D, the scores of the moved row and the projections."""
        parts = [
            self.pull_heads("key", self.queries / self.size),
            self.pull_heads("value", self.mixed),
            self.pull_heads("query", self.keys / self.size),
        ]
        known = {name: weight for name in _NAMES if (weight := self.attention.weight(name)) is not None}
        read = {name: weight.to(self.context.dtype).cpu().numpy() for name, weight in known.items()}
        self.form: Array | None = None
        if self.heads == 1:  # the moved word's score of itself is a quadratic form: one product for it and its gradient
            self.form = self._quadratic(read.pop("query", None), read.pop("key", None))
            read["query"] = self.form
        parts += read.values()
        self.reading = np.concatenate(parts)  # R d
        ends = np.cumsum([len(part) for part in parts])
        self._slices = dict(zip(("t", "mixed", "own", *read), map(slice, [0, *ends[:-1]], ends), strict=True))

    def _quadratic(self, query: Array | None, key: Array | None) -> Array:
        """The symmetric matrix G with v^T G v = query(v) . key(v) / sqrt(q)."""
        if query is None or key is None:
            given = query if query is not None else key
            form = np.eye(self.context.shape[1], dtype=self.queries.dtype) if given is None else given
        else:
            form = product(np.ascontiguousarray(query.T), key)
        return np.asarray((form + form.T) / (2 * self.size))

    def pull_heads(self, name: str, rows: Array) -> Array:
        """Rows of each head through the transpose of that head's projection, (H, n, size) -> (H n, d)."""
        alone = np.eye(len(rows), dtype=rows.dtype).reshape(len(rows), len(rows), 1, 1) * rows  # H H n size
        return np.asarray(self.attention.pull(name, torch.from_numpy(alone)).flatten(0, 1).numpy())

    def _set_up_rows(self, scores: Array, weights: Array) -> None:
        """Shares, |f|^2 and alpha = 1 / (1 - w0) for each (moving word, head, row), and the original moved rows."""
        count = len(self.words)
        to_word = np.moveaxis(weights[..., self.words], -1, 0)  # W H n, weight of each row on the word
        seen = np.ones((count, self.n), bool) if self.visible is None else self.visible[:, self.words].T.copy()
        seen[np.arange(count), self.words] = False  # the row of the word itself is recomputed in full
        self.captured, rest = self._captured(scores, weights)
        self.share = self._share(scores, to_word, np.broadcast_to(seen[:, None], to_word.shape), rest)
        self.before = self.share.weight(np.zeros_like(to_word))  # W H n
        self.own_value = np.moveaxis(self.values[:, self.words], 1, 0)  # W H v
        squares = (self.own_value**2).sum(-1)[..., None] + (self.mixed**2).sum(-1)
        cross = np.moveaxis(self.values[:, self.words] @ np.swapaxes(self.mixed, 1, 2), 1, 0)
        self.alpha = np.where(seen[:, None], 1 / np.where(to_word > 0.5, 1, 1 - to_word), 0).astype(weights.dtype)
        self.f_square = self.alpha**2 * np.maximum(squares - 2 * cross, 0)
        if (got := self.captured) is not None:
            self.alpha[got.place] = 0.0
            self.f_square[got.place] = (got.f**2).sum(-1)
        self.own_start = np.moveaxis(scores[:, self.words], 1, 0)  # W H n
        self.own_before = np.moveaxis(weights[:, self.words], 1, 0)  # W H n
        self.own_query = np.moveaxis(self.queries[:, self.words], 1, 0)  # W H q
        if self.form is not None:
            self.own_query = (self.context[self.words].detach().cpu().numpy() @ self.form)[:, None]  # W 1 d
        self.own_sees = None if self.visible is None else self.visible[self.words][:, None]  # W 1 n
        # index of each word's own entry in an array (B, W, H, n)
        self.at_word = (slice(None), np.arange(count)[:, None], np.arange(self.heads)[None], self.words[:, None])

    def _share(self, scores: Array, to_word: Array, seen: npt.NDArray[np.bool_], rest: Array) -> OddsShare | RatioShare:
        """The weights of the rows as functions of the moved score; `rest` replaces the captured ones."""
        score, got = self.attention.score, self.captured
        start = np.moveaxis(scores[..., self.words], -1, 0)  # W H n
        if score.by_odds:
            logs = score.array_gain(scores) if score.array_gain is not None else scores
            total = logsumexp(logs if self.visible is None else np.where(self.visible, logs, -np.inf), axis=-1)
            # from the logarithms: a weight that underflows to 0 can still grow
            others = total + np.log1p(-np.where(to_word > 0.5, 0.5, to_word))
            if got is not None:
                others[got.place] = rest
            others = np.where(seen, others, np.inf).astype(start.dtype)
            return OddsShare(start, others, score.array_gain, score.array_derivative)
        assert score.array_gain is not None
        assert score.array_derivative is not None
        gains = score.array_gain(scores) * (1 if self.visible is None else self.visible)
        others = np.moveaxis(gains.sum(-1)[..., None] - gains[..., self.words], -1, 0)  # W H n
        if got is not None:
            others[got.place] = rest
        return RatioShare(
            score.array_gain, score.array_derivative, start, np.maximum(others, 0), seen.astype(start.dtype)
        )

    def _captured(self, scores: Array, weights: Array) -> tuple[Captured | None, Array]:
        """The captured rows among the moving words, with the others' summed gains or their logarithm."""
        slot_of = np.full(self.n, -1)
        slot_of[self.words] = np.arange(len(self.words))
        key = weights.argmax(-1)  # H n
        slot = slot_of[key]
        head, row = np.nonzero((weights.max(-1) > 0.5) & (slot >= 0) & (key != np.arange(self.n)))
        if not len(row):
            return None, np.empty(0)
        taken, lines = key[head, row], np.arange(len(row))
        others = np.ones((len(row), self.n), bool) if self.visible is None else self.visible[row].copy()
        others[lines, taken] = False
        line = torch.from_numpy(scores[head, row])  # c n
        mask = torch.from_numpy(others)
        mix = self.attention.score.weights(line, mask).numpy()
        f = self.values[head, taken] - np.einsum("cn,cnv->cv", mix, self.values[head])
        score = self.attention.score
        if score.by_odds:
            rest = score.logs(line, mask).logsumexp(-1)
        else:
            assert score.gain is not None
            rest = (score.gain(line) * mask).sum(-1)
        return Captured(head, row, slot[head, row], f), rest.numpy()

    # --- one batch of Deltas -------------------------------------------------------------------------------------

    def _lift(self, delta: Tensor) -> Array:
        """(..., *shape) -> (B, W, d)."""
        check_moves(delta, self.shape)
        array = delta.detach().to("cpu", self.context.dtype).numpy()
        return array.reshape(-1, len(self.words), self.context.shape[1])

    def _lower(self, value: Array, delta: Tensor) -> Tensor:
        """(B, W) -> (..., *batch)."""
        lead = delta.shape[: delta.ndim - len(self.shape)] + self.batch
        return torch.from_numpy(np.ascontiguousarray(value)).reshape(lead).to(self.context.device)

    def _read(self, delta: Array) -> dict[str, Array]:
        """Everything linear in Delta, by name, each (B, W, H, size)."""
        read = product(delta.reshape(-1, delta.shape[-1]), self.reading.T)
        lead = (*delta.shape[:2], self.heads, -1)
        parts = {name: read[:, part].reshape(lead) for name, part in self._slices.items()}
        return parts | {name: delta.reshape(lead) for name in _NAMES if name not in parts}

    def _move(self, delta: Array) -> Move:
        read = self._read(delta)
        value, key, query = read["value"], read["key"], read["query"] + self.own_query
        f_value = self.alpha * ((value * self.own_value).sum(-1, keepdims=True) - read["mixed"])
        if (got := self.captured) is not None:
            f_value[:, got.slot, got.head, got.row] = np.einsum("bcv,cv->bc", value[:, got.slot, got.head], got.f)
        own = read["own"] + self.own_start
        if self.form is None:
            own[self.at_word] += (query * key).sum(-1) / self.size
        else:
            own[self.at_word] = self.own_start[self.at_word[1:]] + (delta[:, :, None] * (query + self.own_query)).sum(
                -1
            )
        w = self.share.weight(read["t"])
        return Move(value, key, query, read["t"], w, f_value, own, *self._own_weights(own))

    def _own_weights(self, own: Array) -> tuple[Array, Array | float]:
        """Weights of the moved row, and one over the sum of its gains (1 where weights come from odds)."""
        score = self.attention.score
        gain = score.array_gain
        if gain is not None and not score.by_odds:
            gains = gain(own) if self.own_sees is None else gain(own) * self.own_sees
            total = gains.sum(-1, keepdims=True)
            scale = over(np.ones_like(total), total)
            return gains * scale, scale
        own = own if gain is None else gain(own)
        if self.own_sees is not None:
            own = np.where(self.own_sees, own, -np.inf)
        gains = np.exp(own - own.max(-1, keepdims=True))
        return np.asarray(gains / gains.sum(-1, keepdims=True)), 1.0

    def _by_head(self, left: Array, right: Array) -> Array:
        """(B, W, H, s) times (H, s, u): (B, W, H, u), one product per head."""
        if self.heads == 1:
            return product(left.reshape(-1, left.shape[-1]), right[0]).reshape(*left.shape[:-1], -1)
        first = np.moveaxis(left, 2, 0).reshape(self.heads, -1, left.shape[-1])
        return np.moveaxis(product(first, right).reshape(self.heads, *left.shape[:2], -1), 0, 2)

    def _own_change(self, move: Move) -> Array:
        """Change of the moved row, (B, W, H, v)."""
        drift = self._by_head(move.own_weights - self.own_before, self.values)
        return drift + move.own_weights[self.at_word][..., None] * move.value

    def change(self, delta: Tensor, gradient: bool = True) -> ValueAndGradient:
        change, pull = self._change(self._move(self._lift(delta)))
        if not gradient:
            return self._lower(change, delta), None
        return self._lower(change, delta), self._raise(pull(), delta)

    def _raise(self, grad: Array, delta: Tensor) -> Tensor:
        return torch.from_numpy(grad).reshape(delta.shape).to(self.context.device)

    def _change(self, move: Move) -> tuple[Array, Callable[..., Array]]:
        """Relative changes (B, W), and a function to their gradients plus those of weighted scores of the moved row."""
        w, step = move.w, move.w - self.before
        length = (move.value * move.value).sum(-1, keepdims=True)  # B W H 1
        own = self._own_change(move)  # B W H v
        push, pull = step * self.f_square + w * move.f_value, step * move.f_value + w * length
        # |step f + w D|^2 summed over the rows; exactly 0 at Delta = 0
        square = (step * push + w * pull).sum((-2, -1)) + (own * own).sum((-2, -1))  # B W
        size = np.sqrt(np.maximum(square, 0))

        def gradient(by_scores: Array | None = None) -> Array:
            scale = over(np.full_like(size, 1 / self.norm), size)[..., None]  # B W 1
            by_value = (w * w).sum(-1, keepdims=True) * move.value
            if by_scores is not None:
                by_scores = over(by_scores, scale[..., None])
            return scale * self._pull_back(move, push + pull, step * w, by_value, own, by_scores)

        return size / self.norm, gradient

    def inner(self, u: Tensor) -> Functional:
        return single_functional(self.inners([u]))

    def inners(self, us: Sequence[Tensor]) -> Functionals:
        """Several functionals at once: they share the batch, and their gradients one pass back."""
        vectors = (u.detach().to("cpu", self.context.dtype) for u in us)
        parts = np.stack([self.attention.split(vector).numpy() for vector in vectors])  # m H n v
        count, slots = len(parts), len(self.words)
        bases = (parts * self.mixed).sum((1, 2, 3))
        own_parts = np.moveaxis(parts[:, :, self.words], 2, 1)  # m W H v
        level = np.moveaxis(parts @ np.swapaxes(self.values[:, self.words], 1, 2), -1, 1)  # m W H n
        along = (level - (parts * self.mixed).sum(-1)[:, None]) * self.alpha  # u . f
        if (got := self.captured) is not None:
            along[:, *got.place] = (parts[:, got.head, got.row] * got.f).sum(-1)
        wide = np.ascontiguousarray(np.moveaxis(parts, 0, 1)).reshape(self.heads, count * self.n, -1)  # H (m n) v

        def functionals(delta: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
            move = self._move(self._lift(delta))
            by_value = self._by_head(move.value, np.swapaxes(wide, 1, 2))  # u . D
            by_value = np.moveaxis(by_value.reshape(-1, slots, self.heads, count, self.n), 3, 0)  # m B W H n
            rows = np.einsum("bwhn,mwhn->mbw", move.w - self.before, along)
            rows += np.einsum("bwhn,mbwhn->mbw", move.w, by_value)  # the moved row's own w is 0
            values = bases[:, None, None] + rows + np.einsum("bwhv,mwhv->mbw", self._own_change(move), own_parts)
            lead = delta.shape[: delta.ndim - len(self.shape)] + self.batch
            device = self.context.device

            def pull(weights: Tensor) -> Tensor:
                mix = weights.detach().to("cpu", self.context.dtype).numpy().reshape(count, -1, slots)  # m B W
                mixed = mix.transpose(1, 2, 0)[..., None, :, None] * move.w[..., None, :]  # B W H m n
                by_mixed = self._by_head(mixed.reshape(*mixed.shape[:3], -1), wide)
                by_weight = np.einsum("mbw,mbwhn->bwhn", mix, by_value + along[:, None])
                by_own = np.einsum("mbw,mwhv->bwhv", mix, own_parts)
                grad = self._pull_back(move, by_weight, None, by_mixed, by_own)
                return torch.from_numpy(grad).reshape(delta.shape).to(device)

            return torch.from_numpy(values).reshape(count, *lead).to(device), pull

        return functionals

    def _pull_back(
        self,
        move: Move,
        by_weight: Array,
        by_f: Array | None,
        by_value: Array,
        by_own: Array,
        by_scores: Array | None = None,
    ) -> Array:
        """Gradient in Delta from those in weights, products f . D, D, the moved row and its scores: (B, W, d)."""
        pulled: dict[str, Array] = {"t": by_weight * self.share.derivative(move.t, move.w)}
        value = by_value + move.own_weights[self.at_word][..., None] * by_own
        if by_f is not None:
            scaled = by_f * self.alpha
            pulled["mixed"] = -scaled
            value = value + scaled.sum(-1, keepdims=True) * self.own_value
            if (got := self.captured) is not None:
                extra = by_f[:, got.slot, got.head, got.row][..., None] * got.f  # B c v
                np.add.at(value, (slice(None), got.slot, got.head), extra)  # type: ignore[arg-type]
        by_mix = self._by_head(by_own, np.swapaxes(self.values, 1, 2))  # B W H n
        by_mix[self.at_word] += (by_own * move.value).sum(-1)
        by_mix -= (move.own_weights * by_mix).sum(-1, keepdims=True)
        pulled |= {"value": value, "own": self._own_derivative(move) * by_mix}
        if by_scores is not None:
            pulled["own"] = pulled["own"] + by_scores
        return self._write(move, pulled)

    def _write(self, move: Move, pulled: dict[str, Array]) -> Array:
        """The gradient in Delta from those in what was read and in the moved row's scores: (B, W, d)."""
        own_score = pulled["own"][self.at_word][..., None]  # B W H 1
        if self.form is None:
            pulled |= {"key": own_score * move.query / self.size, "query": own_score * move.key / self.size}
        else:
            pulled["own"][self.at_word] = 0.0
        lead = pulled["value"].shape[:2]
        width = len(self.reading) if self.form is None else self._slices["query"].start
        cotangent = np.zeros((math.prod(lead), width), self.reading.dtype)
        for name, part in self._slices.items():
            if name in pulled:
                cotangent[:, part] = pulled[name].reshape(len(cotangent), -1)
        grad = product(cotangent, self.reading[:width])
        for name in _NAMES:
            if name not in self._slices and name in pulled:
                grad += pulled[name].reshape(len(grad), -1)
        if self.form is not None:
            grad += (2 * own_score * move.query).reshape(len(grad), -1)
        return grad.reshape(*lead, -1)

    def _own_derivative(self, move: Move) -> Array:
        """Derivative of a weight of the moved row in its own score, before the mean of the row is subtracted."""
        score = self.attention.score
        if score.by_odds:
            grad = move.own_weights
            return grad if score.array_derivative is None else grad * score.array_derivative(move.own)
        assert score.array_derivative is not None
        grad = score.array_derivative(move.own) * move.own_scale
        return grad if self.own_sees is None else grad * self.own_sees

    def features(self, delta: Tensor) -> Tensor:
        lifted = self._lift(delta)
        needed = lifted.shape[0] * lifted.shape[1] * self.mixed.size * 3 * self.mixed.itemsize
        memory.require(needed, "the features of a batch of perturbations", "evaluate fewer perturbations at once")
        move = self._move(lifted)
        f = np.stack([self.f_rows(slot) for slot in range(len(self.words))])  # W H n v
        rows = (move.w - self.before)[..., None] * f + move.w[..., None] * move.value[..., None, :]  # B W H n v
        rows[self.at_word] = self._own_change(move)
        moved = self.attention.join(torch.from_numpy(rows + self.mixed))  # B W n p
        shape = delta.shape[: delta.ndim - len(self.shape)] + self.batch + moved.shape[2:]
        return moved.reshape(shape).to(self.context.device)

    def f_rows(self, slot: int) -> Array:
        """The vectors f_j of one moving word, (H, n, v); 0 in rows that do not see it."""
        f = self.alpha[slot][..., None] * (self.own_value[slot][:, None] - self.mixed)
        if (got := self.captured) is not None:
            mine = got.slot == slot
            f[got.head[mine], got.row[mine]] = got.f[mine]
        return np.asarray(f)

    def score_rows(self, name: str) -> Array:
        """The vectors a with shift a . Delta of the scores that rows give the word ("t") or that it gives ("own")."""
        return self.reading[self._slices[name]].reshape(self.heads, self.n, -1)  # H n d

    @functools.cached_property
    def form_norms(self) -> Array:
        """Bounds on |query(Delta) . key(Delta)| / sqrt(q) over |Delta| <= 1 for each head, (H,)."""
        if self.form is not None:
            form = self.form.astype(np.float64)
            return np.array([math.sqrt(float(np.linalg.norm(product(form, form))))])  # |G| <= (tr G^4)^(1/4)
        norms = [self.attention.head_norms(name).numpy() for name in ("query", "key")]
        return np.asarray(norms[0] * norms[1] / self.size)

    def _starts(self, source: np.random.Generator) -> Tensor:
        """Directions that capture many rows at once, the moved row too: (B, *shape).

        The first two move the scores of the other rows most, in both signs. The others raise the scores of a random
        subset of rows, most of them together with the word's score of itself: maxima differ in which rows give their
        weight to the word, and ascent from random directions rarely ends where the moved row is one of them.
        """
        maps = self.reading[self._slices["t"]].astype(np.float64)  # H n d
        # relu scores: these directions lead to points where all scores of the moved row are 0, up to rounding
        relu = self.attention.score.name == "relu"
        count = 0 if relu else _CAPTURING
        subsets = _unit((source.random((count, len(maps))) < source.choice(_SUBSETS, (count, 1))) @ maps)
        own = self._attracting(source)[source.integers(_ATTRACTING, size=count)]  # B d
        mix = source.choice(_MIX, (count, 1, 1))
        gradient = self._self_scores(own) @ self.context[self.words].detach().cpu().double().numpy().T  # B W
        starts = subsets[:, None] + mix * np.where(gradient < 0, -1.0, 1.0)[..., None] * own[:, None]  # B W d
        if min(maps.shape) <= 2000:  # beyond this size the decomposition takes longer than the search
            wide = len(maps) <= maps.shape[1]
            with suited(self.decomposition):
                top = np.linalg.eigh(maps @ maps.T if wide else maps.T @ maps)[1][:, -1]
            direction = np.broadcast_to(_unit(maps.T @ top if wide else top), (1, *starts.shape[1:]))
            starts = np.concatenate([direction, -direction, starts])
        if relu and self._small:
            starts = np.concatenate([starts, self._cancelling(source)])
        return torch.from_numpy(starts).to(self.context).reshape(-1, *self.shape)

    def _exchange(self, delta: Tensor, values: Tensor) -> Tensor:
        """Points near the witnesses, in basins beside theirs: (B, *shape).

        Maxima differ in which rows give their weight to the word, and in which keys the moved row attends to. So each
        point is led to one row or key more, or to one less: those whose weight is nearest to half of the largest. In
        the last ones the moved row attends to itself, or no longer.
        """
        move = self._move(self._lift(delta))
        unit = _unit(self._lift(delta)[0])  # W d
        points = []
        for name, weights in (("t", move.w[0]), ("own", move.own_weights[0])):  # W H n
            share = over(weights, weights.max(-1, keepdims=True)).reshape(len(unit), -1).T  # H n W
            tiny = np.finfo(share.dtype).tiny
            order = np.argsort(np.abs(np.log(2 * share + tiny)), axis=0, kind="stable")[:_EXCHANGED]  # K W
            sign = np.where(np.take_along_axis(share, order, 0) > 0.5, -1.0, 1.0)[..., None]
            points.append(unit + _STEP * sign * _unit(self.score_rows(name)).reshape(-1, unit.shape[1])[order])
        own = self._attracting(np.random.default_rng(0))  # the same for every word and search
        moved = self.context[self.words].detach().cpu().numpy() + self._lift(delta)[0]
        raises = self._self_scores(own) @ moved.T >= 0  # B W
        itself = (2 * move.own_weights > move.own_weights.max(-1, keepdims=True))[self.at_word].mean((0, 2)) > 0.5  # W
        sign = np.where(raises != itself, 1.0, -1.0)[..., None]
        points += [unit + step * sign * own[:, None] for step in _OWN_STEPS]
        return torch.from_numpy(np.concatenate(points)).to(self.context).reshape(-1, *self.shape)

    def _cancelling(self, source: np.random.Generator) -> Array:
        """Directions that nearly cancel the word, (B, W, d): there a small change of Delta selects any relu weights."""
        context = self.context[self.words].detach().cpu().double().numpy()
        return _NEAR * _unit(source.standard_normal((_CANCELLING, 1, context.shape[1]))) - _unit(context)

    def _attracting(self, source: np.random.Generator) -> Array:
        """Random unit vectors with a large score of themselves, summed over the heads: shifted power iterations."""
        vectors = _unit(source.standard_normal((_ATTRACTING, self.context.shape[1])))
        for _ in range(6):
            pulled = self._self_scores(vectors)
            vectors = _unit(pulled + 0.5 * np.linalg.norm(pulled, axis=-1).max() * vectors)
        return vectors

    def _self_scores(self, vectors: Array) -> Array:
        """Half the gradients of the vectors' scores of themselves, summed over the heads, (B, d)."""
        if self.form is not None:
            return product(vectors.astype(self.form.dtype), self.form).astype(np.float64)
        rows = torch.from_numpy(vectors).to(self.context.dtype)
        both = [
            self.attention.pull(other, self.attention.apply(name, rows))
            for name, other in (("key", "query"), ("query", "key"))
        ]
        return np.asarray((both[0] + both[1]).double().numpy() / (2 * self.size))

    def _far_keys(self) -> Index:
        """The other keys whose values are farthest from each moved row, farthest first, (K, W)."""
        gaps = self.values[:, None] - self.mixed[:, self.words, None]  # H W n v
        far = (gaps * gaps).sum((0, 3))  # W n
        if self.own_sees is not None:
            far = np.where(self.own_sees[:, 0], far, -1.0)
        far[np.arange(len(far)), self.words] = -1.0
        return np.argsort(-far, axis=1)[:, : min(_FAR_KEYS, self.n - 1)].T

    def _pieces(self, delta: Tensor) -> Piece:
        """The change where the moved row attends only to the keys that it attends to at each of these points.

        That is smooth across the kinks where scores of other keys turn positive; how far a point is beyond them, as a
        distance, are the excesses.
        """
        own = self._move(self._lift(delta)).own
        sees = np.ones_like(own, bool) if self.own_sees is None else np.broadcast_to(self.own_sees, own.shape)
        top = np.where(sees, own, -np.inf).max(-1, keepdims=True)
        attended = sees & (own > _ATTENDED * np.maximum(top, 0))
        piece = self.single() if self._moderate else copy.copy(self)
        piece.own_sees = attended
        lengths = np.linalg.norm(self.score_rows("own"), axis=-1)  # H n
        per_length = (sees & ~attended) * over(np.ones_like(lengths), lengths).astype(piece.values.dtype)  # B W H n

        def evaluate(delta: Tensor) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
            move = piece._move(piece._lift(delta))
            change, pull = piece._change(move)
            value = self._lower(change, delta)

            def gradient(weights: Tensor) -> Tensor:
                by_excess = weights.detach().to("cpu", piece.context.dtype).numpy().reshape(per_length.shape)
                return self._raise(pull(-by_excess * per_length), delta)

            excess = torch.from_numpy(move.own * per_length).to(self.context.device)
            return value, excess.reshape(*value.shape, -1), gradient

        return evaluate

    def _nearby(self, delta: Tensor) -> Tensor:
        """Points near the first few of `delta` where the moved row gives all its weight to one key; relu scores only.

        That row jumps when all its scores but one turn negative: separate basins, which smooth ascent misses. The key
        is the word itself, and near the first point also those whose values are farthest from the row; in small
        contexts each of the others. Found by over-relaxed Polyak steps on the violated inequalities, until all of them
        hold or 100 steps are taken (there may be no such point); the result is only a starting point.
        """
        point = self._lift(delta[:3])  # B W d
        if self._small:
            keys = (self.words + np.arange(self.n)[:, None]) % self.n  # K W
            point, keys = np.repeat(point, len(keys), axis=0), np.tile(keys, (len(point), 1))
        else:
            keys = np.concatenate([np.tile(self.words, (len(point), 1)), self._far_keys()])
            point = np.concatenate([point, np.repeat(point[:1], len(keys) - len(point), axis=0)])
        key = keys[..., None, None].repeat(self.heads, axis=2)  # B W H 1
        radius = np.linalg.norm(point, axis=-1, keepdims=True)
        for _ in range(100):
            move = self._move(point)
            alone = np.take_along_axis(move.own, key, -1)  # B W H 1
            others = move.own if self.own_sees is None else np.where(self.own_sees, move.own, -np.inf)
            np.put_along_axis(others, key, -np.inf, -1)
            going = (others.max((-2, -1)) >= 0) | (alone <= 0).any((-2, -1))  # B W: each point stops separately
            if not going.any():
                break
            excess = np.maximum(others + 0.05, 0)  # the others should be at most -0.05, that of the key at least 1
            np.put_along_axis(excess, key, np.minimum(alone - 1.0, 0), -1)
            loss = (excess * excess).sum((-2, -1))[..., None]
            grad = self._write(move, {"own": excess, "value": np.zeros_like(move.value)})
            length = np.where(going[..., None], 1.5 * over(loss, (grad * grad).sum(-1, keepdims=True)), 0)
            point = point - length.astype(point.dtype) * grad
            point = point * over(radius, np.linalg.norm(point, axis=-1, keepdims=True))
        return torch.from_numpy(point).reshape(-1, *self.shape).to(self.context.device)

    def ceiling(self, radius: float, effort: str = "quick") -> Ceiling | None:
        from wordsway.maps.certificate import attention_ceiling

        with suited(self.decomposition):
            return attention_ceiling(self, radius, effort)

    @property
    def decomposition(self) -> float:
        """Operations of an eigendecomposition of the scores' Gram matrix, about 10 times the cube of its size."""
        return 10.0 * min(self.heads * self.n, self.context.shape[1]) ** 3
