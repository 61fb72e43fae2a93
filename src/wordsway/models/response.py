"""A text inside a model: a map over its embeddings, and the fast response of that map along words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from wordsway import memory
from wordsway.errors import InputError, NumericalError
from wordsway.maps.response import Ceiling, Functional, SearchHints, ValueAndGradient, check_moves, layout
from wordsway.models.families import alike, known_family, lower_layers, skeleton
from wordsway.models.outputs import Output, check_finite, output_named, wide
from wordsway.seeds import normal

if TYPE_CHECKING:
    from wordsway.models.model import Model

Span: TypeAlias = tuple[int, ...]  # rows of the tokens of one word

_MEMORY = 3 * 2**29  # bytes that a batch may take
_LITTLE = 2**26  # bytes for which free memory is not looked up
_TOKENS = 1024  # of a batch without gradients: larger ones are slower
_NUDGE = 0.05  # of a radius: how far from the embedding 0 a search begins
_STARTS = 6  # random ones, for the rounds of long searches
_EXCHANGED = 3  # words whose witnesses are tried for all others


class TextFeatures:
    """The map phi from an embedded text X (n, e) to what a model computes from it.

    Everything that takes a map takes this one, with rows of X as words: ``phi = model.features("a text")``, then
    ``word_sensitivity(phi, phi.embedded, 2)``. The change of a distribution is its total variation (see `Output`).

    Attributes
    ----------
    output : Output
        What the features are.
    embedded : Tensor (n, e)
        X of the text itself: the embeddings of its tokens as the model takes them, in single precision at least. After
        them come those of the continuation, where its probability is read.
    second : int
        Number of tokens at the end that belong to the second text of a pair, for models that are told which these are.
    network : Module
        What is run of the model.
    """

    batched = True

    def __init__(self, model: Model, ids: Sequence[int], on: str | int | Output = "last", second: int = 0) -> None:
        self.model, self.output, self.second = model, output_named(model, on), second
        if self.output.word is not None and self.output.at is None:
            raise InputError(
                f"{self.output.name} needs one text in which the token is known: use a profile, swaps or flips"
            )
        ids = (*ids, *self.output.suffix)
        if len(ids) > model.positions:
            count = f"{model.positions} tokens, which is all that {model.name} reads, got {len(ids)}"
            raise InputError(f"the text and its target must have at most {count}: shorten them")
        self.embedded = wide(model.embedded(ids))
        self._dtype = model.embedded(ids[:1]).dtype
        self.network = self._needed()

    def __call__(self, X: Tensor) -> Tensor:
        """Features of embedded texts (..., n, e); differentiable twice, as Lipschitz constants need it."""
        flat = X.reshape(-1, *X.shape[-2:])
        with sdpa_kernel(SDPBackend.MATH):  # the fused kernels have no second derivative
            values = self.output.features(self.output.read(self.run(flat)))
        return values.reshape(*X.shape[:-2], *values.shape[1:])

    def respond(self, X: Tensor, word: int | Sequence[int], together: bool = False) -> TransformerResponse:
        """The response along rows of X: each moves on its own, or all of them together, each in its own ball."""
        rows = (word,) if isinstance(word, int) else tuple(word)
        shape, batch = layout(X.shape[1], word, together)
        return TransformerResponse(self, X, [rows] if together else [(row,) for row in rows], shape, batch)

    def along(self, spans: Sequence[Span], base: Tensor | None = None) -> TransformerResponse:
        """The response of the text along words of one or several tokens, each moving on its own in one ball.

        A perturbation of a word is that of its rows, one after the other; those of shorter words end in numbers that
        are not used. `base` are other values to compare with than those of the text itself.
        """
        width = max(map(len, spans)) * self.embedded.shape[1]
        return TransformerResponse(self, self.embedded, spans, (len(spans), width), (len(spans),), base)

    def run(
        self, batch: Tensor, past: Any = None, first: int = 0, second: int | None = None, at: int | None = None
    ) -> Tensor:
        """What the output reads from, for embeddings (B, n, e) of texts of any length: see `Output.read`.

        With keys and values of the `first` tokens in `past`, `batch` holds the rows after them, and so does what is
        returned. The last `second` tokens are those of the second text of a pair; by default as many as in this one.
        `at` is the token whose prediction is read, by default that of the output.
        """
        options: dict[str, Any] = {"attention_mask": self._mask(len(batch), first + batch.shape[1])}
        second = self.second if second is None else second
        if second and getattr(self.model.network.config, "type_vocab_size", 0) > 1:
            kinds = torch.arange(batch.shape[1], device=batch.device) >= batch.shape[1] - second
            options["token_type_ids"] = kinds.long().expand(len(batch), -1)
        if past is not None:
            options |= {"past_key_values": past, "use_cache": True}
        elif self.model.causal:
            options["use_cache"] = False
        given = batch.to(self._dtype, copy=True)  # some models write into what they are given
        if self.output.kept:
            options["logits_to_keep"] = self.output.kept
        if self.output.predicts:
            logits: Tensor = self.network(inputs_embeds=given, **options).logits
            place = self.output.at if at is None else at
            if place is not None:
                return logits[:, [place]]
            return logits[:, -self.output.kept :] if self.output.kept else logits
        if self.output.layer is None or self._cuts_layers:
            rows: Tensor = self.network(inputs_embeds=given, **options)[0]
            return rows
        states: Sequence[Tensor] = self.network(inputs_embeds=given, output_hidden_states=True, **options).hidden_states
        return states[self.output.layer]

    def remember(self, X: Tensor) -> list[Any]:
        """Keys and values of every token in each layer that is run; none where some layer lacks some of them."""
        options: dict[str, Any] = {"attention_mask": self._mask(1, len(X)), "use_cache": True}
        if self.output.kept:
            options["logits_to_keep"] = self.output.kept
        with torch.no_grad():
            given = X[None].to(self._dtype, copy=True)
            past = getattr(self.network(inputs_embeds=given, **options), "past_key_values", None)
        layers = list(takewhile(lambda layer: getattr(layer, "keys", None) is not None, getattr(past, "layers", ())))
        whole = len(layers) == (self.output.layer if self._cuts_layers else self.model.layers)
        return layers if whole and all(layer.keys.shape[2] == len(X) for layer in layers) else []

    def _mask(self, count: int, length: int) -> Tensor:
        return torch.ones(count, length, dtype=torch.long, device=self.embedded.device)

    @property
    def _cuts_layers(self) -> bool:
        """Whether only the layers below the measured one are run."""
        return self.output.layer is not None and known_family(self.model.network.config) is not None

    def _needed(self) -> Any:
        """What has to be run: everything for a distribution, the body for rows, and no layer above the measured one."""
        network, layer = self.model.network, self.output.layer
        if self.output.predicts:
            return network
        body, family = network.base_model, known_family(network.config)
        if layer is not None and family is None:
            return skeleton(body)  # hooks that return hidden states are removed with it
        if layer is None or family is None or layer == self.model.layers:
            return body
        return lower_layers(body, family, layer, nn.Identity())

    @property
    def operations(self) -> float:
        """Operations of one pass over the text, as far as they are products with weights."""
        weights: int = sum(weight.numel() for weight in self.network.parameters())
        return 2.0 * max(weights - self.model.embedded().numel(), 1) * len(self.embedded)

    def batch_size(self, gradient: bool, length: int | None = None) -> int:
        """Texts of one batch: with gradients all layers keep what they computed, otherwise one at a time does."""
        config, n = self.model.network.config, length or len(self.embedded)
        if self.output.name == "class" and self.model.causal and getattr(config, "pad_token_id", None) is None:
            return 1  # such a classifier does not know where a text of a batch ends
        widths = getattr(config, "intermediate_size", None) or 4 * self.model.d
        inner = widths if isinstance(widths, int) else max(widths)  # some configurations have one for each layer
        heads = getattr(config, "num_attention_heads", 1)
        layer = 4 * (n * (12 * self.model.d + 4 * inner) + 4 * heads * n * n)
        if not gradient and _TOKENS // n * layer < _LITTLE:  # what is free takes a millisecond to find out
            return max(1, _TOKENS // n)
        free = min(_MEMORY, memory.available() // 3)
        if not gradient:
            return max(1, min(_TOKENS // n, free // layer))
        layers = self.model.layers if self.output.layer is None else max(self.output.layer, 1)
        return max(1, min(64, free // (layer * layers)))


class CleanPass:
    """What a network returns for a text, and for texts with the same beginning.

    A decoder computes the beginning once: its keys and values are kept.

    Attributes
    ----------
    values : Tensor
        What the network returns for the text itself: rows (1, n, d) or logits (1, ...).
    """

    def __init__(self, phi: TextFeatures, X: Tensor) -> None:
        self.phi, self.X = phi, X
        self._past: list[Any] | None = None if phi.model.causal else []
        with torch.set_grad_enabled(X.requires_grad):
            self.values = phi.run(X[None])

    def run(self, texts: Tensor, first: int, second: int | None = None, at: int | None = None) -> Tensor:
        """What the network returns for texts (B, m, e), of any length, that begin with the same `first` rows."""
        reuses = first > 0 and self.phi.output.at is None  # the token that is read may be among the first ones
        past = self._prefix(len(texts), first) if reuses else None
        if past is None:
            return self.phi.run(texts, second=second, at=at)
        rest = self.phi.run(texts[:, first:], past, first)
        if self.phi.output.predicts:
            return rest
        return torch.cat([self.values[:, :first].expand(len(texts), -1, -1), rest], 1)

    def _prefix(self, count: int, first: int) -> Any:
        """Keys and values of the rows before `first`, for a batch; None where the model cannot use them."""
        from transformers import DynamicCache  # late: only a network that transformers made gets here

        if self._past is None:
            self._past = self.phi.remember(self.X)
            if self._past and not self._same_from_the_past():
                self._past = []
        if not self._past:
            return None
        cache = DynamicCache()
        for index, layer in enumerate(self._past):
            cache.update(*(part[:, :, :first].expand(count, -1, -1, -1) for part in (layer.keys, layer.values)), index)
        return cache

    def _same_from_the_past(self) -> bool:
        """Whether the text itself is read the same; some models count positions of embeddings from 0 again."""
        with torch.no_grad():
            again = self.run(self.X[None], len(self.X) // 2)
        return alike(again, self.values)


class TransformerResponse:
    """Response of a model at an embedded text, in batches that fit into memory.

    A decoder computes what comes before the first moved row of a batch once: its keys and values are kept. The change
    of a distribution is the total variation, that of anything else is relative.

    Attributes
    ----------
    base : Tensor
        What the output reads for the text itself: rows, or logarithms of probabilities.
    """

    def __init__(
        self,
        phi: TextFeatures,
        X: Tensor,
        spans: Sequence[Span],
        shape: tuple[int, ...],
        batch: tuple[int, ...],
        base: Tensor | None = None,
    ) -> None:
        if X.shape != phi.embedded.shape:
            got = " x ".join(map(str, X.shape))
            raise InputError(f"the context must have the shape of the embedded text, got {got}: use phi.embedded")
        self.phi, self.X, self.spans = phi, X.to(phi.embedded), [tuple(span) for span in spans]
        self.shape, self.batch = shape, batch
        self._longest = max(map(len, self.spans))
        self._clean = CleanPass(phi, self.X.detach())
        n = len(X)
        if not phi.output.predicts and self._clean.values.shape[1] != n:
            got = f"{self._clean.values.shape[1]} for {n}"
            raise InputError(f"{phi.model.name} must return a row for each token, got {got}: measure on another layer")
        self.base = phi.output.read(self._clean.values)[0] if base is None else base
        check_finite(phi.model, self.base, "the text")

    @property
    def hints(self) -> SearchHints:
        own = len(self.batch) == 1 and self.shape[-1] == self._longest * self.X.shape[1]
        return SearchHints(
            self.X.dtype,
            self.X.device,
            starts=self._starts,
            exchange=self._exchange if own and len(self.spans) > 1 else None,
            random_starts=0,
            nonsmooth=True,
            expensive=True,
        )

    def features(self, delta: Tensor) -> Tensor:
        check_moves(delta, self.shape)
        features = self.base.new_zeros(len(self._moves(delta)), *self.base.shape)
        with torch.no_grad():
            for _, places, values in self._passes(delta, False):
                features[places] = self.phi.output.features(values)
        return features.reshape(*self._lead(delta), *self.base.shape)

    def change(self, delta: Tensor, gradient: bool = True) -> ValueAndGradient:
        return self._evaluate(delta, lambda values: self.phi.output.change(self.base, values), gradient)

    def divergence(self, delta: Tensor) -> Tensor | None:
        """The Kullback-Leibler divergence of each perturbed distribution from that of the text, in nats."""
        if not self.phi.output.distribution:
            return None
        return self._evaluate(delta, lambda values: self.phi.output.divergence(self.base, values), False)[0]

    def inner(self, u: Tensor) -> Functional:
        weights = u.to(self.base).reshape(-1)

        def product(values: Tensor) -> Tensor:
            return self.phi.output.features(values).flatten(1) @ weights

        return lambda delta: self._evaluate(delta, product, True)

    def ceiling(self, radius: float, effort: str = "quick") -> Ceiling | None:
        return None

    def _evaluate(self, delta: Tensor, function: Callable[[Tensor], Tensor], gradient: bool) -> ValueAndGradient:
        """A function (b, ...) -> (b,) of what the output reads, at each perturbation, with its gradient."""
        check_moves(delta, self.shape)
        moves = self._moves(delta)
        values = self.base.new_zeros(len(moves))
        gradients = torch.zeros_like(moves) if gradient else None
        with torch.set_grad_enabled(gradient):
            for moved, places, read in self._passes(delta, gradient):
                result = function(read)
                values[places] = result.detach()
                if gradients is not None:
                    (gradients[places],) = torch.autograd.grad(result.sum(), moved)
        if not bool(torch.isfinite(values).all()):
            raise NumericalError("the features of a perturbed context are not finite: use a smaller radius")
        return values.reshape(self._lead(delta)), None if gradients is None else gradients.reshape(delta.shape)

    def _passes(self, delta: Tensor, gradient: bool) -> Iterator[tuple[Tensor, list[int], Tensor]]:
        """Batches of moves (b, m, e) with their places, and what the output reads for them."""
        moves, count = self._moves(delta), len(self.spans)
        first = [min(span) if self.phi.model.causal else 0 for span in self.spans]
        order = sorted(range(len(moves)), key=lambda place: -first[place % count])  # those with a long past together
        size = self.phi.batch_size(gradient)
        for start in range(0, len(order), size):
            places = order[start : start + size]
            moved = moves[places].detach().requires_grad_(gradient)
            before = min(first[place % count] for place in places)
            yield moved, places, self.phi.output.read(self._clean.run(self._perturbed(moved, places), before))

    def _moves(self, delta: Tensor) -> Tensor:
        """Perturbations as moves of rows, (items, m, e), where items run over the batch and then the words."""
        return delta.to(self.X).reshape(-1, self._longest, self.X.shape[1])

    def _lead(self, delta: Tensor) -> torch.Size:
        return delta.shape[: delta.ndim - len(self.shape)] + torch.Size(self.batch)

    def _perturbed(self, moves: Tensor, places: Sequence[int]) -> Tensor:
        """The embedded texts (b, n, e) with the rows of one word moved in each."""
        spans = [self.spans[place % len(self.spans)] for place in places]
        items = [item for item, span in enumerate(spans) for _ in span]
        rows = [row for span in spans for row in span]
        parts = [part for span in spans for part in range(len(span))]
        where = tuple(torch.tensor(one, device=self.X.device) for one in (items, rows))
        texts: Tensor = self.X.expand(len(spans), -1, -1).index_put(where, moves[items, parts], accumulate=True)
        return texts

    def _own(self) -> Tensor:
        """The rows of each word, (words, m, e), 0 beyond its tokens."""
        own = self.X.new_zeros(len(self.spans), self._longest, self.X.shape[1])
        for place, span in enumerate(self.spans):
            own[place, : len(span)] = self.X[list(span)]
        return own

    def _used(self) -> Tensor:
        used = [[part < len(span) for part in range(self._longest)] for span in self.spans]
        return torch.tensor(used, device=self.X.device)[..., None].to(self.X)

    def _starts(self, source: np.random.Generator) -> Tensor:
        """Points to start from: near the embedding 0, then random ones as long as the embedding.

        The norms of a model make what is left near 0 large, so that one step leads to any direction, while around the
        word itself the model hardly moves. The same random directions serve every word.
        """
        e = self.X.shape[1]
        # row by row, so that a word's starts do not depend on how many tokens others have
        drawn = torch.stack([normal(source, (_STARTS, e)) for _ in range(self._longest)], 1)
        random = drawn.to(self.X)[:, None] * self._used()  # B W m e
        size: Tensor = torch.linalg.vector_norm(random, dim=(2, 3), keepdim=True)
        own = self._own()
        norm: Tensor = torch.linalg.vector_norm(own, dim=(1, 2), keepdim=True)
        random = random / size * torch.where(norm > 0, norm, 1.0)
        return torch.cat([_NUDGE * random[:1] - own, random[1:]]).reshape(-1, *self.shape)

    def _exchange(self, delta: Tensor, values: Tensor) -> Tensor:
        """Perturbations of every word to where the words that move the model most have moved, (B, *shape)."""
        own = self._own()
        top = values.topk(min(_EXCHANGED, len(values))).indices
        targets = (own + delta.reshape(own.shape))[top]
        return ((targets[:, None] - own) * self._used()).reshape(-1, *self.shape)
