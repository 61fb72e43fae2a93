"""Experiments: a pure trial function, a grid at two scales, a table of its results, claims about it and a plot."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from wordsway.checks import check_choice, check_seed, check_trials
from wordsway.errors import InputError
from wordsway.records import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from wordsway.sensitivity import Assumptions

Parameters: TypeAlias = Mapping[str, Any]  # plain values: text, numbers, true, false, None
TrialRecord: TypeAlias = Mapping[str, Any] | Record
Table: TypeAlias = list[dict[str, Any]]  # tidy: one row per point, the same keys in every row

SCALES = ("quick", "paper")
HOLDS, WEAKER, FAILS, UNCLEAR = "holds", "weaker than the source", "does not hold", "cannot tell"
CHECK = "check of the code"
_CHECKED = {True: f"{CHECK} passes", False: f"{CHECK} fails", None: f"{CHECK}: {UNCLEAR}"}
WORDS = {  # each word of a verdict, with one claim and with several, in the order of a summary
    HOLDS: ("holds", "hold"),
    WEAKER: (WEAKER, WEAKER),
    FAILS: (FAILS, "do not hold"),
    UNCLEAR: (UNCLEAR, UNCLEAR),
    _CHECKED[True]: (_CHECKED[True], "checks of the code pass"),
    _CHECKED[False]: (_CHECKED[False], "checks of the code fail"),
    _CHECKED[None]: (_CHECKED[None], f"checks of the code: {UNCLEAR}"),
}
_SEVERITY = (FAILS, _CHECKED[False], UNCLEAR, _CHECKED[None], WEAKER, HOLDS)
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class RunConfig:
    """How much of an experiment to run.

    Attributes
    ----------
    scale : {"quick", "paper"}
    model : str or None
        A model whose embeddings make the contexts; default: the experiment's own data.
    trials : int or None
        Trials per point of the grid; default: the experiment's own number.
    seed : int
        Seed of the first trial; trial k has seed + k.
    """

    scale: str = "quick"
    model: str | None = None
    trials: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("scale", self.scale, SCALES)
        if self.trials is not None:
            check_trials(self.trials)
        check_seed(self.seed)


@dataclass(frozen=True)
class Estimate:
    """Cost of one trial on one core: seconds, and bytes of its whole process."""

    seconds: float
    memory: int


@dataclass(frozen=True)
class Verdict:
    """A claim, what was measured, and whether it holds; None where the data cannot tell.

    Attributes
    ----------
    weaker : str
        How the measurement supports less than the source states, for a claim that does not hold in full.
    check : bool
        Whether the claim is a theorem or a property of the optimiser, which only a mistake in the code can violate.
    source : str
        The sentence of the source that the claim is about.
    """

    claim: str
    measured: str
    holds: bool | None
    weaker: str = ""
    check: bool = False
    source: str = ""

    def __post_init__(self) -> None:
        if self.weaker and (self.holds is not False or self.check):
            raise InputError(f"only a claim that does not hold may be weaker than its source, got {self.claim!r}")

    @property
    def word(self) -> str:
        """The outcome in words, the same ones wherever it is shown."""
        if self.check:
            return _CHECKED[self.holds]
        return WEAKER if self.weaker else {True: HOLDS, False: FAILS, None: UNCLEAR}[self.holds]

    @property
    def details(self) -> str:
        """What was measured, and how it is weaker than the source."""
        return f"{self.measured}; {self.weaker}" if self.weaker else self.measured

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "outcome": self.word}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Verdict:
        """Return the verdict of such values; those of earlier versions have `claim`, `measured` and `holds` only."""
        known = {name: value for name, value in values.items() if name != "outcome"}
        if values["holds"] not in (True, False, None):
            raise InputError(f"holds must be true, false or null, got {values['holds']!r}")
        return cls(**known)


def tally(words: Iterable[str]) -> str:
    """Count the words of verdicts: "61 hold, 9 weaker than the source, 15 checks of the code pass"."""
    counts = Counter(words)
    parts = [f"{counts[word]} {forms[counts[word] != 1]}" for word, forms in WORDS.items() if counts[word]]
    return ", ".join(parts) or "no claims"


def worst(words: Iterable[str]) -> str:
    """Return the word for a figure: the worst of its verdicts, where checks of the code count only if they fail."""
    known = set(words)
    if known == {_CHECKED[True]}:
        return _CHECKED[True]
    return next((word for word in _SEVERITY if word in known), UNCLEAR)


def overall(verdicts: Iterable[Verdict]) -> bool | None:
    """Return False if any claim does not hold, else None if any cannot be judged or there is none, else True."""
    outcomes = {verdict.holds for verdict in verdicts}
    if False in outcomes:
        return False
    return None if None in outcomes or not outcomes else True


@dataclass(frozen=True)
class Trial:
    """One trial of a plan: what identifies its row in the store."""

    experiment: str
    version: int
    parameters: str  # JSON, see `canonical`
    seed: int


@dataclass(frozen=True)
class TrialResult:
    """One finished trial, as an experiment's table function reads it."""

    experiment: str
    parameters: dict[str, Any]
    seed: int
    record: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        """Return a parameter or an entry of the record."""
        return self.parameters[name] if name in self.parameters else self.record[name]


