"""Two prompts that differ in a word, and what the answer of a decoder makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from wordsway.checks import check_several
from wordsway.errors import InputError
from wordsway.models.outputs import output_named
from wordsway.models.reader import Reader

if TYPE_CHECKING:
    from wordsway.models.model import Model


@dataclass(frozen=True)
class PromptPair:
    """The first token of the answers to two prompts.

    Attributes
    ----------
    model : str
    prompts : tuple of str
    answers : tuple of str
    probabilities : tuple of tuple of float
        For each prompt the probability of each answer, however it is written: with a blank before it, or small letters.
    total_variation : float
        Distance of the two distributions over all tokens, from 0 to 1.
    divergence : float
        Kullback-Leibler divergence of the second from the first, in nats.
    """

    model: str
    prompts: tuple[str, str]
    answers: tuple[str, ...]
    probabilities: tuple[tuple[float, ...], tuple[float, ...]]
    total_variation: float
    divergence: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        pairs = [dict(zip(self.answers, row, strict=True)) for row in self.probabilities]
        shift = {"total_variation": self.total_variation, "divergence": self.divergence}
        return {"model": self.model, "before": pairs[0], "after": pairs[1], **shift}


def prompt_pair(
    model: Model, first: str, second: str, answers: Sequence[str] = ("Yes", "No"), *, chat: bool = True
) -> PromptPair:
    """Compare the answers of a decoder to two prompts; see `Model.prompt_pair`."""
    check_several(answers, "answers")
    output = output_named("next", model.layers, model.network, model.name)
    logs = [Reader(model, model.read(prompt, chat=chat).ids, output).before for prompt in (first, second)]
    tokens = [_tokens(model, answer) for answer in answers]
    shares = [tuple(float(log.exp()[list(some)].sum()) for some in tokens) for log in logs]
    change = float(output.change(logs[0], logs[1][None]))
    divergence = output.divergence(logs[0], logs[1][None])
    assert isinstance(divergence, torch.Tensor)
    return PromptPair(model.name, (first, second), tuple(answers), (shares[0], shares[1]), change, float(divergence))


def _tokens(model: Model, answer: str) -> set[int]:
    """The tokens that an answer can begin with."""
    if not isinstance(answer, str) or not answer.strip():
        raise InputError(f"answers must be words, got {answer!r}")
    tokenizer = model.texts.backend
    forms = {form for word in (answer, answer.lower()) for form in (word, " " + word)}
    read = [tokenizer.encode(form, add_special_tokens=False).ids for form in forms]
    return {ids[0] for ids in read if ids and tokenizer.decode(ids[:1]).strip()}
