"""The command `text`: which word of a text moves a model most, and how far."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from wordsway.cli.read_texts import Line
    from wordsway.experiments.texts import Options

Text = Annotated[str | None, typer.Argument(metavar="TEXT", help="the text, in quotes; or use --input")]
Model = Annotated[
    str, typer.Option(metavar="NAME", help="minilm, smollm2, gpt2-random, a folder or a model on the hub")
]
Words = Annotated[
    list[str] | None,
    typer.Option("--word", metavar="WORD", help="a word, or its position from 0; may be repeated"),
]
On = Annotated[str, typer.Option("--on", metavar="last|pooled|next|class|LAYER", help="what the change is measured on")]
Mode = Annotated[str, typer.Option(metavar="search|fast", help="search the ball, or jump once: quicker, finds less")]
Radius = Annotated[
    float | None,
    typer.Option(metavar="R", help="how far an embedding may move; the norm of the word's own if left out"),
]
Steps = Annotated[int, typer.Option(metavar="N", help="forward and backward passes of the search, for each word")]
Special = Annotated[bool, typer.Option("--special", help="measure special tokens too, such as [CLS]")]
Cut = Annotated[bool, typer.Option("--cut", help="cut a text that is too long for the model, in place of refusing it")]
Chat = Annotated[bool, typer.Option("--chat", help="put the text into the model's chat template")]
Seed = Annotated[int, typer.Option(metavar="S", help="decides where the search starts")]
Html = Annotated[str | None, typer.Option("--html", metavar="OUT.html", help="write a page about the text too")]
Layers = Annotated[bool, typer.Option("--layers", help="with --html: how far the top word moves each layer")]
Input = Annotated[
    str | None, typer.Option("--input", metavar="FILE", help="many texts: a .txt (one a line), .csv or .jsonl file")
]
Column = Annotated[
    str | None, typer.Option(metavar="NAME", help="with --input: column or key of the texts; text if left out")
]
Out = Annotated[
    str | None, typer.Option("--out", metavar="DIR", help="with --input: folder of the store; results if left out")
]
Json = Annotated[bool, typer.Option("--json", help="one JSON object a line, for each word")]


def text(
    text: Text = None,
    model: Model = "minilm",
    words: Words = None,
    on: On = "last",
    mode: Mode = "search",
    radius: Radius = None,
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
    as_json: Json = False,
) -> None:
    """Measure how far each word of a text can move a model, when its embedding moves in a ball.

    Texts of a file are stored as they are measured: an interrupted run goes on with the same command.
    """
    _check_usage(text, words, special, html, layers, file, column, out)
    from wordsway.cli.read_texts import read_texts

    lines = None if file is None else read_texts(file, column or "text")
    page = None if html is None else _check_page(html)
    chosen = None if words is None else tuple(dict.fromkeys(map(which, words)))
    plan = resolve(model, chosen, on, mode, radius, steps, special, cut, chat, seed)
    if lines is not None:
        _many(plan, lines, str(file), out or "results", as_json)
    else:
        assert text is not None
        _one(plan, text, page, layers, as_json)


@dataclass(frozen=True)
class Plan:
    """What will be measured; everything but the texts has been checked."""

    model: Any
    options: Options


def which(word: str) -> int | str:
    """A word that was asked for: a number is its position."""
    try:
        return int(word)
    except ValueError:
        return word


def resolve(
    model: str,
    words: tuple[int | str, ...] | None,
    on: str,
    mode: str,
    radius: float | None,
    steps: int,
    special: bool,
    cut: bool,
    chat: bool,
    seed: int,
) -> Plan:
    """Check all options; the model is read last, since it knows what can be measured on it."""
    from wordsway.checks import check_choice, check_size
    from wordsway.errors import InputError
    from wordsway.experiments.texts import Options
    from wordsway.models import load
    from wordsway.models.outputs import output_named
    from wordsway.models.profile import MODES
    from wordsway.seeds import check_seed

    check_choice("mode", mode, MODES)
    if radius is not None and not (math.isfinite(radius) and radius > 0):
        raise InputError(f"radius must be a number > 0, got {radius:g}: leave it out for the norm of each word's own")
    count, first = check_size(steps, "steps"), check_seed(seed)
    found = load(model)
    name = output_named(on, found.layers, found.network, model).name
    found.read("a", chat=chat)  # refuses where there is no tokenizer, or no chat template
    return Plan(found, Options(words, name, radius, mode, count, special, cut, chat, first))


def _check_usage(
    text: str | None,
    words: list[str] | None,
    special: bool,
    html: str | None,
    layers: bool,
    file: str | None,
    column: str | None,
    out: str | None,
) -> None:
    if (text is None) == (file is None):
        raise typer.BadParameter("give either TEXT or --input FILE, not both and not none")
    if file is not None and html is not None:
        raise typer.BadParameter("--html and --input exclude each other: a page is about one text")
    if file is None and (column is not None or out is not None):
        raise typer.BadParameter("--column and --out need --input: one text is not stored")
    if layers and html is None:
        raise typer.BadParameter("--layers needs --html: the page draws them")
    if words and special:
        raise typer.BadParameter("--word and --special exclude each other: special tokens have no position")


def _check_page(html: str) -> Path:
    """The page's path, which can be written; so that nothing is measured in vain."""
    from wordsway.errors import InputError

    path = Path(html)
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(
            f"--html must name a file in an existing folder, got {html}: make the folder, or choose another"
        )
    return path


def _one(plan: Plan, text: str, page: Path | None, layers: bool, as_json: bool) -> None:
    from wordsway.experiments.texts import plain

    found = plain(plan.options.measure(plan.model, text, progress=sys.stderr.isatty()))
    if page is not None:  # first, so that it is whole where nobody reads what is printed
        from wordsway.cli.text_page import write_page

        write_page(plan, text, found, layers, page)
    if as_json:
        _print_json(found)
    else:
        from wordsway.cli.text_views import print_text

        print_text(plan, found)
    if page is not None:
        print(f"the page is {page}", file=sys.stderr)


def _many(plan: Plan, lines: list[Line], file: str, out: str, as_json: bool) -> None:
    from wordsway.cli.text_views import print_one_of_many, print_title, print_total
    from wordsway.errors import one_line
    from wordsway.experiments.store import Store
    from wordsway.experiments.texts import Profiled, profile_texts
    from wordsway.report.results import STORE, check_folder

    stored, refused = 0, 0
    if not as_json:
        print_title(plan)
    with Store(check_folder(out) / STORE) as store:
        answers = profile_texts(plan.model, [line.text for line in lines], plan.options, store)
        for number, (line, answer) in enumerate(zip(lines, answers, strict=True)):
            if not isinstance(answer, Profiled):
                refused += 1
                where = f"text {number} (line {line.number} of {file})"
                print(f"wordsway: {where}: {one_line(answer)}", file=sys.stderr, flush=True)
                continue
            stored += answer.stored
            if as_json:
                _print_json(answer, number)
            else:
                print_one_of_many(number, line.number, answer)
    if not as_json:
        print_total(len(lines) - refused - stored, stored, refused)
    if refused:
        print(f"wordsway: {refused} of {len(lines)} texts could not be measured", file=sys.stderr)
        raise typer.Exit(1)


def _print_json(found: Any, number: int | None = None) -> None:
    head = {} if number is None else {"line": number}
    tail = {} if found.shortfall is None else {"shortfall": found.shortfall}
    for record in found.records:
        print(json.dumps({**head, **record, **tail}, allow_nan=False), flush=True)
