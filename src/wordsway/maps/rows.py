"""The response of attention by explicit rows, and its ceilings: words together, an output projection, linear scores."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from wordsway import memory
from wordsway.maps.response import (
    AutogradResponse,
    Ceiling,
    Functional,
    SearchHints,
    ValueAndGradient,
    above_rounding,
    check_ball,
    positive_norm,
)
from wordsway.maps.scores import SCORES
from wordsway.threads import suited

if TYPE_CHECKING:
    from wordsway.maps.attention import Attention

_SLACK = 1 + 1e-9  # covers the rounding of singular values and sums


class RowsResponse:
    """Response of any attention along m words that move together, O(n m d) for each Delta (and n d p with an output).

    The sums of the n rows over the words that do not move are computed once; a Delta adds the m moved keys to them and
    recomputes the m moved rows. Gradients are computed by autograd.
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
        work = 12.0 * self.mixed.numel() * (len(words) + 1)
        self.hints = SearchHints(
            X.dtype,
            X.device,
            random_starts=min(max(10, 1000 // n), 48),  # short contexts have many local maxima, and are cheap
            work=work,
            nonsmooth=attention.score.name == "relu",
        )
        self.context = X
        with torch.no_grad():
            features = self._at(X.new_zeros(self.shape))  # by the same code, so that Delta = 0 changes nothing exactly
        self.norm = positive_norm(features)
        self._autograd = AutogradResponse(self._at, features, self.shape, self.batch)

    def _set_up_rest(self, scores: Tensor, sees: Tensor | None) -> None:
        """Sums of the gains and values of the words that stay; rules by odds store the maximum of a row separately."""
        score = self.attention.score
        if score.by_odds:
            masked = score.logs(scores, sees)
            top = masked.amax(-1, keepdim=True) if self.rest else torch.full_like(self.queries[..., :1], -torch.inf)
            self.top = top  # H n 1
            gains = torch.where(masked > -torch.inf, (masked - top).exp(), 0.0)
        else:
            gains = self._gains(scores, sees)
        self.total = gains.sum(-1, keepdim=True)  # H n 1
        self.mixed = gains @ self.values[:, self.rest]  # H n v

    def features(self, delta: Tensor) -> Tensor:
        return self._autograd.features(delta)

    def change(self, delta: Tensor, gradient: bool = True) -> ValueAndGradient:
        return self._autograd.change(delta, gradient)

    def inner(self, u: Tensor) -> Functional:
        return self._autograd.inner(u)

    def ceiling(self, radius: float, effort: str = "quick") -> Ceiling | None:
        with suited(20.0 * self.context.shape[1] ** 3):  # singular values of the weights
            return rows_ceiling(self, radius, effort)

    def _at(self, delta: Tensor) -> Tensor:
        """Features of the perturbed contexts, (..., n, p)."""
        lead = delta.shape[: delta.ndim - len(self.shape)]
        moves = delta.reshape(-1, len(self.words), delta.shape[-1])  # B m d
        heads, n, size = self.mixed.shape
        needed = 6 * moves.shape[0] * heads * n * (size + len(self.words)) * delta.element_size()
        memory.require(needed, "the rows of a batch of perturbations", "evaluate fewer perturbations at once")
        attention = self.attention
        moved = [attention.apply(name, moves) for name in ("query", "key", "value")]  # B H m s
        query, key, value = (
            m + s[:, self.words] for m, s in zip(moved, (self.queries, self.keys, self.values), strict=True)
        )
        rows = self._add_keys(attention.scores(self.queries, key), value)  # B H n v
        rows = rows.index_copy(2, torch.tensor(self.words, device=delta.device), self._moved_rows(query, key, value))
        joined = attention.join(rows)
        return joined.reshape(lead + joined.shape[1:])

    def _gains(self, scores: Tensor, sees: Tensor | None) -> Tensor:
        assert self.attention.score.gain is not None
        gains = self.attention.score.gain(scores)
        return gains if sees is None else gains * sees

    def _add_keys(self, scores: Tensor, value: Tensor) -> Tensor:
        """Rows of the words that stay, when the moved keys have these scores (B, H, n, m) and values."""
        score = self.attention.score
        sees = None if self.visible is None else self.visible[:, self.words]
        if score.by_odds:
            masked = score.logs(scores, sees)
            top = torch.maximum(self.top, masked.amax(-1, keepdim=True))
            gains, fade = (masked - top).exp(), (self.top - top).exp()
            return (fade * self.mixed + gains @ value) / (fade * self.total + gains.sum(-1, keepdim=True))
        gains = self._gains(scores, sees)
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


# --- ceilings ---------------------------------------------------------------------------------------------------


def rows_ceiling(response: RowsResponse, radius: float, effort: str) -> Ceiling | None:
    """A certified bound on the relative change; None for custom scores without a normaliser.

    One word and a normalised score: the certificate of the same attention without its output, times the output's norm.
    Words together: a row stays a mean of values, of which the moving ones reach kappa r further ("convex rows"), and of
    softmax and sigmoid scores weights change by little where scores do.
    Linear scores: the triangle inequality on each row's expansion in the moves ("row norms"), and for one word the
    norm of the part that is linear in the move, all rows at once, plus the rest.
    """
    check_ball(radius, effort, response.shape[-1])
    attention = response.attention
    if not (attention.score.normalised or attention.score.linear):
        return None
    out = 1.0 if attention.output is None else _norm(attention.output.to(response.context))
    if len(response.words) == 1 and attention.score.normalised:
        inner = attention.without_output().respond(response.context, response.words[0])
        ceiling = inner.ceiling(radius, effort)
        if ceiling is not None:
            before = torch.linalg.vector_norm(attention.mix(response.context))
            return Ceiling(ceiling.value * (out * float(before) / response.norm), ceiling.kind, ceiling.failure)
    if attention.score.normalised:
        rows = torch.minimum(_convex_rows(response, radius), _reweighted_rows(response, radius))
        bound, kind = rows.double().square().sum().sqrt(), "convex rows"
    else:
        bound, kind = _linear_rows(response, radius).double().sum().sqrt(), "row norms"
        if len(response.words) == 1 and bool((first := _linear_expansion(response, radius)) < bound):
            bound, kind = first, "operator norm of the linear part"
    values = out * float(response.values.norm()) / response.norm
    return Ceiling(above_rounding(bound * (out * _SLACK / response.norm), response.context.dtype, values), kind)


def _norm(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix, 2)) * _SLACK


def _head_norms(response: RowsResponse, name: str) -> Tensor:
    """Operator norms of the heads' projections, (H, 1)."""
    return response.attention.head_norms(name).to(response.context).unsqueeze(-1) * _SLACK


def _sees(response: RowsResponse, keys: list[int]) -> Tensor:
    """Which rows see which of these keys, (n, len(keys))."""
    n = response.context.shape[0]
    if response.visible is None:
        return torch.ones(n, len(keys), dtype=torch.bool, device=response.context.device)
    return response.visible[:, keys]


def _convex_rows(response: RowsResponse, radius: float) -> Tensor:
    """Bounds on the rows, (H, n): the farthest corner of the convex hull that contains the row."""
    words, values = response.words, response.values
    rows = response.attention.mix(response.context)  # H n v
    reach = radius * _head_norms(response, "value").unsqueeze(-1)  # H 1 1
    far = _distances(rows, values[:, words]) + reach  # H n m
    far = far.masked_fill(~_sees(response, words), 0.0).amax(-1)
    centre = torch.where(response.total > 0, response.mixed / response.total.clamp_min(1e-300), rows)
    stay = torch.linalg.vector_norm(centre - rows, dim=-1)  # H n, all weight back to the words that stay
    touched = _sees(response, words).any(-1)  # rows that see no moving word do not change
    bound = torch.where(touched, torch.maximum(far, stay), 0.0)
    if response.rest:
        others = _distances(rows[:, words], values[:, response.rest])  # H m r
        others = others.masked_fill(~_sees(response, response.rest)[words], 0.0).amax(-1)
        bound[:, words] = torch.maximum(bound[:, words], others)
    if response.attention.score.may_vanish:  # a row may lose all its weights
        bound = torch.where(touched, torch.maximum(bound, torch.linalg.vector_norm(rows, dim=-1)), bound)
    return bound


def _reweighted_rows(response: RowsResponse, radius: float) -> Tensor:
    """Bounds on the rows, (H, n), that shrink with the radius; infinite but for softmax and sigmoid scores.

    Where scores move by at most eps, so do the logarithms of the gains, and the distance of old and new weights in
    total variation is at most tanh(eps / 2). A row then moves by at most 2 tanh(eps / 2) times the largest distance of
    a value from it, and by kappa r times the largest share of the words that move.
    """
    attention, words, score = response.attention, response.words, response.attention.score
    if not score.softmax and score != SCORES["sigmoid"]:
        return torch.full_like(response.mixed[..., 0], torch.inf)
    size = math.sqrt(response.queries.shape[-1])
    pulled = {
        name: torch.stack([_pulled(response, name, rows, head).norm(dim=-1) for head in range(attention.heads)])
        for name, rows in (("key", response.queries), ("query", response.keys))
    }  # H n, lengths of the gradients of scores
    by_key, by_query = (pulled[name] * (radius * _SLACK / size) for name in ("key", "query"))
    form = radius**2 * _head_norms(response, "query") * _head_norms(response, "key") / size  # H 1
    sees = _sees(response, list(range(response.context.shape[0])))
    moves = torch.where(sees[:, words].any(-1), by_key, 0.0)  # H n, of the scores of rows that stay
    own = by_query[:, None].expand(-1, len(words), -1).clone()  # H m n
    own[..., words] += by_key[:, words, None] + form[..., None]
    moves[:, words] = own.masked_fill(~sees[words], 0.0).amax(-1)
    far = _distances(attention.mix(response.context), response.values).masked_fill(~sees, 0.0).amax(-1)
    # from the logarithms: a share that underflows to 0 can still grow
    logs = score.logs(attention.scores(response.queries, response.keys), sees)  # H n n
    odds = logs[..., words].logsumexp(-1) - logs[..., response.rest].logsumexp(-1)
    share = torch.sigmoid(odds + 2 * moves)
    stretch = radius * _head_norms(response, "value")
    return 2 * torch.tanh(moves / 2) * far + share * stretch


def _distances(a: Tensor, b: Tensor) -> Tensor:
    """Distances of rows, (H, n, m): those of products of matrices would lose half the digits where rows are close."""
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")


def _linear_rows(response: RowsResponse, radius: float) -> Tensor:
    """Squared bounds on the rows, (H, n), for weights that are the scores themselves."""
    attention, words = response.attention, response.words
    size = math.sqrt(response.queries.shape[-1])
    q_step, k_step, u_step = (radius * _head_norms(response, name) for name in ("query", "key", "value"))  # H 1
    q, k, u = (torch.linalg.vector_norm(x, dim=-1) for x in (response.queries, response.keys, response.values))  # H n
    scores = attention.scores(response.queries, response.keys[:, words]).abs()  # H n m
    moved = scores * u_step.unsqueeze(-1) + (q * k_step).unsqueeze(-1) / size * (u[:, words] + u_step).unsqueeze(1)
    bound = (moved * _sees(response, words)).sum(-1)  # H n
    far = torch.zeros_like(k[0], dtype=torch.bool)
    far[words] = True
    k_far, u_far = k + k_step * far, u + u_step * far  # H n
    gain = k * (u_step * far) + k_step * far * u_far  # H n, k_far u_far - k u with all its digits
    own = q[:, words].unsqueeze(-1) * gain.unsqueeze(1) + q_step.unsqueeze(-1) * (k_far * u_far).unsqueeze(1)
    own = own / size  # H m n
    sees = torch.ones_like(own[0], dtype=torch.bool) if response.visible is None else response.visible[words]
    bound[:, words] = (own * sees).sum(-1)
    return torch.square(bound)


def _linear_expansion(response: RowsResponse, radius: float) -> Tensor:
    """Bound on the change for one word and weights that are the scores themselves: |J| r plus what is not linear.

    Row j changes by t u + S_ji D + t D (t its score's shift, u the word's value, D that of the move), the moved row by
    sum_k s_k u_k + (S_ii + s_i) D, where s_k is linear but for the quadratic form in s_i. Only J^T J is formed.
    """
    attention, word = response.attention, response.words[0]
    values, rest = response.values.double(), torch.zeros((), dtype=torch.float64, device=response.context.device)
    scores = attention.scores(response.queries, response.keys).double()  # H n n
    sees = torch.ones_like(scores[0]) if response.visible is None else response.visible.to(scores)
    other = sees[:, word].clone()
    other[word] = 0.0
    gram: Tensor | float = 0.0
    forms = (attention.head_norms("query") * attention.head_norms("key")).to(values)
    size = math.sqrt(response.queries.shape[-1])
    stretch = radius * attention.head_norms("value").to(values)
    for head in range(attention.heads):
        by_t = _pulled(response, "key", response.queries, head).double() / size  # n d
        by_own = _pulled(response, "query", response.keys, head).double() / size
        by_own[word] += by_t[word]
        by_t, score = by_t * other[:, None], scores[head, :, word] * other
        value = _head_weight(response, head)  # v d
        cross = torch.outer(by_t.mT @ score, value.mT @ values[head, word])
        own = (values[head] * sees[word, :, None]).mT @ by_own + scores[head, word, word] * value  # v d
        length = values[head, word].norm()
        gram = gram + length**2 * (by_t.mT @ by_t) + cross + cross.mT + own.mT @ own
        gram = gram + score.square().sum() * (value.mT @ value)
        form = radius**2 * forms[head] / size
        alone = form * length + (radius * by_own[word].norm() + form) * stretch[head]
        rest = rest + (radius * _norm(by_t) * stretch[head]) ** 2 + alone**2
    top = torch.linalg.eigvalsh(torch.as_tensor(gram))[-1].clamp_min(0)
    return torch.as_tensor(radius * top.sqrt() * _SLACK + rest.sqrt())


def _pulled(response: RowsResponse, name: str, rows: Tensor, head: int) -> Tensor:
    """Rows of one head through the transpose of its projection, (n, d)."""
    alone = torch.zeros_like(rows)
    alone[head] = rows[head]
    return response.attention.pull(name, alone)


def _head_weight(response: RowsResponse, head: int) -> Tensor:
    """The projection of one head's values, (v, d)."""
    d = response.context.shape[1]
    weight = response.attention.weight("value")
    weight = torch.eye(d, dtype=torch.float64) if weight is None else weight.double()
    return weight.to(response.context.device).reshape(response.attention.heads, -1, d)[head]
