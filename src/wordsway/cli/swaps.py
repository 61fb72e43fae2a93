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
from wordsway.cli.running import each_text, notice, print_json

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
    for wrong, message in (
        ((text is None) == (file is None), "give either TEXT or --input FILE, not both and not none"),
        (file is None and column is not None, "--column needs --input: one text has no columns"),
        (file is not None and pair is not None, "--pair and --input exclude each other: a pair is about one text"),
        (exhaustive and compare, "--exhaustive and --compare exclude each other: only a ranking can fall short"),
    ):
        if wrong:
            raise typer.BadParameter(message)
    from wordsway.checks import check_seed, check_size
    from wordsway.data.texts import read_texts
    from wordsway.models import load
    from wordsway.report.texts import print_swaps

    check_size(top, "top"), check_seed(seed)
    if checks is not None:
        check_size(checks, "checks")
    lines = None if file is None else read_texts(file, column or "text")
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
    if lines is None:
        return
    refused = 0
    for number, found in enumerate(each_text(lines, str(file), lambda given: loaded.swaps(given, **options))):
        refused += found is None
        if found is not None:
            show(found, number)
    if refused:
        notice(f"wordsway: {refused} of {len(lines)} texts could not be measured")
        raise typer.Exit(1)
