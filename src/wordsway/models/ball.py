"""How far each word of a text can move a model when its embedding moves in a ball."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from wordsway.checks import check_choice, check_positive, check_size
from wordsway.errors import InputError
from wordsway.memory import ResourceUsage
from wordsway.models.outputs import Output
from wordsway.models.response import TextFeatures, TransformerResponse
from wordsway.models.words import Text, Word, WordLike
from wordsway.records import Record, html_table
from wordsway.seeds import generator, normal
from wordsway.sensitivity import Profile, SearchBudget, Sensitivity, response_profile
from wordsway.sensitivity.records import LOCALLY_CONVERGED, has_converged

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from wordsway.models.model import Model

SEARCH, FAST = "search", "fast"
MODES = (SEARCH, FAST)
STEPS = 16
_WITNESS = "lower bound with a witness"
_COTANGENTS = 16  # of the Jacobian in the fast mode: the steepest direction is that of as many random products


@dataclass(frozen=True, eq=False, repr=False)
class BallProfile(Record):
    """How far each word of a text can move a model.

    Attributes
    ----------
    model : str
    text : Text
        The text as the model reads it, with the words that were not measured.
    on : str
        What the change was measured on.
    mode : {"search", "fast"}
    words : tuple of Word
        The words that were measured.
    profile : Profile
        Their sensitivities, witnesses, radii and gains, in the same order.
    divergences : Tensor (W,) or None
        Kullback-Leibler divergences at the witnesses, in nats, where the output is a distribution.
    shortfall : float or None
        For the fast mode: how far it is below the search for its own top word, as a share of what the search finds.
    """

    summary_fields = ("model", "on", "mode", "values", "shortfall")

    model: str
    text: Text
    on: str
    mode: str
    words: tuple[Word, ...]
    profile: Profile
    divergences: Tensor | None = None
    shortfall: float | None = None

    @property
    def values(self) -> Tensor:
        """Sensitivities, (W,)."""
        return self.profile.values

    def at(self, place: int) -> Sensitivity:
        """Return the record of one word, by its place in `words`; its witness has one row per token."""
        record = self.profile.at(place)
        longest = max(len(word.tokens) for word in self.words)
        rows = record.delta.reshape(longest, -1)[: len(self.words[place].tokens)]
        return replace(record, delta=rows)

    @property
    def best(self) -> Sensitivity:
        """The record of the word with the largest value; see `leaders` for those that cannot be told apart from it."""
        return self.at(int(self.values.argmax()))

    @property
    def cost(self) -> ResourceUsage:
        return self.profile.cost

    @property
    def leaders(self) -> list[Word]:
        """The words that move the model most and cannot be told apart, largest value first; often one alone."""
        return [self.words[place] for place in self.profile.leaders]

    def rows(self) -> list[dict[str, Any]]:
        """Return plain values, one dictionary per word."""
        leaders = set(self.profile.leaders)
        not_converged = "one jump" if self.mode == FAST else "stopped at the step limit"
        rows = []
        for place, word in enumerate(self.words):
            start, end = self.text.span(word)
            row = {
                "position": word.position,
                "word": word.text,
                "tokens": len(word.tokens),
                "sensitivity": float(self.values[place]),
                "radius": float(self.profile.radii[place]),
                "status": LOCALLY_CONVERGED if bool(self.profile.converged[place]) else not_converged,
                "gain": None if self.profile.gains is None else float(self.profile.gains[place]),
                "leads": place in leaders,
                "start": start,
                "end": end,
                "on": self.on,
                "mode": self.mode,
                "model": self.model,
            }
            rows.append(row if self.divergences is None else {**row, "divergence": float(self.divergences[place])})
        return rows

    def to_dict(self) -> dict[str, Any]:
        head = {"model": self.model, "text": self.text.text, "on": self.on, "mode": self.mode, "cut": self.text.cut}
        rest = {"shortfall": self.shortfall, "margin": self.profile.margin, "words": self.rows()}
        return {**head, **rest, **self.cost.to_dict()}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], text: Text, words: Sequence[Word]) -> BallProfile:
        """Return the record of stored values, for the text as the model reads it; witnesses are not stored."""
        rows = stored["words"]

        def column(name: str) -> Tensor | None:
            values = [row.get(name) for row in rows]
            return None if None in values else torch.tensor(values, dtype=torch.float64)

        cost = ResourceUsage(**{name: stored[name] for name in ResourceUsage().to_dict() if name in stored})
        profile = Profile(
            words=tuple(word.tokens[0] for word in words),
            values=torch.tensor([row["sensitivity"] for row in rows], dtype=torch.float64),
            ceilings=None,
            deltas=torch.empty(len(rows), 0),
            converged=torch.tensor([has_converged(row["status"]) for row in rows]),
            radii=torch.tensor([row["radius"] for row in rows], dtype=torch.float64),
            value_kind=_WITNESS,
            ceiling_kind=None,
            failure=0.0,
            cost=cost,
            gains=column("gain"),
        )
        on, mode = stored["on"], stored["mode"]
        return cls(stored["model"], text, on, mode, tuple(words), profile, column("divergence"), stored["shortfall"])

    def draw(self, ax: Axes) -> None:
        ax.bar(range(len(self.words)), self.values.tolist(), color="C0")
        ax.set_xticks(range(len(self.words)), [word.text for word in self.words], rotation=60, ha="right")
        ax.set_ylabel(f"change of {self.on}")

    def _repr_html_(self) -> str:
        """The text as a strip of words, the stronger the colour the larger the value, and the numbers below it."""
        from wordsway.models.heat import heat_strip, pieces

        notes = {
            word.tokens: (float(value), f"{float(value):.4g} within {float(radius):.4g}")
            for word, value, radius in zip(self.words, self.values, self.profile.radii, strict=True)
        }
        names = ("position", "word", "tokens", "sensitivity", "radius", "status", "leads")
        table = html_table([{name: row[name] for name in names} for row in self.rows()])
        return self._framed(heat_strip(pieces(self.text, notes)) + table)


def ball_profile(
    model: Model,
    text: str | Text,
    words: Sequence[WordLike] | None = None,
    *,
    on: str | int | Output = "last",
    radius: float | None = None,
    mode: str = SEARCH,
    steps: int = STEPS,
    special: bool = False,
    cut: bool = False,
    chat: bool = False,
    seed: int = 0,
    progress: bool = False,
) -> BallProfile:
    """Return how far each word of a text can move the model, when its embedding moves in a ball.

    Parameters
    ----------
    model, text
    words
        The words to measure, as positions or as they are written; default: all of them.
    on
        What the change is measured on: ``"last"`` (the last hidden state of all tokens, relative), ``"pooled"`` (their
        mean, of length 1), a layer (its hidden state; 0 is what the first layer reads), ``"next"`` (the distribution of
        the next token of a decoder, by total variation) or ``"class"`` (that of a classifier).
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
        As for `Model.read`.
    seed
        Seed of the starts of the search.
    progress
        Show a bar on stderr when it takes longer than two seconds.

    Notes
    -----
    Every value has a witness, so it is a lower bound on the supremum over the ball. Words are searched together, in
    batches that fit into memory; a decoder computes what comes before a word once. What moved the leading words most is
    tried for all others; apart from that, a word's result does not depend on which others are measured.
    """
    check_choice("mode", mode, MODES)
    budget = SearchBudget(ascent=check_size(steps, "steps"))
    read = model.read(text, cut=cut, chat=chat)
    chosen = read.chosen(words, special)
    phi = TextFeatures(model, read.ids, on, read.second)
    radii = word_radii(phi, chosen, radius)
    response = phi.along([word.tokens for word in chosen])
    places = [word.tokens[0] for word in chosen]
    shortfall = None
    if mode == SEARCH:
        measured = response_profile(response, places, radii, seed=seed, budget=budget, progress=progress)
    else:
        measured = _jump(response, places, radii, seed)
        top = int(measured.values.argmax())
        alone = phi.along([chosen[top].tokens])
        searched = response_profile(alone, places[top : top + 1], radii[top : top + 1], seed=seed, budget=budget)
        shortfall = max(0.0, 1 - float(measured.values[top] / searched.values[0]))
    divergences = response.divergence(measured.deltas)
    return BallProfile(model.name, read, phi.output.name, mode, tuple(chosen), measured, divergences, shortfall)


def word_radii(phi: TextFeatures, words: Sequence[Word], radius: float | None) -> Tensor:
    """The radius of the ball of each word: by default the norm of its embedding, over all its tokens."""
    if not words:
        raise InputError("there must be a word to measure, got none")
    if radius is not None:
        return torch.full((len(words),), check_positive(radius, "radius"), dtype=torch.float64)
    norms = torch.stack([phi.embedded[list(word.tokens)].double().norm() for word in words]).cpu()
    if not bool((norms > 0).all()):
        zero = words[int(norms.argmin())].text
        raise InputError(f"the embedding of a word must not be zero, got that of {zero!r}: give a radius")
    return norms


def _jump(response: TransformerResponse, places: Sequence[int], radii: Tensor, seed: int) -> Profile:
    """One jump of each word to the edge of its ball, along the steepest direction of the Jacobian at the text.

    The Jacobian of all words comes from a few backward passes, whatever their number; then two passes per word.
    """
    phi = response.phi
    with ResourceUsage() as usage:
        source = generator(seed, "cotangents")
        shape = (_COTANGENTS, *response.base.shape)
        cotangents = normal(source, shape).to(response.base)
        pulled = _pull_back(phi, cotangents)  # K n e
        moves = pulled.new_zeros(len(response.spans), response.shape[-1])
        for place, span in enumerate(response.spans):
            block = pulled[:, list(span)].flatten(1)
            steepest = torch.linalg.svd(block.double(), full_matrices=False)[2][0]
            moves[place, : len(steepest)] = steepest * radii[place]
        both = torch.stack([moves, -moves])
        values, _ = response.change(both, gradient=False)  # 2 W
    side = values.argmax(0)
    return Profile(
        tuple(places),
        values.amax(0),
        None,
        both[side, torch.arange(len(side), device=side.device)],
        torch.zeros(len(side), dtype=torch.bool),
        radii,
        _WITNESS,
        None,
        0.0,
        usage.computed_in(moves.dtype, moves.device, 2),
    )


def _pull_back(phi: TextFeatures, cotangents: Tensor) -> Tensor:
    """The products u^T J of the Jacobian of the features in all rows at once, for each u of (K, ...): (K, n, e)."""
    rows = phi.embedded.clone().requires_grad_(True)
    with torch.enable_grad():
        features = phi(rows)
        products = [torch.autograd.grad((features * u).sum(), rows, retain_graph=True)[0] for u in cotangents]
    return torch.stack(products)
