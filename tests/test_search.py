"""The search over balls, on problems whose maxima are known."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wordsway.errors import InputError
from wordsway.sensitivity import SearchBudget, SearchResult, maximise
from wordsway.sensitivity.search import Piece, Pieces, _repeated, refine

Array = npt.NDArray[np.floating[Any]]
RADIUS = 3.0


def _normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


class Problem:
    """An objective that remembers the best value it gave, and fails on points outside the balls."""

    def __init__(self, value: Callable[[Array], tuple[Array, Array]], radius: float = RADIUS) -> None:
        self.value, self.radius = value, radius
        self.best: Array = np.asarray(-math.inf)
        self.calls = 0

    def __call__(self, delta: Array, gradient: bool) -> tuple[Array, Array | None]:
        assert np.isfinite(delta).all()
        assert float(np.linalg.norm(delta, axis=-1).max()) <= self.radius * (1 + 4 * np.finfo(delta.dtype).eps)
        value, grad = self.value(delta)
        self.best = np.maximum(self.best, value.max(0))
        self.calls += 1
        return value, grad if gradient else None


def _quadratic(matrices: Array) -> Callable[[Array], tuple[Array, Array]]:
    """Delta^T M_g Delta for each problem g, of all moves end to end."""

    def value(delta: Array) -> tuple[Array, Array]:
        flat = delta.reshape(*delta.shape[:2], -1)
        pushed = np.einsum("bgi,gij->bgj", flat, matrices)
        return (flat * pushed).sum(-1), 2 * pushed.reshape(delta.shape)

    return value


def _linear(direction: Array) -> Callable[[Array], tuple[Array, Array]]:
    return lambda delta: ((delta * direction).sum((-2, -1)), np.broadcast_to(direction, delta.shape).copy())


def _bowl(centre: Array) -> Callable[[Array], tuple[Array, Array]]:
    """5 - |Delta - c|^2, largest at c."""
    return lambda delta: (5 - ((delta - centre) ** 2).sum((-2, -1)), -2 * (delta - centre))


def _inside(found: SearchResult, radius: float = RADIUS) -> None:
    assert float(np.linalg.norm(found.delta, axis=-1).max()) <= radius * (1 + 1e-9)


@pytest.mark.parametrize("d", [1, 2, 5, 30])
def test_a_quadratic_form_reaches_its_top_eigenvalue(d: int) -> None:
    root = _normal(4, d, d, seed=d)
    matrices = root @ np.swapaxes(root, 1, 2)
    problem = Problem(_quadratic(matrices))
    found = maximise(problem, _normal(6, 4, 1, d, seed=1), RADIUS)
    exact = RADIUS**2 * np.linalg.eigvalsh(matrices)[:, -1]
    assert found.value == pytest.approx(exact, rel=1e-4)
    assert bool((found.value <= exact * (1 + 1e-9)).all())
    assert found.converged.all()
    assert found.evaluations == problem.calls
    _inside(found)


@pytest.mark.parametrize("seed", range(8))
def test_a_single_start_climbs_all_the_way(seed: int) -> None:
    """At the edge of the ball a step may not lead inwards: there the objective falls, however short the step is."""
    matrices = np.stack([np.diag([1.0, 2.0, 3.0]), np.diag([2.0, 2.5, 3.0])])
    found = maximise(Problem(_quadratic(matrices)), _normal(1, 2, 1, 3, seed=seed), RADIUS)
    assert found.value == pytest.approx([27.0, 27.0], rel=2e-4)
    assert found.converged.all()


@pytest.mark.parametrize("d", [2, 6])
def test_an_indefinite_form_is_maximised_too(d: int) -> None:
    root = _normal(3, d, d, seed=d)
    matrices = root + np.swapaxes(root, 1, 2)
    found = maximise(Problem(_quadratic(matrices)), _normal(8, 3, 1, d, seed=1), RADIUS)
    assert found.value == pytest.approx(RADIUS**2 * np.linalg.eigvalsh(matrices)[:, -1], rel=1e-3)


def test_a_linear_function_over_a_product_of_balls() -> None:
    direction = _normal(2, 3, 4)  # two problems of three moves
    found = maximise(Problem(_linear(direction)), _normal(3, 2, 3, 4, seed=1), RADIUS)
    lengths = np.linalg.norm(direction, axis=-1, keepdims=True)
    assert found.value == pytest.approx(RADIUS * lengths.sum((1, 2)), rel=1e-6)
    assert found.delta == pytest.approx(RADIUS * direction / lengths, rel=1e-2, abs=1e-2)
    assert found.converged.all()
    _inside(found)


def test_a_bilinear_form_over_two_balls_reaches_the_norm() -> None:
    """Delta_1^T A Delta_2 over two balls is largest at the top singular vectors."""
    a = _normal(5, 5, seed=3)
    whole = np.zeros((1, 10, 10))
    whole[0, :5, 5:], whole[0, 5:, :5] = a / 2, a.T / 2
    found = maximise(Problem(_quadratic(whole)), _normal(6, 1, 2, 5, seed=1), RADIUS)
    assert found.value[0] == pytest.approx(RADIUS**2 * np.linalg.norm(a, 2), rel=1e-4)
    _inside(found)


@pytest.mark.parametrize("length", [0.0, 0.3, 1.0, 2.5])
def test_a_maximum_inside_the_ball_is_found_there(length: float) -> None:
    centre = _normal(1, 1, 4, seed=2)
    centre *= length / np.linalg.norm(centre)
    found = maximise(Problem(_bowl(centre)), _normal(4, 1, 1, 4, seed=1), RADIUS)
    assert found.value[0] == pytest.approx(5.0, rel=1e-4)
    assert found.delta[0] == pytest.approx(centre[0], abs=0.05)


def test_a_higher_maximum_on_the_way_to_the_edge_is_found() -> None:
    """At the edge the objective rises outwards, so that nothing but a look along the ray leads back inside."""

    def hill(delta: Array) -> tuple[Array, Array]:
        length = np.linalg.norm(delta, axis=-1, keepdims=True)
        peak = 2 * np.exp(-10 * (length - 1.6) ** 2)
        grad = (0.2 * length - 20 * (length - 1.6) * peak) * delta / np.maximum(length, 1e-12)
        return (0.1 * length**2 + peak).sum((-2, -1)), grad

    found = maximise(Problem(hill), _normal(3, 2, 1, 4, seed=1), RADIUS)
    assert found.value == pytest.approx([2.2573, 2.2573], rel=1e-4)
    assert np.linalg.norm(found.delta, axis=-1) == pytest.approx(np.full((2, 1), 1.608), abs=0.02)


def test_a_maximum_outside_the_ball_is_approached_to_its_edge() -> None:
    centre = np.full((1, 1, 4), 4.0)  # 8 away from the ball's centre
    found = maximise(Problem(_bowl(centre)), _normal(4, 1, 1, 4, seed=1), RADIUS)
    assert found.value[0] == pytest.approx(5 - (8 - RADIUS) ** 2, rel=1e-5)
    assert np.linalg.norm(found.delta) == pytest.approx(RADIUS)


@pytest.mark.parametrize("value", [0.0, 2.0, -1.0])
@pytest.mark.parametrize("radius", [RADIUS, 100.0])
def test_a_constant_is_returned_at_once(value: float, radius: float) -> None:
    problem = Problem(lambda delta: (np.full(delta.shape[:2], value), np.zeros_like(delta)), radius)
    found = maximise(problem, _normal(5, 2, 1, 3), radius)
    assert found.value.tolist() == [value, value]
    assert found.converged.all()
    assert found.evaluations <= 12
    _inside(found, radius)


@pytest.mark.parametrize("radius", [1e-3, 1.0, 100.0, 1e6])
def test_a_problem_that_is_done_does_not_disturb_another(radius: float) -> None:
    """One of the two is constant, so its gradient is exactly 0 while the other still climbs."""
    matrices = np.zeros((2, 3, 3))
    matrices[1] = np.diag([1.0, 2.0, 3.0])
    found = maximise(Problem(_quadratic(matrices), radius), _normal(4, 2, 1, 3, seed=1), radius)
    assert found.value[0] == 0
    assert found.value[1] == pytest.approx(3 * radius**2, rel=1e-4)


def test_starts_of_length_zero_are_no_trouble() -> None:
    starts = _normal(4, 1, 1, 3, seed=1)
    starts[0] = 0
    found = maximise(Problem(_quadratic(np.diag([1.0, 2.0, 3.0])[None])), starts, RADIUS)
    assert found.value[0] == pytest.approx(27.0, rel=1e-4)
    alone = maximise(Problem(_linear(np.ones((1, 1, 3)))), 0 * starts[:1], RADIUS)
    assert alone.value[0] == pytest.approx(RADIUS * math.sqrt(3), rel=1e-4)


def _waves(seed: int) -> Callable[[Array], tuple[Array, Array]]:
    """A sum of waves: many local maxima, and no hope to find the best one from few starts."""
    rays, phases = 3 * _normal(7, 3, seed=seed), _normal(7, seed=seed + 1)

    def value(delta: Array) -> tuple[Array, Array]:
        angle = delta @ rays.T + phases  # b g m 7
        return np.sin(angle).sum((-2, -1)), np.cos(angle) @ rays

    return value


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 1000),
    starts=st.integers(1, 7),
    moves=st.integers(1, 2),
    power=st.integers(0, 4),
    polish=st.integers(0, 15),
    keep=st.integers(1, 3),
)
def test_never_less_than_the_best_value_seen(
    seed: int, starts: int, moves: int, power: int, polish: int, keep: int
) -> None:
    problem = Problem(_waves(seed))
    budget = SearchBudget(power=power, polish=polish, keep=keep)
    found = maximise(problem, _normal(starts, 3, moves, 3, seed=seed), RADIUS, budget)
    assert np.array_equal(found.value, problem.best)
    value, _ = problem.value(found.delta[None])
    assert value[0] == pytest.approx(found.value, rel=1e-12)
    _inside(found)


@pytest.mark.parametrize("budget", [None, SearchBudget(polish=7, keep=1)])
def test_several_problems_at_once_are_the_same_as_one_at_a_time(budget: SearchBudget | None) -> None:
    root = _normal(5, 6, 6, seed=4)
    matrices = root @ np.swapaxes(root, 1, 2)
    matrices[2] = 0  # done at once
    starts = _normal(6, 5, 1, 6, seed=1)
    together = maximise(Problem(_quadratic(matrices)), starts, RADIUS, budget)
    for g in range(5):
        alone = maximise(Problem(_quadratic(matrices[g : g + 1])), starts[:, g : g + 1], RADIUS, budget)
        assert alone.value[0] == pytest.approx(together.value[g], rel=1e-8, abs=1e-12)
        assert alone.converged[0] == together.converged[g]


def test_a_search_that_runs_out_of_steps_is_marked() -> None:
    matrices = np.diag(np.linspace(1, 1.2, 40))[None]
    short = SearchBudget(power=1, polish=2, keep=1)
    found = maximise(Problem(_quadratic(matrices)), _normal(1, 1, 1, 40, seed=1), RADIUS, short)
    assert not found.converged.any()


@pytest.mark.parametrize("power", [0, 2])
def test_no_polish_at_all_is_allowed(power: int) -> None:
    matrices = np.diag([1.0, 2.0, 3.0])[None]
    budget = SearchBudget(power=power, screen=0, polish=0)
    found = maximise(Problem(_quadratic(matrices)), _normal(3, 1, 1, 3, seed=1), RADIUS, budget)
    assert 9 <= found.value[0] <= 27 * (1 + 1e-9)
    assert not found.converged.any()


def test_points_of_another_basin_are_polished_too() -> None:
    """Two peaks: without help the search climbs the near one, from which nothing leads to the other."""

    def peaks(delta: Array) -> tuple[Array, Array]:
        near, far = np.exp(-4 * (delta - 1) ** 2), 2 * np.exp(-4 * (delta + 1) ** 2)
        return (near + far).sum((-2, -1)), -8 * (delta - 1) * near - 8 * (delta + 1) * far

    starts, budget = np.ones((1, 1, 1, 1)), SearchBudget(power=0)
    alone = maximise(Problem(peaks, 1.5), starts, 1.5, budget)
    assert alone.value[0] == pytest.approx(1.0, rel=1e-3)
    helped = maximise(Problem(peaks, 1.5), starts, 1.5, budget, nearby=lambda point: -0.8 * point)
    assert helped.value[0] == pytest.approx(2.0, rel=1e-3)


def test_random_steps_cross_a_jump_that_gradients_do_not_show() -> None:
    """x_1 below the step x_2 = 0.3, 10 + x_2 above it; the search starts and stays at the top of the lower part."""

    def step(delta: Array) -> tuple[Array, Array]:
        first, second = delta[:, :, 0, 0], delta[:, :, 0, 1]
        above = second > 0.3
        grad = np.zeros_like(delta)
        grad[:, :, 0, 0], grad[:, :, 0, 1] = ~above, above
        return np.where(above, 10 + second, first), grad

    starts, budget = np.tile([1.0, 0.0, 0.0], (2, 1, 1, 1)), SearchBudget(power=0, polish=0, anneal=8)
    assert maximise(Problem(step), starts, RADIUS, budget).value[0] == pytest.approx(RADIUS)
    found = maximise(Problem(step), starts, RADIUS, dataclasses.replace(budget, scatter=60))
    assert found.value[0] == pytest.approx(10 + RADIUS, rel=1e-2)
    _inside(found)


def _kinked(rays: Array, walls: Array, cost: float) -> tuple[Callable[[Array], tuple[Array, Array]], Pieces]:
    """c . Delta less the cost of every positive w . Delta, and its pieces: from anywhere that without positive ones."""

    def value(delta: Array) -> tuple[Array, Array]:
        beyond = delta @ walls.T  # b g m k
        grad = rays - cost * (beyond > 0) @ walls
        return (delta * rays).sum((-2, -1)) - cost * np.maximum(beyond, 0).sum((-2, -1)), grad

    def pieces(_: Array) -> Piece:
        def piece(delta: Array) -> tuple[Array, Array, Callable[[Array], Array]]:
            def pull(weights: Array) -> Array:
                return rays - (weights @ walls)[:, :, None]

            return (delta * rays).sum((-2, -1)), (delta @ walls.T)[:, :, 0], pull

        return piece

    return value, pieces


@pytest.mark.parametrize("starts", [1, 4])
def test_pieces_lead_along_the_edges_where_they_meet(starts: int) -> None:
    """The maximum has 12 of 20 coordinates at 0, on the edge of as many kinks: steps along the gradient zigzag."""
    walls, rays = np.eye(20)[:12], np.concatenate([np.full(12, 3.0), np.full(8, 1.0)])
    value, pieces = _kinked(rays, walls, 50.0)
    budget = SearchBudget(power=0, screen=0, polish=0, anneal=8)
    first = -np.abs(_normal(starts, 2, 1, 20, seed=3))
    short = maximise(Problem(value), first, RADIUS, budget)
    found = maximise(Problem(value), first, RADIUS, dataclasses.replace(budget, follow=6), pieces=pieces)
    exact = RADIUS * math.sqrt(8)
    assert (short.value < 0.97 * exact).all()
    assert found.value == pytest.approx([exact, exact], rel=2e-3)
    assert (found.value <= exact * (1 + 1e-12)).all()
    _inside(found)
    alone = maximise(Problem(value), first[:, :1], RADIUS, dataclasses.replace(budget, follow=6), pieces=pieces)
    assert alone.value[0] == pytest.approx(found.value[0], rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_follows_the_starts(dtype: type) -> None:
    matrices: Array = np.diag([1.0, 2.0, 3.0])[None].astype(dtype)
    found = maximise(Problem(_quadratic(matrices)), _normal(3, 1, 1, 3, seed=1).astype(dtype), RADIUS)
    assert found.value.dtype == found.delta.dtype == dtype
    assert found.value[0] == pytest.approx(27.0, rel=1e-4)


@pytest.mark.parametrize("steps", range(1, 9))
def test_a_few_annealing_steps_are_enough_to_run(steps: int) -> None:
    direction = _normal(1, 4)
    found = maximise(Problem(_linear(direction)), _normal(3, 1, 1, 4), RADIUS, SearchBudget(anneal=steps))
    assert found.value[0] == pytest.approx(RADIUS * float(np.linalg.norm(direction)), rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *(
            ({name: -1}, f"{name} must be an integer >= 0, got -1")
            for name in ("power", "screen", "polish", "anneal", "follow", "scatter")
        ),
        ({"power": 1.5}, "power must be an integer >= 0, got 1.5"),
        ({"anneal": True}, "anneal must be an integer >= 0, got True"),
        ({"keep": 0}, "keep must be an integer >= 1, got 0"),
        ({"history": 0}, "history must be an integer >= 1, got 0"),
        ({"history": "six"}, "history must be an integer >= 1, got 'six'"),
        *(({"tolerance": bad}, "tolerance must be a finite number > 0, got") for bad in (0.0, -1, math.nan, "small")),
    ],
)
def test_efforts_that_make_no_sense_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SearchBudget(**arguments)


def test_a_budget_may_be_of_numpy_integers() -> None:
    assert SearchBudget(power=np.int64(2), keep=np.int32(1)) == SearchBudget(power=2, keep=1)  # type: ignore[arg-type]


def test_what_is_no_budget_is_refused() -> None:
    problem: Any = Problem(_linear(_normal(1, 4)))
    with pytest.raises(InputError, match="budget must be a SearchBudget or None, got 'tight'"):
        maximise(problem, _normal(3, 1, 1, 4), RADIUS, "tight")  # type: ignore[arg-type]


# The ascent in rounds


def _rugged(point: Array) -> tuple[Array, Array]:
    """A rugged function of many kinks, the same for all problems but for its phase."""
    phase = np.arange(point.shape[1]).reshape(1, -1, 1, 1)
    inside = point * 3 + phase
    return np.abs(np.sin(inside)).sum((-2, -1)) + 0.3 * point.sum((-2, -1)), 3 * np.cos(inside) * np.sign(
        np.sin(inside)
    ) + 0.3


@pytest.mark.parametrize("steps", [1, 2, 7, 8, 9, 16, 23, 32, 40, 64])
def test_more_steps_of_an_ascent_never_find_less(steps: int) -> None:
    starts = _normal(4, 5, 1, 6, seed=3)
    for longer in (steps + 1, 2 * steps, 4 * steps):
        less, more = (maximise(Problem(_rugged), starts, RADIUS, SearchBudget(ascent=n)) for n in (steps, longer))
        assert (more.value >= less.value).all()
    assert more.gain is not None
    half = maximise(Problem(_rugged), starts, RADIUS, SearchBudget(ascent=2 * steps))
    assert more.gain == pytest.approx(more.value - half.value, abs=1e-12)  # what doubling the steps has gained


def test_an_ascent_evaluates_what_problems_exchange() -> None:
    starts = _normal(2, 3, 1, 4, seed=1)
    seen: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def exchange(delta: Array, value: Array) -> Array:
        seen.append((delta.shape, value.shape))
        return np.full((1, 3, 1, 4), RADIUS / 2)

    target = np.full(4, RADIUS / 2)

    def hidden(point: Array) -> tuple[Array, Array]:
        """Flat, but for one point that gradients cannot find."""
        return 1.0 * (np.abs(point - target).max((-2, -1)) < 1e-9), np.zeros_like(point)

    result = maximise(Problem(hidden), starts, RADIUS, SearchBudget(ascent=40), exchange=exchange)
    assert seen == [((3, 1, 4), (3,))] * 2  # after 16 and 32 steps
    assert result.value.tolist() == [1.0] * 3


@pytest.mark.parametrize(("ascent", "close"), [(0, 1e-3), (64, 0.02)])  # steps of prescribed length end near a maximum
def test_every_problem_may_have_a_radius(ascent: int, close: float) -> None:
    radii = np.array([0.5, 1.0, 3.0])
    matrices = np.stack([np.diag([1.0, 2.0, 5.0])] * 3)
    result = maximise(
        Problem(_quadratic(matrices), 3.0), _normal(4, 3, 1, 3, seed=2), radii, SearchBudget(ascent=ascent)
    )
    assert result.value == pytest.approx(5.0 * radii**2, rel=close)
    assert (np.linalg.norm(result.delta, axis=-1)[:, 0] <= radii * (1 + 1e-12)).all()


# A search in float32 ends in float64


def _coarse(value: float, delta: Array, converged: bool) -> SearchResult:
    return SearchResult(np.array([value], "f"), delta.astype("f")[None, None], np.array([converged]), 7)


@pytest.mark.parametrize("converged", [True, False])
def test_a_coarse_witness_is_evaluated_in_float64_inside_the_ball(converged: bool) -> None:
    target = _normal(6)
    problem = Problem(lambda delta: ((delta * target).sum((-2, -1)), np.broadcast_to(target, delta.shape).copy()))
    near = target + 0.01 * _normal(6, seed=1)
    near *= RADIUS / np.linalg.norm(near)
    coarse = _coarse(float(target @ near), 1.0001 * near, converged)
    fine = refine(problem, coarse, RADIUS)
    assert fine is not None
    assert fine.value.dtype == fine.delta.dtype == np.float64
    assert fine.value[0] == float((fine.delta[0, 0] * target).sum())
    exact = RADIUS * float(np.linalg.norm(target))
    assert (exact - fine.value[0] < 1e-7 * exact) == (not converged)  # the other one is polished
    assert fine.evaluations > coarse.evaluations


def test_a_coarse_value_that_is_not_that_of_its_witness_is_refused() -> None:
    problem = Problem(lambda delta: (np.linalg.norm(delta, axis=(-2, -1)), delta))
    assert refine(problem, _coarse(1.01 * RADIUS, RADIUS * np.eye(6)[0], True), RADIUS) is None
    assert refine(problem, _coarse(math.nan, RADIUS * np.eye(6)[0], True), RADIUS) is None


def test_starts_in_one_place_count_once() -> None:
    point = np.stack([np.eye(5)[[0, 0, 1]], np.eye(5)[[2, 3, 4]]], axis=1)[:, :, None]  # B G m d
    point[1] *= 2
    assert _repeated(point).tolist() == [[False, False], [True, False], [False, False]]
