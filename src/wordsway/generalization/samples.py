"""Training samples and a new one: checked before anything is computed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from wordsway.checks import as_context
from wordsway.errors import InputError


def check_samples(contexts: Any, X: Any) -> tuple[Tensor, Tensor]:
    """The new sample and the training samples, of one shape, the new one not among them."""
    context, samples = as_context(X), as_samples(contexts)
    if samples.shape[1:] != context.shape:
        one, other = " x ".join(map(str, context.shape)), " x ".join(map(str, samples.shape[1:]))
        raise InputError(
            f"all contexts must have the same n x d, got {one} for the new sample and {other} for the others"
        )
    if not bool(torch.isfinite(samples).all()):
        raise InputError("contexts must be finite, got entries that are not")
    samples = samples.detach().to(context)
    if bool((samples == context).flatten(1).all(1).any()):
        raise InputError("the new sample must not be a training sample, got one that is: leave it out of the contexts")
    return context, samples


def as_samples(contexts: Any) -> Tensor:
    """Contexts as one tensor (N, n, d): an array, or a sequence of contexts of one shape."""
    rule = "contexts must be floats of shape (N, n, d), N >= 1"
    if isinstance(contexts, Sequence) and not isinstance(contexts, str):
        found = [as_context(context) for context in contexts]
        shapes = {" x ".join(map(str, context.shape)): None for context in found}
        if len(shapes) > 1:
            raise InputError(f"all contexts must have the same n x d, got {' and '.join(list(shapes)[:2])}")
        if not found:
            raise InputError(f"{rule}, got none")
        return torch.stack([context.to(found[0]) for context in found])
    try:
        samples = torch.as_tensor(contexts)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{rule}, got {type(contexts).__name__}") from error
    if samples.ndim != 3 or samples.numel() == 0 or not samples.is_floating_point():
        raise InputError(f"{rule}, got {tuple(samples.shape)} of {samples.dtype}")
    return samples


def check_label(y: Any) -> float:
    """The label of the new sample."""
    try:
        label = math.nan if isinstance(y, str) else float(y)
    except (TypeError, ValueError, RuntimeError):
        label = math.nan
    if label not in (-1.0, 1.0):
        raise InputError(f"the new sample's label must be -1 or +1, got {' '.join(repr(y).split())[:40]}")
    return label
