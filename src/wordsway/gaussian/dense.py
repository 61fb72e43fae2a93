"""A Gaussian matrix that is stored."""

import torch
from torch import Tensor

from wordsway import memory
from wordsway.checks import as_array, check_dtype, check_positive, check_size
from wordsway.errors import InputError
from wordsway.gaussian.base import NormBound, check_columns, check_failure, draw_normal, empty, multiply, source_of

_INFLATION = 1e-12  # covers the rounding of the float64 Gram matrix and of its eigenvalues
_BLOCK_BYTES = 1 << 26  # of the float64 copies from which the Gram matrix is accumulated


class DenseGaussian:
    """A stored matrix of independent N(0, scale^2) entries.

    Drawing takes rows x cols normal numbers and as much memory; a product takes 2 rows x cols operations per input. Use
    `LazyGaussian` if the matrix does not fit into memory or is multiplied with few inputs.

    Parameters
    ----------
    rows, cols
        At least 1 each.
    scale
        Standard deviation of an entry.
    seed
        The same seed gives the same entries.
    dtype
        torch.float64 or torch.float32.

    Raises
    ------
    InputError
        On bad arguments, and before allocating if the matrix does not fit into memory.
    """

    def __init__(
        self, rows: int, cols: int, scale: float = 1.0, seed: int = 0, dtype: torch.dtype = torch.float64
    ) -> None:
        rows, cols, source = check_size(rows, "rows"), check_size(cols, "cols"), source_of(seed)
        self._scale: float | None = check_positive(scale, "scale")
        size = rows * cols * check_dtype(dtype).itemsize
        memory.require(size, f"a dense {rows} x {cols} {dtype} matrix", "use LazyGaussian or a smaller size")
        self._entries = empty(rows, cols, dtype)
        draw_normal(self._entries, self._scale, source)

    @classmethod
    def of(cls, matrix: Tensor, scale: float | None = None) -> "DenseGaussian":
        """Wrap a given matrix without copying it; `scale` is the standard deviation of its entries if it is known."""
        if isinstance(matrix, Tensor) and matrix.device.type != "cpu":
            raise InputError(f"a matrix must be on the cpu, got {matrix.device}: move it with .cpu()")
        entries = as_array(matrix, "a matrix", ("rows", "cols"))
        return cls._view(entries, None if scale is None else check_positive(scale, "scale"))

    @classmethod
    def _view(cls, entries: Tensor, scale: float | None) -> "DenseGaussian":
        view = cls.__new__(cls)
        view._entries, view._scale = entries, scale
        return view

    def __repr__(self) -> str:
        rows, cols = self.shape
        return f"DenseGaussian({rows} x {cols}, scale={self.scale}, {self.dtype})"

    @property
    def shape(self) -> tuple[int, int]:
        rows, cols = self._entries.shape
        return rows, cols

    @property
    def dtype(self) -> torch.dtype:
        return self._entries.dtype

    @property
    def scale(self) -> float | None:
        """Standard deviation of an entry; None if the matrix was given without it."""
        return self._scale

    def __matmul__(self, inputs: Tensor) -> Tensor:
        """Multiply: (cols,) to (rows,), or a block (cols, b) to (rows, b); differentiable in the inputs."""
        return multiply(self, inputs, self._multiply)

    @property
    def T(self) -> "DenseGaussian":
        return self._view(self._entries.mT, self._scale)

    def _multiply(self, inputs: Tensor) -> Tensor:
        if inputs.ndim == 1:
            return self._entries @ inputs
        # a few inputs as rows: in this order BLAS is fast for either memory layout of the entries
        return (inputs.mT.contiguous() @ self._entries.mT).mT

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
        for its eigenvalues, short^2 numbers of memory. The margin covers rounding as it occurs in practice (about
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
