"""What a change of a model is measured on: hidden states, the embedding of a text, or a distribution over answers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from wordsway.errors import InputError, nearest, one_line
from wordsway.maps.response import positive_norm

NAMES = ("last", "pooled", "next", "class")
_SEVERAL = ("multi_label_classification", "regression")  # their outputs are no distribution over classes


@dataclass(frozen=True)
class Output:
    """A part of what a model gives.

    Attributes
    ----------
    name : str
        "last", "pooled", "next", "class" or "layer K".
    layer : int or None
        The layer whose rows it is made of; None for all layers and, for a distribution, what is on top of them.
    distribution : bool
        Whether it is one, of logarithms of probabilities: then a change is the total variation, half the sum of the
        differences. Else it is relative, |now - before| / |before|.
    """

    name: str
    layer: int | None
    distribution: bool
    features: Callable[[Tensor], Tensor]  # of rows (B, n, d), or of logits (B, classes)

    def change(self, before: Tensor, now: Tensor) -> Tensor:
        """How far each of a batch of features (B, ...) is from those before, (B,); differentiable."""
        if self.distribution:
            return (now.exp() - before.exp()).abs().sum(-1) / 2
        moved: Tensor = torch.linalg.vector_norm((now - before).flatten(1), dim=1)
        return moved / positive_norm(before)

    def divergence(self, before: Tensor, now: Tensor) -> Tensor | None:
        """The Kullback-Leibler divergence of now from before in nats, (B,); None where it is not a distribution."""
        return (now.exp() * (now - before)).sum(-1) if self.distribution else None


def output_named(on: Any, layers: int, network: Any, name: str) -> Output:
    """An output that a model has, or an error that says why it has not."""
    layer = _layer(on)
    if layer is not None:
        if not 0 <= layer <= layers:
            raise InputError(f"on must be a layer from 0 to {layers}, got {layer}: {name} has {layers} layers")
        return Output(f"layer {layer}", layer, False, _wide)
    if on == "last":
        return Output(on, None, False, _wide)
    if on == "pooled":
        return Output(on, None, False, _pooled)
    if on == "next":
        if not type(network).__name__.endswith(("ForCausalLM", "LMHeadModel")):
            raise InputError(
                f"next needs a model that predicts the next token, got {name}, which does not: measure on last instead"
            )
        return Output(on, None, True, _probabilities)
    if on == "class":
        if not type(network).__name__.endswith("ForSequenceClassification"):
            raise InputError(f"class needs a model with classes of texts, got {name}: measure on pooled instead")
        if network.config.num_labels < 2:
            raise InputError(f"class needs two classes at least, got 1 of {name}: measure on pooled instead")
        kind = getattr(network.config, "problem_type", None)
        if kind in _SEVERAL:
            raise InputError(f"class needs classes of which one holds, got {kind} of {name}: measure on pooled instead")
        return Output(on, None, True, _probabilities)
    got = one_line(repr(on), 40)
    hint = nearest(on, NAMES) if isinstance(on, str) else ""
    raise InputError(f"on must be one of {', '.join(NAMES)} or the number of a layer, got {got}{hint}")


def _layer(on: Any) -> int | None:
    if isinstance(on, str):
        digits = on.removeprefix("layer ")
        return int(digits) if digits.isascii() and digits.isdigit() else None
    try:
        return None if isinstance(on, bool) else operator.index(on)
    except TypeError:
        return None


def _pooled(rows: Tensor) -> Tensor:
    """The mean of all rows, of length 1."""
    mean = _wide(rows).mean(-2)
    size: Tensor = torch.linalg.vector_norm(mean, dim=-1, keepdim=True)
    return mean / size


def _probabilities(logits: Tensor) -> Tensor:
    return torch.log_softmax(_wide(logits), -1)


def _wide(values: Tensor) -> Tensor:
    """Numbers of half precision in single precision; others as they are."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
