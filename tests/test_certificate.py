"""Ceilings above attention: every choice of multipliers is valid, the inner maxima are bounded, more effort helps."""

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from maps.twins import Setting, normal, plain_attention
from scipy.special import expit
from torch import Tensor

from wordsway import Attention, RandomAttention, gaussian_context, normalize, respond, review_contexts, word_sensitivity
from wordsway.maps import Score, capture, certificate, moved_row
from wordsway.maps.certificate import Multipliers, RowBounds
from wordsway.maps.one_word import OneWordResponse

Array = npt.NDArray[np.float64]
EFFORTS = ("simple", "quick", "tight")
SETTINGS = [
    Setting("softmax"),
    Setting("softmax", 2, causal=True),
    Setting("softmax", 3, value=True),
    Setting("relu"),
    Setting("relu", 2, causal=True, value=True),
    Setting("sigmoid", 2),
]
quietly = settings(max_examples=20, deadline=None, derandomize=True)


def _response(setting: Setting, seed: int, n: int = 5, d: int = 6, scale: float = 1.0) -> OneWordResponse:
    response = respond(setting.attention(d, seed), scale * gaussian_context(n, d, seed), seed % n)
    assert isinstance(response, OneWordResponse)
    return response


def _rows(response: OneWordResponse, radius: float) -> RowBounds:
    t_rows = response.pull_heads("key", response.queries / response.size).astype(np.float64)
    stretch = radius * response.attention.head_norms("value").numpy() / response.norm
    rows = certificate._row_bounds(response, 0, radius, t_rows, stretch)
    return certificate._with_cross_terms(rows, response, 0)


def _multipliers(rows: RowBounds, seed: int, size: float, kinds: int) -> Multipliers:
    """Random multipliers of about `size` times the scale of the rows; bit k of `kinds` is whether there is kind k."""
    source = np.random.default_rng(seed)
    unit = np.maximum(rows.value_square, rows.f_square)
    t_unit, s_unit = np.maximum(rows.t_reach, 1e-3), np.maximum(rows.s_reach, 1e-3)
    draws = [size * source.standard_normal(len(unit)) * bool(kinds & 1 << kind) for kind in range(4)]
    squares, lines = (np.abs(draws[0]), np.abs(draws[2])), (draws[1], draws[3])
    mu, nu = (square * unit / reach**2 for square, reach in zip(squares, (t_unit, s_unit), strict=True))
    eta, tau = (line * unit / reach for line, reach in zip(lines, (t_unit, s_unit), strict=True))
    return Multipliers(mu, eta, nu, tau)


def _bound(rows: RowBounds, at: Multipliers) -> float:
    return rows.own + float(certificate._row_maxima(rows, at).sum()) + certificate._ball(rows, at)


def _unit(rows: Tensor) -> Tensor:
    return torch.nn.functional.normalize(rows, dim=-1)


def _in_ball(count: int, d: int, radius: float, seed: int) -> Tensor:
    delta = normal(count, d, seed=seed)
    lengths = torch.linspace(0.3, 1.5, count, dtype=torch.float64).clamp_max(1) * radius
    return delta * (lengths / delta.square().sum(-1).sqrt())[:, None]


@quietly
@given(
    setting=st.sampled_from(SETTINGS),
    seed=st.integers(0, 1000),
    size=st.sampled_from([0.01, 0.3, 1.0, 5.0]),
    kinds=st.integers(0, 15),
    scale=st.sampled_from([0.5, 1.0, 3.0]),
    radius=st.floats(0.2, 5.0),
)
def test_every_choice_of_multipliers_is_a_bound(
    setting: Setting, seed: int, size: float, kinds: int, scale: float, radius: float
) -> None:
    response = _response(setting, seed, scale=scale)
    rows = _rows(response, radius)
    bound = _bound(rows, _multipliers(rows, seed, size, kinds))
    delta = _in_ball(300, 6, radius, seed)
    for _ in range(3):  # random points, then points uphill of them
        value, grad = response.change(delta)
        assert float(value.max() ** 2) <= bound * (1 + 1e-9)
        assert grad is not None
        delta = radius * grad / grad.norm(dim=-1, keepdim=True).clamp_min(1e-300)


