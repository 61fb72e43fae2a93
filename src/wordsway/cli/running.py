"""Running a command: trials one after another, results as they arrive, and one line when it is interrupted."""

from __future__ import annotations

import functools
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

import typer

from wordsway.errors import InputError, NumericalError, WordswayError, one_line

if TYPE_CHECKING:
    from wordsway.data.texts import Line

T = TypeVar("T")
P = ParamSpec("P")
Rows: TypeAlias = list[dict[str, Any]]


def interruptible(command: Callable[P, None]) -> Callable[P, None]:
    """End a command in one line when it is interrupted from the keyboard, or by SIGTERM as schedulers do."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with _interrupts_by_sigterm() as received:
            try:
                command(*args, **kwargs)
            except KeyboardInterrupt as interrupt:
                notice(f"wordsway: {interrupt if interrupt.args else 'interrupted'}")
                raise typer.Exit(128 + (signal.SIGTERM if received else signal.SIGINT)) from None

    return run


@contextmanager
def _interrupts_by_sigterm() -> Iterator[list[int]]:
    """Treat SIGTERM like an interrupt from the keyboard; the list that is yielded tells whether it was received."""
    received: list[int] = []

    def interrupt(number: int, _: object) -> None:
        received.append(number)
        if callable(signal.getsignal(signal.SIGINT)):
            signal.raise_signal(signal.SIGINT)  # its handler may have to wait until a process has started
        else:  # a shell without job control lets its background processes ignore SIGINT
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # which alone may set handlers
        yield received
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, before)


def notice(message: object) -> None:
    """Print one line on stderr, without the control characters that names of files and messages may hold."""
    print(one_line(message), file=sys.stderr, flush=True)


def trial_seeds(trials: int, seed: int) -> range:
    """Return the seeds of so many trials, checked: trial k has seed + k."""
    from wordsway.checks import check_seed, check_trials

    count, first = check_trials(trials), check_seed(seed)
    if first + count > 2**63:
        raise InputError(f"seed + trials must be at most 2^63, got {seed} + {trials}: choose a smaller seed")
    return range(first, first + count)


def run_trials(
    trial: Callable[[int], Rows], trials: int, seed: int, as_json: bool, show: Callable[[Rows], None]
) -> None:
    """Deliver the rows of each trial as it ends; on a terminal, a bar on stderr counts the trials."""
    seeds = trial_seeds(trials, seed)

    def results() -> Iterator[Rows]:
        from tqdm.auto import tqdm

        with tqdm(total=len(seeds), desc="trials", unit="trial", leave=False, disable=None) as bar:
            for number in seeds:
                rows = trial(number)
                bar.clear()  # the rows may be printed on the same terminal
                yield rows
                bar.update()

    deliver(results(), as_json, show)


def deliver(results: Iterable[Rows], as_json: bool, show: Callable[[Rows], None]) -> None:
    """Print each row as JSON as soon as it arrives, or show all rows at the end.

    An error or an interrupt loses none of the rows that have arrived.
    """
    finished: Rows = []
    try:
        for rows in results:
            if as_json:
                print_json(rows)
            else:
                finished += rows
    finally:
        if finished:
            show(finished)


def print_json(rows: Iterable[dict[str, Any]]) -> None:
    """Print one JSON object per line."""
    for row in rows:
        print(json.dumps(row, allow_nan=False), flush=True)


def texts_of(text: str | None, file: str | None, column: str | None, pair: str | None = None) -> list[Line] | None:
    """Return the texts of ``--input``, or None where one TEXT is given; exactly one of them must be."""
    for wrong, message in (
        ((text is None) == (file is None), "give either TEXT or --input FILE"),
        (file is None and column is not None, "--column needs --input: one text has no columns"),
        (file is not None and pair is not None, "--pair and --input exclude each other: a pair is about one text"),
    ):
        if wrong:
            raise typer.BadParameter(message)
    from wordsway.data.texts import read_texts

    return None if file is None else read_texts(file, column or "text")


def each_text(
    lines: Sequence[Line], file: str, results: Iterable[T | WordswayError]
) -> Iterator[tuple[int, Line, T | None]]:
    """Yield the number and the line of each text of a file with its result; an error is reported, and gives None."""
    for number, (line, result) in enumerate(zip(lines, results, strict=True)):
        if isinstance(result, WordswayError):
            notice(f"wordsway: text {number} (line {line.number} of {file}): {result}")
            yield number, line, None
        else:
            yield number, line, result


def measured(lines: Iterable[Line], measure: Callable[[str], T]) -> Iterator[T | WordswayError]:
    """Yield what is measured on each text, or why it could not be."""
    for line in lines:
        try:
            yield measure(line.text)
        except (InputError, NumericalError) as error:
            yield error


def check_refused(refused: int, lines: Sequence[Line]) -> None:
    """End a command with exit code 1 if some texts could not be measured."""
    if refused:
        notice(f"wordsway: {refused} of {len(lines)} texts could not be measured")
        raise typer.Exit(1)
