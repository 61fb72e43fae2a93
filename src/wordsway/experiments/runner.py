"""Plan and run experiments: what the store does not have is submitted, and every record is committed as it arrives.

Trials are submitted in random order: then the time left is a fair extrapolation, and two runners on one store rarely
take the same trial. The result of a trial does not depend on when, where or beside what it runs.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from wordsway.errors import WordswayError
from wordsway.experiments import executors
from wordsway.experiments.executors import Backend, describe_error, run_trials
from wordsway.experiments.experiment import Estimate, Experiment, RunConfig, Trial
from wordsway.experiments.store import DIED, DONE, FAILED, Row, Store
from wordsway.records import Record

_LINE = 30.0  # seconds between lines of progress where there is no terminal
POLL = 5.0  # seconds without a result, after which the connection is checked
_LARGEST = 200  # trials in a task: those of 1 ms then share what a task costs, some 10 ms on a Dask cluster
_KILLED = "KilledWorker"  # Dask's error for a trial whose workers died, by name: Dask may not be installed
_ELSEWHERE = "elsewhere"


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
    trials: tuple[Trial, ...]
    missing: tuple[Trial, ...]
    sizes: str
    estimate: Estimate | None


@dataclass(frozen=True)
class Plan:
    """Everything that a run needs, checked; the same trial is never in it twice."""

    parts: tuple[Part, ...]

    @property
    def missing(self) -> list[Trial]:
        return [trial for part in self.parts for trial in part.missing]

    @property
    def trials(self) -> list[Trial]:
        return [trial for part in self.parts for trial in part.trials]


@dataclass(frozen=True, eq=False, repr=False)
class RunSummary(Record):
    """What became of the trials of a run.

    Attributes
    ----------
    planned, stored : int
        Trials of the plan, and how many of them the store had before the run.
    done, failed, died : int
        Trials that ended in this run: with a record, with an error, with their worker process.
    elsewhere : int
        Trials that another run on the same store finished meanwhile.
    problems : tuple of Row
        Those that failed or died.
    """

    planned: int
    stored: int
    done: int = 0
    failed: int = 0
    died: int = 0
    elsewhere: int = 0
    problems: tuple[Row, ...] = ()

    @property
    def complete(self) -> bool:
        return self.stored + self.done + self.elsewhere == self.planned


def make_plan(experiments: Sequence[Experiment], config: RunConfig, store: Store | None) -> Plan:
    """Plan the trials of some experiments and of those they need; without a store all of them are missing."""
    trials = dict.fromkeys(trial for experiment in experiments for trial in experiment.planned(config))
    needed = [experiment.with_needs() for experiment in experiments]
    parts = []
    for name, experiment in {name: one for family in needed for name, one in family.items()}.items():
        own = tuple(trial for trial in trials if trial.experiment == name)
        finished = set() if store is None else store.finished(name, experiment.version)
        missing = tuple(trial for trial in own if trial not in finished)
        costs = {} if store is None else store.costs(name, experiment.version)
        parts.append(Part(experiment, own, missing, sizes(own), _estimate(experiment, missing, costs)))
    return Plan(tuple(parts))


def _estimate(experiment: Experiment, missing: Sequence[Trial], costs: dict[str, Estimate]) -> Estimate | None:
    """Estimate trials by what earlier ones with the same parameters took, or else by the experiment's own formula."""
    estimates = []
    for trial in missing:
        cost = costs.get(trial.parameters)
        if cost is None:
            if experiment.estimate is None:
                return None
            cost = experiment.estimate(json.loads(trial.parameters))
        estimates.append(cost)
    return Estimate(sum(cost.seconds for cost in estimates), max((cost.memory for cost in estimates), default=0))


def sizes(trials: Sequence[Trial]) -> str:
    """Return each parameter with its values: "d 96 to 384, data imdb/gaussian, n 10 to 250"."""
    values: dict[str, list[object]] = {}
    for text in dict.fromkeys(trial.parameters for trial in trials):
        for name, value in json.loads(text).items():
            if value not in values.setdefault(name, []):
                values[name].append(value)
    return ", ".join(f"{name} {_range(several)}" for name, several in values.items())


def _range(values: list[object]) -> str:
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) == len(values) > 1:
        return f"{min(numbers)} to {max(numbers)}"
    return "/".join(map(str, values))


