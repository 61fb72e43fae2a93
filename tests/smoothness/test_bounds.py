"""Bounds on attention's Lipschitz constant: lower <= measured at adversarial contexts <= upper, for any layer."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from smoothness.layers import VARIANTS, D, Variant, explicit, normal
from wordsway import Attention, RandomAttention
from wordsway.smoothness import (
    Ellipsoid,
    adversarial_context,
    adversarial_directions,
    lipschitz_bounds,
    local_lipschitz,
)
from wordsway.smoothness.heads import Direction, directions, factors, head_size, values

heads = st.builds(
    lambda seed, d, size, scale, given, causal: _head(seed, d, size, scale, given, causal),
    st.integers(0, 10**6),
    st.integers(2, 5),
    st.integers(1, 5),
    st.floats(0.1, 2.0),
    st.booleans(),
    st.booleans(),
)


def _head(seed: int, d: int, size: int, scale: float, given: bool, causal: bool) -> Attention:
    draw = normal(seed, scale)
    return Attention(draw(size, d), draw(size, d), draw(3, d) if given else None, causal=causal)


def _inside(draw: normal, n: int, d: int, radius: float) -> Tensor:
    X = draw(n, d)
    lengths = torch.rand(n, 1, generator=draw.generator, dtype=torch.float64) ** (1 / d)
    return radius * lengths * torch.nn.functional.normalize(X, dim=-1)


@settings(max_examples=150, deadline=None)
@given(heads, st.floats(0.2, 3.0), st.integers(2, 12))
def test_the_constant_of_a_head_lies_between_its_bounds(layer: Attention, radius: float, n: int) -> None:
    bounds = lipschitz_bounds(layer, n, radius)
    if directions(layer, 0):
        found = adversarial_context(layer, n, radius)
        assert bool((found.context.norm(dim=-1) <= radius * (1 + 1e-12)).all())
        assert bounds.lower is not None
        assert bounds.lower <= found.lipschitz.value * (1 + 1e-6)
        assert found.lipschitz.value <= bounds.upper * (1 + 1e-9)
    anywhere = local_lipschitz(layer, _inside(normal(n), n, layer.d or 1, radius))
    assert anywhere.value <= bounds.upper * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(VARIANTS), st.integers(0, 10**6), st.floats(0.1, 1.5), st.floats(0.2, 3.0), st.integers(1, 9))
def test_upper_bounds_hold_for_every_kind_of_layer(
    variant: Variant, seed: int, scale: float, radius: float, n: int
) -> None:
    layer = variant.layer(seed, scale)
    X = _inside(normal(seed + 1), n, D, radius)
    value = float(torch.linalg.svdvals(explicit(layer, X))[0])
    for bound in lipschitz_bounds(layer, n, radius).all:
        if bound.kind == "upper":
            assert bound.value is not None
            assert value <= bound.value * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(heads, st.floats(0.2, 3.0), st.integers(1, 300))
def test_the_covariance_bound_is_never_above_the_discrete_one(layer: Attention, radius: float, n: int) -> None:
    bounds = lipschitz_bounds(layer, n, radius)
    assert (bounds["covariance"].value or 0) <= (bounds["discrete"].value or 0)
    assert (bounds["first word"].value or 0) >= (bounds["adversarial"].value or 0) * (1 - 1e-9) or n < 2 or layer.causal


def test_the_formulas_by_hand() -> None:
    """A = -I / 2 in one dimension of four words, V = 2: every number can be worked out."""
    layer = Attention([[-0.5]], [[1.0]], [[2.0]])
    n, R, a = 4, 2.0, 0.5 * 4
    bounds = lipschitz_bounds(layer, n, R)
    assert bounds["discrete"].value == pytest.approx(math.sqrt(3) * 2 * math.sqrt(a**2 * 17 + 4))
    s = math.sqrt(4 / (1 + 3 * math.exp(-2 * a)))
    assert bounds["covariance"].value == pytest.approx(2 * (s + a * (1 + s)))
    assert bounds["mean field"].value == pytest.approx(2 * ((1 + a) * math.exp(a) + a))
    masked = lipschitz_bounds(Attention([[-0.5]], [[1.0]], [[2.0]], causal=True), n, R)
    s = math.sqrt(sum(1 / (1 + i * math.exp(-2 * a)) for i in range(4)))
    assert masked["covariance"].value == pytest.approx(2 * (s + a * (1 + s)))
    assert masked["mean field"].value == pytest.approx(2 * (2 * (1 + 2 * a) * math.exp(a) + a))
    weight = 1 / (1 + 3 * math.exp(-2 * 4 * 0.5))
    assert bounds["adversarial"].value == pytest.approx(2 * math.sqrt(3) * weight)
    assert bounds["first word"].value == pytest.approx(2 * math.sqrt(3) * weight * (1 + 4 * (1 - weight)))
    assert bounds["many words"].value is None  # n is below exp(2 gamma R^2) = 55
    assert lipschitz_bounds(layer, 60, R)["many words"].value == pytest.approx(2 * 0.25 * 4 * math.exp(2))
    assert bounds.upper == bounds["covariance"].value
    assert bounds.lower == bounds["first word"].value


@pytest.mark.parametrize("causal", [False, True])
def test_the_first_word_bound_is_a_block_of_the_jacobian(causal: bool) -> None:
    draw = normal(3)
    layer = Attention(draw(4, 4), draw(4, 4), draw(3, 4), causal=causal)
    n, R = 6, 0.7
    blocks = [
        explicit(layer, one.context(n, R)).reshape(n, 3, n, 4)[1:, :, 0].reshape(-1, 4) for one in directions(layer, 0)
    ]
    norms = [float(torch.linalg.matrix_norm(block, ord=2)) for block in blocks]
    assert lipschitz_bounds(layer, n, R)["first word"].value == pytest.approx(max(norms), rel=1e-9)


def test_adversarial_constants_grow_like_the_root_of_n() -> None:
    layer = RandomAttention(17, seed=1)
    values = [adversarial_context(layer, n, 8.0).lipschitz.value for n in (40, 160, 640)]
    slopes = [math.log(later / sooner, 4) for sooner, later in itertools.pairwise(values)]
    assert slopes == pytest.approx([0.5, 0.5], abs=0.05)


def test_masked_averages_exceed_the_mean_field_bound_without_its_factor() -> None:
    """A = 0 and V = I: two words average to (x_1, (x_1 + x_2) / 2), which stretches by 1.144; many words by up to 2."""
    layer = Attention([[0.0]], [[0.0]], causal=True)
    assert local_lipschitz(layer, [[0.1], [0.2]]).value == pytest.approx(1.144, abs=1e-3)
    assert local_lipschitz(layer, torch.ones(3000, 1, dtype=torch.float64), 1e-3).value > 1.6
    assert lipschitz_bounds(layer, 3000, 1.0)["mean field"].value == 2
    assert lipschitz_bounds(Attention([[0.0]], [[0.0]]), 3000, 1.0)["mean field"].value == 1


def test_heads_of_a_layer_are_summed_or_joined_whichever_is_less() -> None:
    draw = normal(5)
    query, key, value, output = draw(6, 4), draw(6, 4), draw(6, 4), draw(4, 6)
    layer = Attention(query, key, value, heads=3, output=output)
    single = [
        Attention(query[part], key[part], value[part], output=output[:, part])
        for part in (slice(2 * head, 2 * head + 2) for head in range(3))
    ]
    whole, parts = lipschitz_bounds(layer, 5, 1.3), [lipschitz_bounds(one, 5, 1.3) for one in single]
    for name in ("discrete", "mean field"):
        assert whole[name].value == pytest.approx(sum(part[name].value or 0 for part in parts))
    assert (whole["covariance"].value or 0) <= sum(part["covariance"].value or 0 for part in parts) * (1 + 1e-12)
    assert whole.lower is None
    assert "adversarial_context" in whole["adversarial"].assumes


def _ellipsoid(draw: normal, n: int, biased: bool = True, centred: bool = False) -> tuple[Ellipsoid, Tensor]:
    """The ellipsoid of a norm, and some of its outputs."""
    weight, bias = draw(D), draw(D) if biased else None
    rows = draw(n, D)
    if centred:
        rows = torch.nn.functional.layer_norm(rows, (D,), weight, bias, 0.0)
    else:
        rows = weight * rows / rows.square().mean(-1, keepdim=True).sqrt() + (0 if bias is None else bias)
    return Ellipsoid.of_norm(weight, bias, centred), rows


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_the_ellipsoid_of_a_norm_has_its_outputs_on_the_surface(seed: int, centred: bool) -> None:
    words, rows = _ellipsoid(normal(seed), 5, centred=centred)
    z = torch.linalg.lstsq(words.matrix, (rows - words.centre).mT, driver="gelsd").solution
    torch.testing.assert_close(words.matrix @ z, (rows - words.centre).mT)
    torch.testing.assert_close(z.norm(dim=0), torch.full((5,), words.radius, dtype=torch.float64))


@pytest.mark.parametrize("variant", [Variant(), Variant(biases=True), Variant(True, True, True, True)], ids=str)
def test_sizes_of_a_head_bound_its_scores_over_the_ellipsoid(variant: Variant) -> None:
    layer, draw, n = variant.layer(2), normal(6), 5
    pairs = [(i, j) for i in range(n) for j in range(n) if i > j or (i < j and not layer.causal)]
    closest = 0.0
    for _ in range(40):
        words, X = _ellipsoid(draw, n)
        queries, keys, _ = layer.project(X)
        scores = layer.scores(queries, keys)
        slopes = torch.func.jacrev(lambda X: layer.scores(*layer.project(X)[:2]))(X).norm(dim=-1)  # H i j k: by word k
        for head in range(layer.heads):
            size = head_size(layer, head, n, words)
            seen = [torch.stack([scores[head, i, j] for j in range(i + 1 if layer.causal else n)]) for i in range(n)]
            assert max(float(row.max() - row.min()) for row in seen) <= 2 * size.scores * (1 + 1e-9)
            others = max(float(slopes[head, i, j, j]) for i, j in pairs)
            assert others <= size.others * (1 + 1e-9)
            closest = max(closest, others / size.others)
    assert closest > 0.5


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(VARIANTS), st.integers(0, 10**6), st.floats(0.05, 1.0), st.integers(1, 9), st.booleans())
def test_the_ellipsoid_bound_holds_for_every_kind_of_layer(
    variant: Variant, seed: int, scale: float, n: int, centred: bool
) -> None:
    layer = variant.layer(seed, scale)
    words, X = _ellipsoid(normal(seed + 1), n, centred=centred)
    value = float(torch.linalg.svdvals(explicit(layer, X))[0])
    bounds = lipschitz_bounds(layer, n, float(X.norm(dim=-1).max()), words)
    assert value <= (bounds["ellipsoid"].value or 0) * (1 + 1e-9)
    assert value <= bounds.upper * (1 + 1e-9)


def test_a_ball_is_an_ellipsoid() -> None:
    layer = Variant(biases=True, output=True, rotary=True).layer(1)
    bounds = lipschitz_bounds(layer, 6, 1.5, Ellipsoid.ball(D, 1.5))
    assert bounds["ellipsoid"].value == pytest.approx(bounds["covariance"].value, rel=1e-12)


def test_many_rotary_places_fall_back_to_the_product_of_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, ball = Variant(rotary=True).layer(), Ellipsoid.ball(D, 1.0)
    exact = head_size(layer, 0, 6, ball)
    monkeypatch.setattr("wordsway.smoothness.heads._OFFSETS", 5)
    rough = head_size(layer, 0, 6, ball)
    assert exact.others <= rough.others
    norms = [float(torch.linalg.matrix_norm(part, ord=2)) for part in factors(layer, 0)]
    assert rough.others == pytest.approx(norms[0] * norms[1] / 2)


def test_a_zero_bias_changes_nothing() -> None:
    plain = Variant().layer()
    assert plain.query is not None
    zero = torch.zeros(len(plain.query), dtype=torch.float64)
    biased = Attention(plain.query, plain.key, plain.value, heads=plain.heads, query_bias=zero)
    assert lipschitz_bounds(biased, 7, 1.0).upper == lipschitz_bounds(plain, 7, 1.0).upper


def test_overflow_is_infinite_and_not_in_json() -> None:
    bounds = lipschitz_bounds(RandomAttention(4), 10, 100.0)
    assert bounds["mean field"].value == math.inf
    assert bounds.to_dict()["upper"] == bounds.upper
    farther = lipschitz_bounds(Attention(1e100 * torch.eye(2, dtype=torch.float64), torch.eye(2)), 10, 1e120)
    assert farther.upper == math.inf
    assert farther.to_dict()["upper"] is None


def test_without_values_nothing_moves() -> None:
    eye = torch.eye(2, dtype=torch.float64)
    assert lipschitz_bounds(Attention(30 * eye, 30 * eye, 0 * eye), 4, 1.0)["mean field"].value == 0


# Adversarial contexts


def test_the_construction() -> None:
    layer = Attention([[-1.0, 0.0], [0.0, 3.0]], torch.eye(2))
    found = {one.kind: one for one in directions(layer, 0)}
    root = math.sqrt(2)
    assert found["opposite"].gamma == pytest.approx(1 / root)
    assert found["half"].gamma == pytest.approx(3 / 8 / root)
    assert found["opposite"].context(3, 5.0).abs().tolist() == [[5, 0]] * 3
    assert found["half"].context(3, 4.0).abs().tolist() == [[0, 4], [0, 2], [0, 2]]
    first, second, _ = found["opposite"].context(3, 5.0)
    assert torch.equal(first, -second)


def test_low_rank_heads_have_the_eigenvectors_of_the_whole_matrix() -> None:
    draw = normal(7)
    layer = Attention(draw(3, 8), draw(3, 8))
    queries, keys = factors(layer, 0)
    for one in directions(layer, 0):
        A = keys.mT @ queries / math.sqrt(3)
        torch.testing.assert_close(A @ one.vector, one.eigenvalue * one.vector)


@pytest.mark.parametrize("variant", [Variant(), Variant(output=True, biases=True), Variant(shared=True)], ids=str)
def test_the_directions_are_ordered_by_how_far_the_first_word_moves_the_others(variant: Variant) -> None:
    layer, n, R = variant.layer(3), 8, 2.0

    def gain(direction: Direction) -> float:
        queries, keys, _ = layer.project(direction.context(n, R))
        weights = torch.softmax(layer.scores(queries, keys), -1)[:, 1, 0]  # of the first word in another's row
        parts = [weight * values(layer, head) for head, weight in enumerate(weights)]
        return float(torch.linalg.matrix_norm(torch.stack(parts).sum(0), ord=2))

    found = adversarial_directions(layer, n, R)
    gains = [gain(direction) for _, direction in found]
    assert gains == pytest.approx(sorted(gains, reverse=True), rel=0.02)
    assert len(found) > 2
    assert adversarial_context(layer, n, R, head=found[-1][0]).head == found[-1][0]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("variant", [Variant(causal=True), Variant(output=True, biases=True)], ids=str)
def test_the_steeper_of_two_candidates_is_taken(variant: Variant, seed: int) -> None:
    """One has the largest effect that grows like the root of n, the other the largest effect at this n."""
    layer, n, R = variant.layer(seed), 8, 2.0
    found = adversarial_context(layer, n, R)
    ranked = adversarial_directions(layer, n, R)
    constants = {one: local_lipschitz(layer, one.context(n, R)).value for _, one in ranked}
    assert found.lipschitz.value >= constants[ranked[0][1]]
    assert (
        found.lipschitz.value
        == constants[next(one for one in constants if torch.equal(one.context(n, R), found.context))]
    )


def test_the_constant_of_one_head_is_never_below_its_lower_bound() -> None:
    ratios = []
    for seed in range(150):
        layer = _head(seed, 2 + seed % 5, 1 + seed % 4, 10 ** (seed % 7 / 4 - 1), seed % 2 == 0, seed % 3 == 0)
        lower = lipschitz_bounds(layer, n := 2 + seed % 11, R := 0.3 + seed % 9 / 3).lower
        if lower is not None:
            ratios.append(adversarial_context(layer, n, R).lipschitz.value / lower)
    assert len(ratios) > 100
    assert min(ratios) > 1 - 1e-9


def test_the_sign_of_a_direction_lets_the_bias_help() -> None:
    layer = Variant(biases=True).layer(5)
    assert layer.query_bias is not None
    for head in range(layer.heads):
        for one in directions(layer, head):
            queries, keys, _ = layer.project(one.context(2, 1.0))
            plus = layer.scores(queries, keys)[head, 1]
            queries, keys, _ = layer.project(-one.context(2, 1.0))
            minus = layer.scores(queries, keys)[head, 1]
            assert plus[0] - plus[1] >= minus[0] - minus[1]


def test_rotary_layers_use_the_mean_over_places() -> None:
    layer, n = Variant(rotary=True).layer(2), 7
    assert layer.rotary is not None
    for head in range(layer.heads):
        queries, keys = factors(layer, head)
        turned = [layer.rotary.turn(queries.mT[:, None], torch.tensor([place]))[:, 0].mT for place in range(n)]
        A = keys.mT @ torch.stack(turned).mean(0) / math.sqrt(len(queries))
        for one in directions(layer, head, n):
            torch.testing.assert_close(A @ one.vector, one.eigenvalue * one.vector)


@pytest.mark.parametrize("variant", [Variant(), Variant(True, True, True, True, True)], ids=str)
def test_ascents_only_raises_the_constant_and_stays_in_the_ball(variant: Variant) -> None:
    layer = variant.layer(4)
    start = adversarial_context(layer, 6, 2.0)
    higher = adversarial_context(layer, 6, 2.0, steps=30)
    assert higher.steps > 0
    assert higher.lipschitz.value > 1.05 * start.lipschitz.value
    assert bool((higher.context.norm(dim=-1) <= 2.0 * (1 + 1e-12)).all())
    assert higher.lipschitz.value <= lipschitz_bounds(layer, 6, 2.0).upper


ROTATION = Attention([[0.0, -1.0], [1.0, 0.0]], torch.eye(2))


def test_without_a_real_eigenvalue_there_is_no_lower_bound() -> None:
    bounds = lipschitz_bounds(ROTATION, 5, 1.0)
    assert bounds.lower is None
    assert bounds["adversarial"].assumes == "A has no real eigenvalue, so it does not apply"


@pytest.mark.parametrize("query", [[[0.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]]])
def test_0_is_a_real_eigenvalue_too(query: list[list[float]]) -> None:
    layer, root = Attention(torch.tensor(query, dtype=torch.float64), torch.eye(2)), math.sqrt(3)
    bounds = lipschitz_bounds(layer, 4, 1.0)
    assert bounds["adversarial"].value == pytest.approx(root / 4)
    found = adversarial_context(layer, 4, 1.0)
    assert (found.eigenvalue, found.gamma, found.kind) == (0.0, 0.0, "opposite")
    assert bounds.lower is not None
    assert bounds.lower * (1 - 1e-9) <= found.lipschitz.value <= bounds.upper * (1 + 1e-9)


def test_one_word_has_no_lower_bound() -> None:
    assert lipschitz_bounds(RandomAttention(4), 1, 1.0).lower is None


def test_without_a_radius_it_is_the_root_of_d() -> None:
    layer = RandomAttention(4)
    assert lipschitz_bounds(layer, 5, None).radius == 2
    found, expected = adversarial_context(layer, 5, None), adversarial_context(layer, 5, 2.0)
    assert found.radius == 2
    assert torch.equal(found.context, expected.context)