@quietly
@given(setting=st.sampled_from(SETTINGS), seed=st.integers(0, 1000), scale=st.sampled_from([1.0, 3.0]))
def test_rows_change_by_no_more_than_what_the_bound_is_made_of(setting: Setting, seed: int, scale: float) -> None:
    """row(t, s) is the squared change of a row other than the word's own, and `own` is above that of its own."""
    response = _response(setting, seed, scale=scale)
    rows, word, heads = _rows(response, 2.0), seed % 5, response.heads
    for delta in _in_ball(20, 6, 2.0, seed):
        move = delta.numpy()
        moved, base = response.features(delta), response.features(torch.zeros(6).double())
        changes = (moved - base).reshape(5, heads, -1).square().sum(-1).mT / response.norm**2  # H n
        t, s = rows.t_rows @ move, rows.s_rows @ move
        assert bool((np.abs(t) <= rows.t_reach * (1 + 1e-9)).all())
        assert bool((np.abs(s) <= rows.s_reach * (1 + 1e-9)).all())
        w = rows.weight(t[:, None])[:, 0]
        step = w - rows.before
        row = step**2 * rows.f_square + 2 * w * step * s + w**2 * rows.value_square
        others = np.arange(5) != word
        assert bool((changes.numpy()[:, others] <= row.reshape(heads, 5)[:, others] * (1 + 1e-9) + 1e-12).all())
        assert float(changes[:, word].sum()) <= rows.own * (1 + 1e-9) + 1e-12


@quietly
@given(
    setting=st.sampled_from(SETTINGS),
    seed=st.integers(0, 1000),
    size=st.sampled_from([0.0, 0.3, 3.0]),
    kinds=st.integers(1, 15),
    scale=st.sampled_from([1.0, 3.0]),
)
def test_the_maximum_of_each_row_is_bounded_and_hardly_exceeded(
    setting: Setting, seed: int, size: float, kinds: int, scale: float
) -> None:
    rows = _rows(_response(setting, seed, scale=scale), 2.0)
    at = _multipliers(rows, seed, size, kinds)
    t = np.linspace(-1, 1, 1501) * rows.t_reach[:, None]  # N c
    w = rows.weight(t)
    step = w - rows.before[:, None]
    fixed = step**2 * rows.f_square[:, None] + w**2 * rows.value_square[:, None]
    fixed -= (at.mu[:, None] * t + 2 * at.eta[:, None]) * t
    sampled = np.full(len(t), -math.inf)
    nu, tau = at.nu[:, None], at.tau[:, None]
    for share in np.linspace(-1, 1, 41):
        s = share * rows.s_reach[:, None]
        sampled = np.maximum(sampled, (fixed + 2 * w * step * s - (nu * s + 2 * tau) * s).max(1))
    maxima = certificate._row_maxima(rows, at)
    scale_of_rows = max(rows.own, float((rows.value_square + rows.f_square).mean()))
    assert bool((sampled <= maxima + 1e-12 * scale_of_rows).all())
    if setting.score != "relu":  # whose weight jumps, which no cell resolves
        assert bool((maxima <= sampled + 0.01 * scale_of_rows * (1 + size)).all())  # samples of s are coarse


@quietly
@given(setting=st.sampled_from(SETTINGS), seed=st.integers(0, 1000), scale=st.sampled_from([1.0, 3.0, 10.0]))
def test_without_multipliers_rows_are_largest_at_the_ends_of_their_range(
    setting: Setting, seed: int, scale: float
) -> None:
    rows = _rows(_response(setting, seed, scale=scale), 2.0)
    w = rows.weight(np.linspace(-1, 1, 1501) * rows.t_reach[:, None])  # N c
    step, value = np.abs(w - rows.before[:, None]), np.sqrt(rows.value_square)[:, None]
    f = np.sqrt(rows.f_square)[:, None]
    most = (step**2 * f**2 + 2 * w * step * f * value + w**2 * value**2).max(1)  # s = |f| kappa r
    assert bool((most <= rows.sizes() * (1 + 1e-12)).all())


