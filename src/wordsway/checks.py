"""Checks of arguments: each returns the value in the form that is used, or raises an `InputError` of one line."""

import itertools
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from wordsway.errors import InputError, nearest
from wordsway.threads import suited

Values: TypeAlias = Tensor | npt.ArrayLike

CONTEXT_RULE = "a context is n words (rows) by d dimensions"
MAX_TRIALS = 100_000  # of one setting: each is planned, and is a row of the store
_RULE = "float32 or float64"
_FLOATS = (torch.float32, torch.float64)
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


def check_dtype(dtype: torch.dtype, name: str = "dtype") -> torch.dtype:
    """Return torch.float32 or torch.float64."""
    if dtype not in _FLOATS:
        raise dtype_error(name, str(dtype))
    return dtype


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


# Arrays


def as_array(values: Values, name: str, shape: Sequence[int | str] | None = None, finite: bool = True) -> Tensor:
    """Return real numbers as a detached tensor: float32 and float64 as they are, all others as float64.

    Parameters
    ----------
    values
        Tensor, NumPy array, nested list or number.
    name
        What the error calls them.
    shape
        One entry per axis: the size that it must have, or a name for any size >= 1. Default: any shape.
    finite
        Whether to refuse nan and inf.
    """
    tensor = as_tensor(values, name, "real numbers").detach()
    if tensor.is_complex():
        raise dtype_error(name, _dtype_name(tensor), "real numbers")
    tensor = tensor if tensor.dtype in _FLOATS else tensor.double()
    if shape is not None and not _fits(tensor.shape, shape):
        wanted = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
        raise InputError(f"{name} must have the shape ({wanted}), got {tuple(tensor.shape)}")
    if finite:
        check_finite(tensor, name)
    return tensor


def float_tensor(values: Values, name: str) -> Tensor:
    """Return `values` as a tensor that is float32 or float64 already; other dtypes are refused."""
    tensor = as_tensor(values, name, _RULE)
    if tensor.dtype not in _FLOATS:
        raise dtype_error(name, _dtype_name(tensor))
    return tensor


def dtype_error(name: str, dtype: str, rule: str = _RULE) -> InputError:
    remedy = "take the real part first" if "complex" in dtype else "convert it to float64 first"
    return InputError(f"{name} must be {rule}, got {dtype}: {remedy}")


def all_finite(values: Tensor) -> bool:
    """Whether no entry is nan or inf, in one pass that allocates nothing: both ends are finite only if all are."""
    return not values.numel() or all(math.isfinite(end) for end in torch.aminmax(values.detach()))


def check_finite(values: Tensor, name: str) -> None:
    """Raise on nan and inf."""
    if not all_finite(values):
        raise InputError(f"{name} must be finite, got nan or inf: drop or replace those entries")


def as_tensor(values: Values, name: str, rule: str = "numbers") -> Tensor:
    """Return numbers of any dtype as a tensor: a tensor itself, or one that shares its memory with an array."""
    if isinstance(values, Tensor):
        if values.layout != torch.strided:
            raise InputError(f"{name} must be a dense tensor, got layout {values.layout}: use .to_dense()")
        return values
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, or lists of what is no number
        raise InputError(f"{name} must be rectangular numbers, got rows of different lengths or kinds") from error
    native = array.dtype.newbyteorder("=")
    if native.kind not in "biufc":
        unknown = array.dtype == object and not isinstance(values, np.ndarray)  # such as None
        kind = type(values).__name__ if unknown else str(native)
        raise InputError(f"{name} must be {rule}, got {kind}: give an array or a list of numbers")
    if native == np.longdouble:  # which torch does not have
        raise dtype_error(name, str(native), rule)
    # torch takes neither another byte order, negative strides nor, without a warning, read-only memory; "E" drops
    # subclasses of arrays
    return torch.from_numpy(np.require(array, native, ["C", "W", "E"]))


def _fits(shape: torch.Size, wanted: Sequence[int | str]) -> bool:
    return len(shape) == len(wanted) and all(
        have >= 1 if isinstance(want, str) else have == want for have, want in zip(shape, wanted, strict=True)
    )


def _dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


# Contexts


