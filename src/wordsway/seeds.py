"""Randomness from a seed and a purpose: a context and a weight drawn with one seed never share their numbers."""

from __future__ import annotations

import contextlib
import hashlib
import operator
from collections.abc import Iterator, Sequence
from typing import SupportsIndex

import numpy as np
import torch
from torch import Tensor

from wordsway.errors import InputError, one_line


def check_seed(seed: SupportsIndex) -> int:
    """Return a seed as an int that every generator takes: 0 <= seed < 2^63."""
    try:
        value = -1 if isinstance(seed, bool) else operator.index(seed)
    except (TypeError, ValueError):
        value = -1
    if not 0 <= value < 2**63:
        raise InputError(f"seed must be an integer with 0 <= seed < 2^63, got {one_line(repr(seed), 40)}")
    return value


def derive(seed: SupportsIndex, purpose: str) -> int:
    """A seed of its own for one purpose: the same every time, unrelated to those of other purposes."""
    digest = hashlib.sha256(f"{check_seed(seed)}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: SupportsIndex, purpose: str) -> np.random.Generator:
    """Return a new generator for one seed and purpose; no global generator is read or set.

    All 256 bits of a hash of seed and purpose enter the state of the generator, so that no two of them are the same.
    """
    digest = hashlib.sha256(f"{check_seed(seed)}/{purpose}".encode()).digest()
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(int.from_bytes(digest, "big"))))


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
    """Leave torch's global generator as it was; inside, it starts from `seed` where one is given."""
    state = torch.get_rng_state()
    try:
        if seed is not None:
            torch.default_generator.manual_seed(seed)
        yield
    finally:
        torch.set_rng_state(state)