@quietly
@given(
    setting=st.sampled_from(SETTINGS),
    seed=st.integers(0, 1000),
    kinds=st.integers(1, 15),
    ends=st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
)
def test_a_cell_of_any_width_is_bounded(setting: Setting, seed: int, kinds: int, ends: tuple[float, float]) -> None:
    """Also where a weight passes half of what it was: there w (w - w0) turns, between the ends of the cell."""
    rows = _rows(_response(setting, seed, scale=3.0), 2.0)
    at = _multipliers(rows, seed, 1.0, kinds)
    low, high = (end * rows.t_reach for end in sorted(ends))
    upper, inside = certificate._cell_bounds(rows, at, np.arange(len(low)), low, high)
    t = low[:, None] + np.linspace(0, 1, 300) * (high - low)[:, None]
    w = rows.weight(t)
    step = w - rows.before[:, None]
    fixed = step**2 * rows.f_square[:, None] + w**2 * rows.value_square[:, None]
    fixed -= (at.mu[:, None] * t + 2 * at.eta[:, None]) * t
    y = w * step - at.tau[:, None]
    s = certificate._best_s(y, at.nu[:, None], rows.s_reach[:, None])
    values = fixed + (2 * y - at.nu[:, None] * s) * s
    assert bool((values.max(1) <= upper + 1e-11 * (1 + np.abs(upper))).all())
    assert bool((inside <= upper + 1e-11 * (1 + np.abs(upper))).all())


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("apart", [0.0, 1e-6, 1e-3])
def test_words_that_are_nearly_the_same_do_not_break_the_bound(apart: float, dtype: torch.dtype, effort: str) -> None:
    """Differences of rows are then small next to the rows: the bound must not rest on what cancelled."""
    for n, d, seed in ((3, 8, 4), (3, 8, 2), (5, 8, 5), (5, 8, 1), (20, 16, 0), (3, 4, 7)):
        drawn = gaussian_context(n, d, seed)
        X = normalize(drawn[:1] + apart * drawn).to(dtype)
        phi = RandomAttention(d, weight=(1 + 9 * (n == 3)) * RandomAttention(d).weight)
        found = word_sensitivity(phi, X, ceiling=effort)
        exact = respond(phi, X.double(), 0).features(torch.stack([found.delta, 0 * found.delta]).double())
        change = float((exact[0] - exact[1]).norm() / exact[1].norm())
        assert found.ceiling is not None
        assert change <= found.ceiling * (1 + (1e-9 if dtype == torch.float64 else 1e-5))


def test_where_no_multipliers_can_be_fitted_the_simple_bound_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise np.linalg.LinAlgError("Eigenvalues did not converge")

    response = _response(Setting("softmax"), 1)
    simple = response.ceiling(2.0, "simple")
    monkeypatch.setattr(certificate, "_fit", fail)
    monkeypatch.setattr(capture._Relaxation, "fit", fail)
    for effort in ("quick", "tight"):
        found = response.ceiling(2.0, effort)
        assert found is not None
        assert simple is not None
        assert torch.equal(found.value, simple.value)


def test_gains_that_vanish_as_computed_do_not_break_the_bound() -> None:
    """expit is 0 as a float far below 0: with such a custom score the moved row may lose all its weights."""
    X = torch.tensor([[math.sqrt(2), 0.0]], dtype=torch.float64)
    score = Score("expit", torch.sigmoid, expit, lambda s: expit(s) * expit(-s))
    phi = RandomAttention(2, score, weight=torch.diag(torch.tensor([1e3, -4e3], dtype=torch.float64)))
    found = word_sensitivity(phi, X, radius=1.0)
    assert found.ceiling is not None
    assert found.value == pytest.approx(1.0)
    assert found.value <= found.ceiling


def test_a_narrow_peak_between_samples_is_not_missed() -> None:
    """A steep share: all of the row's change happens within a hundredth of its range."""
    rows = _rows(_response(Setting("softmax"), 1), 2.0)
    steep = replace(rows, t_reach=rows.t_reach * 400)
    at = Multipliers.zero(len(rows.before))
    at = replace(at, mu=np.full(len(rows.before), 2e-3), eta=np.full(len(rows.before), 0.01))
    t = np.linspace(-1, 1, 200_001) * steep.t_reach[:, None]
    w = steep.weight(t)
    step = w - steep.before[:, None]
    values = step**2 * steep.f_square[:, None] + w**2 * steep.value_square[:, None] - (at.mu[0] * t + 2 * at.eta[0]) * t
    values += 2 * np.abs(w * step) * steep.s_reach[:, None]
    assert bool((values.max(1) <= certificate._row_maxima(steep, at) * (1 + 1e-12)).all())


