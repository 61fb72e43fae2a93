"""What a run would do: the trials that are asked for, those that are missing, and what they would take."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from wordsway.experiments.experiment import Estimate, Experiment, RunConfig, Trial
from wordsway.experiments.store import Store


@dataclass(frozen=True)
class Part:
    """The trials of one experiment in a plan.

    Attributes
    ----------
    sizes : str
        The range of each parameter over all its trials, for people.
    estimate : Estimate or None
        Seconds on one core for the missing trials together, and bytes for the largest of them; None where some of them
        cannot be estimated.
    """

    experiment: Experiment
    asked: tuple[Trial, ...]
    missing: tuple[Trial, ...]
    sizes: str
    estimate: Estimate | None


@dataclass(frozen=True)
class Plan:
    """Everything that a run needs to know, checked; the same trial is never in it twice."""

    parts: tuple[Part, ...]

    @property
    def missing(self) -> list[Trial]:
        return [trial for part in self.parts for trial in part.missing]

    @property
    def asked(self) -> list[Trial]:
        return [trial for part in self.parts for trial in part.asked]


def make_plan(experiments: Sequence[Experiment], scope: RunConfig, store: Store | None) -> Plan:
    """Lay out the trials of some experiments and of those they need; without a store everything is missing."""
    asked = dict.fromkeys(trial for one in experiments for trial in one.asked(scope))
    family = {name: one for experiment in experiments for name, one in experiment.family().items()}
    parts = []
    for name, experiment in family.items():
        mine = tuple(trial for trial in asked if trial.experiment == name)
        known = set() if store is None else store.finished(name, experiment.version)
        missing = tuple(trial for trial in mine if trial not in known)
        costs = {} if store is None else store.costs(name, experiment.version)
        parts.append(Part(experiment, mine, missing, sizes(mine), _estimate(experiment, missing, costs)))
    return Plan(tuple(parts))


def _estimate(experiment: Experiment, missing: Sequence[Trial], costs: dict[str, Estimate]) -> Estimate | None:
    """What earlier trials of the same parameters took, or else what the experiment says of itself."""
    each = []
    for trial in missing:
        known = costs.get(trial.parameters)
        if known is None:
            if experiment.estimate is None:
                return None
            known = experiment.estimate(json.loads(trial.parameters))
        each.append(known)
    return Estimate(sum(one.seconds for one in each), max((one.memory for one in each), default=0))


def sizes(trials: Sequence[Trial]) -> str:
    """Each parameter with its values: "d 96 to 384, data imdb/gaussian, n 10 to 250"."""
    seen: dict[str, list[object]] = {}
    for text in dict.fromkeys(trial.parameters for trial in trials):
        for name, value in json.loads(text).items():
            seen.setdefault(name, [])
            if value not in seen[name]:
                seen[name].append(value)
    return ", ".join(f"{name} {_range(values)}" for name, values in seen.items())


def _range(values: list[object]) -> str:
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) == len(values) > 1:
        return f"{min(numbers)} to {max(numbers)}"
    return "/".join(map(str, values))
