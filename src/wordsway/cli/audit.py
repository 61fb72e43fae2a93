"""The command `audit`: how many decisions of a model on a data set hold when one word is replaced."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wordsway.cli.options import Answers, Candidates, Chat, Cut, Dask, Device, Dtype, Model, Seed, Workers
from wordsway.cli.running import notice, print_json

if TYPE_CHECKING:
    from wordsway.experiments.audit_records import Audit

File = Annotated[
    str,
    typer.Argument(metavar="FILE", help="a .csv, .jsonl, .parquet or .txt file (a text per line), or a folder of .txt"),
]
Column = Annotated[str | None, typer.Option(metavar="NAME", help="column of the texts; default: guessed, and stated")]
LabelColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="column of the labels; default: guessed, and stated")
]
On = Annotated[
    str | None,
    typer.Option("--on", metavar="class|next", help="the decision; default: the class, or the next token of a decoder"),
]
Budget = Annotated[int | None, typer.Option(metavar="N", help="candidates to try per text; default: all of them")]
Exhaustive = Annotated[
    bool, typer.Option("--exhaustive", help="continue after the first flip, to count the flips of each word")
]
Limit = Annotated[int | None, typer.Option(metavar="N", help="audit N texts, drawn with --seed; default: all")]
Against = Annotated[
    str | None, typer.Option(metavar="NAME", help="a second model, on the same texts: differences with intervals")
]
FailAbove = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="exit code 1 if a larger share of the texts flips; with --against: if it is larger by more than this",
    ),
]
Out = Annotated[str, typer.Option("--out", metavar="DIR", help="folder of the store and the page")]
Html = Annotated[str | None, typer.Option("--html", metavar="OUT.html", help="the page; default: DIR/audit.html")]
Export = Annotated[
    str | None, typer.Option(metavar="FILE", help="write a row per text to a .csv, .jsonl or .parquet file")
]
Json = Annotated[bool, typer.Option("--json", help="print the result as one JSON object")]


def audit(
    file: File,
    model: Model = "minilm-sentiment",
    column: Column = None,
    label_column: LabelColumn = None,
    candidates: Candidates = "near:30",
    on: On = None,
    answers: Answers = None,
    budget: Budget = None,
    exhaustive: Exhaustive = False,
    limit: Limit = None,
    cut: Cut = False,
    chat: Chat = False,
    seed: Seed = 0,
    against: Against = None,
    fail_above: FailAbove = None,
    workers: Workers = None,
    dask: Dask = None,
    out: Out = "results",
    html: Html = None,
    export: Export = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """Measure every text of a file: the prediction, its words, and whether replacing one word flips it; write a page.

    Texts are stored as they are measured: after an interrupt, the same command continues.
    """
    if dask is not None and workers is not None:
        raise typer.BadParameter("--workers and --dask exclude each other: a cluster has its own workers")
    if fail_above is not None and not 0 <= fail_above <= 1:
        raise typer.BadParameter(f"--fail-above must be a share from 0 to 1, got {fail_above:g}")
    from wordsway.checks import check_choice
    from wordsway.experiments import executors
    from wordsway.experiments.auditing import audit as run_audit
    from wordsway.experiments.auditing import given_samples, limited
    from wordsway.experiments.store import STORE, Store
    from wordsway.report.audits import audit_page, print_audit
    from wordsway.report.files import FORMATS, check_file, check_folder, replace_file
    from wordsway.report.files import export as write

    samples = limited(given_samples(file, None, column, label_column), limit, seed)
    if export is not None:
        kind = check_choice("the ending of --export", check_file(export, "--export").suffix.lower()[1:], FORMATS)
    page = None if html is None else check_file(html, "--html")
    options: dict[str, Any] = {"candidates": candidates, "on": on, "answers": answers, "budget": budget}
    options |= {
        "exhaustive": exhaustive,
        "cut": cut,
        "chat": chat,
        "seed": seed,
        "against": against,
        "device": device,
        "dtype": dtype,
    }
    with ExitStack() as stack:
        count = executors.local(workers).workers
        backend = None if dask is None else stack.enter_context(executors.dask(dask))
        folder = check_folder(out)
        store = stack.enter_context(Store(folder / STORE))
        result = run_audit(
            model, samples, store=store, workers=count, executor=backend, progress=not as_json, **options
        )
    page = page or folder / "audit.html"
    replace_file(page, audit_page(result).encode(errors="replace"))
    if export is not None:
        write(result.rows(), kind, export)
    if as_json:
        print_json([{**result.to_dict(), "page": str(page)}])
    else:
        print_audit(result)
        notice(f"the page is {page}")
    if trouble := _trouble(result, fail_above):
        notice(f"wordsway: {trouble}")
        raise typer.Exit(1)


def _trouble(result: Audit, fail_above: float | None) -> str | None:
    """Why the exit code is 1, or None."""
    unfinished = [one for side in (result, result.against) if side is not None for one in side.texts if one.retry]
    if unfinished:
        return f"{len(unfinished)} measurements failed, the first one: {unfinished[0].reason}; run it again to retry"
    if not result.measured:
        return f"no text could be measured, the first one: {result.texts[0].reason}"
    if fail_above is None:
        return None
    if result.against is None:
        share, what = result.flip_share, "the share of texts that flip is"
    else:
        share = result.differences()["flips"].value
        what = f"the share of texts that flip, minus that with {result.against.model}, is"
    if share is None:
        return "no text was measured with both models"
    return f"{what} {share:.4g}, above {fail_above:g}" if share > fail_above else None
