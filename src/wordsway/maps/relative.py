"""Relative positions: a number for each head and distance of two words, added to their score."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from wordsway.checks import as_array
from wordsway.errors import InputError


class RelativeBias:
    """Adds table[h, m + clamp(k - j, -m, m)] to the score that word j gives to word k in head h.

    It does not depend on the context, so that derivatives of scores are those without it.

    Parameters
    ----------
    table : array (heads, 2 m + 1)
        One entry for each distance from -m to m; the ends serve all larger distances too.
    """

    def __init__(self, table: Any) -> None:
        self.table = as_array(table, "table", ("heads", "distances"))
        if self.table.shape[1] % 2 == 0:
            raise InputError(f"table must have an odd number 2 m + 1 of distances, got {self.table.shape[1]}")

    def check(self, heads: int) -> None:
        """Refuse another number of heads."""
        if len(self.table) != heads:
            raise InputError(f"relative positions must have a row for each of {heads} heads, got {len(self.table)}")

    def matrix(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return what is added to scores between words at these positions, (heads, rows, columns)."""
        most = self.table.shape[1] // 2
        distances = (columns[None] - rows[:, None]).clamp(-most, most) + most
        return self.table[:, distances.to(self.table.device)]

    def half_range(self) -> Tensor:
        """Return half the largest difference of two entries, for each head, (heads,)."""
        ends = self.table.double()
        return (ends.amax(1) - ends.amin(1)) / 2

    def head(self, index: int) -> RelativeBias:
        """Return the part of one head."""
        return RelativeBias(self.table[index : index + 1])
