"""What an experiment is: a pure trial, a grid at two scales, a table, claims about it and a picture of it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from wordsway.checks import check_size
from wordsway.errors import InputError, nearest
from wordsway.seeds import check_seed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Parameters: TypeAlias = Mapping[str, Any]  # plain values: text, numbers, true or false
Record: TypeAlias = dict[str, Any]
Table: TypeAlias = list[dict[str, Any]]  # tidy: one row a point, the same keys in all of them

SCALES = ("quick", "paper")
VERDICTS = {True: "holds", False: "does not hold", None: "cannot tell"}
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class RunConfig:
    """How much of an experiment to run.

    Attributes
    ----------
    scale : {"quick", "paper"}
    model : str or None
        A model whose embeddings make the contexts, in place of the experiment's own data.
    trials : int or None
        Trials for each point of the grid, in place of the experiment's own number.
    seed : int
        Seed of the first trial; trial k has seed + k.
    """

    scale: str = "quick"
    model: str | None = None
    trials: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            known = ", ".join(SCALES)
            raise InputError(f"scale must be one of {known}, got {self.scale!r}{nearest(self.scale, SCALES)}")
        if self.trials is not None:
            check_size(self.trials, "trials")
        check_seed(self.seed)


@dataclass(frozen=True)
class Estimate:
    """What one trial takes on one core: seconds, and bytes of its whole process."""

    seconds: float
    memory: int


@dataclass(frozen=True)
class Verdict:
    """A claim, what was measured, and whether it holds; None where the data cannot tell."""

    claim: str
    measured: str
    holds: bool | None

    @property
    def word(self) -> str:
        return VERDICTS[self.holds]

    def to_dict(self) -> dict[str, Any]:
        return {"claim": self.claim, "measured": self.measured, "holds": self.holds}


@dataclass(frozen=True)
class Trial:
    """One trial as it was asked for: what identifies its row in the store."""

    experiment: str
    version: int
    parameters: str  # canonical, see `canonical`
    seed: int


@dataclass(frozen=True)
class TrialResult:
    """One finished trial as the data function sees it."""

    experiment: str
    parameters: dict[str, Any]
    seed: int
    record: Record

    def __getitem__(self, name: str) -> Any:
        """A parameter or an entry of the record."""
        return self.parameters[name] if name in self.parameters else self.record[name]


@dataclass(frozen=True)
class Experiment:
    """A question to be answered by many trials.

    Attributes
    ----------
    name : str
        Lower case words joined by dashes, as typed on the command line.
    title, about : str
        One line, and a sentence or two for the report.
    trial : callable
        (parameters, seed) -> record. A pure function at the top level of a module: the same numbers every time, in
        any process. The record is a flat dictionary of plain, finite values.
    grid : callable
        RunConfig -> the parameters of each point.
    trials : mapping
        Trials for each point at each scale.
    table : callable
        Finished trials -> the rows that are drawn. It must do with any part of them, also with none.
    claims : callable
        Table -> verdicts.
    plot : callable
        (table, matplotlib figure) -> None; draws, computes nothing.
    estimate : callable, optional
        Parameters -> what one trial takes.
    version : int
        Raise it when the trial's numbers change: old rows then stay in the store and count no more.
    needs : tuple of Experiment
        Others whose finished trials the table reads too.
    """

    name: str
    title: str
    about: str
    trial: Callable[[Parameters, int], Record]
    grid: Callable[[RunConfig], Iterable[Parameters]]
    trials: Mapping[str, int]
    table: Callable[[Sequence[TrialResult]], Table]
    claims: Callable[[Table], list[Verdict]]
    plot: Callable[[Table, Figure], None]
    estimate: Callable[[Parameters], Estimate] | None = None
    version: int = 1
    needs: tuple[Experiment, ...] = field(default=())

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise InputError(f"an experiment's name must be lower case words joined by dashes, got {self.name!r}")
        if missing := [scale for scale in SCALES if scale not in self.trials]:
            raise InputError(f"{self.name} must say how many trials it has at scale {missing[0]}")

    def asked(self, scope: RunConfig) -> list[Trial]:
        """The trials of a scope, those of the experiments it needs first."""
        count = self.trials[scope.scale] if scope.trials is None else scope.trials
        before = [trial for other in self.needs for trial in other.asked(scope)]
        points = [canonical(parameters) for parameters in self.grid(scope)]
        if len(set(points)) < len(points):
            raise InputError(f"the grid of {self.name} must not repeat a point")
        seeds = range(scope.seed, check_seed(scope.seed + count - 1) + 1)
        mine = [Trial(self.name, self.version, point, seed) for point in points for seed in seeds]
        return list(dict.fromkeys(before + mine))  # two of those it needs may need the same one

    def family(self) -> dict[str, Experiment]:
        """The experiment and those it needs, by name."""
        return {name: one for other in self.needs for name, one in other.family().items()} | {self.name: self}


def canonical(parameters: Parameters) -> str:
    """Parameters as text, the same for the same values: JSON with sorted keys."""
    return _json(dict(parameters), "parameters")


def canonical_record(record: Record) -> str:
    """A record as text: JSON in the order of its keys, plain finite values only."""
    return _json(record, "a record")


def _json(values: Any, what: str) -> str:
    plain = (str, int, float, bool, type(None))
    if not isinstance(values, dict):
        raise InputError(f"{what} must be a dictionary, got {type(values).__name__}")
    for name, value in values.items():
        if not isinstance(name, str) or type(value) not in plain:
            raise InputError(f"{what} must hold plain values by name, got {type(value).__name__} for {name!r}")
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{what} must hold finite numbers, got {value} for {name!r}: use None for what is unknown")
    text = json.dumps(values, sort_keys=what == "parameters", ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{what} must hold text that UTF-8 can write, got {ascii(text)[:80]}") from None
    return text