@quietly
@given(seed=st.integers(0, 1000), kinds=st.integers(1, 15), n=st.integers(2, 9))
def test_the_quadratic_over_the_ball_is_bounded_and_reached(seed: int, kinds: int, n: int) -> None:
    """max of Delta^T M Delta + 2 h . Delta, which the dual attains: by fixed-point steps from many starts."""
    rows = _rows(_response(Setting("softmax", 2), seed, n=n), 1.5)
    at = _multipliers(rows, seed, 1.0, kinds)
    matrix = (rows.t_rows.T * at.mu) @ rows.t_rows + (rows.s_rows.T * at.nu) @ rows.s_rows
    vector = rows.t_rows.T @ at.eta + rows.s_rows.T @ at.tau
    axes = np.linalg.eigh(matrix)[1]
    delta = np.concatenate([axes.T, -axes.T, vector[None], _in_ball(20, 6, 1.5, seed).numpy()])
    for _ in range(3000):
        uphill = delta @ matrix + vector
        delta = 1.5 * uphill / np.maximum(np.linalg.norm(uphill, axis=1, keepdims=True), 1e-300)
    reached = float((((delta @ matrix) + 2 * vector) * delta).sum(1).max())
    bound = certificate._ball(rows, at)
    assert reached <= bound * (1 + 1e-9)
    assert bound <= reached * (1 + 1e-3) + 1e-9


@pytest.mark.parametrize(
    "setting", [Setting("softmax", 2), Setting("sigmoid"), Setting("softmax", causal=True)], ids=str
)
def test_the_fit_knows_its_gradients(setting: Setting) -> None:
    """Of the ball's part exactly; of all of it nearly, since the smoothing moves with the multipliers."""
    rows = _rows(_response(setting, 3), 2.0)
    samples, start = certificate._Samples.of(rows), _multipliers(rows, 3, 1.0, 15)
    _, pulls = certificate._smooth_ball(rows, start, 1e-2, full=True)
    _, grad = certificate._smoothed(rows, samples, start, 1e-3, full=True)
    measured_pulls, measured, scales = [], [], []
    for name in ("mu", "eta", "nu", "tau"):
        own = getattr(start, name)
        for row in range(len(own)):
            step = 1e-4 * np.abs(own[row])
            moved = [np.where(np.arange(len(own)) == row, own + sign * step, own) for sign in (1, -1)]
            ends = [replace(start, **{name: new}) for new in moved]
            balls = [certificate._smooth_ball(rows, end, 1e-2, full=True)[0] for end in ends]
            whole = [certificate._smoothed(rows, samples, end, 1e-3, full=True)[0] for end in ends]
            measured_pulls.append((balls[0] - balls[1]) / (2 * step))
            measured.append((whole[0] - whole[1]) / (2 * step))
            scales.append(np.abs(own[row]))
    exact = np.concatenate(pulls)
    assert np.asarray(measured_pulls) == pytest.approx(exact, rel=1e-4, abs=1e-6 * np.abs(exact).max())
    given_slope, seen = grad * np.asarray(scales), np.asarray(measured) * np.asarray(scales)
    assert float(given_slope @ seen) > 0.99 * float(np.linalg.norm(given_slope) * np.linalg.norm(seen))


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_more_effort_gives_a_lower_ceiling(setting: Setting) -> None:
    phi, X = setting.attention(6, 1), gaussian_context(6, 6, 1)
    response = respond(phi, X, (1, 4))
    found = [response.ceiling(math.sqrt(6), effort) for effort in EFFORTS]
    simple, quick, tight = (c.value for c in found if c is not None)
    assert bool((tight <= quick * (1 + 1e-9)).all())
    assert bool((quick <= simple * (1 + 1e-9)).all())
    assert bool((tight < simple).any())
    for slot, word in enumerate((1, 4)):
        value = word_sensitivity(phi, X, word, ceiling=None).value
        assert value <= float(tight[slot]) * (1 + 1e-9)


