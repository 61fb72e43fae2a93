"""Sums of products Phi Phi^T that grow block by block."""

from __future__ import annotations

import numpy as np
import torch
from scipy.linalg import blas
from torch import Tensor


class Gram:
    """sum of F F^T over blocks of features F (N, rows); only one triangle of it is computed."""

    def __init__(self, count: int) -> None:
        self._half = np.zeros((count, count), order="F")

    def add(self, features: Tensor) -> None:
        """Add F F^T, in N^2 rows operations."""
        block = features.contiguous().numpy().T  # rows N, as BLAS stores it
        self._half = blas.dsyrk(1.0, block, beta=1.0, c=self._half, trans=1, lower=0, overwrite_c=1)

    def matrix(self) -> Tensor:
        """The whole sum so far, (N, N)."""
        return torch.from_numpy(np.triu(self._half) + np.triu(self._half, 1).T)
