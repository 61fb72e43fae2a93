"""The command line: parse, call one function, print. What is heavy is imported when a command runs."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import metadata
from typing import Annotated, NoReturn

import typer

from wordsway.cli import generalize, hear, kernels, laboratory, lipschitz, models, swaps, text
from wordsway.cli.greedy import Greedy
from wordsway.cli.interrupt import interruptible
from wordsway.errors import WordswayError

app = typer.Typer(
    name="wordsway",
    help="How far can one word move a model?",
    epilog="Example: wordsway measure raf --n 100 --d 384 --data imdb --trials 3",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Map = Annotated[
    str, typer.Argument(metavar="MAP", help="rf, drf, qkv, raf, relu-raf, sigmoid-raf or linear-raf: see wordsway maps")
]
N = Annotated[int | None, typer.Option("--n", metavar="N", help="words in a context; a file brings its own")]
D = Annotated[int | None, typer.Option("--d", metavar="D", help="dimension of a word; a file brings its own")]
Data = Annotated[
    str,
    typer.Option(
        metavar="gaussian|imdb|FILE.npy",
        help="random contexts; film reviews as an encoder embeds them (word 0 is its opening [CLS]); or floats of "
        "shape (n, d) or (count, n, d) from a file. Rows are rescaled to norm sqrt(d)",
    ),
]
Word = Annotated[str, typer.Option(metavar="K|all", help="position of the word that moves, from 0, or each in turn")]
Depth = Annotated[int | None, typer.Option(metavar="L", help="layers of drf; 2 if left out")]
Width = Annotated[
    int | None, typer.Option(metavar="K", help="features of rf and drf, n d if left out; rows of qkv's weights, d")
]
Activation = Annotated[str | None, typer.Option(metavar="NAME", help="activation of rf and drf; relu if left out")]
Radius = Annotated[float | None, typer.Option(metavar="R", help="how far the word may move; sqrt(d) if left out")]
Trials = Annotated[int, typer.Option(metavar="T", help="number of trials; trial k = 0, 1, ... has seed S + k")]
Seed = Annotated[
    int, typer.Option(metavar="S", help="decides context, weights and search; from a file it takes context S mod count")
]
Ceiling = Annotated[str, typer.Option(metavar="simple|quick|tight|none", help="how hard to work on the upper bound")]
Dtype = Annotated[
    str | None, typer.Option(metavar="float64|float32", help="precision; float64, or that of the file, if left out")
]
Json = Annotated[bool, typer.Option("--json", help="one JSON object a line, as each trial ends")]
EachMap = Annotated[bool, typer.Option("--json", help="one JSON object a line, a map each")]


def _print_version(asked: bool) -> None:
    if asked:
        print("wordsway", metadata.version("wordsway"))
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version and exit")
    ] = False,
) -> None:
    pass


@app.command(epilog="Example: wordsway measure raf --n 100 --d 384 --data imdb --trials 3")
@interruptible
def measure(
    map_name: Map,
    n: N = None,
    d: D = None,
    data: Data = "gaussian",
    word: Word = "0",
    depth: Depth = None,
    width: Width = None,
    activation: Activation = None,
    radius: Radius = None,
    trials: Trials = 1,
    seed: Seed = 0,
    ceiling: Ceiling = "quick",
    dtype: Dtype = None,
    as_json: Json = False,
) -> None:
    """Measure how far one word moves a map: a witness below, a certificate above."""
    if data in ("gaussian", "imdb") and (n is None or d is None):
        from wordsway.maps.catalogue import map_named

        map_named(map_name)  # that there is no such map is said before what it would need
        raise typer.BadParameter(f"--n and --d must be given with --data {data}: only a file brings its own sizes")
    from wordsway.cli.plan import Request, resolve
    from wordsway.cli.trials import run
    from wordsway.cli.views import print_trials

    plan = resolve(Request(map_name, n, d, data, word, depth, width, activation, radius, trials, seed, ceiling, dtype))
    if plan.contexts is not None and trials > len(plan.contexts):
        note = f"{data} holds {len(plan.contexts)} of them, so they are used again, with new weights"
        print(f"wordsway: {trials} trials need more contexts than there are: {note}", file=sys.stderr)
    if not as_json:
        print_trials(plan, run(plan))
        return
    for records in run(plan):
        for record in records:
            print(json.dumps(record, allow_nan=False), flush=True)


@app.command(epilog="Example: wordsway maps --json")
@interruptible
def maps(as_json: EachMap = False) -> None:
    """List the maps that can be measured, with their formulas and options."""
    from wordsway.cli.views import print_maps

    print_maps(as_json)


app.command(epilog='Example: wordsway text "I love her smile"')(interruptible(text.text))
app.command(epilog='Example: wordsway swaps "I love her smile" --word smile --top 5')(interruptible(swaps.swaps))
app.command(cls=Greedy, epilog="Example: wordsway hear --lengths 16 64 256")(interruptible(hear.hear))
app.command(epilog="Example: wordsway models --json")(interruptible(models.models))
app.command(epilog="Example: wordsway generalize raf --n 40 --d 384 --samples 400 --data imdb")(
    interruptible(generalize.generalize)
)
app.command(cls=Greedy, epilog="Example: wordsway lipschitz --layer 3 --lengths 16 64 240")(
    interruptible(lipschitz.lipschitz)
)
app.command(epilog="Example: wordsway ntk --samples 1000 --width 300")(interruptible(kernels.ntk))
app.command(epilog="Example: wordsway robustness ntk --samples 400 --d 1000 --width 100 --activation cos")(
    interruptible(kernels.robustness)
)
app.command(epilog="Example: wordsway reproduce fig2-rf fig3-raf --scale quick")(interruptible(laboratory.reproduce))
app.command(epilog="Example: wordsway figures --json")(interruptible(laboratory.figures))
app.add_typer(laboratory.results, name="results")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; what wordsway refuses becomes one line on stderr and exit code 1."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a word that a terminal cannot show must not end a measurement
    try:
        app(args=arguments, prog_name="wordsway")
    except WordswayError as error:
        _end(str(error))
    except OSError as error:  # a full disk, most of all
        where = f" ({error.filename})" if error.filename else ""
        _end(f"cannot go on: {error.strerror or error}{where}")


def _end(message: str) -> NoReturn:
    """One line, and nothing else: what could not be written before cannot be written at the end either."""
    print("wordsway:", *message.split(), file=sys.stderr)
    with suppress(OSError):
        sys.stdout.flush()
    sys.exit(1)
