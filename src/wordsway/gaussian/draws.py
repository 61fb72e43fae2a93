"""Room for numbers, and normal numbers from an own generator to fill it."""

import math

import numpy as np
import torch
from torch import Tensor

from wordsway.seeds import check_seed

_WORD = 0xFFFFFFFF
_MARK = 0x77615953  # of the streams of this room
_BLOCK = 1 << 16  # numbers drawn at a time: half a megabyte, so that the passes below stay in cache


def empty(rows: int, cols: int, dtype: torch.dtype) -> Tensor:
    """Allocate without writing, by NumPy: it asks for huge pages, so that the first touch costs a seventh as much."""
    return torch.from_numpy(np.empty((rows, cols), dtype=np.float64 if dtype == torch.float64 else np.float32))


def own_generator(seed: int) -> torch.Generator:
    """Make the generator of one matrix from its seed.

    The seed is marked first, so that a context and a matrix drawn from the same seed do not share their numbers. A
    torch generator on the CPU takes 32 bits: seeds below 2^32 give different matrices, larger ones are folded.
    """
    high, low = divmod(check_seed(seed), _WORD + 1)
    word = (low + 0x9E3779B9 * high) & _WORD
    return torch.Generator().manual_seed(word ^ _MARK)


def draw_normal(out: Tensor, scale: float, generator: torch.Generator) -> None:
    """Fill a contiguous tensor with independent N(0, scale^2) numbers.

    float32 takes torch's own vectorised sampler. Its float64 sampler is scalar, so there the Box-Muller transform is
    applied here to whole blocks, which takes about half the time.
    """
    flat = out.view(-1)
    if out.dtype == torch.float32:
        flat.normal_(0.0, scale, generator=generator)
        return
    for start in range(0, flat.numel(), _BLOCK):
        _box_muller(flat[start : start + _BLOCK], scale, generator)


def _box_muller(out: Tensor, scale: float, generator: torch.Generator) -> None:
    """Fill one block: sqrt(-2 log(1 - a)) times cos(2 pi b) and sin(2 pi b), with a and b uniform on [0, 1)."""
    count = out.numel()
    half = (count + 1) // 2
    radius = torch.rand(half, dtype=out.dtype, generator=generator)
    angle = torch.rand(half, dtype=out.dtype, generator=generator).mul_(2 * math.pi)
    radius.neg_().log1p_().mul_(-2 * scale * scale).sqrt_()
    torch.mul(torch.cos(angle), radius, out=out[:half])
    torch.mul(angle[: count - half].sin_(), radius[: count - half], out=out[half:])
