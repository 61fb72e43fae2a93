"""The modules of a model copied, their weights shared: what is done to the copy does not show in the original."""

import copy
from collections.abc import Iterable
from typing import Any

from torch import nn

_MARK = "_output_capturing_hooks_installed"  # where transformers notes its hooks, which the copy does not have


def skeleton(module: nn.Module, instead: Iterable[tuple[Any, Any]] = ()) -> Any:
    """Return a copy of a module in evaluation mode, without hooks and gradient flags, on the same memory.

    Parameters
    ----------
    module
        Stays as it is. Where its weights are changed in place, those of the copy change too.
    instead
        Pairs of an object inside it and what the copy has in its place.

    Notes
    -----
    The cost is that of the Python objects, a few milliseconds: no weight is copied.
    """
    memo: dict[int, Any] = {id(old): new for old, new in instead}
    for part in module.modules():
        hooks = [table for name, table in vars(part).items() if "hooks" in name and isinstance(table, dict)]
        memo.update({id(table): type(table)() for table in hooks})
    memo.update({id(weight): nn.Parameter(weight.detach(), requires_grad=False) for weight in module.parameters()})
    memo.update({id(buffer): buffer for buffer in module.buffers()})
    found = copy.deepcopy(module, memo).eval()
    for part in found.modules():
        vars(part).pop(_MARK, None)
    return found
