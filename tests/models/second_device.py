"""A second device on a machine that has none: tensors that hold CPU memory and report another device.

As on an accelerator, operations on tensors of both devices fail, apart from scalars and indices, and NumPy reads none
of its tensors. The values are those of the CPU, so that a measurement there has to return what it returns on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = torch.device("meta")  # the only one besides the CPU that autograd runs on without a driver
_CPU = torch.device("cpu")
_ATEN = torch.ops.aten
_INDEXED = (_ATEN.index, _ATEN.index_put, _ATEN.index_put_, _ATEN._index_put_impl_)


class There(Tensor):
    """A tensor on the second device."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> There:
        made: There = Tensor._make_wrapper_subclass(
            cls, held.size(), strides=held.stride(), dtype=held.dtype, device=DEVICE, requires_grad=False
        )
        made.held = held
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        return _run(function, arguments, options or {})


class _Device(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Makes tensors on the second device where they are requested there."""

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        return _run(function, arguments, options or {})


class _Values(TorchFunctionMode):
    """Keeps the values of lists that become tensors on the device, which torch drops for a meta device."""

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        options = dict(options or {})
        if function in (torch.tensor, torch.as_tensor) and options.get("device") is not None:
            return function(*arguments, **options | {"device": _CPU}).to(options["device"])
        if function is Tensor.tolist:
            return _held(arguments[0]).tolist()
        if function in (Tensor.__getitem__, Tensor.__setitem__):
            held, where, *rest = arguments
            indices = where if isinstance(where, tuple) else (where,)
            indices = tuple(
                torch.tensor(one, dtype=None if one else torch.long) if isinstance(one, list) else one
                for one in indices
            )
            arguments = (held, indices if isinstance(where, tuple) else indices[0], *rest)
        return function(*arguments, **options)


def _run(function: Any, arguments: Any, options: dict[str, Any]) -> Any:
    given = [one for one in tree_flatten((arguments, options))[0] if isinstance(one, Tensor)]
    if any(one.device == DEVICE and not isinstance(one, There) for one in given):
        raise RuntimeError(f"{function}: got a tensor without values")
    there = any(isinstance(one, There) for one in given)
    copies = function.overloadpacket in (_ATEN._to_copy, _ATEN.copy_)
    if there and not copies and function.overloadpacket not in _INDEXED:
        here = [one for one in given if not isinstance(one, There) and one.ndim]
        if here:
            raise RuntimeError(f"{function}: expected all tensors on one device, got a CPU tensor {here[0].shape}")
    device = options.get("device")
    if device is not None:
        there = torch.device(device) == DEVICE
        options = options | {"device": _CPU}
    elif function.overloadpacket is _ATEN.copy_:
        there = isinstance(arguments[0], There)
    inner, named = tree_map(_held, (arguments, options))
    result = function(*inner, **named)
    if not there:
        return result
    wrapped = tree_map(lambda one: There(one) if isinstance(one, Tensor) else one, result)
    return return_and_correct_aliasing(function, arguments, options, wrapped)  # type: ignore[no-untyped-call]


def _held(value: Any) -> Any:
    return value.held if isinstance(value, There) else value


@contextmanager
def second_device() -> Iterator[torch.device]:
    """Make the device known: tensors and modules can be moved there, and made there."""
    with _Device(), _Values():  # type: ignore[no-untyped-call]
        yield DEVICE
