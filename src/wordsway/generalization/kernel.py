"""The kernel K = Phi Phi^T of N samples: computed block by block, factored, and solved."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy import linalg
from torch import Tensor

from wordsway.errors import NumericalError

_ROUNDING = 10 * float(np.finfo(float).eps)  # times N + sqrt(p): the size of rounding errors in K relative to K
_COLUMNS = 4096  # of float32, that are summed at once
_FITTED = (
    1e-4  # largest error of an interpolator, relative to the labels: about as many digits of its gradient are right
)


class Gram:
    """The sum of F F^T over blocks F (N, columns) of features; only one triangle of it is computed."""

    def __init__(self, count: int) -> None:
        self._half = np.zeros((count, count), order="F")

    def add(self, features: Tensor) -> Gram:
        """Add F F^T, in N^2 operations per column; columns of float32 are summed in float32, the blocks in float64."""
        block = features.contiguous().numpy().T  # columns x N, as BLAS stores it
        if features.dtype == torch.float32:
            for part in np.array_split(block, -(-len(block) // _COLUMNS)):
                self._half += linalg.blas.ssyrk(1.0, part, trans=1, lower=0)
            return self
        self._half = linalg.blas.dsyrk(1.0, block, beta=1.0, c=self._half, trans=1, lower=0, overwrite_c=1)
        return self

    def matrix(self) -> Tensor:
        """Return the sum so far, (N, N)."""
        return torch.from_numpy(np.triu(self._half) + np.triu(self._half, 1).T)


class KernelSolver:
    """Solve K alpha = y for the kernel K (N, N) of N samples with p features.

    K is scaled to a unit diagonal before it is factored, so that samples with small features count like all others.

    Attributes
    ----------
    inverse_condition : float
        Estimate for the scaled K in the 1-norm; 0 where it has no Cholesky factor.
    singular : bool
        Whether an eigenvalue of the scaled K is at most 10 (N + sqrt(p)) eps times the largest one: it may be rounding.
        Solutions are then those of the pseudo-inverse, with these eigenvalues cut off.

    Notes
    -----
    N^3 / 3 operations for a Cholesky factor; where its condition shows that K may be singular, O(N^3) for all
    eigenvalues.
    """

    def __init__(self, kernel: Tensor, width: int) -> None:
        self.kernel, self.width = kernel, width
        matrix, cut = kernel.numpy(), _ROUNDING * (len(kernel) + math.sqrt(width))
        roots = np.sqrt(matrix.diagonal())
        self._scale = np.where(roots > 0, roots, 1.0)
        scaled = matrix / self._scale / self._scale[:, None]
        self._factor, self.inverse_condition = _cholesky(scaled, cut)
        self.singular = False
        if self._factor is None:
            values, vectors = linalg.eigh(scaled, check_finite=False)
            kept = values > cut * max(values[-1], 0.0)
            self.singular = not kept.all()
            root = self._scale[:, None] * vectors[:, kept] * np.sqrt(values[kept])  # N rank, K = root root^T
            self._inverse = linalg.pinv(root, check_finite=False) if kept.any() else root.T

    def solve(self, right: Tensor) -> Tensor:
        """Return K^-1 times a vector (N,), or K^+ times it where K is singular."""
        if self._factor is None:
            return torch.from_numpy(self._inverse.T @ (self._inverse @ right.numpy()))
        solution = linalg.cho_solve(self._factor, right.numpy() / self._scale, check_finite=False)
        return torch.from_numpy(solution / self._scale)

    def interpolate(self, labels: Tensor) -> tuple[Tensor, float]:
        """Return alpha (N,) with K alpha = y, refined once, and its largest error on a label.

        Raises NumericalError where K is singular, or so near to it that a label is missed by 1e-4 of the largest one.
        """
        alpha = self.solve(labels)
        alpha = alpha + self.solve(labels - self.kernel @ alpha)
        error = float((self.kernel @ alpha - labels).abs().max())
        if self.singular or not error <= _FITTED * float(labels.abs().max()):
            raise NumericalError(
                f"the kernel must be invertible, got a singular one of {len(self.kernel)} samples with {self.width} "
                "features: remove repeated or dependent inputs, or use fewer samples or another activation"
            )
        return alpha, error


def _cholesky(matrix: np.ndarray, cut: float) -> tuple[tuple[np.ndarray, bool] | None, float]:
    """Return the Cholesky factor, None where the inverse condition is not above the cut, and an estimate of that."""
    try:
        factor = linalg.cho_factor(matrix, lower=True, check_finite=False)
    except linalg.LinAlgError:
        return None, 0.0
    inverse_condition, _ = linalg.lapack.dpocon(factor[0], np.linalg.norm(matrix, 1), uplo="L")
    return (factor if inverse_condition > cut else None), float(inverse_condition)
