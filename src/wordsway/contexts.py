"""Contexts: n words (rows) of dimension d, normalised, perturbed, drawn at random or read from files."""

import math
import os
from collections.abc import Sequence
from typing import SupportsIndex

import numpy as np
import torch
from torch import Tensor

from wordsway import memory
from wordsway.checks import (
    CONTEXT_RULE,
    Values,
    as_context,
    check_dtype,
    check_finite,
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


def normalize(X: Values) -> Tensor:
    """Rescale every row to norm sqrt(d): x_j <- sqrt(d) x_j / |x_j| (Assumption 3.1).

    Parameters
    ----------
    X
        ``(..., n, d)``: a context, or a batch of contexts along leading dimensions.

    Returns
    -------
    Tensor
        New tensor of the same shape, dtype and device; differentiable in `X`.

    Raises
    ------
    InputError
        If a row is zero or not finite: the first such row is named, and its context in a batch.

    Notes
    -----
    Rows are divided by their largest entry before norms are computed, so that entries as large as 1e300 or as small as
    a subnormal number neither overflow nor vanish. O(size of X) time and memory.
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
    """Perturb one or several words of a context: X^i(Delta) = X + e_i Delta^T.

    Parameters
    ----------
    X
        Context, ``(n, d)``; it is not modified.
    word
        Position of the word, or a sequence of m distinct positions.
    delta
        ``(..., d)`` for one position, ``(..., m, d)`` for a sequence; converted to the dtype and device of `X`.

    Returns
    -------
    Tensor
        ``(..., n, d)``: one perturbed context per leading index of `delta`, differentiable in `X` and `delta`. The rows
        of other words are the same bytes as in `X`.

    Notes
    -----
    |Delta| is not restricted to a ball here: the radius belongs to the search. O(size of the result) time and memory; a
    map's one-word response computes the features of these contexts without building them.
    """
    context = as_context(X)  # n d
    n, d = context.shape
    several = is_sequence(word)
    words = check_words(n, word) if several else [check_word(n, word)]  # type: ignore[arg-type]
    tail = (len(words), d) if several else (d,)
    step = float_tensor(delta, "delta").to(context)
    if tuple(step.shape[-len(tail) :]) != tail:
        shape = ", ".join(["...", *map(str, tail)])
        raise InputError(f"delta must have shape ({shape}) for this word and context, got {tuple(step.shape)}")
    check_finite(step, "delta")
    if not several:
        step = step.unsqueeze(-2)  # ... 1 d
    index = torch.tensor(words, device=context.device)  # m
    return torch.index_copy(context.expand(*step.shape[:-2], n, d), -2, index, context[index] + step)


def gaussian_context(
    n: SupportsIndex, d: SupportsIndex, seed: SupportsIndex = 0, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Draw a context with i.i.d. Gaussian directions: rows uniform on the sphere of radius sqrt(d).

    Parameters
    ----------
    n, d
        Number of words and dimension, at least 1. With d = 1 every row is +1 or -1.
    seed
        Seed of the context's own generator; global generators are neither read nor set.
    dtype
        float64 or float32. The context is drawn in float64 and rounded, so both dtypes describe the same context.

    Returns
    -------
    Tensor
        ``(n, d)`` on the CPU.
    """
    rows, columns = check_size(n, "n"), check_size(d, "d")
    source = generator(seed, "context")
    check_dtype(dtype)
    # Three float64 copies exist at once: the draw, the scaled rows and the result.
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

    Labels -1 and +1 alternate, starting with a random one: half of the samples are of each class.

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
        ``(count, n, d)`` in the file's dtype, C-contiguous; a single context has count 1. Rows are not normalised.

    Raises
    ------
    InputError
        In one line, if the file cannot be read, is no complete .npy file, holds pickled objects or numbers of another
        dtype, does not fit into memory (known from its header, before the numbers are read), or holds a bad context.
    """
    try:
        return _read_contexts(path)
    except (OSError, ValueError) as error:  # InputError is a ValueError: it only needs the name of the file
        reason = getattr(error, "strerror", None) or error
        remedy = ": check the path" if isinstance(error, FileNotFoundError) else ""
        raise InputError(f"cannot read contexts from {os.fspath(path)}: {reason}{remedy}") from error


def _read_contexts(path: str | os.PathLike[str]) -> Tensor:
    try:
        header = np.lib.format.open_memmap(path, mode="r")  # reads the header only, and no pickled objects
    except OSError:
        raise
    except Exception as error:  # NumPy parses the header as Python source and lets any error of its parser through
        raise InputError("it is no complete .npy file of numbers: save one array of floats with numpy.save") from error
    shape, native = header.shape, header.dtype.newbyteorder("=")
    if native not in (np.float32, np.float64):
        raise dtype_error("its array", str(native))
    if len(shape) not in (2, 3) or min(shape) < 1:
        raise InputError(
            f"{CONTEXT_RULE}, n, d >= 1, got shape {shape}: save (n, d), or (count, n, d) for several contexts"
        )
    memory.require(2 * header.nbytes, f"loading an array of shape {shape}", "save fewer or smaller contexts")
    array = np.require(np.load(path, allow_pickle=False), native, ["C"])  # a second copy only if the file is unusual
    contexts = torch.from_numpy(array.reshape(-1, *shape[-2:]))  # count n d
    for position, context in enumerate(contexts):  # one at a time keeps the temporaries small
        check_rows(context, (position,) if len(shape) == 3 else ())
    return contexts
