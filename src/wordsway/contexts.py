"""Contexts: n words (rows) of dimension d, their normalisation and perturbation, drawn or read from files."""

import math
import operator
import os
from collections.abc import Iterable, Sequence
from typing import BinaryIO, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from wordsway import memory
from wordsway.errors import InputError
from wordsway.seeds import derive, generator

Values: TypeAlias = Tensor | npt.ArrayLike

_RULE = "a context is n words (rows) by d dimensions"
_NUMPY_MAGIC = b"\x93NUMPY"
_ZIP_MAGIC = b"PK\x03\x04"
_SMALL = 1e-150  # a length whose square is still a number, and so that of its inverse


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
    context = _float_tensor(X, "a context")
    if context.ndim != 2:
        raise InputError(f"{_RULE}, got shape {tuple(context.shape)}: give one matrix")
    _check_not_empty(context)
    _check_finite(context)
    return context


def check_readable(X: object) -> None:
    """Refuse what a map cannot read: it takes one context or several, as a tensor of floats."""
    if not isinstance(X, Tensor):
        raise InputError(f"a map reads a tensor (..., n, d), got {type(X).__name__}: use torch.as_tensor")
    if X.ndim < 2 or not X.is_floating_point():
        kind = f"shape {tuple(X.shape)} of {str(X.dtype).removeprefix('torch.')}"
        raise InputError(f"a map reads a tensor (..., n, d) of floats, got {kind}")


def normalize(X: Values) -> Tensor:
    """Rescale every row to norm sqrt(d): x_j <- sqrt(d) x_j / |x_j| (Assumption 3.1).

    Parameters
    ----------
    X
        ``(..., n, d)``: a context, or contexts along leading dimensions.

    Returns
    -------
    Tensor
        New tensor of the same shape, dtype and device; differentiable in `X`.

    Raises
    ------
    InputError
        If a row is zero or not finite: the first such row is named, and its context where there are several.

    Notes
    -----
    Rows are divided by their largest entry before norms are taken, so that entries as large as 1e300 or as small as a
    subnormal number neither overflow nor vanish. O(size of X) time and memory.
    """
    values = _float_tensor(X, "a context")
    if values.ndim < 2:
        raise InputError(
            f"{_RULE}, got shape {tuple(values.shape)}: give a matrix, or several along leading dimensions"
        )
    _check_not_empty(values)
    _check_finite(values)
    largest = values.detach().abs().amax(-1, keepdim=True)  # ... n 1; a constant factor, so it needs no gradient
    zero = largest[..., 0] == 0  # ... n
    if bool(zero.any()):
        where = _row_name(zero.nonzero()[0].tolist())
        raise InputError(f"{where} is zero and cannot be rescaled: every row needs a direction, drop or replace it")
    scaled = values / largest  # ... n d
    norm: Tensor = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)  # ... n 1
    return scaled * (math.sqrt(values.shape[-1]) / norm)


def perturb(X: Values, word: SupportsIndex | Sequence[SupportsIndex], delta: Values) -> Tensor:
    """Move one or several words of a context: X^i(Delta) = X + e_i Delta^T.

    Parameters
    ----------
    X
        Context, ``(n, d)``; it is not modified.
    word
        Position of the word, or a sequence of m distinct positions.
    delta
        ``(..., d)`` for one position, ``(..., m, d)`` for a sequence, taken in the dtype and on the device of `X`.

    Returns
    -------
    Tensor
        ``(..., n, d)``: one perturbed context for each leading index of `delta`, differentiable in `X` and `delta`. The
        rows of other words are the same bytes as in `X`.

    Notes
    -----
    No ball is enforced here: the radius belongs to the search. O(size of the result) time and memory; a map's one-word
    response answers the same question without building these contexts.
    """
    context = as_context(X)  # n d
    n, d = context.shape
    several = _is_sequence(word)
    words = check_words(n, word) if several else [check_word(n, word)]  # type: ignore[arg-type]
    step = _check_step(delta, (len(words), d) if several else (d,), context)
    if not several:
        step = step.unsqueeze(-2)  # ... 1 d
    index = torch.tensor(words, device=context.device)  # m
    moved = context[index] + step  # ... m d
    return torch.index_copy(context.expand(*step.shape[:-2], n, d), -2, index, moved)