def as_context(X: Values) -> Tensor:
    """Check that `X` is a context and return it as a tensor.

    Parameters
    ----------
    X
        Tensor, NumPy array or nested list, n by d with n, d >= 1, float32 or float64, all entries finite.

    Returns
    -------
    Tensor
        n by d, in the dtype and on the device of `X`. A tensor is returned itself; an array shares its memory with the
        tensor where it can.

    Raises
    ------
    InputError
        On another rank, an empty context, another dtype, or a non-finite entry (the first row with one is named).
    """
    context = float_tensor(X, "a context")
    if context.ndim != 2:
        raise InputError(f"{CONTEXT_RULE}, got shape {tuple(context.shape)}: give one matrix")
    check_rows(context)
    return context


def as_contexts(X: Any) -> Tensor:
    """Return contexts of one shape as a tensor (count, n, d): an array of three axes, or a sequence of contexts."""
    rule = "contexts must have the shape (count, n, d) with count, n, d >= 1"
    if isinstance(X, Sequence) and not isinstance(X, str):
        contexts = [as_context(context) for context in X]
        shapes = list(dict.fromkeys(" x ".join(map(str, context.shape)) for context in contexts))
        if not shapes:
            raise InputError(f"{rule}, got none")
        if len(shapes) > 1:
            raise InputError(f"all contexts must have the same n x d, got {shapes[0]} and {shapes[1]}")
        return torch.stack([context.to(contexts[0]) for context in contexts])
    batch = float_tensor(X, "contexts")
    if batch.ndim != 3 or 0 in batch.shape:
        raise InputError(f"{rule}, got {tuple(batch.shape)}")
    check_rows(batch)
    return batch


def check_rows(values: Tensor, prefix: tuple[int, ...] = ()) -> None:
    """Raise on contexts ``(..., n, d)`` that are empty or not finite; `prefix` is their index in a larger batch."""
    if 0 in values.shape:
        raise InputError(f"{CONTEXT_RULE} with n, d >= 1, got shape {tuple(values.shape)}: give at least one word")
    with suited(values.numel()):
        complete = all_finite(values)
    if not complete:
        *row, column = (~torch.isfinite(values)).nonzero()[0].tolist()
        entry, where = values[(*row, column)].item(), row_name([*prefix, *row])
        raise InputError(f"{where} has {entry} in column {column}: every entry must be finite, drop or replace it")


def check_readable(X: object) -> None:
    """Raise on what a map cannot read: it takes a single context or a batch, as a tensor of floats."""
    if not isinstance(X, Tensor):
        raise InputError(f"a map reads a tensor (..., n, d), got {type(X).__name__}: use torch.as_tensor")
    if X.ndim < 2 or not X.is_floating_point():
        raise InputError(f"a map reads a tensor (..., n, d) of floats, got shape {tuple(X.shape)} of {_dtype_name(X)}")


def like_parameters(phi: object, X: Tensor) -> Tensor:
    """Return contexts in the dtype and on the device of a torch module's parameters; as they are for any other map."""
    tensors = itertools.chain(phi.parameters(), phi.buffers()) if isinstance(phi, torch.nn.Module) else ()
    weight = next((tensor for tensor in tensors if tensor.is_floating_point()), None)
    if weight is None:
        return X
    if weight.dtype not in _FLOATS:
        raise dtype_error(f"the dtype of {type(phi).__name__}", _dtype_name(weight))
    return X.to(weight.device, weight.dtype)


def row_name(index: list[int]) -> str:
    """Return what errors call a row of a context, or of a batch of contexts."""
    *batch, row = index
    if not batch:
        return f"row {row} of the context"
    return f"row {row} of context {batch[0] if len(batch) == 1 else tuple(batch)}"


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
    return isinstance(value, bool | np.bool_) or (isinstance(value, Tensor) and value.dtype == torch.bool)


def describe(value: object) -> str:
    """Describe a refused value in a few characters: scalars as they are, tensors and other things by their kind."""
    if isinstance(value, Tensor | np.generic | np.ndarray):
        if value.ndim > 0:
            return f"{type(value).__name__} of shape {tuple(value.shape)}"
        value = value.item()
    try:
        text = " ".join(repr(value).split())  # an error is one line
    except ValueError:  # an integer of thousands of digits is not written
        return type(value).__name__
    return text if len(text) <= 40 else type(value).__name__
