"""Products with a fixed matrix on oneDNN's layout of it: on processors of AMD twice as fast as PyTorch's default."""

from __future__ import annotations

import torch
from torch import Tensor

_ROWS = 512  # of the other factor, for which the layout is made; it serves any number of them
_MOST = 2**28  # bytes of a matrix that is copied


def available() -> bool:
    """Return whether PyTorch was built with oneDNN."""
    return bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


def pack(weight: Tensor) -> Tensor:
    """Return a copy of a matrix (p, d) in single precision on the CPU, for `linear`."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _ROWS)
    return packed


def linear(rows: Tensor, packed: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return rows W^T + bias for the packed W, (..., d) -> (..., p)."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, packed, bias, "none", [], "")
    return product


class FixedMatrix:
    """A matrix W (p, d) for many products with it and its transpose, packed where its precision and device allow it."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        fits = weight.dtype == torch.float32 and weight.device.type == "cpu" and weight.nbytes <= _MOST
        self._packed = (pack(weight), pack(weight.mT)) if fits and available() else None

    def product(self, rows: Tensor) -> Tensor:
        """Return rows W^T, (..., d) -> (..., p)."""
        return rows @ self.weight.mT if self._packed is None else linear(rows, self._packed[0])

    def adjoint(self, rows: Tensor) -> Tensor:
        """Return rows W, (..., p) -> (..., d)."""
        return rows @ self.weight if self._packed is None else linear(rows, self._packed[1])
