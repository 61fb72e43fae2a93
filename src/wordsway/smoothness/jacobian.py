"""Jacobians as linear operators: attention's in closed form, any other callable's by autograd.

For a head with queries Q, keys K, values U, weights P = softmax(Q K^T / sqrt(q)) and output O = P U, a change dX moves
the scores by dS = (dQ K^T + Q dK^T) / sqrt(q) and the output by

    dO = (P o dS) U - diag(rowsum(P o dS)) O + P dU.

For the adjoint, the row sums of P o (G U^T) are the products g_i . o_i, known before any n x n matrix is made:

    T = P o (G U^T - rowsum(G o O)),   Q gets T K / sqrt(q),   K gets T^T Q / sqrt(q),   U gets P^T G.
"""

from __future__ import annotations

import copy
import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from wordsway import memory
from wordsway.errors import InputError
from wordsway.maps.attention import NAMES, Attention
from wordsway.packing import FixedMatrix
from wordsway.smoothness.heads import plain_attention

_STORED = 12 * 10**8  # bytes of weights that are kept rather than computed again for each product
_TILE = 8 * 2**20  # bytes of a tile of an n x n matrix: it should stay in the processor's cache
_SHORT, _SHORT_TILE = 256, 2**20  # contexts of up to so many words have smaller tiles
_PARTS = ("_queries", "_keys", "_values", "_values_one", "_mixed")  # of all heads, one after another


