"""The runner: submits what the store does not have, commits every record as it arrives, and outlives its workers.

Trials go out in a random order: then the time left is an honest extrapolation, and two runners on one store meet in
few trials. What a trial gives does not depend on when, where or beside what it runs.
"""

from __future__ import annotations

import json
import os
import random
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from wordsway.errors import WordswayError
from wordsway.experiments import executors
from wordsway.experiments.executors import Backend
from wordsway.experiments.experiment import Experiment, RunConfig, Trial
from wordsway.experiments.plan import Plan, make_plan
from wordsway.experiments.store import DIED, DONE, FAILED, Row, Store
from wordsway.experiments.worker import Outcome, kind_and_text, versions, work

_KILLED = ("KilledWorker",)  # what Dask says of a trial whose workers died, known by name: Dask may not be installed
_LISTEN = 5.0  # seconds without news, after which the place is asked whether it is still there


@dataclass
class RunSummary:
    """What became of the trials of a run.

    Attributes
    ----------
    asked, before : int
        Trials of the plan, and how many of them the store had.
    done, failed, died : int
        Those that ended in this run: with a record, with an error, with their worker process.
    elsewhere : int
        Those that another run on the same store finished meanwhile.
    """

    asked: int
    before: int
    done: int = 0
    failed: int = 0
    died: int = 0
    elsewhere: int = 0
    problems: list[Row] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return self.before + self.done + self.elsewhere == self.asked


def run(
    experiment: Experiment | Sequence[Experiment],
    store: Store | str | os.PathLike[str],
    executor: Executor | Backend | None = None,
    *,
    scope: RunConfig | None = None,
    progress: bool = False,
) -> RunSummary:
    """Run the trials of one or several experiments that a store does not have yet.

    Parameters
    ----------
    experiment : Experiment or sequence of them
        Those they need are run too.
    store : Store or path
        Where records go; a file that does not exist is made.
    executor : concurrent.futures.Executor, optional
        Where trials run; default: processes of this machine, one per core. The numbers are the same in all of them: a
        trial uses one thread.
    scope : RunConfig, optional
        The scale, the number of trials and the first seed.
    progress : bool
        Show a bar with the time left on stderr.

    Returns
    -------
    RunSummary
        A trial that fails, or dies with its process, is recorded with its error, and does not stop the others.

    Raises
    ------
    KeyboardInterrupt
        When interrupted; its text says what is stored. Running it again goes on where it stopped.
    """
    experiments = (experiment,) if isinstance(experiment, Experiment) else tuple(experiment)
    if not isinstance(store, Store):
        with Store(Path(store)) as opened:
            return run(experiments, opened, executor, scope=scope, progress=progress)
    plan = make_plan(experiments, scope or RunConfig(), store)
    return carry_out(plan, store, executor, progress=progress)


def carry_out(
    plan: Plan, store: Store, executor: Executor | Backend | None = None, *, progress: bool = False
) -> RunSummary:
    """Run the missing trials of a plan; see `run`."""
    tally = RunSummary(len(plan.asked), len(plan.asked) - len(plan.missing))
    if not plan.missing:
        return tally
    place = executors.local() if executor is None else executor
    if not isinstance(place, Backend):
        place = executors.given(place)
    hidden = None if progress else True  # None: shown on a terminal only
    with tqdm(total=len(plan.missing), desc="trials", unit="trial", disable=hidden, leave=False) as bar:
        session = _Session(plan, store, place, tally, bar)
        try:
            session.run()
        except KeyboardInterrupt:
            stored = sum(map(store.has, plan.asked))
            raise KeyboardInterrupt(
                f"interrupted: {stored} of {tally.asked} trials are stored, run the same command again to go on"
            ) from None
    return tally


