"""Attention as a map of probability measures, and how much it can stretch Wasserstein distances.

Source: Castin, Ablin and Peyre, "How Smooth Is Attention?" (2024), mean-field framework and contributions 2 and 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize
from torch import Tensor

from wordsway.checks import check_radius, check_size
from wordsway.errors import InputError
from wordsway.maps.attention import Attention
from wordsway.memory import ResourceUsage
from wordsway.records import Record, bars
from wordsway.seeds import generator, normal
from wordsway.sensitivity.records import LOCALLY_CONVERGED
from wordsway.smoothness.heads import (
    Direction,
    HeadSize,
    attention_of,
    directions,
    exponential,
    factors,
    mean_field_bound,
    norm,
    plain_attention,
    values,
)
from wordsway.smoothness.transport import DiscreteMeasure, check_measure, wasserstein

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LIGHTEST = -18.0  # log of the least weight: smaller ones are lost in the transport of images
_ASCENTS = 2  # random measures of each size from which an ascent starts
_STEPS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)  # how far points move from mu to nu, in units of R
_APART = 1e-6  # least distance of mu and nu: transport rounds masses to 1e-16, and squared distances like that
_STATUS = {0: LOCALLY_CONVERGED, 9: "step limit"}  # of scipy's SLSQP


def mean_field(layer: Callable[[Tensor], Tensor], mu: DiscreteMeasure) -> DiscreteMeasure:
    """Mean-field attention: F(mu) = (Gamma_mu)# mu, the image of every point with its weight.

        Gamma_mu(x) = sum_j w_j exp(<A x, y_j>) V y_j / sum_j w_j exp(<A x, y_j>),   A = K^T Q / sqrt(q)

    For a measure with positions, a point at s attends to the points at tau <= s only (masked attention); points that
    share a position attend to each other. n words with equal weights have the images that the layer computes for them,
    and with positions i / n those of the layer with a causal mask.

    Parameters
    ----------
    layer : Attention or RandomAttention
        With softmax scores and without positions; heads, values, biases and output as they are. Whether it is
        causal does not matter: the mask is that of the measure, and a causal layer needs one.
    mu : DiscreteMeasure
        m points of the layer's d.

    Returns
    -------
    DiscreteMeasure
        m points of the layer's output, with the weights and positions of `mu`.

    Notes
    -----
    Cost: O(m^2 d) time and O(m^2) memory, in float64 on the CPU.
    """
    attention = softmax_attention(layer)
    check_measure(mu, "mu")
    if attention.causal and mu.positions is None:
        raise InputError(
            "a causal layer needs a measure with positions, got none: give DiscreteMeasure positions such as i / n"
        )
    attention.check(mu.points)
    queries, keys, values = attention.project(mu.points)  # H m q, H m q, H m v
    logs = mu.weights.log()
    scores = attention.scores(queries, keys) + (logs - logs.max())  # equal weights change no bit
    rows = attention.join(attention.score.weights(scores, visible(mu.positions)) @ values)
    if attention.output_bias is not None:
        rows = rows + attention.output_bias.to(rows)
    return DiscreteMeasure(rows, mu.weights, mu.positions)


def visible(positions: Tensor | None) -> Tensor | None:
    """Return which points (columns) each point attends to, tau <= s: (m,) -> (m, m); None for all."""
    return None if positions is None else positions <= positions[:, None]


def softmax_attention(layer: Any) -> Attention:
    """Return the attention of a layer that is defined on measures."""
    attention = plain_attention(layer)
    if not isinstance(attention, Attention):
        raise InputError(f"a mean-field layer must be an Attention or RandomAttention, got {type(layer).__name__}")
    if not attention.score.softmax:
        raise InputError(f"mean-field attention needs softmax scores, got {attention.score.name}")
    if attention.rotary is not None or attention.relative is not None:
        raise InputError("mean-field attention must have no positions, got some: a measure has no order")
    return attention


@dataclass(frozen=True, eq=False, repr=False)
class MeanFieldLipschitz(Record):
    """The Lipschitz constant of mean-field attention on P(B_R): `value` <= Lip(F) <= `upper`.

    Attributes
    ----------
    value : float
        W2(F mu, F nu) / W2(mu, nu) at the witness, both distances exact: a lower bound.
    mu, nu : DiscreteMeasure
        The witness: two measures in B_R.
    upper : float
        With a = |A| R^2, |V| ((1 + a) e^a + a), and |V| (2 (1 + 2 a) e^a + a) where masked; holds for every pair of
        measures in B_R.
    lower : float or None
        (gamma / 2) R^2 exp(gamma R^2) where V = I, else None.
    two_point : float
        Lower bound by the best of the adversarial measures of two points, for any V: at least `lower`.
    derivative : float
        The norm of the derivative of F at the measure where the ascent ended; the ratio tends to it as nu tends to mu.
    radius : float
    masked : bool
    status : str
        How the best ascent ended: "locally converged", "step limit", or "stalled" where the norm has a kink.
    cost : ResourceUsage
    """

    value: float
    mu: DiscreteMeasure
    nu: DiscreteMeasure
    upper: float
    lower: float | None
    two_point: float
    derivative: float
    radius: float
    masked: bool
    status: str
    cost: ResourceUsage

    summary_fields = ("value", "lower", "two_point", "upper", "radius", "masked", "status")
    json_names: ClassVar = {"mu": "", "nu": ""}

    def to_dict(self, witness: bool = False) -> dict[str, Any]:
        """Return plain values, ready for JSON; with `witness` the two measures too."""
        record = super().to_dict()
        return {**record, "mu": self.mu.to_dict(), "nu": self.nu.to_dict()} if witness else record

    def draw(self, ax: Axes) -> None:
        """Draw the value between its bounds on a logarithmic axis."""
        names = ("lower", "two_point", "value", "upper")
        bars(ax, {name.replace("_", " "): getattr(self, name) for name in names}, logarithmic=True)


def mean_field_lipschitz(
    layer: Callable[[Tensor], Tensor],
    R: float,
    points: int = 4,
    seed: int = 0,
    *,
    masked: bool | None = None,
    starts: int = 32,
    steps: int = 200,
) -> MeanFieldLipschitz:
    """Search for the largest W2(F mu, F nu) / W2(mu, nu) over measures in the ball of radius R.

    Along displacements of its points, F has at mu the derivative norm |diag(sqrt w) J diag(1 / sqrt w)|_2, with J (m p,
    m d) the Jacobian of the images in the points. It is maximised over points and weights, from adversarial and random
    measures of two points and of more; then mu is moved a little along the leading direction, and both distances are
    computed.

    Parameters
    ----------
    layer : Attention or RandomAttention
        One head with softmax scores, without biases or positions.
    R : float
    points : int
        Points of the larger measures, at least 2. With a mask more points reach more.
    seed : int
    masked : bool or None
        Whether points have positions 1/m, ..., 1 and attend to those up to their own only, default: as the layer.
    starts : int
        Random measures of each size; ascents start at the two with the largest norm, and at the adversarial ones.
    steps : int
        Steps of each ascent, by sequential quadratic programming.

    Notes
    -----
    Cost: each step decomposes a matrix of m d rows, O((m d)^3). Not for many points or wide layers: the constant is
    reached by few points. The value is a lower bound whatever the search does. It stays far below the constant where
    2 |A| R^2 is above 18 or so: the best weights are then too small to be transported in double precision.
    """
    attention = attention_of(softmax_attention(layer))
    A, V = head_matrices(attention)
    radius, masked = check_radius(R, len(A)), attention.causal if masked is None else bool(masked)
    if attention.causal and not masked:
        raise InputError("a causal layer must be masked, got masked=False: leave that out")
    if check_size(points, "points") < 2:
        raise InputError(f"points must be at least 2, since one point alone is only mapped by V, got {points}")
    sizes = int(points), check_size(starts, "starts"), check_size(steps, "steps")
    with ResourceUsage() as usage:
        search, eigenvectors = DerivativeSearch(attention, radius, masked), directions(attention, 0)
        best = search.run(eigenvectors, *sizes, seed)
        value, mu, nu = search.witness(best.points, best.logs)
    return MeanFieldLipschitz(
        value=value,
        mu=mu,
        nu=nu,
        upper=upper_bound(A, V, radius, masked),
        lower=lower_bound(eigenvectors, radius) if V.shape == A.shape and torch.equal(V, _eye(len(V))) else None,
        two_point=two_point(eigenvectors, V, radius),
        derivative=best.norm,
        radius=radius,
        masked=masked,
        status=best.status,
        cost=usage.computed_in(A.dtype, A.device, best.evaluations),
    )


def upper_bound(A: Tensor, V: Tensor, R: float, masked: bool = False) -> float:
    """Return an upper bound on Lip(F) on P(B_R), see `mean_field_bound`."""
    gain, rate = norm(V), norm(A) * R
    if gain == 0:
        return 0.0  # and not 0 times what may overflow
    return gain * mean_field_bound(HeadSize(own=rate, others=rate, scores=rate * R), R, masked)


def lower_bound(eigenvectors: Sequence[Direction], R: float) -> float:
    """Return (gamma / 2) R^2 exp(gamma R^2), for V = I a lower bound on Lip(F) on P(B_R), for the largest gamma.

    Contribution 3 states it for large R; `two_point` shows it for every R.
    """
    size = max((direction.gamma for direction in eigenvectors), default=0.0) * R**2
    return size / 2 * exponential(size)


def two_point(eigenvectors: Sequence[Direction], V: Tensor, R: float) -> float:
    """Return the effect of moving the light one of two adversarial points, at the best weight, a lower bound on Lip(F).

    A light point of weight e at one end, a heavy one that attends to it: with E = exp(2 gamma R^2) and
    P = e E / (1 - e + e E), moving the light one along u by h moves the heavy one's image by
    P (1 + 2 gamma R^2 (1 - P)) |V u| h, and in L2(mu) that counts sqrt((1 - e) / e) times more. In terms of the odds
    t = P / (1 - P) it is exp(gamma R^2) sqrt(t) (1 + t + 2 gamma R^2) / (1 + t)^2 |V u| h, largest at `best_odds`.
    At t = 1 and V = I it is (1 + gamma R^2) exp(gamma R^2) / 2, which is above `lower_bound`.
    """
    bounds = [0.0]
    for direction in eigenvectors:
        size = direction.gamma * R**2
        t = best_odds(size)
        gain = float(torch.linalg.vector_norm(V @ direction.vector))
        bounds.append(gain * math.sqrt(t) * (1 + t + 2 * size) / (1 + t) ** 2 * exponential(size))
    return max(bounds)


def best_odds(size: float) -> float:
    """Return the root t > 0 of t^2 + 6 size t = 1 + 2 size, where sqrt(t) (1 + t + 2 size) / (1 + t)^2 is largest."""
    return 2 * (1 + 2 * size) / (6 * size + math.sqrt(36 * size**2 + 4 * (1 + 2 * size)))


def head_matrices(attention: Attention) -> tuple[Tensor, Tensor]:
    """Return A = K^T Q / sqrt(q), (d, d), and V through the output, (p, d), of a layer with one head."""
    if attention.heads != 1 or not attention.plain:
        raise InputError(f"the layer must have one head and no biases, got {attention.heads} heads or a bias")
    queries, keys = factors(attention, 0)
    return keys.mT @ queries / math.sqrt(len(queries)), values(attention, 0)


def _eye(size: int) -> Tensor:
    return torch.eye(size, dtype=torch.float64)


class Ascent(NamedTuple):
    """The end of an ascent: the norm of the derivative, points and logs of weights, status and evaluations."""

    norm: float
    points: Tensor
    logs: Tensor
    status: str
    evaluations: int


class DerivativeSearch:
    """Maximise the norm of the derivative of F over measures: points of the unit ball, (m, d), and logs of weights."""

    def __init__(self, attention: Attention, R: float, masked: bool) -> None:
        self.attention, self.R, self.masked = attention, R, masked
        self.A, self.V = head_matrices(attention)

    def positions(self, m: int) -> Tensor | None:
        return torch.arange(1, m + 1, dtype=torch.float64) / m if self.masked else None

    def measure(self, points: Tensor, logs: Tensor) -> DiscreteMeasure:
        return DiscreteMeasure(_inside(self.R * points, self.R), torch.softmax(logs, 0), self.positions(len(points)))

    def run(self, eigenvectors: Sequence[Direction], m: int, starts: int, steps: int, seed: int) -> Ascent:
        """Ascend from pairs of points, then from measures of m points; return the largest norm of all.

        With a mask the last point of the best pair is split: means over the past gain with every position.
        """
        drawn = {count: self.largest(self.random(count, starts, seed), _ASCENTS) for count in (2, m)}
        ascents = [self.ascend(*start, steps) for start in (*self.adversarial(eigenvectors), *drawn[2])]
        measures = drawn[m]
        if self.masked:
            pair = max(ascents, key=lambda ascent: ascent.norm)
            copies = torch.tensor([0] + (m - 1) * [1])
            shares = torch.tensor([0.0] + (m - 1) * [math.log(m - 1)], dtype=torch.float64)
            measures = [(pair.points[copies], pair.logs[copies] - shares), *measures]
        ascents += [self.ascend(*start, steps) for start in measures]
        best = max(ascents, key=lambda ascent: ascent.norm)
        return best._replace(evaluations=sum(ascent.evaluations for ascent in ascents))

    def adversarial(self, eigenvectors: Sequence[Direction]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield two points per direction, the light one first, with the best of some weights."""
        for direction in eigenvectors:
            size = direction.gamma * self.R**2
            odds = [math.log(factor * best_odds(size)) - 2 * size for factor in (0.1, 0.3, 1.0, 3.0, 10.0)]
            logs = (torch.tensor([max(_LIGHTEST, log), 0.0], dtype=torch.float64) for log in odds)
            yield from self.largest(((direction.context(2, 1.0), weights) for weights in logs), 1)

    def random(self, m: int, count: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield points on the sphere, with weights over the orders of magnitude that scores have."""
        source = generator(seed, "clouds")
        spread = min(-_LIGHTEST, 1 + 2 * norm(self.A) * self.R**2)
        for _ in range(count):
            points = normal(source, (m, len(self.A)))
            logs = -spread * torch.from_numpy(source.random(m))
            yield points / torch.linalg.vector_norm(points, dim=1, keepdim=True), logs

    def largest(self, starts: Iterable[tuple[Tensor, Tensor]], count: int) -> list[tuple[Tensor, Tensor]]:
        """Return the starts with the largest norms of the derivative."""
        return sorted(starts, key=lambda start: -norm(self.derivative(*start)))[:count]

    def derivative(self, points: Tensor, logs: Tensor) -> Tensor:
        """Return diag(sqrt w) J diag(1 / sqrt w), (m p, m d).

        J_ij = V (P_ij (I + (y_j - o_i) (A x_i)^T) + [i = j] C_i A), with P the weights of attention, o = P Y, and C_i
        the covariance of the points under row i of P.
        """
        m, d = points.shape
        Y = self.R * points
        logs = torch.log_softmax(logs, 0)
        keys = Y @ self.A.mT  # row i is A x_i
        scores = keys @ Y.mT + logs
        if (seen := visible(self.positions(m))) is not None:
            scores = scores.masked_fill(~seen, -torch.inf)
        P = torch.softmax(scores, -1)
        gaps = Y - (P @ Y)[:, None]  # i j d
        pairs = P[..., None, None] * (_eye(d) + gaps[..., None] * keys[:, None, None, :])  # i j d d
        own = torch.einsum("ij,ija,ijb->iab", P, gaps, gaps) @ self.A
        blocks = self.V @ (pairs + _eye(m)[..., None, None] * own[:, None])
        scaled = torch.exp((logs[:, None] - logs) / 2)[..., None, None] * blocks
        return scaled.permute(0, 2, 1, 3).reshape(m * len(self.V), m * d)

    def ascend(self, points: Tensor, logs: Tensor, steps: int) -> Ascent:
        """Ascend to a local maximum of the norm, by SLSQP with the balls as constraints."""
        m, d = points.shape

        def parts(x: npt.NDArray[np.float64]) -> tuple[Tensor, Tensor]:
            copy = torch.from_numpy(x.copy())
            return copy[: m * d].reshape(m, d), copy[m * d :]

        def loss(x: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
            inputs = [part.requires_grad_() for part in parts(x)]
            matrix = self.derivative(inputs[0], inputs[1])
            left, _, right = torch.linalg.svd(matrix.detach())
            size = (left[:, 0] @ matrix @ right[0]).clamp_min(1e-300)  # its gradient is that of the norm
            gradient = torch.autograd.grad(-size.log(), inputs)
            return -math.log(float(size.detach())), torch.cat([part.flatten() for part in gradient]).numpy()

        inside = {
            "type": "ineq",
            "fun": lambda x: 1 - (x[: m * d].reshape(m, d) ** 2).sum(1),
            "jac": lambda x: np.hstack([-2 * np.kron(np.eye(m), np.ones(d)) * x[: m * d], np.zeros((m, m))]),
        }
        begin = torch.cat([points.flatten(), logs - logs.max()]).numpy()
        bounds = [(-1.0, 1.0)] * (m * d) + [(_LIGHTEST, 0.0)] * m
        options = {"maxiter": steps, "ftol": 1e-8}
        end = minimize(loss, begin, jac=True, bounds=bounds, constraints=[inside], method="SLSQP", options=options)
        points, logs = parts(end.x)
        points = _inside(points, 1.0)
        status = _STATUS.get(end.status, "stalled")
        return Ascent(norm(self.derivative(points, logs)), points, logs, status, int(end.nfev))

    def witness(self, points: Tensor, logs: Tensor) -> tuple[float, DiscreteMeasure, DiscreteMeasure]:
        """Return the best ratio of two measures that differ by a small step along the leading direction, and both."""
        right = torch.linalg.svd(self.derivative(points, logs))[2][0].reshape(points.shape)
        field = right / (logs / 2).exp()[:, None]
        field /= torch.linalg.vector_norm(field, dim=1).max()  # the fastest point moves by 1
        ratios = []
        for pair in _pairs(points, field):
            mu, nu = (self.measure(part, logs) for part in pair)
            distance = wasserstein(mu, nu).value
            if distance >= _APART * self.R:
                images = mean_field(self.attention, mu), mean_field(self.attention, nu)
                ratios.append((wasserstein(*images).value / distance, mu, nu))
        return max(ratios, key=lambda ratio: ratio[0])


def _pairs(points: Tensor, field: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield points before and after a small step; the first pair is a translation, which is always far enough."""
    shift = torch.zeros_like(points)
    shift[:, 0] = 0.1
    yield 0.9 * points - shift, 0.9 * points + shift
    for step in _STEPS:
        yield points, points + step * field
        yield points, points - step * field
        yield (1 - step) * points - step * field, (1 - step) * points + step * field  # this one stays inside


def _inside(points: Tensor, R: float) -> Tensor:
    """Return the nearest points in the ball, which is made a little smaller for rounding."""
    norms: Tensor = torch.linalg.vector_norm(points, dim=-1, keepdim=True)
    return points * (R * (1 - 1e-15) / norms).clamp(max=1.0)
