"""What the change of a model is measured on: hidden states, the embedding of a text, or a distribution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from wordsway.checks import as_int, describe
from wordsway.errors import InputError, nearest
from wordsway.maps.response import positive_norm

if TYPE_CHECKING:
    from wordsway.models.model import Model

NAMES = ("last", "pooled", "next", "class")
_SEVERAL = ("multi_label_classification", "regression")  # their outputs are no distribution over classes


@dataclass(frozen=True)
class Output:
    """What the change of a model is measured on.

    Attributes
    ----------
    name : str
        "last", "pooled", "next", "class" or "layer K".
    layer : int or None
        The layer whose rows it is made of; None for all layers and, for a distribution, what is on top of them.
    distribution : bool
        Whether it is a distribution: then a change is the total variation, half the sum of the differences. Otherwise
        it is relative, |now - before| / |before|.
    read : callable
        Rows (B, n, d) or logits (B, classes) -> values (B, ...): rows, a mean row, or logarithms of probabilities.
    """

    name: str
    layer: int | None
    distribution: bool
    read: Callable[[Tensor], Tensor]

    def features(self, values: Tensor) -> Tensor:
        """Features of what was read: probabilities where these are logarithms."""
        return values.exp() if self.distribution else values

    def change(self, before: Tensor, now: Tensor) -> Tensor:
        """The change from what was read before to each of a batch (B, ...), (B,); differentiable."""
        if self.distribution:
            return (now.exp() - before.exp()).abs().sum(-1) / 2
        difference: Tensor = torch.linalg.vector_norm((now - before).flatten(1), dim=1)
        return difference / positive_norm(before)

    def divergence(self, before: Tensor, now: Tensor) -> Tensor:
        """The Kullback-Leibler divergence of distributions (B, ...) from the one before, in nats, (B,)."""
        return (now.exp() * (now - before)).sum(-1)


def output_named(model: Model, on: Any) -> Output:
    """Return an output of a model by its name or layer, or raise where the model does not have it."""
    name, layers, network = model.name, model.layers, model.network
    layer = _layer(on)
    if layer is not None:
        if not 0 <= layer <= layers:
            raise InputError(f"on must be a layer from 0 to {layers}, got {layer}: {name} has {layers} layers")
        return Output(f"layer {layer}", layer, False, wide)
    if on in ("last", "pooled"):
        return Output(on, None, False, wide if on == "last" else _pooled)
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
    got = f"{describe(on)}{nearest(on, NAMES)}"
    raise InputError(f"on must be one of {', '.join(NAMES)} or the number of a layer, got {got}")


def _layer(on: Any) -> int | None:
    if isinstance(on, str):
        digits = on.removeprefix("layer ")
        return int(digits) if digits.isascii() and digits.isdigit() else None
    return as_int(on)


def _pooled(rows: Tensor) -> Tensor:
    """The mean of all rows, normalised to length 1."""
    mean = wide(rows).mean(-2)
    size: Tensor = torch.linalg.vector_norm(mean, dim=-1, keepdim=True)
    return mean / size


def _probabilities(logits: Tensor) -> Tensor:
    return torch.log_softmax(wide(logits), -1)


def wide(values: Tensor) -> Tensor:
    """Return numbers of half precision in single precision, others as they are."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
