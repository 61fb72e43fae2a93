"""Attention layers of every kind that real models have, with random weights."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from wordsway import Attention, Rotary
from wordsway.maps import RelativeBias

D, HEADS, SIZE, VALUE = 6, 4, 4, 3


@dataclass(frozen=True)
class Variant:
    """Which parts a layer has."""

    causal: bool = False
    shared: bool = False
    rotary: bool = False
    biases: bool = False
    output: bool = False
    relative: bool = False

    def __str__(self) -> str:
        return "-".join(name for name, given in vars(self).items() if given) or "bare"

    def layer(self, seed: int = 0, scale: float = 0.5) -> Attention:
        """A layer of that kind; `scale` decides how far from uniform its weights are."""
        draw = normal(seed, scale)
        key_heads = HEADS // 2 if self.shared else HEADS
        biases = (draw(HEADS * SIZE), draw(key_heads * SIZE), draw(key_heads * VALUE))
        query_bias, key_bias, value_bias = biases if self.biases else (None, None, None)
        return Attention(
            draw(HEADS * SIZE, D),
            draw(key_heads * SIZE, D),
            draw(key_heads * VALUE, D),
            heads=HEADS,
            causal=self.causal,
            output=draw(D + 1, HEADS * VALUE) if self.output else None,
            query_bias=query_bias,
            key_bias=key_bias,
            value_bias=value_bias,
            output_bias=draw(D + 1) if self.biases and self.output else None,
            key_heads=key_heads,
            rotary=Rotary([1.0, 0.3]) if self.rotary else None,
            relative=RelativeBias(4 * draw(HEADS, 7)) if self.relative else None,
        )


class normal:
    """Gaussian tensors one after another: ``draw = normal(seed); draw(3, 4)``."""

    def __init__(self, seed: int, scale: float = 1.0) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.scale = scale

    def __call__(self, *shape: int) -> Tensor:
        return self.scale * torch.randn(*shape, generator=self.generator, dtype=torch.float64)


class Residual:
    """A block that keeps its attention under that name: 10 X + attention(X)."""

    def __init__(self, attention: Attention) -> None:
        self.attention = attention

    def __call__(self, X: Tensor) -> Tensor:
        return 10 * X + self.attention(X)


VARIANTS = [Variant(*choice) for choice in itertools.product((False, True), repeat=5)]
VARIANTS += [Variant(relative=True), Variant(causal=True, biases=True, relative=True), Variant(*[True] * 6)]


def explicit(layer: Callable[[Tensor], Tensor], X: Tensor) -> Tensor:
    """The whole Jacobian at one context by autograd, (outputs, inputs)."""
    matrix: Tensor = torch.func.jacrev(layer)(X)
    return matrix.reshape(-1, X.numel())
