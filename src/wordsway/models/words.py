"""Texts as a model reads them: words, the tokens of each, and the tokens that belong to no word."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, SupportsIndex, TypeAlias

from wordsway.checks import as_int, check_several
from wordsway.errors import InputError, one_line
from wordsway.models.tokenizer import Tokenizer

_LOG = logging.getLogger(__name__)
_UNSPACED = ("Thai", "Lao", "Myanmar", "Khmer", "Hiragana", "Katakana", "Han")  # scripts written without spaces
_SHOWN = 30  # words that a message lists


@dataclass(frozen=True)
class Word:
    """A word of a text, or a token that belongs to no word.

    Attributes
    ----------
    position : int or None
        Its number among the words of the text, from 0; None for special tokens, those of a chat template, and blanks.
    text : str
        As it is written in the text; a special token by its name.
    start, end : int
        Its characters in the text; both 0 if it has none.
    tokens : tuple of int
        Its tokens among those that the model reads; the last word of a truncated text may have fewer.
    """

    position: int | None
    text: str
    start: int
    end: int
    tokens: tuple[int, ...]

    @property
    def special(self) -> bool:
        """Whether it is shown, but measured only on request."""
        return self.position is None


WordLike: TypeAlias = SupportsIndex | str | Word  # a position, a word as it is written, or a `Word` of the text


@dataclass(frozen=True)
class Text:
    """A text as a model reads it.

    Attributes
    ----------
    text : str
    ids : tuple of int
        The token ids.
    words : tuple of Word
        In the order of their tokens, special ones included.
    cut : int
        Number of tokens at the end that were left out, because the model cannot read so many.
    framed : bool
        Whether it is inside a chat template, which has the special tokens that the model expects.
    offset : int
        How many characters later a word is here than in the text of the user, because of that template.
    pair : int or None
        Where the second text of a pair begins; it is written on a line of its own after the first one.
    second : int
        Number of tokens that the tokenizer counts to the second text; they are the last ones.
    """

    text: str
    ids: tuple[int, ...]
    words: tuple[Word, ...]
    cut: int = 0
    framed: bool = False
    offset: int = 0
    pair: int | None = None
    second: int = 0

    @property
    def scored(self) -> tuple[Word, ...]:
        """The words of the text, by position."""
        return tuple(word for word in self.words if word.position is not None)

    def span(self, word: Word) -> tuple[int, int]:
        """Return the characters of a word in the text of the user; (0, 0) for what a chat template adds."""
        if self.framed and word.special:
            return 0, 0
        return word.start - self.offset, word.end - self.offset

    def chosen(self, words: Sequence[WordLike] | None, special: bool = False) -> list[Word]:
        """The words of some positions or spellings; by default all, with special tokens only if `special`."""
        if words is None:
            return list(self.words if special else self.scored)
        check_several(words, "words")
        return [self.word(word) for word in words]

    def word(self, which: WordLike) -> Word:
        """Return the word at a position, or the one that is written so; the error lists the words."""
        if isinstance(which, Word):
            return which
        words = self.scored
        if isinstance(which, str):
            matches = [word for word in words if word.text == which]
            matches = matches or [word for word in words if word.text.casefold() == which.casefold()]
            if len(matches) == 1:
                return matches[0]
            if matches:
                places = ", ".join(str(word.position) for word in matches)
                raise InputError(f"word must occur once in the text, got {which!r} at {places}: give a position")
        place = as_int(which)
        if place is not None and 0 <= place < len(words):
            return words[place]
        listed = ", ".join(f"{word.position} {word.text}" for word in words[:_SHOWN])
        more = ", ..." if len(words) > _SHOWN else ""
        got = one_line(repr(which), 40)
        raise InputError(
            f"word must be a position from 0 to {len(words) - 1} or a word of the text, got {got}: {listed}{more}"
        )


def encoded(tokenizer: Tokenizer, texts: Sequence[str], seconds: Sequence[int | None], framed: bool) -> list[Any]:
    """Encode texts, which may be pairs: the second one of each begins at its place in `seconds`, on its own line."""
    inputs = [
        text if place is None else (text[: place - 1], text[place:]) for text, place in zip(texts, seconds, strict=True)
    ]
    encodings: list[Any] = tokenizer.backend.encode_batch(inputs, add_special_tokens=not framed)
    return encodings


def read_text(
    tokenizer: Tokenizer, text: Any, name: str, *, pair: Any = None, cut: bool = False, chat: bool = False
) -> Text:
    """Split a text into what the model called `name` reads; see `Model.read`."""
    for given in (text,) if pair is None else (text, pair):
        _check_text(given)
    if pair is not None and (cut or chat):
        raise InputError("a pair of texts can neither be cut nor chatted, got both: leave the pair or the option out")
    before, after = tokenizer.frame() if chat else ("", "")
    inner = text.strip() if chat else text
    whole, start = before + inner + after, len(before)
    end, offset = start + len(inner), start - text.index(inner)
    second = None
    if pair is not None:
        whole, second = f"{whole}\n{pair}", len(whole) + 1
        end = len(whole)
    encoding = encoded(tokenizer, [whole], [second], chat)[0]
    tokens = _Tokens(whole, encoding, tokenizer, second or 0)
    kept = _kept(tokens, tokenizer.positions, name, cut, end)
    words = tuple(_words(tokens, kept, start, end))
    left_out = len(tokens.ids) - len(kept)
    if all(word.special for word in words):
        if left_out:
            raise InputError(
                f"the {tokenizer.positions} tokens that {name} reads must have at least one word, got none: "
                "use a shorter chat template, or a model that reads more tokens"
            )
        raise InputError("text must have at least one word, got none: special tokens and blanks do not count")
    ids = tuple(tokens.ids[place] for place in kept)
    return Text(whole, ids, words, left_out, chat, offset, second, sum(encoding.type_ids))


def _check_text(text: Any) -> None:
    if not isinstance(text, str):
        raise InputError(f"text must be a string, got {type(text).__name__}: give one text at a time")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"text must be valid unicode, got half a character at {error.start}: correct it") from error


@cache
def _word() -> Any:
    """Return the pattern of a word: a run of letters and digits, or a single character as it is displayed.

    A run may have apostrophes inside, and the marks and joiners that follow its letters. Letters of scripts without
    spaces are single, and so are signs and emoji, with their accents, skin colours and joined parts.
    """
    import regex  # late: only texts need it

    unspaced = "".join(rf"\p{{scx={script}}}" for script in _UNSPACED)
    letter = rf"[[\p{{L}}\p{{N}}_]--[{unspaced}]]"
    run = rf"{letter}(?:{letter}|[\p{{M}}\p{{Emoji_Modifier}}\p{{Join_Control}}]|['\u2019](?={letter}))*"
    # \X is a character as it is displayed. Signs that belong to the next one (Prepend) would take a blank with them,
    # and str.strip takes \x1c to \x1f for blanks too.
    return regex.compile(rf"{run}|(?![\s\x1c-\x1f\p{{GCB=Prepend}}])\X|\p{{GCB=Prepend}}", regex.V1)


class _Tokens:
    """The tokens of a text: ids, names, characters in the text without blanks around them, and which are special."""

    def __init__(self, text: str, encoding: Any, tokenizer: Tokenizer, second: int) -> None:
        self.text = text
        self.ids: list[int] = list(encoding.ids)
        self.names: list[str] = list(encoding.tokens)
        shifts = [second if of else 0 for of in encoding.sequence_ids]  # offsets of a second text count from its start
        self.spans = [
            _stripped(text, start + shift, end + shift)
            for (start, end), shift in zip(encoding.offsets, shifts, strict=True)
        ]
        named = tokenizer.special
        self.special = [
            bool(added) or (number in named and text[span[0] : span[1]] == named[number])
            for added, number, span in zip(encoding.special_tokens_mask, self.ids, self.spans, strict=True)
        ]


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a span without the blanks around it; a span of blanks is empty."""
    inside = text[start:end]
    if not inside.strip():
        return start, start
    return start + len(inside) - len(inside.lstrip()), end - len(inside) + len(inside.rstrip())


