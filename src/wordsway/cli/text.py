"""The command `text`: on which word of a text a prediction depends, and how much."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wordsway.cli.options import (
    Answers,
    Chat,
    Column,
    Cut,
    Device,
    Dtype,
    EmbeddingRadius,
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
from wordsway.cli.running import check_refused, each_text, notice, print_json, texts_of

if TYPE_CHECKING:
    from wordsway.data.texts import Line
    from wordsway.experiments.texts import Options

Words = Annotated[
    list[str] | None,
    typer.Option("--word", metavar="WORD", help="a word, or its position from 0; may be repeated; default: all words"),
]
Budget = Annotated[int | None, typer.Option(metavar="N", help="passes of the model; default: 16 per word")]
Ball = Annotated[
    bool, typer.Option("--ball", help="measure also how far the model moves when the embedding moves in a ball")
]
Mode = Annotated[
    str, typer.Option(metavar="search|fast", help="with --ball: search it, or take one step: faster, finds less")
]
Steps = Annotated[int, typer.Option(metavar="N", help="with --ball: forward and backward passes per word")]
Special = Annotated[bool, typer.Option("--special", help="with --ball: special tokens too, such as [CLS]")]
Html = Annotated[
    str | None,
    typer.Option(
        "--html",
        metavar="OUT.html",
        help="write a page too: texts in colours, all numbers, and the replacements of each word at a click",
    ),
]
Layers = Annotated[bool, typer.Option("--layers", help="with --html: how far the top word moves each layer")]
Out = Annotated[
    str | None, typer.Option("--out", metavar="DIR", help="with --input: folder of the store; default: results")
]


_NEEDS_BALL = "--radius, --mode, --steps and --special need --ball: they are about the ball of an embedding"


def text(
    text: TextOrFile = None,
    model: Model = "minilm",
    words: Words = None,
    on: On = None,
    label: Label = None,
    answers: Answers = None,
    target: Target = None,
    pair: Pair = None,
    budget: Budget = None,
    ball: Ball = False,
    mode: Mode = "search",
    radius: EmbeddingRadius = None,
    steps: Steps = 16,
    special: Special = False,
    cut: Cut = False,
    chat: Chat = False,
    seed: Seed = 0,
    html: Html = None,
    layers: Layers = False,
    file: Input = None,
    column: Column = None,
    out: Out = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """Measure what other words do in the place of each word of a text: which one does the prediction depend on?

    Texts of a file are stored as they are measured: after an interrupt, the same command continues.
    """
    for wrong, message in (
        (file is not None and layers, "--layers and --input exclude each other: layers are measured for one text"),
        (file is None and out is not None, "--out needs --input: one text is not stored"),
        (layers and html is None, "--layers needs --html: the page draws them"),
        (not ball and (radius is not None or mode != "search" or steps != 16 or special), _NEEDS_BALL),
        (words and special, "--word and --special exclude each other: special tokens have no position"),
    ):
        if wrong:
            raise typer.BadParameter(message)
    lines = texts_of(text, file, column, pair)
    from wordsway.experiments.texts import Options
    from wordsway.models import load
    from wordsway.report.files import check_file

    page = None if html is None else check_file(html, "--html")
    chosen = None if words is None else tuple(dict.fromkeys(map(position_or_word, words)))
    directed = (None if answers is None else tuple(answers), target, pair)
    options = Options(chosen, on, label, *directed, budget, ball, radius, mode, steps, special, cut, chat, seed)
    loaded = load(model, device=device, dtype=dtype)
    options = options.checked(loaded)
    if lines is not None:
        _many(loaded, options, lines, str(file), out or "results", page, as_json)
    elif text is not None:
        _one(loaded, options, text, page, layers, as_json)


def _one(model: Any, options: Options, text: str, page: Path | None, layers: bool, as_json: bool) -> None:
    from wordsway.experiments.texts import study_text
    from wordsway.report.files import replace_file
    from wordsway.report.pages import text_page
    from wordsway.report.texts import print_profile

    progress = sys.stderr.isatty()
    if page is None:
        profile = options.measure(model, text, progress)
    else:  # written first, so that it is whole where nobody reads what is printed
        study = study_text(model, text, options, layers=layers, progress=progress)
        profile = study.profile
        replace_file(page, text_page(study, options).encode(errors="replace"))
    if as_json:
        _print_json(profile)
    else:
        print_profile(profile, options, model.name)
    if page is not None:
        notice(f"the page is {page}")


def _many(
    model: Any, options: Options, lines: list[Line], file: str, out: str, page: Path | None, as_json: bool
) -> None:
    from wordsway.experiments.store import STORE, Store
    from wordsway.experiments.texts import TextStudy, profile_texts
    from wordsway.report.files import check_folder, replace_file
    from wordsway.report.pages import texts_page
    from wordsway.report.texts import print_profile_of_many, print_title, print_total

    stored, refused, studies = 0, 0, []
    if not as_json:
        print_title(options, model.name, options.output(model).name)
    with Store(check_folder(out) / STORE) as store:
        profiles = profile_texts(model, [line.text for line in lines], options, store)
        for number, line, result in each_text(lines, file, profiles):
            if result is None:
                refused += 1
                continue
            profile, known = result
            stored += known
            if page is not None:
                studies.append(TextStudy(profile, ()))
            if as_json:
                _print_json(profile, number)
            else:
                print_profile_of_many(number, line.number, profile)
    if not as_json:
        print_total(len(lines) - refused - stored, stored, refused)
    if page is not None and studies:
        replace_file(page, texts_page(studies, options, file).encode(errors="replace"))
        notice(f"the page is {page}")
    check_refused(refused, lines)


def _print_json(profile: Any, number: int | None = None) -> None:
    head = {} if number is None else {"line": number}
    short = None if profile.ball is None else profile.ball.shortfall
    tail = {"decision": profile.decision, "before": profile.before, "passes": profile.passes}
    tail |= {} if short is None else {"shortfall": short}
    print_json({**head, **row, **tail} for row in profile.rows())
