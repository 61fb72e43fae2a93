"""Mean-field attention: what it is on words, what it does to measures, and how far it can stretch their distance."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from smoothness.layers import normal
from wordsway import Attention, InputError, RandomAttention
from wordsway.smoothness import DiscreteMeasure, MeanFieldLipschitz, mean_field, mean_field_lipschitz, wasserstein
from wordsway.smoothness.heads import Direction, directions
from wordsway.smoothness.mean_field_search import (
    DerivativeSearch,
    best_odds,
    head_matrices,
    lower_bound,
    two_point,
    upper_bound,
)

D = 4


def layer(seed: int = 0, d: int = D, value: bool = True, **changes: Any) -> Attention:
    draw = normal(seed)
    return Attention(draw(3, d), draw(3, d), draw(d, d) if value else None, **changes)


def measure(seed: int, m: int, d: int = D, radius: float = 1.0, positions: Any = None) -> DiscreteMeasure:
    """Points in a ball with weights of any size."""
    draw = normal(seed)
    points = draw(m, d)
    points = radius * points / torch.linalg.vector_norm(points, dim=1).max()
    return DiscreteMeasure(points, torch.softmax(3 * draw(1, m)[0], 0), positions)


def gamma_mu(attention: Attention, mu: DiscreteMeasure) -> Tensor:
    """The definition, point by point, without any care for large exponents."""
    A, V = head_matrices(attention)
    rows = []
    for i, x in enumerate(mu.points):
        seen = [j for j in range(len(mu)) if mu.positions is None or mu.positions[j] <= mu.positions[i]]
        gains = [float(mu.weights[j]) * math.exp(float((A @ x) @ mu.points[j])) for j in seen]
        mixed = sum((gain * (V @ mu.points[j]) for gain, j in zip(gains, seen, strict=True)), torch.zeros(len(V)))
        rows.append(mixed / sum(gains))
    return torch.stack(rows)


# What it is


def test_words_are_a_measure_of_equal_weights() -> None:
    X, draw = normal(1)(7, 6), normal(2)
    biased = layer(2, d=6, query_bias=draw(3), key_bias=draw(3), value_bias=draw(6))
    joined = Attention(draw(6, 6), draw(6, 6), None, heads=2, output=draw(4, 6), output_bias=draw(4))
    for attention in (layer(d=6), layer(d=6, heads=3, value=False), RandomAttention(6), biased, joined):
        assert torch.equal(mean_field(attention, DiscreteMeasure(X)).points, attention(X))


@pytest.mark.parametrize("causal", [False, True])
def test_words_with_positions_are_masked(causal: bool) -> None:
    X = normal(1)(7, D)
    image = mean_field(layer(causal=causal), DiscreteMeasure(X, None, torch.arange(1, 8) / 7))
    assert torch.equal(image.points, layer(causal=True)(X))
    together = mean_field(layer(), DiscreteMeasure(X, None, torch.full((7,), 0.3)))
    assert torch.equal(together.points, layer()(X))  # points that share a position see each other


@pytest.mark.parametrize("positions", [None, [0.1, 0.5, 0.5, 0.2, 0.9]])
def test_it_is_the_definition(positions: Any) -> None:
    mu = measure(0, 5, positions=positions)
    image = mean_field(layer(), mu)
    torch.testing.assert_close(image.points, gamma_mu(layer(), mu), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(image.weights, mu.weights, rtol=1e-15, atol=0)
    assert (image.positions is None) == (positions is None)


def test_large_scores_do_not_overflow() -> None:
    mu = measure(0, 5, radius=1e3)
    image = mean_field(layer(value=False), mu)
    scores = layer().scores(*layer().project(mu.points)[:2])[0]
    torch.testing.assert_close(image.points, mu.points[scores.argmax(1)])


# Only the measure counts


@given(st.integers(0, 10**6), st.integers(2, 6), st.booleans(), st.data())
@settings(max_examples=30, deadline=None)
def test_order_and_split_atoms_do_not_matter(seed: int, m: int, masked: bool, data: st.DataObject) -> None:
    mu = measure(seed, m, positions=torch.arange(m) / m if masked else None)
    image = mean_field(layer(seed), mu)
    order = torch.tensor(data.draw(st.permutations(range(m))))
    moved = mean_field(
        layer(seed), DiscreteMeasure(mu.points[order], mu.weights[order], mu.positions if not masked else order / m)
    )
    torch.testing.assert_close(moved.points, image.points[order], rtol=1e-11, atol=1e-12)
    twice = torch.arange(m).repeat(2)
    positions = None if mu.positions is None else mu.positions[twice]
    split = mean_field(layer(seed), DiscreteMeasure(mu.points[twice], mu.weights[twice] / 2, positions))
    torch.testing.assert_close(split.points, image.points[twice], rtol=1e-11, atol=1e-12)


def test_a_position_that_passes_another_makes_the_masked_map_jump() -> None:
    before, after = (DiscreteMeasure([[1.0], [-1.0]], None, [0.5, place]) for place in (0.5 - 1e-9, 0.5 + 1e-9))
    images = [mean_field(Attention([[1.0]], [[1.0]]), mu).points for mu in (before, after)]
    assert float((images[0] - images[1]).abs().max()) > 0.1
    with pytest.raises(InputError, match="mass does not move along the text"):
        wasserstein(before, after)


# Bounds


def _ratio(attention: Any, mu: DiscreteMeasure, nu: DiscreteMeasure) -> float:
    return wasserstein(mean_field(attention, mu), mean_field(attention, nu)).value / wasserstein(mu, nu).value


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 5), st.floats(0.05, 3), st.floats(0.01, 1))
@settings(max_examples=60, deadline=None)
def test_no_pair_exceeds_the_upper_bound(seed: int, m: int, k: int, radius: float, near: float) -> None:
    attention = layer(seed)
    bound = upper_bound(*head_matrices(attention), radius)
    mu, nu = measure(seed, m, radius=radius), measure(seed + 1, k, radius=radius)
    step = DiscreteMeasure((1 - near) * mu.points + near * nu.points[torch.arange(m) % k], mu.weights)
    assert _ratio(attention, mu, nu) <= bound
    assert _ratio(attention, mu, step) <= bound


@given(st.integers(0, 10**6), st.integers(1, 8), st.floats(0.05, 2))
@settings(max_examples=60, deadline=None)
def test_no_masked_pair_exceeds_its_upper_bound(seed: int, m: int, radius: float) -> None:
    places = torch.arange(m) // 2 / m
    mu = measure(seed, m, radius=radius, positions=places)
    nu = DiscreteMeasure(measure(seed + 1, m, radius=radius).points, mu.weights, places)
    assert _ratio(layer(seed), mu, nu) <= upper_bound(*head_matrices(layer(seed)), radius, masked=True)


def test_means_over_the_past_exceed_the_bound_of_plain_attention() -> None:
    """With A = 0 and V = I it would be 1; two equal positions already have (3 + sqrt 5)^(1/2) / 2 = 1.144."""
    attention = Attention(torch.zeros(1, 2), torch.zeros(1, 2))
    assert upper_bound(*head_matrices(attention), 1.0) == 1.0
    pair = torch.tensor([[1.0, 0.0], [(math.sqrt(5) - 2), 0.0]])
    measures = [DiscreteMeasure(sign * pair / 2, None, [0.5, 1.0]) for sign in (-1, 1)]
    assert _ratio(attention, *measures) == pytest.approx(math.sqrt(3 + math.sqrt(5)) / 2, rel=1e-6)
    found = [mean_field_lipschitz(attention, 1.0, points, masked=True) for points in (2, 5)]
    assert 1.144 < found[0].value < found[1].value < found[1].upper == 2.0
    assert mean_field_lipschitz(attention, 1.0).value == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("kind", ["opposite", "half"])
@pytest.mark.parametrize("light", [1e-3, 0.02, 0.3])
def test_what_moving_the_light_one_of_two_points_does(kind: str, light: float) -> None:
    """The heavy one's image moves by P V (dx + c u u^T dx)."""
    u, R, V = torch.tensor([0.6, 0.8], dtype=torch.float64), 1.3, normal(3)(2, 2)
    eigenvalue, gamma = (-0.9, 0.9) if kind == "opposite" else (3.2, 0.4)
    attention = Attention(eigenvalue * torch.outer(u, u) * math.sqrt(2), torch.eye(2, dtype=torch.float64), V)
    points = Direction(u, eigenvalue, gamma, kind).context(2, R)
    dx = normal(4)(1, 2)[0] * 1e-6
    weights = torch.tensor([light, 1 - light], dtype=torch.float64)
    images = [
        mean_field(attention, DiscreteMeasure(points + shift, weights)).points[1] for shift in (-_first(dx), _first(dx))
    ]
    E = math.exp(2 * gamma * R**2)
    P = light * E / (1 - light + light * E)
    c = 2 * gamma * R**2 * (1 - P)
    torch.testing.assert_close((images[1] - images[0]) / 2, P * V @ (dx + c * (u @ dx) * u), rtol=1e-6, atol=0)