def run(
    experiment: Experiment | Sequence[Experiment],
    store: Store | str | os.PathLike[str],
    executor: Executor | Backend | None = None,
    *,
    config: RunConfig | None = None,
    progress: bool = False,
) -> RunSummary:
    """Run the trials of one or several experiments that a store does not have yet.

    Parameters
    ----------
    experiment : Experiment or sequence of them
        Those they need are run too.
    store : Store or path
        Where records are kept; a file that does not exist is made.
    executor : concurrent.futures.Executor, optional
        Where trials run; default: processes of this machine, one per core. The numbers are the same in all of them: a
        trial uses one thread.
    config : RunConfig, optional
        The scale, the number of trials and the first seed.
    progress : bool
        Show a bar with the time left on stderr, or without a terminal a line every 30 seconds.

    Returns
    -------
    RunSummary
        A trial that fails, or dies with its process, is recorded with its error, and does not stop the others.

    Raises
    ------
    KeyboardInterrupt
        When interrupted; its text is the number of stored trials. Running it again continues where it stopped.
    """
    experiments = (experiment,) if isinstance(experiment, Experiment) else tuple(experiment)
    if not isinstance(store, Store):
        with Store(Path(store)) as opened:
            return run(experiments, opened, executor, config=config, progress=progress)
    return run_plan(make_plan(experiments, config or RunConfig(), store), store, executor, progress=progress)


def run_plan(
    plan: Plan, store: Store, executor: Executor | Backend | None = None, *, progress: bool = False
) -> RunSummary:
    """Run the missing trials of a plan; see `run`."""
    trials, missing = plan.trials, plan.missing
    if not missing:
        return RunSummary(len(trials), len(trials))
    backend = executors.local() if executor is None else executor
    if not isinstance(backend, Backend):
        backend = executors.wrap(backend)
    lines = progress and not sys.stderr.isatty()
    hidden = lines or not progress
    with tqdm(total=len(missing), desc="trials", unit="trial", disable=hidden, leave=False) as bar:
        session = _Session(plan, store, backend, bar, lines)
        try:
            session.run()
        except KeyboardInterrupt:
            stored = sum(map(store.has, trials))
            raise KeyboardInterrupt(
                f"interrupted: {stored} of {len(trials)} trials are stored, run the same command again to continue"
            ) from None
    counts = {state: session.counts[state] for state in (DONE, FAILED, DIED, _ELSEWHERE)}
    return RunSummary(len(trials), len(trials) - len(missing), **counts, problems=tuple(session.problems))


