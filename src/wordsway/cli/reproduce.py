"""The commands `reproduce` and `figures`: run figures of the papers, and list them."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from wordsway.cli.options import Dask, Figures, Json, Out, TrialSeed, Workers
from wordsway.cli.running import notice, print_json

if TYPE_CHECKING:
    from wordsway.experiments.executors import Backend

Scale = Annotated[str, typer.Option(metavar="quick|paper", help="a small grid in minutes, or the paper's")]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="embed reviews with this model, a hub id or a folder; default: the figure's own data"
    ),
]
Trials = Annotated[int | None, typer.Option(metavar="T", help="trials per point; default: the figure's own number")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="print the plan with its cost, and run nothing")]

Strict = Annotated[
    bool, typer.Option("--strict", help="exit with 1 also if a claim does not hold or the trials cannot tell")
]


def reproduce(
    names: Figures = None,
    scale: Scale = "quick",
    model: Model = None,
    trials: Trials = None,
    seed: TrialSeed = 0,
    workers: Workers = None,
    dask: Dask = None,
    out: Out = "results",
    dry_run: DryRun = False,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Run figures of the papers, check their claims, and write pictures, tables and a page.

    Stored trials are not run again: after an interrupt, the same command continues.
    """
    from tqdm import tqdm

    from wordsway.experiments import executors
    from wordsway.experiments.experiment import RunConfig
    from wordsway.experiments.results import figure_result
    from wordsway.experiments.runner import make_plan, run_plan
    from wordsway.experiments.store import STORE, Store
    from wordsway.figures import all_figures, figures_named
    from wordsway.figures._style import style
    from wordsway.report import experiments as report
    from wordsway.report.files import check_folder
    from wordsway.report.results import uses_model, write_figure, write_page

    chosen = figures_named(names or ())
    config = RunConfig(scale, model, trials, seed)
    if dask is not None and dry_run:
        raise typer.BadParameter("--dask and --dry-run exclude each other: a dry run estimates for this machine")
    if dask is not None and workers is not None:
        raise typer.BadParameter("--workers and --dask exclude each other: a cluster has its own workers")
    if model is not None and (without := [one.name for one in chosen if not uses_model(one, config)]):
        notice(f"{', '.join(without)}: no model is part of it, --model changes nothing there")
    backend: Backend = executors.local(workers)
    folder = check_folder(out, make=False)
    if dry_run:  # the store is only read
        path = folder / STORE
        known = path.exists() and path.stat().st_size > 0
        with Store(path, readonly=True) if known else nullcontext() as stored:
            plan = make_plan(chosen, config, stored)
        if as_json:
            print_json(report.plan_rows(plan))
        else:
            report.print_plan(plan, backend.workers)
        return
    with ExitStack() as stack:
        stack.enter_context(style())  # raises now if matplotlib is missing
        if dask is not None:
            backend = stack.enter_context(executors.dask(dask))
        folder = check_folder(out)
        store = stack.enter_context(Store(folder / STORE))
        plan = make_plan(chosen, config, store)
        notice(report.plan_line(plan, backend))
        summary = run_plan(plan, store, backend, progress=True)
        results = [figure_result(figure, config, store) for figure in chosen]
        for result in tqdm(results, "drawing", unit="figure", disable=None, leave=False):
            write_figure(result, folder)
        page = write_page(folder, list(all_figures()))
    if as_json:
        print_json({**result.to_dict(), "page": str(page)} for result in results)
    else:
        report.print_figures(results, summary, page)
    if trouble := report.trouble(results, summary, strict):
        notice(f"wordsway: {trouble}")
        raise typer.Exit(1)
