"""The bound on captured rows: its cells, its gradient, every choice of multipliers, and searched values below it."""

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from maps.twins import Setting
from wordsway import RandomAttention, gaussian_context, respond, word_sensitivity
from wordsway.maps import capture, certificate
from wordsway.maps.certificate import RowBounds
from wordsway.maps.one_word import OneWordResponse

Array = npt.NDArray[np.float64]
SETTINGS = [
    Setting("softmax"),
    Setting("softmax", 2, causal=True),
    Setting("softmax", 3, value=True),
    Setting("relu"),
    Setting("relu", 2, causal=True, value=True),
    Setting("sigmoid", 2),
]
quietly = settings(max_examples=15, deadline=None, derandomize=True)


def _rows(setting: Setting, n: int, d: int, seed: int, radius: float, dtype: torch.dtype = torch.float64) -> RowBounds:
    X = 1.5 * gaussian_context(n, d, seed, dtype=dtype)
    response = respond(setting.attention(d, seed), X, seed % n)
    assert isinstance(response, OneWordResponse)
    t_rows = response.pull_heads("key", response.queries / response.size).astype(np.float64)
    stretch = radius * response.attention.head_norms("value").numpy() / response.norm
    rows = certificate._row_bounds(response, 0, radius, t_rows, stretch)
    return certificate._with_cross_terms(rows, response, 0)


def _captures(rows: RowBounds) -> bool:
    """Whether the word can take most of some row: the bound is for these."""
    return bool(rows.weight(rows.t_reach[:, None]).max() > 0.5)


def _sums(rows: RowBounds, delta: Array) -> tuple[Array, Array]:
    """The sum of row(t, s) and that of v at each Delta, from their definitions."""
    t, s = rows.t_rows @ delta.T, rows.s_rows @ delta.T  # N P
    w, before = rows.weight(t), rows.before[:, None]
    square = (w - before) ** 2 * rows.f_square[:, None] + w**2 * rows.value_square[:, None]
    return (square + 2 * w * (w - before) * s).sum(0), ((w - before / 2) ** 2).sum(0)


def _searched(rows: RowBounds, seed: int, kind: int) -> float:
    """The largest of one of both sums over random points, directions of subsets of rows, and points uphill of them."""
    source = np.random.default_rng(seed)
    delta = source.standard_normal((40, rows.t_rows.shape[1]))
    delta[:20] += 10 * (source.random((20, len(rows.t_rows))) < 0.5) @ rows.t_rows
    delta *= rows.radius / np.linalg.norm(delta, axis=1, keepdims=True)
    delta[::4] *= source.random((10, 1))
    best = float(_sums(rows, delta)[kind].max())
    step = 1e-6 * rows.radius
    for _ in range(30):
        grad = np.stack(
            [_sums(rows, delta + step * e)[kind] - _sums(rows, delta - step * e)[kind] for e in np.eye(delta.shape[1])],
            axis=1,
        )
        length = np.linalg.norm(grad, axis=1, keepdims=True)
        delta = np.where(length > 0, rows.radius * grad / np.maximum(length, 1e-300), delta)
        best = max(best, float(_sums(rows, delta)[kind].max()))
    return best


def _moved(relaxation: capture._Relaxation, seed: int, size: float) -> Array:
    """Multipliers near the first ones, with S > 0: the diagonal of B and lam grow with the size of the move."""
    source = np.random.default_rng(seed)
    z, n = relaxation.begin(5.0), len(relaxation.t)
    z += size * source.standard_normal(len(z))
    positive = relaxation._positive()
    z[positive] = np.abs(z[positive])
    least = float(np.linalg.eigvalsh(relaxation._matrix(z)[0])[0])
    lift = max(0.0, -least) + 0.2
    z[3 * n : 4 * n] += lift
    z[6 * n] += lift
    return z


