"""The word profile of a text: how far each word can move a model, by a search in the ball around its embedding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from tqdm import tqdm

from wordsway.checks import check_positive, check_size
from wordsway.errors import InputError
from wordsway.memory import ResourceUsage
from wordsway.models.outputs import output_named
from wordsway.models.reader import Reader
from wordsway.models.words import Text, Word
from wordsway.seeds import generator, normal

if TYPE_CHECKING:
    from wordsway.models.model import Model

SEARCH, FAST = "search", "fast"
MODES = (SEARCH, FAST)
STEPS = 16
_LONG, _SHORT, _MEMORY = 0.4, 0.05, 0.3  # first and last step in radii, and how much of a step is that before it
_NUDGE = 0.05  # of a radius: how far from the embedding 0 a search begins
_SETTLED = 0.01  # a search whose last quarter gained less has converged
_COTANGENTS = 16  # of the Jacobian in the fast mode


@dataclass(frozen=True, eq=False)
class WordScore:
    """How far one word moves a model.

    Attributes
    ----------
    word : Word
    value : float
        The change at the witness: a lower bound on what the ball allows.
    radius : float
        Radius of the ball, the norm of the word's own embedding unless told.
    divergence : float or None
        Kullback-Leibler divergence at the witness, in nats, where the output is a distribution.
    converged : bool
        Whether the last quarter of the search gained less than a hundredth; else more steps may find more.
    delta : Tensor (tokens, e)
        The witness: moving the word's embedding by it changes the output by `value`.
    """

    word: Word
    value: float
    radius: float
    divergence: float | None
    converged: bool
    delta: Tensor


@dataclass(frozen=True, eq=False)
class TextProfile:
    """How far each word of a text can move a model.

    Attributes
    ----------
    model : str
    text : Text
        The text as the model reads it, with the words that were not measured.
    on : str
        What the change was measured on.
    mode : {"search", "fast"}
    scores : tuple of WordScore
        In the order asked; that of the text unless told.
    shortfall : float or None
        For the fast mode: how far it is below the search for its own top word, as a share of what that finds.
    cost : ResourceUsage
    """

    model: str
    text: Text
    on: str
    mode: str
    scores: tuple[WordScore, ...]
    shortfall: float | None
    cost: ResourceUsage

    @property
    def best(self) -> WordScore:
        """The word that moves the model most."""
        return max(self.scores, key=lambda score: score.value)

    def records(self) -> list[dict[str, Any]]:
        """Plain values, one record a word."""
        shared = {"on": self.on, "mode": self.mode, "model": self.model}
        ended = "one jump" if self.mode == FAST else "stopped at the step limit"
        found = []
        for score in self.scores:
            start, end = self.text.span(score.word)
            record = {
                "position": score.word.position,
                "word": score.word.text,
                "tokens": len(score.word.tokens),
                "sensitivity": score.value,
                "radius": score.radius,
                "status": "converged" if score.converged else ended,
                "start": start,
                "end": end,
                **shared,
            }
            found.append(record if score.divergence is None else {**record, "divergence": score.divergence})
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        head = {"model": self.model, "text": self.text.text, "on": self.on, "mode": self.mode, "cut": self.text.cut}
        return {**head, "shortfall": self.shortfall, "words": self.records(), **self.cost.to_dict()}

    def _repr_html_(self) -> str:
        """The text as a strip of words in a notebook: the stronger the colour, the further the word moves the model."""
        from wordsway.models.heat import heat_strip, pieces

        told = {
            score.word.tokens: (score.value, f"{score.value:.4g} within {score.radius:.4g}") for score in self.scores
        }
        return heat_strip(pieces(self.text, told))


def profile(
    model: Model,
    text: Text,
    words: Sequence[Word],
    on: str | int = "last",
    radius: float | None = None,
    mode: str = SEARCH,
    steps: int = STEPS,
    seed: int = 0,
    progress: bool = False,
) -> TextProfile:
    """Measure words of a text, each on its own; see `Model.profile`."""
    if mode not in MODES:
        raise InputError(f"mode must be search or fast, got {mode!r}")
    count = check_size(steps, "steps")
    with ResourceUsage() as usage:
        reader = Reader(model, text.ids, output_named(on, model.layers, model.network, model.name))
        problem = Moves(reader, words, radius)
        if mode == SEARCH:
            found, shortfall = problem.search(count, seed, progress), None
        else:
            found = problem.jump(seed)
            top = int(found.values.argmax())
            searched = Moves(reader, words[top : top + 1], radius).search(count, seed)
            shortfall = max(0.0, 1 - float(found.values[top] / searched.values[0]))
    scores = tuple(problem.score(place, found) for place in range(len(words)))
    cost = usage.computed_in(reader.rows.dtype, reader.rows.device, found.evaluations)
    return TextProfile(model.name, text, reader.output.name, mode, scores, shortfall, cost)


@dataclass(frozen=True, eq=False)
class Found:
    """The best move of each word."""

    values: Tensor  # W
    moves: Tensor  # W m e
    divergences: Tensor | None  # W
    converged: Tensor  # W
    evaluations: int  # of single words


class Moves:
    """Words of a text that move, each in a ball around its embedding."""

    def __init__(self, reader: Reader, words: Sequence[Word], radius: float | None) -> None:
        self.reader, self.words = reader, list(words)
        if not self.words:
            raise InputError("there must be a word to measure, got none")
        longest = max(len(word.tokens) for word in self.words)
        self.shape = (len(self.words), longest, reader.rows.shape[1])
        used = torch.tensor([[part < len(word.tokens) for part in range(longest)] for word in self.words])
        self.used = used[..., None].to(reader.rows)
        places = torch.tensor([[*word.tokens, *[0] * (longest - len(word.tokens))] for word in self.words])
        self.own = reader.rows[places] * self.used  # W m e
        norms = torch.linalg.vector_norm(self.own, dim=(1, 2))
        self.radii = norms if radius is None else torch.full_like(norms, check_positive(radius, "radius"))
        if not bool((self.radii > 0).all()):
            zero = self.words[int(self.radii.argmin())].text
            raise InputError(f"the embedding of a word must not be zero, got that of {zero!r}: give a radius")

    def search(self, steps: int, seed: int = 0, progress: bool = False) -> Found:
        """Ascend with steps along the gradient whose length shrinks; `steps` passes for each word.

        The function has kinks and plateaus at every scale, so that quasi-Newton steps fail: the length of a step is
        what is annealed, and a share of the step before it carries over flat places. It begins near the embedding 0, or
        as far towards it as the ball reaches: the norms of the model make what is left there large, so that one step
        leads to any direction, while around the word itself the model hardly moves.
        """
        source = generator(seed, "moves")  # row by row, so that a word does not depend on how long others are
        begin = normal(source, self.shape[1:])
        nudge = self._long(begin.to(self.radii) * self.used, _NUDGE)  # the same direction for every word
        point = self._inside(nudge - self._inside(self.own))
        best, where = torch.full_like(self.radii, -1.0), point.clone()
        before, step = best.clone(), torch.zeros_like(point)
        for turn in tqdm(range(steps), desc="steps", delay=2, leave=False, disable=not progress):
            values, gradients, _ = self.reader.changes(self.words, point, gradient=True)
            assert gradients is not None
            better = values > best
            best, where = torch.where(better, values, best), torch.where(better[:, None, None], point, where)
            if turn == steps - 1 - steps // 4:
                before = best.clone()
            length = _LONG * (_SHORT / _LONG) ** (turn / max(steps - 1, 1))
            step = self._long(_MEMORY * step + (1 - _MEMORY) * self._long(gradients, 1.0), 1.0)
            point = self._inside(point + length * step)
        values, _, _ = self.reader.changes(self.words, point)
        better = values > best
        best, where = torch.where(better, values, best), torch.where(better[:, None, None], point, where)
        _, _, apart = self.reader.changes(self.words, where) if self.reader.output.distribution else (None, None, None)
        settled = best <= before * (1 + _SETTLED)
        return Found(best, where, apart, settled, (steps + 1) * len(self.words))

    def jump(self, seed: int = 0) -> Found:
        """One jump each, along the direction in which the Jacobian at the text itself is steepest.

        The Jacobian of all words comes from a few backward passes, whatever their number; then one pass a word.
        """
        source = generator(seed, "cotangents")
        shape = (_COTANGENTS, *self.reader.before.shape)
        pulled = self.reader.pull(normal(source, shape).to(self.radii))  # K n e
        moves = torch.zeros(self.shape).to(self.radii)
        for place, word in enumerate(self.words):
            block = pulled[:, list(word.tokens)].flatten(1)
            steepest = torch.linalg.svd(block.double(), full_matrices=False)[2][0]
            moves[place, : len(word.tokens)] = steepest.reshape(len(word.tokens), -1).to(moves)
        ahead = self._long(moves, 1.0)
        both = [self.reader.changes(self.words, move) for move in (ahead, -ahead)]
        values = torch.stack([values for values, _, _ in both])
        side = values.argmax(0)
        chosen = torch.where((side == 0)[:, None, None], ahead, -ahead)
        here, there = (apart for _, _, apart in both)
        apart = None if here is None or there is None else torch.where(side == 0, here, there)
        never = torch.zeros(len(self.words), dtype=torch.bool)
        return Found(values.max(0).values, chosen, apart, never, 2 * len(self.words))

    def score(self, place: int, found: Found) -> WordScore:
        word = self.words[place]
        return WordScore(
            word,
            float(found.values[place]),
            float(self.radii[place]),
            None if found.divergences is None else float(found.divergences[place]),
            bool(found.converged[place]),
            found.moves[place, : len(word.tokens)].clone(),
        )

    def _long(self, moves: Tensor, share: float) -> Tensor:
        """Moves of a length that is a share of their radius; those of length 0 stay."""
        length = torch.linalg.vector_norm(moves, dim=(1, 2), keepdim=True)
        found: Tensor = moves / length.clamp_min(torch.finfo(moves.dtype).tiny) * (share * self.radii[:, None, None])
        return found

    def _inside(self, moves: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(moves, dim=(1, 2), keepdim=True)
        shrink = self.radii[:, None, None] / length.clamp_min(torch.finfo(moves.dtype).tiny)
        found: Tensor = moves * shrink.clamp_max(1.0)
        return found
