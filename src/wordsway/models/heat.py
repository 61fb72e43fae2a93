"""A text as a strip of its words, each on a background as strong as its value: HTML for notebooks and pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from wordsway.models.words import Text

# One colour that is laid over light and dark pages alike: letters keep a contrast of 4.5 or more on it.
_COLOUR, _STRONGEST = "230 97 1", 0.65
_CURVE = 3  # values of words lie close together: the colour grows like this power of them

# How tokenizers write blanks that are tokens of their own, and how they are shown: line breaks, tabs, spaces.
_BLANKS = str.maketrans({"\u010a": "\u21b5", "\u0109": "\u21e5", "\u0120": "\u2423", "\u2581": "\u2423"})


@dataclass(frozen=True)
class Piece:
    """A word or a special token of a strip.

    Attributes
    ----------
    text : str
    share : float or None
        Its value as a share of the largest one, from 0 to 1; None where it was not measured.
    note : str
        What is told of it when it is pointed at.
    special : bool
        Whether it belongs to no word of the text.
    apart : bool
        Whether a space precedes it.
    """

    text: str
    share: float | None = None
    note: str = ""
    special: bool = False
    apart: bool = True

    @property
    def strength(self) -> float:
        """How strong its colour is, from 0 to 1."""
        return 0.0 if self.share is None else min(max(self.share, 0.0), 1.0) ** _CURVE


def pieces(text: Text, values: Mapping[tuple[int, ...], tuple[float, str]]) -> list[Piece]:
    """The pieces of a text.

    Parameters
    ----------
    text : Text
    values : mapping
        The places of a word's tokens -> its value, and a note on it.
    """
    top = max((value for value, _ in values.values()), default=0.0)
    made, end = [], None
    for word in text.words:
        value, note = values.get(word.tokens, (None, ""))
        share = None if value is None else value / top if top > 0 else 0.0
        inside = word.end > word.start
        shown = word.text if inside or not word.special else word.text.translate(_BLANKS)
        made.append(Piece(shown, share, note, word.special, not (inside and word.start == end)))
        end = word.end if inside else None
    return made


def heat_strip(strip: Sequence[Piece]) -> str:
    """The strip as one HTML paragraph with its own style; every text in it is escaped, and no script is needed."""
    parts: list[str] = []
    for piece in strip:
        styles = ["border-radius: .2em", "padding: .15em .1em"]
        if piece.share is not None:
            styles.append(f"background: rgb({_COLOUR} / {_STRONGEST * piece.strength:.3f})")
        elif piece.special:
            styles.append("opacity: .65")
        title = f' title="{escape(piece.note)}"' if piece.note else ""
        blank = " " if piece.apart and parts else ""
        parts.append(f'{blank}<span style="{"; ".join(styles)}"{title}>{escape(piece.text)}</span>')
    return f'<p class="heat" dir="auto" style="line-height: 2; overflow-wrap: anywhere">{"".join(parts)}</p>'
