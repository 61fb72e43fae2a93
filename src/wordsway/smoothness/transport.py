"""Probability measures of finitely many weighted points, and the exact Wasserstein distance between two of them."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from wordsway import memory
from wordsway.checks import Values, as_array
from wordsway.errors import InputError, MissingExtra, NumericalError
from wordsway.records import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROUNDING = 1e-6  # how far from 1 weights in single precision may sum
_MARGINALS = 1e-9  # how far apart the masses at one position may be
_PIVOTS = 10**7  # of the network simplex; a few times the number of points in both measures is usual


@dataclass(frozen=True, eq=False, init=False, repr=False)
class DiscreteMeasure(Record):
    """A probability measure of m points: mu = sum_i w_i delta_{x_i}, or sum_i w_i delta_{(s_i, x_i)} with positions.

    Everything is copied to the CPU in float64. Points of weight 0 are left out.

    Attributes
    ----------
    points : Tensor (m, d)
    weights : Tensor (m,)
        Above 0 and of sum 1, default: 1 / m each.
    positions : Tensor (m,) or None
        Position of each point in the text, from 0 to 1, which masked attention compares. Points may share one.
    """

    points: Tensor
    weights: Tensor
    positions: Tensor | None

    def __init__(self, points: Values, weights: Values | None = None, positions: Values | None = None) -> None:
        places = _copy(points, "points", ("m", "d"))
        m = len(places)
        masses = torch.full((m,), 1 / m, dtype=torch.float64) if weights is None else _masses(weights, m)
        kept = masses > 0
        object.__setattr__(self, "points", places[kept])
        object.__setattr__(self, "weights", masses[kept])
        object.__setattr__(self, "positions", None if positions is None else _positions(positions, m)[kept])

    def __len__(self) -> int:
        return len(self.points)

    @property
    def d(self) -> int:
        return self.points.shape[1]

    @property
    def radius(self) -> float:
        """The largest norm of a point."""
        return float(torch.linalg.vector_norm(self.points, dim=1).max())

    def to_dict(self) -> dict[str, Any]:
        positions = None if self.positions is None else self.positions.tolist()
        return {"points": self.points.tolist(), "weights": self.weights.tolist(), "positions": positions}

    def rows(self) -> list[dict[str, Any]]:
        places = [None] * len(self) if self.positions is None else self.positions.tolist()
        return [
            {"weight": weight, "position": place, **{f"x{axis}": value for axis, value in enumerate(point)}}
            for weight, place, point in zip(self.weights.tolist(), places, self.points.tolist(), strict=True)
        ]

    def draw(self, ax: Axes) -> None:
        """Draw the first two coordinates of the points, their areas in proportion to the weights."""
        plane = torch.nn.functional.pad(self.points, (0, 1))[:, :2]  # points on a line have the second coordinate 0
        ax.scatter(plane[:, 0].tolist(), plane[:, 1].tolist(), (400 * self.weights).tolist(), alpha=0.6)
        ax.set(xlabel="$x_0$", ylabel="$x_1$")


def check_measure(mu: object, name: str) -> None:
    if not isinstance(mu, DiscreteMeasure):
        raise InputError(f"{name} must be a DiscreteMeasure, got {type(mu).__name__}: use DiscreteMeasure(X)")


@dataclass(frozen=True, eq=False, repr=False)
class Transport(Record):
    """The distance of two measures and a plan that attains it: plan_ij is the mass from point i to point j."""

    value: float
    plan: Tensor  # m m'

    def draw(self, ax: Axes) -> None:
        """Draw the plan as an image."""
        ax.imshow(self.plan.tolist(), aspect="auto")
        ax.set(xlabel="point of the second measure", ylabel="point of the first", title=f"$W_2$ = {self.value:.4g}")


def wasserstein(mu: DiscreteMeasure, nu: DiscreteMeasure) -> Transport:
    """The Wasserstein distance W2 of two measures, exactly.

    W2(mu, nu)^2 is the least sum_ij plan_ij |x_i - y_j|^2 over plans (m, m') with row sums w and column sums w'.

    With positions it is the distance under which masked attention is smooth. Both measures must have the same masses
    theta(s) at the same positions s, and

        W2(mu, nu)^2 = sum_s theta(s) W2(mu(.|s), nu(.|s))^2,

    so that mass moves between points but never along the text. The plain distance of (s, x) would not do: when a point
    passes the position of another by however little, it becomes visible or stops being so, and the masked map jumps.

    Parameters
    ----------
    mu, nu : DiscreteMeasure
        Of the same dimension, both with positions or both without.

    Returns
    -------
    Transport
        The distance and a plan that attains it.

    Notes
    -----
    Solved by the network simplex of POT (the extra `transport`), about O((m + m')^3) time and 3 m m' numbers. It is
    exact up to rounding: masses below 1e-14 do not count, and distances below 1e-8 of the largest one are unreliable.
    """
    for name, measure in (("mu", mu), ("nu", nu)):
        check_measure(measure, name)
    if mu.d != nu.d:
        raise InputError(f"both measures must have points of the same d, got {mu.d} and {nu.d}")
    memory.require(5 * 8 * len(mu) * len(nu), f"a plan of {len(mu)} x {len(nu)} points", "use fewer points")
    plan = torch.zeros(len(mu), len(nu), dtype=torch.float64)
    total = 0.0
    for rows, columns, mass in _layers(mu, nu):
        cost = _squared_distances(mu.points[rows], nu.points[columns])
        part = mass * _solve(mu.weights[rows], nu.weights[columns], cost)
        plan[rows[:, None], columns] = part
        total += float((part * cost).sum())
    return Transport(math.sqrt(total), plan)


def _layers(mu: DiscreteMeasure, nu: DiscreteMeasure) -> list[tuple[Tensor, Tensor, float]]:
    """Return what is transported separately: rows and columns of the plan, and their mass."""
    if mu.positions is None or nu.positions is None:
        if mu.positions is not nu.positions:
            which = "the second" if mu.positions is None else "the first"
            raise InputError(f"both measures must have positions or neither, got them for {which} only")
        return [(torch.arange(len(mu)), torch.arange(len(nu)), 1.0)]
    layers = []
    for place in sorted({*mu.positions.tolist(), *nu.positions.tolist()}):
        rows, columns = (mu.positions == place).nonzero()[:, 0], (nu.positions == place).nonzero()[:, 0]
        masses = float(mu.weights[rows].sum()), float(nu.weights[columns].sum())
        if abs(masses[0] - masses[1]) > _MARGINALS or 0 in masses:
            raise InputError(
                f"both measures must have the same mass at each position, got {masses[0]:.4g} and {masses[1]:.4g} "
                f"at {place:.6g}: mass does not move along the text"
            )
        layers.append((rows, columns, masses[0]))
    return layers


def _squared_distances(left: Tensor, right: Tensor) -> Tensor:
    """Return |x_i - y_j|^2 from differences, since the expansion loses small ones: (m, d), (m', d) -> (m, m')."""
    return torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist").square()


def _solve(source: Tensor, target: Tensor, cost: Tensor) -> Tensor:
    """Return the cheapest plan between the two weights, each scaled to the sum 1."""
    if 1 in cost.shape:
        return torch.outer(source / source.sum(), target / target.sum())  # the only plan
    ot = _pot()
    scale = float(cost.max()) or 1.0  # the solver's tolerances are absolute
    parts = (source / source.sum()).numpy(), (target / target.sum()).numpy(), (cost / scale).numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its warnings are in the log too
        plan, log = ot.emd(*parts, numItermax=_PIVOTS, log=True)
    if log["warning"] is not None:
        raise NumericalError(f"optimal transport must end within {_PIVOTS} pivots, got no plan: use fewer points")
    return torch.from_numpy(np.ascontiguousarray(plan))


def _pot() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the first import compiles it, with warnings about its docstrings
            import ot
    except ImportError as error:
        raise MissingExtra.of("Wasserstein distances need POT", "transport") from error
    return ot


def _masses(values: Values, m: int) -> Tensor:
    weights = _copy(values, "weights", (m,))
    if weights.min() < 0:
        raise InputError(f"weights must be at least 0, got {float(weights.min()):.4g}: leave that point out")
    total = float(weights.sum())
    if abs(total - 1) > _ROUNDING:
        raise InputError(f"weights must sum to 1, got {total:.6g}: divide them by their sum")
    return weights / total


def _positions(values: Values, m: int) -> Tensor:
    positions = _copy(values, "positions", (m,))
    least, most = float(positions.min()), float(positions.max())
    if least < 0 or most > 1:
        raise InputError(f"positions must be from 0 to 1, got {least:.4g} to {most:.4g}: divide them by the largest")
    return positions


def _copy(values: Values, name: str, shape: tuple[int | str, ...]) -> Tensor:
    """Return a copy in float64 on the CPU."""
    return as_array(values, name, shape).to("cpu", torch.float64, copy=True)
