"""Texts as a model reads them: words, the tokens of each, and the tokens that belong to no word."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from wordsway.errors import InputError
from wordsway.models.splitter import Splitter

_LOG = logging.getLogger(__name__)
# A letter of a script that is written without spaces, a run of other letters and digits (with an apostrophe inside), or
# any single sign.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+(?:['\u2019][^\W{_UNSPACED}]+)*|\S")
_SHOWN = 30  # words that a message lists


@dataclass(frozen=True)
class Word:
    """A word of a text, or a token that the model reads besides its words.

    Attributes
    ----------
    position : int or None
        Its number among the words of the text, from 0; None for special tokens, those of a chat template, and blanks.
    text : str
        As it stands in the text; a special token by its name.
    start, end : int
        Where it stands in the text; both 0 where it does not.
    tokens : tuple of int
        Places of its tokens among what the model reads.
    """

    position: int | None
    text: str
    start: int
    end: int
    tokens: tuple[int, ...]

    @property
    def special(self) -> bool:
        """Whether it is shown, but not measured unless asked for."""
        return self.position is None


@dataclass(frozen=True)
class Text:
    """A text as a model reads it.

    Attributes
    ----------
    text : str
    ids : tuple of int
        The token numbers.
    words : tuple of Word
        In the order of their tokens, special ones too.
    cut : int
        Tokens at the end that were left out, because the model cannot read so many.
    framed : bool
        Whether it stands in a chat template, which has the special tokens that the model expects.
    """

    text: str
    ids: tuple[int, ...]
    words: tuple[Word, ...]
    cut: int = 0
    framed: bool = False

    @property
    def scored(self) -> tuple[Word, ...]:
        """The words of the text, by position."""
        return tuple(word for word in self.words if word.position is not None)

    def word(self, position: Any) -> Word:
        """The word at a position, or an error that lists them."""
        words = self.scored
        if isinstance(position, int) and not isinstance(position, bool) and 0 <= position < len(words):
            return words[position]
        listed = ", ".join(f"{word.position} {word.text}" for word in words[:_SHOWN])
        more = ", ..." if len(words) > _SHOWN else ""
        got = " ".join(repr(position).split())[:40]
        raise InputError(f"word must be a position from 0 to {len(words) - 1}, got {got}: {listed}{more}")


def read_text(splitter: Splitter, text: Any, name: str, *, cut: bool = False, chat: bool = False) -> Text:
    """Split a text into what a model reads.

    Parameters
    ----------
    splitter : Splitter
    text : str
    name : str
        What messages call the model.
    cut : bool
        Whether a text that is too long is cut, which is logged as a warning; else it is refused.
    chat : bool
        Whether the text is put into the model's chat template, as what the user says.
    """
    if not isinstance(text, str):
        raise InputError(f"text must be a string, got {type(text).__name__}: give one text at a time")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"text must be valid unicode, got half a character at {error.start}: mend it") from error
    if chat:
        before, after = splitter.frame()
        whole, start = before + text.strip() + after, len(before)
        end = start + len(text.strip())
    else:
        whole, start, end = text, 0, len(text)
    encoding = splitter.tokenizer.encode(whole, add_special_tokens=not chat)
    found = _Tokens(whole, encoding, splitter)
    left, kept = _cut(found, splitter.positions, name, cut, end)
    words = tuple(_words(found, kept, start, end))
    if all(word.special for word in words):
        raise InputError("text must have a word at least, got none: special tokens and blanks do not count")
    return Text(whole, tuple(found.ids[place] for place in kept), words, left, chat)


class _Tokens:
    """The tokens of a text: numbers, places in it, and whether each is special."""

    def __init__(self, text: str, encoding: Any, splitter: Splitter) -> None:
        self.text = text
        self.ids: list[int] = list(encoding.ids)
        self.names: list[str] = list(encoding.tokens)
        self.spans = [_stripped(text, *span) for span in encoding.offsets]
        named = splitter.special
        self.special = [
            bool(added) or (number in named and text[span[0] : span[1]] == named[number])
            for added, number, span in zip(encoding.special_tokens_mask, self.ids, self.spans, strict=True)
        ]


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """A span without the blanks around it; what is blank alone is empty."""
    inside = text[start:end]
    if not inside.strip():
        return start, start
    return start + len(inside) - len(inside.lstrip()), end - len(inside) + len(inside.rstrip())


def _cut(found: _Tokens, limit: int, name: str, cut: bool, end: int) -> tuple[int, list[int]]:
    """How many tokens are left out, and which are kept: those that close the text always are."""
    count = len(found.ids)
    if count <= limit:
        return 0, list(range(count))
    if not cut:
        raise InputError(
            f"the text must have at most {limit} tokens, which is all that {name} reads, got {count}: "
            "shorten it, or ask for it to be cut"
        )
    closing = 0
    while closing < count and (found.special[count - 1 - closing] or found.spans[count - 1 - closing][0] >= end):
        closing += 1
    _LOG.warning("%d of the text's %d tokens are left out: %s reads %d", count - limit, count, name, limit)
    return count - limit, [*range(max(limit - closing, 0)), *range(count - closing, count)]


def _words(found: _Tokens, kept: list[int], start: int, end: int) -> Iterator[Word]:
    """Words in order: a token belongs to all words that it touches, and words that share a token are one."""
    owners = [0] * len(found.text)  # number of the word that each character belongs to, from 1
    for number, match in enumerate(_WORD.finditer(found.text, start, end), 1):
        owners[match.start() : match.end()] = [number] * (match.end() - match.start())
    position = 0
    groups: list[tuple[set[int], list[int]]] = []
    for place, token in enumerate(kept):
        first, last = found.spans[token]
        touched = set() if found.special[token] else {owner for owner in owners[first:last] if owner}
        if groups and touched & groups[-1][0]:
            groups[-1][0].update(touched)
            groups[-1][1].append(place)
        else:
            groups.append((touched, [place]))
    for touched, places in groups:
        spans = [found.spans[kept[place]] for place in places]
        first, last = min(span[0] for span in spans), max(span[1] for span in spans)
        token = kept[places[0]]
        if touched:
            yield Word(position, found.text[first:last], first, last, tuple(places))
            position += 1
        else:
            shown = found.text[first:last] or found.names[token]
            yield Word(None, shown, first, last, tuple(places))
