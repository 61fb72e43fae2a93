"""The smallest eigenvalue of a kernel, with what it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.linalg
import torch
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh
from torch import Tensor

from wordsway.checks import as_context
from wordsway.errors import InputError
from wordsway.records import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DENSE = 400  # up to this size all eigenvalues are computed


@dataclass(frozen=True, eq=False, repr=False)
class SmallestEigenvalue(Record):
    """The smallest eigenvalue of a symmetric matrix K.

    Attributes
    ----------
    value : float
    residual : float
        |K v - value v| for the unit vector v: an eigenvalue lies within it of `value`.
    vector : Tensor (N,)
    status : str
        "regular", or "singular" where the value is below the rounding errors of K, N eps |K|: then it may be 0.
    method : str
        "dense", or "inverse" for inverse iteration on a Cholesky factor.
    floor : float
        N eps |K|, eps that of the dtype of K: smaller values mean nothing.
    """

    value: float
    residual: float
    vector: Tensor
    status: str
    method: str
    floor: float

    summary_fields = ("value", "residual", "status", "method")
    json_names: ClassVar = {"value": "smallest_eigenvalue"}

    @property
    def singular(self) -> bool:
        return self.status == "singular"

    def draw(self, ax: Axes) -> None:
        """Draw the eigenvector: which samples the kernel can hardly tell apart."""
        ax.bar(range(len(self.vector)), self.vector.tolist())
        ax.set(xlabel="sample", ylabel="entry of the eigenvector", title=f"smallest eigenvalue {self.value:.4g}")


def smallest_eigenvalue(K: Any) -> SmallestEigenvalue:
    """The smallest eigenvalue of a symmetric matrix (N, N), in float64.

    Notes
    -----
    All eigenvalues up to N = 400. Beyond, a Cholesky factor, N^3 / 3 operations, and Lanczos on the inverse, whose
    largest eigenvalue converges in a few steps; a matrix without a factor is singular in float64 or not positive, and
    falls back to the dense solver, O(N^3).
    """
    given = as_context(K).detach()
    kernel, eps = given.double(), torch.finfo(given.dtype).eps  # K was rounded to what it is given in
    if kernel.shape[0] != kernel.shape[1]:
        raise InputError(f"a kernel must be square, got {tuple(kernel.shape)}")
    size = float(kernel.abs().max())
    if float((kernel - kernel.mT).abs().max()) > 1e-8 * size:
        raise InputError("a kernel must be symmetric, got one that is not: average it with its transpose")
    matrix = kernel.cpu().numpy()
    norm = float(np.linalg.norm(matrix, np.inf))
    inverse = None if len(matrix) <= _DENSE else _inverse(matrix)
    method = "dense" if inverse is None else "inverse"
    value, vector = inverse if inverse is not None else _dense(matrix)
    floor = len(matrix) * eps * norm
    residual = float(np.linalg.norm(matrix @ vector - value * vector))
    status = "singular" if value <= floor else "regular"
    return SmallestEigenvalue(value, residual, torch.from_numpy(vector), status, method, float(floor))


def _dense(matrix: Any) -> tuple[float, Any]:
    values, vectors = scipy.linalg.eigh(matrix, subset_by_index=[0, 0])
    return float(values[0]), vectors[:, 0]


def _inverse(matrix: Any) -> tuple[float, Any] | None:
    """By Lanczos on the inverse; None where there is no Cholesky factor or it does not converge."""
    try:
        factor = scipy.linalg.cho_factor(matrix, lower=True)
        solver = LinearOperator(matrix.shape, matvec=lambda v: scipy.linalg.cho_solve(factor, v), dtype=np.float64)
        start = np.random.default_rng(0).standard_normal(len(matrix))
        _, vectors = eigsh(solver, k=1, which="LA", v0=start, tol=1e-12, maxiter=1000)
    except (np.linalg.LinAlgError, ArpackNoConvergence):
        return None
    vector = vectors[:, 0] / np.linalg.norm(vectors[:, 0])
    return float(vector @ (matrix @ vector)), vector
