"""The commands `results show` and `results export`: the trials of a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from wordsway.cli.options import Command, Figures, Group, Json, Out
from wordsway.cli.running import interruptible, notice, print_json

if TYPE_CHECKING:
    from wordsway.experiments.store import Store

Format = Annotated[str, typer.Option("--format", metavar="csv|jsonl|parquet", help="format of the rows")]
To = Annotated[str | None, typer.Option(metavar="FILE", help="file to write; default: stdout, except for parquet")]
Every = Annotated[bool, typer.Option("--all", help="failed and died trials too, not only finished ones")]

results = typer.Typer(
    cls=Group,
    help="Show the stored trials.",
    invoke_without_command=True,
    epilog="Example: wordsway results export --format csv --to trials.csv",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@results.callback()
def _results(context: typer.Context, out: Out = "results", as_json: Json = False) -> None:
    if context.invoked_subcommand is None:
        show(None, out, as_json)
    elif out != "results" or as_json:
        raise typer.BadParameter(f"give --out and --json after {context.invoked_subcommand}, not before it")


@results.command(cls=Command, epilog="Example: wordsway results show fig2-rf --json")
@interruptible
def show(names: Figures = None, out: Out = "results", as_json: Json = False) -> None:
    """Count the stored trials of each figure, and list those that failed."""
    from wordsway.report.experiments import print_stored, stored_counts

    with _store(out, names or ()) as store:
        rows = list(store.rows(names or ()))
    if as_json:
        print_json(stored_counts(rows))
    else:
        print_stored(rows)


@results.command(cls=Command, epilog="Example: wordsway results export --format csv --to trials.csv")
@interruptible
def export(
    names: Figures = None, out: Out = "results", kind: Format = "csv", to: To = None, every: Every = False
) -> None:
    """Write the stored trials as tidy rows: one per trial, with parameters, record, cost and versions."""
    from wordsway.experiments.store import DONE, STATES
    from wordsway.report.files import export as write

    with _store(out, names or ()) as store:
        rows = [row.to_dict() for row in store.rows(names or (), STATES if every else (DONE,))]
    written = write(rows, kind, to)
    if written is not None:
        notice(f"{len(rows)} rows written to {written}")


@contextmanager
def _store(out: str, names: Sequence[str]) -> Iterator[Store]:
    """Open the store of a folder, which must have trials of these experiments."""
    from wordsway.errors import InputError, nearest
    from wordsway.experiments.store import STORE, Store
    from wordsway.report.files import check_folder

    with Store(check_folder(out, make=False) / STORE, readonly=True) as store:
        known = store.experiments()
        for name in names:
            if name not in known:
                held = f"it has {', '.join(known)}" if known else "it is empty"
                raise InputError(f"the store has no trials of {name!r}{nearest(name, known)}: {held}")
        yield store