def _first(dx: Tensor) -> Tensor:
    return torch.stack([dx, torch.zeros_like(dx)])


@given(st.floats(0.0, 30.0))
def test_the_best_odds_are_the_best_of_all(size: float) -> None:
    def gain(t: float) -> float:
        return math.sqrt(t) * (1 + t + 2 * size) / (1 + t) ** 2

    best = gain(best_odds(size))
    assert all(best >= gain(10**power) * (1 - 1e-12) for power in torch.linspace(-4, 4, 200).tolist())
    assert best * (1 + 1e-12) >= gain(1.0) == pytest.approx((1 + size) / 2)


def test_bounds_in_numbers() -> None:
    A, V, u = torch.diag(torch.tensor([-0.5, 0.2])).double(), 3 * torch.eye(2).double(), torch.eye(2).double()[0]
    assert upper_bound(A, V, 2.0) == pytest.approx(3 * (3 * math.exp(2) + 2))
    assert upper_bound(A, V, 2.0, masked=True) == pytest.approx(3 * (10 * math.exp(2) + 2))
    assert upper_bound(A, V, 37.0) < upper_bound(A, V, 38.0) == math.inf  # exp(722) overflows
    for R in (0.1, 1.0, 3.0):  # never above what Geshkovski et al. have
        a = 0.5 * R**2
        assert upper_bound(A, V, R) <= 3 * (1 + 3 * a) * math.exp(2 * a)
        assert upper_bound(A, V, R, masked=True) <= 6 * (1 + 3 * a) * math.exp(2 * a)
    found = [Direction(u, -0.5, 0.5, "opposite"), Direction(1 - u, 0.2, 0.025, "half")]
    assert lower_bound(found, 2.0) == pytest.approx(math.exp(2))
    assert (lower_bound([], 2.0), two_point([], V, 2.0)) == (0.0, 0.0)
    e = 1 / (1 + math.exp(4) / best_odds(2.0))
    P = e * math.exp(4) / (1 - e + e * math.exp(4))
    assert two_point(found, V, 2.0) == pytest.approx(3 * math.sqrt((1 - e) / e) * P * (1 + 4 * (1 - P)))
    assert two_point(found, V, 2.0) >= 3 * lower_bound(found, 2.0)


