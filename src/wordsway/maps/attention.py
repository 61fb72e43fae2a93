"""The attention family: one map with scores, heads, a causal mask, values and an output; raf and relu-raf are members.

Weights are as in torch.nn.Linear (out x in): queries are X query^T, a head's scores are Q K^T / sqrt(head size).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from wordsway import memory
from wordsway.contexts import check_size
from wordsway.errors import InputError
from wordsway.maps.one_word import OneWordResponse
from wordsway.maps.response import Response, StackedResponse
from wordsway.maps.rows import RowsResponse
from wordsway.maps.scores import score_named
from wordsway.seeds import generator


class Attention:
    """Self-attention without biases: phi(X) = concat_h( weights(Q_h K_h^T / sqrt(q)) U_h ) output^T.

    Parameters
    ----------
    query, key : array (heads * q, d) or None
        Projections; None is the identity (then q = d / heads).
    value : array (heads * v, d) or None
        Projection of the mixed vectors; None is the identity, so that head h mixes the h-th block of coordinates.
    heads : int
        Number of heads, a divisor of all three widths.
    causal : bool
        Whether word j sees only the words k <= j.
    score : {"softmax", "relu", "sigmoid", "linear"}
        See `wordsway.maps.scores.Score`.
    output : array (p, heads * v) or None
        Projection of the concatenated heads; None leaves them side by side.

    Notes
    -----
    A call costs O(n^2 d + n d^2) and O(heads n^2) memory; one evaluation of the response along a word, with its
    gradient, O(n d + d^2).
    """

    batched = True

    def __init__(
        self,
        query: Any,
        key: Any,
        value: Any = None,
        heads: int = 1,
        causal: bool = False,
        score: str = "softmax",
        output: Any = None,
    ) -> None:
        self.score = score_named(score)
        self.causal = bool(causal)
        self.heads = check_size(heads, "heads")
        self.query = _projection("query", query)
        self.key = _projection("key", key)
        self.value = _projection("value", value)
        self.output = _projection("output", output)
        self._check_shapes()

    def _check_shapes(self) -> None:
        given = {name: w for name in ("query", "key", "value") if (w := self.weight(name)) is not None}
        if len({w.shape[1] for w in given.values()}) > 1:
            widths = ", ".join(f"{name} {w.shape[1]}" for name, w in given.items())
            raise InputError(f"query, key and value must read the same d (their columns), got {widths}")
        self.d = next((w.shape[1] for w in given.values()), None)
        sizes = {name: w.shape[0] for name, w in given.items()}
        for name, size in sizes.items():
            if size % self.heads:
                raise InputError(f"the rows of {name} must be a multiple of heads={self.heads}, got {size}")
        if self.d is not None:
            query, key = sizes.get("query", self.d), sizes.get("key", self.d)
            if query != key:
                raise InputError(
                    f"query and key must have as many rows, got {query} and {key} (None counts as d={self.d})"
                )
            if len(sizes) < 3 and self.d % self.heads:
                raise InputError(
                    f"a projection that is None needs d to be a multiple of heads={self.heads}, got {self.d}"
                )
            width = sizes.get("value", self.d)
            if self.output is not None and self.output.shape[1] != width:
                raise InputError(f"output must read the {width} columns of the heads, got {self.output.shape[1]}")

    def __call__(self, X: Tensor) -> Tensor:
        """Features of contexts, (..., n, d) -> (..., n, p)."""
        self.check(X)
        return self.join(self.mix(X))

    def mix(self, X: Tensor) -> Tensor:
        """What each head mixes, before they are joined: (..., n, d) -> (..., H, n, v)."""
        queries, keys, values = self.project(X)  # ... H n q, ... H n q, ... H n v
        return self.score.weights(self.scores(queries, keys), self.visible(X)) @ values

    def without_output(self) -> Attention:
        """The same attention with its heads left side by side."""
        return Attention(self.query, self.key, self.value, self.heads, self.causal, self.score.name)

    def respond(self, X: Tensor, word: int | Sequence[int], together: bool = False) -> Response:
        """The fast response: closed form for single words, explicit rows where words move together.

        Explicit rows also serve the linear score and an output projection, whose squared change does not expand into
        products known from the set-up.
        """
        self.check(X)
        if together:
            return RowsResponse(self, X, (word,) if isinstance(word, int) else tuple(word), together=True)
        if self.score.normalised and self.output is None:
            return OneWordResponse(self, X, word)
        if isinstance(word, int):
            return RowsResponse(self, X, (word,))
        return StackedResponse([RowsResponse(self, X, (w,)) for w in word])

    def check(self, X: Tensor) -> None:
        """Whether contexts of this shape can be read, and their scores held."""
        n, d = X.shape[-2:]
        if self.d is not None and d != self.d:
            raise InputError(f"this attention reads words of d={self.d}, got a context of d={d}")
        if d % self.heads and None in (self.query, self.key, self.value):
            raise InputError(f"d must be a multiple of heads={self.heads} when a projection is None, got d={d}")
        batch = math.prod(X.shape[:-2])
        needed = 3 * batch * self.heads * n * n * X.element_size()
        memory.require(needed, f"attention scores of {n} x {n} words", "use a shorter context")

    def project(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values by head, (..., H, n, size)."""
        return self.apply("query", X), self.apply("key", X), self.apply("value", X)

    def weight(self, name: str) -> Tensor | None:
        """One of the projections by its name; None is the identity."""
        return {"query": self.query, "key": self.key, "value": self.value}[name]

    def _by_head(self, rows: Tensor) -> Tensor:
        return rows.reshape(*rows.shape[:-1], self.heads, -1).movedim(-2, -3)

    def apply(self, name: str, X: Tensor) -> Tensor:
        """One of the projections of the rows of X, split by head: (..., n, d) -> (..., H, n, size)."""
        weight = self.weight(name)
        projected = X if weight is None else X @ weight.to(X).mT
        return self._by_head(projected)

    def pull(self, name: str, gradient: Tensor) -> Tensor:
        """The adjoint of `apply`: (..., H, n, size) -> (..., n, d)."""
        joined = gradient.movedim(-3, -2).flatten(-2)
        weight = self.weight(name)
        return joined if weight is None else joined @ weight.to(joined)

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Q K^T / sqrt(q) of each head."""
        return queries @ keys.mT / math.sqrt(queries.shape[-1])

    def visible(self, X: Tensor) -> Tensor | None:
        """Which keys (columns) a row sees, (n, n); None when all."""
        n = X.shape[-2]
        return torch.ones(n, n, dtype=torch.bool, device=X.device).tril() if self.causal else None

    def join(self, rows: Tensor) -> Tensor:
        """Heads side by side, through the output: (..., H, n, v) -> (..., n, p)."""
        joined = rows.movedim(-3, -2).flatten(-2)
        return joined if self.output is None else joined @ self.output.to(joined).mT

    def split(self, features: Tensor) -> Tensor:
        """The adjoint of `join`: (..., n, p) -> (..., H, n, v)."""
        joined = features if self.output is None else features @ self.output.to(features)
        return self._by_head(joined)


class RandomAttention:
    """Random attention features (3): phi(X) = weights(X W X^T / sqrt(d)) X, W of independent N(0, 1/d) entries.

    `score="softmax"` is the paper's raf, `score="relu"` its relu-raf.

    Parameters
    ----------
    d : int
        Dimension of a word.
    score : {"softmax", "relu", "sigmoid", "linear"}
    seed : int
        Seed of W, which is drawn in float64 from an own generator.
    weight : array (d, d), optional
        W itself, instead of drawing it.
    """

    batched = True

    def __init__(self, d: int, score: str = "softmax", seed: int = 0, weight: Any = None) -> None:
        d = check_size(d, "d")
        memory.require(3 * 8 * d * d if weight is None else 0, f"a {d} x {d} weight", "use a smaller d")
        self.weight = _gaussian(d, seed) if weight is None else _matrix("weight", weight)
        if tuple(self.weight.shape) != (d, d):
            raise InputError(f"weight must be {d} x {d}, got {' x '.join(map(str, self.weight.shape))}")
        self.d = d
        self.seed = seed
        self.attention = Attention(self.weight.mT, None, score=score)

    def __call__(self, X: Tensor) -> Tensor:
        """Features of contexts, (..., n, d) -> (..., n, d)."""
        return self.attention(X)

    def respond(self, X: Tensor, word: int | Sequence[int], together: bool = False) -> Response:
        """The fast response of the attention family."""
        return self.attention.respond(X, word, together)


def _gaussian(d: int, seed: int) -> Tensor:
    return torch.randn(d, d, generator=generator(seed, "attention"), dtype=torch.float64) / math.sqrt(d)


def _projection(name: str, weight: Any) -> Tensor | None:
    return None if weight is None else _matrix(name, weight)


def _matrix(name: str, weight: Any) -> Tensor:
    """A weight as a finite matrix, out x in."""
    matrix = torch.as_tensor(weight)
    if matrix.ndim != 2 or not matrix.is_floating_point() or 0 in matrix.shape:
        raise InputError(f"{name} must be a real matrix (out x in), got shape {tuple(matrix.shape)} of {matrix.dtype}")
    if not torch.isfinite(matrix).all():
        raise InputError(f"{name} must be finite, got entries that are not")
    return matrix.detach()
