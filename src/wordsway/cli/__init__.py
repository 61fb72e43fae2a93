"""The command line: a command parses its options, calls the library and shows the result.

Heavy modules are imported when a command runs, so that help is printed at once.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import metadata
from typing import Annotated, Any, NoReturn

import typer

from wordsway.cli import (
    audit,
    flips,
    generalize,
    kernels,
    length,
    lipschitz,
    lists,
    measure,
    reproduce,
    results,
    serve,
    swaps,
    text,
)
from wordsway.cli.options import Command, Group
from wordsway.cli.running import interruptible
from wordsway.errors import InputError, WordswayError, one_line

app = typer.Typer(
    name="wordsway",
    cls=Group,
    help="How far can one word move a model?",
    epilog="Example: wordsway measure raf --n 100 --d 384 --data imdb --trials 3",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# The commands in the order of the help, each with an example.
_COMMANDS: tuple[tuple[Callable[..., None], str], ...] = (
    (measure.measure, "wordsway measure raf --n 100 --d 384 --data imdb --trials 3"),
    (lists.maps, "wordsway maps --json"),
    (text.text, 'wordsway text "I love her smile"'),
    (swaps.swaps, 'wordsway swaps "I love her smile" --word smile --top 5'),
    (flips.flips, 'wordsway flips "The film was not good, but the acting was brilliant."'),
    (audit.audit, "wordsway audit reviews.csv --model minilm-sentiment --limit 100"),
    (serve.serve, "wordsway serve --model minilm-sentiment --port 8000"),
    (length.length, "wordsway length --lengths 16 64 256"),
    (lists.models, "wordsway models --json"),
    (generalize.generalize, "wordsway generalize raf --n 40 --d 384 --samples 400 --data imdb"),
    (lipschitz.lipschitz, "wordsway lipschitz --layer 3 --lengths 16 64 240"),
    (kernels.ntk, "wordsway ntk --samples 1000 --width 300"),
    (kernels.robustness, "wordsway robustness ntk --samples 400 --d 1000 --width 100 --activation cos"),
    (reproduce.reproduce, "wordsway reproduce fig2-rf fig3-raf --scale quick"),
    (lists.figures, "wordsway figures --json"),
)
for _command, _example in _COMMANDS:
    _options: dict[str, Any] = {"cls": Command, "epilog": f"Example: {_example}"}
    app.command(**_options)(interruptible(_command))
app.add_typer(results.results, name="results")


def _print_version(wanted: bool) -> None:
    if wanted:
        print("wordsway", metadata.version("wordsway"))
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version and exit")
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an error of wordsway becomes one line on stderr and exit code 1."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a word that a terminal cannot show must not end a measurement
    try:
        _check_working_directory()
        app(args=arguments, prog_name="wordsway")
    except WordswayError as error:
        _end(str(error))
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        _end(f"the memory does not suffice ({one_line(error, 120)}): use smaller sizes, or a larger memory limit")
    except OSError as error:  # a full disk, most of all
        where = f" ({error.filename})" if error.filename else ""
        _end(f"cannot continue: {error.strerror or error}{where}")


def _check_working_directory() -> None:
    """Raise where the working directory was removed: PyTorch would end the process with a message about MKL."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise InputError("the working directory does not exist any more: change to one that does") from None


def _is_out_of_memory(error: Exception) -> bool:
    """Return whether an error is that of an allocator: Python's, NumPy's, or one of PyTorch's, which have no class."""
    return isinstance(error, MemoryError) or any(
        part in str(error) for part in ("can't allocate memory", "out of memory", "bad_alloc")
    )


def _end(message: str) -> NoReturn:
    """Print one line and exit; output that could not be written before cannot be written now either."""
    print("wordsway:", one_line(message), file=sys.stderr)
    with suppress(OSError):
        sys.stdout.flush()
    sys.exit(1)
