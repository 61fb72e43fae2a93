"""A pre-trained transformer: its layers, what they read, and measurements on texts."""

from __future__ import annotations

import logging
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsIndex

import numpy as np
import torch
from torch import Tensor, nn

from wordsway import memory, seeds
from wordsway.checks import as_tensor, check_at_most, check_size
from wordsway.data.reviews import load_reviews
from wordsway.errors import InputError, one_line
from wordsway.maps import Attention
from wordsway.models.families import (
    Family,
    check_embeddings,
    family_of,
    is_causal,
    known_family,
    positions_of,
    skeleton,
)
from wordsway.models.layers import (
    DRAWS,
    AttentionScores,
    LayerChanges,
    LayerProfile,
    attention_scores,
    head_sensitivities,
    layer_changes,
    layer_profile,
)
from wordsway.models.outputs import output_named
from wordsway.models.profile import STEPS, TextProfile, profile
from wordsway.models.prompts import PromptPair, prompt_pair
from wordsway.models.radius import norm_radius
from wordsway.models.response import TextFeatures
from wordsway.models.swaps import Swaps, swaps
from wordsway.models.tokenizer import Tokenizer
from wordsway.models.words import Text, read_text
from wordsway.sensitivity import Sensitivity

_LOG = logging.getLogger(__name__)
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True, eq=False)
class Model:
    """A transformer that was read by `load`.

    Attributes
    ----------
    name
        What it was loaded by.
    family
        Its model_type, such as ``"bert"`` or ``"llama"``.
    causal
        Whether it is a decoder: a word sees only what comes before it.
    d
        Dimension of a word inside it.
    layers
        Number of layers.
    positions
        Number of tokens that it can read at once.
    vocabulary
        Token numbers are 0..vocabulary - 1.
    network
        transformers' own object, in evaluation mode and without gradient flags.
    tokenizer
        How it splits texts, or None where it has no tokenizer.
    """

    name: str
    family: str
    causal: bool
    d: int
    layers: int
    positions: int
    vocabulary: int
    network: Any = field(repr=False)
    tokenizer: Tokenizer | None = field(default=None, repr=False)

    # Texts

    @property
    def texts(self) -> Tokenizer:
        """The tokenizer; raises where the model has none."""
        if self.tokenizer is None:
            raise InputError(f"{self.name} must have a tokenizer to read texts, got none: load it with tokenizer=...")
        return self.tokenizer

    @property
    def chats(self) -> bool:
        """Whether it has a chat template."""
        return self.tokenizer is not None and self.tokenizer.chat is not None

    def read(self, text: str, *, cut: bool = False, chat: bool = False) -> Text:
        """Return a text as the model reads it: its words, and the tokens of each.

        Parameters
        ----------
        text
        cut
            Whether a text that is too long loses its end, with a warning in the log; otherwise it is refused.
        chat
            Whether it is put into the model's chat template, as the message of the user.
        """
        return read_text(self.texts, text, self.name, cut=cut, chat=chat)

    def tokens(self, text: str) -> list[int]:
        """Return the token numbers of a text, with the special ones that the tokenizer puts around it."""
        if not isinstance(text, str):
            raise InputError(f"text must be a string, got {type(text).__name__}: give one text at a time")
        return self.texts.split(text)

    def review_tokens(self, count: int, n: int, seed: int = 0) -> Tensor:
        """Return the first n tokens of film reviews, (count, n), with the special ones that open a text.

        The reviews are those that `review_contexts` draws with the same seed where the tokenizer is the same: half of
        them positive, each with at least n tokens, not counting special ones after the text; row k does not depend on
        `count`. They are tokenised in blocks until there are enough, and kept in the cache folder.
        """
        count, seed = check_size(count, "count"), seeds.check_seed(seed)
        n = check_at_most(n, "n", self.positions, f"the positions that {self.name} knows")
        reviews = load_reviews(self.texts)
        rows = [tokens[:n] for tokens in reviews.tokens(reviews.draw(count, n, seed))]
        return torch.from_numpy(np.stack(rows).astype(np.int64))

    def embedded(self, ids: Sequence[int] | None = None) -> Tensor:
        """Return the embeddings of tokens, by default of all, before anything is added: (len(ids), e).

        That is the table itself, except for models whose table scales what it holds (Gemma, XGLM).
        """
        table = self.network.get_input_embeddings()
        if type(table) is nn.Embedding and table.max_norm is None:
            weight: Tensor = table.weight.detach()
            return weight if ids is None else weight[list(ids)]
        wanted = torch.arange(self.vocabulary) if ids is None else torch.tensor(list(ids))
        with torch.no_grad():
            rows: Tensor = table(wanted.to(table.weight.device))
        return rows.detach()

    # Measurements on texts

    def features(self, text: str, on: str | int = "last", *, cut: bool = False, chat: bool = False) -> TextFeatures:
        """Return the map from the embedded text to what the model computes from it, with a fast response.

        Every measurement of maps takes it, with tokens as words: ``phi = model.features("a good film")``, then
        ``word_sensitivity(phi, phi.embedded, 2)``, ``local_lipschitz(phi, phi.embedded)`` and so on.

        Parameters
        ----------
        text
        on
            What is computed, as for `profile`.
        cut, chat
            As for `read`.
        """
        ids = self.read(text, cut=cut, chat=chat).ids
        return TextFeatures(self, ids, output_named(on, self.layers, self.network, self.name))

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
            The words to measure, as positions or as they are written; default: all of them.
        on
            What the change is measured on: ``"last"`` (the last hidden state of all tokens, relative), ``"pooled"``
            (their mean, of length 1), a layer (its hidden state; 0 is what the first layer reads), ``"next"`` (the
            distribution of the next token of a decoder, by total variation) or ``"class"`` (that of a classifier).
        radius
            Radius of the ball; default: the norm of the word's embedding.
        mode
            ``"search"``, or ``"fast"``: one jump along the steepest direction at the text itself, which finds less. How
            much less is measured for its top word, as `shortfall`.
        steps
            Forward and backward passes of a search, for each word. More steps never find less.
        special
            Whether special tokens, those of a chat template and blanks are measured too.
        cut, chat
            As for `read`.
        seed
            Seed of the starts of the search.
        progress
            Show a bar on stderr when it takes longer than two seconds.

        Notes
        -----
        Every value has a witness, so it is a lower bound on the supremum over the ball. Words are searched together, in
        batches that fit into memory; a decoder computes what comes before a word once. What moved the leading words
        most is tried for all others; apart from that, a word's result does not depend on which others are measured.
        """
        read = self.read(text, cut=cut, chat=chat)
        return profile(self, read, read.chosen(words, special), on, radius, mode, steps, seed, progress)

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
        """Return the entries of the vocabulary that move the model most in place of one word of a text.

        Parameters
        ----------
        text
        word
            Position of the word, from 0, or the word as it is written.
        top
            Number of replacements to return.
        on
            What the change is measured on, as for `profile`.
        whole
            Whether a replacement must be a word of letters.
        casing
            Whether it must have the case of the word: lower, upper, or a capital first.
        checks
            Number of candidates that are evaluated exactly; default: from 400 to 2,000, more where the text is short
            and the model small. They are those that gradients, and then a function learned from the values so far,
            rank first.
        exhaustive
            Whether all candidates are evaluated.
        compare
            Whether all are evaluated after the ranking, to measure how far it falls short.
        cut, chat
            As for `read`.
        seed
            Seed of the first candidates.
        progress
            Show a bar on stderr when it takes longer than two seconds.

        Notes
        -----
        Special tokens are never candidates, and the tokenizer has to read the candidate again from the text that it is
        written into. One token replaces all tokens of the word; rows are then compared with those of the text, in which
        the rows of the word count as one, their mean. A decoder computes what comes before it once.
        """
        read = self.read(text, cut=cut, chat=chat)
        chosen = read.word(word)
        return swaps(self, read, chosen, top, on, whole, casing, checks, exhaustive, compare, seed, progress)

    def layer_profile(
        self,
        text: str,
        word: int | str,
        *,
        radius: float | None = None,
        steps: int = STEPS,
        cut: bool = False,
        chat: bool = False,
        seed: int = 0,
        progress: bool = False,
    ) -> LayerProfile:
        """Return how far one word can move the hidden state after each layer; parameters are those of `profile`.

        The witness of each layer is tried for all others, so that no layer has a smaller value than another's witness
        gives it.
        """
        read = self.read(text, cut=cut, chat=chat)
        return layer_profile(self, read, read.word(word), radius, steps, seed, progress)

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
            Length of the perturbation of what the first layer reads; default: that of the word's own row.
        head
            The head of the first layer whose attention is attracted; default: all of them on average.
        draws
            Number of draws of Gaussian noise of the same length, to compare with.
        cut, chat
            As for `read`.
        seed
            Seed of the noise.

        Notes
        -----
        The direction is the mean over the heads of the first layer of the right singular vectors of Q^T K with the
        largest singular value; of its two signs the one that changes more is taken. 3 + draws passes of the model.
        """
        read = self.read(text, cut=cut, chat=chat)
        return layer_changes(self, read, read.word(word), norm, head, draws, seed)

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

        The word moves in what the layer reads, each of its tokens in its own ball; default radius: the norm of its row
        there.
        """
        read = self.read(text, cut=cut, chat=chat)
        return head_sensitivities(self, read, read.word(word), radius, seed)

    def attention_scores(
        self, text: str, index: SupportsIndex = 0, *, cut: bool = False, chat: bool = False
    ) -> AttentionScores:
        """Return the attention between the words of a text in a layer, by head."""
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
            Words whose probabilities are returned, summed over the ways to write the first token.
        chat
            Whether prompts are put into the model's chat template.
        """
        return prompt_pair(self, first, second, answers, chat=chat)

    # Layers

    def attention(self, index: SupportsIndex, causal: bool | None = None) -> Attention:
        """Return the self-attention of a layer: what its module returns for the same rows, without residual and norm.

        Parameters
        ----------
        index
            Layer, from 0 to layers - 1.
        causal
            Whether words see only what comes before them; default: as in the model. True puts a mask on an encoder.

        Notes
        -----
        The weights are the model's own, not copied, in its dtype. A layer with a sliding window (see `window`) sees no
        further than that, so this is its attention for contexts of at most so many words; a warning is logged where
        the model can read more.
        """
        layer = self.index(index)
        window = self.window(layer)
        if window is not None and window < self.positions:
            _LOG.warning(
                "layer %d of %s sees a window of %d words: its attention is the layer's for n <= %d only",
                *(layer, self.name, window, window),
            )
        arguments = self._kind.projections(self._body, layer)
        return Attention(**arguments, causal=self.causal if causal is None else causal)

    def window(self, index: SupportsIndex) -> int | None:
        """Return how many words a layer sees at most, itself included; None is all of them."""
        return self._kind.window(self.network.config, self.index(index))

    def layer_inputs(self, tokens: Any, index: SupportsIndex) -> Tensor:
        """Return what the attention of a layer reads: (B, n) token numbers -> (B, n, d), in the model's dtype.

        That is after the layer's own norm where it has one first (GPT-2, Llama), and otherwise the output of the layer
        below. All tokens count as words: none is padding.

        Notes
        -----
        Only the layers below are run, one text after the other, so that a row does not depend on how many there are:
        O(B (n^2 d + n d^2)) for each layer, with the n x n scores of one layer and one text in memory.
        """
        layer, numbers = self.index(index), self._token_numbers(tokens)
        texts, n = numbers.shape
        heads = self.network.config.num_attention_heads if layer else 1
        needed = (texts * n * self.d + 3 * heads * n * n) * next(self._body.parameters()).dtype.itemsize
        memory.require(needed, f"layer {layer} of {self.name} on {texts} x {n} tokens", "use fewer or shorter texts")
        below = self._below(layer)
        options = {"use_cache": False} if self.causal else {}
        with torch.no_grad():
            ones = torch.ones_like(numbers[:1])
            rows = [below(input_ids=row[None], attention_mask=ones, **options)[0] for row in numbers]
        return torch.cat(rows)

    def radius(self, index: SupportsIndex) -> float:
        """Return a radius R such that every row that the attention of a layer can ever read is in the ball B_R.

        It follows from the parameters of the norm that returns those rows, whatever the text (see `norm_radius`).
        """
        norm = self._kind.norm(self._body, self.index(index))
        return norm_radius(torch.ones(self.d) if norm.weight is None else norm.weight, getattr(norm, "bias", None))

    def index(self, index: SupportsIndex) -> int:
        """Return the number of a layer as an int, or raise where the model has no such layer."""
        try:
            layer = -1 if isinstance(index, bool) else operator.index(index)
        except (TypeError, ValueError):
            layer = -1
        if not 0 <= layer < self.layers:
            got = one_line(repr(index), 40)
            raise InputError(f"the layer must be 0..{self.layers - 1}, got {got}: {self.name} has {self.layers} layers")
        return layer

    @property
    def _body(self) -> Any:
        """The network without what it has on top of its layers."""
        return self.network.base_model

    @property
    def _kind(self) -> Family:
        return family_of(self.network.config)

    def _below(self, layer: int) -> Any:
        """The body as far as the attention of a layer: the layers below it, then the norm that this one has first."""
        body, kind = self._body, self._kind
        blocks = kind.blocks(body)
        instead = [(blocks, nn.ModuleList(list(blocks)[:layer])), (body.config, body.config)]
        if kind.last is not None:
            instead.append((kind.last(body), kind.norm(body, layer)))
        return skeleton(body, instead)

    def _token_numbers(self, tokens: Any) -> Tensor:
        """Token numbers as an int64 tensor (B, n) on the device of the network."""
        numbers = as_tensor(tokens, "tokens", "integers")
        if numbers.ndim != 2 or 0 in numbers.shape or numbers.dtype not in _INTEGERS:
            got = f"shape {tuple(numbers.shape)} of {numbers.dtype}"
            raise InputError(f"tokens must be integers (B, n), got {got}: give one row for each text")
        check_at_most(numbers.shape[1], "n", self.positions, f"the positions that {self.name} knows")
        low, high = int(numbers.min()), int(numbers.max())
        if low < 0 or high >= self.vocabulary:
            wrong = low if low < 0 else high
            raise InputError(f"tokens must be 0..{self.vocabulary - 1}, got {wrong}: make them with the method tokens")
        return numbers.to(next(self._body.parameters()).device, torch.int64)


def describe(name: str, network: Any, tokenizer: Tokenizer | None = None) -> Model:
    """Return the `Model` of a network that is ours: it is kept as it is."""
    config, body = network.config, network.base_model
    family = known_family(config)
    try:
        table = body.get_input_embeddings()
    except (AttributeError, NotImplementedError):  # how transformers reports that there is none
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
