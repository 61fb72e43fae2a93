"""Reading arrays that a user gives to a map."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from wordsway.errors import InputError


def as_tensor(name: str, given: Any) -> Tensor:
    """What was given as a tensor; `name` is what the error calls it."""
    try:
        return torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        kind = type(given).__name__
        raise InputError(f"{name} must be numbers in an array, got {kind}: give a tensor or an even list") from None