# The search


@pytest.mark.parametrize("masked", [False, True])
def test_the_derivative_is_that_of_the_images_in_the_points(masked: bool) -> None:
    attention, m = layer(7), 3
    A, V = head_matrices(attention)
    search = DerivativeSearch(attention, 1.5, masked)
    points, logs = normal(8)(m, D) / 3, normal(9)(1, m)[0]
    weights = torch.softmax(logs, 0)

    def images(Y: Tensor) -> Tensor:
        scores = Y @ A.mT @ Y.mT + weights.log()
        scores = scores.masked_fill(torch.ones(m, m).triu(1).bool(), -math.inf) if masked else scores
        return torch.softmax(scores, 1) @ Y @ V.mT

    expected = torch.func.jacrev(images)(1.5 * points)
    torch.testing.assert_close(images(1.5 * points), mean_field(attention, search.measure(points, logs)).points)
    ratio = (weights[:, None] / weights).sqrt()[:, None, :, None]
    torch.testing.assert_close(search.derivative(points, logs), (ratio * expected).reshape(m * D, m * D))


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "masked"])
def found(request: pytest.FixtureRequest) -> MeanFieldLipschitz:
    return mean_field_lipschitz(layer(3, value=False), 1.1, masked=request.param)


def test_the_witness_has_the_reported_ratio(found: MeanFieldLipschitz) -> None:
    attention = layer(3, value=False)
    assert found.mu.radius <= found.radius == 1.1
    assert found.nu.radius <= 1.1
    assert (found.mu.positions is not None) == found.masked
    images = [DiscreteMeasure(gamma_mu(attention, one), one.weights, one.positions) for one in (found.mu, found.nu)]
    assert found.value == pytest.approx(wasserstein(*images).value / wasserstein(found.mu, found.nu).value, rel=1e-6)
    # where measures hardly differ, the cheapest plan leaves each point where it is
    apart = [float(a.weights @ (a.points - b.points).square().sum(1)) for a, b in (images, (found.mu, found.nu))]
    assert found.value == pytest.approx(math.sqrt(apart[0] / apart[1]), rel=1e-6)


def test_the_value_lies_between_the_bounds_and_near_the_derivative(found: MeanFieldLipschitz) -> None:
    assert found.lower is not None
    assert 0 < found.lower < found.two_point < found.value < found.upper
    assert found.derivative * 0.998 < found.value < found.derivative * 1.002
    assert found.status == "locally converged"
    assert found.upper == upper_bound(*head_matrices(layer(3, value=False)), 1.1, found.masked)


