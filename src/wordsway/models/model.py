"""A pre-trained transformer: its layers, what they read, and measurements on texts."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsIndex

import numpy as np
import torch
from torch import Tensor, nn

from wordsway import memory
from wordsway.checks import as_tensor, check_at_most, check_index, check_seed, check_size
from wordsway.data.reviews import load_reviews
from wordsway.errors import InputError
from wordsway.maps import Attention
from wordsway.models.families import (
    Family,
    check_embeddings,
    family_of,
    is_causal,
    known_family,
    lower_layers,
    positions_of,
    window,
)
from wordsway.models.flips import flips
from wordsway.models.layers import attention_scores, head_sensitivities, layer_changes, layer_profile
from wordsway.models.outputs import chosen_output
from wordsway.models.profile import profile
from wordsway.models.prompts import prompt_pair
from wordsway.models.radius import norm_radius
from wordsway.models.response import TextFeatures
from wordsway.models.swaps import swaps
from wordsway.models.tokenizer import Tokenizer
from wordsway.models.words import Text, read_text
from wordsway.smoothness.heads import Ellipsoid

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

    # Measurements on texts: functions of a model

    profile = profile
    swaps = swaps
    flips = flips
    layer_profile = layer_profile
    layer_changes = layer_changes
    head_sensitivities = head_sensitivities
    attention_scores = attention_scores
    prompt_pair = prompt_pair

    def features(
        self,
        text: str | Text,
        on: str | int | None = None,
        *,
        pair: str | None = None,
        answers: Sequence[str] | None = None,
        target: str | None = None,
        cut: bool = False,
        chat: bool = False,
    ) -> TextFeatures:
        """Return the map from the embedded text to what the model computes from it, with a fast response.

        Every measurement of maps takes it, with tokens as words: ``phi = model.features("a good film")``, then
        ``word_sensitivity(phi, phi.embedded, 2)``, ``local_lipschitz(phi, phi.embedded)`` and so on. `on` is what is
        computed, as for `profile`, by default the last hidden state; so are `answers` and `target`. `pair`, `cut` and
        `chat` are those of `read`.
        """
        read = self.read(text, pair=pair, cut=cut, chat=chat)
        chosen = "last" if (on, answers, target) == (None, None, None) else on
        output = chosen_output(self, chosen, None, answers, target, chat, read)
        return TextFeatures(self, read.ids, output, read.second)

    @property
    def device(self) -> torch.device:
        """Where it is, and where everything is measured on it."""
        device: torch.device = next(self._body.parameters()).device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """That of its weights."""
        dtype: torch.dtype = next(self._body.parameters()).dtype
        return dtype

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

    def read(self, text: str | Text, *, pair: str | None = None, cut: bool = False, chat: bool = False) -> Text:
        """Return a text as the model reads it: its words, and the tokens of each.

        Parameters
        ----------
        text
            What was read before is returned as it is.
        pair
            A second text, for models that read two, such as a premise and a hypothesis.
        cut
            Whether a text that is too long loses its end, with a warning in the log; otherwise it is refused.
        chat
            Whether it is put into the model's chat template, as the message of the user.
        """
        if isinstance(text, Text):
            return text
        return read_text(self.texts, text, self.name, pair=pair, cut=cut, chat=chat)

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
        count, seed = check_size(count, "count"), check_seed(seed)
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
        wanted = torch.tensor(list(range(self.vocabulary) if ids is None else ids), device=table.weight.device)
        with torch.no_grad():
            rows: Tensor = table(wanted)
        return rows.detach()

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
        layer = self._layer(index)
        size = self.window(layer)
        if size is not None and size < self.positions:
            _LOG.warning(
                "layer %d of %s sees a window of %d words: its attention is the layer's for n <= %d only",
                *(layer, self.name, size, size),
            )
        arguments = self._kind.attention(self._body, layer)
        return Attention(**arguments, causal=self.causal if causal is None else causal)

    def window(self, index: SupportsIndex) -> int | None:
        """Return how many words a layer sees at most, itself included; None is all of them."""
        return window(self.network.config, self._layer(index))

    def layer_inputs(self, tokens: Any, index: SupportsIndex, normed: bool = True) -> Tensor:
        """Return what the attention of a layer reads: (B, n) token numbers -> (B, n, d), in the model's dtype.

        That is after the layer's own norm where it has one first (GPT-2, Llama), unless `normed` is False, and
        otherwise the output of the layer below. All tokens count as words: none is padding.

        Notes
        -----
        Only the layers below are run, one text after the other, so that a row does not depend on how many there are:
        O(B (n^2 d + n d^2)) for each layer, with the n x n scores of one layer and one text in memory.
        """
        layer, numbers = self._layer(index), self._token_numbers(tokens)
        texts, n = numbers.shape
        heads = self.network.config.num_attention_heads if layer else 1
        needed = (texts * n * self.d + 3 * heads * n * n) * self.dtype.itemsize
        memory.require(needed, f"layer {layer} of {self.name} on {texts} x {n} tokens", "use fewer or shorter texts")
        body, kind = self._body, self._kind
        below = lower_layers(body, kind, layer, kind.norm(body, layer) if normed else nn.Identity())
        options = {"use_cache": False} if self.causal else {}
        with torch.no_grad():
            ones = torch.ones_like(numbers[:1])
            rows = [below(input_ids=row[None], attention_mask=ones, **options)[0] for row in numbers]
        return torch.cat(rows)

    def radius(self, index: SupportsIndex) -> float:
        """Return a radius R such that every row that the attention of a layer can ever read is in the ball B_R.

        It follows from the parameters of the norm that returns those rows, whatever the text (see `norm_radius`).
        """
        weight, bias, _ = self._norm(index)
        return norm_radius(weight, bias)

    def ellipsoid(self, index: SupportsIndex) -> Ellipsoid:
        """Return the ellipsoid that contains every row that the attention of a layer can ever read (see `radius`)."""
        return Ellipsoid.of_norm(*self._norm(index))

    def _norm(self, index: SupportsIndex) -> tuple[Tensor, Tensor | None, bool]:
        """Weight and bias of the norm whose output a layer reads, and whether it subtracts the mean."""
        norm = self._kind.norm(self._body, self._layer(index))
        weight = torch.ones(self.d, device=self.device) if norm.weight is None else norm.weight
        return weight, getattr(norm, "bias", None), isinstance(norm, nn.LayerNorm)

    @property
    def _body(self) -> Any:
        """The network without what it has on top of its layers."""
        return self.network.base_model

    @property
    def _kind(self) -> Family:
        return family_of(self.network.config)

    def _layer(self, index: SupportsIndex) -> int:
        return check_index(index, self.layers, "the layer")

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
        return numbers.to(self.device, torch.int64)


def describe(name: str, network: Any) -> Model:
    """Return the `Model` of a network that no one else uses: it is kept, in evaluation mode and without gradients."""
    network.eval().requires_grad_(False)
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
    )
    if family is None:
        check_embeddings(model)
    return model
