"""The errors of wordsway: one base with three children, so that callers can tell whose turn it is to act."""


class WordswayError(Exception):
    """Anything wordsway raises on purpose; the message is one line that says what to do."""


class InputError(WordswayError, ValueError):
    """What was given cannot be used: the message names what must hold, what was got and what to do."""


class NumericalError(WordswayError, ArithmeticError):
    """The input is legal, but the computation asked for has no finite or reliable answer."""


class MissingExtra(WordswayError, ImportError):
    """A part that is installed separately is not there: the message has the command that installs it."""
