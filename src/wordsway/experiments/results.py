"""The result of a figure: its finished trials as a table, and the verdicts on its claims."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from wordsway.experiments.experiment import Experiment, RunConfig, Table, Verdict, overall, worst
from wordsway.experiments.store import DIED, FAILED, Store
from wordsway.records import Record
from wordsway.sensitivity.assumptions import summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, repr=False)
class FigureResult(Record):
    """The table of a figure, the verdicts on its claims, and how many of its trials have finished.

    Attributes
    ----------
    planned, finished, problems : int
        Trials of the configuration, those that finished, and those that failed or died and have not finished since.
    assumptions : list of dict
        What the theorems behind the claims assume: `theorem`, `assumption`, `measured` and `met` (None: cannot tell).
    """

    summary_fields: ClassVar[tuple[str, ...]] = ("figure", "holds", "finished", "planned", "problems")

    experiment: Experiment
    config: RunConfig
    table: Table
    verdicts: list[Verdict]
    planned: int
    finished: int
    problems: int
    assumptions: Table = field(default_factory=list)

    @property
    def figure(self) -> str:
        return self.experiment.name

    @property
    def holds(self) -> bool | None:
        """Whether all claims hold; None where the data cannot tell."""
        return overall(self.verdicts)

    @property
    def outcome(self) -> str:
        """The worst verdict, in words."""
        return worst(verdict.word for verdict in self.verdicts)

    def to_dict(self) -> dict[str, Any]:
        return {
            "figure": self.figure,
            "scale": self.config.scale,
            "holds": self.holds,
            "outcome": self.outcome,
            "claims": [verdict.to_dict() for verdict in self.verdicts],
            "assumptions": self.assumptions,
            "trials": self.planned,
            "finished": self.finished,
            "failed": self.problems,
        }

    def rows(self) -> Table:
        return self.table

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the panels of the figure in place of the given axes, by default on a new figure; return the first."""
        from matplotlib.figure import Figure

        figure: Any = Figure(layout="constrained") if ax is None else ax.figure
        if ax is not None:
            ax.remove()
        self.experiment.plot(self.table, figure)
        first: Axes = figure.axes[0]
        return first


def figure_result(experiment: Experiment, config: RunConfig, store: Store) -> FigureResult:
    """Read the finished trials of a configuration and judge the claims; draws nothing."""
    trials = experiment.planned(config)
    results = store.records(trials)
    table = experiment.table(results)
    needed = experiment.with_needs()
    done = {trial for name, one in needed.items() for trial in store.finished(name, one.version)}
    problems = {row.trial for row in store.rows(list(needed), (FAILED, DIED), set(trials))} - done
    counts = (len(trials), len(results), len(problems))
    assumptions = [] if experiment.assumptions is None else summarise(list(experiment.assumptions(results)))
    return FigureResult(experiment, config, table, experiment.claims(table), *counts, assumptions)
