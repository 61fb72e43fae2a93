"""Discrete measures and their Wasserstein distance, against closed forms, assignments and the axioms of a metric."""

import math
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from torch import Tensor

from wordsway.errors import MissingExtra, NumericalError
from wordsway.smoothness import DiscreteMeasure, transport, wasserstein


def drawn(seed: int, m: int, d: int = 3, weighted: bool = True, layers: int = 0) -> DiscreteMeasure:
    """A random measure; with layers, the same positions and masses at them for every seed and m."""
    source = torch.Generator().manual_seed(seed)
    points = torch.randn(max(1, layers) * m, d, generator=source, dtype=torch.float64)
    weights = torch.rand(max(1, layers), m, generator=source, dtype=torch.float64) + 0.1
    weights = weights if weighted else torch.ones_like(weights)
    weights = weights / weights.sum(1, keepdim=True)
    if not layers:
        return DiscreteMeasure(points, weights[0])
    masses = torch.arange(1, layers + 1) / (layers * (layers + 1) / 2)
    positions = (torch.arange(layers) / layers).repeat_interleave(m)
    order = torch.randperm(layers * m, generator=source)
    return DiscreteMeasure(points[order], (masses[:, None] * weights).flatten()[order], positions[order])


def W(mu: DiscreteMeasure, nu: DiscreteMeasure) -> float:
    return wasserstein(mu, nu).value


# Closed forms


def test_two_point_masses_are_as_far_apart_as_their_points() -> None:
    found = wasserstein(DiscreteMeasure([[0.0, 0.0]]), DiscreteMeasure([[3.0, 4.0]]))
    assert found.value == 5.0
    assert found.plan.tolist() == [[1.0]]


def test_a_point_mass_and_a_measure_have_one_plan() -> None:
    mu = drawn(0, 5)
    expected = math.sqrt(float(mu.weights @ mu.points.square().sum(1)))
    found = wasserstein(mu, DiscreteMeasure(torch.zeros(1, 3)))
    assert found.value == pytest.approx(expected, rel=1e-14)
    assert torch.equal(found.plan[:, 0], mu.weights)


def test_a_translation_is_as_long_as_it_is() -> None:
    mu = drawn(1, 9)
    for length in (1e-4, 1.0, 1e4):
        assert W(
            mu, DiscreteMeasure(mu.points + length * torch.tensor([0.6, 0.0, -0.8], dtype=torch.float64), mu.weights)
        ) == pytest.approx(length, rel=1e-8)


def test_on_a_line_points_are_matched_in_their_order() -> None:
    x, y = drawn(2, 40, 1).points, drawn(3, 40, 1).points
    expected = math.sqrt(float((x.sort(0)[0] - y.sort(0)[0]).square().mean()))
    assert W(DiscreteMeasure(x), DiscreteMeasure(y)) == pytest.approx(expected, rel=1e-12)
    spread = math.sqrt(float(x.square().mean()))
    assert W(DiscreteMeasure(x), DiscreteMeasure(2.5 * x)) == pytest.approx(
        1.5 * spread, rel=1e-12
    )  # scaling keeps the order


def test_on_a_line_weights_are_matched_by_quantiles() -> None:
    mu, nu = drawn(4, 7, 1), drawn(5, 5, 1)

    def steps(mu: DiscreteMeasure, levels: Tensor) -> Tensor:
        order = mu.points[:, 0].argsort()
        place = torch.searchsorted(mu.weights[order].cumsum(0), levels).clamp(max=len(mu) - 1)
        return mu.points[order, 0][place]

    edges = torch.cat([torch.zeros(1), *(c.weights[c.points[:, 0].argsort()].cumsum(0) for c in (mu, nu))]).sort()[0]
    middles, widths = (edges[1:] + edges[:-1]) / 2, edges.diff()
    expected = math.sqrt(float(widths @ (steps(mu, middles) - steps(nu, middles)).square()))
    assert W(mu, nu) == pytest.approx(expected, rel=1e-10)


