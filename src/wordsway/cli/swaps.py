"""The command `swaps`: which words of the vocabulary move a model most, in the place of one word of a text."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from wordsway.cli.text import Chat, Cut, Model, On, which

if TYPE_CHECKING:
    from wordsway.models.swaps import Swaps

Text = Annotated[str, typer.Argument(metavar="TEXT", help="the text, in quotes")]
Word = Annotated[str, typer.Option("--word", metavar="WORD", help="the word that is replaced, or its position from 0")]
Top = Annotated[int, typer.Option(metavar="T", help="how many replacements are wanted")]
Exhaustive = Annotated[bool, typer.Option("--exhaustive", help="try all candidates: the first is the best there is")]
Compare = Annotated[bool, typer.Option("--compare", help="then try all, to say how far the ranking falls short")]
Checks = Annotated[
    int | None,
    typer.Option(metavar="N", help="candidates to try, of those that rank first; 400 to 2,000 unless told"),
]
AnyForm = Annotated[bool, typer.Option("--any-form", help="replacements need not be words of letters")]
AnyCase = Annotated[bool, typer.Option("--any-case", help="replacements need not have the word's small or big letters")]
Seed = Annotated[int, typer.Option(metavar="S", help="decides which candidates are tried first")]
Json = Annotated[bool, typer.Option("--json", help="one JSON object a line, for each replacement")]


def swaps(
    text: Text,
    word: Word,
    model: Model = "minilm",
    top: Top = 10,
    on: On = "last",
    exhaustive: Exhaustive = False,
    compare: Compare = False,
    checks: Checks = None,
    any_form: AnyForm = False,
    any_case: AnyCase = False,
    cut: Cut = False,
    chat: Chat = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Find the words of the vocabulary that move a model most, in the place of one word of a text."""
    if exhaustive and compare:
        raise typer.BadParameter("--exhaustive and --compare exclude each other: only a ranking can fall short")
    from wordsway.checks import check_size
    from wordsway.models import load
    from wordsway.seeds import check_seed

    check_size(top, "top")
    if checks is not None:
        check_size(checks, "checks")
    check_seed(seed)
    found = load(model).swaps(
        text,
        which(word),
        top=top,
        on=on,
        whole=not any_form,
        casing=not any_case,
        checks=checks,
        exhaustive=exhaustive,
        compare=compare,
        cut=cut,
        chat=chat,
        seed=seed,
        progress=sys.stderr.isatty(),
    )
    if as_json:
        _print_json(found)
    else:
        _print(found)


def _print_json(found: Swaps) -> None:
    counts = {"candidates": found.candidates, "checked": found.checked}
    shared = {**counts, "exhaustive": found.exhaustive, "shortfall": found.shortfall}
    for record, swap in zip(found.records(), found.swaps, strict=True):
        print(json.dumps({**record, "text": swap.text, **shared}, allow_nan=False), flush=True)


def _print(found: Swaps) -> None:
    from rich.console import Console
    from rich.text import Text as Line

    from wordsway import report
    from wordsway.cli.text_views import visible
    from wordsway.report.texts import change_kind, measured_on

    console = Console(highlight=False)
    where = f'word {found.word.position} "{visible(found.word.text)}" replaced'
    console.print(Line(f"{found.model}, {where}; measured on {measured_on(found.on)}", "bold"))
    console.print()
    table = report.plain_table(("rank", "word", "", "sensitivity"), right=(0, 3))
    for column in (0, 1, 3):
        table.columns[column].no_wrap = True
    for rank, swap in enumerate(found.swaps, 1):
        bar = report.Bar(swap.value, None, found.swaps[0].value)
        table.add_row(str(rank), Line(visible(swap.word)), bar, report.number(swap.value))
    console.print(table)
    console.print()
    console.print(Line(visible(" ".join(found.swaps[0].text.split())), "bold"))
    console.print(_effort(found))
    if found.shortfall is not None:
        console.print(f"the best by ranking is {100 * found.shortfall:.1f}% below the best there is")
    console.print(f"sensitivity: {change_kind(found.on)}, exact for each replacement", style="bright_black")


def _effort(found: Swaps) -> str:
    if found.exhaustive:
        return f"all {found.candidates} candidates were tried: the first is the best there is"
    return f"{found.checked} of {found.candidates} candidates were tried, those that rank first"
