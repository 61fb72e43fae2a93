"""Terminal views of texts: the words with their strength, a bar for each, and replacements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from wordsway.models.heat import Piece, pieces
from wordsway.records import number
from wordsway.report.terminal import NOTE, Bar, Columns, Row, console, show, table, visible

if TYPE_CHECKING:
    from wordsway.experiments.texts import Options
    from wordsway.models.flips import Flips
    from wordsway.models.profile import TextProfile
    from wordsway.models.swaps import Swaps

_ON = {
    "last": "the last hidden state of all tokens",
    "pooled": "the mean of the last hidden state, of length 1",
    "next": "the distribution of the next token",
    "class": "the distribution over the classes",
    "labels": "the probabilities of the labels",
    "number": "the number that the model predicts",
}
_KINDS = {
    "next": "total variation of the distributions",
    "class": "total variation of the distributions",
    "labels": "largest change of a label's probability",
    "number": "absolute change",
}
_WORD = 24  # columns of a word
_NAMED = 5  # of the words that cannot be told apart
_LEVELS = "▁▂▃▄▅▆▇█"
_PALE, _STRONG = (255, 243, 230), (240, 125, 50)  # behind black letters


def measured_on(on: str) -> str:
    """Describe the output that a change is measured on: "last, the last hidden state of all tokens"."""
    return f"{on}, {_ON[on]}" if on in _ON else f"{on}, its hidden state of all tokens"


def change_kind(on: str) -> str:
    """Describe how a change is measured."""
    return _KINDS.get(on, "relative change")


def radius_used(options: Options) -> str:
    """Describe the ball that embeddings move in."""
    return "each word's own norm" if options.radius is None else f"{options.radius:g}"


def print_profile(profile: TextProfile, options: Options, model: str) -> None:
    """Print the profile of one text: title, strip, table, and the word that moves the model most."""
    out = console()
    print_title(options, model)
    if profile.text.cut:
        out.print(f"the last {profile.text.cut} tokens of the text were cut off", style="yellow")
    out.print()
    _print_words(out, profile)
    stopped = len(profile.words) - int(profile.profile.converged.sum())
    if stopped and options.mode == "search":
        count = f"{stopped} of {len(profile.words)}"
        out.print(f"{count} searches stopped at the step limit: more --steps may find more", style=NOTE)
    kind = change_kind(profile.on)
    out.print(f"sensitivity: {kind} at the perturbation that was found, a lower bound with a witness", style=NOTE)


def print_profile_of_many(index: int, line: int, profile: TextProfile) -> None:
    """Print the profile of one text of a file."""
    out = console()
    out.print()
    out.print(Text.assemble((f"text {index}", "bold cyan"), f" (line {line})"))
    _print_words(out, profile)


def print_total(measured: int, stored: int, refused: int) -> None:
    """Print how many texts of a file were measured."""
    rest = f", not measurable {refused}" if refused else ""
    console().print(f"\ntexts: measured {measured}, stored before {stored}{rest}", style="bold")


def print_title(options: Options, model: str) -> None:
    """Print what is measured, on what, and how."""
    frame = ", in the chat template" if options.chat else ""
    title = f"{model}{frame}, measured on {measured_on(options.on)}; {options.mode}, radius {radius_used(options)}"
    console().print(Text(title, "bold"))


def print_swaps(swaps: Swaps) -> None:
    """Print the replacements of a word, the best first."""
    best = swaps.swaps[0]
    rows = [{"rank": rank, "word": swap.word, "sensitivity": swap.value} for rank, swap in enumerate(swaps.swaps, 1)]
    columns: Columns = {
        "rank": "rank",
        "word": "word",
        "": lambda row: Bar(row["sensitivity"], best.value),
        "sensitivity": "sensitivity",
    }
    tried = f"{swaps.checked} of {swaps.candidates} candidates were tried, those that rank first"
    if swaps.exhaustive:
        tried = f"all {swaps.candidates} candidates were tried: the first is the best"
    notes = [Text(tried)]
    if swaps.shortfall is not None:
        notes.append(Text(f"the best by ranking is {100 * swaps.shortfall:.1f}% below the best of all"))
    show(
        f'{swaps.model}, word {swaps.word.position} "{visible(swaps.word.text)}" replaced; '
        f"measured on {measured_on(swaps.on)}",
        table(rows, columns),
        visible(" ".join(best.text.split())),
        *notes,
        Text(f"sensitivity: {change_kind(swaps.on)}, exact for each replacement", NOTE),
    )


def print_flips(result: Flips) -> None:
    """Print the verdict on one text: the replacement that flips the decision, or what was tried."""
    shares = [row for row in result.rows() if row["flips"]] if result.tried == result.total else []
    columns: Columns = {
        "position": "position",
        "word": _short,
        "candidates": "tried",
        "flips": "flips",
        "": lambda row: Bar(row["share"], 1.0),
        "share": "share",
    }
    show(
        f"{result.model}, {measured_on(result.on)}; candidates: {result.candidates}",
        _verdict(result),
        *([table(shares, columns, digits=2)] if shares else []),
        Text(f"{result.tried} of {result.total} candidates were tried, in {result.passes} passes", NOTE),
    )


def _verdict(result: Flips) -> Text:
    before, after = number(result.before, 3), number(result.after, 3)
    word, replacement = result.nearest
    change = f'"{visible(word.text)}" -> ' + (f'"{visible(replacement)}"' if replacement else "deleted")
    if result.word is not None and result.replacement is not None:
        text = result.text.text
        written = text[: result.word.start] + result.replacement + text[result.word.end :]
        decided = f"{visible(result.classes[0])} {before} -> {after}, now {visible(result.classes[-1])}"
        return Text.assemble(
            ("flips", "bold red"), f": word {word.position} {change}: {decided}\n", visible(" ".join(written.split()))
        )
    nearest = f"the nearest is word {word.position} {change}: {visible(result.classes[0])} {before} -> {after}"
    if result.verdict == "safe":
        return Text.assemble(("safe", "bold green"), f": no candidate flips it, all were tried; {nearest}")
    return Text.assemble(("not found", "bold yellow"), f": no flip among those that were tried; {nearest}")


def print_verdicts(verdicts: Mapping[str, int]) -> None:
    """Print how many texts have each verdict."""
    console().print("\ntexts: " + ", ".join(f"{name} {count}" for name, count in verdicts.items()), style="bold")


def strip(made: Sequence[Piece], colours: bool, ascii_only: bool = False) -> Text:
    """Return the words on a background that is stronger the further a word moves the model.

    Without colours, a column after each word shows its value, or a number from 1 to 8 in ASCII.
    """
    text = Text()
    for place, piece in enumerate(made):
        if piece.apart and place:
            text.append(" ")
        word = visible(piece.text)
        if piece.share is None:
            text.append(word, NOTE if piece.special else "")
        elif colours:
            mixed = (round(a + (b - a) * piece.share) for a, b in zip(_PALE, _STRONG, strict=True))
            text.append(word, "black on rgb({},{},{})".format(*mixed))
        else:
            level = min(int(8 * piece.share), 7)
            text.append(word + (f"({level + 1})" if ascii_only else _LEVELS[level]))
    return text


def _print_words(out: Console, profile: TextProfile) -> None:
    rows = profile.rows()
    values = {word.tokens: (row["sensitivity"], "") for word, row in zip(profile.words, rows, strict=True)}
    colours = out.color_system is not None and not out.no_color
    out.print(strip(pieces(profile.text, values), colours, out.options.ascii_only))
    out.print()
    best = max(rows, key=lambda row: float(row["sensitivity"]))
    columns: Columns = {
        "position": "position",
        "word": _short,
        "tokens": "tokens",
        "": lambda row: Bar(row["sensitivity"], best["sensitivity"]),
        "sensitivity": "sensitivity",
    }
    out.print(table(rows, columns, bold=lambda row: bool(row["leads"])))
    out.print()
    out.print(Text(leading(profile), "bold"))
    if profile.shortfall is not None:
        short = f"fast mode: {100 * profile.shortfall:.0f}% below what the search finds for this word"
        out.print(short, style="yellow")


def leading(profile: TextProfile) -> str:
    """Name the word that a model is most sensitive to, or those that cannot be told apart."""
    names = [f'"{visible(word.text)}"' for word in profile.leaders]
    if len(names) > 1:
        rest = len(names) - _NAMED
        others = f" and {rest} other word{'s' if rest > 1 else ''}" if rest > 0 else ""
        margin = number(profile.profile.margin, 2)
        return f"{', '.join(names[:_NAMED])}{others} cannot be told apart: the search still gains up to {margin}"
    (word,), best = profile.leaders, profile.best
    place = "special token" if word.position is None else f"word {word.position}"
    value, radius = number(best.value), number(best.radius)
    return f"{profile.model} is most sensitive to {place} {names[0]}: {value} within radius {radius}"


def _short(row: Row) -> Text:
    word = Text(visible(row["word"]))
    word.truncate(_WORD, overflow="ellipsis")
    return word