def _kept(tokens: _Tokens, limit: int, name: str, cut: bool, end: int) -> list[int]:
    """Return the tokens that the model reads, at most `limit`: those that close the text are always kept."""
    count = len(tokens.ids)
    if count <= limit:
        return list(range(count))
    if not cut:
        raise InputError(
            f"the text must have at most {limit} tokens, which is all that {name} reads, got {count}: "
            "shorten it, or ask for it to be cut"
        )
    closing = 0
    while closing < count and (tokens.special[count - 1 - closing] or tokens.spans[count - 1 - closing][0] >= end):
        closing += 1
    _LOG.warning("%d of the text's %d tokens are left out: %s reads %d", count - limit, count, name, limit)
    return [*range(max(limit - closing, 0)), *range(count - closing, count)]


def _words(tokens: _Tokens, kept: list[int], start: int, end: int) -> Iterator[Word]:
    """Yield words in order: a token belongs to all words that it touches, and words that share a token are one."""
    owners = [0] * (len(tokens.text) + 1)  # number of the word of each character, from 1
    spans = [match.span() for part in _parts(tokens, start, end) for match in _word().finditer(tokens.text, *part)]
    for number, (first, last) in enumerate(spans, 1):
        owners[first:last] = [number] * (last - first)
    groups: list[tuple[set[int], list[int]]] = []  # words, and the tokens that touch them
    for place, token in enumerate(kept):
        first, last = tokens.spans[token]
        here = () if tokens.special[token] else owners[first : max(last, first + 1)]
        touched = {owner for owner in here if owner}
        if groups and touched & groups[-1][0]:
            groups[-1][0].update(touched)
            groups[-1][1].append(place)
        else:
            groups.append((touched, [place]))
    position = 0
    for touched, places in groups:
        if touched:
            first, last = spans[min(touched) - 1][0], spans[max(touched) - 1][1]
            yield Word(position, tokens.text[first:last], first, last, tuple(places))
            position += 1
        else:
            first, last = tokens.spans[kept[places[0]]]
            yield Word(None, tokens.text[first:last] or tokens.names[kept[places[0]]], first, last, tuple(places))


def _parts(tokens: _Tokens, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a text between the special tokens that are typed into it."""
    for special, (first, last) in zip(tokens.special, tokens.spans, strict=True):
        if special and start <= first < last <= end:
            yield start, first
            start = last
    yield start, end
