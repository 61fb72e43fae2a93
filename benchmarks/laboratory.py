"""The laboratory's own cost: empty trials, killed workers, two workers against one, and all figures at both scales."""

from __future__ import annotations

import hashlib
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from benchmarks.child import Child, job
from benchmarks.kept import FOLDER
from benchmarks.report import Outcome, Row, Target, number, under, within
from wordsway.contexts import gaussian_context
from wordsway.data.reviews import short_reviews
from wordsway.experiments import Experiment, RunConfig, Store, audit, run
from wordsway.experiments.executors import dask, local
from wordsway.figures import figures_named
from wordsway.maps import RandomAttention
from wordsway.memory import human
from wordsway.seeds import generator
from wordsway.sensitivity import word_sensitivity

TABLE = "The laboratory (ours)"
_SIZE = (100, 256)  # n, d of a trial of the sweep
_SPAWNED = "--multiprocessing-fork"  # how workers are started; other children do not run trials


def empty_trial(parameters: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """A trial that costs nothing, so that all that is measured is the runner."""
    return {"seed": seed}


def busy_trial(parameters: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """A trial that keeps a core busy for about a quarter of a second."""
    n, d = _SIZE
    values = [
        word_sensitivity(RandomAttention(d, seed=seed), gaussian_context(n, d, seed), word, ceiling=None).value
        for word in range(6)
    ]
    return {f"word{word}": value for word, value in enumerate(values)}


def _experiment(name: str, trial: Any, count: int) -> Experiment:
    return Experiment(
        name=name,
        title=name,
        about="",
        trial=trial,
        grid=lambda config: [{}],
        trials={"quick": count, "paper": count},
        table=lambda finished: [],
        claims=lambda table: [],
        plot=lambda table, figure: None,
    )


# Jobs


@job
def lab_empty(count: int, workers: int) -> dict[str, Any]:
    """Seconds for many trials that do nothing, with the start of the processes and every commit."""
    experiment = _experiment("empty", empty_trial, count)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        summary = run(experiment, Path(folder) / "store.sqlite", local(workers))
        return {"seconds": time.perf_counter() - begin, "done": summary.done}


@job
def lab_cluster(count: int, workers: int) -> dict[str, Any]:
    """Seconds for many trials that do nothing on a Dask cluster of this machine that is there, with every commit."""
    from distributed import LocalCluster

    Cluster: Any = LocalCluster
    experiment = _experiment("empty", empty_trial, count)
    with (
        Cluster(n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster,
        dask(cluster.scheduler_address) as backend,
        tempfile.TemporaryDirectory() as folder,
    ):
        run(experiment, Path(folder) / "first.sqlite", backend, config=RunConfig(trials=10))  # imports, in the workers
        begin = time.perf_counter()
        summary = run(experiment, Path(folder) / "store.sqlite", backend)
        return {"seconds": time.perf_counter() - begin, "done": summary.done}


@job
def lab_soak(count: int, workers: int, every: float) -> dict[str, Any]:
    """Many small trials while a worker is killed every few seconds, then a second run for those that died with one."""
    experiment = _experiment("soak", empty_trial, count)
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "store.sqlite") as store:
        begin = time.perf_counter()
        with _killer(every) as (killed, sizes):
            first = run(experiment, store, local(workers))
        seconds = time.perf_counter() - begin
        again = run(experiment, store, local(workers))
        results = store.records(experiment.planned(RunConfig()))
    quarter = len(sizes) // 4
    return {
        "seconds": seconds,
        "killed": len(killed),
        "died": first.died,
        "reported": first.done + first.died,
        "complete": again.complete,
        "right": len({one.seed for one in results if one.record == {"seed": one.seed}}),
        "early": max(sizes[quarter : 2 * quarter], default=0),
        "late": max(sizes[3 * quarter :], default=0),
    }


@contextmanager
def _killer(every: float) -> Iterator[tuple[list[int], list[int]]]:
    """Kill a worker every few seconds; yields the ids of those killed, and the memory of this process over time."""
    over, killed, sizes, chance = threading.Event(), [], [], random.Random(0)

    def kill() -> None:
        me, last = psutil.Process(), time.monotonic()
        while not over.wait(0.1):
            sizes.append(me.memory_info().rss)
            if time.monotonic() - last < every:
                continue
            with suppress(psutil.Error):  # it has just ended
                one = chance.choice([child for child in me.children() if _SPAWNED in child.cmdline()] or [None])
                if one is not None:
                    one.kill()
                    killed.append(one.pid)
                    last = time.monotonic()

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    try:
        yield killed, sizes
    finally:
        over.set()
        thread.join()


@job
def lab_sweep(count: int, workers: int) -> dict[str, Any]:
    """Seconds for a sweep that keeps every worker busy, and a digest of its numbers."""
    experiment = _experiment("busy", busy_trial, count)
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "store.sqlite") as store:
        begin = time.perf_counter()
        run(experiment, store, local(workers))
        seconds = time.perf_counter() - begin
        results = store.records(experiment.planned(RunConfig()))
    digest = hashlib.sha256(repr([(one.seed, one.record) for one in results]).encode()).hexdigest()
    return {"seconds": seconds, "done": len(results), "digest": digest}


@job
def lab_figures(
    names: list[str], scale: str, workers: int, trials: int | None = None, keep: str | None = None
) -> dict[str, Any]:
    """Seconds and memory for some figures at a scale: the runner with all its workers.

    The trials are kept in a folder, if one is named, from which `wordsway reproduce --out` draws them without running
    them again.
    """
    figures = figures_named(names)
    config = RunConfig(scale, trials=trials)
    with _folder(keep) as folder, Store(folder / "store.sqlite") as store:
        begin = time.perf_counter()
        with _family_memory() as peak:
            summary = run(figures, store, local(workers), config=config)
        seconds = time.perf_counter() - begin
        verdicts = [
            one for figure in figures for one in figure.claims(figure.table(store.records(figure.planned(config))))
        ]
        checks = [verdict for verdict in verdicts if verdict.check]
    return {
        "seconds": seconds,
        "peak": peak[0],
        "done": summary.done,
        "planned": summary.planned,
        "checks": len(checks),
        "pass": sum(verdict.holds is True for verdict in checks),
    }


@contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    """An empty folder: one that stays, in place of what an earlier run left there, or one that goes."""
    if keep is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
        return
    path = FOLDER / keep
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    yield path


@contextmanager
def _family_memory() -> Any:
    """The largest sum of resident memory of this process and its children, looked at ten times a second."""
    over, peak = threading.Event(), [0]

    def look() -> None:
        me = psutil.Process()
        while not over.wait(0.1):
            size = 0
            for process in (me, *me.children(recursive=True)):
                try:
                    size += process.memory_info().rss
                except psutil.Error:  # it has just ended
                    continue
            peak[0] = max(peak[0], size)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()


@job
def lab_audit(count: int, workers: int, words: int) -> dict[str, Any]:
    """Seconds for an audit of short reviews, of at most so many words, with loading, and a digest of its rows."""
    texts, labels = short_reviews()
    short = [place for place, text in enumerate(texts) if len(text.split()) <= words]
    chosen = [short[place] for place in generator(0, "audit").permutation(len(short))[:count]]
    begin = time.perf_counter()
    result = audit(
        "minilm-sentiment",
        [texts[place] for place in chosen],
        [int(labels[place]) for place in chosen],
        workers=workers,
    )
    seconds = time.perf_counter() - begin
    digest = hashlib.sha256(repr(result.rows()).encode()).hexdigest()
    shares = {"accuracy": result.accuracy, "robust": result.robust, "flips": result.flip_share}
    return {"seconds": seconds, "measured": result.measured, "passes": result.passes, "digest": digest, **shares}


# Cases


def audits(child: Child, size: Mapping[str, Any]) -> Outcome:
    """An audit of short reviews with two workers, and with one."""
    one, two = (child("lab_audit", count=size["count"], workers=count, words=size["words"]) for count in (1, 2))
    ratio = one["seconds"] / two["seconds"]
    case = f"audit of {size['count']} short reviews over near:30, 2 workers against 1"
    shares = ", ".join(f"{name} {number(two[name])}" for name in ("accuracy", "robust", "flips"))
    seconds = f"{number(two['seconds'])} against {number(one['seconds'])}"
    cells = {"case": case, "seconds": seconds, "result": f"{shares}, {two['passes']:,} passes"}
    targets = (
        within(case, two, size["seconds"]),
        Target(case, f"at least {size['ratio']} times as fast", f"{ratio:.2f} times", ratio >= size["ratio"]),
        Target(case, "the same numbers, bit for bit", one["digest"][:8], one["digest"] == two["digest"]),
        Target(case, "every text is measured", f"{two['measured']:,}", two["measured"] == size["count"]),
    )
    return Outcome((Row(TABLE, cells),), targets)


def runner(child: Child, size: Mapping[str, Any]) -> Outcome:
    """What the runner costs per trial, with processes and on a cluster."""
    count, limit = size["count"], size["milliseconds"]
    rows: list[Row] = []
    targets: list[Target] = []
    for name, where, start in (
        ("lab_empty", "2 workers", "included"),
        ("lab_cluster", "a Dask cluster of 2 workers", "excluded"),
    ):
        got = child(name, count=count, workers=2)
        each = 1e3 * got["seconds"] / count
        case = f"{count:,} empty trials, {where}"
        claim = f"under {limit} ms per trial, the start of the workers {start}"
        rows.append(Row(TABLE, {"case": case, "seconds": number(got["seconds"]), "per trial": f"{each:.2f} ms"}))
        targets.append(Target(case, claim, f"{each:.2f} ms", each < limit))
        targets.append(Target(case, "every trial is stored", f"{got['done']:,}", got["done"] == count))
    return Outcome(tuple(rows), tuple(targets))


def soak(child: Child, size: Mapping[str, Any]) -> Outcome:
    """Workers that are killed now and then: nothing is lost, and memory stays where it was."""
    count, limit = size["count"], size["rise"]
    got = child("lab_soak", count=count, workers=2, every=size["every"])
    case = f"{count:,} empty trials, 2 workers, one killed every {size['every']:g} s"
    rise = max(got["late"] - got["early"], 0)
    cells = {"case": case, "seconds": number(got["seconds"])}
    died = f"{got['killed']} killed; {got['died']} trials died with one, and were run again"
    targets = (
        Target(case, "every trial is reported", f"{got['reported']:,}; {died}", got["reported"] == count),
        Target(
            case,
            "a second run completes it, with the right records",
            f"{got['right']:,}",
            got["complete"] and got["right"] == count,
        ),
        Target(
            case,
            f"the runner's memory rises by less than {human(limit)} from the second quarter to the last",
            f"{human(rise)}, to {human(got['late'])}",
            rise < limit,
        ),
    )
    return Outcome((Row(TABLE, cells),), targets)


def workers(child: Child, size: Mapping[str, Any]) -> Outcome:
    """Two workers against one on the same sweep."""
    one, two = (child("lab_sweep", count=size["count"], workers=count) for count in (1, 2))
    ratio = one["seconds"] / two["seconds"]
    case = f"{size['count']} trials of raf, 2 workers against 1"
    cells = {"case": case, "seconds": f"{number(two['seconds'])} against {number(one['seconds'])}"}
    targets = (
        Target(case, f"at least {size['ratio']} times as fast", f"{ratio:.2f} times", ratio >= size["ratio"]),
        Target(case, "the same numbers, bit for bit", one["digest"][:8], one["digest"] == two["digest"]),
    )
    return Outcome((Row(TABLE, cells),), targets)


def figures(child: Child, size: Mapping[str, Any]) -> Outcome:
    """Some figures at a scale."""
    names = size["names"]
    how = {"scale": size["scale"], "workers": 2, "trials": size.get("trials"), "keep": size.get("keep")}
    got = child("lab_figures", names=names, **how)
    case = f"{', '.join(names)}, {size['scale']} scale, {got['done']:,} trials, 2 workers"
    cells = {"case": case, "seconds": number(got["seconds"]), "memory of all processes": human(got["peak"])}
    passed = f"{got['pass']} of {got['checks']}"
    targets = (
        within(case, got, size["seconds"]),
        under(case, got, size["memory"], " together"),
        Target(case, "every trial finishes", f"{got['done']} of {got['planned']}", got["done"] == got["planned"]),
        Target(case, "every check of the code passes", passed, got["pass"] == got["checks"]),
    )
    return Outcome((Row(TABLE, cells),), targets)
