"""Both kinds of Gaussian matrices: the conformance suite on every view, consistency, memory and refusals."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from wordsway import memory
from wordsway.errors import InputError
from wordsway.gaussian import DenseGaussian, GaussianMatrix, LazyGaussian, ledger, oracle
from wordsway.gaussian.draws import PURPOSE, draw_normal
from wordsway.seeds import generator
from wordsway.testing import GaussianMatrixConformance


class TestDense(GaussianMatrixConformance):
    def make(self, rows: int, cols: int, seed: int, dtype: torch.dtype) -> GaussianMatrix:
        return DenseGaussian(rows, cols, scale=0.5, seed=seed, dtype=dtype)


class TestDenseBlockTransposed(GaussianMatrixConformance):
    def make(self, rows: int, cols: int, seed: int, dtype: torch.dtype) -> GaussianMatrix:
        return DenseGaussian(cols, rows + 3, scale=0.5, seed=seed, dtype=dtype).columns(2, rows + 2).T


class TestGiven(GaussianMatrixConformance):
    def make(self, rows: int, cols: int, seed: int, dtype: torch.dtype) -> GaussianMatrix:
        return DenseGaussian.of(torch.randn(rows, cols, dtype=dtype, generator=torch.Generator().manual_seed(seed)))


class TestRevealed(GaussianMatrixConformance):
    def make(self, rows: int, cols: int, seed: int, dtype: torch.dtype) -> GaussianMatrix:
        return LazyGaussian(rows, cols, scale=0.5, seed=seed, dtype=dtype)


class TestRevealedTransposed(GaussianMatrixConformance):
    def make(self, rows: int, cols: int, seed: int, dtype: torch.dtype) -> GaussianMatrix:
        return LazyGaussian(cols, rows, scale=2.0, seed=seed, dtype=dtype).T


class TestRevealedColumns(GaussianMatrixConformance):
    def make(self, rows: int, cols: int, seed: int, dtype: torch.dtype) -> GaussianMatrix:
        return LazyGaussian(rows, cols + 5, seed=seed, dtype=dtype).columns(3, cols + 3)


class TestRevealedRowsAndColumns(GaussianMatrixConformance):
    def make(self, rows: int, cols: int, seed: int, dtype: torch.dtype) -> GaussianMatrix:
        whole = LazyGaussian(rows + 2, cols + 5, seed=seed, dtype=dtype)
        return whole.columns(3, cols + 3).T.columns(1, rows + 1).T


class TestRevealedInSmallPieces(TestRevealed):
    """Many chunks and panels at sizes where one of each would do."""

    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ledger, "_FIRST", 1)
        monkeypatch.setattr(ledger, "_CHUNK_BYTES", 100)
        monkeypatch.setattr(oracle, "_PANEL", 2)


def _normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(500 + seed))


def _state(source: np.random.Generator) -> str:
    return repr(source.bit_generator.state)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_long_alternating_runs_stay_consistent(dtype: torch.dtype, tolerance: float) -> None:
    matrix = LazyGaussian(400, 300, seed=1, dtype=dtype)
    rights, lefts, answers, adjoints = [], [], [], []
    q = _normal(300, dtype=dtype)
    for step in range(200):
        rights.append(q / q.norm())
        answers.append(matrix @ rights[-1])
        p = answers[-1] + 0.1 * _normal(400, seed=step, dtype=dtype)  # nearly dependent on what is known
        lefts.append(p / p.norm())
        adjoints.append(matrix.T @ lefts[-1])
        q = adjoints[-1].tanh() if step % 3 else adjoints[-1]
    p, q, y, x = (torch.stack(parts, dim=1) for parts in (lefts, rights, answers, adjoints))
    pairs, mirrored = p.mT @ y, x.mT @ q
    assert float((pairs - mirrored).abs().max()) < tolerance * float(y.norm(dim=0).max())
    for side in matrix._oracle.ledgers:
        basis = torch.cat([questions for questions, _ in side.pieces])
        assert len(basis) == side.count
        deviation = basis @ basis.mT - torch.eye(side.count, dtype=dtype)
        assert float(deviation.abs().max()) < 100 * torch.finfo(dtype).eps
    dense = matrix.dense()
    assert float((dense @ q - y).abs().max()) < tolerance * float(y.norm(dim=0).max())


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["right", "left"]),
        st.sampled_from(["single", "block", "again", "mixture", "nearby", "zero", "unit", "huge", "tiny", "wide"]),
        st.integers(0, 10_000),
    ),
    min_size=1,
    max_size=12,
)


def _question(kind: str, length: int, seed: int, asked: list[Tensor]) -> Tensor:
    """A question of the given kind, as a block, possibly built from those asked before on the same side."""
    fresh = _normal(length, 3, seed=seed)
    last = asked[-1] if asked else fresh
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
def test_every_answer_is_that_of_the_matrix_finally_revealed(
    steps: list[tuple[str, str, int]], rows: int, cols: int
) -> None:
    matrix = LazyGaussian(rows, cols, scale=0.7, seed=rows + 10 * cols)
    sides = {"right": matrix, "left": matrix.T}
    asked: dict[str, list[Tensor]] = {"right": [], "left": []}
    answers: dict[str, list[Tensor]] = {"right": [], "left": []}
    for side, kind, seed in steps:
        question = _question(kind, sides[side].shape[1], seed, asked[side])
        answers[side].append(sides[side] @ question)
        asked[side].append(question)
    for side, whole in (("right", matrix.dense()), ("left", matrix.dense().mT)):
        for question, answer in zip(asked[side], answers[side], strict=True):
            size = question.abs().max() * whole.norm()
            assert bool(((whole @ question - answer).abs() <= 1e-9 * size).all())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_known_questions_draw_nothing(dtype: torch.dtype) -> None:
    matrix = LazyGaussian(500, 400, seed=2, dtype=dtype)
    block = _normal(400, 130, dtype=dtype)
    matrix @ block
    matrix.T @ _normal(500, dtype=dtype)
    before = _state(matrix._oracle._source)
    mixture = block @ _normal(130, 5, seed=1, dtype=dtype)
    for question in (block, block[:, 7], mixture, mixture[:, 0], 1e-20 * block[:, 3], 0 * block):
        matrix @ question
    matrix.T @ (3 * _normal(500, dtype=dtype))
    assert _state(matrix._oracle._source) == before
    assert [side.count for side in matrix._oracle.ledgers] == [130, 1]


def test_dependent_columns_of_a_block_draw_once() -> None:
    matrix = LazyGaussian(50, 40, seed=2)
    a, b, c = _normal(3, 40)
    matrix @ torch.stack([a, a, b, a + b, 0 * a, c, b - c, a + 1e-5 * c], dim=1)
    assert matrix._oracle.ledgers[0].count == 3


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
    answers = matrix @ block
    basis = torch.cat([questions for questions, _ in matrix._oracle.ledgers[0].pieces])
    assert float((basis @ basis.mT - torch.eye(len(basis), dtype=dtype)).abs().max()) < 50 * torch.finfo(dtype).eps
    gap = (matrix.dense() @ block - answers).norm(dim=0) / answers.norm(dim=0)
    assert float(gap.max()) < tolerance


def test_a_difference_far_below_the_size_is_still_heard() -> None:
    matrix = LazyGaussian(50, 40, seed=2)
    a, b = _normal(2, 40)
    difference = (matrix @ (a + 1e-9 * b) - matrix @ a) * 1e9
    answer = matrix @ b
    assert float((difference - answer).norm()) < 1e-5 * float(answer.norm())


@pytest.mark.parametrize("shape", [(60, 7), (7, 60)])
def test_nothing_is_drawn_or_kept_once_one_side_is_spanned(shape: tuple[int, int]) -> None:
    matrix = LazyGaussian(*shape, seed=3)
    dense = matrix.dense()
    state, counts = _state(matrix._oracle._source), [side.count for side in matrix._oracle.ledgers]
    assert sorted(counts) == [0, 7]
    for side, whole in ((matrix, dense), (matrix.T, dense.mT)):
        question = _normal(side.shape[1], 3)
        assert torch.allclose(side @ question, whole @ question, rtol=0, atol=1e-12)
    assert _state(matrix._oracle._source) == state
    assert [side.count for side in matrix._oracle.ledgers] == counts


def test_a_block_is_the_same_as_its_columns_one_after_another() -> None:
    one, two = (LazyGaussian(300, 200, seed=4) for _ in range(2))
    p, block = _normal(300, 5), _normal(200, 150, seed=1)
    together = one.T @ p, one @ block
    apart = torch.stack([two.T @ q for q in p.mT], dim=1), torch.stack([two @ q for q in block.mT], dim=1)
    for a, b in zip(together, apart, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-11)


def test_a_question_draws_as_many_numbers_as_its_answer_has() -> None:
    matrix = LazyGaussian(200_000, 3, seed=6)
    source = generator(6, PURPOSE)
    expected = torch.empty(200_000, dtype=torch.float64)
    draw_normal(expected, 1.0, source)
    answer = matrix @ torch.tensor([2.0, 0.0, 0.0], dtype=torch.float64)
    assert torch.allclose(answer, 2 * expected, rtol=1e-14, atol=0)
    assert _state(matrix._oracle._source) == _state(source)


def test_memory_is_never_moved_and_holds_what_was_asked() -> None:
    matrix = LazyGaussian(1000, 900, seed=1)
    pointers: list[list[int]] = []
    for seed in range(70):
        matrix @ _normal(900, seed=seed)
        pointers.append([questions.data_ptr() for questions, _ in matrix._oracle.ledgers[0]._chunks])
    for earlier, later in itertools.pairwise(pointers):
        assert later[: len(earlier)] == earlier
    assert matrix._oracle.ledgers[0].count == 70
    assert sum(len(questions) for questions, _ in matrix._oracle.ledgers[0]._chunks) <= 2 * 70
    assert not matrix._oracle.ledgers[1]._chunks


def test_chunks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "_CHUNK_BYTES", 5 * 8 * 1900)
    matrix = LazyGaussian(1000, 900)
    for seed in range(23):
        matrix @ _normal(900, seed=seed)
    assert [len(questions) for questions, _ in matrix._oracle.ledgers[0]._chunks] == [5, 5, 5, 5, 5]


def test_working_copies_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    widths = []

    def watched(rows: int, cols: int, dtype: torch.dtype) -> Tensor:
        widths.append(rows * cols)
        return torch.empty(rows, cols, dtype=dtype)

    monkeypatch.setattr(oracle, "empty", watched)
    monkeypatch.setattr(oracle, "_PANEL_BYTES", 3 * 8 * 900)
    LazyGaussian(2, 900) @ _normal(900, 20)
    assert widths[1:] == [3 * 900] * 6 + [2 * 900]  # the first holds the answers


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
    assert matrix.dense().data_ptr() == entries.data_ptr()
    assert matrix.T.dense().data_ptr() == entries.data_ptr()
    assert not (matrix @ torch.ones(3, dtype=torch.float64)).requires_grad
    assert matrix.scale == 2.0
    assert DenseGaussian.of(entries).scale is None


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # torch's own, on its first forward mode
@pytest.mark.parametrize("kind", [DenseGaussian, LazyGaussian])
def test_products_can_be_differentiated(kind: Callable[..., GaussianMatrix]) -> None:
    matrix = kind(6, 5, seed=1)
    q, block, direction = _normal(5), _normal(5, 2, seed=1), _normal(5, seed=2)
    assert torch.autograd.gradcheck(lambda q: matrix @ q, q.clone().requires_grad_(), check_forward_ad=True)
    assert torch.autograd.gradcheck(lambda q: (matrix @ q).sin(), block.clone().requires_grad_())
    assert torch.autograd.gradgradcheck(lambda q: (matrix @ q).sin(), q.clone().requires_grad_())
    dense = matrix.dense()
    assert torch.allclose(torch.func.jacrev(lambda q: matrix @ q)(q), dense)
    assert torch.allclose(torch.func.jvp(lambda q: matrix @ q, (q,), (direction,))[1], dense @ direction)
    assert torch.allclose(torch.vmap(lambda q: matrix @ q)(block.mT), (dense @ block).mT)
    assert torch.allclose(
        torch.vmap(lambda q: matrix @ q, in_dims=2)(_normal(5, 2, 3)), (dense @ _normal(5, 2, 3).movedim(2, 0))
    )


@pytest.mark.parametrize("kind", [DenseGaussian, LazyGaussian])
@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"rows": 0}, "rows"),
        ({"cols": -3}, "cols"),
        ({"rows": 2.5}, "rows"),
        ({"scale": 0.0}, "scale"),
        ({"scale": -1.0}, "scale"),
        ({"scale": math.nan}, "scale"),
        ({"scale": math.inf}, "scale"),
        ({"scale": "wide"}, "scale"),
        ({"dtype": torch.float16}, "float16"),
        ({"dtype": torch.complex128}, "complex128"),
        ({"dtype": torch.int64}, "int64"),
        ({"seed": 0.5}, "seed"),
        ({"seed": -1}, "seed"),
        ({"seed": True}, "seed"),
    ],
)
def test_bad_arguments_are_refused(kind: Callable[..., GaussianMatrix], arguments: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word) as error:
        kind(**({"rows": 4, "cols": 3} | arguments))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "matrix",
    [
        torch.ones(3),
        torch.ones(0, 3),
        torch.ones(2, 2, dtype=torch.int64),
        torch.ones(2, 2, dtype=torch.complex64),
        torch.tensor([[1.0, math.nan]]),
        torch.tensor([[1.0, -math.inf]]),
        [[1.0, 2.0]],
        torch.ones(2, 2, device="meta"),
    ],
)
def test_bad_given_matrices_are_refused(matrix: Any) -> None:
    with pytest.raises(InputError):
        DenseGaussian.of(matrix)


def test_a_question_elsewhere_is_refused() -> None:
    with pytest.raises(InputError, match="cpu"):
        LazyGaussian(3, 2) @ torch.ones(2, dtype=torch.float64, device="meta")


def test_what_does_not_fit_is_refused_with_the_estimate() -> None:
    with pytest.raises(InputError, match=r"7680000 x 7680000 .*TB"):
        DenseGaussian(7_680_000, 7_680_000)
    huge = LazyGaussian(7_680_000, 7_680_000)
    with pytest.raises(InputError, match=r"7680000 x 7680000 .*PB"):
        huge.dense()
    assert huge.norm_bound().value == pytest.approx(2 * 7_680_000**0.5, rel=2e-3)


def test_a_large_block_is_refused_before_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = LazyGaussian(30_000, 300)
    monkeypatch.setattr(memory, "available", lambda: 1 << 27)
    matrix @ _normal(300)  # small questions are not held up
    with pytest.raises(InputError, match=r"block of 290 questions .*MB"):
        matrix @ _normal(300, 290)
    assert matrix._oracle.ledgers[0].count == 1


def test_repr_tells_what_is_known() -> None:
    matrix = LazyGaussian(30, 20)
    matrix @ _normal(20, 2)
    assert repr(matrix) == "LazyGaussian(30 x 20, scale=1.0, torch.float64, known directions (2, 0))"
    assert repr(DenseGaussian(3, 2).T) == "DenseGaussian(2 x 3, scale=1.0, torch.float64)"
