"""Training samples and a new one: checked before anything is computed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from wordsway.contexts import as_context
from wordsway.errors import InputError


def check_samples(contexts: Any, X: Any) -> tuple[Tensor, Tensor]:
    """The new sample and the training samples, of one shape, the new one not among them."""
    context = as_context(X)
    samples = torch.as_tensor(contexts)
    if samples.ndim != 3 or len(samples) == 0 or not samples.is_floating_point():
        raise InputError(f"contexts must be floats of shape (N, n, d), N >= 1, got {tuple(samples.shape)}")
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