class Jacobian(Protocol):
    """The derivative of a map at a batch of contexts, as products with it and with its transpose.

    `inputs` and `outputs` are the shapes of arguments and results of `product`, the batch first.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    like: Tensor

    def product(self, change: Tensor) -> Tensor:
        """Return D_X f applied to a change of each context, (B, n, d) -> (B, ...)."""

    def adjoint(self, change: Tensor) -> Tensor:
        """Return its transpose applied to a change of the features, (B, ...) -> (B, n, d)."""

    def take(self, places: Tensor) -> Jacobian:
        """Return the derivatives at some contexts of the batch."""


class AttentionJacobian:
    """The Jacobian of softmax attention at contexts X, in closed form.

    Parameters
    ----------
    layer : Attention
        With softmax scores; heads, mask, biases, shared keys, positions and output as they are.
    X : Tensor (B, n, d)
    store : bool or None
        Whether the n x n weights are kept, or computed again in tiles for every product, so that memory stays O(n d).
        None keeps those of as many heads as fit into 1.2 GB and half of the free memory, in float64 with their copies
        of `single`.

    Notes
    -----
    A product or an adjoint costs 8 B n^2 d + 8 B n d^2 operations, a quarter of the first more where the weights are
    not kept. The tiles of n x n matrices in use at any time take a few MB.
    """

    def __init__(self, layer: Attention, X: Tensor, store: bool | None = None) -> None:
        if not layer.score.softmax:
            raise InputError(f"the closed form is for softmax attention, got {layer.score.name} scores")
        layer.check_width(X)
        self.layer = layer
        self.like = X.new_empty(0)
        self._batch, self._n, _ = X.shape
        queries, keys, values = (self._flat(part) for part in layer.project(X))  # BH n s
        # Rows of P sum to 1, so that neither P nor D_X f changes when all keys, or all values, move alike. Centred ones
        # keep the digits of scores that are large and nearly the same.
        self._keys, self._values = (part - part.mean(1, keepdim=True) for part in (keys, values))
        self._scale = 1 / math.sqrt(queries.shape[-1])
        self._queries = self._scale * queries
        self._budget = max(1, (_TILE if self._n > _SHORT else _SHORT_TILE) // X.element_size())
        most = min(_STORED, memory.available() // 2) if store is None else math.inf if store else 0
        bytes_of_one = X.element_size() + (4 if X.dtype == torch.float64 else 0)
        self._kept = int(min(len(queries), most // (self._n**2 * bytes_of_one)))  # heads, of all contexts
        self._weights = queries.new_zeros(self._kept, self._n, self._n)
        self._mixed = self._mix()
        self._values_one = torch.cat([self._values, torch.ones_like(self._values[..., :1])], dim=-1)
        self._heads_only = layer.without_output()
        self._stack = _Stack.of(layer, X)
        self._output = None if layer.output is None else FixedMatrix(layer.output.to(X))
        self.inputs = tuple(X.shape)
        self.outputs = tuple(self._join(self._mixed).shape)

    def product(self, change: Tensor) -> Tensor:
        """(B, n, d) -> (B, n, p)."""
        queries, keys, values = (self._flat(part) for part in self._project(change))
        left = torch.cat([self._scale * queries, self._queries], dim=-1)
        right = torch.cat([self._keys, keys], dim=-1)
        moved = torch.empty_like(self._mixed)
        for heads, rows, seen in self._tiles():
            weights = self._tile(heads, rows, seen)
            shifts = (left[heads, rows] @ right[heads, seen].mT).mul_(weights)  # P o dS
            mixed = _thin(shifts, self._values_one[heads, seen])
            mean = mixed[..., -1:] * self._mixed[heads, rows]
            moved[heads, rows] = mixed[..., :-1] - mean + _thin(weights, values[heads, seen])
        return self._join(moved)

    def adjoint(self, change: Tensor) -> Tensor:
        """(B, n, p) -> (B, n, d)."""
        joined = change if self._output is None else self._output.adjoint(change)
        pulled = self._flat(self._heads_only.split(joined))
        left = torch.cat([pulled, -(pulled * self._mixed).sum(-1, keepdim=True)], dim=-1)
        queries = torch.empty_like(self._queries)
        keys, values = torch.zeros_like(self._keys), torch.zeros_like(self._values)
        for heads, rows, seen in self._tiles():
            weights = self._tile(heads, rows, seen)
            shifts = (left[heads, rows] @ self._values_one[heads, seen].mT).mul_(weights)
            queries[heads, rows] = _thin(shifts, self._keys[heads, seen])
            keys[heads, seen] += _thin(shifts.mT, self._queries[heads, rows])
            values[heads, seen] += _thin(weights.mT, pulled[heads, rows])
        return self._pull(self._scale * queries, keys, values)

    def take(self, places: Tensor) -> AttentionJacobian:
        """Return the same at some contexts of the batch; where the weights are kept, theirs are copied."""
        part = copy.copy(self)
        part._batch = len(places)
        part.inputs, part.outputs = ((len(places), *shape[1:]) for shape in (self.inputs, self.outputs))
        kept = self._kept == len(self._queries)  # all of them, or none is taken along
        part._kept = len(places) * self.layer.heads if kept else 0
        for name in (*_PARTS, *(("_weights",) if kept else ())):
            setattr(part, name, self._by_batch(getattr(self, name))[places].flatten(0, 1))
        return part

    def single(self) -> AttentionJacobian:
        """Return the same in float32; weights that are kept are rounded, not computed again from rounded scores."""
        part = copy.copy(self)
        for name in ("like", *_PARTS, "_weights"):
            setattr(part, name, getattr(self, name).float())
        part._stack = _Stack.of(self.layer, part.like)
        part._output = None if self._output is None else FixedMatrix(self._output.weight.float())
        return part

    def _mix(self) -> Tensor:
        """Return O = P U, and store the weights of the first heads."""
        mixed = torch.empty_like(self._values)
        for heads, rows, seen in self._tiles():
            weights = self._softmax(heads, rows, seen)
            if heads.stop <= self._kept:
                self._weights[heads, rows, seen] = weights
            mixed[heads, rows] = weights @ self._values[heads, seen]
        return mixed

    def _tiles(self) -> Iterator[tuple[slice, slice, slice]]:
        """Yield tiles (heads, rows, columns) of all weights, without columns that a causal mask hides from a tile."""
        total, n = self._queries.shape[:2]
        together = max(1, min(total, self._budget // n**2))
        count = max(1, min(n, self._budget // n))
        starts = [*range(0, self._kept, together), *range(self._kept, total, together), total]
        for head, after in itertools.pairwise(starts):
            for row in range(0, n, count):
                end = min(n, row + count)
                yield slice(head, after), slice(row, end), slice(0, end if self.layer.causal else n)

    def _tile(self, heads: slice, rows: slice, seen: slice) -> Tensor:
        """Return a tile of the weights P."""
        if heads.stop <= self._kept:
            return self._weights[heads, rows, seen]
        return self._softmax(heads, rows, seen)

    def _softmax(self, heads: slice, rows: slice, seen: slice) -> Tensor:
        scores = self._queries[heads, rows] @ self._keys[heads, seen].mT
        places = torch.arange(self._n, device=scores.device)
        if self.layer.relative is not None:
            added = self.layer.relative.matrix(places[rows], places[seen]).to(scores)
            scores += added[torch.arange(heads.start, heads.stop, device=scores.device) % self.layer.heads]
        if self.layer.causal:
            scores.masked_fill_(places[seen] > places[rows, None], -torch.inf)
        return torch.softmax(scores, -1)

    def _project(self, change: Tensor) -> Iterator[Tensor]:
        if self._stack is None:
            return (self.layer.apply(name, change) for name in NAMES)
        return (self.layer.by_head(name, part) for name, part in self._stack.split(change))

    def _pull(self, *changes: Tensor) -> Tensor:
        parts = (self._by_batch(part) for part in changes)
        if self._stack is None:
            pulled = [self.layer.pull(name, part) for name, part in zip(NAMES, parts, strict=True)]
            return pulled[0] + pulled[1] + pulled[2]
        return self._stack.join([self.layer.from_heads(name, part) for name, part in zip(NAMES, parts, strict=True)])

    def _join(self, parts: Tensor) -> Tensor:
        """(B H, n, v) -> (B, n, p)."""
        joined = self._heads_only.join(self._by_batch(parts))
        return joined if self._output is None else self._output.product(joined)

    @staticmethod
    def _flat(parts: Tensor) -> Tensor:
        """(B, H, n, s) -> (B H, n, s)."""
        return parts.flatten(0, 1).contiguous()

    def _by_batch(self, parts: Tensor) -> Tensor:
        return parts.reshape(self._batch, -1, *parts.shape[1:])


def _thin(wide: Tensor, thin: Tensor) -> Tensor:
    """Return wide @ thin as the transpose of a product: twice as fast in BLAS where the result has few columns."""
    return (thin.mT @ wide.mT).mT


@dataclass(frozen=True)
class _Stack:
    """All three projections as one matrix, so that each product with them is one."""

    matrix: FixedMatrix
    sizes: list[int]

    @classmethod
    def of(cls, layer: Attention, like: Tensor) -> _Stack | None:
        """Return the stack of a layer's weights; None where one of them is the identity."""
        given = [weight.to(like) for name in NAMES if (weight := layer.weight(name)) is not None]
        if len(given) < len(NAMES):
            return None
        return cls(FixedMatrix(torch.cat(given)), [len(part) for part in given])

    def split(self, rows: Tensor) -> Iterator[tuple[str, Tensor]]:
        return zip(NAMES, torch.split(self.matrix.product(rows), self.sizes, dim=-1), strict=True)

    def join(self, parts: list[Tensor]) -> Tensor:
        return self.matrix.adjoint(torch.cat(parts, dim=-1))