@dataclass(frozen=True)
class Experiment:
    """A measurement that is repeated over a grid of parameters and over seeds.

    Attributes
    ----------
    name : str
        Lower case words joined by dashes, as typed on the command line.
    title, about : str
        One line, and a sentence or two for the report.
    trial : callable
        (parameters, seed) -> record. A pure function at the top level of a module: the same numbers every time, in
        any process. The record is a dictionary of plain finite values, lists and dictionaries of them, and records of
        measurements, or one such record itself.
    grid : callable
        RunConfig -> the parameters of each point, which are plain values.
    trials : mapping
        Trials per point at each scale.
    table : callable
        Finished trials -> the rows that are drawn. Any part of the trials may be missing, also all of them.
    claims : callable
        Table -> verdicts.
    plot : callable
        (table, matplotlib figure) -> None; draws, computes nothing.
    estimate : callable, optional
        Parameters -> the cost of one trial.
    version : int
        Raise it when the trial's record changes: old rows stay in the store and are no longer used.
    needs : tuple of Experiment
        Others whose finished trials the table reads too.
    assumptions : callable, optional
        Finished trials -> what the theorems behind the claims assume, compared with the sizes and data of each setting.
    """

    name: str
    title: str
    about: str
    trial: Callable[[Parameters, int], TrialRecord]
    grid: Callable[[RunConfig], Iterable[Parameters]]
    trials: Mapping[str, int]
    table: Callable[[Sequence[TrialResult]], Table]
    claims: Callable[[Table], list[Verdict]]
    plot: Callable[[Table, Figure], None]
    estimate: Callable[[Parameters], Estimate] | None = None
    version: int = 1
    needs: tuple[Experiment, ...] = ()
    assumptions: Callable[[Sequence[TrialResult]], Iterable[Assumptions]] | None = None

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise InputError(f"an experiment's name must be lower case words joined by dashes, got {self.name!r}")
        if missing := [scale for scale in SCALES if scale not in self.trials]:
            raise InputError(f"{self.name} must have a number of trials at scale {missing[0]}")

    def planned(self, config: RunConfig) -> list[Trial]:
        """Return the trials of a configuration, those of the experiments it needs first."""
        count = self.trials[config.scale] if config.trials is None else config.trials
        needed = [trial for other in self.needs for trial in other.planned(config)]
        points = [canonical(parameters) for parameters in self.grid(config)]
        if len(set(points)) < len(points):
            raise InputError(f"the grid of {self.name} must not repeat a point")
        seeds = range(config.seed, check_seed(config.seed + count - 1) + 1)
        own = [Trial(self.name, self.version, point, seed) for point in points for seed in seeds]
        return list(dict.fromkeys(needed + own))  # two of those it needs may need the same one

    def with_needs(self) -> dict[str, Experiment]:
        """Return the experiment and those it needs, by name."""
        needed = [other.with_needs() for other in self.needs]
        return {name: one for family in needed for name, one in family.items()} | {self.name: self}


def canonical(parameters: Parameters) -> str:
    """Return parameters as text, the same for the same values: JSON with sorted keys."""
    return _json({name: _plain(value, "parameters", name) for name, value in parameters.items()}, "parameters")


def canonical_record(record: TrialRecord) -> str:
    """Return a record as text: JSON in the order of its keys.

    Nested dictionaries and lists may hold plain finite values and objects with `to_dict`. The seconds and the memory
    that a measurement took are left out: they differ from run to run, and a row has those of the whole trial.
    """
    if not (isinstance(record, Mapping) or hasattr(record, "to_dict")):
        raise InputError(f"a record must be a dictionary or have to_dict(), got {type(record).__name__}")
    return _json(_nested(record, ""), "a record")


def _nested(value: Any, path: str) -> Any:
    """Return a record as dictionaries, lists and plain values; `path` is where the value is in it."""
    if callable(getattr(value, "to_dict", None)):
        left_out = ("seconds", "peak_mb") if isinstance(value, Record) else ()
        value = {key: part for key, part in value.to_dict().items() if key not in left_out}
    if isinstance(value, Mapping):
        if unnamed := [key for key in value if not isinstance(key, str)]:
            raise InputError(f"a record must hold plain values by name, got the key {unnamed[0]!r}: use text")
        return {key: _nested(part, f"{path}{key}.") for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_nested(part, f"{path}{place}.") for place, part in enumerate(value)]
    return _plain(value, "a record", path[:-1])


def _plain(value: Any, what: str, name: Any) -> Any:
    if not isinstance(name, str) or type(value) not in (str, int, float, bool, type(None)):
        raise InputError(f"{what} must hold plain values by name, got {type(value).__name__} for {name!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{what} must hold finite numbers, got {value} for {name!r}: use None for what is unknown")
    return value


def _json(values: dict[str, Any], what: str) -> str:
    text = json.dumps(values, sort_keys=what == "parameters", ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{what} must hold text that UTF-8 can write, got {ascii(text)[:80]}") from None
    return text