class _Session:
    """One run of a plan on one backend."""

    def __init__(self, plan: Plan, store: Store, backend: Backend, bar: Any, lines: bool) -> None:
        self.store, self.backend, self.bar, self.lines = store, backend, bar, lines
        self.started = self.told = time.monotonic()
        self.functions = {part.experiment.name: part.experiment.trial for part in plan.parts}
        self.queue = deque(random.Random(os.urandom(8)).sample(plan.missing, len(plan.missing)))
        self.running: dict[Future[list[Row]], list[Trial]] = {}
        self.seconds: dict[tuple[str, str], float] = {}  # experiment, parameters -> of the latest trial
        self.counts: Counter[str] = Counter()
        self.problems: list[Row] = []

    def run(self) -> None:
        """Run all trials; those that were running when a worker process died are run again, each alone."""
        workers, seconds = self.backend.workers, self.backend.batch
        while self.queue:
            suspects = deque(self._work_off(self.queue, workers, 2 * workers, seconds))
            while suspects:
                self._record_deaths(self._work_off(suspects, 1, 1, 0.0))

    def _work_off(self, queue: deque[Trial], workers: int, window: int, seconds: float) -> list[Trial]:
        """Run the trials of a queue until it is empty or the executor breaks; return those that may have broken it.

        When a process of a pool dies, the pool is lost, and it is unknown which of the running trials was in it. Trials
        of a task that the executor could not run are returned, too, unless the trial was alone in it: then it failed.
        """
        self.running = {}
        killed: list[Trial] = []
        with self.backend.open(min(workers, len(queue))) as executor:
            try:
                while queue or self.running:
                    usable = self._submit(executor, queue, window, seconds)
                    ended, _ = wait(self.running, POLL, FIRST_COMPLETED)
                    self._tell()
                    if not ended and self.backend.disconnected():
                        raise self._closed("the connection is lost")
                    if not self._collect(ended, killed) or not usable:
                        wait(self.running, timeout=10)  # the pool fails all the others too
                        self._collect([future for future in self.running if future.done()], killed)
                        suspects = [*killed, *chain.from_iterable(self.running.values())]
                        if not self.backend.renewable:
                            self._give_up(suspects, len(queue))
                        return suspects
            except KeyboardInterrupt:
                self._collect([future for future in self.running if future.done()], killed)
                raise
            finally:
                if not self.backend.renewable:  # others close with the block
                    for future in self.running:
                        future.cancel()
        return killed

    def _submit(self, executor: Executor, queue: deque[Trial], window: int, seconds: float) -> bool:
        """Submit tasks until `window` of them are running; return False where the executor is broken."""
        while queue and len(self.running) < window:
            trials = self._batch(queue, -(-len(queue) // window), seconds)
            if not trials:
                continue
            try:
                future = executor.submit(run_trials, [(self.functions[one.experiment], one) for one in trials])
            except BrokenExecutor:
                queue.extendleft(reversed(trials))
                return False
            except Exception as error:
                if isinstance(error, RuntimeError) or self.backend.disconnected():  # it was shut down
                    raise self._closed(describe_error(error)) from error
                raise
            self.running[future] = trials
        return True

    def _batch(self, queue: deque[Trial], share: int, seconds: float) -> list[Trial]:
        """Take the trials of the next task off a queue; none where another run finished all of them meanwhile.

        As many as take `seconds` together, by what trials with the same parameters took last, but not more than a
        worker's share of the queue. A trial whose parameters are new goes alone.
        """
        trials: list[Trial] = []
        total = 0.0
        while queue and len(trials) < min(share, _LARGEST):
            trial = queue[0]
            cost = self.seconds.get((trial.experiment, trial.parameters), math.inf)
            if trials and total + cost >= seconds:
                break
            queue.popleft()
            if self.store.has(trial):
                self._count(_ELSEWHERE)
                continue
            trials.append(trial)
            total += cost
        return trials

    def _collect(self, ended: Iterable[Future[list[Row]]], killed: list[Trial]) -> bool:
        """Store the rows of tasks that ended, and take them off `running`; return False where the executor broke."""
        usable, cancelled = True, False
        for future in list(ended):
            trials = self.running[future]
            try:
                rows = future.result()
            except BrokenExecutor:
                usable = False
                continue
            except CancelledError:
                cancelled = True
                continue
            except Exception as error:  # the executor could not run it, or could not return its rows
                if len(trials) > 1 or type(error).__name__ == _KILLED:
                    killed += trials
                    del self.running[future]
                    continue
                rows = [Row(trials[0], FAILED, error=describe_error(error))]
            for row in rows:
                self._store(row)
            del self.running[future]
        if cancelled:
            raise self._closed("trials were cancelled")
        return usable

    def _give_up(self, suspects: list[Trial], left: int) -> None:
        """End the run where the executor broke and no other can be opened."""
        self._record_deaths(suspects)
        raise WordswayError(
            f"the {self.backend.name} broke when a worker died: {len(suspects)} trials that were under way are "
            f"recorded as died, {left} were not tried; run it again with a new one"
        )

    def _closed(self, reason: str) -> WordswayError:
        return WordswayError(f"{self.backend.name} takes no more trials ({reason}): run it again with a new one")

    def _record_deaths(self, trials: Iterable[Trial]) -> None:
        """Record trials as died with their worker process."""
        for trial in trials:
            self._store(Row(trial, DIED, error="its worker process ended before it did: out of memory, or killed"))

    def _store(self, row: Row) -> None:
        if row.seconds is not None:
            self.seconds[row.trial.experiment, row.trial.parameters] = row.seconds
        if not self.store.add(row):
            self._count(_ELSEWHERE)
            return
        if row.state != DONE:
            self.problems.append(row)
            self.bar.set_postfix_str(f"{len(self.problems)} failed")
        self._count(row.state)

    def _tell(self) -> None:
        """Print a line of progress every 30 seconds where there is no terminal."""
        now = time.monotonic()
        if not self.lines or now - self.told < _LINE:
            return
        self.told, done, total = now, sum(self.counts.values()), self.bar.total
        left = f", about {(now - self.started) * (total - done) / done / 60:.0f} min left" if done else ""
        print(f"{done} of {total} trials after {(now - self.started) / 60:.1f} min{left}", file=sys.stderr, flush=True)

    def _count(self, state: str) -> None:
        self.counts[state] += 1
        self.bar.update()
