"""Layer by layer: how far a word can move each, a perturbation that attracts attention, and attention scores."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from wordsway.checks import check_index, check_positive, check_size
from wordsway.maps import Attention
from wordsway.maps.attention import NAMES
from wordsway.models.ball import STEPS, word_radii
from wordsway.models.families import family_of, skeleton
from wordsway.models.response import TextFeatures
from wordsway.models.words import Text, Word, WordLike
from wordsway.records import Record
from wordsway.seeds import generator, normal
from wordsway.sensitivity import SearchBudget, Sensitivity, response_profile, word_sensitivity
from wordsway.smoothness.heads import factors

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from wordsway.models.model import Model

_BUDGET = SearchBudget(power=3, screen=4, keep=1, polish=20, tolerance=1e-4)


@dataclass(frozen=True, eq=False, repr=False)
class AttentionScores(Record):
    """Attention between the tokens of a text, in one layer.

    Attributes
    ----------
    model : str
    text : Text
    layer : int
    scores : Tensor (heads, n, n)
        Attention of each token (row) to each other (column); rows sum to 1.
    """

    model: str
    text: Text
    layer: int
    scores: Tensor

    def mean(self) -> tuple[list[str], Tensor]:
        """Return the scores averaged over heads, among the words of the text: their names, and (words, words).

        Tokens of one word are taken together: the mean over their rows, the sum over their columns. Special tokens are
        left out, so that rows sum to less than 1.
        """
        words = self.text.scored
        average = self.scores.mean(0)
        columns = torch.stack([average[:, list(word.tokens)].sum(1) for word in words], 1)
        rows = torch.stack([columns[list(word.tokens)].mean(0) for word in words])
        return [word.text for word in words], rows

    def to_dict(self) -> dict[str, Any]:
        names, scores = self.mean()
        return {"model": self.model, "layer": self.layer, "words": names, "scores": scores.tolist()}


@dataclass(frozen=True, eq=False, repr=False)
class LayerChanges(Record):
    """Relative change of the hidden state after every layer, when one word moves in what the first layer reads.

    Attributes
    ----------
    model : str
    text : Text
    word : Word
    norm : float
        Length of the perturbation.
    attracting : Tensor (layers + 1,)
        Of the perturbation that attracts attention; entry 0 is the change of the input itself.
    noise : Tensor (draws, layers + 1)
        Of Gaussian noise of the same length.
    before, after : Tensor (heads, n, n)
        Attention in the first layer, without and with the attracting perturbation.
    delta : Tensor (tokens, d)
        The attracting perturbation.
    """

    model: str
    text: Text
    word: Word
    norm: float
    attracting: Tensor
    noise: Tensor
    before: Tensor
    after: Tensor
    delta: Tensor

    def looked_at(self, head: int | None = None) -> tuple[float, float]:
        """Return the mean attention of the other tokens to the word, before and after; default: over all heads."""
        own = list(self.word.tokens)
        others = [place for place in range(self.before.shape[-1]) if place not in own]
        heads = list(_heads(len(self.before), head))
        chosen = [scores[heads] for scores in (self.before, self.after)]
        before, after = (float(scores[:, others][:, :, own].sum(2).mean()) for scores in chosen)
        return before, after

    def to_dict(self) -> dict[str, Any]:
        before, after = self.looked_at()
        return {
            "model": self.model,
            "position": self.word.position,
            "word": self.word.text,
            "norm": self.norm,
            "attracting": self.attracting.tolist(),
            "noise": self.noise.mean(0).tolist(),
            "noise_deviation": (self.noise.std(0) if len(self.noise) > 1 else 0 * self.noise[0]).tolist(),
            "looked_at_before": before,
            "looked_at_after": after,
        }


@dataclass(frozen=True, eq=False, repr=False)
class LayerProfile(Record):
    """How far one word can move the hidden state after each layer.

    Attributes
    ----------
    model : str
    text : Text
    word : Word
    radius : float
        Radius of the ball that the embedding of the word moves in.
    values : Tensor (layers + 1,)
        Lower bounds with witnesses; entry 0 is what the first layer reads.
    deltas : Tensor (layers + 1, tokens, e)
        The witnesses.
    """

    summary_fields = ("model", "radius", "values")

    model: str
    text: Text
    word: Word
    radius: float
    values: Tensor
    deltas: Tensor

    def rows(self) -> list[dict[str, Any]]:
        return [{"layer": layer, "sensitivity": value} for layer, value in enumerate(self.values.tolist())]

    def to_dict(self) -> dict[str, Any]:
        word = {"position": self.word.position, "word": self.word.text, "radius": self.radius}
        return {"model": self.model, "text": self.text.text, **word, "layers": self.rows()}

    def draw(self, ax: Axes) -> None:
        ax.plot(range(len(self.values)), self.values.tolist(), "o-")
        ax.set(xlabel="layer", ylabel="relative change", title=f"word {self.word.text!r}")


def layer_profile(
    model: Model,
    text: str | Text,
    word: WordLike,
    *,
    radius: float | None = None,
    steps: int = STEPS,
    cut: bool = False,
    chat: bool = False,
    seed: int = 0,
    progress: bool = False,
) -> LayerProfile:
    """Return how far one word can move the hidden state after each layer; parameters are those of `profile`.

    The ball is searched once for each layer, and the witness of each layer is tried for all others, so that no layer
    has a smaller value than another's witness gives it.
    """
    budget = SearchBudget(ascent=check_size(steps, "steps"))
    read = model.read(text, cut=cut, chat=chat)
    moved = read.word(word)
    responses, witnesses = [], []
    for layer in tqdm(range(model.layers + 1), desc="layers", delay=2, leave=False, disable=not progress):
        phi = TextFeatures(model, read.ids, layer, read.second)
        radii = word_radii(phi, [moved], radius)
        responses.append(phi.along([moved.tokens]))
        measured = response_profile(responses[-1], [moved.tokens[0]], radii, seed=seed, budget=budget)
        witnesses.append(measured.deltas)
    tried = torch.stack(witnesses)  # L 1 m e
    values = torch.stack([response.change(tried, gradient=False)[0][:, 0] for response in responses])
    best = values.argmax(1)
    deltas = tried[best].reshape(len(best), len(moved.tokens), -1)
    return LayerProfile(model.name, read, moved, float(radii[0]), values.amax(1), deltas)


def layer_changes(
    model: Model,
    text: str | Text,
    word: WordLike,
    *,
    norm: float | None = None,
    head: int | None = None,
    draws: int = 8,
    cut: bool = False,
    chat: bool = False,
    seed: int = 0,
) -> LayerChanges:
    """Return the relative change after every layer when a word moves so that it attracts attention.

    Parameters
    ----------
    model, text, cut, chat
        As for `profile`.
    word
        Position of the word, from 0, or the word as it is written.
    norm
        Length of the perturbation of what the first layer reads; default: that of the word's own row.
    head
        The head of the first layer whose attention is attracted; default: all of them on average.
    draws
        Number of draws of Gaussian noise of the same length, to compare with.
    seed
        Seed of the noise.

    Notes
    -----
    The direction is the mean over the heads of the first layer of the right singular vectors of Q^T K with the largest
    singular value; of its two signs the one that changes more is taken. 3 + draws passes of the model.
    """
    count = check_size(draws, "draws")
    layer = model.attention(0)
    read = model.read(text, cut=cut, chat=chat)
    moved = read.word(word)
    stack = _Stack(model, read)
    own = stack.rows[list(moved.tokens)]
    length = check_positive(torch.linalg.vector_norm(own) if norm is None else norm, "norm")
    scale = getattr(stack.norm, "weight", None)
    direction = attracting_direction(layer, stack.attended(stack.rows), scale, _heads(layer.heads, head))
    pull = direction.to(own).expand_as(own)
    noise = normal(generator(seed, "noise"), (count, *own.shape)).to(own)
    moves = torch.cat([pull[None], -pull[None], noise])
    moves = moves * (length / torch.linalg.vector_norm(moves, dim=(1, 2), keepdim=True))
    changes = torch.stack([stack.changes(moved, move) for move in moves])
    best = int(changes[:2, 1:].mean(1).argmax())
    pair = (layer.pattern(stack.attended(rows)) for rows in (stack.rows, stack.perturbed(moved, moves[best])))
    before, after = (_within(scores, model.window(0)) for scores in pair)
    return LayerChanges(model.name, read, moved, length, changes[best], changes[2:], before, after, moves[best])


def _heads(count: int, head: int | None) -> Sequence[int]:
    """One of so many heads, or all of them."""
    return range(count) if head is None else [check_index(head, count, "head")]


def _within(scores: Tensor, window: int | None) -> Tensor:
    """Attention (H, n, n) of a decoder that sees no further back than a window, from that without one.

    The softmax over fewer words is the same weights over their sum.
    """
    n = scores.shape[-1]
    if window is None or n <= window:
        return scores
    seen = scores * torch.ones(n, n, dtype=scores.dtype, device=scores.device).triu(1 - window)
    return seen / seen.sum(-1, keepdim=True)


def attracting_direction(
    layer: Attention, rows: Tensor, scale: Tensor | None = None, heads: Sequence[int] | None = None
) -> Tensor:
    """The direction in which a word attracts the attention of the others, (d,), of length 1.

    For each head the right singular vector of Q^T K with the largest singular value, with the sign that raises the
    mean score that the rows give to the word; then the mean over the given heads (default: all). `scale` is what a norm
    before the layer multiplies rows by. O(d q^2) for a head of q rows.
    """
    total = torch.zeros(rows.shape[-1], dtype=torch.float64, device=rows.device)
    middle = rows.double().mean(0)
    for head in range(layer.heads) if heads is None else heads:
        queries, keys = factors(layer, head)
        query = queries @ middle
        if scale is not None:
            queries, keys = queries * scale.double(), keys * scale.double()
        corner = torch.linalg.qr(queries.mT).R @ keys  # q d, with the singular values and right vectors of Q^T K
        vector = torch.linalg.svd(corner, full_matrices=False)[2][0]
        bias = layer.bias("query")
        if bias is not None:
            query = query + bias.double().reshape(layer.heads, -1)[head]
        total += vector if float(query @ (keys @ vector)) >= 0 else -vector
    size: Tensor = torch.linalg.vector_norm(total)
    return total / size


def attention_scores(
    model: Model, text: str | Text, index: SupportsIndex = 0, *, cut: bool = False, chat: bool = False
) -> AttentionScores:
    """Return the attention between the words of a text in a layer, by head."""
    read = model.read(text, cut=cut, chat=chat)
    attention = model.attention(index)
    rows = model.layer_inputs([list(read.ids)], index)[0]
    scores = _within(attention.pattern(rows), model.window(index))
    return AttentionScores(model.name, read, operator.index(index), scores)


def head_sensitivities(
    model: Model,
    text: str | Text,
    word: WordLike,
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
    read = model.read(text, cut=cut, chat=chat)
    layer = model.attention(0)
    rows = model.layer_inputs([list(read.ids)], 0)[0].double()
    places = list(read.word(word).tokens)
    reach = float(torch.linalg.vector_norm(rows[places[0]])) if radius is None else radius
    moved = places[0] if len(places) == 1 else places
    return tuple(
        word_sensitivity(
            one_head(layer, head),
            rows,
            moved,
            reach,
            together=len(places) > 1,
            ceiling=None,
            seed=seed,
            budget=_BUDGET,
        )
        for head in range(layer.heads)
    )


def one_head(layer: Attention, head: int) -> Attention:
    """One head alone, as attention with its part of the weights and without an output."""
    parts: dict[str, Any] = {}
    shared = head // (layer.heads // layer.key_heads)
    for name, own, count in (("query", head, layer.heads), *((one, shared, layer.key_heads) for one in NAMES[1:])):
        for key, rows in ((name, layer.weight(name)), (f"{name}_bias", layer.bias(name))):
            size = 0 if rows is None else len(rows) // count
            parts[key] = None if rows is None else rows[own * size : (own + 1) * size].double()
    relative = None if layer.relative is None else layer.relative.head(head)
    return Attention(**parts, causal=layer.causal, score=layer.score.name, rotary=layer.rotary, relative=relative)


class _Stack:
    """The layers of a model over rows that are given, without what makes rows of words."""

    def __init__(self, model: Model, text: Text) -> None:
        self.model, self.body = model, model.network.base_model
        family = family_of(model.network.config)
        self.norm: Any = None if family.last is None else family.norm(self.body, 0)
        self.ids = torch.tensor([text.ids], device=model.device)
        self.states = self.run(None)
        self.rows = self.states[0]

    @torch.no_grad()
    def attended(self, rows: Tensor) -> Tensor:
        """What the attention of the first layer reads: rows after the norm that it has first, if any."""
        return rows if self.norm is None else self.norm(rows)

    def perturbed(self, word: Word, move: Tensor) -> Tensor:
        rows = self.rows.clone()
        rows[list(word.tokens)] += move
        return rows

    def changes(self, word: Word, move: Tensor) -> Tensor:
        """Relative changes of the input and of the hidden state after each layer."""
        pairs = zip(self.run(self.perturbed(word, move)), self.states, strict=True)
        return torch.stack([torch.linalg.vector_norm(now - old) / torch.linalg.vector_norm(old) for now, old in pairs])

    def run(self, rows: Tensor | None) -> list[Tensor]:
        """What each layer reads and the last one returns, (n, d) each; by default for the text itself."""
        instead = []
        words: dict[str, Any] = {"input_ids": self.ids}
        if rows is not None and self.norm is None:
            instead = [(self.body.embeddings, _Given(rows))]
        elif rows is not None:  # they differ from embeddings by what is added to those
            words = {"inputs_embeds": self.body.get_input_embeddings()(self.ids) + (rows - self.rows)}
        body = skeleton(self.body, instead)  # hooks that return hidden states are removed with it
        options = {"use_cache": False} if self.model.causal else {}
        with torch.no_grad():
            mask = torch.ones_like(self.ids)
            states = body(**words, attention_mask=mask, output_hidden_states=True, **options).hidden_states
        return [state[0] for state in states]


class _Given(nn.Module):
    """In place of the module that makes rows of words: returns given rows."""

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.given = rows[None]

    def forward(self, *_: Any, **__: Any) -> Tensor:
        return self.given
