"""What a measurement of word sensitivity says: frozen records with the kind of each number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from wordsway.checks import check_size
from wordsway.memory import ResourceUsage
from wordsway.records import Record


@dataclass(frozen=True, eq=False, repr=False)
class Sensitivity(Record):
    """Word sensitivity of a map at a context: `value` <= S <= `ceiling`.

    Attributes
    ----------
    value : float
        Relative change at the witness: a lower bound on the supremum.
    ceiling : float or None
        Certified upper bound on the supremum; None where none is known for the map.
    word : int or tuple of int
        The word that moves, or the words that move together.
    delta : Tensor (d,) or (m, d)
        The witness: moving the word by it changes the features by `value`.
    radius : float
        Radius of the ball that each word moves in.
    status : str
        "converged", or why the search stopped.
    value_kind, ceiling_kind : str
        What each number rests on.
    failure : float
        Probability, over the weights, that the ceiling is wrong; 0 when it is deterministic.
    cost : ResourceUsage
    """

    value: float
    ceiling: float | None
    word: int | tuple[int, ...]
    delta: Tensor
    radius: float
    status: str
    value_kind: str
    ceiling_kind: str | None
    failure: float
    cost: ResourceUsage

    def to_dict(self, witness: bool = False) -> dict[str, Any]:
        """Plain values, ready for JSON; the witness as a list if asked for."""
        word = list(self.word) if isinstance(self.word, tuple) else self.word
        record: dict[str, Any] = {
            "word": word,
            "sensitivity": self.value,
            "ceiling": self.ceiling,
            "radius": self.radius,
            "status": self.status,
            "value_kind": self.value_kind,
            "ceiling_kind": self.ceiling_kind,
            "failure": self.failure,
            **self.cost.to_dict(),
        }
        return {**record, "delta": self.delta.tolist()} if witness else record


@dataclass(frozen=True, eq=False, repr=False)
class Profile(Record):
    """Word sensitivity of each of several words, each moving on its own; S over them is the largest."""

    words: tuple[int, ...]
    values: Tensor  # W
    ceilings: Tensor | None  # W
    deltas: Tensor  # W d
    converged: Tensor  # W
    radius: float
    value_kind: str
    ceiling_kind: str | None
    failure: float
    cost: ResourceUsage

    def at(self, position: int) -> Sensitivity:
        """The record of one word, by its place in `words`; its cost is that of the whole profile."""
        return Sensitivity(
            float(self.values[position]),
            None if self.ceilings is None else float(self.ceilings[position]),
            self.words[position],
            self.deltas[position],
            self.radius,
            status(bool(self.converged[position])),
            self.value_kind,
            self.ceiling_kind,
            self.failure,
            self.cost,
        )

    @property
    def best(self) -> Sensitivity:
        """The word that moves the map most; its ceiling is that of all words here."""
        top = self.at(int(self.values.argmax()))
        if self.ceilings is None:
            return top
        fields = {**top.__dict__, "ceiling": float(self.ceilings.max())}
        return Sensitivity(**fields)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, one list a column."""
        return {
            "words": list(self.words),
            "sensitivity": self.values.tolist(),
            "ceiling": None if self.ceilings is None else self.ceilings.tolist(),
            "status": [status(bool(c)) for c in self.converged],
            "radius": self.radius,
            "value_kind": self.value_kind,
            "ceiling_kind": self.ceiling_kind,
            "failure": self.failure,
            **self.cost.to_dict(),
        }


@dataclass(frozen=True, eq=False, repr=False)
class VocabularySensitivity(Record):
    """Relative change for every replacement of one word by a given embedding: exact, since the set is finite."""

    word: int
    values: Tensor  # v, one for each embedding
    best: int  # the row of the embeddings that moves the map most
    value: float
    value_kind: str
    cost: ResourceUsage

    def top(self, count: int = 10) -> list[tuple[int, float]]:
        """The `count` replacements that move the map most: (row of the embeddings, relative change)."""
        found = torch.topk(self.values, min(check_size(count, "count"), len(self.values)))
        return list(zip(found.indices.tolist(), found.values.tolist(), strict=True))

    def to_dict(self) -> dict[str, Any]:
        return {
            "word": self.word,
            "candidates": len(self.values),
            "best": self.best,
            "sensitivity": self.value,
            "value_kind": self.value_kind,
            **self.cost.to_dict(),
        }


def status(converged: bool) -> str:
    """The sentence for how a search ended."""
    return "converged" if converged else "stopped at the step limit: still a lower bound, more steps may raise it"
