"""Contexts: n words (rows) of dimension d, their normalisation and perturbation, drawn or read from files."""

import math
import os
from collections.abc import Sequence
from typing import BinaryIO, SupportsIndex

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from wordsway import memory
from wordsway.checks import (
    CONTEXT_RULE,
    Values,
    as_context,
    check_dtype,
    check_rows,
    check_size,
    check_word,
    check_words,
    dtype_error,
    float_tensor,
    is_sequence,
    row_name,
)
from wordsway.errors import InputError
from wordsway.seeds import derive, generator, normal

_NUMPY_MAGIC = b"\x93NUMPY"
_ZIP_MAGIC = b"PK\x03\x04"


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
    values = float_tensor(X, "a context")
    if values.ndim < 2:
        raise InputError(
            f"{CONTEXT_RULE}, got shape {tuple(values.shape)}: give a matrix, or several along leading dimensions"
        )
    check_rows(values)
    largest = values.detach().abs().amax(-1, keepdim=True)  # ... n 1; a constant factor, so it needs no gradient
    zero = largest[..., 0] == 0  # ... n
    if bool(zero.any()):
        where = row_name(zero.nonzero()[0].tolist())
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
    several = is_sequence(word)
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
    check_dtype(dtype)
    source = generator(seed, "context")
    # Three float64 copies live at once: the draw, the scaled rows and the result.
    memory.require(3 * 8 * rows * columns, f"drawing a {rows} x {columns} context", "use a smaller n or d")
    return normalize(normal(source, (rows, columns))).to(dtype)


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
            check_rows(context, (position,) if array.ndim == 3 else ())
    except (OSError, ValueError) as error:  # InputError is a ValueError: it only needs the name of the file
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read contexts from {os.fspath(path)}: {reason}") from error
    return contexts


def _check_step(delta: Values, tail: tuple[int, ...], like: Tensor) -> Tensor:
    """Return a perturbation of shape ``(..., *tail)`` in the dtype and on the device of `like`."""
    step = float_tensor(delta, "delta").to(like)
    if tuple(step.shape[-len(tail) :]) != tail:
        shape = ", ".join(["...", *map(str, tail)])
        raise InputError(f"delta must have shape ({shape}) for this word and context, got {tuple(step.shape)}")
    if not bool(torch.isfinite(step).all()):
        raise InputError("delta must be finite, got nan or inf: check what it was computed from")
    return step


def _read_npy(file: BinaryIO) -> npt.NDArray[np.floating]:
    """Read a 2-D or 3-D float array in C order and native byte order; nothing is read before its header is accepted."""
    shape, dtype = _read_header(file)
    if dtype.hasobject:
        raise InputError("it holds pickled Python objects, which can run code when loaded: save an array of floats")
    native = dtype.newbyteorder("=")
    if native not in (np.float32, np.float64):
        raise dtype_error("its array", str(dtype))
    if len(shape) not in (2, 3):
        raise InputError(f"{CONTEXT_RULE}, got shape {shape}: save (n, d), or (count, n, d) for several")
    if min(shape) < 1:
        raise InputError(f"{CONTEXT_RULE} with count, n, d >= 1, got shape {shape}: save at least one word")
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
