"""Random numbers from a seed and a purpose: a context and weights drawn with one seed never share their numbers."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from typing import SupportsIndex

import numpy as np
import torch
from torch import Tensor

from wordsway.checks import check_seed


def derive(seed: SupportsIndex, purpose: str) -> int:
    """Return a seed for one purpose: a function of both arguments, unrelated to the seeds of other purposes."""
    return int.from_bytes(_hash(seed, purpose)[:8], "big") >> 1


def generator(seed: SupportsIndex, purpose: str) -> np.random.Generator:
    """Return a new generator for one seed and purpose; no global generator is read or set.

    Its state comes from all 256 bits of a hash, so that the generators of different seeds or purposes are unrelated.
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(int.from_bytes(_hash(seed, purpose), "big"))))


def _hash(seed: SupportsIndex, purpose: str) -> bytes:
    return hashlib.sha256(f"{check_seed(seed)}/{purpose}".encode()).digest()


def normal(
    source: np.random.Generator,
    shape: int | Sequence[int],
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Draw independent N(0, 1) numbers: in float64, then rounded, so that they are the same in every dtype."""
    return torch.from_numpy(source.standard_normal(shape)).to(device, dtype)


def signs(source: np.random.Generator, count: int) -> Tensor:
    """Draw -1 or +1 with equal probability, in float64; the first ones do not depend on `count`."""
    return torch.from_numpy(2.0 * source.integers(2, size=count) - 1)


@contextlib.contextmanager
def untouched(seed: int | None = None) -> Iterator[None]:
    """Restore torch's global generator on exit; inside, it starts from `seed` if one is given."""
    state = torch.get_rng_state()
    try:
        if seed is not None:
            torch.default_generator.manual_seed(seed)
        yield
    finally:
        torch.set_rng_state(state)
