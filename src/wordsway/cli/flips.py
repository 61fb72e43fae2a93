"""The command `flips`: can any single word flip the decision of a model?"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

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
    Model,
    Pair,
    TextOrFile,
    position_or_word,
)
from wordsway.cli.running import check_refused, each_text, measured, print_json, texts_of

if TYPE_CHECKING:
    from wordsway.models.flips import Flips

Words = Annotated[
    list[str] | None,
    typer.Option(
        "--word", metavar="WORD", help="a word to replace, or its position from 0; may be repeated; default: all words"
    ),
]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="class|next|mask|token WORD",
        help="the decision: class of the text, next token of a decoder, token that is masked in the text, or class of "
        "a word; default: class or next, whichever the model has",
    ),
]
Label = Annotated[
    str | None,
    typer.Option(metavar="CLASS", help="decide whether the model predicts this class; default: which one it predicts"),
]
Budget = Annotated[int | None, typer.Option(metavar="N", help="candidates to try; default: all of them")]
Exhaustive = Annotated[
    bool, typer.Option("--exhaustive", help="continue after the first flip, to count the flips of each word")
]
Out = Annotated[
    str | None,
    typer.Option(
        "--out", metavar="DIR", help="with --exhaustive: store each word in this folder, to continue after an interrupt"
    ),
]


def flips(
    text: TextOrFile = None,
    model: Model = "minilm-sentiment",
    candidates: Candidates = "near:30",
    words: Words = None,
    on: On = None,
    label: Label = None,
    answers: Answers = None,
    pair: Pair = None,
    budget: Budget = None,
    exhaustive: Exhaustive = False,
    cut: Cut = False,
    chat: Chat = False,
    file: Input = None,
    column: Column = None,
    out: Out = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """Find a word whose replacement flips the decision of a model, or prove that no candidate does."""
    if file is not None and words is not None:
        raise typer.BadParameter("--word and --input exclude each other: texts differ in their words")
    if out is not None and (not exhaustive or budget is not None):
        raise typer.BadParameter(
            "--out needs --exhaustive without --budget: it stores words that were tried completely"
        )
    lines = texts_of(text, file, column, pair)
    from wordsway.checks import check_size
    from wordsway.experiments.audit_records import NOT_MEASURED
    from wordsway.experiments.exhaustive import exhaustive_flips
    from wordsway.experiments.store import STORE, Store
    from wordsway.models import load
    from wordsway.report.files import check_folder
    from wordsway.report.texts import print_flips, print_verdicts

    if budget is not None:
        check_size(budget, "budget")
    loaded = load(model, device=device, dtype=dtype)
    options: dict[str, Any] = {
        "candidates": candidates,
        "words": None if words is None else [position_or_word(word) for word in words],
        "on": on,
        "label": label,
        "answers": answers,
        "pair": pair,
        "cut": cut,
        "chat": chat,
        "progress": sys.stderr.isatty(),
    }

    def measure(given: str) -> Flips:
        if out is None:
            return loaded.flips(given, budget=budget, exhaustive=exhaustive, **options)
        with Store(check_folder(out) / STORE) as store:
            return exhaustive_flips(loaded, given, store, **options)

    def show(result: Flips, number: int | None = None) -> None:
        if as_json:
            head = {} if number is None else {"line": number}
            print_json([{**head, **result.to_dict()}])
        else:
            print_flips(result, exhaustive)

    if text is not None:
        show(measure(text))
    elif lines is not None:
        verdicts: Counter[str] = Counter()
        results = measured(lines, measure)
        for number, _, result in each_text(lines, str(file), results):
            verdicts[NOT_MEASURED if result is None else result.verdict] += 1
            if result is not None:
                show(result, number)
        if not as_json:
            print_verdicts(verdicts)
        check_refused(verdicts[NOT_MEASURED], lines)
