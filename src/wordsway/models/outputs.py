"""What the change of a model is measured on: hidden states, the embedding of a text, or a prediction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
# What is read from a model: rows, a vector, logarithms of the probabilities of classes of which one holds, logits of
# labels that may all hold, or a number.
ROWS, VECTOR, DISTRIBUTION, LABELS, NUMBER = "rows", "vector", "distribution", "labels", "number"
_CLASSES = ("class", LABELS, NUMBER)  # names of what a classifier predicts: the model tells which of them it is


@dataclass(frozen=True)
class Output:
    """What the change of a model is measured on.

    Attributes
    ----------
    name : str
        "last", "pooled", "next", "class", "labels", "number" or "layer K".
    kind : {"rows", "vector", "distribution", "labels", "number"}
        What is read: the change of rows and vectors is relative, |now - before| / |before|; that of a distribution is
        the total variation, half the sum of the differences; that of labels the largest change of a probability; that
        of a number the absolute difference.
    read : callable
        Rows (B, n, d) or logits (B, classes) -> readings (B, ...).
    layer : int or None
        The layer whose rows it is made of; None for all layers and, for a prediction, what is on top of them.
    classes : tuple of str
        Names of the classes or labels, where there are few.
    chosen : int or None
        The class or label that a prediction is about; None is the one that the model predicts for the text.
    """

    name: str
    kind: str
    read: Callable[[Tensor], Tensor]
    layer: int | None = None
    classes: tuple[str, ...] = ()
    chosen: int | None = None

    @property
    def predicts(self) -> bool:
        """Whether it is a prediction, made by what is on top of the layers."""
        return self.kind in (DISTRIBUTION, LABELS, NUMBER)

    @property
    def distribution(self) -> bool:
        return self.kind == DISTRIBUTION

    @property
    def decides(self) -> bool:
        """Whether the prediction is a decision, which can flip."""
        return self.kind in (DISTRIBUTION, LABELS)

    def features(self, values: Tensor) -> Tensor:
        """Features of what was read: probabilities where these are logarithms or logits."""
        if self.kind == LABELS:
            return values.sigmoid()
        return values.exp() if self.kind == DISTRIBUTION else values

    def change(self, before: Tensor, now: Tensor) -> Tensor:
        """The change from what was read before to each of a batch (B, ...), (B,); differentiable."""
        if self.kind == DISTRIBUTION:
            return (now.exp() - before.exp()).abs().sum(-1) / 2
        if self.kind == LABELS:
            return (now.sigmoid() - before.sigmoid()).abs().amax(-1)
        if self.kind == NUMBER:
            return (now - before).abs().sum(-1)
        difference: Tensor = torch.linalg.vector_norm((now - before).flatten(1), dim=1)
        return difference / positive_norm(before)

    def divergence(self, before: Tensor, now: Tensor) -> Tensor:
        """The Kullback-Leibler divergence of distributions (B, ...) from the one before, in nats, (B,)."""
        return (now.exp() * (now - before)).sum(-1)

    def focus(self, before: Tensor) -> int:
        """The class or label that the score is about: the chosen one, or the most probable one of the text."""
        return int(before.argmax()) if self.chosen is None else self.chosen

    def score(self, before: Tensor, now: Tensor) -> Tensor:
        """The number whose signed change is reported: a probability, or a number itself; (B,)."""
        return self.features(now)[..., self.focus(before)] if self.decides else now[..., 0]

    @property
    def signed(self) -> bool:
        """Whether an effect has a sign: the probability of one class or label, or a number, rises or falls."""
        return self.kind in (LABELS, NUMBER) or (self.kind == DISTRIBUTION and bool(self.classes))

    def effect(self, before: Tensor, now: Tensor) -> Tensor:
        """The signed change of the score where there is one, otherwise the change; (B,)."""
        if self.signed:
            return self.score(before, now) - self.score(before, before)
        return self.change(before, now)

    def margin(self, before: Tensor, now: Tensor) -> Tensor:
        """How far the decision of the text is from another one, (B,), in logits; below 0 it has flipped.

        Of a distribution the decision is the most probable class, or whether that is the chosen one; of labels, which
        of them are more probable than not, or whether the chosen one is.
        """
        if self.kind == LABELS:
            kept = torch.where(before > 0, now, -now)
            return kept.amin(-1) if self.chosen is None else kept[..., self.chosen]
        top = int(before.argmax())
        place = self.focus(before)
        mine = now[..., place]
        others = torch.cat([now[..., :place], now[..., place + 1 :]], -1).amax(-1)
        return mine - others if place == top else others - mine

    def decision(self, reading: Tensor) -> int | tuple[int, ...]:
        """The most probable class, or the labels that are more probable than not."""
        if self.kind == LABELS:
            return tuple(torch.nonzero(reading > 0)[:, 0].tolist())
        return int(reading.argmax())


def output_named(model: Model, on: Any, label: str | int | None = None) -> Output:
    """Return an output of a model by its name or layer, or raise where the model does not have it.

    `label` is the class that a prediction is about, by its name or number.
    """
    if isinstance(on, Output):
        return on
    name, layers, network = model.name, model.layers, model.network
    if label is not None and on not in _CLASSES:
        raise InputError(f"a label needs the output class, got {describe(on)}: measure on class")
    layer = _layer(on)
    if layer is not None:
        if not 0 <= layer <= layers:
            raise InputError(f"on must be a layer from 0 to {layers}, got {layer}: {name} has {layers} layers")
        return Output(f"layer {layer}", ROWS, wide, layer)
    if on == "last":
        return Output(on, ROWS, wide)
    if on == "pooled":
        return Output(on, VECTOR, _pooled)
    if on == "next":
        if not predicts_next(network):
            raise InputError(
                f"next needs a model that predicts the next token, got {name}, which does not: measure on last instead"
            )
        return Output(on, DISTRIBUTION, _probabilities)
    if on in _CLASSES:
        return _class_output(network, name, label)
    got = f"{describe(on)}{nearest(on, NAMES)}"
    raise InputError(f"on must be one of {', '.join(NAMES)} or the number of a layer, got {got}")


def default_output(network: Any) -> str:
    """Return what is measured by default: the class, the next token, or the mean of the rows."""
    return "class" if has_classes(network) else "next" if predicts_next(network) else "pooled"


def predicts_next(network: Any) -> bool:
    return type(network).__name__.endswith(("ForCausalLM", "LMHeadModel"))


def has_classes(network: Any) -> bool:
    return type(network).__name__.endswith("ForSequenceClassification")


def decision_name(model: Model, output: Output, reading: Tensor) -> str:
    """The decision as text: the name of the class, of the labels, or the token."""
    decision = output.decision(reading)
    if isinstance(decision, tuple):
        return ", ".join(output.classes[place] for place in decision) or "none"
    return output.classes[decision] if output.classes else str(model.texts.backend.decode([decision]))


def _class_output(network: Any, name: str, label: str | int | None) -> Output:
    """The classes of a text: of which one holds, or any number of them; or one number where there is one alone."""
    if not has_classes(network):
        raise InputError(f"class needs a model with classes of texts, got {name}: measure on pooled instead")
    config = network.config
    kind, count = getattr(config, "problem_type", None), int(config.num_labels)
    classes = tuple(str(config.id2label.get(place, place)) for place in range(count))
    if kind == "regression" or (kind is None and count == 1):  # as transformers trains one output by default
        if label is not None:
            raise InputError(f"a label needs a model with classes, got {name}, which predicts a number: leave it out")
        return Output(NUMBER, NUMBER, wide, classes=classes)
    chosen = None if label is None else _label(label, classes)
    if kind == "multi_label_classification":
        return Output(LABELS, LABELS, wide, classes=classes, chosen=chosen)
    return Output("class", DISTRIBUTION, _probabilities, classes=classes, chosen=chosen)


def _label(label: str | int, classes: Sequence[str]) -> int:
    if isinstance(label, str):
        matches = [place for place, known in enumerate(classes) if known.casefold() == label.casefold()]
        if len(matches) == 1:
            return matches[0]
        label = int(label) if label.isascii() and label.isdigit() else -1
    if isinstance(label, bool) or not 0 <= label < len(classes):
        listed = ", ".join(f"{place} {known}" for place, known in enumerate(classes[:20]))
        raise InputError(f"label must be a class of the model, got {label!r}: one of {listed}")
    return label


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
