"""Randomness from a seed and a purpose: a context and a weight drawn with one seed never share their numbers."""

from __future__ import annotations

import contextlib
import hashlib
import operator
from collections.abc import Iterator
from typing import SupportsIndex

import torch

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


def generator(seed: SupportsIndex, purpose: str) -> torch.Generator:
    """A generator of its own for one purpose; nothing global is read or set.

    A torch generator on the CPU takes 32 bits of its seed: among a thousand seeds two share their numbers with
    probability 1e-4, among a hundred thousand probably some do.
    """
    return torch.Generator().manual_seed(derive(seed, purpose))


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
