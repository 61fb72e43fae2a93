"""The command `flips`: can any single word flip the decision of a model?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wordsway.cli.options import Answers, Chat, Cut, Device, Dtype, Json, Model, Pair, position_or_word
from wordsway.cli.running import print_json

if TYPE_CHECKING:
    from wordsway.models.flips import Flips

Text = Annotated[str | None, typer.Argument(metavar="TEXT", help="the text, in quotes; or use --input")]
Candidates = Annotated[
    str,
    typer.Option(
        metavar="near:K|vocabulary|mask|delete|FILE",
        help="replacements of each word: the K words with the nearest embeddings, all words of the vocabulary, the "
        "mask, nothing, or a file whose lines list words that may replace each other",
    ),
]
Words = Annotated[
    list[str] | None,
    typer.Option(
        "--word", metavar="WORD", help="a word to replace, or its position from 0; may be repeated; default: all words"
    ),
]
On = Annotated[
    str | None,
    typer.Option("--on", metavar="class|next", help="the decision; default: the class, or the next token of a decoder"),
]
Label = Annotated[
    str | None,
    typer.Option(metavar="CLASS", help="decide whether the model predicts this class; default: which one it predicts"),
]
Budget = Annotated[int | None, typer.Option(metavar="N", help="candidates to try; default: all of them")]
Exhaustive = Annotated[
    bool, typer.Option("--exhaustive", help="go on after the first flip: the share of flips of each word")
]
Input = Annotated[
    str | None, typer.Option("--input", metavar="FILE", help="many texts: a .txt (one per line), .csv or .jsonl file")
]
Column = Annotated[
    str | None, typer.Option(metavar="NAME", help="with --input: column or key of the texts; default: text")
]


def flips(
    text: Text = None,
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
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """Find a word whose replacement flips the decision of a model, or prove that no candidate does."""
    for wrong, message in (
        ((text is None) == (file is None), "give either TEXT or --input FILE, not both and not none"),
        (file is None and column is not None, "--column needs --input: one text has no columns"),
        (file is not None and pair is not None, "--pair and --input exclude each other: a pair is about one text"),
        (file is not None and words is not None, "--word and --input exclude each other: texts differ in their words"),
    ):
        if wrong:
            raise typer.BadParameter(message)
    from wordsway.checks import check_size
    from wordsway.data.texts import read_texts
    from wordsway.models import load
    from wordsway.report.texts import print_flips

    if budget is not None:
        check_size(budget, "budget")
    lines = None if file is None else read_texts(file, column or "text")
    loaded = load(model, device=device, dtype=dtype)
    options: dict[str, Any] = {
        "candidates": candidates,
        "words": None if words is None else [position_or_word(word) for word in words],
        "on": on,
        "label": label,
        "answers": answers,
        "pair": pair,
        "budget": budget,
        "exhaustive": exhaustive,
        "cut": cut,
        "chat": chat,
        "progress": sys.stderr.isatty(),
    }

    def show(result: Flips) -> None:
        if as_json:
            print_json([result.to_dict()])
        else:
            print_flips(result)

    if text is not None:
        show(loaded.flips(text, **options))
    elif lines is not None:
        _many(loaded, lines, str(file), options, show, as_json)


def _many(model: Any, lines: Any, file: str, options: dict[str, Any], show: Any, as_json: bool) -> None:
    """Judge one text after another; one that cannot be read is reported in a line, and the others go on."""
    from collections import Counter

    from wordsway.errors import InputError, one_line
    from wordsway.report.texts import print_verdicts

    verdicts: Counter[str] = Counter()
    for number, line in enumerate(lines):
        try:
            result = model.flips(line.text, **options)
        except InputError as error:
            verdicts["not measured"] += 1
            where = f"text {number} (line {line.number} of {file})"
            print(f"wordsway: {where}: {one_line(error)}", file=sys.stderr, flush=True)
            continue
        verdicts[result.verdict] += 1
        show(result)
    if not as_json:
        print_verdicts(verdicts)
