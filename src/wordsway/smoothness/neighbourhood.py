"""An upper bound on the local Lipschitz constants of attention at all contexts near a given one.

Row i of D_X f applied to dX is, for a head,

    V ( sum_j P_ij dx_j  +  C_i A dx_i  +  sum_j P_ij (x_j - m_i) <A x_i, dx_j> ),

with m_i and C_i the mean and covariance of the words under row i of P. The norms of the three maps are bounded from the
weights, means and covariances at the context, and from intervals of the weights in its neighbourhood. The proofs are in
docs/certificates.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from wordsway import memory
from wordsway.checks import as_context
from wordsway.errors import InputError
from wordsway.maps import Attention
from wordsway.memory import ResourceUsage
from wordsway.records import Record, bars
from wordsway.smoothness.heads import attention_of, factors, norm, square_root, value_rows
from wordsway.threads import suited

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SLACK = 1e-12  # of the largest product of two entries: rounding errors of second moments are smaller
_FARTHEST = 300.0  # change of a score above which nothing is known about the weights


@dataclass(frozen=True, eq=False, repr=False)
class NeighbourhoodBound(Record):
    """An upper bound on |D_Y f|_2 at all contexts Y with |y_i - x_i| <= radius for every word i.

    Attributes
    ----------
    value : float
        The bound: the sum of the three parts.
    radius : float
        0 for the context itself.
    n : int
    mean, own, others : float
        Bounds on the three maps: means of what moves, the scores of a word that moves, the scores of the others.
    cost : ResourceUsage
    """

    value: float
    radius: float
    n: int
    mean: float
    own: float
    others: float
    cost: ResourceUsage

    summary_fields = ("value", "radius", "mean", "own", "others")

    def draw(self, ax: Axes) -> None:
        """Draw the bound and its three parts."""
        bars(ax, {name: getattr(self, name) for name in ("value", "mean", "own", "others")})


def neighbourhood_bound(layer: Callable[[Tensor], Tensor], X: Any, radius: float = 0.0) -> NeighbourhoodBound:
    """Bound the local Lipschitz constants of softmax attention at a context, and at all contexts near it.

    Parameters
    ----------
    layer : Attention or RandomAttention
        With softmax scores; heads, mask, biases, shared keys, positions and output as they are.
    X : array (n, d)
    radius : float
        How far each word may be from its place in X; 0 is the context itself.

    Notes
    -----
    In the neighbourhood a score changes by |ds_ij| <= t_ij = e (|A x_i| + |A^T x_j|) + e^2 |A|, and a weight by a
    factor of e^(2 t) at most. Where that is much, the bounds of `lipschitz_bounds`, over all contexts, are smaller.

    Cost: O(n^2 q^2 + n q^3) per head, in float64 on the CPU, and memory for O(n^2 + n q^2) numbers.
    """
    attention = attention_of(layer)
    context = as_context(X).detach().to("cpu", torch.float64)
    attention.check(context)
    if not (math.isfinite(radius) and radius >= 0):
        raise InputError(f"radius must be a finite number >= 0, got {radius}")
    n, size = len(context), max(len(factors(attention, 0)[0]), len(value_rows(attention, 0)))
    memory.require(8 * (8 * n**2 + 6 * n * size**2), f"second moments of {n} words", "use a shorter context")
    with ResourceUsage() as usage, torch.no_grad(), suited(attention.operations(context)):
        queries, keys, values = attention.project(context)  # H n q, H n q, H n v
        heads = [_Head(attention, head, queries[head], keys[head], radius) for head in range(attention.heads)]
        parts = _joined(attention, heads, values)
    usage = usage.computed_in(context.dtype, context.device, 1)
    return NeighbourhoodBound(sum(parts) * (1 + _SLACK), float(radius), n, *parts, usage)


def _joined(layer: Attention, heads: list[_Head], rows: Tensor) -> tuple[float, float, float]:
    """Return bounds on the three maps of all heads, each by the better of two ways to join them.

    The first sums over heads, with their parts W_h of the output; in the second, heads have columns of their own, which
    the output W reads. |W_h M| = |L^T M| for any L with L L^T = W_h^T W_h, so that the first needs no more columns.
    """
    weights = [value_rows(layer, number) for number in range(layer.heads)]
    stacked = [head.terms(u, norm(weight)) for head, u, weight in zip(heads, rows, weights, strict=True)]
    summed, output = stacked, 1.0
    if layer.output is not None:
        output = norm(layer.output)
        reads = torch.chunk(layer.output.double(), layer.heads, dim=1)
        roots = [square_root(part.mT @ part) for part in reads]
        summed = [
            head.terms(u @ root, norm(part @ weight))
            for head, u, root, part, weight in zip(heads, rows, roots, reads, weights, strict=True)
        ]
    most = max(head.weights for head in heads)
    mean = min(sum(term.mean for term in summed), output * most * norm(torch.cat(weights)))
    own = min(
        float(torch.stack([term.own for term in summed]).sum(0).max()),
        output * _hypot([term.own for term in stacked]),
    )
    others = min(sum(float(term.others.max()) for term in summed), output * _hypot([term.others for term in stacked]))
    return mean, own, others


def _hypot(terms: list[Tensor]) -> float:
    """Return the largest root of the sum over heads of squares."""
    return float(torch.stack(terms).square().sum(0).max().sqrt())


class _Terms(NamedTuple):
    """Bounds on the three maps of a head: a number, one for each row i, one for each column j."""

    mean: float
    own: Tensor
    others: Tensor


class _Head:
    """The weights of a head in the neighbourhood of a context, and what they mean for keys and queries."""

    def __init__(self, layer: Attention, head: int, queries: Tensor, keys: Tensor, radius: float) -> None:
        self.radius, self.scale = radius, 1 / math.sqrt(queries.shape[-1])
        self.queries, self.keys = queries, keys - keys.mean(0)  # a common shift of all keys changes no weight
        roots = [square_root(weight @ weight.mT) for weight in factors(layer, head)]
        if layer.rotary is None:
            self.query_root, self.key_root = (root[None] for root in roots)  # 1 q q
            self.size = norm(roots[1].mT @ roots[0]) * self.scale  # |A|
            pulls = torch.linalg.vector_norm(queries @ roots[1], dim=-1)[:, None]  # |A x_i|
            pushes = torch.linalg.vector_norm(self.keys @ roots[0], dim=-1)  # |A^T x_j|
        else:
            turn = max(1.0, abs(layer.rotary.scale))  # the norm of a rotation
            places = torch.arange(len(queries))
            self.query_root, self.key_root = (
                layer.rotary.turn(root.mT[:, None].expand(-1, len(places), -1), places).permute(1, 2, 0)
                for root in roots
            )  # n q q
            sizes = [norm(root) for root in roots]
            self.size = sizes[0] * sizes[1] * turn**2 * self.scale
            pulls = turn * sizes[1] * torch.linalg.vector_norm(queries, dim=-1)[:, None]
            pushes = turn * sizes[0] * torch.linalg.vector_norm(self.keys, dim=-1)
        scores = self.scale * self.queries @ self.keys.mT
        if layer.relative is not None:
            places = torch.arange(len(queries))
            scores = scores + layer.relative.head(head).matrix(places, places)[0].to(scores)
        seen = torch.ones_like(scores, dtype=torch.bool)
        if layer.causal:
            seen = seen.tril()
        self.P = torch.softmax(scores.masked_fill(~seen, -torch.inf), -1)
        shifts = radius * self.scale * (pulls + pushes) + radius**2 * self.size
        self.highest, self.farthest = _intervals(self.P, shifts, seen)
        columns = math.sqrt(float(self.highest.sum(0).max()))  # rows of P sum to 1
        self.weights = min(norm(self.highest), columns)
        # Second moments of the keys about their mean under P, as the queries of a word that moves see them.
        gaps = self.keys, self.P @ self.keys
        self.key_spread = self._spread(self.highest, *gaps, self.query_root) * self.scale
        self.key_change = self._spread(self.farthest, *gaps, self.query_root) * self.scale

    def terms(self, values: Tensor, gain: float) -> _Terms:
        """Return the bounds for values (n, v), which are V x up to a constant, and |V|."""
        e, values = self.radius, values - values.mean(0)
        means = self.P @ values
        spread = self._spread(self.highest, values, means)  # n
        key_means = self.P @ self.keys
        moment = _moments(self.P, values, means, self.keys, key_means) @ self.query_root
        joint = _norms(moment) * self.scale + _SLACK * _largest(values) * _largest(self.keys) * self.size
        moved = gain * e * self.key_spread + spread * self.size * e + gain * self.size * e**2
        own = (spread + gain * e) * (self.key_spread + self.size * e)
        if e == 0:
            own = own.minimum(joint)
        else:
            change = self._spread(self.farthest, values, means) * self.key_change
            drift = self._drift(values, means) * self._drift(self.keys, key_means, self.query_root) * self.scale
            own = own.minimum(joint + change + drift + moved)
        shares = self.highest * (spread + gain * e).square()[:, None]  # i j
        pairs = (self.queries[:, :, None] * self.queries[:, None]).flatten(1)
        size = self.queries.shape[-1]
        matrices = self.key_root.mT @ (shares.mT @ pairs).reshape(-1, size, size) @ self.key_root
        others = self.scale * _norms(matrices).sqrt() + self.size * e * shares.sum(0).sqrt()
        return _Terms(self.weights * gain, own, others)

    def _spread(self, weights: Tensor, rows: Tensor, means: Tensor, root: Tensor | None = None) -> Tensor:
        """Return the root of |sum_j w_ij (y_j - m_i) (y_j - m_i)^T| for each row i, y seen through a matrix L^T."""
        moments = _moments(weights, rows, means, rows, means)
        if root is not None:
            moments = root.mT @ moments @ root
        slack = _SLACK * _largest(rows) ** 2 * (1.0 if root is None else float(_norms(root).max()) ** 2)
        spread: Tensor = (_norms(moments) + slack * weights.sum(1)).sqrt()
        return spread

    def _drift(self, rows: Tensor, means: Tensor, root: Tensor | None = None) -> Tensor:
        """Return a bound on how far the mean of each row i moves when its weights do: sum_j |dP_ij| |y_j - m_i|."""
        factor = 1.0
        if root is not None and len(root) == 1:
            rows, means = rows @ root[0], means @ root[0]
        elif root is not None:
            factor = float(_norms(root).max())
        distances = torch.cdist(means, rows, compute_mode="donot_use_mm_for_euclid_dist")
        return factor * (self.farthest * distances).sum(1)


def _intervals(P: Tensor, shifts: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest possible weights when scores change by at most `shifts`, and how far they can be from P."""
    if float(shifts.max()) > _FARTHEST:
        highest = seen.to(P)
        return highest, highest
    up, down = P * shifts.exp(), P * (-shifts).exp()
    highest = up / (up + (down.sum(1, keepdim=True) - down).clamp_min(0)).clamp_min(1e-300)
    lowest = down / (down + (up.sum(1, keepdim=True) - up).clamp_min(0)).clamp_min(1e-300)
    return highest, (highest - P).maximum(P - lowest).clamp_min(0)


def _moments(weights: Tensor, left: Tensor, left_means: Tensor, right: Tensor, right_means: Tensor) -> Tensor:
    """Return sum_j w_ij (y_j - m_i) (z_j - k_i)^T for each row i, (n, a, b)."""
    pairs = (left[:, :, None] * right[:, None]).flatten(1)  # j ab
    both = (weights @ pairs).reshape(-1, left.shape[1], right.shape[1])
    first, second, total = weights @ left, weights @ right, weights.sum(1)[:, None, None]
    crossed = first[:, :, None] * right_means[:, None] + left_means[:, :, None] * second[:, None]
    return both - crossed + total * left_means[:, :, None] * right_means[:, None]


def _norms(matrices: Tensor) -> Tensor:
    small = matrices @ matrices.mT if matrices.shape[-2] <= matrices.shape[-1] else matrices.mT @ matrices
    norms: Tensor = torch.linalg.eigvalsh(small)[..., -1].clamp_min(0).sqrt()  # much faster than singular values
    return norms


def _largest(rows: Tensor) -> float:
    return float(torch.linalg.vector_norm(rows, dim=-1).max())
