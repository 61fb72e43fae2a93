"""The interface of Gaussian matrices, and what both kinds share: products with derivatives, checks and draws."""

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from wordsway.checks import check_finite
from wordsway.errors import InputError
from wordsway.seeds import generator

_BLOCK = 1 << 16  # float32 numbers drawn at a time: 256 kB, so that the passes over them stay in the cache


@dataclass(frozen=True)
class NormBound:
    """An upper bound on the spectral norm of a matrix.

    Attributes
    ----------
    value
        The bound.
    failure
        Probability, over the draw of the matrix, that its norm exceeds `value`; 0 if it cannot.
    exact
        Whether `value` is the norm itself up to rounding.
    """

    value: float
    failure: float
    exact: bool


@runtime_checkable
class GaussianMatrix(Protocol):
    """A rows x cols matrix of independent N(0, scale^2) entries, known through its products.

    A custom kind of matrix needs these members only; ``wordsway.testing.GaussianMatrixConformance`` checks them.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the entries, of inputs and of outputs."""

    @property
    def scale(self) -> float | None:
        """Standard deviation of an entry; None for a given matrix whose law is not known."""

    def __matmul__(self, inputs: Tensor) -> Tensor:
        """Multiply: (cols,) to (rows,), or a block (cols, b) to (rows, b)."""

    @property
    def T(self) -> "GaussianMatrix":
        """The transpose, as a view on the same memory."""

    def columns(self, start: int, stop: int) -> "GaussianMatrix":
        """Columns start, ..., stop - 1, as a view on the same memory."""

    def dense(self) -> Tensor:
        """The whole matrix; raises if it does not fit into memory."""

    def norm_bound(self, failure: float = 1e-9) -> NormBound:
        """An upper bound on the spectral norm that fails with at most the given probability."""


def multiply(matrix: GaussianMatrix, inputs: Tensor, product: Callable[[Tensor], Tensor]) -> Tensor:
    """Check inputs (cols,) or (cols, b) and return their product, which torch can differentiate and batch.

    `product` computes it for inputs that were checked; a backward pass multiplies with the transpose.
    """
    cols, dtype = matrix.shape[1], matrix.dtype
    if not isinstance(inputs, Tensor):
        raise InputError(f"inputs must be a tensor, got {type(inputs).__name__}: use torch.as_tensor")
    if inputs.dtype != dtype:
        raise InputError(f"inputs must be {dtype} like the matrix, got {inputs.dtype}: convert with .to({dtype})")
    if inputs.device.type != "cpu":
        raise InputError(f"inputs must be on the cpu, got {inputs.device}: move them with .cpu()")
    if inputs.ndim not in (1, 2) or inputs.shape[0] != cols:
        shape = tuple(inputs.shape)
        raise InputError(f"inputs must have shape ({cols},) or ({cols}, b), got {shape}: give them as columns")
    outputs: Tensor = _Product.apply(inputs, matrix, product)  # type: ignore[no-untyped-call]
    return outputs


class _Product(torch.autograd.Function):
    """A linear operation whose adjoint is the product with the transpose. Entries are read in `forward` only."""

    @staticmethod
    def forward(inputs: Tensor, matrix: GaussianMatrix, product: Callable[[Tensor], Tensor]) -> Tensor:
        check_finite(inputs, "inputs")
        return product(inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.matrix = inputs[1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return ctx.matrix.T @ gradients[0], None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Any:
        return ctx.matrix @ tangents[0]

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, ...], inputs: Tensor, matrix: GaussianMatrix, _: Any) -> tuple[Tensor, int]:
        batch = inputs.movedim(in_dims[0], -1)  # cols [b] batch
        outputs = matrix @ batch.reshape(batch.shape[0], -1)  # rows (b batch)
        return outputs.reshape(-1, *batch.shape[1:]), batch.ndim - 1


def check_failure(failure: float) -> float:
    """Return a failure probability as a float strictly between 0 and 1."""
    if not 0 < failure < 1:
        raise InputError(f"failure must lie strictly between 0 and 1, got {failure}: give a probability such as 1e-9")
    return float(failure)


def check_columns(start: int, stop: int, cols: int) -> tuple[int, int]:
    """Return the ends of a block of columns, which must not be empty, as ints."""
    first, last = operator.index(start), operator.index(stop)
    if not 0 <= first < last <= cols:
        raise InputError(f"columns need 0 <= start < stop <= {cols}, got {first} and {last}: give a block inside")
    return first, last


def empty(rows: int, cols: int, dtype: torch.dtype) -> Tensor:
    """Allocate without writing, by NumPy: it requests huge pages, so that the first touch costs a seventh as much."""
    return torch.from_numpy(np.empty((rows, cols), dtype=np.float64 if dtype == torch.float64 else np.float32))


def source_of(seed: int) -> np.random.Generator:
    """Return the generator of one matrix, unrelated to those of contexts with the same seed."""
    return generator(seed, "gaussian matrix")


def draw_normal(out: Tensor, scale: float, source: np.random.Generator) -> None:
    """Fill a contiguous tensor with independent N(0, scale^2) numbers.

    float64 takes NumPy's ziggurat. In float32 it is more than twice as slow as torch's vectorised sampler, whose
    generator knows only 2^32 seeds; the inverse of the distribution function, applied to uniform numbers, takes 1.2
    times as long as torch's. Both of these start from 24 random bits per number: here, |z| <= 5.3 scale.
    """
    flat = out.view(-1)
    if out.dtype == torch.float64:
        source.standard_normal(out=flat.numpy())
        flat.mul_(scale)
        return
    for start in range(0, len(flat), _BLOCK):
        block = flat[start : start + _BLOCK]
        source.random(out=block.numpy(), dtype=np.float32)  # k / 2^24, to be moved to the middle of its interval
        block.mul_(2).add_(2**-24 - 1).erfinv_().mul_(math.sqrt(2) * scale)
