"""Both kinds of Gaussian matrices: the conformance suite on every view, consistency, memory and derivatives."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from wordsway import memory
from wordsway.errors import InputError
from wordsway.gaussian import DenseGaussian, GaussianMatrix, LazyGaussian
from wordsway.seeds import generator, normal
from wordsway.testing import GaussianMatrixConformance


class TestDense(GaussianMatrixConformance):
    def make(self, rows: int, cols: int, seed: int, dtype: torch.dtype) -> GaussianMatrix:
        return DenseGaussian(rows, cols, scale=0.5, seed=seed, dtype=dtype)


class TestDenseBlockTransposed(GaussianMatrixConformance):
    def make(self, rows: int, cols: int, seed: int, dtype: torch.dtype) -> GaussianMatrix:
        return DenseGaussian(cols, rows + 3, scale=0.5, seed=seed, dtype=dtype).columns(2, rows + 2).T


class TestGiven(GaussianMatrixConformance):
    def make(self, rows: int, cols: int, seed: int, dtype: torch.dtype) -> GaussianMatrix:
        return DenseGaussian.of(_normal(rows, cols, seed=seed, dtype=dtype))


class TestLazy(GaussianMatrixConformance):
    def make(self, rows: int, cols: int, seed: int, dtype: torch.dtype) -> GaussianMatrix:
        return LazyGaussian(rows, cols, scale=0.5, seed=seed, dtype=dtype)


class TestLazyTransposed(GaussianMatrixConformance):
    def make(self, rows: int, cols: int, seed: int, dtype: torch.dtype) -> GaussianMatrix:
        return LazyGaussian(cols, rows, scale=2.0, seed=seed, dtype=dtype).T


class TestLazyRowsAndColumns(GaussianMatrixConformance):
    def make(self, rows: int, cols: int, seed: int, dtype: torch.dtype) -> GaussianMatrix:
        whole = LazyGaussian(rows + 2, cols + 5, seed=seed, dtype=dtype)
        return whole.columns(3, cols + 3).T.columns(1, rows + 1).T


def _normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return normal(generator(seed, "test"), shape, dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_long_alternating_runs_stay_consistent(dtype: torch.dtype, tolerance: float) -> None:
    matrix = LazyGaussian(400, 300, seed=1, dtype=dtype)
    rights, lefts, outputs, adjoints = [], [], [], []
    q = _normal(300, dtype=dtype)
    for step in range(200):
        rights.append(q / q.norm())
        outputs.append(matrix @ rights[-1])
        p = outputs[-1] + 0.1 * _normal(400, seed=step, dtype=dtype)  # nearly dependent on what is known
        lefts.append(p / p.norm())
        adjoints.append(matrix.T @ lefts[-1])
        q = adjoints[-1].tanh() if step % 3 else adjoints[-1]
    p, q, y, x = (torch.stack(parts, dim=1) for parts in (lefts, rights, outputs, adjoints))
    assert float((p.mT @ y - x.mT @ q).abs().max()) < tolerance * float(y.norm(dim=0).max())
    assert float((matrix.dense() @ q - y).abs().max()) < tolerance * float(y.norm(dim=0).max())


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["right", "left"]),
        st.sampled_from(["single", "block", "again", "mixture", "nearby", "zero", "unit", "huge", "tiny", "wide"]),
        st.integers(0, 10_000),
    ),
    min_size=1,
    max_size=12,
)


def _input(kind: str, length: int, seed: int, earlier: list[Tensor]) -> Tensor:
    """An input of the given kind, as a block, possibly built from earlier ones on the same side."""
    fresh = _normal(length, 3, seed=seed)
    last = earlier[-1] if earlier else fresh
    kinds: dict[str, Tensor] = {
        "single": fresh[:, 0],
        "block": fresh,
        "again": last,
        "mixture": torch.cat([last, fresh[:, :1], last @ torch.ones(last.shape[1], 2).double()], dim=1),
        "nearby": last + 1e-9 * last.abs().max() * fresh[:, :1],
        "zero": torch.zeros(length, 2, dtype=torch.float64),
        "unit": torch.eye(length, dtype=torch.float64)[:, seed % length],
        "huge": 1e200 * fresh[:, 0],
        "tiny": 1e-200 * fresh[:, :2],
        "wide": _normal(length, length + 2, seed=seed),
    }
    return kinds[kind].reshape(length, -1)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(steps=_STEPS, rows=st.integers(1, 9), cols=st.integers(1, 9))
def test_every_output_is_that_of_the_final_matrix(steps: list[tuple[str, str, int]], rows: int, cols: int) -> None:
    matrix = LazyGaussian(rows, cols, scale=0.7, seed=rows + 10 * cols)
    sides = {"right": matrix, "left": matrix.T}
    inputs: dict[str, list[Tensor]] = {"right": [], "left": []}
    outputs: dict[str, list[Tensor]] = {"right": [], "left": []}
    for side, kind, seed in steps:
        inputs[side].append(_input(kind, sides[side].shape[1], seed, inputs[side]))
        outputs[side].append(sides[side] @ inputs[side][-1])
    for side, whole in (("right", matrix.dense()), ("left", matrix.dense().mT)):
        for block, output in zip(inputs[side], outputs[side], strict=True):
            size = block.abs().max() * whole.norm()
            assert bool(((whole @ block - output).abs() <= 1e-9 * size).all())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_known_inputs_draw_nothing(dtype: torch.dtype) -> None:
    matrix, twin = (LazyGaussian(500, 400, seed=2, dtype=dtype) for _ in range(2))
    block, left = _normal(400, 130, dtype=dtype), _normal(500, dtype=dtype)
    for both in (matrix, twin):
        both @ block, both.T @ left
    mixture = block @ _normal(130, 5, seed=1, dtype=dtype)
    for known in (block, block[:, 7], mixture, mixture[:, 0], 1e-20 * block[:, 3], 0 * block):
        matrix @ known
    matrix.T @ (3 * left)
    assert matrix.known == (130, 1)
    new = _normal(400, seed=2, dtype=dtype)
    assert torch.equal(matrix @ new, twin @ new)  # the next numbers of the generator are the same


@pytest.mark.parametrize("shape", [(60, 7), (7, 60)])
def test_nothing_is_drawn_or_kept_once_one_side_is_spanned(shape: tuple[int, int]) -> None:
    matrix = LazyGaussian(*shape, seed=3)
    dense = matrix.dense()
    known = matrix.known
    assert sorted(known) == [0, 7]
    for side, whole in ((matrix, dense), (matrix.T, dense.mT)):
        block = _normal(side.shape[1], 3)
        assert torch.allclose(side @ block, whole @ block, rtol=0, atol=1e-12)
    assert matrix.known == known


def test_dependent_columns_of_a_block_draw_once() -> None:
    matrix = LazyGaussian(50, 40, seed=2)
    a, b, c = _normal(3, 40)
    matrix @ torch.stack([a, a, b, a + b, 0 * a, c, b - c, a + 1e-5 * c], dim=1)
    assert matrix.known == (3, 0)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 1e-3)])
@pytest.mark.parametrize("kind", ["powers", "graded", "kahan"])
def test_ill_conditioned_blocks_stay_consistent(dtype: torch.dtype, tolerance: float, kind: str) -> None:
    matrix = LazyGaussian(250, 200, seed=2, dtype=dtype)
    matrix @ _normal(200, 40, dtype=dtype)
    orders = torch.arange(60, dtype=dtype)
    if kind == "powers":  # each nearly a mixture of those before
        block = torch.linspace(-1, 1, 200, dtype=dtype)[:, None] ** orders
    elif kind == "graded":
        block = _normal(200, 1, dtype=dtype) + 10 ** (-0.3 * orders) * _normal(200, 60, seed=1, dtype=dtype)
    else:  # no column is small, yet together they nearly depend
        mixing = torch.diag(0.3**orders) @ (torch.eye(60, dtype=dtype) - 0.95 * torch.ones(60, 60, dtype=dtype).triu(1))
        block = _normal(200, 60, seed=1, dtype=dtype) @ mixing
    outputs = matrix @ block
    gap = (matrix.dense() @ block - outputs).norm(dim=0) / outputs.norm(dim=0)
    assert float(gap.max()) < tolerance


def test_a_difference_far_below_the_size_is_resolved() -> None:
    matrix = LazyGaussian(50, 40, seed=2)
    a, b = _normal(2, 40)
    difference = (matrix @ (a + 1e-9 * b) - matrix @ a) * 1e9
    output = matrix @ b
    assert float((difference - output).norm()) < 1e-5 * float(output.norm())


def test_a_block_is_the_same_as_its_columns_one_after_another() -> None:
    together, apart = (LazyGaussian(300, 200, seed=4) for _ in range(2))
    left, right = _normal(300, 5), _normal(200, 150, seed=1)
    for one, two, block in ((together.T, apart.T, left), (together, apart, right)):
        columns = torch.stack([two @ column for column in block.mT], dim=1)
        assert torch.allclose(one @ block, columns, rtol=0, atol=1e-11)


def test_memory_in_small_pieces_gives_the_same_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [_normal(90, width, seed=width) for width in (1, 20, 1, 5)]
    expected, small = LazyGaussian(100, 90, seed=1), LazyGaussian(100, 90, seed=1)
    outputs = [expected @ block for block in blocks]
    for name, size in (("_FIRST", 1), ("_CHUNK_BYTES", 5 * 8 * 90), ("_PANEL_BYTES", 3 * 8 * 90), ("_PANEL", 2)):
        monkeypatch.setattr(f"wordsway.gaussian.conditioning.{name}", size)
    for block, output in zip(blocks, outputs, strict=True):
        assert torch.allclose(small @ block, output, rtol=0, atol=1e-11)


def test_memory_grows_by_what_is_kept() -> None:
    matrix = LazyGaussian(200_000, 100_000, seed=1, dtype=torch.float32)
    with memory.ResourceUsage() as before:
        pass
    with memory.ResourceUsage() as usage:
        for seed in range(30):
            matrix @ _normal(100_000, seed=seed, dtype=torch.float32)
    assert usage.peak_mb - before.peak_mb < 2 * 30 * 1.2  # an input and its output take 1.2 MB, all entries 80 GB


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("factor", [1.0, 1e18, 1e-18])
def test_norm_bound_of_a_stored_matrix_is_its_norm(
    dtype: torch.dtype, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wordsway.gaussian.dense._BLOCK_BYTES", 1000)  # several blocks
    matrix = _normal(40, 25, dtype=dtype) * factor
    norm = float(np.linalg.norm(matrix.double().numpy(), 2))
    for given_matrix in (matrix, matrix.mT):
        bound = DenseGaussian.of(given_matrix).norm_bound()
        assert norm <= bound.value <= norm * (1 + 2e-12)
        assert (bound.failure, bound.exact) == (0.0, True)
    assert DenseGaussian.of(torch.zeros(3, 2)).norm_bound().value == 0


def test_a_given_matrix_is_wrapped_not_copied() -> None:
    entries = _normal(4, 3).requires_grad_()
    matrix = DenseGaussian.of(entries, scale=2.0)
    assert matrix.dense().data_ptr() == matrix.T.dense().data_ptr() == entries.data_ptr()
    assert not (matrix @ torch.ones(3, dtype=torch.float64)).requires_grad
    assert (matrix.scale, DenseGaussian.of(entries).scale) == (2.0, None)


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # torch's own, on its first forward mode
@pytest.mark.parametrize("kind", [DenseGaussian, LazyGaussian])
def test_products_can_be_differentiated_and_batched(kind: Callable[..., GaussianMatrix]) -> None:
    matrix = kind(6, 5, seed=1)
    q, block, direction = _normal(5), _normal(5, 2, seed=1), _normal(5, seed=2)
    assert torch.autograd.gradcheck(lambda q: matrix @ q, q.clone().requires_grad_(), check_forward_ad=True)
    assert torch.autograd.gradcheck(lambda q: (matrix @ q).sin(), block.clone().requires_grad_())
    assert torch.autograd.gradgradcheck(lambda q: (matrix @ q).sin(), q.clone().requires_grad_())
    dense = matrix.dense()
    assert torch.allclose(torch.func.jacrev(lambda q: matrix @ q)(q), dense)
    assert torch.allclose(torch.func.jvp(lambda q: matrix @ q, (q,), (direction,))[1], dense @ direction)
    assert torch.allclose(torch.vmap(lambda q: matrix @ q)(block.mT), (dense @ block).mT)
    batch = _normal(5, 2, 3)
    assert torch.allclose(torch.vmap(lambda q: matrix @ q, in_dims=2)(batch), dense @ batch.movedim(2, 0))


def test_what_does_not_fit_into_memory_is_refused_with_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"7680000 x 7680000 .*TB"):
        DenseGaussian(7_680_000, 7_680_000)
    huge = LazyGaussian(7_680_000, 7_680_000)
    with pytest.raises(InputError, match=r"7680000 x 7680000 .*PB"):
        huge.dense()
    assert huge.norm_bound().value == pytest.approx(2 * 7_680_000**0.5, rel=2e-3)
    matrix = LazyGaussian(30_000, 300)
    monkeypatch.setattr(memory, "available", lambda: 1 << 27)
    matrix @ _normal(300)  # small inputs are not checked
    with pytest.raises(InputError, match=r"block of 290 inputs .*MB"):
        matrix @ _normal(300, 290)
    assert matrix.known == (1, 0)


def test_repr_names_size_and_known_directions() -> None:
    matrix = LazyGaussian(30, 20)
    matrix @ _normal(20, 2)
    assert repr(matrix) == "LazyGaussian(30 x 20, scale=1.0, torch.float64, known directions (2, 0))"
    assert repr(DenseGaussian(3, 2).T) == "DenseGaussian(2 x 3, scale=1.0, torch.float64)"
