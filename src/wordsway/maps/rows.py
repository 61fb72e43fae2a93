"""Attention's response by explicit rows: for words that move together, for an output projection, for linear scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from wordsway import memory
from wordsway.maps.response import AutogradResponse, Ceiling, Functional, SearchHints, ValueAndGradient, positive_norm
from wordsway.threads import suited

if TYPE_CHECKING:
    from wordsway.maps.attention import Attention


class RowsResponse:
    """Response of any attention along m words that move together, O(n m d) for each Delta (and n d p with an output).

    What the n rows mix without the moving words is computed once; a Delta adds the m moved keys to it, and recomputes
    the m moved rows. Gradients are by autograd through that.
    """

    def __init__(self, attention: Attention, X: Tensor, words: tuple[int, ...], together: bool = False) -> None:
        self.attention = attention
        self.words = list(words)
        n, d = X.shape
        self.rest = [k for k in range(n) if k not in set(words)]
        self.queries, self.keys, self.values = attention.project(X)  # H n q, H n q, H n v
        self.visible = attention.visible(X)
        scores = attention.scores(self.queries, self.keys)[..., self.rest]  # H n r
        sees = None if self.visible is None else self.visible[:, self.rest]
        self._set_up_rest(scores, sees)
        self.shape: tuple[int, ...] = (len(words), d) if together else (d,)
        self.batch: tuple[int, ...] = ()
        self.like = X.new_empty(0)
        work = 12.0 * self.mixed.numel() * (len(words) + 1)
        self.hints = SearchHints(X.dtype, X.device, work=work, nonsmooth=attention.score.name == "relu")
        self.context = X
        with torch.no_grad():
            features = self._at(X.new_zeros(self.shape))  # so that no move is no change, to the last digit
        self.norm = positive_norm(features)
        self._autograd = AutogradResponse(self._at, features, self.shape, self.batch)

    def _set_up_rest(self, scores: Tensor, sees: Tensor | None) -> None:
        """Gains of the words that stay, summed and mixed; softmax keeps the row's maximum apart."""
        score = self.attention.score
        if score.gain is None:
            masked = scores if sees is None else scores.masked_fill(~sees, -torch.inf)
            top = masked.amax(-1, keepdim=True) if self.rest else torch.full_like(self.queries[..., :1], -torch.inf)
            self.top = top  # H n 1
            gains = torch.where(masked > -torch.inf, (masked - top).exp(), 0.0)
        else:
            gains = score.gain(scores) if sees is None else score.gain(scores) * sees
        self.total = gains.sum(-1, keepdim=True)  # H n 1
        self.mixed = gains @ self.values[:, self.rest]  # H n v

    def features(self, delta: Tensor) -> Tensor:
        return self._autograd.features(delta)

    def change(self, delta: Tensor, gradient: bool = True) -> ValueAndGradient:
        return self._autograd.change(delta, gradient)

    def inner(self, u: Tensor) -> Functional:
        return self._autograd.inner(u)

    def ceiling(self, radius: float, effort: str = "quick") -> Ceiling | None:
        from wordsway.maps.row_ceilings import rows_ceiling

        with suited(20.0 * self.context.shape[1] ** 3):  # singular values of the weights
            return rows_ceiling(self, radius, effort)

    def _at(self, delta: Tensor) -> Tensor:
        """Features of the perturbed contexts, (..., n, p)."""
        lead = delta.shape[: delta.ndim - len(self.shape)]
        moves = delta.reshape(-1, len(self.words), delta.shape[-1])  # B m d
        heads, n, size = self.mixed.shape
        needed = 6 * moves.shape[0] * heads * n * (size + len(self.words)) * delta.element_size()
        memory.require(needed, "the rows of a batch of perturbations", "ask fewer perturbations at once")
        attention = self.attention
        moved = [attention.apply(name, moves) for name in ("query", "key", "value")]  # B H m s
        query, key, value = (
            m + s[:, self.words] for m, s in zip(moved, (self.queries, self.keys, self.values), strict=True)
        )
        rows = self._add_keys(attention.scores(self.queries, key), value)  # B H n v
        rows = rows.index_copy(2, torch.tensor(self.words, device=delta.device), self._moved_rows(query, key, value))
        joined = attention.join(rows)
        return joined.reshape(lead + joined.shape[1:])

    def _add_keys(self, scores: Tensor, value: Tensor) -> Tensor:
        """Rows of the words that stay, when the moved keys have these scores (B, H, n, m) and values."""
        score = self.attention.score
        sees = None if self.visible is None else self.visible[:, self.words]
        if score.gain is None:
            masked = scores if sees is None else scores.masked_fill(~sees, -torch.inf)
            top = torch.maximum(self.top, masked.amax(-1, keepdim=True))
            gains, fade = (masked - top).exp(), (self.top - top).exp()
            return (fade * self.mixed + gains @ value) / (fade * self.total + gains.sum(-1, keepdim=True))
        gains = score.gain(scores) if sees is None else score.gain(scores) * sees
        rows = self.mixed + gains @ value
        if not score.normalised:
            return rows
        total = self.total + gains.sum(-1, keepdim=True)
        return torch.where(total > 0, rows / torch.where(total > 0, total, 1.0), 0.0)

    def _moved_rows(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Rows of the moved words, (B, H, m, v)."""
        attention, order = self.attention, self.rest + self.words
        scores = torch.cat([attention.scores(query, self.keys[:, self.rest]), attention.scores(query, key)], dim=-1)
        sees = None if self.visible is None else self.visible[self.words][:, order]
        weights = attention.score.weights(scores, sees)
        stay = len(self.rest)
        return weights[..., :stay] @ self.values[:, self.rest] + weights[..., stay:] @ value
