"""The command `swaps`: which words move a model most, in the place of a word of a text."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from wordsway.cli.options import (
    Answers,
    Candidates,
    Chat,
    Column,
    Cut,
    Device,
    Dtype,
    Input,
    Json,
    Label,
    Model,
    On,
    Pair,
    Seed,
    Target,
    TextOrFile,
    position_or_word,
)
from wordsway.cli.running import check_refused, each_text, measured, print_json, texts_of

Word = Annotated[
    str | None,
    typer.Option("--word", metavar="WORD", help="the word that is replaced, or its position from 0; default: any word"),
]
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


def swaps(
    text: TextOrFile = None,
    word: Word = None,
    model: Model = "minilm",
    top: Top = 10,
    on: On = None,
    label: Label = None,
    answers: Answers = None,
    target: Target = None,
    pair: Pair = None,
    candidates: Candidates = "vocabulary",
    exhaustive: Exhaustive = False,
    compare: Compare = False,
    checks: Checks = None,
    cut: Cut = False,
    chat: Chat = False,
    seed: Seed = 0,
    file: Input = None,
    column: Column = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """Find the words that move a model most, in the place of one word of a text or of any."""
    if exhaustive and compare:
        raise typer.BadParameter("--exhaustive and --compare exclude each other: only a ranking can fall short")
    lines = texts_of(text, file, column, pair)
    from wordsway.checks import check_seed, check_size
    from wordsway.models import load
    from wordsway.report.texts import print_swaps

    check_size(top, "top"), check_seed(seed)
    if checks is not None:
        check_size(checks, "checks")
    loaded = load(model, device=device, dtype=dtype)
    options: dict[str, Any] = {
        "word": None if word is None else position_or_word(word),
        "top": top,
        "on": on,
        "label": label,
        "answers": answers,
        "target": target,
        "pair": pair,
        "candidates": candidates,
        "checks": checks,
        "exhaustive": exhaustive,
        "compare": compare,
        "cut": cut,
        "chat": chat,
        "seed": seed,
        "progress": sys.stderr.isatty(),
    }

    def show(found: Any, number: int | None = None) -> None:
        if not as_json:
            print_swaps(found, None if number is None or lines is None else lines[number].number)
            return
        head = {} if number is None else {"line": number}
        names = ("declared", "candidates", "checked", "exhaustive", "shortfall", "before")
        shared = {name: getattr(found, name) for name in names}
        rows = zip(found.rows(), found.swaps, strict=True)
        print_json({**head, **row, "text": swap.text, **shared} for row, swap in rows)

    if text is not None:
        show(loaded.swaps(text, **options))
    elif lines is not None:
        refused = 0
        results = measured(lines, lambda given: loaded.swaps(given, **options))
        for number, _, found in each_text(lines, str(file), results):
            refused += found is None
            if found is not None:
                show(found, number)
        check_refused(refused, lines)
