"""Gaussian weights in blocks of rows, the same however many rows are asked for and at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from wordsway.seeds import generator, normal

CHUNK = 1024  # rows that are drawn together


def feature_rows(width: int, d: int, seed: int, rows: int) -> Iterator[Tensor]:
    """The rows of a (width, d) matrix of independent N(0, 1/d) entries, about `rows` at a time.

    Row i depends on the seed, on d and on i alone: fewer rows of the same seed are the first ones. Drawn in float64,
    anew each time.
    """
    together = max(1, rows // CHUNK)
    chunks = -(-width // CHUNK)
    for first in range(0, chunks, together):
        parts = [_chunk(d, seed, number) for number in range(first, min(chunks, first + together))]
        block = parts[0] if len(parts) == 1 else torch.cat(parts)
        yield block[: width - first * CHUNK]


def _chunk(d: int, seed: int, number: int) -> Tensor:
    source = generator(seed, f"features {number}")
    return normal(source, (CHUNK, d)) / math.sqrt(d)
