"""What every Gaussian matrix answers, what its norm bound says, and the checks that both kinds share."""

import math
import operator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from wordsway.errors import InputError

DTYPES = (torch.float32, torch.float64)


@dataclass(frozen=True)
class NormBound:
    """An upper bound on the spectral norm of a matrix, and how far it can be trusted.

    Attributes
    ----------
    value
        The bound.
    failure
        Probability, over the draw of the matrix, that its norm exceeds `value`; 0 where it cannot.
    exact
        True where `value` is the norm itself up to rounding.
    """

    value: float
    failure: float
    exact: bool


@runtime_checkable
class GaussianMatrix(Protocol):
    """A rows x cols matrix of independent N(0, scale^2) entries, known through its products.

    A third kind of matrix needs these members only; ``wordsway.testing.GaussianMatrixConformance`` checks them.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    def dtype(self) -> torch.dtype:
        """Of the entries, of the questions it takes and of its answers."""

    @property
    def scale(self) -> float | None:
        """Standard deviation of an entry; None for a stored matrix whose law was not told."""

    def __matmul__(self, questions: Tensor) -> Tensor:
        """Multiply: (cols,) gives (rows,), and a block (cols, b) gives (rows, b)."""

    @property
    def T(self) -> "GaussianMatrix":
        """The transpose, as a view on the same memory."""

    def columns(self, start: int, stop: int) -> "GaussianMatrix":
        """Columns start, ..., stop - 1, as a view on the same memory."""

    def dense(self) -> Tensor:
        """The whole matrix, refused with an estimate when it does not fit."""

    def norm_bound(self, failure: float = 1e-9) -> NormBound:
        """An upper bound on the spectral norm that fails with at most the given probability."""


def check_size(rows: int, cols: int) -> tuple[int, int]:
    """Return both sizes as integers, refusing anything below 1."""
    sizes = []
    for name, size in (("rows", rows), ("cols", cols)):
        try:
            count = operator.index(size)
        except TypeError:
            raise InputError(f"{name} must be an integer, got {type(size).__name__}: give a whole number") from None
        if count < 1:
            raise InputError(f"{name} must be at least 1, got {count}: give a positive size")
        sizes.append(count)
    return sizes[0], sizes[1]


def check_scale(scale: float) -> float:
    """Return the standard deviation of an entry, refusing what is not a positive finite number."""
    try:
        value = float(scale)
    except (TypeError, ValueError):
        raise InputError(f"scale must be a number, got {type(scale).__name__}: give a standard deviation") from None
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"scale must be positive and finite, got {value}: give a standard deviation")
    return value


def check_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype, refusing all but float32 and float64."""
    if dtype not in DTYPES:
        raise InputError(f"a Gaussian matrix is float32 or float64, got {dtype}: choose torch.float64")
    return dtype


def check_failure(failure: float) -> float:
    """Return the failure probability, refusing what does not lie strictly between 0 and 1."""
    if not 0 < failure < 1:
        raise InputError(f"failure must lie strictly between 0 and 1, got {failure}: give a probability such as 1e-9")
    return float(failure)


def check_columns(start: int, stop: int, cols: int) -> tuple[int, int]:
    """Return the ends of a block of columns, refusing an empty block and one that leaves the matrix."""
    first, last = operator.index(start), operator.index(stop)
    if not 0 <= first < last <= cols:
        raise InputError(f"columns need 0 <= start < stop <= {cols}, got {first} and {last}: give a block inside")
    return first, last


def check_question(questions: Tensor, cols: int, dtype: torch.dtype) -> None:
    """Refuse a question whose type, dtype, device or shape does not fit; entries are checked by `check_finite`."""
    if not isinstance(questions, Tensor):
        raise InputError(f"a question must be a tensor, got {type(questions).__name__}: use torch.as_tensor")
    if questions.dtype != dtype:
        raise InputError(f"questions must be {dtype} like the matrix, got {questions.dtype}: convert with .to({dtype})")
    if questions.device.type != "cpu":
        raise InputError(f"questions must be on the cpu, got {questions.device}: move them with .cpu()")
    if questions.ndim not in (1, 2) or questions.shape[0] != cols:
        raise InputError(
            f"questions must have shape ({cols},) or ({cols}, b), got {tuple(questions.shape)}: give them as columns"
        )


def check_finite(values: Tensor, what: str) -> None:
    """Refuse NaN and infinite entries in one pass that allocates nothing: both ends are finite only if all are."""
    if values.numel() and not all(bool(torch.isfinite(end)) for end in torch.aminmax(values)):
        raise InputError(f"{what} must be finite, got NaN or infinity in shape {tuple(values.shape)}: remove them")
