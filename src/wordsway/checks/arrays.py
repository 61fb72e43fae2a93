"""Checks of arrays and contexts."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from wordsway.errors import InputError
from wordsway.threads import suited

Values: TypeAlias = Tensor | npt.ArrayLike

CONTEXT_RULE = "a context is n words (rows) by d dimensions"
_RULE = "float32 or float64"
_FLOATS = (torch.float32, torch.float64)


def check_dtype(dtype: torch.dtype, name: str = "dtype") -> torch.dtype:
    """Return torch.float32 or torch.float64."""
    if dtype not in _FLOATS:
        raise dtype_error(name, str(dtype))
    return dtype


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
