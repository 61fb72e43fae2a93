"""Texts as a model reads them: words, the tokens of each, and the tokens that belong to no word."""

from __future__ import annotations

import logging
import operator
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from wordsway.errors import InputError, one_line
from wordsway.models.tokenizer import Tokenizer

_LOG = logging.getLogger(__name__)
# Scripts that are written without spaces: each letter is a word
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WITH_MARKS = (*range(0x300, 0x20000), *range(0xE0100, 0xE01F0))  # no marks elsewhere
_SKIN = "\U0001f3fb-\U0001f3ff"  # colours of the emoji before them
_JOINERS = "\u200c\u200d"
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
        Places of its tokens among what the model reads; where a text is cut, its last word may have others.
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
    offset : int
        How much further back a word stands here than in what was given, because of that template.
    """

    text: str
    ids: tuple[int, ...]
    words: tuple[Word, ...]
    cut: int = 0
    framed: bool = False
    offset: int = 0

    @property
    def scored(self) -> tuple[Word, ...]:
        """The words of the text, by position."""
        return tuple(word for word in self.words if word.position is not None)

    def span(self, word: Word) -> tuple[int, int]:
        """Where a word stands in what was given, without a chat template; (0, 0) for what that template adds."""
        if self.framed and word.special:
            return 0, 0
        return word.start - self.offset, word.end - self.offset

    def word(self, which: Any) -> Word:
        """The word at a position, or the one that is written so, or an error that lists them."""
        words = self.scored
        if isinstance(which, str):
            alike = [word for word in words if word.text == which]
            alike = alike or [word for word in words if word.text.casefold() == which.casefold()]
            if len(alike) == 1:
                return alike[0]
            if alike:
                places = ", ".join(str(word.position) for word in alike)
                raise InputError(f"word must stand once in the text, got {which!r} at {places}: give a position")
        try:
            place = -1 if isinstance(which, bool) else operator.index(which)
        except TypeError:
            place = -1
        if 0 <= place < len(words):
            return words[place]
        listed = ", ".join(f"{word.position} {word.text}" for word in words[:_SHOWN])
        more = ", ..." if len(words) > _SHOWN else ""
        got = one_line(repr(which), 40)
        raise InputError(
            f"word must be a position from 0 to {len(words) - 1} or a word of the text, got {got}: {listed}{more}"
        )


def read_text(tokenizer: Tokenizer, text: Any, name: str, *, cut: bool = False, chat: bool = False) -> Text:
    """Split a text into what a model reads.

    Parameters
    ----------
    tokenizer : Tokenizer
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
        before, after = tokenizer.frame()
        whole, start = before + text.strip() + after, len(before)
        end, offset = start + len(text.strip()), start - (len(text) - len(text.lstrip()))
    else:
        whole, start, end, offset = text, 0, len(text), 0
    encoding = tokenizer.backend.encode(whole, add_special_tokens=not chat)
    found = _Tokens(whole, encoding, tokenizer)
    left, kept = _cut(found, tokenizer.positions, name, cut, end)
    words = tuple(_words(found, kept, start, end))
    if left and all(word.special for word in words):
        raise InputError(
            f"the {tokenizer.positions} tokens that {name} reads must have a word, got none: "
            "shorten what stands around the words"
        )
    if all(word.special for word in words):
        raise InputError("text must have a word at least, got none: special tokens and blanks do not count")
    return Text(whole, tuple(found.ids[place] for place in kept), words, left, chat, offset)


@cache
def _word() -> re.Pattern[str]:
    """A letter of a script without spaces, a run of other letters and digits (with apostrophes inside), or any sign.

    Each has the marks that follow it, such as accents; signs may be joined to one, as emoji are.
    """
    marks = "".join(char for char in map(chr, _WITH_MARKS) if unicodedata.category(char)[0] == "M") + _SKIN
    letter = rf"[^\W{_UNSPACED}]"
    run = rf"{letter}(?:{letter}|[{marks}{_JOINERS}]|['\u2019](?={letter}))*"
    return re.compile(rf"[{_UNSPACED}][{marks}]*|{run}|\S(?:[{marks}]|\u200d\S)*")


class _Tokens:
    """The tokens of a text: numbers, places in it, and whether each is special."""

    def __init__(self, text: str, encoding: Any, tokenizer: Tokenizer) -> None:
        self.text = text
        self.ids: list[int] = list(encoding.ids)
        self.names: list[str] = list(encoding.tokens)
        self.spans = [_stripped(text, *span) for span in encoding.offsets]
        named = tokenizer.special
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
    owners = [0] * (len(found.text) + 1)  # number of the word that each character belongs to, from 1
    spans = [match.span() for part in _between(found, start, end) for match in _word().finditer(found.text, *part)]
    for number, (first, last) in enumerate(spans, 1):
        owners[first:last] = [number] * (last - first)
    position = 0
    groups: list[tuple[set[int], list[int]]] = []
    for place, token in enumerate(kept):
        first, last = found.spans[token]
        here = () if found.special[token] else owners[first : max(last, first + 1)]
        touched = {owner for owner in here if owner}
        if groups and touched & groups[-1][0]:
            groups[-1][0].update(touched)
            groups[-1][1].append(place)
        else:
            groups.append((touched, [place]))
    for touched, places in groups:
        if touched:
            first, last = spans[min(touched) - 1][0], spans[max(touched) - 1][1]
            yield Word(position, found.text[first:last], first, last, tuple(places))
            position += 1
        else:
            first, last = found.spans[kept[places[0]]]
            yield Word(None, found.text[first:last] or found.names[kept[places[0]]], first, last, tuple(places))


def _between(found: _Tokens, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of a text between the special tokens that are typed into it."""
    for special, (first, last) in zip(found.special, found.spans, strict=True):
        if special and start <= first < last <= end:
            yield start, first
            start = last
    yield start, end