def test_it_is_a_local_maximum(found: MeanFieldLipschitz) -> None:
    attention = layer(3, value=False)
    search = DerivativeSearch(attention, 1.1, found.masked)
    for seed in range(20):
        points = found.mu.points + 0.01 * normal(seed)(*found.mu.points.shape)
        points = points / torch.linalg.vector_norm(points, dim=1, keepdim=True).clamp_min(1.1)
        logs = found.mu.weights.log() + 0.1 * normal(seed + 100)(1, len(found.mu))[0]
        assert float(torch.linalg.matrix_norm(search.derivative(points, logs), ord=2)) < found.derivative * 1.0005


def test_the_record_holds_the_witness_on_request(found: MeanFieldLipschitz) -> None:
    short, long = found.to_dict(), found.to_dict(witness=True)
    assert {name: long[name] for name in short} == short
    assert long["mu"]["weights"] == found.mu.weights.tolist()
    assert long["nu"]["points"] == found.nu.points.tolist()


def test_the_same_seed_gives_the_same_and_random_measures_alone_get_as_far() -> None:
    attention = layer(3, value=False)
    one, again = (mean_field_lipschitz(attention, 1.1, seed=5) for _ in range(2))
    assert (one.value, one.mu.points.tolist()) == (again.value, again.mu.points.tolist())
    search = DerivativeSearch(attention, 1.1, False)
    ascents = [search.ascend(*start, 200).norm for start in search.random(4, 3, 0)]
    assert max(ascents) == pytest.approx(one.derivative, rel=1e-4)


@pytest.mark.parametrize("seed", [0, 5])
def test_in_a_small_ball_the_witness_moves_away_from_the_edge(seed: int) -> None:
    """There all points move alike, so that whichever way they go some of them would leave the ball."""
    found = mean_field_lipschitz(layer(seed, value=False), _radius(seed, 0.3))
    assert found.derivative * 0.999 < found.value < found.derivative


@pytest.mark.parametrize("seed", [0, 5])
def test_with_a_mask_more_points_reach_more(seed: int) -> None:
    attention, R = layer(seed, value=False), _radius(seed, 5.5)
    two, four = (mean_field_lipschitz(attention, R, points, masked=True, starts=4) for points in (2, 4))
    assert four.value > 1.35 * two.value


def _radius(seed: int, size: float) -> float:
    """The R with |A| R^2 = size."""
    return math.sqrt(size / float(torch.linalg.matrix_norm(head_matrices(layer(seed, value=False))[0], ord=2)))


def test_a_layer_of_real_shape() -> None:
    attention = Attention(normal(0)(2, 3), normal(1)(2, 3), normal(2)(5, 3), output=normal(3)(4, 5), causal=True)
    found = mean_field_lipschitz(attention, 1.0, points=3)
    assert found.masked
    assert found.lower is None
    assert found.two_point < found.value < found.upper
    assert mean_field(attention, found.mu).d == 4
    assert found.value == pytest.approx(_ratio(attention, found.mu, found.nu), rel=1e-9)


def test_without_a_real_eigenvalue_there_are_random_measures() -> None:
    turn = Attention([[0.0, 1.0], [-1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]])
    assert directions(turn, 0) == []
    found = mean_field_lipschitz(turn, 1.5, steps=2)
    assert (found.lower, found.two_point) == (0.0, 0.0)
    assert 0.5 < found.value < found.upper
    assert found.status == "step limit"


def test_huge_and_zero_layers_still_have_a_true_value() -> None:
    far = mean_field_lipschitz(layer(3, value=False), 60.0, starts=2, steps=20)
    assert far.upper == math.inf
    assert far.to_dict()["upper"] is None
    assert math.isfinite(far.value)
    assert far.value == pytest.approx(_ratio(layer(3, value=False), far.mu, far.nu), rel=1e-9)
    eye = torch.eye(2)
    zero = mean_field_lipschitz(Attention(30 * eye, 30 * eye, 0 * eye), 1.0, starts=1, steps=2)
    assert (zero.value, zero.upper) == (0.0, 0.0)
    steep = mean_field_lipschitz(Attention(-30 * eye, 30 * eye), 1.5, starts=1, steps=2)
    assert (steep.lower, steep.two_point) == (math.inf, math.inf)
    plain = steep.to_dict()
    assert (plain["lower"], plain["two_point"], plain["upper"]) == (None, None, None)
