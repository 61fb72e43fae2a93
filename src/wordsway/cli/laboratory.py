"""The commands of the laboratory: reproduce, figures, results."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from wordsway.cli.interrupt import interruptible

if TYPE_CHECKING:
    from wordsway.experiments.executors import Backend

Names = Annotated[list[str] | None, typer.Argument(metavar="[FIGURE]...", help="all figures if none is named")]
Out = Annotated[str, typer.Option("--out", metavar="DIR", help="folder of the store, the figures and the page")]
Scale = Annotated[str, typer.Option(metavar="quick|paper", help="a small grid in minutes, or the paper's")]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="embed reviews with this model (hub id or folder) in place of the figure's own data"
    ),
]
Trials = Annotated[int | None, typer.Option(metavar="T", help="trials a point, in place of the figure's own number")]
Seed = Annotated[int, typer.Option(metavar="S", help="seed of the first trial; trial k has seed S + k")]
Workers = Annotated[int | None, typer.Option(metavar="W", help="processes; one a core if left out")]
Dask = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="run on the Dask cluster whose scheduler is at tcp://HOST:PORT")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="print what would be run, with its cost, and run nothing")]
Json = Annotated[bool, typer.Option("--json", help="one JSON object a line")]
Format = Annotated[str, typer.Option("--format", metavar="csv|jsonl|parquet", help="format of the rows")]
To = Annotated[str | None, typer.Option(metavar="FILE", help="where to write; csv and jsonl go to stdout if left out")]
Every = Annotated[bool, typer.Option("--all", help="failed and died trials too, not only finished ones")]

results = typer.Typer(
    help="Look at the trials that are stored.",
    invoke_without_command=True,
    epilog="Example: wordsway results export --format csv --to trials.csv",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def reproduce(
    names: Names = None,
    scale: Scale = "quick",
    model: Model = None,
    trials: Trials = None,
    seed: Seed = 0,
    workers: Workers = None,
    dask: Dask = None,
    out: Out = "results",
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Run figures of the papers, check their claims, and write pictures, tables and a page.

    Trials that are stored are not run again: an interrupted run goes on with the same command.
    """
    from wordsway.cli import lab_views as views
    from wordsway.experiments import executors
    from wordsway.experiments.experiment import RunConfig
    from wordsway.experiments.results import figure_result
    from wordsway.experiments.runner import make_plan, run_plan
    from wordsway.experiments.store import Store
    from wordsway.figures import all_figures, figures_named
    from wordsway.figures._style import style
    from wordsway.report.results import STORE, check_folder, uses_model, write_figure, write_page

    chosen = figures_named(names or ())
    scope = RunConfig(scale, model, trials, seed)
    if dask is not None and dry_run:
        raise typer.BadParameter("--dask and --dry-run exclude each other: a dry run estimates for this machine")
    if dask is not None and workers is not None:
        raise typer.BadParameter("--workers and --dask exclude each other: a cluster has its own workers")
    if model is not None and (apart := [one.name for one in chosen if not uses_model(one, scope)]):
        print(f"{', '.join(apart)}: no model is part of it, --model changes nothing there", file=sys.stderr)
    place: Backend = executors.local(workers)
    folder = check_folder(out, make=False)
    with ExitStack() as stack:
        if dry_run:
            path = folder / STORE
            known = path.exists() and path.stat().st_size > 0
            stored = stack.enter_context(Store(path, readonly=True)) if known else None
            views.print_plan(make_plan(chosen, scope, stored), place.workers, as_json)
            return
        stack.enter_context(style())  # complains now where matplotlib is missing
        if dask is not None:
            place = stack.enter_context(executors.dask(dask))
        folder = check_folder(out)
        store = stack.enter_context(Store(folder / STORE))
        plan = make_plan(chosen, scope, store)
        print(views.plan_line(plan, place), file=sys.stderr)
        tally = run_plan(plan, store, place, progress=True)
        answers = [figure_result(figure, scope, store) for figure in chosen]
        for found in answers:
            write_figure(found, folder)
        page = write_page(folder, list(all_figures()))
    views.print_answers(answers, tally, page, as_json)
    if trouble := views.trouble(answers, tally):
        print("wordsway:", trouble, file=sys.stderr)
        raise typer.Exit(1)


def figures(as_json: Json = False) -> None:
    """List the figures that can be reproduced, with what they show and how many trials they take."""
    from wordsway.cli.lab_views import print_figures

    print_figures(as_json)


@results.callback()
def _results(context: typer.Context, out: Out = "results", as_json: Json = False) -> None:
    if context.invoked_subcommand is None:
        show_results(None, out, as_json)
    elif out != "results" or as_json:
        raise typer.BadParameter(f"give --out and --json after {context.invoked_subcommand}, not before it")


@results.command("show", epilog="Example: wordsway results show fig2-rf --json")
@interruptible
def show_results(names: Names = None, out: Out = "results", as_json: Json = False) -> None:
    """Count the stored trials of each figure, and list those that failed."""
    from wordsway.cli.lab_views import print_results
    from wordsway.experiments.store import Store
    from wordsway.report.results import STORE, check_folder

    with Store(check_folder(out, make=False) / STORE, readonly=True) as store:
        print_results(store, names or (), as_json)


@results.command(epilog="Example: wordsway results export --format csv --to trials.csv")
@interruptible
def export(
    names: Names = None, out: Out = "results", kind: Format = "csv", to: To = None, every: Every = False
) -> None:
    """Write the stored trials as tidy rows: one a trial, with parameters, record, cost and versions."""
    from wordsway.cli.lab_views import check_stored
    from wordsway.experiments.store import DONE, STATES, Store
    from wordsway.report.export import export as write
    from wordsway.report.results import STORE, check_folder

    with Store(check_folder(out, make=False) / STORE, readonly=True) as store:
        check_stored(names or (), store.experiments())
        rows = [row.to_dict() for row in store.rows(names or (), STATES if every else (DONE,))]
    written = write(rows, kind, to)
    if written is not None:
        print(f"{len(rows)} rows written to {written}", file=sys.stderr)