@quietly
@given(
    setting=st.sampled_from(SETTINGS),
    seed=st.integers(0, 1000),
    size=st.sampled_from([0.0, 0.1, 1.0]),
    count=st.booleans(),
    n=st.sampled_from([2, 5, 9]),
    radius=st.sampled_from([0.5, 2.0, 6.0]),
)
def test_every_choice_of_multipliers_is_a_bound(
    setting: Setting, seed: int, size: float, count: bool, n: int, radius: float
) -> None:
    """Of the rows where sum v is in the interval, and of sum v itself; n = 2 is in fewer dimensions than d."""
    rows = _rows(setting, n, 6, seed, radius)
    assume(_captures(rows))
    relaxation = capture._Relaxation.of(rows, count)
    z = _moved(relaxation, seed, size)
    source = np.random.default_rng(seed)
    delta = source.standard_normal((400, 6)) + 3 * (source.random((400, len(rows.t_rows))) < 0.3) @ rows.t_rows
    delta *= (rows.radius * source.random(400) ** 0.2 / np.linalg.norm(delta, axis=1))[:, None]
    change, weight = _sums(rows, delta)
    for low, high in ((0.0, float(weight.max())), (float(np.median(weight)), float(weight.max()))):
        inside = (weight >= low) & (weight <= high)
        bound = relaxation.bound(z, low, high)
        assert math.isfinite(bound)
        assert float((weight if count else change)[inside].max()) <= bound


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_multipliers_of_the_wrong_sign_prove_nothing(sign: float) -> None:
    relaxation = capture._Relaxation.of(_rows(Setting(), 5, 6, 1, 2.0))
    z, n = relaxation.begin(5.0), 5
    for entry in (0, 5 * n, 6 * n + 2):  # mu, pi and a slack of B
        z_moved = z.copy()
        z_moved[entry] = sign * abs(z[entry])
        assert math.isfinite(relaxation.bound(z_moved, 0.0, 5.0)) == (sign > 0)
    z_moved = z.copy()
    z_moved[6 * n] *= sign  # S is not positive
    assert math.isfinite(relaxation.bound(z_moved, 0.0, 5.0)) == (sign > 0)


@quietly
@given(
    setting=st.sampled_from(SETTINGS),
    seed=st.integers(0, 1000),
    size=st.sampled_from([0.1, 1.0, 5.0]),
    count=st.booleans(),
    ends=st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
)
def test_cells_are_above_dense_samples(
    setting: Setting, seed: int, size: float, count: bool, ends: tuple[float, float]
) -> None:
    rows = _rows(setting, 6, 6, seed, 2.0)
    assume(_captures(rows))
    relaxation = capture._Relaxation.of(rows, count)
    kinds, _, sigma, _ = relaxation._split(_moved(relaxation, seed, size))
    mu, eta, alpha, diagonal, b, pi = kinds[:, :, None]

    def exact(t: Array) -> Array:
        w, before = rows.weight(t), rows.before[:, None]
        v = (w - before / 2) ** 2
        part = (w - before) ** 2 * rows.f_square[:, None] + w**2 * rows.value_square[:, None]
        part = v if count else part / relaxation.unit
        t = t / relaxation.t_unit
        priced = part - mu * t**2 - 2 * eta * t - 2 * alpha * v * t + 2 * b * v + sigma * v
        return np.asarray(priced + (diagonal - pi) * v**2 + 3.0 * pi * v)  # for sum v <= 3

    low, high = (end * rows.t_reach for end in sorted(ends))
    upper, inside = relaxation._cells(kinds, sigma, 3.0, np.arange(len(low)), low, high)
    values = exact(low[:, None] + np.linspace(0, 1, 300) * (high - low)[:, None])
    allowed = 1e-11 * (1 + np.abs(upper))
    assert bool((values.max(1) <= upper + allowed).all())
    assert np.maximum(values[:, 0], values[:, -1]) == pytest.approx(inside, rel=1e-9, abs=1e-9)
    maxima = capture.largest_on_cells(
        lambda *cells: relaxation._cells(kinds, sigma, 3.0, *cells), rows.t_reach, slack=1e-4
    )
    sampled = exact(np.linspace(-1, 1, 4001) * rows.t_reach[:, None]).max(1)
    assert bool((sampled <= maxima + allowed).all())
    if setting.score != "relu":  # whose weight may jump within a cell
        assert bool((maxima <= sampled + 2e-3 * (1 + np.abs(sampled) + size)).all())


