"""Two prompts, such as two that differ in a word, and the change of a decoder's answer between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from wordsway.checks import check_several
from wordsway.models.outputs import answer_tokens, output_named
from wordsway.records import Record

if TYPE_CHECKING:
    from wordsway.models.model import Model


@dataclass(frozen=True, eq=False, repr=False)
class PromptPair(Record):
    """The first token of the answers to two prompts.

    Attributes
    ----------
    model : str
    prompts : tuple of str
    answers : tuple of str
    probabilities : tuple of tuple of float
        For each prompt the probability of each answer, in any spelling: with a blank before it, or in lower case.
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

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"prompt": prompt, **dict(zip(self.answers, shares, strict=True))}
            for prompt, shares in zip(self.prompts, self.probabilities, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        pairs = [dict(zip(self.answers, row, strict=True)) for row in self.probabilities]
        shift = {"total_variation": self.total_variation, "divergence": self.divergence}
        return {"model": self.model, "before": pairs[0], "after": pairs[1], **shift}


def prompt_pair(
    model: Model, first: str, second: str, answers: Sequence[str] = ("Yes", "No"), *, chat: bool = True
) -> PromptPair:
    """Return how the answer of a decoder changes between two prompts, such as two that differ in a word.

    Parameters
    ----------
    model
    first, second
        The prompts.
    answers
        Words of one token whose probabilities are returned, summed over the ways to write them.
    chat
        Whether prompts are put into the model's chat template.
    """
    check_several(answers, "answers")
    output, logs = output_named(model, "next"), []
    for prompt in (first, second):
        phi = model.features(prompt, "next", chat=chat)
        with torch.no_grad():
            logs.append(output.read(phi.run(phi.embedded[None]))[0])
    tokens = [answer_tokens(model, answer) for answer in answers]
    shares = [tuple(float(log.exp()[list(some)].sum()) for some in tokens) for log in logs]
    change = float(output.change(logs[0], logs[1][None]))
    divergence = float(output.divergence(logs[0], logs[1][None]))
    return PromptPair(model.name, (first, second), tuple(answers), (shares[0], shares[1]), change, divergence)