class _Session:
    """One run of a plan on one place."""

    def __init__(self, plan: Plan, store: Store, place: Backend, tally: RunSummary, bar: Any) -> None:
        self.store, self.place, self.tally, self.bar = store, place, tally, bar
        self.functions = {part.experiment.name: part.experiment.trial for part in plan.parts}
        self.todo = plan.missing
        random.Random(os.urandom(8)).shuffle(self.todo)

    def run(self) -> None:
        """All trials; those that were under way when a worker process died are done again, each alone."""
        queue = deque(self.todo)
        while queue:
            alone = deque(self._work_off(queue, self.place.workers, 2 * self.place.workers))
            while alone:
                self._bury(self._work_off(alone, 1, 1))

    def _work_off(self, queue: deque[Trial], workers: int, window: int) -> list[Trial]:
        """Run the trials of the queue, until it is empty or the executor breaks; return those that may be to blame.

        When a process of a pool dies, the pool is lost and nobody knows which of the trials under way did it.
        """
        running: dict[Future[Outcome], Trial] = {}
        killed: list[Trial] = []
        with self.place.open(min(workers, len(queue))) as executor:
            try:
                while queue or running:
                    whole = self._fill(executor, queue, running, window)
                    ended, _ = wait(running, _LISTEN, FIRST_COMPLETED)
                    if not ended and self.place.gone():
                        raise self._closed("the connection is lost")
                    if not self._harvest(ended, running, killed) or not whole:
                        wait(running, timeout=10)  # the pool tells all the others too
                        self._harvest([future for future in running if future.done()], running, killed)
                        if not self.place.renewable:
                            self._give_up([*killed, *running.values()], len(queue))
                        return [*killed, *running.values()]
            except KeyboardInterrupt:
                self._harvest([future for future in running if future.done()], running, killed)
                raise
            finally:
                if not self.place.renewable:  # others close with the block
                    for future in running:
                        future.cancel()
        return killed

    def _fill(
        self, executor: Executor, queue: deque[Trial], running: dict[Future[Outcome], Trial], window: int
    ) -> bool:
        """Submit as many trials as may be under way; False where the executor takes no more."""
        while queue and len(running) < window:
            trial = queue[0]
            if self.store.has(trial):
                self.tally.elsewhere += 1
                self.bar.update()
            else:
                function = self.functions[trial.experiment]
                try:
                    running[executor.submit(work, function, json.loads(trial.parameters), trial.seed)] = trial
                except BrokenExecutor:
                    return False
                except Exception as error:
                    if isinstance(error, RuntimeError) or self.place.gone():  # it was shut down
                        raise self._closed(kind_and_text(error)) from error
                    raise
            queue.popleft()
        return True

    def _harvest(
        self, ended: Iterable[Future[Outcome]], running: dict[Future[Outcome], Trial], killed: list[Trial]
    ) -> bool:
        """Store what ended, and take it off `running`; False where the executor broke."""
        whole, open_still = True, True
        for future in list(ended):
            trial = running[future]
            try:
                outcome = future.result()
            except BrokenExecutor:
                whole = False
                continue
            except CancelledError:
                open_still = False
                continue
            except Exception as error:  # the executor could not run it, or bring back what it gave
                if type(error).__name__ in _KILLED:
                    killed.append(trial)
                else:
                    self._keep(Row(trial, FAILED, None, kind_and_text(error), None, None, None, _ours()))
            else:
                found = json.dumps(outcome.versions)
                state = DONE if outcome.error is None else FAILED
                cost = (outcome.dtype, outcome.seconds, outcome.peak_mb)
                self._keep(Row(trial, state, outcome.record, outcome.error, *cost, found, outcome.machine))
            del running[future]
        if not open_still:
            raise self._closed("trials were cancelled")
        return whole

    def _give_up(self, suspects: list[Trial], left: int) -> None:
        """End the run where the executor broke and no other can be opened."""
        self._bury(suspects)
        raise WordswayError(
            f"the {self.place.name} broke when a worker died: {len(suspects)} trials that were under way are recorded "
            f"as died, {left} were not tried; run it again with a new one"
        )

    def _closed(self, reason: str) -> WordswayError:
        return WordswayError(f"{self.place.name} takes no more trials ({reason}): run it again with a new one")

    def _bury(self, trials: Iterable[Trial]) -> None:
        """Record trials as died with their worker process."""
        error = "its worker process ended before it did: out of memory, or killed"
        for trial in trials:
            self._keep(Row(trial, DIED, None, error, None, None, None, _ours()))

    def _keep(self, row: Row) -> None:
        if not self.store.add(row):
            self.tally.elsewhere += 1
        elif row.state == DONE:
            self.tally.done += 1
        else:
            self.tally.failed += row.state == FAILED
            self.tally.died += row.state == DIED
            self.tally.problems.append(row)
            self.bar.set_postfix_str(f"{len(self.tally.problems)} failed")
        self.bar.update()


def _ours() -> str:
    return json.dumps(versions())