class AutogradJacobian:
    """The Jacobian of any differentiable callable at contexts X (B, n, d), one at a time unless it is `batched`.

    Cost: a product is a forward pass with its tangent, an adjoint a backward pass.
    """

    def __init__(self, function: Callable[[Tensor], Tensor], X: Tensor) -> None:
        self._function = function
        batched = bool(getattr(function, "batched", False))
        self._map = function if batched else lambda contexts: torch.stack([function(context) for context in contexts])
        self._contexts = X
        self.like = X.new_empty(0)
        value, self._backward = _with_backward(self._map, X)
        if not value.is_floating_point() or value.shape[0] != len(X):
            raise InputError(f"a map must return real features of each context, got {value.dtype} {tuple(value.shape)}")
        self.inputs = tuple(X.shape)
        self.outputs = tuple(value.shape)

    def product(self, change: Tensor) -> Tensor:
        return tangent(self._map, self._contexts, change).detach()

    def adjoint(self, change: Tensor) -> Tensor:
        pulled: Tensor = self._backward(change)[0]
        return pulled.detach()

    def take(self, places: Tensor) -> AutogradJacobian:
        return AutogradJacobian(self._function, self._contexts[places])


def _with_backward(function: Callable[[Tensor], Tensor], X: Tensor) -> tuple[Tensor, Callable[[Tensor], Any]]:
    """Return the value at X, and the backward pass from it as a function."""

    def watched(inputs: Tensor) -> Tensor:
        value = function(inputs)
        if not value.requires_grad:  # its backward pass would be 0, whatever the layer is
            raise InputError("a layer must depend on the context through torch operations, got one without gradient")
        return value

    value, backward, *_ = torch.func.vjp(watched, X)
    return value, backward


def tangent(function: Callable[[Tensor], Tensor], X: Tensor, change: Tensor) -> Tensor:
    """Return the derivative of a function at X along a change, itself differentiable in X.

    By forward-mode differentiation; where an operation has no rule for that, by the transpose of the backward pass.
    """
    try:
        with warnings.catch_warnings():  # torch's own forward rules use what torch deprecates
            warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
            moved: Tensor = torch.func.jvp(function, (X,), (change,))[1]
    except (NotImplementedError, RuntimeError) as error:
        if "forward" not in str(error):
            raise
        value, backward = _with_backward(function, X)
        moved = _with_backward(lambda pulled: backward(pulled)[0], torch.zeros_like(value))[1](change)[0]
    return moved


def jacobian_of(layer: Callable[[Tensor], Tensor], X: Tensor, store: bool | None = None) -> Jacobian:
    """Return the Jacobian of a layer at contexts X (B, n, d): in closed form where it is softmax attention."""
    attention = plain_attention(layer)
    if isinstance(attention, Attention) and attention.score.softmax:
        return AttentionJacobian(attention, X, store)
    return AutogradJacobian(layer, X)
