"""Records of word sensitivity: each number with its kind, how the search ended, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from wordsway.checks import check_size
from wordsway.memory import ResourceUsage
from wordsway.records import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOCALLY_CONVERGED = "locally converged"  # an ascent cannot exclude that a maximum elsewhere is larger


@dataclass(frozen=True, eq=False, repr=False)
class Sensitivity(Record):
    """Word sensitivity of a map at a context: `value` <= S <= `ceiling`, with S over the words that were measured.

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
        "locally converged", or why the search stopped.
    value_kind, ceiling_kind : str
        What each number rests on.
    failure : float
        Probability, over the weights, that the ceiling is wrong; 0 when it is deterministic.
    cost : ResourceUsage
    """

    summary_fields = ("value", "ceiling", "word", "radius", "status")

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
        """Return plain values, ready for JSON; `witness` adds the perturbation as a list."""
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

    def draw(self, ax: Axes) -> None:
        bounds = {"sensitivity": self.value} | ({} if self.ceiling is None else {"ceiling": self.ceiling})
        ax.barh(list(bounds), list(bounds.values()), color=["C0", "0.8"][: len(bounds)])
        ax.set_xlabel("relative change")


@dataclass(frozen=True, eq=False, repr=False)
class Profile(Record):
    """Word sensitivity of each of several words, each moving on its own; S over them is the largest.

    Attributes
    ----------
    words : tuple of int
        Positions of the words.
    values, ceilings : Tensor (W,)
        Lower bounds with witnesses, and certified upper bounds where the map has them.
    deltas : Tensor (W, d)
        The witnesses.
    converged : Tensor (W,)
    radii : Tensor (W,)
        Radius of the ball of each word.
    gains : Tensor (W,) or None
        How much the second half of the search added to each value, where the search measures that: an estimate of what
        a search of twice as many steps would still add.
    """

    summary_fields = ("words", "values", "ceilings", "value_kind", "ceiling_kind")

    words: tuple[int, ...]
    values: Tensor
    ceilings: Tensor | None
    deltas: Tensor
    converged: Tensor
    radii: Tensor
    value_kind: str
    ceiling_kind: str | None
    failure: float
    cost: ResourceUsage
    gains: Tensor | None = None

    def at(self, place: int) -> Sensitivity:
        """Return the record of one word, by its place in `words`; its cost is that of the whole profile."""
        return Sensitivity(
            float(self.values[place]),
            None if self.ceilings is None else float(self.ceilings[place]),
            self.words[place],
            self.deltas[place],
            float(self.radii[place]),
            status(bool(self.converged[place])),
            self.value_kind,
            self.ceiling_kind,
            self.failure,
            self.cost,
        )

    @property
    def best(self) -> Sensitivity:
        """The word that moves the map most; its ceiling is that of all words here."""
        top = self.at(int(self.values.argmax()))
        return top if self.ceilings is None else replace(top, ceiling=float(self.ceilings.max()))

    @property
    def radius(self) -> float | list[float]:
        """The radius of the balls, or one for each word where they differ."""
        radii = self.radii.tolist()
        return radii[0] if len(set(radii)) == 1 else radii

    @property
    def margin(self) -> float:
        """Twice the largest gain of a word from the second half of its search: smaller leads mean nothing.

        Gains shrink slowly: on short texts of an encoder, doubling the steps once more added up to 1.4 times as much.
        """
        return 0.0 if self.gains is None else 2 * float(self.gains.max())

    @property
    def leaders(self) -> list[int]:
        """Places of the words that cannot be distinguished from the first: their distance to it is within `margin`.

        Largest value first; a single place where the lead of the first word exceeds the margin.
        """
        order: list[int] = torch.argsort(self.values, descending=True, stable=True).tolist()
        if self.gains is None:
            return order[:1]
        least = float(self.values[order[0]]) - self.margin
        return [place for place in order if float(self.values[place]) >= least]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, one list per column."""
        columns = {"gain": self.gains.tolist()} if self.gains is not None else {}
        return {
            "words": list(self.words),
            "sensitivity": self.values.tolist(),
            "ceiling": None if self.ceilings is None else self.ceilings.tolist(),
            "status": [status(bool(c)) for c in self.converged],
            "radius": self.radius,
            **columns,
            "value_kind": self.value_kind,
            "ceiling_kind": self.ceiling_kind,
            "failure": self.failure,
            **self.cost.to_dict(),
        }

    def rows(self) -> list[dict[str, Any]]:
        names = ("word", "sensitivity", "ceiling", "radius", "status")
        records = (self.at(place).to_dict() for place in range(len(self.words)))
        return [{name: record[name] for name in names} for record in records]

    def draw(self, ax: Axes) -> None:
        ax.bar(range(len(self.words)), self.values.tolist(), color="C0")
        if self.ceilings is not None:
            ax.plot(range(len(self.words)), self.ceilings.tolist(), "_", color="0.5", label="ceiling")
            ax.legend()
        ax.set_xticks(range(len(self.words)), [str(word) for word in self.words])
        ax.set(xlabel="word", ylabel="sensitivity")


@dataclass(frozen=True, eq=False, repr=False)
class VocabularySensitivity(Record):
    """Relative change for every replacement of one word by a given embedding: exact, since the set is finite.

    Attributes
    ----------
    word : int
        Position of the replaced word.
    values : Tensor (v,)
        One for each embedding.
    best : int
        Row of the embeddings that moves the map most, by `value`.
    """

    summary_fields = ("word", "best", "value", "values", "value_kind")

    word: int
    values: Tensor
    best: int
    value: float
    value_kind: str
    cost: ResourceUsage

    def top(self, count: int = 10) -> list[tuple[int, float]]:
        """Return the `count` replacements that move the map most: (row of the embeddings, relative change)."""
        largest = torch.topk(self.values, min(check_size(count, "count"), len(self.values)))
        return list(zip(largest.indices.tolist(), largest.values.tolist(), strict=True))

    def to_dict(self) -> dict[str, Any]:
        return {
            "word": self.word,
            "candidates": len(self.values),
            "best": self.best,
            "sensitivity": self.value,
            "value_kind": self.value_kind,
            **self.cost.to_dict(),
        }

    def rows(self) -> list[dict[str, Any]]:
        return [{"embedding": row, "sensitivity": value} for row, value in self.top(len(self.values))]

    def draw(self, ax: Axes) -> None:
        ax.hist(self.values.numpy(), bins=50)
        ax.set(xlabel="relative change", ylabel="embeddings")


def status(converged: bool) -> str:
    """Return the sentence for how a search ended."""
    return LOCALLY_CONVERGED if converged else "stopped at the step limit: still a lower bound, more steps may raise it"


def has_converged(status: str) -> bool:
    """Return whether a search ended because its ascent converged; older stores have "converged"."""
    return status in (LOCALLY_CONVERGED, "converged")
