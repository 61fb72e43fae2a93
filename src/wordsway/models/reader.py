"""A model at one text whose words move in their embeddings: batches of forward and backward passes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from wordsway import memory
from wordsway.errors import InputError, NumericalError
from wordsway.models.families import alike, known_family, skeleton
from wordsway.models.outputs import Output
from wordsway.models.words import Word

if TYPE_CHECKING:
    from wordsway.models.model import Model

_ROOM = 3 * 2**29  # bytes that a batch may take
_TOKENS = 1024  # of a batch without gradients: larger ones are slower


class Reader:
    """What a model gives for a text, and for the text with moved words.

    A decoder computes what stands before the first word that moves once: the keys and values of that are kept.

    Attributes
    ----------
    rows : Tensor (n, e)
        Embeddings of the tokens, as the model takes them.
    before : Tensor
        The output for the text as it is.
    """

    def __init__(self, model: Model, ids: Sequence[int], output: Output) -> None:
        self.model, self.output = model, output
        self.network = self._network()
        self.rows = model.embedded(ids)
        self.ones = torch.ones(1, len(ids), dtype=torch.long, device=self.rows.device)
        self._past: Any = None
        with torch.no_grad():
            self._whole = self._raw(self.rows[None], 0)
        if not output.distribution and self._whole.shape[1] != len(ids):
            got = f"{self._whole.shape[1]} for {len(ids)}"
            raise InputError(f"{model.name} must give a row for each token, got {got}: measure on another layer")
        self.before = output.features(self._whole)[0]
        if not bool(torch.isfinite(self.before).all()):
            raise NumericalError(f"{model.name} must give finite numbers for the text, got others: check its weights")

    def changes(
        self, words: Sequence[Word], moves: Tensor, gradient: bool = False
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """How far the output moves where word k moves by moves[k], each on its own.

        Parameters
        ----------
        words : sequence of Word
        moves : Tensor (W, m, e)
            One row for each token of a word; rows beyond its tokens are not read.
        gradient : bool

        Returns
        -------
        changes : Tensor (W,)
        gradients : Tensor (W, m, e) or None
            0 in the rows that are not read.
        divergences : Tensor (W,) or None
            For a distribution.
        """
        count = len(words)
        values, gradients = self.before.new_zeros(count), torch.zeros_like(moves) if gradient else None
        apart = self.before.new_zeros(count) if self.output.distribution else None
        order = sorted(range(count), key=lambda place: -words[place].tokens[0])  # those with a long past together
        size = self._fitting(gradient)
        for start in range(0, count, size):
            some = order[start : start + size]
            first = min(words[place].tokens[0] for place in some) if self.model.causal else 0
            with torch.set_grad_enabled(gradient):
                chosen = moves[some].detach().requires_grad_(gradient)
                now = self._features(self._moved([words[place] for place in some], chosen), first)
                change = self.output.change(self.before, now)
            values[some] = change.detach()
            if gradients is not None:
                (gradients[some],) = torch.autograd.grad(change.sum(), chosen)
            if apart is not None:
                found = self.output.divergence(self.before, now.detach())
                assert found is not None
                apart[some] = found
        return values, gradients, apart

    def pull(self, cotangents: Tensor) -> Tensor:
        """The products u^T J of the Jacobian of the output in all rows at once, for each u of (K, ...): (K, n, e)."""
        rows = self.rows.clone().requires_grad_(True)
        with torch.enable_grad():
            now = self._features(rows[None], 0)[0]
            if self.output.distribution:
                now = now.exp()
            pulled = [torch.autograd.grad((now * u).sum(), rows, retain_graph=True)[0] for u in cotangents]
        return torch.stack(pulled)

    def _moved(self, words: Sequence[Word], moves: Tensor) -> Tensor:
        """The embeddings (B, n, e) of the text with one word moved in each."""
        items = [item for item, word in enumerate(words) for _ in word.tokens]
        places = [place for word in words for place in word.tokens]
        parts = [part for word in words for part in range(len(word.tokens))]
        batch = self.rows.expand(len(words), -1, -1)
        where = (torch.tensor(items), torch.tensor(places))
        moved: Tensor = batch.index_put(where, moves[items, parts], accumulate=True)
        return moved

    def _features(self, batch: Tensor, first: int) -> Tensor:
        return self.output.features(self._raw(batch, first))

    def _raw(self, batch: Tensor, first: int) -> Tensor:
        """Rows (B, n, d) or logits (B, classes); of the tokens before `first` only what is kept is used."""
        batch = batch.clone()  # some models write into what they are given
        count, n = batch.shape[:2]
        options: dict[str, Any] = {"attention_mask": self.ones.expand(count, -1)}
        if first > 0 and (past := self._cache(count, first)) is not None:
            options |= {"past_key_values": past, "use_cache": True}
            batch = batch[:, first:]
        elif self.model.causal:
            options["use_cache"] = False
        if self.output.distribution:
            if self.output.name == "next":
                options["logits_to_keep"] = 1
            logits: Tensor = self.network(inputs_embeds=batch, **options).logits
            return logits[:, -1] if self.output.name == "next" else logits
        rows = self._rows(batch, options)
        if first == 0 or rows.shape[1] == n:
            return rows
        return torch.cat([self._whole[:, :first].expand(count, -1, -1), rows], 1)

    def _rows(self, batch: Tensor, options: dict[str, Any]) -> Tensor:
        layer = self.output.layer
        if layer is None or known_family(self.model.network.config) is not None:
            rows: Tensor = self.network(inputs_embeds=batch, **options)[0]
            return rows
        states = self.network(inputs_embeds=batch, output_hidden_states=True, **options).hidden_states
        found: Tensor = states[layer]
        return found

    def _network(self) -> Any:
        """What has to be run: everything for a distribution, the body for rows, and no layer above the one asked."""
        network, layer = self.model.network, self.output.layer
        if self.output.distribution:
            return network
        body, family = network.base_model, known_family(network.config)
        if layer is not None and family is None:
            return skeleton(body, [(body.config, body.config)])  # hooks that give hidden states go with it
        if layer is None or family is None or layer == self.model.layers:
            return body
        blocks = family.blocks(body)
        instead = [(blocks, nn.ModuleList(list(blocks)[:layer])), (body.config, body.config)]
        if family.last is not None:
            instead.append((family.last(body), nn.Identity()))
        return skeleton(body, instead)

    def _cache(self, count: int, first: int) -> Any:
        """Keys and values of the tokens before `first`, for a batch; None where the model cannot use them."""
        from wordsway.models.transformer import prefix_cache

        if self._past is None:
            self._past = SimpleNamespace(layers=self._remembered())
            if self._past.layers and not self._same_from_the_past():
                self._past.layers = []
        return prefix_cache(self._past, count, first) if self._past.layers else None

    def _remembered(self) -> list[Any]:
        """Of each layer that is run its keys and values of all tokens; none where some layer lacks some of them."""
        options = {"attention_mask": self.ones, "use_cache": True}
        if self.output.name == "next":
            options["logits_to_keep"] = 1
        with torch.no_grad():
            past = getattr(self.network(inputs_embeds=self.rows[None].clone(), **options), "past_key_values", None)
        layers = list(takewhile(lambda one: getattr(one, "keys", None) is not None, getattr(past, "layers", ())))
        cut = self.output.layer is not None and known_family(self.model.network.config) is not None
        whole = len(layers) == (self.output.layer if cut else self.model.layers)
        return layers if whole and all(one.keys.shape[2] == len(self.rows) for one in layers) else []

    def _same_from_the_past(self) -> bool:
        """Whether the text itself comes out the same; some models count positions of embeddings from 0 again."""
        first = len(self.rows) // 2
        with torch.no_grad():
            again = self._raw(self.rows[None], first)
        return alike(again, self._whole)

    def _fitting(self, gradient: bool) -> int:
        """Items of a batch: with gradients all layers keep what they computed, else one at a time does."""
        config, n = self.model.network.config, len(self.rows)
        widths = getattr(config, "intermediate_size", None) or 4 * self.model.d
        wide = widths if isinstance(widths, int) else max(widths)  # some say it for each layer
        heads = getattr(config, "num_attention_heads", 1)
        layers = self.model.layers if self.output.layer is None else max(self.output.layer, 1)
        layer = 4 * (n * (12 * self.model.d + 4 * wide) + 4 * heads * n * n)
        room = min(_ROOM, memory.available() // 3)
        if self.output.name == "class" and self.model.causal and getattr(config, "pad_token_id", None) is None:
            return 1  # such a classifier cannot tell where a text of a batch ends
        if not gradient:
            return max(1, min(_TOKENS // n, room // layer))
        return max(1, min(64, room // (layer * layers)))