def gaussian_context(
    n: SupportsIndex, d: SupportsIndex, seed: SupportsIndex = 0, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Draw a context with i.i.d. Gaussian directions: rows uniform on the sphere of radius sqrt(d).

    Parameters
    ----------
    n, d
        Number of words and dimension, at least 1. With d = 1 every row is +1 or -1.
    seed
        Seed of an own generator; the global one is neither read nor set.
    dtype
        float64 or float32. The draw is made in float64 and rounded, so both describe the same context.

    Returns
    -------
    Tensor
        ``(n, d)`` on the CPU.
    """
    rows, columns = check_size(n, "n"), check_size(d, "d")
    if dtype not in (torch.float32, torch.float64):
        raise InputError(f"dtype must be torch.float32 or torch.float64, got {dtype}")
    source = generator(seed, "context")
    # Three float64 copies live at once: the draw, the scaled rows and the result.
    memory.require(3 * 8 * rows * columns, f"drawing a {rows} x {columns} context", "use a smaller n or d")
    return normalize(torch.randn(rows, columns, generator=source, dtype=torch.float64)).to(dtype)


def gaussian_samples(
    count: SupportsIndex,
    n: SupportsIndex,
    d: SupportsIndex,
    seed: SupportsIndex = 0,
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, Tensor]:
    """Draw labelled Gaussian contexts; sample k does not depend on `count`.

    Labels -1 and +1 alternate, from a random one on: half of the samples are of each class.

    Returns
    -------
    contexts : Tensor (count, n, d)
    labels : Tensor (count,)
    """
    size = check_size(count, "count")
    rows, columns = check_size(n, "n"), check_size(d, "d")
    memory.require(2 * 8 * size * rows * columns, f"{size} contexts of {rows} x {columns}", "use fewer or smaller ones")
    contexts = torch.stack([gaussian_context(n, d, derive(seed, f"sample {k}"), dtype) for k in range(size)])
    first = derive(seed, "first label") % 2
    labels = torch.tensor([1.0 if (k + first) % 2 else -1.0 for k in range(size)], dtype=dtype)
    return contexts, labels


def load_contexts(path: str | os.PathLike[str]) -> Tensor:
    """Read contexts from a .npy file.

    Parameters
    ----------
    path
        File with one context ``(n, d)`` or several ``(count, n, d)``, float32 or float64, in any memory and byte order.

    Returns
    -------
    Tensor
        ``(count, n, d)`` in the file's dtype, C-contiguous; one context has count 1. Rows are not normalised.

    Raises
    ------
    InputError
        In one line, if the file cannot be read, is no complete .npy file, holds pickled objects or numbers of another
        dtype, does not fit in memory (known from its header, before anything is read), or holds a bad context.
    """
    try:
        with open(path, "rb") as file:
            array = _read_npy(file)
        contexts = torch.from_numpy(array if array.ndim == 3 else array[None])  # count n d
        for position, context in enumerate(contexts):  # one at a time keeps the temporaries small
            _check_finite(context, (position,) if array.ndim == 3 else ())
    except (OSError, ValueError) as error:  # InputError is a ValueError: it only needs the name of the file
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read contexts from {os.fspath(path)}: {reason}") from error
    return contexts


def check_word(n: int, word: SupportsIndex) -> int:
    """Return a position in a context of n words as an int; negative ones are refused, not counted from the end."""
    position = _as_int(word)
    if position is None or not 0 <= position < n:
        raise InputError(
            f"word must be 0..{n - 1}, got {_describe(word)}: positions are integers counted from 0, never from the end"
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


def check_radius(radius: float | None, d: int) -> float:
    """Return the radius of the ball that a word may move in: sqrt(d) for None, else a finite number > 0."""
    if radius is None:
        return math.sqrt(d)
    try:
        value = math.nan if _is_bool(radius) or _is_sequence(radius) or isinstance(radius, str) else float(radius)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        value = math.nan
    default = f"leave it out for sqrt(d) = {math.sqrt(d):.4g}"
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"radius must be a finite number > 0, got {_describe(radius)}: {default}")
    if not _SMALL <= value <= 1 / _SMALL:
        raise InputError(f"radius must be from {_SMALL:g} to {1 / _SMALL:g}, so that it can be squared, got {value:g}")
    return value


def check_size(value: SupportsIndex, name: str) -> int:
    """Return a size such as n, d, k or depth as an int >= 1; `name` is what the error calls it."""
    size = _as_int(value)
    if size is None or size < 1:
        raise InputError(f"{name} must be an integer >= 1, got {_describe(value)}")
    if size >= 2**63:
        raise InputError(f"{name} must be below 2^63, got {_describe(value)}: choose a smaller one")
    return size


def check_several(given: object, name: str) -> None:
    """Refuse one thing where several are asked for; a string is one thing."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(f"{name} must be a sequence, got {_describe(given)}: put it in a list")


def _as_int(value: object) -> int | None:
    """Return an integer scalar of Python, NumPy or torch as an int, and None for anything else; bool is no integer."""
    if _is_bool(value) or _is_sequence(value):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def _is_bool(value: object) -> bool:
    return isinstance(value, bool | np.bool_) or (isinstance(value, Tensor) and value.dtype == torch.bool)


def _is_sequence(word: object) -> bool:
    return getattr(word, "ndim", 0) > 0 or (isinstance(word, Sequence) and not isinstance(word, str))


def _describe(value: object) -> str:
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


def _check_step(delta: Values, tail: tuple[int, ...], like: Tensor) -> Tensor:
    """Return a perturbation of shape ``(..., *tail)`` in the dtype and on the device of `like`."""
    step = _float_tensor(delta, "delta").to(like)
    if tuple(step.shape[-len(tail) :]) != tail:
        shape = ", ".join(["...", *map(str, tail)])
        raise InputError(f"delta must have shape ({shape}) for this word and context, got {tuple(step.shape)}")
    if not bool(torch.isfinite(step).all()):
        raise InputError("delta must be finite, got nan or inf: check what it was computed from")
    return step


def _float_tensor(values: Values, what: str) -> Tensor:
    """Return `values` as a float32 or float64 tensor, without changing the precision; other dtypes are refused."""
    if isinstance(values, Tensor):
        if values.layout != torch.strided:
            raise InputError(f"{what} must be a dense tensor, got layout {values.layout}: use .to_dense()")
        if values.dtype not in (torch.float32, torch.float64):
            raise _dtype_error(what, str(values.dtype).removeprefix("torch."), values.dtype.is_complex)
        return values
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, or lists of what is no number
        raise InputError(f"{what} must be rectangular numbers, got rows of different lengths or kinds") from error
    native = array.dtype.newbyteorder("=")  # torch knows no other byte order
    if native not in (np.float32, np.float64):
        raise _dtype_error(what, str(array.dtype), array.dtype.kind == "c")
    # torch takes neither negative strides nor, without a warning, read-only memory; "E" drops subclasses.
    return torch.from_numpy(np.require(array, native, ["C", "W", "E"]))


def _dtype_error(what: str, dtype: str, is_complex: bool) -> InputError:
    remedy = "take the real part first" if is_complex else "convert it to float64 first"
    return InputError(f"{what} must be float32 or float64, got {dtype}: {remedy}")


def _check_not_empty(values: Tensor) -> None:
    if 0 in values.shape:
        raise InputError(f"{_RULE} with n, d >= 1, got shape {tuple(values.shape)}: give at least one word")


def _check_finite(values: Tensor, prefix: tuple[int, ...] = ()) -> None:
    """Refuse non-finite entries of ``(..., n, d)``; `prefix` is the place of `values` in a larger batch."""
    finite = torch.isfinite(values)
    if not bool(finite.all()):
        *row, column = (~finite).nonzero()[0].tolist()
        entry = values[(*row, column)].item()
        where = _row_name([*prefix, *row])
        raise InputError(f"{where} has {entry} in column {column}: every entry must be finite, drop or replace it")


def _row_name(index: list[int]) -> str:
    *batch, row = index
    if not batch:
        return f"row {row} of the context"
    return f"row {row} of context {batch[0] if len(batch) == 1 else tuple(batch)}"


def _read_npy(file: BinaryIO) -> npt.NDArray[np.floating]:
    """Read a 2-D or 3-D float array in C order and native byte order; nothing is read before its header is accepted."""
    shape, dtype = _read_header(file)
    if dtype.hasobject:
        raise InputError("it holds pickled Python objects, which can run code when loaded: save an array of floats")
    native = dtype.newbyteorder("=")
    if native not in (np.float32, np.float64):
        raise _dtype_error("its array", str(dtype), dtype.kind == "c")
    if len(shape) not in (2, 3):
        raise InputError(f"{_RULE}, got shape {shape}: save (n, d), or (count, n, d) for several")
    if min(shape) < 1:
        raise InputError(f"{_RULE} with count, n, d >= 1, got shape {shape}: save at least one word")
    needed = math.prod(shape) * dtype.itemsize
    present = os.fstat(file.fileno()).st_size - file.tell()
    if present < needed:
        raise InputError(f"it is cut short: shape {shape} needs {needed} bytes, got {present}: save or copy it again")
    memory.require(2 * needed, f"loading an array of shape {shape}", "save fewer or smaller contexts")
    file.seek(0)
    array = np.lib.format.read_array(file, allow_pickle=False)
    return np.require(array, native, ["C"])  # a copy, the second one required above, only if the file is unusual


def _read_header(file: BinaryIO) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    """Return shape and dtype, leaving `file` at the first entry."""
    magic = file.read(len(_NUMPY_MAGIC))
    file.seek(0)
    if magic.startswith(_ZIP_MAGIC):
        raise InputError("it is a .npz or zip archive: save one array with numpy.save")
    if magic != _NUMPY_MAGIC:
        raise InputError("it is not a .npy file: save one array with numpy.save")
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        else:  # version 3 only adds names of fields, and fields are refused anyway
            shape, _, dtype = np.lib.format.read_array_header_2_0(file)
    except Exception as error:  # NumPy parses the header as Python source and lets any of its parser's errors through
        raise InputError("its .npy header is damaged: save or copy it again") from error
    return shape, dtype
