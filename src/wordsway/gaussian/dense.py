"""A Gaussian matrix that is stored."""

import torch
from torch import Tensor

from wordsway import memory
from wordsway.errors import InputError
from wordsway.gaussian.draws import PURPOSE, draw_normal, empty
from wordsway.gaussian.interface import (
    NormBound,
    check_columns,
    check_dtype,
    check_failure,
    check_finite,
    check_scale,
    check_size,
)
from wordsway.gaussian.product import multiply
from wordsway.seeds import generator

_INFLATION = 1e-12  # covers the rounding of the float64 Gram matrix and of its eigenvalues
_BLOCK_BYTES = 1 << 26  # of the float64 copies from which the Gram matrix is accumulated


class DenseGaussian:
    """A stored matrix of independent N(0, scale^2) entries.

    Drawing takes rows x cols normal numbers and as much memory; a product takes 2 rows x cols operations a question.
    Use `LazyGaussian` where the matrix does not fit or few questions are asked.

    Parameters
    ----------
    rows, cols
        At least 1 each.
    scale
        Standard deviation of an entry.
    seed
        Makes an own generator; the same seed gives the same entries.
    dtype
        torch.float64 or torch.float32.

    Raises
    ------
    InputError
        On bad arguments, and before allocating when the matrix does not fit in memory.
    """

    def __init__(
        self, rows: int, cols: int, scale: float = 1.0, seed: int = 0, dtype: torch.dtype = torch.float64
    ) -> None:
        rows, cols = check_size(rows, cols)
        self._scale: float | None = check_scale(scale)
        source = generator(seed, PURPOSE)
        size = rows * cols * check_dtype(dtype).itemsize
        memory.require(size, f"a dense {rows} x {cols} {dtype} matrix", "use LazyGaussian or a smaller size")
        self._entries = empty(rows, cols, dtype)
        draw_normal(self._entries, scale, source)

    @classmethod
    def of(cls, matrix: Tensor, scale: float | None = None) -> "DenseGaussian":
        """Wrap a given matrix, not copied; `scale` is the standard deviation of its entries where it is known."""
        if not isinstance(matrix, Tensor):
            raise InputError(f"a matrix must be a tensor, got {type(matrix).__name__}: use torch.as_tensor")
        check_dtype(matrix.dtype)
        if matrix.ndim != 2 or matrix.numel() == 0:
            raise InputError(f"a matrix must have rows and columns, got shape {tuple(matrix.shape)}: give rows x cols")
        if matrix.device.type != "cpu":
            raise InputError(f"a matrix must be on the cpu, got {matrix.device}: move it with .cpu()")
        check_finite(matrix, "a matrix")
        return cls._view(matrix.detach(), None if scale is None else check_scale(scale))

    @classmethod
    def _view(cls, entries: Tensor, scale: float | None) -> "DenseGaussian":
        made = cls.__new__(cls)
        made._entries = entries
        made._scale = scale
        return made

    def __repr__(self) -> str:
        rows, cols = self.shape
        return f"DenseGaussian({rows} x {cols}, scale={self.scale}, {self.dtype})"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, cols = self._entries.shape
        return rows, cols

    @property
    def dtype(self) -> torch.dtype:
        """Of the entries, of the questions it takes and of its answers."""
        return self._entries.dtype

    @property
    def scale(self) -> float | None:
        """Standard deviation of an entry; None where the matrix was given without it."""
        return self._scale

    def __matmul__(self, questions: Tensor) -> Tensor:
        """Multiply (cols,) to (rows,) or a block (cols, b) to (rows, b); differentiable in the questions."""
        return multiply(self, questions)

    def answer(self, questions: Tensor) -> Tensor:
        """Answer questions that were checked; use `@`, which checks them."""
        if questions.ndim == 1:
            return self._entries @ questions
        # a few questions as rows: in this order BLAS is quick whichever way the entries lie in memory
        return (questions.mT.contiguous() @ self._entries.mT).mT

    @property
    def T(self) -> "DenseGaussian":
        """The transpose, as a view on the same memory."""
        return self._view(self._entries.mT, self._scale)

    def columns(self, start: int, stop: int) -> "DenseGaussian":
        """Columns start, ..., stop - 1, as a view on the same memory."""
        first, last = check_columns(start, stop, self.shape[1])
        return self._view(self._entries[:, first:last], self._scale)

    def dense(self) -> Tensor:
        """The entries themselves, not a copy: do not write into them."""
        return self._entries

    def norm_bound(self, failure: float = 1e-9) -> NormBound:
        """The spectral norm, from the float64 Gram matrix of the smaller side, raised by 1e-12 of itself.

        It cannot fail, so `failure` is only checked. Cost: long x short^2 operations for the Gram matrix and short^3
        for its eigenvalues, short^2 numbers of memory. The margin covers rounding as it is met in practice (about
        1e-15), not its worst case.
        """
        check_failure(failure)
        tall = self._entries if self.shape[0] >= self.shape[1] else self._entries.mT  # long short
        short = tall.shape[1]
        memory.require(3 * 8 * short * short, f"the norm of a {self.shape[0]} x {self.shape[1]} matrix")
        peak = max(abs(float(end)) for end in torch.aminmax(tall))
        if peak == 0.0:
            return NormBound(0.0, 0.0, True)
        gram = torch.zeros(short, short, dtype=torch.float64)
        step = max(1, _BLOCK_BYTES // (8 * short))
        for start in range(0, len(tall), step):
            part = tall[start : start + step].double() / peak  # the division keeps the squares finite
            gram.addmm_(part.mT, part)
        largest = float(torch.linalg.eigvalsh(gram)[-1])
        return NormBound(peak * max(largest, 0.0) ** 0.5 * (1 + _INFLATION), 0.0, True)