@given(st.integers(0, 10**6), st.integers(2, 8), st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_equal_weights_are_an_assignment(seed: int, m: int, d: int) -> None:
    mu, nu = drawn(seed, m, d, weighted=False), drawn(seed + 1, m, d, weighted=False)
    cost = cdist(mu.points.numpy(), nu.points.numpy(), "sqeuclidean")
    rows, columns = linear_sum_assignment(cost)
    assert W(mu, nu) == pytest.approx(math.sqrt(cost[rows, columns].mean()), rel=1e-12)


# What a distance and its plan are


@given(st.integers(0, 10**6), st.tuples(*[st.integers(1, 6)] * 3), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_it_is_a_metric(seed: int, sizes: tuple[int, int, int], layers: int) -> None:
    a, b, c = (drawn(seed + k, m, 2, layers=layers) for k, m in enumerate(sizes))
    assert W(a, a) <= 1e-7
    assert W(a, b) > 0
    assert W(a, b) == pytest.approx(W(b, a), rel=1e-9)
    assert W(a, c) <= W(a, b) + W(b, c) + 1e-9


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 6), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_the_plan_moves_one_measure_to_the_other_at_that_cost(seed: int, m: int, k: int, layers: int) -> None:
    mu, nu = drawn(seed, m, layers=layers), drawn(seed + 1, k, layers=layers)
    found = wasserstein(mu, nu)
    assert float(found.plan.min()) >= 0
    torch.testing.assert_close(found.plan.sum(1), mu.weights, rtol=0, atol=1e-13)
    torch.testing.assert_close(found.plan.sum(0), nu.weights, rtol=0, atol=1e-13)
    cost = torch.from_numpy(cdist(mu.points.numpy(), nu.points.numpy(), "sqeuclidean"))
    assert found.value**2 == pytest.approx(float((found.plan * cost).sum()), rel=1e-10)
    if mu.positions is not None and nu.positions is not None:
        assert float(found.plan[mu.positions[:, None] != nu.positions].abs().sum()) == 0


def test_only_the_measure_counts() -> None:
    mu, nu = drawn(6, 5), drawn(7, 4)
    order = torch.tensor([3, 0, 4, 1, 2])
    halves = DiscreteMeasure(torch.cat([mu.points, mu.points]), torch.cat([mu.weights, mu.weights]) / 2)
    for same in (DiscreteMeasure(mu.points[order], mu.weights[order]), halves):
        assert W(same, mu) <= 1e-7
        assert W(same, nu) == pytest.approx(W(mu, nu), rel=1e-10)


def test_small_weights_and_small_distances_count() -> None:
    points = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    moved = points + torch.tensor([[1e-4, 0.0], [0.0, 0.0]])
    weights = torch.tensor([1e-5, 1 - 1e-5], dtype=torch.float64)
    assert W(DiscreteMeasure(points, weights), DiscreteMeasure(moved, weights)) == pytest.approx(
        math.sqrt(1e-5) * float(moved[0, 0].double() - 1), rel=1e-6
    )


# Positions


def test_mass_moves_within_positions_only() -> None:
    mu, nu = drawn(8, 4, layers=3), drawn(9, 3, layers=3)
    assert mu.positions is not None
    assert nu.positions is not None
    total = 0.0
    for place in sorted(set(mu.positions.tolist())):
        parts = [(c.points[here], c.weights[here]) for c in (mu, nu) for here in [c.positions == place]]
        mass = float(parts[0][1].sum())
        total += mass * W(*(DiscreteMeasure(points, weights / weights.sum()) for points, weights in parts)) ** 2
    assert W(mu, nu) == pytest.approx(math.sqrt(total), rel=1e-10)
    free = W(DiscreteMeasure(mu.points, mu.weights), DiscreteMeasure(nu.points, nu.weights))
    assert W(mu, nu) > free + 0.01
    together = [DiscreteMeasure(c.points, c.weights, torch.full((len(c),), 0.5)) for c in (mu, nu)]
    assert W(*together) == pytest.approx(free, rel=1e-12)


# Records


def test_a_measure_is_a_copy_in_double_precision_with_weights_of_sum_one() -> None:
    points = np.ones((3, 2), dtype=np.float32)
    measure = DiscreteMeasure(points, np.array([0.1, 0.2, 0.7], dtype=np.float32), [0, 0.5, 1])
    points[0, 0] = 9
    assert measure.points.tolist() == [[1.0, 1.0]] * 3
    assert measure.points.dtype == measure.weights.dtype == torch.float64
    assert float(measure.weights.sum()) == pytest.approx(1, abs=1e-15)
    assert measure.positions is not None
    assert measure.positions.dtype == torch.float64
    assert (len(measure), measure.d) == (3, 2)
    assert measure.radius == pytest.approx(math.sqrt(2))
    assert DiscreteMeasure(points).weights.tolist() == [1 / 3] * 3
    assert measure.to_dict()["positions"] == [0.0, 0.5, 1.0]
    assert DiscreteMeasure(points).to_dict()["positions"] is None
    with pytest.raises(FrozenInstanceError):
        measure.points = torch.zeros(1, 1)  # type: ignore[misc]


def test_points_without_weight_are_left_out() -> None:
    measure = DiscreteMeasure([[1.0], [2.0], [3.0]], [0.5, 0.0, 0.5], [0.0, 0.1, 1.0])
    assert measure.points.tolist() == [[1.0], [3.0]]
    assert measure.weights.tolist() == [0.5, 0.5]
    assert measure.to_dict()["positions"] == [0.0, 1.0]


# Solver


def test_without_pot_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(MissingExtra, match=r"pip install 'wordsway\[transport\]'"):
        W(drawn(0, 2), drawn(1, 2))


def test_a_solver_that_is_cut_off_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_PIVOTS", 2)
    with pytest.raises(NumericalError, match="within 2 pivots, got no plan: use fewer points"):
        W(drawn(0, 30), drawn(1, 30))


def test_the_first_import_of_the_solver_is_quiet(tmp_path: Path) -> None:
    """As in a new environment, where its files are not compiled yet, and with warnings as errors."""
    lines = (
        "import sys, warnings",
        "from wordsway import DiscreteMeasure, wasserstein",
        f"sys.pycache_prefix = {str(tmp_path)!r}",
        "warnings.simplefilter('error')",
        "print(wasserstein(DiscreteMeasure([[0.0], [1.0]]), DiscreteMeasure([[1.0], [3.0]])).value)",
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert float(done.stdout) == pytest.approx(2.5**0.5)
