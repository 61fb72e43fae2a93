"""Memory for numbers, and normal numbers to fill it."""

import math

import numpy as np
import torch
from torch import Tensor

PURPOSE = "gaussian matrix"
_BLOCK = 1 << 16  # numbers drawn at a time in float32: 256 kB, so that the passes below stay in cache


def empty(rows: int, cols: int, dtype: torch.dtype) -> Tensor:
    """Allocate without writing, by NumPy: it asks for huge pages, so that the first touch costs a seventh as much."""
    return torch.from_numpy(np.empty((rows, cols), dtype=np.float64 if dtype == torch.float64 else np.float32))


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