@pytest.mark.parametrize("words", [(0,), (0, 1)])
def test_a_relu_row_may_lose_all_its_weights(words: tuple[int, ...]) -> None:
    """A short step turns all scores of the word's own row negative: the whole row goes, which is much longer."""
    weight = torch.tensor([[0.1, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    phi = RandomAttention(2, "relu", weight=weight)
    X = torch.tensor([[1.0, 0.0]] * 4, dtype=torch.float64)
    delta = torch.tensor([0.0, 0.2], dtype=torch.float64)
    together = respond(phi, X, words, together=True)
    value = float(together.change(delta.expand(len(words), 2))[0])
    assert value > math.sqrt(len(words)) / 2  # rows of length 1 are gone, of |phi(X)| = 2, and the others move a little
    for effort in EFFORTS:
        ceiling = together.ceiling(0.2, effort)
        assert ceiling is not None
        assert value <= float(ceiling.value) * (1 + 1e-9)
        if len(words) == 1:
            single = respond(phi, X, 0).ceiling(0.2, effort)
            assert single is not None
            assert value <= float(single.value) * (1 + 1e-9)


def test_how_far_the_ceilings_are_above_what_is_found() -> None:
    ratios = dict.fromkeys(EFFORTS, 0.0)
    for seed in range(2):
        phi, X = RandomAttention(48, seed=seed), gaussian_context(40, 48, seed)
        value = word_sensitivity(phi, X, 3, ceiling=None).value
        for effort in EFFORTS:
            ceiling = respond(phi, X, 3).ceiling(math.sqrt(48), effort)
            assert ceiling is not None
            ratios[effort] = max(ratios[effort], float(ceiling.value) / value)
    print("ceiling / value, raf, n=40, d=48:", {effort: round(ratio, 3) for effort, ratio in ratios.items()})
    assert ratios["simple"] < 4.5
    assert ratios["quick"] < 1.8
    assert ratios["tight"] < 1.6


@pytest.mark.parametrize(
    "setting",
    [
        *(Setting(score, 2, causal=causal) for score in ("softmax", "relu", "sigmoid") for causal in (False, True)),
        *(Setting("linear", 2, causal=causal, value=True) for causal in (False, True)),
        *(Setting(score, 1, output=True) for score in ("softmax", "linear")),
    ],
    ids=str,
)
def test_ceilings_of_words_together(setting: Setting) -> None:
    for radius, words in ((2.0, (0, 3)), (0.3, (4, 1, 2)), (2.0, tuple(range(5)))):
        phi, X = setting.attention(4, len(words)), gaussian_context(5, 4, len(words))
        found = word_sensitivity(phi, X, words, radius, together=True)
        assert found.ceiling is not None
        assert found.value <= found.ceiling * (1 + 1e-9)
        assert found.ceiling_kind


def test_a_row_may_fall_back_on_the_words_that_stay() -> None:
    """The last row hears the two moving words alone, until a short step of both takes all their weight."""
    query = torch.tensor([[0.0, 1000.0], [0.0, 990.0]], dtype=torch.float64)
    X = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    response = respond(Attention(query, None, causal=True), X, (0, 1), together=True)
    delta = torch.tensor([[-0.1, 0.0], [-0.1, 0.0]], dtype=torch.float64)
    value = float(response.change(delta)[0])
    assert value > 1.4 / math.sqrt(3)  # the row turns by a right angle, fourteen times as far as the words
    ceiling = response.ceiling(0.1)
    assert ceiling is not None
    assert value <= float(ceiling.value) * (1 + 1e-9)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_ceilings_in_single_precision_hold_to_its_rounding(setting: Setting) -> None:
    phi, X = setting.attention(6, 1), gaussian_context(5, 6, 1, dtype=torch.float32)
    for effort in EFFORTS:
        found = word_sensitivity(phi, X, 2, ceiling=effort)
        assert found.ceiling is not None
        assert found.value <= found.ceiling * (1 + 1e-5)
        double = word_sensitivity(phi, X.double(), 2, ceiling=effort)
        assert found.ceiling == pytest.approx(double.ceiling, rel=5e-2)


@pytest.mark.parametrize("score", ["softmax", "relu", "sigmoid", "linear"])
def test_ceilings_shrink_with_the_radius(score: str) -> None:
    phi, X = RandomAttention(64, score), gaussian_context(40, 64)
    response = respond(phi, X, 3)
    for radius in (1e-6, 1e-3, 0.1, 1.0):
        value = word_sensitivity(phi, X, 3, radius, ceiling=None).value
        found = [response.ceiling(radius, effort) for effort in EFFORTS]
        simple, quick, tight = (float(c.value) / value for c in found if c is not None)
        print(
            f"{score}, r = {radius:g}: ceiling / value {simple:.2f} (simple), {quick:.2f} (quick), {tight:.2f} (tight)"
        )
        assert 1 - 1e-9 <= tight <= quick <= simple
        assert quick < 3
        assert simple < 3.5


@pytest.mark.parametrize(("n", "d"), [(10, 16), (10, 64), (50, 96), (100, 96), (250, 64)])
def test_ceilings_of_sigmoid_scores(n: int, d: int) -> None:
    """Its rows cannot give a word much weight, which their hull does not know."""
    phi, X = RandomAttention(d, "sigmoid"), gaussian_context(n, d)
    found = word_sensitivity(phi, X, 3)
    assert found.ceiling is not None
    print(f"sigmoid, n = {n}, d = {d}: ceiling / value {found.ceiling / found.value:.2f} (quick)")
    assert 1 <= found.ceiling / found.value < 2.5


def _moved_row(response: OneWordResponse, radius: float) -> moved_row._Row:
    stretch = radius * float(response.attention.head_norms("value")[0]) / response.norm
    row = moved_row._Row.of(response, 0, 0, radius, stretch)
    assert row is not None
    return row


def _largest_own_change(response: OneWordResponse, radius: float, seed: int) -> float:
    """The largest change of the moved row found uphill of random points of the ball, in units of |phi(X)|."""
    own = response.words[0]
    X, phi = response.context, plain_attention(response.attention)
    delta, before, largest = _in_ball(100, X.shape[1], radius, seed), phi(X)[own], 0.0
    for _ in range(6):
        delta = delta.requires_grad_()
        rows = phi(X + delta[:, None] * (torch.arange(len(X)) == own)[:, None])
        changes = (rows[:, own] - before).norm(dim=-1)
        largest = max(largest, float(changes.detach().max()) / response.norm)
        delta = radius * _unit(delta.detach() + radius * _unit(torch.autograd.grad(changes.sum(), delta)[0]))
    return largest


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    setting=st.sampled_from([Setting("sigmoid", causal=True), Setting("sigmoid", value=True), Setting("softmax")]),
    seed=st.integers(0, 1000),
    n=st.sampled_from([2, 5, 12]),
    scale=st.sampled_from([0.3, 1.0, 3.0]),
    common=st.sampled_from([0.0, 2.0]),
    radius=st.sampled_from([0.1, 1.0, 3.0]),
    size=st.sampled_from([0.0, 0.1, 1.0, 10.0]),
)
def test_every_choice_of_multipliers_of_each_key_bounds_the_moved_row(
    setting: Setting, seed: int, n: int, scale: float, common: float, radius: float, size: float
) -> None:
    """Those of a fit, cut short at any time, and arbitrary ones, which prove what no search exceeds."""
    phi = setting.attention(6, seed)
    X = scale * (gaussian_context(n, 6, seed) + common * normal(1, 6, seed=seed))
    response = respond(phi, X, n - 1 - seed % 2)
    assert isinstance(response, OneWordResponse)
    with np.errstate(all="ignore"):
        row = _moved_row(response, radius)
        fit = moved_row._Fit.of(row)
        at, balls = fit.fitted(1.0)
        cells = row.cells(64)
        bounds = [row.level(cells, at, balls)]
        source = np.random.default_rng(seed)
        begin = np.concatenate([at.mu, at.eta, at.nu, at.zeta]) / fit.scales
        drawn = fit._unpack(begin * np.exp(size * source.uniform(-1, 1, len(begin))) + size * 1e-3)
        bounds.append(row.level(cells, drawn, [ball.value for ball in fit._balls(drawn, 0.0)]))
    assert _largest_own_change(response, radius, seed) <= min(bounds) * (1 + 1e-9)


def test_the_fit_of_each_key_knows_its_gradients() -> None:
    response = respond(RandomAttention(6, "sigmoid"), gaussian_context(8, 6), 3)
    assert isinstance(response, OneWordResponse)
    fit = moved_row._Fit.of(_moved_row(response, 2.0))
    source = np.random.default_rng(0)
    z = source.uniform(0.2, 1.0, len(fit.scales))
    heat = 0.03 * fit.size
    grad = fit._smoothed(fit._unpack(z), heat, 0.5)[1] * fit.scales
    for place in range(0, len(z), 3):
        step = 1e-5 * (np.arange(len(z)) == place)
        above, below = (fit._smoothed(fit._unpack(z + sign * step), heat, 0.5)[0] for sign in (1, -1))
        assert (above - below) / 2e-5 == pytest.approx(grad[place], rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("n", [10, 25, 50, 100])
def test_multipliers_of_each_key_bound_a_row_whose_gains_may_all_be_tiny(n: int) -> None:
    """Words of a text have much in common: one move lowers nearly all their sigmoid scores."""
    phi, X = RandomAttention(384, "sigmoid"), review_contexts(1, n, 384)[0][0]
    response = respond(phi, X, 3)
    found = [response.ceiling(math.sqrt(384), effort) for effort in ("quick", "tight")]
    quick, tight = (float(c.value) for c in found if c is not None)
    value = word_sensitivity(phi, X, 3, ceiling=None).value
    print(f"sigmoid, a review, n = {n}: ceiling / value {quick / value:.2f} (quick), {tight / value:.2f} (tight)")
    assert value <= tight < 1.9 * value
    assert tight <= quick


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    setting=st.sampled_from(
        [*SETTINGS, Setting("sigmoid", causal=True), Setting("linear", 2), Setting("linear", causal=True)]
    ),
    seed=st.integers(0, 1000),
    n=st.sampled_from([1, 2, 3, 6]),
    radius=st.sampled_from([1e-9, 1e-6, 1e-3, 0.1, 1.0, 10.0]),
    scale=st.sampled_from([1e-2, 1.0, 30.0]),
    repeated=st.booleans(),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
def test_no_move_of_any_size_is_above_a_ceiling(
    setting: Setting, seed: int, n: int, radius: float, scale: float, repeated: bool, dtype: torch.dtype
) -> None:
    """Tiny and huge radii and scores, one word, words that are the same: and more effort is never worse."""
    X = scale * normal(n, 6, seed=seed).to(dtype)
    X[-1] = X[0] if repeated else X[-1]
    assume(bool(setting.attention(6, seed)(X).norm() > 0))
    response = respond(setting.attention(6, seed), X, seed % n)
    found = [response.ceiling(radius, effort) for effort in EFFORTS]
    simple, quick, tight = (float(c.value) for c in found if c is not None)
    assert tight <= quick <= simple
    delta = _in_ball(200, 6, radius, seed).to(dtype)
    for _ in range(3):  # random points, then points uphill of them
        value, grad = response.change(delta)
        assert float(value.max()) <= tight
        assert grad is not None
        uphill = grad.double()
        delta = (radius * uphill / uphill.norm(dim=-1, keepdim=True).clamp_min(1e-300)).to(dtype)


@pytest.mark.parametrize("together", [False, True])
def test_the_rounding_of_large_changes_is_covered(together: bool) -> None:
    """In single precision, where a word moves by many times its length: |phi(X)| is not the scale of rounding then."""
    for seed in range(5):
        X, phi = normal(1, 2, seed=seed).float(), RandomAttention(2, seed=seed)
        found = word_sensitivity(phi, X, (0,) if together else 0, radius=30.0, together=together)
        assert found.ceiling is not None
        assert max(found.value, 30.0 / float(X.double().norm())) <= found.ceiling


def test_distances_of_words_that_are_nearly_the_same_are_not_cancelled() -> None:
    """Two words take weight from 38 that differ in the fourth digit: products of rows resolve their distances badly."""
    direction = torch.tensor([1.0, -1.0, 0.0, 0.0])
    X, query = 1 + 1e-4 * normal(40, 4, seed=6).float(), 3e5 * torch.outer(direction, torch.ones(4))
    ceiling = respond(Attention(query, None), X, (0, 1), together=True).ceiling(5e-4)
    exact = respond(Attention(query.double(), None), X.double(), (0, 1), together=True)
    value = exact.change(5e-4 * (direction / direction.norm()).double().expand(2, 4))[0]
    assert ceiling is not None
    assert float(value) <= float(ceiling.value)


def test_a_row_that_underflows_as_computed_is_not_taken_for_positive() -> None:
    """softplus(-200) is 0 in single precision only: there the moved row vanishes."""
    score = Score("softplus", torch.nn.functional.softplus, lambda s: np.logaddexp(0, s), expit)
    phi = Attention(torch.eye(1), -torch.eye(1), score=score)
    for dtype, vanishes in ((torch.float32, True), (torch.float64, False)):
        response = respond(phi, torch.tensor([[1.0]], dtype=dtype), 0)
        value = float(response.change(torch.tensor([14.0], dtype=dtype))[0])
        assert value == pytest.approx(1.0 if vanishes else 14.0)
        ceiling = response.ceiling(14.0)
        assert ceiling is not None
        assert value <= float(ceiling.value) * (1 + 1e-6)


@pytest.mark.parametrize(
    "setting",
    [
        Setting(score, heads, causal=causal)
        for score in ("softmax", "sigmoid")
        for heads, causal in ((1, False), (2, True))
    ],
    ids=str,
)
@pytest.mark.parametrize("words", [(1,), (0, 3), (4, 1, 2), (0, 1, 2, 3, 4)], ids=str)
def test_ceilings_of_words_together_shrink_with_the_radius(setting: Setting, words: tuple[int, ...]) -> None:
    phi, X = setting.attention(6, len(words)), gaussian_context(5, 6, len(words))
    response = respond(phi, X, words, together=True)
    for radius in (1e-6, 1e-3, 0.1, 1.0):
        found = response.ceiling(radius)
        assert found is not None
        best = 0.0
        direction = normal(300, len(words), 6, seed=3)
        for _ in range(4):  # random points, then points uphill of them
            delta = radius * direction / direction.norm(dim=-1, keepdim=True)
            value, grad = response.change(delta)
            assert grad is not None
            best, direction = max(best, float(value.max())), grad
        assert best <= float(found.value) * (1 + 1e-9)
        assert radius > 0.1 or float(found.value) <= 20 * best


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
def test_a_share_of_words_together_that_underflows_may_still_grow(score: str, dtype: torch.dtype) -> None:
    X = torch.tensor([[999.0], [1000.0], [1000.0]], dtype=dtype)
    response = respond(Attention(-torch.ones(1, 1, dtype=dtype), None, score=score), X, (1, 2), together=True)
    ceiling = response.ceiling(50.0)
    assert ceiling is not None
    value = float(response.change(torch.full((2, 1), -50.0, dtype=dtype))[0])
    assert 0.02 < value <= float(ceiling.value)


def test_a_custom_score_is_not_taken_for_a_built_in_one_of_its_name() -> None:
    steep = Score("sigmoid", lambda s: 20 * s, lambda s: 20 * s, lambda s: 20 + 0 * s, positive=True, logarithmic=True)
    X = 1 + 0.03 * normal(4, 3, seed=1)
    response = respond(Attention(torch.eye(3, dtype=torch.float64), None, score=steep), X, (0, 1), together=True)
    ceiling = response.ceiling(0.03)
    assert ceiling is not None
    assert float(response.change(0.03 * _unit(normal(500, 2, 3, seed=2)))[0].max()) <= float(ceiling.value)


def test_gains_that_all_vanish_in_the_fit_leave_the_bounds_known_before() -> None:
    X = 12.468 * normal(4, 6, seed=683056)
    X[1:] = X[:1] + 1e-3 * X[1:]  # nearly the same words: one move can end all their gains
    response = respond(Setting("sigmoid", 3).attention(6, 683056), X, 0)
    quick, tight = (response.ceiling(78.564, effort) for effort in ("quick", "tight"))
    assert quick is not None
    assert tight is not None
    assert float(tight.value) <= float(quick.value)


@quietly
@given(seed=st.integers(0, 10**6), shift=st.floats(0, 6))
def test_weights_move_by_at_most_the_tanh_of_half_the_move_of_their_scores(seed: int, shift: float) -> None:
    scores = 3 * normal(6, seed=seed)
    signs = torch.where(normal(200, 6, seed=seed + 1) > 0, shift, -shift)
    moved = torch.softmax(scores + signs, -1)
    distance = (moved - torch.softmax(scores, -1)).abs().sum(-1) / 2
    assert float(distance.max()) <= math.tanh(shift / 2) + 1e-12
