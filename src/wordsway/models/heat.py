"""A text as a strip of its words, each on a background as strong as its value: HTML for notebooks and pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from wordsway.models.words import Text

# One colour that is laid over light and dark pages alike: letters keep a contrast of 4.5 or more on it.
_COLOUR, _STRONGEST = "230 97 1", 0.65

# How tokenizers write blanks that are tokens of their own, and how they are shown: line breaks, tabs, spaces.
_BLANKS = str.maketrans({"\u010a": "\u21b5", "\u0109": "\u21e5", "\u0120": "\u2423", "\u2581": "\u2423"})


@dataclass(frozen=True)
class Piece:
    """A word or a special token of a strip."""

    text: str
    share: float | None = None  # its value, as a share of the largest one; None where it was not measured
    note: str = ""  # shown when it is pointed at
    special: bool = False  # whether it belongs to no word of the text
    apart: bool = True  # whether a space precedes it
    below: str = ""  # shown in small letters below it


def pieces(text: Text, measured: Mapping[tuple[int, ...], tuple[float, str]]) -> list[Piece]:
    """Return the pieces of a text, where `measured` maps the tokens of a word to its value and a note."""
    top = max((value for value, _ in measured.values()), default=0.0)
    made, end = [], None
    for word in text.words:
        value, note = measured.get(word.tokens, (None, ""))
        share = None if value is None else value / top if top > 0 else 0.0
        inside = word.end > word.start
        shown = word.text if inside or not word.special else word.text.translate(_BLANKS)
        made.append(Piece(shown, share, note, word.special, not (inside and word.start == end)))
        end = word.end if inside else None
    return made


def background(share: float) -> str:
    """Return the colour of a value, as a share of the largest one, in CSS."""
    return f"rgb({_COLOUR} / {_STRONGEST * share:.3f})"


def heat_strip(strip: Sequence[Piece]) -> str:
    """Return the strip as one HTML paragraph with its own style; all text is escaped, and no script is needed."""
    parts: list[str] = []
    for piece in strip:
        styles = ["border-radius: .2em", "padding: .15em .1em"]
        if piece.share is not None:
            styles.append(f"background: {background(piece.share)}")
        elif piece.special:
            styles.append("opacity: .65")
        title = f' title="{escape(piece.note)}"' if piece.note else ""
        blank = " " if piece.apart and parts else ""
        below = ""
        if piece.below:
            styles += ["display: inline-flex", "flex-direction: column", "vertical-align: top", "line-height: 1.35"]
            below = f'<small style="text-align: center">{escape(piece.below)}</small>'
        parts.append(f'{blank}<span style="{"; ".join(styles)}"{title}>{escape(piece.text)}{below}</span>')
    return f'<p class="heat" dir="auto" style="line-height: 2; overflow-wrap: anywhere">{"".join(parts)}</p>'
