"""Linear layers on oneDNN's own layout of weights: on processors of AMD twice as fast as the default of PyTorch."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from wordsway.packing import available, linear, pack

_MOST = 2**29  # bytes that the copies of weights may take, together, for one network
_KEPT: weakref.WeakKeyDictionary[nn.Linear, dict[bool, tuple[Any, Tensor]]] = weakref.WeakKeyDictionary()


class PackedLayers:
    """The linear layers of a network in single precision on the CPU, with copies of their weights.

    Other networks, and those that are too large for copies, run as they are. A copy is kept with its layer, and made
    again where the weights have changed since.
    """

    def __init__(self, network: nn.Module) -> None:
        layers = [one for one in network.modules() if type(one) is nn.Linear and _fits(one)]
        self._size = sum(one.weight.nbytes for one in layers)
        if not available():
            layers = []
        self._states = {
            one: (one.weight.data_ptr(), one.weight._version, float(one.weight.detach().sum())) for one in layers
        }

    @contextmanager
    def used(self, gradients: bool = False) -> Iterator[None]:
        """Run the network on them, without gradients or with those of its inputs.

        The network is left as it was, and other threads do not see a difference.
        """
        fit = self._size * (1 + gradients) <= _MOST
        forwards = {one: _forward(one, state, gradients) for one, state in self._states.items() if fit}
        with torch.set_grad_enabled(gradients):
            for layer, forward in forwards.items():
                layer.__dict__["forward"] = forward
            try:
                yield
            finally:
                for layer in forwards:
                    layer.__dict__.pop("forward", None)


def _fits(layer: nn.Linear) -> bool:
    weight = layer.weight
    return weight.dtype == torch.float32 and weight.device.type == "cpu" and "forward" not in layer.__dict__


def _forward(layer: nn.Linear, state: Any, gradients: bool) -> Callable[[Tensor], Tensor]:
    weight, owner = _packed(layer, state, False), threading.get_ident()
    transposed = _packed(layer, state, True) if gradients else None

    def forward(inputs: Tensor) -> Tensor:
        if threading.get_ident() != owner:
            return nn.functional.linear(inputs, layer.weight, layer.bias)
        if transposed is None:
            return linear(inputs, weight, layer.bias)
        product: Tensor = _Linear.apply(inputs, weight, transposed, layer.bias)  # type: ignore[no-untyped-call]
        return product

    return forward


def _packed(layer: nn.Linear, state: Any, transposed: bool) -> Tensor:
    """The copy of the weights in a state, or of the transposed ones, which gradients need."""
    kept = _KEPT.setdefault(layer, {}).get(transposed)
    if kept is None or kept[0] != state:
        weight = layer.weight.detach()
        plain = weight.T if transposed else weight
        kept = _KEPT[layer][transposed] = (state, pack(plain))
    return kept[1]


class _Linear(torch.autograd.Function):
    """A linear layer whose gradient is that of its inputs alone."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, transposed: Tensor, bias: Tensor | None) -> Tensor:
        ctx.transposed = transposed
        return linear(inputs, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return linear(gradient.contiguous(), ctx.transposed, None), None, None, None
