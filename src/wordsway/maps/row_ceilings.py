"""Ceilings for attention's responses by explicit rows: words together, linear scores, an output projection."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from wordsway.maps.response import Ceiling, check_ball

if TYPE_CHECKING:
    from wordsway.maps.rows import RowsResponse

_SLACK = 1 + 1e-9


def rows_ceiling(response: RowsResponse, radius: float, effort: str) -> Ceiling | None:
    """A certified bound on the relative change; None for scores of one's own without a normaliser.

    One word and a normalised score: the certificate of the same attention without its output, times the output's norm.
    Words together: a row stays a mean of values, of which the moving ones reach kappa r further ("convex rows").
    Linear scores: the triangle inequality on each row's expansion in the moves ("row norms").
    """
    check_ball(radius, effort, response.shape[-1])
    attention = response.attention
    if not (attention.score.normalised or attention.score.linear):
        return None
    out = 1.0 if attention.output is None else _norm(attention.output.to(response.like))
    if len(response.words) == 1 and attention.score.normalised:
        inner = attention.without_output().respond(response.context, response.words[0])
        found = inner.ceiling(radius, effort)
        if found is not None:
            before = torch.linalg.vector_norm(attention.mix(response.context))
            return Ceiling(found.value * (out * float(before) / response.norm), found.kind, found.failure)
    if attention.score.normalised:
        squares, kind = _convex_rows(response, radius), "convex rows"
    else:
        squares, kind = _linear_rows(response, radius), "row norms"
    value = squares.double().sum().sqrt() * (out * _SLACK / response.norm)
    return Ceiling(value, kind)


def _norm(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix, 2)) * _SLACK


def _head_norms(response: RowsResponse, name: str) -> Tensor:
    """Operator norms of the heads' projections, (H, 1)."""
    weight, heads = response.attention.weight(name), response.attention.heads
    if weight is None:
        return torch.ones(heads, 1, dtype=response.like.dtype, device=response.like.device)
    by_head = weight.to(response.like).reshape(heads, -1, weight.shape[1])
    return torch.as_tensor(torch.linalg.matrix_norm(by_head, 2)).unsqueeze(-1) * _SLACK


def _sees(response: RowsResponse, keys: list[int]) -> Tensor:
    """Which rows see which of these keys, (n, len(keys))."""
    n = response.context.shape[0]
    if response.visible is None:
        return torch.ones(n, len(keys), dtype=torch.bool, device=response.like.device)
    return response.visible[:, keys]


def _convex_rows(response: RowsResponse, radius: float) -> Tensor:
    """Squared bounds of the rows, (H, n): the farthest corner of the hull that a row stays in."""
    words, values = response.words, response.values
    rows = response.attention.mix(response.context)  # H n v
    reach = radius * _head_norms(response, "value").unsqueeze(-1)  # H 1 1
    far = torch.cdist(rows, values[:, words]) + reach  # H n m
    far = far.masked_fill(~_sees(response, words), 0.0).amax(-1)
    centre = torch.where(response.total > 0, response.mixed / response.total.clamp_min(1e-300), rows)
    stay = torch.linalg.vector_norm(centre - rows, dim=-1)  # H n, all weight back to the words that stay
    touched = _sees(response, words).any(-1)  # rows that see no moving word do not change
    bound = torch.where(touched, torch.maximum(far, stay), 0.0)
    if response.rest:
        others = torch.cdist(rows[:, words], values[:, response.rest])  # H m r
        others = others.masked_fill(~_sees(response, response.rest)[words], 0.0).amax(-1)
        bound[:, words] = torch.maximum(bound[:, words], others)
    if response.attention.score.may_vanish:  # a row may lose all its weights
        bound = torch.where(touched, torch.maximum(bound, torch.linalg.vector_norm(rows, dim=-1)), bound)
    return torch.square(bound)


def _linear_rows(response: RowsResponse, radius: float) -> Tensor:
    """Squared bounds of the rows, (H, n), for weights that are the scores themselves."""
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
