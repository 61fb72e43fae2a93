"""What the change of a model is measured on: hidden states, the embedding of a text, or a prediction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from wordsway.checks import as_int, check_several, describe
from wordsway.errors import InputError, NumericalError, nearest
from wordsway.maps.response import positive_norm

if TYPE_CHECKING:
    from wordsway.models.model import Model
    from wordsway.models.words import Text

NAMES = ("last", "pooled", "next", "class", "mask", "token WORD")
# What is read from a model: rows, a vector, logarithms of the probabilities of classes of which one holds, logits of
# labels that may all hold, or a number.
ROWS, VECTOR, DISTRIBUTION, LABELS, NUMBER = "rows", "vector", "distribution", "labels", "number"
_CLASSES = ("class", LABELS, NUMBER)  # names of what a classifier predicts: the model tells which of them it is
Decision: TypeAlias = int | tuple[int, ...]  # a class or token, or labels
OTHER = "other"  # the class of all tokens that begin no given answer


@dataclass(frozen=True)
class Output:
    """What the change of a model is measured on.

    Attributes
    ----------
    name : str
        "last", "pooled", "next", "mask", "token WORD", "answer Yes, No", "target Paris", "class", "labels", "number" or
        "layer K".
    kind : {"rows", "vector", "distribution", "labels", "number"}
        What is read: the change of rows and vectors is relative, |now - before| / |before|; that of a distribution is
        the total variation, half the sum of the differences; that of labels the largest change of a probability; that
        of a number the absolute difference.
    read : callable
        Rows (B, n, d), logits (B, classes), or logits of the last tokens (B, kept, V) or of one (B, 1, V) ->
        readings (B, ...).
    layer : int or None
        The layer whose rows it is made of; None for all layers and, for a prediction, what is on top of them.
    classes : tuple of str
        Names of the classes or labels, where there are few.
    chosen : int or None
        The class or label that a prediction is about; None is the one that the model predicts for the text.
    rivals : int or None
        The decision is between the first classes, this many of them; None for all.
    kept : int
        Number of tokens at the end of a text whose logits a decoder returns; 0 for what is no decoder's prediction.
    suffix : tuple of int
        Tokens that follow every text: the continuation whose probability is read.
    word : str or None
        The word whose token is read, as it is written or by its position; "" is the mask of the text. None for outputs
        that are not about one token.
    at : int or None
        The place of that token in a text, once the text is known.
    """

    name: str
    kind: str
    read: Callable[[Tensor], Tensor]
    layer: int | None = None
    classes: tuple[str, ...] = ()
    chosen: int | None = None
    rivals: int | None = None
    kept: int = 0
    suffix: tuple[int, ...] = ()
    word: str | None = None
    at: int | None = None

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
        return int(before[: self.rivals].argmax()) if self.chosen is None else self.chosen

    def decisive(self, before: Tensor, now: Tensor) -> int:
        """The class whose probability stands for a decision: of several labels, the one that is nearest to a flip."""
        if self.kind == LABELS and self.chosen is None:
            return int(torch.where(before > 0, now, -now).argmin())
        return self.focus(before)

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

    def rank(self, before: Tensor, now: Tensor) -> Tensor:
        """An increasing function of the effect that does not saturate, (B,): log odds in place of a probability."""
        if self.kind == LABELS:
            return now[..., self.focus(before)]
        if self.kind == DISTRIBUTION and self.signed:
            place = self.focus(before)
            rest = torch.cat([now[..., :place], now[..., place + 1 :]], -1).logsumexp(-1)
            return now[..., place] - rest
        return self.effect(before, now)

    def margin(self, before: Tensor, now: Tensor) -> Tensor:
        """How far the decision of the text is from another one, (B,), in logits; below 0 it has flipped.

        Of a distribution the decision is the most probable class, or whether that is the chosen one; of labels, which
        of them are more probable than not, or whether the chosen one is.
        """
        if self.kind == LABELS:
            kept = torch.where(before > 0, now, -now)
            return kept.amin(-1) if self.chosen is None else kept[..., self.chosen]
        top = int(before[: self.rivals].argmax())
        place, now = self.focus(before), now[..., : self.rivals]
        mine = now[..., place]
        others = torch.cat([now[..., :place], now[..., place + 1 :]], -1).amax(-1)
        return mine - others if place == top else others - mine

    def decisions(self, readings: Tensor) -> list[Decision]:
        """The most probable class of each reading (B, ...), or the labels that are more probable than not."""
        if self.kind == LABELS:
            return [tuple(torch.nonzero(reading > 0)[:, 0].tolist()) for reading in readings]
        places: list[Decision] = readings[..., : self.rivals].argmax(-1).tolist()
        return places


def chosen_output(
    model: Model,
    on: str | int | Output | None = None,
    label: str | int | None = None,
    answers: Sequence[str] | None = None,
    target: str | None = None,
    chat: bool = False,
    text: Text | None = None,
) -> Output:
    """Return the output that a measurement declares; by default the class, the next token, or the mean of the rows.

    With a text, an output that is about one of its tokens knows the place of that token.
    """
    given = [name for name, value in (("on", on), ("answers", answers), ("target", target)) if value is not None]
    if len(given) > 1:
        raise InputError(f"one output must be given, got {' and '.join(given)}: leave out all but one")
    if answers is not None:
        return _placed(model, _answers(model, answers, label), text)
    if target is not None:
        if label is not None:
            raise InputError("a label needs classes, got a target: leave the label out")
        return _target(model, target, chat)
    return _placed(model, output_named(model, default_output(model.network) if on is None else on, label), text)


def output_named(model: Model, on: Any, label: str | int | None = None) -> Output:
    """Return an output of a model by its name or layer, or raise where the model does not have it.

    `label` is the class that a prediction is about, by its name or number.
    """
    if isinstance(on, Output):
        return on
    name, layers, network = model.name, model.layers, model.network
    word = _token_word(on)
    if label is not None and on not in _CLASSES and word is None:
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
        _check_predicts_next(model, on)
        return Output(on, DISTRIBUTION, _last_probabilities, kept=1)
    if on == "mask":
        _check_fills_masks(model, on)
        return Output(on, DISTRIBUTION, _last_probabilities, word="")
    if word is not None:
        return _token_output(network, name, word, label)
    if on in _CLASSES:
        return _class_output(network, name, label)
    got = f"{describe(on)}{nearest(on, NAMES)}"
    raise InputError(f"on must be one of {', '.join(NAMES)} or the number of a layer, got {got}")


def default_output(network: Any) -> str:
    """Return what is measured by default: the class, the next token, or the mean of the rows."""
    return "class" if has_classes(network) else "next" if predicts_next(network) else "pooled"


def predicts_next(network: Any) -> bool:
    return type(network).__name__.endswith(("ForCausalLM", "LMHeadModel"))


def _check_predicts_next(model: Model, on: str) -> None:
    if not predicts_next(model.network):
        got = f"{model.name}, which does not: measure on last instead"
        raise InputError(f"{on} needs a model that predicts the next token, got {got}")


def fills_masks(network: Any) -> bool:
    return type(network).__name__.endswith("ForMaskedLM")


def where_it_decides(network: Any) -> str:
    """Where a model decides that does not decide about a whole text, or what to use in its place."""
    if fills_masks(network):
        return "measure on mask, or give answers"
    return "measure on token WORD" if _has_token_classes(network) else "use a classifier"


def _has_token_classes(network: Any) -> bool:
    return type(network).__name__.endswith("ForTokenClassification")


def _check_fills_masks(model: Model, on: str) -> None:
    if not fills_masks(model.network):
        raise InputError(f"{on} needs a model that predicts masked tokens, got {model.name}: measure on last instead")


def _token_word(on: Any) -> str | None:
    """The word of an output that is named "token WORD"."""
    return on.removeprefix("token ").strip() or None if isinstance(on, str) and on.startswith("token ") else None


def _token_output(network: Any, name: str, word: str, label: str | int | None) -> Output:
    """The class of the first token of a word."""
    if not _has_token_classes(network):
        raise InputError(f"token needs a model with classes of tokens, got {name}: measure on last instead")
    names = network.config.id2label
    classes = tuple(str(names.get(place, place)) for place in range(int(network.config.num_labels)))
    chosen = None if label is None else _label(label, classes)
    return Output(f"token {word}", DISTRIBUTION, _last_probabilities, classes=classes, chosen=chosen, word=word)


def _placed(model: Model, output: Output, text: Text | None) -> Output:
    """The output with the place of its token in a text, where it is about one token and the text is known."""
    if output.word is None or text is None:
        return output
    if output.word:
        which = int(output.word) if output.word.isascii() and output.word.isdigit() else output.word
        return replace(output, at=text.word(which).tokens[0])
    mask = model.texts.mask
    number = None if mask is None else model.texts.backend.token_to_id(mask)
    places = [place for place, token in enumerate(text.ids) if token == number]
    if len(places) != 1:
        raise InputError(f"the text must have the mask {mask or 'of the model'} once, got it {len(places)} times")
    return replace(output, at=places[0])


def check_finite(model: Model, values: Tensor, what: str) -> None:
    """Raise where a model returns infinities or what is no number."""
    if bool(torch.isfinite(values).all()):
        return
    needed = f"{model.name} must return finite numbers for {what}"
    if model.dtype == torch.float16:  # whose largest number is 65504
        raise NumericalError(f"{needed}, which it does not in float16: use bfloat16 or float32")
    raise NumericalError(f"{needed}: check its weights")


def has_classes(network: Any) -> bool:
    return type(network).__name__.endswith("ForSequenceClassification")


def decision_name(model: Model, output: Output, decision: Decision) -> str:
    """The decision as text: the name of the class, of the labels, or the token."""
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


def _answers(model: Model, answers: Sequence[str], label: str | int | None) -> Output:
    """The probabilities that the next or the masked token is one of some answers, summed over spellings, and of others.

    The decision is which of several answers is the most probable one; of one answer, whether it is more probable than
    not.
    """
    masked = fills_masks(model.network)
    if not masked:
        _check_predicts_next(model, "an answer")
    check_several(answers, "answers")
    if not answers:
        raise InputError("answers must have at least one word, got none: leave them out for the next token")
    tokens = [answer_tokens(model, answer) for answer in answers]
    places = {token: place for place, some in enumerate(tokens) for token in some}
    if len(places) < sum(map(len, tokens)):
        raise InputError(f"answers must differ in more than their spelling, got {', '.join(answers)}: leave one out")
    classes = (*answers, OTHER)

    def read(logits: Tensor) -> Tensor:
        logs = _last_probabilities(logits)
        known = torch.tensor(sorted(places), device=logs.device)
        rest = logs.index_fill(-1, known, -torch.inf)
        parts = [logs[..., sorted(some)] for some in tokens]
        return torch.stack([part.logsumexp(-1) for part in (*parts, rest)], -1)

    chosen = None if label is None else _label(label, classes)
    rivals = len(answers) if len(answers) > 1 and chosen != len(answers) else None
    name = f"answer {', '.join(answers)}"
    which: dict[str, Any] = {"word": ""} if masked else {"kept": 1}
    return Output(name, DISTRIBUTION, read, classes=classes, chosen=chosen, rivals=rivals, **which)


def answer_tokens(model: Model, answer: Any) -> set[int]:
    """The tokens that are an answer: with a blank before it or not, as it is written or in lower case."""
    if not isinstance(answer, str) or not answer.strip():
        raise InputError(f"answers must be words, got {answer!r}")
    tokenizer, word = model.texts.backend, answer.strip()
    forms = {form for one in (word, word.lower()) for form in (one, " " + one)}
    read = [tokenizer.encode(form, add_special_tokens=False).ids for form in forms]
    tokens = {ids[0] for ids in read if len(ids) == 1}
    if not tokens:
        count = min(map(len, read))
        raise InputError(f"an answer must be one token of {model.name}, got {answer!r} of {count}: use it as target")
    return tokens


def _target(model: Model, target: str, chat: bool) -> Output:
    """The logarithm of the probability that a text is continued by another one."""
    _check_predicts_next(model, "a target")
    if not isinstance(target, str) or not target.strip():
        raise InputError(f"target must be a text, got {target!r}")
    written = target if chat or target[:1].isspace() else f" {target}"
    ids = tuple(model.texts.backend.encode(written, add_special_tokens=False).ids)
    if not ids:
        raise InputError(f"target must have a token, got {target!r}: {model.name} does not know these characters")

    def read(logits: Tensor) -> Tensor:
        logs = _probabilities(logits[:, : len(ids)])  # of the last token there is nothing to read
        wanted = torch.tensor(ids, device=logs.device)
        return logs.gather(-1, wanted.expand(len(logs), -1)[..., None])[..., 0].sum(-1, keepdim=True)

    return Output(f"target {target.strip()}", NUMBER, read, kept=len(ids) + 1, suffix=ids)


def _label(label: str | int, classes: Sequence[str]) -> int:
    number = label
    if isinstance(label, str):
        matches = [place for place, known in enumerate(classes) if known.casefold() == label.casefold()]
        if len(matches) == 1:
            return matches[0]
        number = int(label) if label.isascii() and label.isdigit() else -1
    if isinstance(number, str | bool) or not 0 <= number < len(classes):
        listed = ", ".join(f"{place} {known}" for place, known in enumerate(classes[:20]))
        raise InputError(f"label must be a class of the model, got {label!r}{nearest(label, classes)}: one of {listed}")
    return number


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


def _last_probabilities(logits: Tensor) -> Tensor:
    return _probabilities(logits[:, -1])


def _probabilities(logits: Tensor) -> Tensor:
    return torch.log_softmax(wide(logits), -1)


def wide(values: Tensor) -> Tensor:
    """Return numbers of half precision in single precision, others as they are."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
