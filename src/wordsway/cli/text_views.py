"""What `text` prints for people: a strip of the words, a bar for each, and the word that moves the model most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from wordsway import report
from wordsway.experiments.texts import Profiled
from wordsway.models.heat import Piece, pieces
from wordsway.report.texts import change_kind, measured_on

if TYPE_CHECKING:
    from wordsway.cli.text import Plan

_LEVELS = "▁▂▃▄▅▆▇█"
_JOINERS = "\u200c\u200d"  # invisible, but letters and emoji need them
_PALE, _STRONG = (255, 243, 230), (240, 125, 50)  # behind black letters


def visible(text: str) -> str:
    """A text without characters that steer the terminal."""
    return "".join(sign if sign.isprintable() or sign in _JOINERS else "\ufffd" for sign in text)


def print_text(plan: Plan, found: Profiled) -> None:
    """One text: heading, strip, table, and the word that moves the model most."""
    console = Console(highlight=False)
    print_title(plan, console)
    if found.text.cut:
        console.print(f"the last {found.text.cut} tokens of the text were cut off", style="yellow")
    console.print()
    _print_words(console, found)
    open_ones = sum(record["status"] != "converged" for record in found.records)
    if open_ones and plan.options.mode == "search":
        count = f"{open_ones} of {len(found.records)}"
        console.print(f"{count} searches stopped at the step limit: more --steps may find more", style="bright_black")
    note = f"sensitivity: {change_kind(plan.options.on)} at the move that was found, a lower bound with a witness"
    console.print(note, style="bright_black")


def print_one_of_many(number: int, line: int, found: Profiled) -> None:
    """One text of a file."""
    console = Console(highlight=False)
    console.print()
    console.print(Text.assemble((f"text {number}", "bold cyan"), f" (line {line})"))
    _print_words(console, found)


def print_total(measured: int, stored: int, refused: int) -> None:
    """What became of all texts of a file."""
    console = Console(highlight=False)
    rest = f", not measurable {refused}" if refused else ""
    console.print(f"\ntexts: measured {measured}, stored before {stored}{rest}", style="bold")


def print_title(plan: Plan, console: Console | None = None) -> None:
    """One line that says what is measured, on what, and how."""
    options = plan.options
    ball = "each word's own norm" if options.radius is None else f"{options.radius:g}"
    frame = ", in the chat template" if options.chat else ""
    title = f"{plan.model.name}{frame}, measured on {measured_on(options.on)}; {options.mode}, radius {ball}"
    (console or Console(highlight=False)).print(Text(title, "bold"))


def strip(made: Sequence[Piece], colours: bool, ascii_only: bool = False) -> Text:
    """The words with a background that is stronger the further a word moves the model.

    Without colours, a column after each word stands for its value, or a number from 1 to 8 in ASCII.
    """
    text = Text()
    for place, piece in enumerate(made):
        if piece.apart and place:
            text.append(" ")
        word = visible(piece.text)
        if piece.share is None:
            text.append(word, "bright_black" if piece.special else "")
        elif colours:
            mixed = (round(a + (b - a) * piece.strength) for a, b in zip(_PALE, _STRONG, strict=True))
            text.append(word, "black on rgb({},{},{})".format(*mixed))
        else:
            level = min(int(8 * piece.strength), 7)
            text.append(word + (f"({level + 1})" if ascii_only else _LEVELS[level]))
    return text


def _print_words(console: Console, found: Profiled) -> None:
    records = {word.tokens: record for word, record in zip(found.words, found.records, strict=True)}
    made = pieces(found.text, {tokens: (record["sensitivity"], "") for tokens, record in records.items()})
    colours = console.color_system is not None and not console.no_color
    console.print(strip(made, colours, console.options.ascii_only))
    console.print()
    best = max(found.records, key=lambda record: record["sensitivity"])
    table = report.plain_table(("position", "word", "tokens", "", "sensitivity"), right=(0, 2, 4))
    table.columns[1].no_wrap, table.columns[1].max_width = True, 24
    for column in (0, 2, 4):
        table.columns[column].no_wrap = True
    for record in found.records:
        bar = report.Bar(record["sensitivity"], None, best["sensitivity"])
        table.add_row(
            *_cells(record), bar, report.number(record["sensitivity"]), style="bold" if record is best else None
        )
    console.print(table)
    console.print()
    console.print(Text(_most(best), "bold"))
    if found.shortfall is not None:
        short = f"fast mode: {100 * found.shortfall:.0f}% below what the search finds for this word"
        console.print(short, style="yellow")


def _cells(record: dict[str, Any]) -> tuple[Text, Text, Text]:
    position = "-" if record["position"] is None else str(record["position"])
    return Text(position), Text(visible(record["word"])), Text(str(record["tokens"]))


def _most(best: dict[str, Any]) -> str:
    place = "special token" if best["position"] is None else f"word {best['position']}"
    value, radius = report.number(best["sensitivity"]), report.number(best["radius"])
    return f'{place} "{visible(best["word"])}" moves the model most: {value} within radius {radius}'