@pytest.mark.parametrize("count", [False, True])
@pytest.mark.parametrize(
    "setting", [Setting("softmax", 2), Setting("sigmoid"), Setting("softmax", causal=True)], ids=str
)
def test_the_fit_has_the_gradient_of_its_function(setting: Setting, count: bool) -> None:
    relaxation = capture._Relaxation.of(_rows(setting, 5, 6, 3, 2.0), count)
    z = _moved(relaxation, 3, 0.1)
    _, grad = relaxation._smoothed(z, 1.0, 3.0, 0.1, 0.01)
    step = 1e-5
    measured = [
        (relaxation._smoothed(z + e, 1.0, 3.0, 0.1, 0.01)[0] - relaxation._smoothed(z - e, 1.0, 3.0, 0.1, 0.01)[0])
        / (2 * step)
        for e in step * np.eye(len(z))
    ]
    assert np.asarray(measured) == pytest.approx(grad, rel=1e-5, abs=1e-6 * float(np.abs(grad).max()))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("setting", SETTINGS[:5], ids=str)
def test_no_searched_value_is_above_the_bound(setting: Setting, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum of the rows, and sum v below each of its caps, at points found by ascent on exactly these."""
    caps = []
    bound_of = capture._Relaxation.bound

    def recorded(self: capture._Relaxation, z: Array, low: float, high: float) -> float:
        value = bound_of(self, z, low, high)
        caps.extend([high, value] if self.count else [])
        return value

    monkeypatch.setattr(capture._Relaxation, "bound", recorded)
    monkeypatch.setattr(capture, "_LAST", capture._LAST[:1])
    n, d = ((4, 6), (3, 8), (6, 4), (7, 8))[seed % 4]
    rows = _rows(setting, n, d, seed, (1.0, 2.0, 5.0)[seed % 3], torch.float32 if seed == 5 else torch.float64)
    bound = capture.captured_bound(rows)
    assert _searched(rows, seed, 0) <= bound
    assert _searched(rows, seed, 1) <= min(caps, default=math.inf)


def test_the_bound_is_nearly_reached_where_one_row_is_captured() -> None:
    """Two words: the only other row moves as far as its own maximum, which is searched."""
    rows = _rows(Setting("softmax"), 2, 6, 4, 5.0)
    bound = capture.captured_bound(rows)
    assert _searched(rows, 4, 0) <= bound <= 1.1 * _searched(rows, 4, 0)


@pytest.mark.parametrize(
    "rows",
    [
        _rows(Setting(), 1, 4, 0, 2.0),
        _rows(Setting(), 5, 4, 0, 1e-6),
        replace(_rows(Setting(), 5, 4, 0, 2.0), t_rows=np.zeros((5, 4)), t_reach=np.zeros(5)),
    ],
    ids=["one word", "small ball", "no score moves"],
)
def test_where_no_row_can_be_captured_there_is_no_bound(rows: RowBounds) -> None:
    assert capture.captured_bound(rows) == math.inf


def test_numbers_that_are_too_large_prove_nothing() -> None:
    rows = _rows(Setting(), 5, 4, 0, 2.0)
    assert capture.captured_bound(replace(rows, f_square=rows.f_square + math.inf)) == math.inf
    assert capture.captured_bound(replace(rows, t_rows=rows.t_rows * 1e200)) == math.inf


def test_gaussian_contexts_have_a_ceiling_near_the_value() -> None:
    phi, X = RandomAttention(96, seed=1), gaussian_context(50, 96, 1)
    value = word_sensitivity(phi, X, 3, ceiling=None).value
    found = [respond(phi, X, 3).ceiling(math.sqrt(96), effort) for effort in ("simple", "quick", "tight")]
    simple, quick, tight = (float(c.value) / value for c in found if c is not None)
    print(f"ceiling / value, raf, n=50, d=96: {simple:.3f} (simple), {quick:.3f} (quick), {tight:.3f} (tight)")
    assert 1 <= tight <= quick <= simple
    assert tight < 1.2
