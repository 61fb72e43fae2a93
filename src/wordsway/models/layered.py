"""A pre-trained transformer: its layers as `Attention`, what they read, and how large that can be."""

import logging
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsIndex

import numpy as np
import torch
from torch import Tensor, nn

from wordsway import memory, seeds
from wordsway.checks import check_at_most, check_size
from wordsway.data.reviews import load_reviews
from wordsway.errors import InputError, one_line
from wordsway.maps import Attention
from wordsway.models.families import Family, family_of, skeleton
from wordsway.models.radius import norm_radius
from wordsway.models.tokenizer import Tokenizer

_LOG = logging.getLogger(__name__)
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True, eq=False)
class Layered:
    """A transformer: its layers, and what they read.

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

    def attention(self, index: SupportsIndex, causal: bool | None = None) -> Attention:
        """Return the self-attention of a layer: what its own module gives for the same rows, without residual and norm.

        Parameters
        ----------
        index
            Layer, from 0 to layers - 1.
        causal
            Whether words see only what comes before them; the model's own way unless told. True puts a mask on an
            encoder.

        Notes
        -----
        The weights are the model's own, not copied, in its dtype. A layer with a sliding window (see `window`) sees no
        further than that, so that this is its attention for contexts of at most so many words; a warning is logged
        where the model can read more.
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

    def embedded(self, ids: Sequence[int] | None = None) -> Tensor:
        """Return the rows of tokens as the model embeds them, before anything is added: (len(ids), e); all unless told.

        That is the table itself, but for models whose table scales what it holds (Gemma, XGLM).
        """
        table = self.network.get_input_embeddings()
        if type(table) is nn.Embedding and table.max_norm is None:
            weight: Tensor = table.weight.detach()
            return weight if ids is None else weight[list(ids)]
        wanted = torch.arange(self.vocabulary) if ids is None else torch.tensor(list(ids))
        with torch.no_grad():
            rows: Tensor = table(wanted.to(table.weight.device))
        return rows.detach()

    def window(self, index: SupportsIndex) -> int | None:
        """Return how many words a layer sees at most, itself included; None is all of them."""
        return self._kind.window(self.network.config, self.index(index))

    def layer_inputs(self, tokens: Any, index: SupportsIndex) -> Tensor:
        """Return what the attention of a layer reads: (B, n) token numbers -> (B, n, d), in the model's dtype.

        That is after the layer's own norm where it has one first (GPT-2, Llama), and else what the layer below gives.
        All tokens count as words: none is taken for padding.

        Notes
        -----
        Only the layers below are run, one text after the other, so that a row does not depend on how many there are:
        O(B (n^2 d + n d^2)) for each layer, with the n x n scores of one layer and one text in memory.
        """
        layer, numbers = self.index(index), self._numbers(tokens)
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

        It follows from the parameters of the norm that gives those rows, whatever the text (see `norm_radius`).
        """
        norm = self._kind.norm(self._body, self.index(index))
        return norm_radius(torch.ones(self.d) if norm.weight is None else norm.weight, getattr(norm, "bias", None))

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

    @property
    def _body(self) -> Any:
        """The network without what it has on top of its layers."""
        return self.network.base_model

    @property
    def _kind(self) -> Family:
        return family_of(self.network.config)

    @property
    def texts(self) -> Tokenizer:
        """How it splits texts, or an error where it cannot read any."""
        if self.tokenizer is None:
            raise InputError(f"{self.name} must have a tokenizer to read texts, got none: load it with tokenizer=...")
        return self.tokenizer

    def _below(self, layer: int) -> Any:
        """The body as far as the attention of a layer: the layers below it, then the norm that this one has first."""
        body, kind = self._body, self._kind
        blocks = kind.blocks(body)
        instead = [(blocks, nn.ModuleList(list(blocks)[:layer])), (body.config, body.config)]
        if kind.last is not None:
            instead.append((kind.last(body), kind.norm(body, layer)))
        return skeleton(body, instead)

    def index(self, index: SupportsIndex) -> int:
        """The number of a layer, or an error that says which there are."""
        try:
            layer = -1 if isinstance(index, bool) else operator.index(index)
        except (TypeError, ValueError):
            layer = -1
        if not 0 <= layer < self.layers:
            got = one_line(repr(index), 40)
            raise InputError(f"the layer must be 0..{self.layers - 1}, got {got}: {self.name} has {self.layers} layers")
        return layer

    def _numbers(self, tokens: Any) -> Tensor:
        """Token numbers as an int64 tensor (B, n) on the device of the network."""
        try:
            numbers = torch.as_tensor(tokens)
        except (TypeError, ValueError, RuntimeError) as error:
            got = type(tokens).__name__
            raise InputError(f"tokens must be integers (B, n), got a {got}: make all rows equally long") from error
        if numbers.ndim != 2 or 0 in numbers.shape or numbers.dtype not in _INTEGERS:
            got = f"shape {tuple(numbers.shape)} of {numbers.dtype}"
            raise InputError(f"tokens must be integers (B, n), got {got}: give one row for each text")
        check_at_most(numbers.shape[1], "n", self.positions, f"the positions that {self.name} knows")
        low, high = int(numbers.min()), int(numbers.max())
        if low < 0 or high >= self.vocabulary:
            wrong = low if low < 0 else high
            raise InputError(f"tokens must be 0..{self.vocabulary - 1}, got {wrong}: make them with the method tokens")
        return numbers.to(next(self._body.parameters()).device, torch.int64)
