"""The search from points inside the ball: maxima there, and objectives below zero."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wordsway.sensitivity import SearchBudget, maximise
from wordsway.sensitivity.search import Objective

Array = npt.NDArray[np.floating[Any]]
RADIUS = 3.0
SMOOTH = SearchBudget(power=0, screen=12, keep=3, polish=60, tolerance=1e-6)


def _normal(*shape: int, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


class Watched:
    """An objective that keeps the points of its evaluations, and fails outside the ball."""

    def __init__(self, objective: Objective) -> None:
        self.objective, self.points = objective, list[Array]()

    def __call__(self, point: Array, gradient: bool) -> tuple[Array, Array | None]:
        assert float(np.linalg.norm(point, axis=-1).max()) <= RADIUS * (1 + 1e-12)
        self.points.append(point.copy())
        return self.objective(point, gradient)


def _search(objective: Objective, starts: Array, budget: SearchBudget = SMOOTH) -> Any:
    return maximise(Watched(objective), starts, RADIUS, budget, inside=True)


def _hill(matrices: Array, tops: Array, heights: Array) -> Objective:
    """h_g - (Delta - c_g)^T A_g (Delta - c_g): concave, largest at c_g."""

    def value(point: Array, gradient: bool) -> tuple[Array, Array | None]:
        away = point[:, :, 0] - tops  # B G d
        pulled = np.einsum("bgi,gij->bgj", away, matrices)
        return heights - (away * pulled).sum(-1), -2 * pulled[:, :, None] if gradient else None

    return value


def _concave(count: int, d: int, seed: int) -> tuple[Array, Array]:
    root = _normal(count, d, d, seed=seed)
    return root @ np.swapaxes(root, 1, 2) + 0.1 * np.eye(d), _normal(count, d, seed=seed + 1)


@pytest.mark.parametrize("height", [5.0, 0.0, -1.0, -1e4])
@pytest.mark.parametrize("d", [1, 2, 6, 20])
def test_an_interior_maximum_of_a_concave_quadratic(d: int, height: float) -> None:
    matrices, tops = _concave(3, d, seed=d)
    tops *= np.array([0.0, 0.3, 0.9])[:, None] * RADIUS / np.linalg.norm(tops, axis=-1, keepdims=True)
    found = _search(_hill(matrices, tops, np.full(3, height)), 0.5 * _normal(8, 3, 1, d, seed=2))
    assert found.value == pytest.approx(np.full(3, height), abs=1e-5 * (1 + abs(height)))
    assert bool((found.value <= height).all())
    assert found.converged.all() or height == 0  # relative to 0, nothing is small
    gap = np.sqrt((height - found.value) / 0.1)  # the least curvature is at least 0.1
    assert bool((np.linalg.norm(found.delta[:, 0] - tops, axis=-1) <= gap + 1e-9).all())


def test_only_with_inside_starts_keep_their_length() -> None:
    starts = _normal(5, 2, 1, 3, seed=1)
    starts *= np.array([0.0, 0.1, 1.0, 3.0, 30.0]).reshape(-1, 1, 1, 1) / np.linalg.norm(starts, axis=-1, keepdims=True)
    for inside, lengths in ((True, [0.0, 0.1, 1.0, 3.0, 3.0]), (False, [0.0, 3.0, 3.0, 3.0, 3.0])):
        watched = Watched(_hill(np.stack([np.eye(3)] * 2), np.zeros((2, 3)), np.zeros(2)))
        maximise(watched, starts, RADIUS, SMOOTH, inside=inside)
        first = np.linalg.norm(watched.points[0][:, :, 0], axis=-1)
        assert first == pytest.approx(np.repeat(np.array(lengths)[:, None], 2, axis=1))


def test_a_narrow_maximum_near_the_centre_is_reached() -> None:
    """Far from it the objective is flat, so that the start has to be near."""

    def bump(point: Array, gradient: bool) -> tuple[Array, Array | None]:
        away = point - 0.1
        value = np.exp(-30 * (away**2).sum(-1, keepdims=True))
        return value[..., 0, 0] - 1, -60 * value * away if gradient else None

    starts = np.zeros((2, 1, 1, 3))
    starts[0, ..., 0], starts[1, ..., 1] = 0.2, 0.3
    found = _search(bump, starts)
    assert found.value[0] == pytest.approx(0.0, abs=1e-5)
    assert found.delta[0, 0] == pytest.approx([0.1] * 3, abs=1e-2)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 1000), d=st.integers(1, 8), lift=st.floats(0.01, 1e6), size=st.sampled_from([1e-6, 1.0, 1e6])
)
def test_objectives_below_zero_converge(seed: int, d: int, lift: float, size: float) -> None:
    """Losses are searched as -(loss + a constant): the tolerance is relative to the size of the value."""
    matrices, tops = _concave(2, d, seed)
    objective = _hill(size * matrices, tops, np.full(2, -lift * size))
    found = _search(objective, _normal(6, 2, 1, d, seed=seed))
    assert found.converged.all()
    reached = found.value[np.linalg.norm(tops, axis=-1) <= RADIUS]
    assert bool((reached <= -lift * size).all())
    assert bool((np.abs(reached + lift * size) <= 1e-4 * lift * size).all())
    assert objective(found.delta[None], False)[0][0] == pytest.approx(found.value, rel=1e-9)


@pytest.mark.parametrize("anneal", [0, 60])
def test_never_less_than_the_best_start(anneal: int) -> None:
    rays = 3 * _normal(7, 3, seed=1)

    def waves(point: Array, gradient: bool) -> tuple[Array, Array | None]:
        angle = point @ rays.T
        return np.sin(angle).sum((-2, -1)) - 20, np.cos(angle) @ rays if gradient else None

    starts = 0.3 * _normal(20, 4, 1, 3, seed=2)
    budget = SearchBudget(power=0, screen=12, keep=3, polish=20, anneal=anneal, tolerance=1e-6)
    assert bool((_search(waves, starts, budget).value >= waves(starts, False)[0].max(0)).all())
