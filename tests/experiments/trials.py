"""Trials at the top level of a module, as spawned processes and Dask workers need them, and experiments made of them.

As a program, `python -m experiments.trials`, it runs experiments or the command line in a process that a test can kill.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from wordsway.experiments import Estimate, Experiment, RunConfig, Store, TrialResult, Verdict, executors, run
from wordsway.experiments.experiment import Parameters, Table
from wordsway.maps.catalogue import MAPS
from wordsway.sensitivity import response_sensitivity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PATIENCE = 120.0  # seconds: only what hangs takes so long

# Trials


def draw(parameters: Parameters, seed: int) -> dict[str, Any]:
    """A number that depends on the point and the seed."""
    noise = np.random.default_rng([parameters["x"], seed]).standard_normal()
    return {"value": float(parameters["x"] + noise)}


def slow(parameters: Parameters, seed: int) -> dict[str, Any]:
    """The same, in 20 ms."""
    time.sleep(0.02)
    return draw(parameters, seed)


def flagged(parameters: Parameters, seed: int) -> dict[str, Any]:
    """Fails as long as a file is there, unless x = 0."""
    if parameters["x"] and Path(parameters["flag"]).exists():
        raise ValueError(f"no answer\nfor {parameters['x']}")
    return draw(parameters, seed)


def not_plain(parameters: Parameters, seed: int) -> Any:
    """Records that must be refused, one for each x, and an exit."""
    if parameters["x"] == 5:
        sys.exit(3)
    return ({"value": np.float64(1.0)}, {"value": float("nan")}, {"value": [1j]}, 3.5, {7: 1.0})[parameters["x"]]


def die(parameters: Parameters, seed: int) -> dict[str, Any]:
    """Kills its own process for x = 3."""
    if parameters["x"] == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return slow(parameters, seed)


def step_out(parameters: Parameters, seed: int) -> dict[str, Any]:
    """Ends its own process for x = 3, without a signal."""
    if parameters["x"] == 3:
        os._exit(7)
    return slow(parameters, seed)


def step_out_once(parameters: Parameters, seed: int) -> dict[str, Any]:
    """Ends its own process for one seed, and takes no time for the others."""
    if seed == 150:
        os._exit(7)
    return draw(parameters, seed)


def stumble(folder: str, times: int, how: str, pipe: Any) -> None:
    """Start a worker that does not start the first few times, and leaves a mark each time: it fails, or is killed."""
    marks = Path(folder)
    marks.mkdir(exist_ok=True)
    if len(list(marks.iterdir())) == times:
        return
    (marks / str(os.getpid())).touch()
    if how == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError("no start")


def wait_to_be_killed(parameters: Parameters, seed: int) -> dict[str, Any]:
    """The first time that x = 3 runs it writes its process down, and waits; after that it is quick.

    It also returns whether its process ignores interrupts from the keyboard.
    """
    pid = Path(parameters["pid"])
    if parameters["x"] == 3 and not pid.exists():
        part = pid.with_suffix(".part")
        part.write_text(str(os.getpid()))
        part.replace(pid)
        time.sleep(600)
    blocked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    return slow(parameters, seed) | {"blocked": blocked, "ignored": signal.getsignal(signal.SIGINT) == signal.SIG_IGN}


def algebra(parameters: Parameters, seed: int) -> dict[str, Any]:
    """Linear algebra whose last bits depend on the number of threads, and how many it could have used."""
    import scipy.linalg
    from threadpoolctl import threadpool_info

    noise = torch.Generator().manual_seed(seed)
    A = torch.randn(160, 160, generator=noise, dtype=torch.float64)
    S = A + A.T
    context = torch.nn.functional.normalize(A[:12, :16], dim=1) * 4
    response = MAPS["raf"].respond(context, 2, seed=seed)
    return {
        "x": parameters["x"],
        "sum": float(torch.randn(200_000, generator=noise).sum()),
        "torch": float(torch.linalg.eigvalsh(S)[0]),
        "numpy": float(np.linalg.eigh(S.numpy())[0][0]),
        "scipy": float(scipy.linalg.solve(S.numpy(), A.numpy()).sum()),
        "sensitivity": response_sensitivity(response, 2, 4.0, seed=seed).value,
        "threads": max(torch.get_num_threads(), *(pool["num_threads"] for pool in threadpool_info())),
        "dtype": "float64",
    }


# Experiments


def table(finished: Iterable[TrialResult]) -> Table:
    """One row per point: its mean."""
    found: dict[int, list[float]] = {}
    for one in finished:
        found.setdefault(one["x"], []).append(one["value"])
    return [{"x": x, "mean": float(np.mean(values)), "trials": len(values)} for x, values in sorted(found.items())]


def claims(rows: Table) -> list[Verdict]:
    """The mean grows with x, which the noise of few trials may hide."""
    if len(rows) < 2:
        return [Verdict("the mean grows", "too few points", None)]
    growth = rows[-1]["mean"] - rows[0]["mean"]
    return [Verdict("the mean grows", f"by {growth:.2f}", growth > 0)]


def plot(rows: Table, figure: Figure) -> None:
    figure.add_subplot().plot([row["x"] for row in rows], [row["mean"] for row in rows])


def experiment(
    trial: Callable[[Parameters, int], Any] = draw,
    points: int = 4,
    trials: int = 2,
    name: str = "tiny",
    **more: Any,
) -> Experiment:
    """An experiment on the points x = 0, 1, ...; what `more` holds and an experiment does not know is a parameter."""
    known = {key: more.pop(key) for key in ("version", "needs", "estimate", "claims") if key in more}

    def grid(config: RunConfig) -> list[Parameters]:
        return [{"x": x, **more} for x in range(points if config.scale == "quick" else 2 * points)]

    options: dict[str, Any] = {"claims": claims, "estimate": lambda parameters: Estimate(0.02, 10**8)}
    return Experiment(
        name=name,
        title="A small one",
        about="It is there to be tested.",
        trial=trial,
        grid=grid,
        trials={"quick": trials, "paper": trials},
        table=table,
        plot=plot,
        **(options | known),
    )


def main(what: str, *arguments: str) -> None:
    """`run STORE TRIALS WORKERS` runs slow trials and prints the summary; `command ...` is the command line on them."""
    if what == "run":
        store, trials, workers = arguments
        summary = run(experiment(slow, trials=int(trials)), store, executors.local(int(workers)))
        print(json.dumps(summary.to_dict()))
        return
    from wordsway import cli, figures

    known = {"tiny": experiment(slow)}
    figures.all_figures = lambda: known  # type: ignore[assignment]
    cli.main(arguments)


def stored(path: Path) -> list[dict[str, Any]]:
    """The rows of a store in a fixed order, without what differs between machines and times."""
    apart = ("seconds", "peak_mb", "ended", "machine")
    with Store(path, readonly=True) as store:
        rows = [{key: value for key, value in row.to_dict().items() if key not in apart} for row in store.rows()]
    return sorted(rows, key=lambda row: (row["experiment"], row["x"], row["seed"], row["state"]))


def until(condition: Callable[[], object]) -> None:
    """Wait for something that must come."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def count(path: Path) -> int:
    """How many rows a store has while others write it; none where it is not there yet."""
    if not path.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=60)) as db:
            return int(db.execute("SELECT count(*) FROM trials").fetchone()[0])
    except sqlite3.OperationalError:  # its table is not made yet
        return 0


if __name__ == "__main__":
    main(*sys.argv[1:])
