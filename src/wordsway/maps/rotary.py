"""Rotary positions: queries and keys are rotated by an angle proportional to their position."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from wordsway.checks import as_array
from wordsway.errors import InputError


class Rotary:
    """Rotates coordinates i and i + m of the row at position s by the angle s * frequencies[i], i < m.

    Coordinates from 2 m on stay. A product of a rotated query and a rotated key depends only on the difference of
    their positions.

    Parameters
    ----------
    frequencies : array (m,)
        Radians per position.
    scale : float
        Factor on the rotated coordinates, used by some extensions of models to longer texts.
    """

    def __init__(self, frequencies: Any, scale: float = 1.0) -> None:
        self.frequencies = as_array(frequencies, "frequencies", ("m",))
        if not isinstance(scale, Real) or not math.isfinite(scale):
            raise InputError(f"scale must be a finite number, got {scale!r}")
        self.scale: float = float(scale)

    def check(self, size: int) -> None:
        """Refuse heads with too few coordinates."""
        if 2 * len(self.frequencies) > size:
            raise InputError(
                f"rotary positions must turn at most the {size} coordinates of a head, got {len(self.frequencies)} "
                f"frequencies, which turn {2 * len(self.frequencies)}"
            )

    def mean_turn(self, rows: Tensor, n: int) -> Tensor:
        """Rows (..., size) rotated by each of the positions 0..n - 1, and averaged."""
        frequencies = self.frequencies.double()
        angles = torch.arange(n, dtype=torch.float64, device=frequencies.device)[:, None] * frequencies
        return self._turned(rows, angles.cos().mean(0).to(rows), angles.sin().mean(0).to(rows))

    def turn(self, rows: Tensor, places: Tensor | None = None, back: bool = False) -> Tensor:
        """Rows (..., n, size) rotated by their positions (default: 0, 1, ...); `back` is the adjoint."""
        where = torch.arange(rows.shape[-2], device=rows.device) if places is None else places.to(rows.device)
        angles = where.to(rows.dtype)[:, None] * self.frequencies.to(rows)  # n m
        return self._turned(rows, angles.cos(), -angles.sin() if back else angles.sin())

    def _turned(self, rows: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        m = len(self.frequencies)
        first, second, rest = rows[..., :m], rows[..., m : 2 * m], rows[..., 2 * m :]
        turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
        return torch.cat([self.scale * turned, rest], dim=-1)
