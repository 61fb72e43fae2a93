"""What every Gaussian matrix must satisfy, as tests to inherit."""

import math
import operator
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from wordsway import seeds
from wordsway.errors import InputError
from wordsway.gaussian import GaussianMatrix

_SHAPES = ((7, 5), (5, 8), (1, 4), (6, 1))
_TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}


class GaussianMatrixConformance:
    """Tests of a kind of Gaussian matrix: inherit, implement `make`, and let pytest collect the class.

    ::

        class TestMine(GaussianMatrixConformance):
            def make(self, rows, cols, seed, dtype):
                return MyMatrix(rows, cols, seed, dtype)

    Every test makes its own matrices, of at most 60 x 50 entries.

    Attributes
    ----------
    dtypes
        The dtypes that `make` is called with; narrow it for a kind with a single one.
    """

    dtypes: tuple[torch.dtype, ...] = (torch.float64, torch.float32)

    def make(self, rows: int, cols: int, seed: int, dtype: torch.dtype) -> GaussianMatrix:
        """Return a new matrix of that size; two calls with the same seed must return equal matrices."""
        raise NotImplementedError

    def _cases(self) -> Iterator[tuple[GaussianMatrix, Callable[..., Tensor]]]:
        """Yield matrices of all dtypes and shapes, each with a function that draws normal tensors of its dtype."""
        for dtype in self.dtypes:
            for seed, (rows, cols) in enumerate(_SHAPES):
                yield self.make(rows, cols, seed, dtype), _source(dtype, seed)

    def _sides(self) -> Iterator[tuple[GaussianMatrix, Callable[..., Tensor]]]:
        """Yield the same matrices and, after each of them, its transpose."""
        for matrix, normal in self._cases():
            yield matrix, normal
            yield matrix.T, normal

    def test_members_shapes_and_dtypes(self) -> None:
        for matrix, normal in self._cases():
            for view in (matrix, matrix.T, matrix.columns(0, 1)):
                assert isinstance(view, GaussianMatrix)
            rows, cols = matrix.shape
            assert (rows, cols) in _SHAPES
            assert matrix.T.shape == (cols, rows)
            for side, length, output_length in ((matrix, cols, rows), (matrix.T, rows, cols)):
                for shape in ((), (1,), (3,), (0,)):
                    outputs = side @ normal(length, *shape)
                    assert outputs.shape == (output_length, *shape)
                    assert outputs.dtype == side.dtype == matrix.dtype
            assert matrix.dense().shape == (rows, cols)
            assert matrix.dense().dtype == matrix.dtype

    def test_adjoint_identity(self) -> None:
        for matrix, normal in self._cases():
            rows, cols = matrix.shape
            rights, lefts, outputs, adjoints = [], [], [], []
            for _ in range(4):  # alternating, so that each product uses what is known on both sides
                rights.append(normal(cols, 2))
                outputs.append(matrix @ rights[-1])
                lefts.append(normal(rows, 2))
                adjoints.append(matrix.T @ lefts[-1])
            p, q, y, x = (torch.cat(parts, dim=1) for parts in (lefts, rights, outputs, adjoints))
            _close(p.mT @ y, x.mT @ q, float(p.norm() * y.norm()))

    def test_linear(self) -> None:
        for side, normal in self._sides():
            a, b = normal(side.shape[1]), normal(side.shape[1])
            first, second, both = side @ a, side @ b, side @ (2 * a - 3 * b)
            _close(both, 2 * first - 3 * second, float(first.norm() + second.norm()))

    def test_same_input_same_output(self) -> None:
        for side, normal in self._sides():
            vector = normal(side.shape[1])
            given = vector.clone()
            first = side @ vector
            copy = first.clone()
            side @ normal(side.shape[1], 2)
            side.T @ normal(side.shape[0])
            _close(side @ vector, first, float(first.norm()))
            _close(side @ (1e-3 * vector), 1e-3 * first, 1e-3 * float(first.norm()))
            assert torch.equal(first, copy), "an output changed after it was returned"
            assert torch.equal(vector, given), "an input was changed"

    def test_zero_input(self) -> None:
        for side, normal in self._sides():
            zero = torch.zeros(side.shape[1], dtype=side.dtype)
            assert not (side @ zero).any()
            side @ normal(side.shape[1])
            assert not (side @ zero).any()
            mixed = side @ torch.stack([zero, normal(side.shape[1]), zero], dim=1)
            assert not mixed[:, [0, 2]].any()
            assert mixed[:, 1].any()

    def test_blocks_with_repeated_and_dependent_columns(self) -> None:
        for side, normal in self._sides():
            a, b, c = normal(3, side.shape[1])
            block = torch.stack([a, a, 2 * b, a - b, torch.zeros_like(a), c, b], dim=1)
            outputs = side @ block
            for k in range(7):
                _close(side @ block[:, k], outputs[:, k], float(outputs.norm()))
            dense = side.dense()
            _close(outputs, dense @ block, float(dense.norm() * block.norm()))

    def test_transpose_is_a_view_on_the_same_memory(self) -> None:
        for matrix, normal in self._cases():
            rows, cols = matrix.shape
            view = matrix.T  # taken before any product
            q, p = normal(cols), normal(rows)
            y, x = matrix @ q, view @ p
            _close((p @ y)[None], (x @ q)[None], float(p.norm() * y.norm()))
            _close(view.T @ q, y, float(y.norm()))
            _close(view.dense().mT @ q, y, float(y.norm()))
            assert view.scale == matrix.scale

    def test_columns_agree_with_the_whole(self) -> None:
        for matrix, normal in self._cases():
            rows, cols = matrix.shape
            start, stop = cols // 3, cols // 3 + (cols + 1) // 2
            block = matrix.columns(start, stop)
            assert block.shape == (rows, stop - start)
            assert block.T.shape == (stop - start, rows)
            assert block.dtype == matrix.dtype
            assert block.scale == matrix.scale
            part, p = normal(stop - start), normal(rows, 2)
            padded = torch.zeros(cols, dtype=matrix.dtype)
            padded[start:stop] = part
            output, adjoint = block @ part, block.T @ p
            _close(matrix @ padded, output, float(output.norm()))
            _close((matrix.T @ p)[start:stop], adjoint, float(adjoint.norm()))
            inner = block.columns(block.shape[1] - 1, block.shape[1])
            _close(inner.dense()[:, 0], matrix.dense()[:, stop - 1], float(matrix.dense().norm()))
            _close(block.dense(), matrix.dense()[:, start:stop], float(matrix.dense().norm()))

    def test_dense_agrees_with_products_before_and_after(self) -> None:
        for matrix, normal in self._cases():
            rows, cols = matrix.shape
            q, p = normal(cols, 2), normal(rows, 2)
            before = matrix @ q, matrix.T @ p
            dense = matrix.dense()
            size = float(dense.norm())
            _close(before[0], dense @ q, size * float(q.norm()))
            _close(before[1], dense.mT @ p, size * float(p.norm()))
            q, p = normal(cols, 2), normal(rows, 2)
            _close(matrix @ q, dense @ q, size * float(q.norm()))
            _close(matrix.T @ p, dense.mT @ p, size * float(p.norm()))
            _close(matrix.dense(), dense, size)
            _close(matrix.T.dense(), dense.mT, size)

    def test_same_seed_same_bytes(self) -> None:
        for dtype in self.dtypes:
            one, two, other = (self.make(7, 5, seed, dtype) for seed in (3, 3, 4))
            assert one.shape == (7, 5)
            normal = _source(dtype, 0)
            q, p = normal(5, 2), normal(7)
            assert torch.equal(one @ q, two @ q)
            assert torch.equal(one.T @ p, two.T @ p)
            assert torch.equal(one.dense(), two.dense())
            assert not torch.equal(one.dense(), other.dense())

    def test_draws_nothing_from_the_global_generator(self) -> None:
        state = torch.get_rng_state()
        for matrix, normal in self._cases():
            matrix @ normal(matrix.shape[1], 2)
            matrix.dense()
        assert torch.equal(torch.get_rng_state(), state)

    def test_entries_have_mean_zero_and_the_stated_variance(self) -> None:
        for dtype in self.dtypes:
            matrix = self.make(60, 50, 11, dtype)
            if matrix.scale is None:
                continue
            entries = matrix.dense().double() / matrix.scale
            assert abs(float(entries.mean())) < 4.5 / math.sqrt(3000)
            assert abs(float(entries.square().mean()) - 1) < 4.5 * math.sqrt(2 / 3000)

    def test_norm_bound_holds_and_states_its_kind(self) -> None:
        for matrix, _ in self._cases():
            bound = matrix.norm_bound()
            norm = float(torch.linalg.matrix_norm(matrix.dense().double(), ord=2))
            assert norm <= bound.value * (1 + _TOLERANCE[matrix.dtype])
            assert bound.failure <= 1e-9
            if bound.exact:
                assert bound.failure == 0
                assert bound.value <= norm * (1 + 1e-6)
            elif matrix.scale is not None:
                sizes = sum(math.sqrt(size) for size in matrix.shape)
                assert bound.value <= 1.5 * matrix.scale * (sizes + math.sqrt(2 * math.log(1e9)))

    def test_bad_inputs_are_refused_and_change_nothing(self) -> None:
        for dtype in self.dtypes:
            matrix, twin = self.make(7, 5, 0, dtype), self.make(7, 5, 0, dtype)
            good = _source(dtype, 0)(5)
            late = torch.ones(5, 200, dtype=dtype)
            late[4, 199] = math.inf
            other = torch.float32 if dtype == torch.float64 else torch.float64
            for bad in (
                good[:4],
                torch.ones(1, 5, dtype=dtype),
                torch.ones(5, 1, 1, dtype=dtype),
                torch.tensor(1.0, dtype=dtype),
                good.to(other),
                good.to(torch.complex128),
                torch.ones(5, dtype=torch.int64),
                good * math.nan,
                late,
                good.tolist(),
            ):
                _refused(operator.matmul, matrix, bad)
            assert torch.equal(matrix @ good, twin @ good)

    def test_bad_columns_and_failures_are_refused(self) -> None:
        matrix = self.make(7, 5, 0, self.dtypes[0])
        for start, stop in ((0, 0), (3, 2), (-1, 2), (2, 6)):
            _refused(matrix.columns, start, stop)
        for failure in (0.0, 1.0, -1.0, math.nan):
            _refused(matrix.norm_bound, failure)


def _source(dtype: torch.dtype, seed: int) -> Callable[..., Tensor]:
    source = seeds.generator(seed, "conformance")
    return lambda *shape: seeds.normal(source, shape, dtype)


def _close(one: Tensor, two: Tensor, size: float) -> None:
    """Fail unless two tensors agree to rounding at the given size."""
    assert one.shape == two.shape, f"shapes {tuple(one.shape)} and {tuple(two.shape)}"
    gap = float((one - two).abs().max())
    allowed = _TOLERANCE[one.dtype] * size
    assert gap <= allowed, f"differ by {gap:.3g}, allowed {allowed:.3g}"


def _refused(call: Callable[..., object], *arguments: object) -> None:
    """Fail unless the call raises an InputError of one line with a remedy after a colon."""
    message = ""
    try:
        call(*arguments)
    except InputError as error:
        message = str(error)
    assert message, "bad input was accepted"
    assert "\n" not in message
    assert ":" in message
