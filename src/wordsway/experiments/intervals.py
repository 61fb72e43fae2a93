"""Confidence intervals of shares, and of the difference of two shares that are measured on the same texts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from scipy.special import betaincinv, ndtri

LEVEL = 0.95
SHARE_INTERVAL = "Clopper-Pearson, 95%"
DIFFERENCE_INTERVAL = "Bonett-Price for paired shares, 95%"


@dataclass(frozen=True)
class Share:
    """A share of texts with its Clopper-Pearson interval, which covers the true share with 95% probability or more.

    Attributes
    ----------
    count, total : int
    open : int
        Texts that may belong to the count, which is unknown: the upper end of the interval counts them.
    """

    count: int
    total: int
    open: int = 0

    @property
    def value(self) -> float | None:
        return self.count / self.total if self.total else None

    @property
    def low(self) -> float:
        return float(betaincinv(self.count, self.total - self.count + 1, (1 - LEVEL) / 2)) if self.count else 0.0

    @property
    def high(self) -> float:
        most = self.count + self.open
        return float(betaincinv(most + 1, self.total - most, (1 + LEVEL) / 2)) if most < self.total else 1.0

    def to_dict(self) -> dict[str, Any]:
        plain = {"value": self.value, "low": self.low, "high": self.high, "count": self.count, "total": self.total}
        return {**plain, "open": self.open} if self.open else plain


@dataclass(frozen=True)
class PairedDifference:
    """The difference of two shares on the same texts, with the interval of Bonett and Price (2012).

    Attributes
    ----------
    gained, lost : int
        Texts that belong to the first count alone, and to the second alone.
    total : int
    """

    gained: int
    lost: int
    total: int

    @property
    def value(self) -> float | None:
        return (self.gained - self.lost) / self.total if self.total else None

    @property
    def interval(self) -> tuple[float, float]:
        # One text is added to each of the two counts, which makes the interval of Wald cover at small counts too.
        size = self.total + 2
        first, second = (self.gained + 1) / size, (self.lost + 1) / size
        width = float(ndtri((1 + LEVEL) / 2)) * math.sqrt((first + second - (first - second) ** 2) / size)
        return max(-1.0, first - second - width), min(1.0, first - second + width)

    def to_dict(self) -> dict[str, Any]:
        low, high = self.interval
        counts = {"gained": self.gained, "lost": self.lost, "total": self.total}
        return {"value": self.value, "low": low, "high": high, **counts}
