"""What a good engineer writes in some thirty lines for one kernel: batched, in closed form, in float32 where it helps.

Nothing of wordsway's maps, responses or searches is used here.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def swaps(weight: Tensor, X: Tensor, word: int, embeddings: Tensor) -> Tensor:
    """Relative change of raf (3) for every row of `embeddings` in place of a word, in closed form, float64.

    With w_j the new weight of row j on the word (w0_j before) and c_j the mean of row j over the other words, row j
    changes by (w0_j - w_j) c_j + w_j e - w0_j x, so that its square needs products of c_j, e and x only. The moved row
    is recomputed.
    """
    scale = 1 / math.sqrt(X.shape[1])
    queries, keys = X @ weight * scale, X @ weight.mT * scale  # n d: the scores of e are e @ queries.mT and e @ keys.mT
    scores = queries @ X.mT
    P = torch.softmax(scores, dim=-1)
    features, x = P @ X, X[word]
    others = scores.clone()
    others[:, word] = -torch.inf
    c, rest, before = torch.softmax(others, dim=-1) @ X, others.logsumexp(-1), P[:, word]
    base = before.square() * x.square().sum()
    squares = torch.empty(len(embeddings), dtype=X.dtype)
    for part, out in zip(torch.split(embeddings, 2048), torch.split(squares, 2048), strict=True):
        w = torch.sigmoid(part @ queries.mT - rest)  # v n
        step = before - w
        change = step.square() * c.square().sum(-1) + w.square() * part.square().sum(-1, keepdim=True) + base
        change += 2 * (step * w * (part @ c.mT) - step * before * (c @ x) - w * before * (part @ x)[:, None])
        own = part @ keys.mT
        own[:, word] = (part @ weight * part).sum(-1) * scale
        p = torch.softmax(own, dim=-1)
        moved = p @ X + p[:, word, None] * (part - x) - features[word]
        change[:, word] = moved.square().sum(-1)
        out.copy_(change.sum(-1))
    values: Tensor = squares.clamp_min(0).sqrt() / torch.linalg.vector_norm(features)
    return values
