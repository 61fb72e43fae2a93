"""The one-word response of attention in closed form: O(n d) for a value with its gradient, no n x d intermediate.

For the word i that moves by Delta, write w_j for the weight that row j gives to it (w0_j before), p_j for row j of
phi(X), U_i for the value of the word, D for the value of Delta, and c_j for what row j mixes without the word. Then
p_j = (1 - w0_j) c_j + w0_j U_i, and row j != i changes by

    (w_j - w0_j) f_j + w_j D,   f_j = U_i - c_j = (U_i - p_j) / (1 - w0_j),

so the squared change needs only |f_j|, the products f_j . D (that is, P D), and the moved score t_j = q_j . key(Delta).
Row i is recomputed as it is. All words of a context share the scores and P; each has its own w0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from wordsway import memory
from wordsway.maps.response import Ceiling, Functional, ValueAndGradient, layout, positive_norm, relative
from wordsway.maps.scores import RatioShare, SoftmaxShare

if TYPE_CHECKING:
    from wordsway.maps.attention import Attention


@dataclass(frozen=True)
class Captured:
    """Rows that gave a moving word more than half of their weight: dividing by 1 - w0 would cancel, so f is explicit.

    A row has at most one such key, so there are at most n of them a head, whatever the number of words.
    """

    head: Tensor  # c
    row: Tensor  # c
    slot: Tensor  # c, which of the moving words
    f: Tensor  # c v


@dataclass(frozen=True)
class Move:
    """One batch of Deltas: what every question about it starts from."""

    value: Tensor  # H B W v, value of Delta
    key: Tensor  # H B W q, key of Delta
    query: Tensor  # H B W q, query of the moved word
    t: Tensor  # H B W n, shift of the scores that the other rows give the word
    w: Tensor  # H B W n, their new weights
    f_value: Tensor  # H B W n, products f . D
    own: Tensor  # H B W n, scores of the moved row
    own_weights: Tensor  # H B W n


class OneWordResponse:
    """Response of attention with a normalised score and no output, along words that move each on its own.

    Cost: O(n^2 d + n d^2) once, shared by all words; O(n d + d^2) for each Delta with its gradient, as large products.
    """

    def __init__(self, attention: Attention, X: Tensor, word: int | Sequence[int]) -> None:
        words = (word,) if isinstance(word, int) else tuple(word)
        self.attention = attention
        self.shape, self.batch = layout(X.shape[1], word, together=False)
        self.like = X.new_empty(0)
        self.words = torch.tensor(words, device=X.device)
        self.place = self.words.view(1, 1, -1, 1)  # where each word's own key stands, along the last axis
        self.context = X
        self.queries, self.keys, self.values = attention.project(X)  # H n q, H n q, H n v
        self.size = math.sqrt(self.queries.shape[-1])
        scores = attention.scores(self.queries, self.keys)
        self.visible = attention.visible(X)
        weights = attention.score.weights(scores, self.visible)  # H n n
        self.mixed = weights @ self.values  # H n v
        self.norm = positive_norm(self.mixed)
        self.start = weights[:, self.words]  # H W n, weights of the moving rows
        self._set_up_rows(scores, weights)

    def _set_up_rows(self, scores: Tensor, weights: Tensor) -> None:
        """Shares, f and its norm for each (head, moving word, row)."""
        to_word = weights[..., self.words].mT  # H W n, weight that each row gives to the word
        seen = torch.ones_like(to_word[0], dtype=torch.bool)  # W n
        if self.visible is not None:
            seen = self.visible[:, self.words].mT.clone()
        seen[torch.arange(len(self.words)), self.words] = False  # the word's own row is treated apart
        captured, odds_gain = self._captured(scores, weights, seen)
        self.share: SoftmaxShare | RatioShare
        if self.attention.score.gain is None:
            odds = to_word.log() - torch.log1p(-to_word)
            if captured is not None:
                odds[captured.head, captured.slot, captured.row] = odds_gain
            self.share = SoftmaxShare(odds.masked_fill(~seen, -torch.inf).unsqueeze(1))  # H 1 W n
        else:
            gains = self.attention.score.gain(scores)
            if self.visible is not None:
                gains = gains * self.visible
            rest = gains.sum(-1).unsqueeze(1) - gains[..., self.words].mT
            if captured is not None:
                rest[captured.head, captured.slot, captured.row] = odds_gain
            begin = scores[..., self.words].mT
            share = RatioShare(self.attention.score, begin, rest.clamp_min(0), seen.to(begin).expand_as(begin))
            self.share = RatioShare(share.score, *(x.unsqueeze(1) for x in (share.start, share.rest, share.seen)))
        self.before = self.share.weight(torch.zeros_like(to_word).unsqueeze(1))  # H 1 W n
        alpha = torch.where(seen, 1 / (1 - to_word), 0.0)
        own = self.values[:, self.words]  # H W v
        square = (own * own).sum(-1, keepdim=True) + (self.mixed * self.mixed).sum(-1).unsqueeze(1)
        gap = (square - 2 * own @ self.mixed.mT).clamp_min(0)  # H W n, |U_i - p_j|^2
        f_square = alpha**2 * gap
        if captured is not None:
            at = (captured.head, captured.slot, captured.row)
            alpha[at] = 0.0
            f_square[at] = (captured.f * captured.f).sum(-1)
        self.captured = captured
        self.alpha = alpha.unsqueeze(1)  # H 1 W n
        self.f_square = f_square.unsqueeze(1)  # H 1 W n

    def _captured(self, scores: Tensor, weights: Tensor, seen: Tensor) -> tuple[Captured | None, Tensor]:
        """The captured rows among the moving words, with their odds (softmax) or the others' gains (else)."""
        top, key = weights.max(-1)  # H n
        slot_of = torch.full((weights.shape[-1],), -1, device=scores.device)
        slot_of[self.words] = torch.arange(len(self.words), device=scores.device)
        slot = slot_of[key]
        rows = torch.arange(weights.shape[-1], device=scores.device)
        head, row = torch.nonzero((top > 0.5) & (slot >= 0) & (key != rows), as_tuple=True)
        if not len(row):
            return None, scores.new_empty(0)
        taken, slots = key[head, row], slot[head, row]
        others = torch.ones(len(row), weights.shape[-1], dtype=torch.bool, device=scores.device)
        if self.visible is not None:
            others = self.visible[row].clone()
        others[torch.arange(len(row)), taken] = False
        line = scores[head, row]  # c n
        mix = self.attention.score.weights(line, others)  # c n
        f = self.values[head, taken] - torch.einsum("cn,cnv->cv", mix, self.values[head])
        if self.attention.score.gain is None:
            rest = line[torch.arange(len(row)), taken] - line.masked_fill(~others, -torch.inf).logsumexp(-1)
        else:
            rest = (self.attention.score.gain(line) * others).sum(-1)
        return Captured(head, row, slots, f), rest

    # --- one batch of Deltas -------------------------------------------------------------------------------------

    def _lift(self, delta: Tensor) -> Tensor:
        """(..., *shape) -> (B, W, d)."""
        return delta.reshape(-1, len(self.words), self.context.shape[1])

    def _move(self, delta: Tensor) -> Move:
        attention, flat = self.attention, delta.flatten(0, 1)
        projected = (attention.apply(name, flat) for name in ("value", "key", "query"))  # H BW size
        value, key, query = (x.reshape(len(x), *delta.shape[:2], -1) for x in projected)
        query = query + self.queries[:, self.words].unsqueeze(1)
        t = self._times(key, self.queries) / self.size
        w = self.share.weight(t)
        own_value = (value * self.values[:, self.words].unsqueeze(1)).sum(-1, keepdim=True)
        f_value = self.alpha * (own_value - self._times(value, self.mixed))
        if (got := self.captured) is not None:
            f_value[got.head, :, got.slot, got.row] = torch.einsum("cbv,cv->cb", value[got.head, :, got.slot], got.f)
        own = self._times(query, self.keys) / self.size
        own = own.scatter_add(-1, self.place.expand(*own.shape[:3], 1), (query * key).sum(-1, keepdim=True) / self.size)
        sees = None if self.visible is None else self.visible[self.words]
        return Move(value, key, query, t, w, f_value, own, attention.score.weights(own, sees))

    @staticmethod
    def _times(left: Tensor, right: Tensor) -> Tensor:
        """(H, B, W, s) times (H, n, s) transposed, as one product a head: (H, B, W, n)."""
        return torch.matmul(left.flatten(1, 2), right.mT).reshape(*left.shape[:3], -1)

    @staticmethod
    def _back(left: Tensor, right: Tensor) -> Tensor:
        """(H, B, W, n) times (H, n, s), as one product a head: (H, B, W, s)."""
        return torch.matmul(left.flatten(1, 2), right).reshape(*left.shape[:3], -1)

    def _own_weight(self, move: Move) -> Tensor:
        return move.own_weights.gather(-1, self.place.expand(*move.own.shape[:3], 1))  # H B W 1

    def _own_change(self, move: Move) -> Tensor:
        """Change of the moved row, (H, B, W, v)."""
        drift = move.own_weights - self.start.unsqueeze(1)
        return self._back(drift, self.values) + self._own_weight(move) * move.value

    def change(self, delta: Tensor, gradient: bool = True) -> ValueAndGradient:
        move = self._move(self._lift(delta))
        w, step = move.w, move.w - self.before
        length = (move.value * move.value).sum(-1, keepdim=True)  # H B W 1
        own = self._own_change(move)  # H B W v
        # |step f + w D|^2, summed over rows; written so that it is exactly 0 at Delta = 0
        rows = (step * step * self.f_square + w * (2 * step * move.f_value + w * length)).sum(-1)
        square = (rows + (own * own).sum(-1)).sum(0)  # B W
        slope = None
        if gradient:
            by_weight = 2 * (step * self.f_square + (w + step) * move.f_value + w * length)
            by_value = 2 * (w * w).sum(-1, keepdim=True) * move.value
            slope = self._pull_back(move, by_weight, 2 * step * w, by_value, 2 * own).reshape(delta.shape)
        lead = delta.shape[: delta.ndim - len(self.shape)] + self.batch
        value, slope = relative(square.reshape(lead), slope, self.norm)
        return value, slope

    def inner(self, u: Tensor) -> Functional:
        parts = self.attention.split(u.to(self.mixed))  # H n v
        base = (parts * self.mixed).sum()
        own_parts = parts[:, self.words].unsqueeze(1)  # H 1 W v
        along = (parts @ self.values[:, self.words].mT - (parts * self.mixed).sum(-1, keepdim=True)).mT  # H W n
        along = self.alpha * along.unsqueeze(1)
        if (got := self.captured) is not None:
            along[got.head, 0, got.slot, got.row] = (parts[got.head, got.row] * got.f).sum(-1)

        def functional(delta: Tensor) -> ValueAndGradient:
            move = self._move(self._lift(delta))
            mixed = self._back(move.w, parts)  # H B W v; the moved row's own w is 0
            rows = ((move.w - self.before) * along).sum(-1) + (mixed * move.value).sum(-1)
            value = base + (rows + (self._own_change(move) * own_parts).sum(-1)).sum(0)
            by_weight = along + self._times(move.value, parts)
            slope = self._pull_back(move, by_weight, None, mixed, own_parts.expand_as(move.value))
            lead = delta.shape[: delta.ndim - len(self.shape)] + self.batch
            return value.reshape(lead), slope.reshape(delta.shape)

        return functional

    def _pull_back(
        self, move: Move, by_weight: Tensor, by_f: Tensor | None, by_value: Tensor, by_own: Tensor
    ) -> Tensor:
        """Gradient in Delta from those in the weights, the products f . D, D, and the moved row: (BW, d)."""
        by_score = by_weight * self.share.slope(move.t, move.w) / self.size
        key = self._back(by_score, self.queries)
        value = by_value
        if by_f is not None:
            scaled = by_f * self.alpha
            own = self.values[:, self.words].unsqueeze(1)
            value = value + scaled.sum(-1, keepdim=True) * own - self._back(scaled, self.mixed)
            if (got := self.captured) is not None:
                pulled = torch.einsum("cb,cv->cbv", by_f[got.head, :, got.slot, got.row], got.f)
                for c in range(len(got.row)):  # few rows; two of them may share a word, so no indexed addition
                    value[got.head[c], :, got.slot[c]] += pulled[c]
        own_weight = self._own_weight(move)
        value = value + own_weight * by_own
        index = self.place.expand(own_weight.shape)
        by_mix = self._times(by_own, self.values)
        by_mix = by_mix.scatter_add(-1, index, (by_own * move.value).sum(-1, keepdim=True))
        by_mix = by_mix - (move.own_weights * by_mix).sum(-1, keepdim=True)
        by_row = self._row_slope(move) * by_mix / self.size  # H B W n, gradient in the moved row's scores
        own_score = by_row.gather(-1, index)
        query = self._back(by_row, self.keys) + own_score * move.key
        key = key + own_score * move.query
        parts = (("value", value), ("key", key), ("query", query))
        return sum(self.attention.pull(name, part.flatten(1, 2)) for name, part in parts)  # type: ignore[return-value]

    def _row_slope(self, move: Move) -> Tensor:
        """Derivative of a weight of the moved row in its own score, before the row's mean is taken away."""
        score = self.attention.score
        if score.gain is None or score.slope is None:
            return move.own_weights
        sees = 1.0 if self.visible is None else self.visible[self.words].to(move.own)
        total = (score.gain(move.own) * sees).sum(-1, keepdim=True)
        return torch.where(total > 0, score.slope(move.own) * sees / torch.where(total > 0, total, 1.0), 0.0)

    def features(self, delta: Tensor) -> Tensor:
        lifted = self._lift(delta)
        needed = lifted.shape[0] * lifted.shape[1] * self.mixed.numel() * 3 * self.mixed.element_size()
        memory.require(needed, "the features of a batch of perturbations", "ask fewer perturbations at once")
        move = self._move(lifted)
        f = torch.stack([self.f_rows(slot) for slot in range(len(self.words))], dim=1).unsqueeze(1)  # H 1 W n v
        rows = (move.w - self.before).unsqueeze(-1) * f + move.w.unsqueeze(-1) * move.value.unsqueeze(-2)  # H B W n v
        slots = torch.arange(len(self.words))
        rows[:, :, slots, self.words] = self._own_change(move)
        moved = self.attention.join((rows + self.mixed[:, None, None]).movedim(0, 2))  # B W n p
        return moved.reshape(delta.shape[: delta.ndim - len(self.shape)] + self.batch + moved.shape[2:])

    def f_rows(self, slot: int) -> Tensor:
        """The vectors f_j of one moving word, (H, n, v); 0 in rows that do not see it."""
        f = self.alpha[:, 0, slot].unsqueeze(-1) * (self.values[:, self.words[slot]].unsqueeze(1) - self.mixed)
        if (got := self.captured) is not None:
            mine = got.slot == slot
            f[got.head[mine], got.row[mine]] = got.f[mine]
        return f

    def guesses(self) -> Tensor:
        """Directions that move the scores of the other rows most, both signs: (2, *shape)."""
        n, d = self.context.shape
        maps = self.attention.pull("key", self.queries)  # n d, the heads' score maps added up
        if min(n, d) > 2000:  # the decomposition would cost more than the search
            return self.context.new_empty(0, *self.shape)
        gram = maps @ maps.mT if n <= d else maps.mT @ maps
        top = torch.linalg.eigh(gram).eigenvectors[:, -1]
        direction = maps.mT @ top if n <= d else top
        return torch.stack([direction, -direction]).reshape(2, *[1] * len(self.batch), d).expand(2, *self.shape)

    def escapes(self, delta: Tensor) -> Tensor | None:
        """Points near `delta` where the moved row gives all its weight to itself, for scores that can be 0.

        With relu scores that row jumps when all its scores but its own turn negative: a basin of its own, which smooth
        ascent misses. Found by Polyak steps on the violated inequalities, so it is a place to start, nothing more.
        """
        if self.attention.score.name != "relu":
            return None
        point = self._lift(delta[:4])
        radius = torch.linalg.vector_norm(point, dim=-1, keepdim=True)
        for _ in range(30):
            move = self._move(point)
            index = self.place.expand(*move.own.shape[:3], 1)
            wanted = (1.0 - move.own.gather(-1, index)).clamp_min(0)  # the own score should be at least 1
            excess = (move.own + 0.05).clamp_min(0).scatter(-1, index, -wanted)  # the others at most -0.05
            if self.visible is not None:
                excess = excess * self.visible[self.words]
            query = self._back(excess, self.keys) - wanted * move.key
            parts = (("query", query), ("key", -wanted * move.query))
            slope = sum(self.attention.pull(name, part.flatten(1, 2)) for name, part in parts) / self.size
            slope = torch.as_tensor(slope).reshape(point.shape)
            square = (slope * slope).sum(-1, keepdim=True)
            loss = (excess * excess).sum((0, -1)).unsqueeze(-1)
            point = point - torch.where(square > 0, loss / square.clamp_min(1e-300), 0.0) * slope
            point = point * (radius / torch.linalg.vector_norm(point, dim=-1, keepdim=True).clamp_min(1e-300))
        return point.reshape(-1, *self.shape)

    def ceiling(self, radius: float, effort: str = "quick") -> Ceiling | None:
        from wordsway.maps.certificate import attention_ceiling

        return attention_ceiling(self, radius, effort)
