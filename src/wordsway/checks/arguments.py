"""Checks of numbers, names and positions; they load neither PyTorch nor NumPy."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

from wordsway.errors import InputError, nearest

MAX_TRIALS = 100_000  # of one setting: each is planned, and is a row of the store
_SMALL = 1e-150  # the square of such a length, and of its inverse, is still a normal number

# Numbers and names


def check_choice(name: str, value: str, known: Sequence[str]) -> str:
    """Return one of the known names; the error lists them and suggests the nearest."""
    if value not in known:
        raise InputError(f"{name} must be one of {', '.join(known)}, got {value!r}{nearest(value, known)}")
    return value


def check_positive(value: Any, name: str) -> float:
    """Return a finite number > 0, such as a radius or a norm, as a float."""
    number = _as_float(value)
    if not (math.isfinite(number) and number > 0):
        raise InputError(f"{name} must be a number > 0, got {describe(value)}")
    return number


def check_size(value: SupportsIndex, name: str) -> int:
    """Return a size such as n, d, k or depth as an int >= 1."""
    size = as_int(value)
    if size is None or size < 1:
        raise InputError(f"{name} must be an integer >= 1, got {describe(value)}")
    if size >= 2**63:
        raise InputError(f"{name} must be below 2^63, got {describe(value)}: choose a smaller one")
    return size


def check_at_most(value: SupportsIndex, name: str, limit: int, reason: str) -> int:
    """Return a size from 1 to `limit` as an int; `reason` completes the error message."""
    size = check_size(value, name)
    if size > limit:
        raise InputError(f"{name} must be at most {limit}, {reason}, got {size}: choose a smaller {name}")
    return size


def check_trials(trials: SupportsIndex) -> int:
    """Return a number of trials that can be planned and stored in reasonable time."""
    count = check_size(trials, "trials")
    if count > MAX_TRIALS:
        raise InputError(f"trials must be at most {MAX_TRIALS}, got {count}: run fewer at a time, with several seeds")
    return count


def check_seed(seed: SupportsIndex) -> int:
    """Return a seed as an int with 0 <= seed < 2^63."""
    value = as_int(seed)
    if value is None or not 0 <= value < 2**63:
        raise InputError(f"seed must be an integer with 0 <= seed < 2^63, got {describe(seed)}")
    return value


def check_index(value: SupportsIndex, size: int, name: str) -> int:
    """Return an index below `size`, such as that of a layer or a head, as an int."""
    index = as_int(value)
    if index is None or not 0 <= index < size:
        raise InputError(f"{name} must be from 0 to {size - 1}, got {describe(value)}")
    return index


def check_several(value: object, name: str) -> None:
    """Raise unless the value is a sequence or another iterable; a string counts as a single value."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InputError(f"{name} must be a sequence, got {describe(value)}: put it in a list")


def check_radius(radius: float | None, d: int) -> float:
    """Return the radius of the ball of perturbations; default: sqrt(d)."""
    if radius is None:
        return math.sqrt(d)
    value = _as_float(radius)
    if not (math.isfinite(value) and value > 0):
        default = f"leave it out for sqrt(d) = {math.sqrt(d):.4g}"
        raise InputError(f"radius must be a finite number > 0, got {describe(radius)}: {default}")
    if not _SMALL <= value <= 1 / _SMALL:
        raise InputError(f"radius must be from {_SMALL:g} to {1 / _SMALL:g}, so that it can be squared, got {value:g}")
    return value


# Positions of words


def check_word(n: int, word: SupportsIndex) -> int:
    """Return a position in a context of n words as an int; negative positions are refused."""
    position = as_int(word)
    if position is None or not 0 <= position < n:
        raise InputError(
            f"word must be 0..{n - 1}, got {describe(word)}: positions are integers counted from 0, never from the end"
        )
    return position


def check_words(n: int, words: Sequence[SupportsIndex]) -> list[int]:
    """Return distinct positions in a context of n words as ints; a list, a range or a 1-D integer array or tensor."""
    positions = [check_word(n, word) for word in words]
    if not positions:
        raise InputError("words must name at least one position, got none")
    if len(set(positions)) < len(positions):
        repeated = next(word for word in positions if positions.count(word) > 1)
        raise InputError(f"words must be distinct, got {repeated} more than once: add up its perturbations yourself")
    return positions


def check_position(n: int, word: Any) -> int | tuple[int, ...]:
    """Return a single position as an int, several (a list, a tuple, a range, a 1-D array) as a tuple."""
    return tuple(check_words(n, word)) if is_sequence(word) else check_word(n, word)


def is_sequence(word: object) -> bool:
    return getattr(word, "ndim", 0) > 0 or (isinstance(word, Sequence) and not isinstance(word, str))


# Scalars


def _as_float(value: object) -> float:
    """Return a scalar of Python, NumPy or torch as a float, and nan for anything else; bool is no number."""
    if _is_bool(value) or is_sequence(value) or isinstance(value, str):
        return math.nan
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return math.nan


def as_int(value: object) -> int | None:
    """Return an integer scalar of Python, NumPy or torch as an int, and None for anything else; bool is no integer."""
    if _is_bool(value) or is_sequence(value):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def _is_bool(value: object) -> bool:
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")


def describe(value: Any) -> str:
    """Describe a refused value in a few characters: scalars as they are, tensors and other things by their kind."""
    if hasattr(value, "ndim") and hasattr(value, "item"):  # of NumPy or torch, which need not be loaded
        if value.ndim > 0:
            return f"{type(value).__name__} of shape {tuple(value.shape)}"
        value = value.item()
    try:
        text = " ".join(repr(value).split())  # an error is one line
    except ValueError:  # an integer of thousands of digits is not written
        return type(value).__name__
    return text if len(text) <= 40 else type(value).__name__
