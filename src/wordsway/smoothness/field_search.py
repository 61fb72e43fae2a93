"""How much mean-field attention can stretch Wasserstein distances: a pair of clouds below, bounds around it."""

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
from wordsway.smoothness.field import (
    best_odds,
    lower_bound,
    mean_field,
    softmax_attention,
    two_point,
    upper_bound,
    visible,
)
from wordsway.smoothness.heads import Direction, attention_of, directions, factors, norm, values
from wordsway.smoothness.measures import DiscreteMeasure, wasserstein

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LIGHTEST = -18.0  # log of the least weight
_CLIMBED = 2  # random clouds of each size that are climbed from
_STEPS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)  # how far points move from one cloud to the other, in units of R
_APART = 1e-6  # and how far apart the clouds must be: transport rounds masses to 1e-16, squared distances to that
_STATUS = {0: "converged", 9: "step limit"}  # of scipy's SLSQP


@dataclass(frozen=True, eq=False, repr=False)
class MeanFieldLipschitz(Record):
    """The Lipschitz constant of mean-field attention on P(B_R): `value` <= Lip(F) <= `upper`.

    Attributes
    ----------
    value : float
        W2(F mu, F nu) / W2(mu, nu) at the witness, both distances exact: a lower bound.
    mu, nu : DiscreteMeasure
        The witness: two clouds in B_R.
    upper : float
        |V| (1 + 3 |A| R^2) exp(2 |A| R^2), twice that where masked; holds for every pair of clouds in B_R.
    lower : float or None
        (gamma / 2) R^2 exp(gamma R^2) where V = I, else None.
    two_point : float
        What the best of the adversarial two-point clouds is sure to give, for any V: at least `lower`.
    derivative : float
        The norm of the derivative of F at the cloud that was climbed to; the ratio tends to it as nu tends to mu.
    radius : float
    masked : bool
    status : str
        How the best climb ended: "converged", "step limit", or "stalled" where the norm has a kink.
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
    """Search for the largest W2(F mu, F nu) / W2(mu, nu) over clouds in the ball of radius R.

    Along displacements of its points, F has at mu the derivative norm |diag(sqrt w) J diag(1 / sqrt w)|_2, with J (m p,
    m d) the Jacobian of the images in the points. It is climbed over points and weights, from adversarial and random
    clouds of two points and of more; then mu is moved a little along the best direction, and both distances are
    computed.

    Parameters
    ----------
    layer : Attention or RandomAttention
        One head with softmax scores, without biases or rotary positions.
    R : float
    points : int
        Points of the larger clouds, at least 2. With a mask more points reach more.
    seed : int
    masked : bool or None
        Whether points have positions 1/m, ..., 1 and see those up to their own only; None is as the layer is.
    starts : int
        Random clouds of each size that are tried; the two steepest are climbed from, like the adversarial ones.
    steps : int
        Steps of each climb, by sequential quadratic programming.

    Notes
    -----
    Cost: each step decomposes a matrix of m d rows, O((m d)^3). Not for long clouds or wide layers: the constant is
    reached by few points. The value is a lower bound whatever the search does. It stays far below the constant where
    2 |A| R^2 is above 18 or so: the best weights are then too small to be transported in double precision.
    """
    attention = attention_of(softmax_attention(layer))
    A, V = _matrices(attention)
    radius, masked = check_radius(R, len(A)), attention.causal if masked is None else bool(masked)
    if attention.causal and not masked:
        raise InputError("a causal layer must be masked, got masked=False: leave that out")
    sizes = _several(points), check_size(starts, "starts"), check_size(steps, "steps")
    with ResourceUsage() as usage:
        search, found = _Search(attention, A, V, radius, masked), directions(attention, 0)
        best = search.run(found, *sizes, seed)
        value, mu, nu = search.witness(best.points, best.logs)
    return MeanFieldLipschitz(
        value=value,
        mu=mu,
        nu=nu,
        upper=upper_bound(A, V, radius, masked),
        lower=lower_bound(found, radius) if V.shape == A.shape and torch.equal(V, _eye(len(V))) else None,
        two_point=two_point(found, V, radius),
        derivative=best.size,
        radius=radius,
        masked=masked,
        status=best.status,
        cost=usage.computed_in(A.dtype, A.device, best.evaluations),
    )


def _matrices(attention: Attention) -> tuple[Tensor, Tensor]:
    """A = K^T Q / sqrt(q), (d, d), and V through the output, (p, d)."""
    if attention.heads != 1 or not attention.plain:
        raise InputError(f"the layer must have one head and no biases, got {attention.heads} heads or a bias")
    queries, keys = factors(attention, 0)
    return keys.mT @ queries / math.sqrt(len(queries)), values(attention, 0)


def _several(points: int) -> int:
    if check_size(points, "points") < 2:
        raise InputError(f"points must be at least 2, since one point alone is only mapped by V, got {points}")
    return int(points)


def _eye(size: int) -> Tensor:
    return torch.eye(size, dtype=torch.float64)


class _Climbed(NamedTuple):
    """Where a climb ended: the norm of the derivative, the cloud, how it ended and how many evaluations it took."""

    size: float
    points: Tensor
    logs: Tensor
    status: str
    evaluations: int


class _Search:
    """The search for one layer and ball; a cloud is points in the unit ball, (m, d), and logs of weights, (m,)."""

    def __init__(self, attention: Attention, A: Tensor, V: Tensor, R: float, masked: bool) -> None:
        self.attention, self.A, self.V, self.R, self.masked = attention, A, V, R, masked

    def positions(self, m: int) -> Tensor | None:
        return torch.arange(1, m + 1, dtype=torch.float64) / m if self.masked else None

    def cloud(self, points: Tensor, logs: Tensor) -> DiscreteMeasure:
        return DiscreteMeasure(_inside(self.R * points, self.R), torch.softmax(logs, 0), self.positions(len(points)))

    def run(self, found: Sequence[Direction], m: int, starts: int, steps: int, seed: int) -> _Climbed:
        """Climb from pairs of points, then from clouds of m; the steepest of all that was reached.

        With a mask the last point of the best pair is split: means over the past gain with every position.
        """
        drawn = {count: self.steepest(self.random(count, starts, seed), _CLIMBED) for count in (2, m)}
        climbed = [self.climb(*start, steps) for start in (*self.adversarial(found), *drawn[2])]
        clouds = drawn[m]
        if self.masked:
            pair = max(climbed, key=lambda one: one.size)
            copies = torch.tensor([0] + (m - 1) * [1])
            shares = torch.tensor([0.0] + (m - 1) * [math.log(m - 1)], dtype=torch.float64)
            clouds = [(pair.points[copies], pair.logs[copies] - shares), *clouds]
        climbed += [self.climb(*start, steps) for start in clouds]
        best = max(climbed, key=lambda one: one.size)
        return best._replace(evaluations=sum(one.evaluations for one in climbed))

    def adversarial(self, found: Sequence[Direction]) -> Iterator[tuple[Tensor, Tensor]]:
        """Two points for each direction, the light one first, with the best of some weights."""
        for one in found:
            size = one.gamma * self.R**2
            odds = [math.log(factor * best_odds(size)) - 2 * size for factor in (0.1, 0.3, 1.0, 3.0, 10.0)]
            logs = (torch.tensor([max(_LIGHTEST, log), 0.0], dtype=torch.float64) for log in odds)
            yield from self.steepest(((one.context(2, 1.0), weights) for weights in logs), 1)

    def random(self, m: int, count: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Points on the sphere, weights over the orders of magnitude that scores have."""
        source = generator(seed, "clouds")
        spread = min(-_LIGHTEST, 1 + 2 * norm(self.A) * self.R**2)
        for _ in range(count):
            draw = normal(source, (m, len(self.A)))
            logs = -spread * torch.from_numpy(source.random(m))
            yield draw / torch.linalg.vector_norm(draw, dim=1, keepdim=True), logs

    def steepest(self, starts: Iterable[tuple[Tensor, Tensor]], count: int) -> list[tuple[Tensor, Tensor]]:
        """The starts with the largest derivative."""
        return sorted(starts, key=lambda start: -norm(self.matrix(*start)))[:count]

    def matrix(self, points: Tensor, logs: Tensor) -> Tensor:
        """diag(sqrt w) J diag(1 / sqrt w), (m p, m d).

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

    def climb(self, points: Tensor, logs: Tensor, steps: int) -> _Climbed:
        """To a local maximum of the norm, by SLSQP with the balls as constraints."""
        m, d = points.shape

        def parts(x: npt.NDArray[np.float64]) -> tuple[Tensor, Tensor]:
            found = torch.from_numpy(x.copy())
            return found[: m * d].reshape(m, d), found[m * d :]

        def loss(x: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
            inputs = [part.requires_grad_() for part in parts(x)]
            matrix = self.matrix(inputs[0], inputs[1])
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
        found = minimize(loss, begin, jac=True, bounds=bounds, constraints=[inside], method="SLSQP", options=options)
        points, logs = parts(found.x)
        points = _inside(points, 1.0)
        status = _STATUS.get(found.status, "stalled")
        return _Climbed(norm(self.matrix(points, logs)), points, logs, status, int(found.nfev))

    def witness(self, points: Tensor, logs: Tensor) -> tuple[float, DiscreteMeasure, DiscreteMeasure]:
        """The best ratio of two clouds that differ by a small step along the leading direction, and these two."""
        right = torch.linalg.svd(self.matrix(points, logs))[2][0].reshape(points.shape)
        field = right / (logs / 2).exp()[:, None]
        field /= torch.linalg.vector_norm(field, dim=1).max()  # the fastest point moves by 1
        tried = []
        for pair in _pairs(points, field):
            mu, nu = (self.cloud(part, logs) for part in pair)
            apart = wasserstein(mu, nu).value
            if apart >= _APART * self.R:
                images = mean_field(self.attention, mu), mean_field(self.attention, nu)
                tried.append((wasserstein(*images).value / apart, mu, nu))
        return max(tried, key=lambda found: found[0])


def _pairs(points: Tensor, field: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Points before and after a small step; the first pair is a translation, which is always far enough."""
    shift = torch.zeros_like(points)
    shift[:, 0] = 0.1
    yield 0.9 * points - shift, 0.9 * points + shift
    for step in _STEPS:
        yield points, points + step * field
        yield points, points - step * field
        yield (1 - step) * points - step * field, (1 - step) * points + step * field  # this one stays inside


def _inside(points: Tensor, R: float) -> Tensor:
    """The nearest points in the ball, with a hair's breadth for rounding."""
    norms: Tensor = torch.linalg.vector_norm(points, dim=-1, keepdim=True)
    return points * (R * (1 - 1e-15) / norms).clamp(max=1.0)
