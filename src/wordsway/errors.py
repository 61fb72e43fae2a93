"""The errors of wordsway: one base with three children, so that callers can tell whose turn it is to act."""

import difflib
from collections.abc import Iterable


class WordswayError(Exception):
    """Anything wordsway raises on purpose; the message is one line that says what to do."""


class InputError(WordswayError, ValueError):
    """What was given cannot be used: the message names what must hold, what was got and what to do."""


class NumericalError(WordswayError, ArithmeticError):
    """The input is legal, but the computation asked for has no finite or reliable answer."""


class MissingExtra(WordswayError, ImportError):
    """A part that is installed separately is not there: the message has the command that installs it."""

    @classmethod
    def of(cls, need: str, extra: str) -> "MissingExtra":
        """What needs which package, and the extra of wordsway that brings it."""
        return cls(f"{need}: run `{install(extra)}`")


def install(extra: str) -> str:
    """The command that installs an extra of wordsway."""
    return f"pip install 'wordsway[{extra}]'"


def one_line(said: object, most: int | None = None) -> str:
    """What something says, as one line of at most so many characters; an error that says nothing by its kind."""
    return " ".join(str(said).split())[:most] or type(said).__name__


def nearest(name: object, known: Iterable[str]) -> str:
    """A hint to append to "unknown name" messages: the nearest known one, or nothing."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
