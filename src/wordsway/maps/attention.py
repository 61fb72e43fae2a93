"""The attention family: one map with scores, heads, a causal mask, values and an output; raf and relu-raf are members.

Weights are as in torch.nn.Linear (out x in): queries are X query^T, a head's scores are Q K^T / sqrt(head size).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from wordsway import memory
from wordsway.checks import as_array, check_readable, check_size
from wordsway.errors import InputError
from wordsway.maps.one_word import OneWordResponse
from wordsway.maps.relative import RelativeBias
from wordsway.maps.response import PlainResponse, Response, StackedResponse
from wordsway.maps.rotary import Rotary
from wordsway.maps.rows import RowsResponse
from wordsway.maps.scores import Score, score_named
from wordsway.seeds import generator, normal
from wordsway.threads import one_thread, suited

NAMES = ("query", "key", "value")


class Attention:
    """Self-attention: phi(X) = concat_h( weights(Q_h K_h^T / sqrt(q)) U_h ) output^T.

    Parameters
    ----------
    query : array (heads * q, d) or None
        Projection to the queries; None is the identity (then q = d / heads).
    key : array (key_heads * q, d) or None
        Projection to the keys.
    value : array (key_heads * v, d) or None
        Projection of the mixed vectors; None is the identity, so that head h mixes the h-th block of coordinates.
    heads : int
        Number of heads, a divisor of the queries' width.
    causal : bool
        Whether word j sees only the words k <= j.
    score : {"softmax", "relu", "sigmoid", "linear"} or Score
        See `wordsway.maps.Score`, also for custom scores.
    output : array (p, heads * v) or None
        Projection of the concatenated heads; None leaves them side by side.
    query_bias, key_bias, value_bias, output_bias : array or None
        Added to the output of each projection.
    key_heads : int or None
        Number of heads that keys and values have, a divisor of `heads`: each is shared by consecutive query heads.
        Default: `heads`.
    rotary : Rotary or None
        Rotary positions of queries and keys.
    relative : RelativeBias or None
        Relative positions: added to scores.

    Notes
    -----
    A call costs O(n^2 d + n d^2) and O(heads n^2) memory; one evaluation of the response along a word, with its
    gradient, O(n d + d^2). Biases, shared keys and positions occur in layers of trained models: their response
    along a word is evaluated by autograd, as for any callable.
    """

    batched = True

    def __init__(
        self,
        query: Any,
        key: Any,
        value: Any = None,
        heads: int = 1,
        causal: bool = False,
        score: str | Score = "softmax",
        output: Any = None,
        *,
        query_bias: Any = None,
        key_bias: Any = None,
        value_bias: Any = None,
        output_bias: Any = None,
        key_heads: int | None = None,
        rotary: Rotary | None = None,
        relative: RelativeBias | None = None,
    ) -> None:
        self.score = score_named(score)
        self.causal = bool(causal)
        self.heads = check_size(heads, "heads")
        self.key_heads = self.heads if key_heads is None else check_size(key_heads, "key_heads")
        self.query = _projection("query", query)
        self.key = _projection("key", key)
        self.value = _projection("value", value)
        self.output = _projection("output", output)
        self.query_bias = _bias("query_bias", query_bias, self.query)
        self.key_bias = _bias("key_bias", key_bias, self.key)
        self.value_bias = _bias("value_bias", value_bias, self.value)
        self.output_bias = _bias("output_bias", output_bias, self.output)
        if not isinstance(rotary, Rotary | None):
            raise InputError(f"rotary must be a Rotary or None, got {type(rotary).__name__}")
        if not isinstance(relative, RelativeBias | None):
            raise InputError(f"relative must be a RelativeBias or None, got {type(relative).__name__}")
        self.rotary = rotary
        self.relative = relative
        if relative is not None:
            relative.check(self.heads)
        self._check_shapes()

    def _check_shapes(self) -> None:
        if self.heads % self.key_heads:
            raise InputError(f"key_heads must be a divisor of heads={self.heads}, got {self.key_heads}")
        given = {name: w for name in ("query", "key", "value") if (w := self.weight(name)) is not None}
        if self.key_heads != self.heads and len(given) < 3:
            raise InputError(f"query, key and value must all be given for key_heads={self.key_heads}, got None")
        if len({w.shape[1] for w in given.values()}) > 1:
            widths = ", ".join(f"{name} {w.shape[1]}" for name, w in given.items())
            raise InputError(f"query, key and value must read the same d (their columns), got {widths}")
        self.d = next((w.shape[1] for w in given.values()), None)
        for name, weight in given.items():
            if weight.shape[0] % (count := self._heads_of(name)):
                name_of_count = f"{'heads' if count == self.heads else 'key_heads'}={count}"
                raise InputError(f"the rows of {name} must be a multiple of {name_of_count}, got {weight.shape[0]}")
        if self.d is not None:
            self._check_heads(self.d, {name: weight.shape[0] for name, weight in given.items()})

    def _check_heads(self, d: int, rows: dict[str, int]) -> None:
        """Refuse projections that disagree on the size of a head."""
        query, key = rows.get("query", d), rows.get("key", d)
        if query * self.key_heads != key * self.heads:
            raise InputError(
                f"query and key must have as many rows for each head, got {query} and {key} for {self.heads} and "
                f"{self.key_heads} heads (None counts as d={d})"
            )
        if len(rows) < 3 and d % self.heads:
            raise InputError(f"a projection that is None needs d to be a multiple of heads={self.heads}, got {d}")
        width = rows.get("value", d) * self.heads // self.key_heads
        if self.output is not None and self.output.shape[1] != width:
            raise InputError(f"output must read the {width} columns of the heads, got {self.output.shape[1]}")
        if self.rotary is not None:
            self.rotary.check(query // self.heads)

    @property
    def plain(self) -> bool:
        """Whether there are neither biases nor shared keys nor positions."""
        biases = (self.query_bias, self.key_bias, self.value_bias, self.output_bias)
        positions = (self.rotary, self.relative)
        return all(part is None for part in (*biases, *positions)) and self.key_heads == self.heads

    def __call__(self, X: Tensor) -> Tensor:
        """Features of contexts, (..., n, d) -> (..., n, p)."""
        self.check(X)
        with suited(self.operations(X)):
            joined = self.join(self.mix(X))
            return joined if self.output_bias is None else joined + self.output_bias.to(joined)

    def mix(self, X: Tensor) -> Tensor:
        """Weighted means of the values of each head, before they are joined: (..., n, d) -> (..., H, n, v)."""
        queries, keys, values = self.project(X)  # ... H n q, ... H n q, ... H n v
        return self._weights(X, queries, keys) @ values

    def pattern(self, X: Tensor) -> Tensor:
        """Attention weights of each word (row) on each other (column), by head: (..., n, d) -> (..., H, n, n)."""
        self.check(X)
        queries, keys, _ = self.project(X)
        return self._weights(X, queries, keys)

    def _weights(self, X: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
        scores = self.scores(queries, keys)
        if self.relative is not None:
            places = torch.arange(X.shape[-2], device=X.device)
            scores = scores + self.relative.matrix(places, places).to(scores)
        return self.score.weights(scores, self.visible(X))

    def without_output(self) -> Attention:
        """The same attention with its heads left side by side."""
        part = copy.copy(self)
        part.output = part.output_bias = None
        return part

    def respond(self, X: Tensor, word: int | Sequence[int], together: bool = False) -> Response:
        """The fast response: closed form for single words, explicit rows where words move together.

        Explicit rows also serve the linear score and an output projection, whose squared change does not expand into
        products known from the set-up.
        """
        self.check(X)
        with suited(self.operations(X)):
            return self._respond(X, word, together)

    def _respond(self, X: Tensor, word: int | Sequence[int], together: bool) -> Response:
        if not self.plain:
            return PlainResponse(self, X, word, together)
        if together:
            return RowsResponse(self, X, (word,) if isinstance(word, int) else tuple(word), together=True)
        if self.score.normalised and self.output is None:
            return OneWordResponse(self, X, word)
        if isinstance(word, int):
            return RowsResponse(self, X, (word,))
        return StackedResponse([RowsResponse(self, X, (w,)) for w in word])

    def check(self, X: Tensor) -> None:
        """Refuse contexts of another shape, or whose scores do not fit into memory."""
        self.check_width(X)
        n = X.shape[-2]
        batch = math.prod(X.shape[:-2])
        needed = 3 * batch * self.heads * n * n * X.element_size()
        memory.require(needed, f"attention scores of {n} x {n} words", "use a shorter context")

    def operations(self, X: Tensor) -> float:
        """Floating-point operations of a call: two products of n x n x d and about three of n x d x d per context."""
        n, d = X.shape[-2:]
        return math.prod(X.shape[:-2]) * (4.0 * n * n * d + 6.0 * n * d * d)

    def check_width(self, X: Tensor) -> None:
        """Refuse what is not a context with words of the right dimension."""
        check_readable(X)
        d = X.shape[-1]
        if self.d is None:
            self._check_heads(d, {})
        elif d != self.d:
            raise InputError(f"this attention reads words of d={self.d}, got a context of d={d}")

    def project(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values by head, (..., H, n, size)."""
        queries, keys, values = (self.by_head(name, self._rows(name, X, bias=True)) for name in NAMES)
        return queries, keys, values

    def weight(self, name: str) -> Tensor | None:
        """One of the projections by its name; None is the identity."""
        return {"query": self.query, "key": self.key, "value": self.value}[name]

    def bias(self, name: str) -> Tensor | None:
        """The bias of one of the projections by its name; None is zero."""
        return {"query": self.query_bias, "key": self.key_bias, "value": self.value_bias}[name]

    def head_norms(self, name: str) -> Tensor:
        """Operator norms of the heads of one of the projections, in double precision on the CPU, (H,)."""
        weight = self.weight(name)
        if weight is None:
            return torch.ones(self.heads, dtype=torch.float64)
        by_head = weight.double().cpu().reshape(self._heads_of(name), -1, weight.shape[1])
        norms = torch.linalg.matrix_norm(by_head, 2) * (1 + 1e-9)  # covers the rounding of singular values
        return torch.as_tensor(norms).repeat_interleave(self.heads // self._heads_of(name))

    def apply(self, name: str, X: Tensor) -> Tensor:
        """The linear part of one of the projections of the rows of X, by head: (..., n, d) -> (..., H, n, size)."""
        return self.by_head(name, self._rows(name, X))

    def pull(self, name: str, gradient: Tensor) -> Tensor:
        """The adjoint of `apply`: (..., H, n, size) -> (..., n, d)."""
        rows = self.from_heads(name, gradient)
        weight = self.weight(name)
        return rows if weight is None else rows @ weight.to(rows)

    def _rows(self, name: str, X: Tensor, bias: bool = False) -> Tensor:
        weight, added = self.weight(name), self.bias(name) if bias else None
        rows = X if weight is None else X @ weight.to(X).mT
        return rows if added is None else rows + added.to(rows)

    def _heads_of(self, name: str) -> int:
        return self.heads if name == "query" else self.key_heads

    def by_head(self, name: str, rows: Tensor) -> Tensor:
        """Projected rows split by head, turned, and repeated where heads share them: (..., n, w) -> (..., H, n, s)."""
        heads = self._heads_of(name)
        sizes = heads, rows.shape[-1] // heads  # both given: -1 is ambiguous where there is no row
        split = rows.reshape(*rows.shape[:-1], *sizes).movedim(-2, -3)
        if self.rotary is not None and name != "value":
            split = self.rotary.turn(split)
        shared = self.heads // self._heads_of(name)
        return split if shared == 1 else split.repeat_interleave(shared, dim=-3)

    def from_heads(self, name: str, rows: Tensor) -> Tensor:
        """The adjoint of `by_head`: (..., H, n, size) -> (..., n, width)."""
        shared = self.heads // self._heads_of(name)
        if shared > 1:
            rows = rows.reshape(*rows.shape[:-3], -1, shared, *rows.shape[-2:]).sum(-3)
        if self.rotary is not None and name != "value":
            rows = self.rotary.turn(rows, back=True)
        return rows.movedim(-3, -2).flatten(-2)

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Q K^T / sqrt(q) of each head, without relative positions."""
        return queries @ keys.mT / math.sqrt(queries.shape[-1])

    def visible(self, X: Tensor) -> Tensor | None:
        """Which keys (columns) a row sees, (n, n); None when all."""
        n = X.shape[-2]
        return torch.ones(n, n, dtype=torch.bool, device=X.device).tril() if self.causal else None

    def join(self, rows: Tensor) -> Tensor:
        """Heads side by side, through the output without its bias: (..., H, n, v) -> (..., n, p)."""
        joined = rows.movedim(-3, -2).flatten(-2)
        return joined if self.output is None else joined @ self.output.to(joined).mT

    def split(self, features: Tensor) -> Tensor:
        """The adjoint of `join`: (..., n, p) -> (..., H, n, v)."""
        joined = features if self.output is None else features @ self.output.to(features)
        return joined.reshape(*joined.shape[:-1], self.heads, -1).movedim(-2, -3)


class RandomAttention:
    """Random attention features (3): phi(X) = weights(X W X^T / sqrt(d)) X, W of independent N(0, 1/d) entries.

    `score="softmax"` is the paper's raf, `score="relu"` its relu-raf.

    Parameters
    ----------
    d : int
        Dimension of a word.
    score : {"softmax", "relu", "sigmoid", "linear"} or Score
    seed : int
        Seed of W, which is drawn in float64 from a separate generator.
    weight : array (d, d), optional
        W itself, default: drawn from the seed.
    """

    batched = True

    def __init__(self, d: int, score: str | Score = "softmax", seed: int = 0, weight: Any = None) -> None:
        d = check_size(d, "d")
        memory.require(3 * 8 * d * d if weight is None else 0, f"a {d} x {d} weight", "use a smaller d")
        with suited(4.0 * d * d):
            self.weight = _gaussian(d, seed) if weight is None else _matrix("weight", weight)
            if tuple(self.weight.shape) != (d, d):
                raise InputError(f"weight must be {d} x {d}, got {' x '.join(map(str, self.weight.shape))}")
            self.attention = Attention(self.weight.mT, None, score=score)
        self.d = d
        self.seed = seed

    def __call__(self, X: Tensor) -> Tensor:
        """Features of contexts, (..., n, d) -> (..., n, d)."""
        return self.attention(X)

    def respond(self, X: Tensor, word: int | Sequence[int], together: bool = False) -> Response:
        """The fast response of the attention family."""
        return self.attention.respond(X, word, together)


def _gaussian(d: int, seed: int) -> Tensor:
    return normal(generator(seed, "attention"), (d, d)) / math.sqrt(d)


def _projection(name: str, weight: Any) -> Tensor | None:
    return None if weight is None else _matrix(name, weight)


def _bias(name: str, bias: Any, weight: Tensor | None) -> Tensor | None:
    """A bias as a finite vector with an entry for each row of its projection, which it needs."""
    if bias is None:
        return None
    if weight is None:
        raise InputError(f"{name} needs its projection to be given, got None for that")
    return as_array(bias, name, (len(weight),))


def _matrix(name: str, weight: Any) -> Tensor:
    """A weight as a finite matrix, out x in."""
    with one_thread():  # a pass over the memory, which more threads do not speed up much
        return as_array(weight, name, ("out", "in"))
