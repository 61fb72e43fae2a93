"""The command `swaps`: which words of the vocabulary move a model most, in the place of one word of a text."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from wordsway.cli.options import Chat, Cut, Device, Dtype, Json, Model, On, Seed, Text, position_or_word
from wordsway.cli.running import print_json

Word = Annotated[str, typer.Option("--word", metavar="WORD", help="the word that is replaced, or its position from 0")]
Top = Annotated[int, typer.Option(metavar="T", help="number of replacements")]
Exhaustive = Annotated[bool, typer.Option("--exhaustive", help="try all candidates, so that the first is the best")]
Compare = Annotated[
    bool, typer.Option("--compare", help="try all candidates after the ranking, to measure how far it falls short")
]
Checks = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="candidates to try, those that rank first; default: 400 to 2,000, more for short texts and small models",
    ),
]
AnyForm = Annotated[bool, typer.Option("--any-form", help="also replacements that are not words of letters")]
AnyCase = Annotated[bool, typer.Option("--any-case", help="also replacements with other upper and lower case letters")]


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
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """Find the words of the vocabulary that move a model most, in the place of one word of a text."""
    if exhaustive and compare:
        raise typer.BadParameter("--exhaustive and --compare exclude each other: only a ranking can fall short")
    from wordsway.checks import check_size
    from wordsway.models import load
    from wordsway.report.texts import print_swaps
    from wordsway.seeds import check_seed

    check_size(top, "top"), check_seed(seed)
    if checks is not None:
        check_size(checks, "checks")
    replacements = load(model, device=device, dtype=dtype).swaps(
        text,
        position_or_word(word),
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
    if not as_json:
        print_swaps(replacements)
        return
    names = ("candidates", "checked", "exhaustive", "shortfall")
    shared = {name: getattr(replacements, name) for name in names}
    rows = zip(replacements.rows(), replacements.swaps, strict=True)
    print_json({**row, "text": swap.text, **shared} for row, swap in rows)
