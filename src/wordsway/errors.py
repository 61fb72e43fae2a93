"""The errors of wordsway: one base class and three kinds, by who has to act."""

import difflib
from collections.abc import Iterable


class WordswayError(Exception):
    """Base of all errors that wordsway raises on purpose; the message is one line with a remedy."""


class InputError(WordswayError, ValueError):
    """An argument cannot be used: the message names what must hold, what was received and what to do."""


class NumericalError(WordswayError, ArithmeticError):
    """The arguments are valid, but the result is not finite or not reliable."""


class MissingExtra(WordswayError, ImportError):
    """An optional package is not installed: the message has the command that installs it."""

    @classmethod
    def of(cls, need: str, extra: str) -> "MissingExtra":
        """Return the error for a need, such as "drawing needs matplotlib", and the extra that provides it."""
        return cls(f"{need}: run `{install(extra)}`")


def install(extra: str) -> str:
    """Return the command that installs an extra of wordsway."""
    return f"pip install 'wordsway[{extra}]'"


_JOINERS = "\u200c\u200d"  # invisible, but letters and emoji need them


def visible(text: str) -> str:
    """Return a text without the characters that control a terminal, such as escapes and marks of direction."""
    return "".join(sign if sign.isprintable() or sign in _JOINERS else "\ufffd" for sign in text)


def one_line(message: object, limit: int | None = None) -> str:
    """Return a message, such as an error, as one visible line of at most `limit` characters; if empty, its type."""
    return visible(" ".join(str(message).split()))[:limit] or type(message).__name__


def nearest(name: object, known: Iterable[str]) -> str:
    """Return a hint to append to "unknown name" messages: known names that begin with it or the nearest, or nothing."""
    wanted, names = str(name).lstrip("-").lower(), {one.lstrip("-").lower(): one for one in known}
    close = [one for one in names if wanted and one.startswith(wanted)][:3]
    close = close or difflib.get_close_matches(wanted, list(names), n=1)
    return f" (did you mean {' or '.join(repr(names[one]) for one in close)}?)" if close else ""
