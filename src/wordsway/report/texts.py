"""Terminal views of texts: the words with their strength, a bar for each, and replacements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from wordsway.errors import visible
from wordsway.models.heat import Piece, pieces
from wordsway.records import number
from wordsway.report.terminal import NOTE, Bar, Columns, Row, console, show, table

if TYPE_CHECKING:
    from wordsway.experiments.texts import Options
    from wordsway.models.ball import BallProfile
    from wordsway.models.flips import Flips
    from wordsway.models.profile import TextProfile
    from wordsway.models.swaps import Swaps
    from wordsway.models.words import Word

_ON = {
    "last": "the last hidden state of all tokens",
    "pooled": "the mean of the last hidden state, of length 1",
    "next": "the distribution of the next token",
    "mask": "the distribution of the masked token",
    "class": "the distribution over the classes",
    "labels": "the probabilities of the labels",
    "number": "the number that the model predicts",
}
_KINDS = {
    "next": "total variation of the distributions",
    "mask": "total variation of the distributions",
    "token": "total variation of the distributions",
    "class": "total variation of the distributions",
    "labels": "largest change of a label's probability",
    "number": "absolute change",
    "answer": "total variation of the distributions",
    "target": "absolute change",
}
_WORD = 24  # columns of a word
_NAMED = 5  # of the words that cannot be told apart
_LEVELS = "▁▂▃▄▅▆▇█"
_PALE, _STRONG = (255, 243, 230), (240, 125, 50)  # behind black letters


def measured_on(on: str) -> str:
    """Describe the output that a change is measured on: "last, the last hidden state of all tokens"."""
    if on.startswith("answer "):
        return f"the probabilities of the answers {visible(on.removeprefix('answer '))}"
    if on.startswith("token "):
        return f'the distribution over the classes of the word "{visible(on.removeprefix("token "))}"'
    if on.startswith("target "):
        return f'the logarithm of the probability that the text goes on with "{visible(on.removeprefix("target "))}"'
    return f"{on}, {_ON[on]}" if on in _ON else f"{on}, its hidden state of all tokens"


def change_kind(on: str) -> str:
    """Describe how a change is measured."""
    return _KINDS.get(on.split(" ")[0], "relative change")


def radius_used(options: Options) -> str:
    """Describe the ball that embeddings move in."""
    return "each word's own norm" if options.radius is None else f"{options.radius:g}"


def print_profile(profile: TextProfile, options: Options, model: str) -> None:
    """Print the profile of one text: title, strip, table, and the word that the model depends on most."""
    out = console()
    print_title(options, model, profile.on)
    if profile.text.cut:
        out.print(f"the last {profile.text.cut} tokens of the text were cut off", style="yellow")
    out.print()
    _print_words(out, profile)
    effect = (
        f"change of {_followed(profile.on, profile.decision is not None)}"
        if profile.signed
        else change_kind(profile.on)
    )
    out.print(f"masked, typical (mean of random words), worst found: {effect}, exact for each text", style=NOTE)
    if (ball := profile.ball) is not None:
        stopped = len(ball.words) - int(ball.profile.converged.sum())
        if stopped and options.mode == "search":
            count = f"{stopped} of {len(ball.words)}"
            out.print(f"{count} searches stopped at the step limit: more --steps may find more", style=NOTE)
        kind = change_kind(ball.on)
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


def print_title(options: Options, model: str, on: str) -> None:
    """Print what is measured, on what, and how."""
    frame = ", in the chat template" if options.chat else ""
    ball = f"; ball: {options.mode}, radius {radius_used(options)}" if options.ball else ""
    console().print(Text(f"{model}{frame}, measured on {measured_on(on)}{ball}", "bold"))


def print_swaps(swaps: Swaps, line: int | None = None) -> None:
    """Print the replacements of a word, or of any word, the best first; `line` is the one of the text in a file."""
    best = swaps.swaps[0]
    columns: dict[str, str | Callable[[Row], Any]] = {"rank": "rank"}
    if swaps.word is None:
        columns |= {"position": "position", "replaced": lambda row: visible(row["replaced"])}
    columns |= {
        "word": "word",
        "": lambda row: Bar(row["sensitivity"], best.value),
        "effect" if swaps.signed else "sensitivity": "effect",
    }
    if best.flip is not None:
        columns["flips"] = lambda row: "yes" if row["flip"] else ""
    if best.becomes is not None and not swaps.signed:
        columns["becomes"] = lambda row: _token(row["becomes"])
    tried = f"{swaps.checked} of {swaps.candidates} candidates were tried, those that rank first"
    if swaps.exhaustive:
        tried = f"all {swaps.candidates} candidates were tried: the first is the best"
    notes = [Text(f"candidates: {swaps.declared}; {tried}")]
    if swaps.shortfall is not None:
        notes.append(Text(f"the best by ranking is {100 * swaps.shortfall:.1f}% below the best of all"))
    place = "any word" if swaps.word is None else f'word {swaps.word.position} "{visible(swaps.word.text)}"'
    where = "" if line is None else f"line {line}: "
    kind = change_kind(swaps.on)
    if swaps.signed and swaps.before is not None:
        kind = f"change of {_followed(swaps.on, best.flip is not None)}, {number(swaps.before, 3)} for the text"
    show(
        f"{where}{swaps.model}, {place} replaced; measured on {measured_on(swaps.on)}",
        table(swaps.rows(), columns, spare=("",)),
        visible(" ".join(best.text.split())),
        *notes,
        Text(f"{'effect' if swaps.signed else 'sensitivity'}: {kind}, exact for each replacement", NOTE),
    )


def print_flips(result: Flips, exhaustive: bool = False) -> None:
    """Print the verdict on one text: the replacement that flips the decision, or what was tried.

    The shares of flips follow where the search went on after the first one, or ended: exact, or from the least to the
    most where not all candidates were tried.
    """
    shares = [row for row in result.rows() if row["flips"]] if exhaustive or result.tried == result.total else []
    columns: Columns = {
        "position": "position",
        "word": _short,
        "candidates": "candidates",
        "tried": "tried",
        "flips": "flips",
        "": lambda row: Bar(row["low"], 1.0),
        "share": lambda row: (
            number(row["low"], 2) + (f" to {number(row['high'], 2)}" if row["high"] > row["low"] else "")
        ),
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
    values = {one.word.tokens: (one.typical or 0.0, "") for one in profile.words if one.typical is not None}
    colours = out.color_system is not None and not out.no_color
    out.print(strip(pieces(profile.text, values), colours, out.options.ascii_only))
    out.print()
    top = max((row["typical"] or 0.0 for row in rows), default=0.0)
    columns: dict[str, str | Callable[[Row], Any]] = {
        "position": "position",
        "word": _short,
        "masked": "masked",
        "typical": lambda row: _typical(row["typical"], row["typical_se"]) if row["draws"] else None,
        "": lambda row: Bar(row["typical"] or 0.0, top),
        "worst": "worst",
        "with": lambda row: None if row["replacement"] is None else visible(row["replacement"]),
    }
    if any(row["flip"] is not None for row in rows):
        columns["flips"] = lambda row: "yes" if row["flip"] else ""
        if not profile.signed:
            columns["becomes"] = lambda row: None if row["becomes"] is None else _token(row["becomes"])
    if profile.ball is not None:
        columns["sensitivity"] = "sensitivity"
    out.print(table(rows, columns, bold=lambda row: bool(row["leads"]), spare=("",), digits=3, right=("typical",)))
    out.print()
    out.print(Text(leading(profile), "bold"))
    if profile.ball is not None:
        out.print(Text(_leading_in_ball(profile.ball), "bold"))
        if profile.ball.shortfall is not None:
            short = f"fast mode: {100 * profile.ball.shortfall:.0f}% below what the search finds for this word"
            out.print(short, style="yellow")


def leading(profile: TextProfile) -> str:
    """Name the prediction, and the word that it depends on most, or those that cannot be told apart."""
    model = profile.model
    if profile.decision is not None:
        named = visible(profile.decision) if profile.signed else _token(profile.decision)
        model += f" predicts {named}, {number(profile.before, 3)}; it"
    leaders = [one for one in profile.words if one.leads]
    if not leaders:
        return f"{model} was measured on no word that another one can replace"
    if len(leaders) > 1:
        return f"{model} depends most on {_names(profile.leaders)}, which cannot be told apart"
    (one,) = leaders
    what = _followed(profile.on, profile.decision is not None) if profile.signed else "its output"
    typical = _typical(one.typical, one.typical_se)
    word = f'word {one.word.position} "{visible(one.word.text)}"'
    return f"{model} depends most on {word}: another word changes {what} by {typical}"


def _token(token: str) -> str:
    """A token in quotes, since it may begin with a blank or be one."""
    return f'"{visible(token)}"'


def _typical(mean: float | None, error: float | None) -> str:
    """A mean with its standard error."""
    return number(mean, 3) + ("" if error is None else f" +- {number(error, 2)}")


def _followed(on: str, decides: bool) -> str:
    """The score whose signed change is reported."""
    if on.startswith("target "):
        return "the logarithm"
    return "the probability" if decides else "the number"


def _names(words: Sequence[Word]) -> str:
    names = [f'"{visible(word.text)}"' for word in words[:_NAMED]]
    rest = len(words) - _NAMED
    others = f" and {rest} other word{'s' if rest > 1 else ''}" if rest > 0 else ""
    return f"{', '.join(names)}{others}"


def _leading_in_ball(ball: BallProfile) -> str:
    """Name the word whose embedding moves the model most in its ball, or those that cannot be told apart."""
    if len(ball.leaders) > 1:
        margin = number(ball.profile.margin, 2)
        return f"in the ball, {_names(ball.leaders)} cannot be told apart: the search still gains up to {margin}"
    (word,), best = ball.leaders, ball.best
    place = "special token" if word.position is None else f"word {word.position}"
    value, radius = number(best.value), number(best.radius)
    return f'in the ball, it is most sensitive to {place} "{visible(word.text)}": {value} within radius {radius}'


def _short(row: Row) -> Text:
    word = Text(visible(row["word"]))
    word.truncate(_WORD, overflow="ellipsis")
    return word
