"""A pre-trained transformer, and what it can be asked about texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

from torch import nn

from wordsway.errors import InputError
from wordsway.models.families import check_embeddings, is_causal, known_family, positions_of
from wordsway.models.layered import Layered
from wordsway.models.layers import (
    DRAWS,
    AttentionScores,
    LayerChanges,
    attention_scores,
    head_sensitivities,
    layer_changes,
)
from wordsway.models.profile import STEPS, TextProfile, profile
from wordsway.models.prompts import PromptPair, prompt_pair
from wordsway.models.swaps import Swaps, swaps
from wordsway.models.tokenizer import Tokenizer
from wordsway.models.words import Text, read_text
from wordsway.sensitivity import Sensitivity


@dataclass(frozen=True, eq=False)
class Model(Layered):
    """A transformer that was read by `load`: its layers, and what it can be asked about texts.

    The attributes are those of `Layered`. Answers are computed in modules of their own.
    """

    def read(self, text: str, *, cut: bool = False, chat: bool = False) -> Text:
        """Return a text as the model reads it: its words, and the tokens of each.

        Parameters
        ----------
        text
        cut
            Whether a text that is too long loses its end, with a warning in the log; else it is refused.
        chat
            Whether it is put into the model's chat template, as what the user says.
        """
        return read_text(self.texts, text, self.name, cut=cut, chat=chat)

    def profile(
        self,
        text: str,
        words: Sequence[int | str] | None = None,
        *,
        on: str | int = "last",
        radius: float | None = None,
        mode: str = "search",
        steps: int = STEPS,
        special: bool = False,
        cut: bool = False,
        chat: bool = False,
        seed: int = 0,
        progress: bool = False,
    ) -> TextProfile:
        """Return how far each word of a text can move the model, when its embedding moves in a ball.

        Parameters
        ----------
        text
        words
            The words that are measured, as positions or as they are written; all of them unless told.
        on
            What the change is measured on: ``"last"`` (the last hidden state of all tokens, relative), ``"pooled"``
            (their mean, of length 1), a layer (its hidden state; 0 is what the first layer reads), ``"next"`` (the
            distribution of the next token of a decoder, by total variation) or ``"class"`` (that of a classifier).
        radius
            Radius of the ball; the norm of the word's own embedding unless told.
        mode
            ``"search"``, or ``"fast"``: one jump along the steepest direction at the text itself, which finds less. How
            much less is measured for its top word, as `shortfall`.
        steps
            Forward and backward passes of a search, for each word.
        special
            Whether special tokens, those of a chat template and blanks are measured too.
        cut, chat
            As for `read`.
        seed
            Decides where the search starts.
        progress
            Show a bar on stderr when it takes longer than two seconds.

        Notes
        -----
        Every value has a witness, so it is a lower bound on the supremum over the ball. Words are searched together, in
        batches that fit into memory; a decoder computes what stands before a word once. A word's answer does not depend
        on which others are asked, up to rounding.
        """
        found = self.read(text, cut=cut, chat=chat)
        if isinstance(words, str | int):
            raise InputError(f"words must be a list of words or positions, got {words!r}: use [{words!r}]")
        if words is None:
            chosen = list(found.words if special else found.scored)
        else:
            chosen = [found.word(word) for word in words]
        return profile(self, found, chosen, on, radius, mode, steps, seed, progress)

    def swaps(
        self,
        text: str,
        word: int | str,
        *,
        top: int = 10,
        on: str | int = "last",
        whole: bool = True,
        casing: bool = True,
        checks: int | None = None,
        exhaustive: bool = False,
        compare: bool = False,
        cut: bool = False,
        chat: bool = False,
        seed: int = 0,
        progress: bool = False,
    ) -> Swaps:
        """Return the entries of the vocabulary that move the model most, in the place of one word of a text.

        Parameters
        ----------
        text
        word
            Position of the word, from 0, or the word as it is written.
        top
            How many replacements are wanted.
        on
            What the change is measured on, as for `profile`.
        whole
            Whether a replacement must be a word of letters.
        casing
            Whether it must be written as the word is: small letters, capitals, or a capital first.
        checks
            How many candidates are tried exactly; from 400 to 2,000 unless told, more where the text is short and the
            model small. They are those that gradients, and then a function learned from what was tried, rank first.
        exhaustive
            Whether all candidates are tried.
        compare
            Whether all are tried after the ranking, to say how far it falls short.
        cut, chat
            As for `read`.
        seed
            Decides about the first candidates.
        progress
            Show a bar on stderr when it takes longer than two seconds.

        Notes
        -----
        Special tokens are never candidates, and the tokenizer has to read the candidate again from the text that it is
        written into. One token takes the place of all tokens of the word; rows are then compared with those of the
        text, in which the rows of the word count as one, their mean. A decoder computes what stands before it once.
        """
        found = self.read(text, cut=cut, chat=chat)
        chosen = found.word(word)
        return swaps(self, found, chosen, top, on, whole, casing, checks, exhaustive, compare, seed, progress)

    def layer_changes(
        self,
        text: str,
        word: int | str,
        *,
        norm: float | None = None,
        head: int | None = None,
        draws: int = DRAWS,
        cut: bool = False,
        chat: bool = False,
        seed: int = 0,
    ) -> LayerChanges:
        """Return the relative change after every layer when a word moves so that it attracts attention.

        Parameters
        ----------
        text
        word
            Position of the word, from 0, or the word as it is written.
        norm
            Length of the perturbation of what the first layer reads; that of the word's own row unless told.
        head
            The head of the first layer whose attention is attracted; all of them on average unless told.
        draws
            Draws of Gaussian noise of the same length, to compare with.
        cut, chat
            As for `read`.
        seed
            Decides about the noise.

        Notes
        -----
        The direction is the mean over the heads of the first layer of the right singular vectors of Q^T K with the
        largest singular value; of its two signs the one that changes more is taken. 3 + draws passes of the model.
        """
        found = self.read(text, cut=cut, chat=chat)
        return layer_changes(self, found, found.word(word), norm, head, draws, seed)

    def head_sensitivities(
        self,
        text: str,
        word: int | str,
        *,
        radius: float | None = None,
        cut: bool = False,
        chat: bool = False,
        seed: int = 0,
    ) -> tuple[Sensitivity, ...]:
        """Return the word sensitivity of each head of the first layer on its own, with witnesses, in float64.

        The word moves in what the layer reads, by at most the norm of its row there unless a radius is told; each of
        its tokens in its own ball.
        """
        found = self.read(text, cut=cut, chat=chat)
        return head_sensitivities(self, found, found.word(word), radius, seed)

    def attention_scores(
        self, text: str, index: SupportsIndex = 0, *, cut: bool = False, chat: bool = False
    ) -> AttentionScores:
        """Return where words look in a layer, by head."""
        return attention_scores(self, self.read(text, cut=cut, chat=chat), self.index(index))

    def prompt_pair(
        self, first: str, second: str, answers: Sequence[str] = ("Yes", "No"), *, chat: bool = True
    ) -> PromptPair:
        """Return how the answer of a decoder changes between two prompts, such as two that differ in a word.

        Parameters
        ----------
        first, second
            The prompts.
        answers
            Words whose probabilities are told; they are summed over the ways to write the first token.
        chat
            Whether prompts are put into the model's chat template.
        """
        return prompt_pair(self, first, second, answers, chat=chat)

    @property
    def chats(self) -> bool:
        """Whether it comes with a chat template."""
        return self.tokenizer is not None and self.tokenizer.chat is not None


def describe(name: str, network: Any, tokenizer: Tokenizer | None = None) -> Model:
    """Return the `Model` of a network that is ours: it is kept as it is."""
    config, body = network.config, network.base_model
    family = known_family(config)
    try:
        table = body.get_input_embeddings()
    except (AttributeError, NotImplementedError):  # as transformers says that there is none
        table = None
    if not isinstance(table, nn.Embedding):
        raise InputError(f"{name} must have a table of words, got {type(table).__name__}: choose a model of texts")
    if not hasattr(config, "hidden_size") or not hasattr(config, "num_hidden_layers"):
        raise InputError(f"{name} must be one stack of layers over words, got a {config.model_type}: choose another")
    config.return_dict = True  # else some models give what they find without its names
    model = Model(
        name=name,
        family=config.model_type,
        causal=family.causal(config) if family else is_causal(body, name),
        d=int(config.hidden_size),
        layers=len(family.blocks(body)) if family else int(config.num_hidden_layers),
        positions=positions_of(body),
        vocabulary=int(table.num_embeddings),
        network=network,
        tokenizer=tokenizer,
    )
    if family is None:
        check_embeddings(model)
    return model
