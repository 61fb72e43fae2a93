"""Bounds on the Lipschitz constant of an attention layer over all contexts of n words in a ball of radius R.

Lip = sup of |D_X f|_2 over X in B_R^n. Sources: [poster] Castin, Ablin and Peyre, "How Smooth Is Attention?" (2024);
[clusters] Geshkovski, Letrouit, Polyanskiy and Rigollet, "The emergence of clusters in self-attention dynamics" (2024).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from wordsway.checks import check_radius, check_size
from wordsway.errors import InputError, nearest
from wordsway.maps import Attention
from wordsway.records import Record, bars, finite
from wordsway.smoothness.heads import (
    Direction,
    Ellipsoid,
    HeadSize,
    attention_of,
    dimension,
    directions,
    exponential,
    head_size,
    mean_field_bound,
    norm,
    value_rows,
    values,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POSTER = "Castin, Ablin, Peyre 2024"
OWN = "wordsway, docs/certificates.md"


@dataclass(frozen=True, eq=False, repr=False)
class Bound(Record):
    """One bound on Lip(f) over B_R^n.

    Attributes
    ----------
    name : str
    kind : {"upper", "lower", "limit"}
        A "limit" holds for large R only.
    value : float or None
        None where it does not apply; infinite where it overflows.
    source : str
    assumes : str
        Its assumptions; where it does not apply, why.
    """

    name: str
    kind: str
    value: float | None
    source: str
    assumes: str


@dataclass(frozen=True, eq=False, repr=False)
class Bounds(Record):
    """All bounds for a layer, a length and a radius; `lower` <= Lip <= `upper` are the best of them."""

    n: int
    radius: float
    all: tuple[Bound, ...]

    summary_fields = ("n", "radius", "lower", "upper")

    @property
    def upper(self) -> float:
        return min(self._known("upper"))

    @property
    def lower(self) -> float | None:
        return max(self._known("lower"), default=None)

    def _known(self, kind: str) -> list[float]:
        return [bound.value for bound in self.all if bound.kind == kind and bound.value is not None]

    def __getitem__(self, name: str) -> Bound:
        known = {bound.name: bound for bound in self.all}
        if name not in known:
            raise InputError(f"a bound must be one of {', '.join(known)}, got {name!r}{nearest(name, known)}")
        return known[name]

    def to_dict(self) -> dict[str, Any]:
        best = {"upper": finite(self.upper), "lower": finite(self.lower)}
        return {"n": self.n, "radius": self.radius, **best, "bounds": self.rows()}

    def rows(self) -> list[dict[str, Any]]:
        return [bound.to_dict() for bound in self.all]

    def draw(self, ax: Axes) -> None:
        """Draw every bound that applies on a logarithmic axis."""
        bars(ax, {f"{bound.name} ({bound.kind})": bound.value for bound in self.all}, logarithmic=True)


def lipschitz_bounds(
    layer: Callable[[Tensor], Tensor], n: int, R: float | None, ellipsoid: Ellipsoid | None = None
) -> Bounds:
    """All known bounds for softmax attention on n words in B_R.

    Parameters
    ----------
    layer : Attention or RandomAttention
        A layer with several heads is bounded by the sum over them of |W_h V_h| Lip(f_h), or through the norm of the
        whole output where that is smaller.
    n : int
        Words in a context.
    R : float or None
        Radius of the ball that every word lies in; for a layer of a model, that of its normalisation. None is sqrt(d).
    ellipsoid : Ellipsoid or None
        An ellipsoid that every word lies in as well, such as `Model.ellipsoid`; it adds the bound `ellipsoid`.

    Notes
    -----
    With a = |A| R^2 and gamma = max(-gamma_min, gamma_max / 8) over the real eigenvalues of A, masked or not:

    - `discrete`, upper [poster]: sqrt(3) |V| (a^2 (4 n + 1) + n)^(1/2).
    - `covariance`, upper: |V| (s + a (1 + s)) with s^2 = n / (1 + (n - 1) exp(-2 a)), the largest sum of a column of
      weights; masked s^2 = sum_{i < n} 1 / (1 + i exp(-2 a)). Never above `discrete`, since s^2 <= n.
    - `mean field`, upper, for every n: |V| ((1 + a) exp(a) + a), masked |V| (2 (1 + 2 a) exp(a) + a). [clusters] has
      |V| (1 + 3 a) exp(2 a), which is larger, and which two words with A = 0, V = I and a mask exceed.
    - `ellipsoid`, upper: as `covariance`, for words x = b + D z, |z| <= r.
    - `adversarial`, lower, for one head: |V| sqrt(n - 1) / (1 + (n - 1) exp(-2 R^2 gamma)) [poster, for V = I].
    - `first word`, lower, for one head: the effect of moving the first word at an adversarial context, in closed form.
    - `many words`, lower for R -> infinity [poster]: (gamma / 2) R^2 exp(gamma R^2) for n about exp(2 gamma R^2); as a
      limit it does not count for `Bounds.lower`.

    For biases and positions see `wordsway.smoothness.heads.head_size`; the proofs are in docs/certificates.md.
    Cost: O(heads d q^2), O(heads d^2 q) with an ellipsoid, and O(n heads q^3) with rotary positions.
    """
    attention = attention_of(layer)
    n, radius = check_size(n, "n"), check_radius(R, dimension(attention))
    return Bounds(n, radius, (*_upper(attention, n, radius, ellipsoid), *_lower(attention, n, radius)))


def _upper(layer: Attention, n: int, radius: float, ellipsoid: Ellipsoid | None) -> list[Bound]:
    heads = range(layer.heads)
    gains = [norm(values(layer, head)) for head in heads]
    sizes = [head_size(layer, head, n, Ellipsoid.ball(dimension(layer), radius)) for head in heads]

    def summed(constant: Callable[[HeadSize], float]) -> float:
        return sum(gain * constant(size) for gain, size in zip(gains, sizes, strict=True) if gain > 0)

    def discrete(size: HeadSize) -> float:
        a = radius * max(size.own, size.others)
        return math.sqrt(3 * (a * a * (4 * n + 1) + n))

    field = summed(lambda size: mean_field_bound(size, radius, layer.causal))
    ball = "words in the ball, masked or not"
    bounds = [
        Bound("discrete", "upper", summed(discrete), POSTER, ball),
        Bound("covariance", "upper", _covariance(layer, sizes, n, Ellipsoid.ball(dimension(layer), radius)), OWN, ball),
        Bound("mean field", "upper", field, OWN, "words in the ball, any n"),
    ]
    if ellipsoid is not None:
        sizes = [head_size(layer, head, n, ellipsoid) for head in heads]
        value = _covariance(layer, sizes, n, ellipsoid)
        bounds.append(Bound("ellipsoid", "upper", value, OWN, "words in the ellipsoid, masked or not"))
    return bounds


def _covariance(layer: Attention, sizes: Sequence[HeadSize], n: int, words: Ellipsoid) -> float:
    """Return the bound |V| s + r |V D| (own + others s) of all heads, joined in the best of three ways.

    Heads are summed with their parts of the output; or they have columns of their own, which the output W then reads:
    |W| times the root of the sum of squares, for all terms together or with |P X V^T| of all heads bounded at once.
    """
    weights = [size.largest_weights(n, layer.causal) for size in sizes]
    rates = [size.own + size.others * weight for size, weight in zip(sizes, weights, strict=True)]

    def terms(matrices: Sequence[Tensor]) -> list[tuple[float, float]]:
        return [
            (norm(matrix) * weight, words.radius * norm(matrix @ words.matrix) * rate)
            for matrix, weight, rate in zip(matrices, weights, rates, strict=True)
        ]

    heads = range(layer.heads)
    rows = [value_rows(layer, head) for head in heads]
    bare = terms(rows)
    apart = math.hypot(*(mean + other for mean, other in bare))
    at_once = max(weights) * norm(torch.cat(rows)) + math.hypot(*(other for _, other in bare))
    output = 1.0 if layer.output is None else norm(layer.output)
    return min(sum(map(sum, terms([values(layer, head) for head in heads]))), output * apart, output * at_once)


def _lower(layer: Attention, n: int, radius: float) -> list[Bound]:
    reason = _no_lower(layer, n)
    if reason is not None:
        names = (("adversarial", "lower", POSTER), ("first word", "lower", OWN), ("many words", "limit", POSTER))
        return [Bound(name, kind, None, source, reason) for name, kind, source in names]
    eigenvectors = directions(layer, 0)
    gamma = max(direction.gamma for direction in eigenvectors)
    gain = values(layer, 0)
    shift = gamma * radius**2
    adversarial = norm(gain) * math.sqrt(n - 1) / (1 + (n - 1) * math.exp(-2 * shift))
    first = max(_first_word(direction, gain, n, radius, layer.causal) for direction in eigenvectors)
    many = norm(gain) * shift / 2 * exponential(shift) if math.log(n) >= 2 * shift else None
    needed = f"n at least exp(2 gamma R^2) = {exponential(2 * shift):.3g}"
    head = f"one head without positions, gamma = {gamma:.4g}"
    return [
        Bound("adversarial", "lower", adversarial, POSTER, head),
        Bound("first word", "lower", first, OWN, head),
        Bound("many words", "limit", many, POSTER, f"{head}, R large, {needed}"),
    ]


def _no_lower(layer: Attention, n: int) -> str | None:
    """Return why there is no lower bound in closed form; None where there is one."""
    if layer.heads > 1:
        return "for one head; measure the constant at adversarial_context instead"
    if layer.rotary is not None or layer.relative is not None or layer.query_bias is not None:
        return "without positions and query bias; measure the constant at adversarial_context instead"
    if not directions(layer, 0):
        return "A has no real eigenvalue, so it does not apply"
    return "for n >= 2" if n < 2 else None


def _first_word(direction: Direction, gain: Tensor, n: int, radius: float, causal: bool) -> float:
    """Return the norm of the columns of the first word in the Jacobian at an adversarial context, without its own row.

    Row j gives the first word the weight P = 1 / (1 + m exp(-2 R^2 gamma)), where it attends to m words besides it, and
    moves by P V (I + c u u^T) dx with c = 2 gamma R^2 (1 - P).
    """
    seen = torch.arange(1, n, dtype=torch.float64) if causal else torch.full((n - 1,), n - 1, dtype=torch.float64)
    shift = 2 * radius**2 * direction.gamma
    weights = torch.sigmoid(shift - seen.log())
    pulls = shift * (1 - weights)
    once, twice, thrice = ((weights**2 * pulls**power).sum() for power in range(3))
    u, gram = direction.vector, gain.mT @ gain
    cross = torch.outer(u, gram @ u)
    total = once * gram + twice * (cross + cross.mT) + thrice * (u @ gram @ u) * torch.outer(u, u)
    return math.sqrt(float(torch.linalg.eigvalsh(total)[-1].clamp_min(0)))
