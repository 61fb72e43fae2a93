"""Declarations of options that several commands share, and options that take several values."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

MapName = Annotated[
    str, typer.Argument(metavar="MAP", help="rf, drf, qkv, raf, relu-raf, sigmoid-raf or linear-raf: see wordsway maps")
]
Words = Annotated[int, typer.Option("--n", metavar="N", help="words in a context")]
Dimension = Annotated[int, typer.Option("--d", metavar="D", help="dimension of a word")]
Radius = Annotated[
    float | None, typer.Option(metavar="R", help="radius of the ball that the word moves in; default: sqrt(d)")
]
Trials = Annotated[int, typer.Option(metavar="T", help="number of trials; trial k = 0, 1, ... has seed S + k")]
TrialSeed = Annotated[
    int, typer.Option("--seed", metavar="S", help="seed of the first trial: of its inputs, weights and search")
]

Text = Annotated[str, typer.Argument(metavar="TEXT", help="the text, in quotes")]
Model = Annotated[
    str, typer.Option(metavar="NAME", help="minilm, smollm2, gpt2-random, a folder, a GGUF file or a name on the hub")
]
On = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="last|pooled|next|class|LAYER",
        help="output whose change is measured: last hidden state, its mean, distribution of the next token or over "
        "classes, or hidden state of a layer",
    ),
]
EmbeddingRadius = Annotated[
    float | None,
    typer.Option(
        "--radius",
        metavar="R",
        help="radius of the ball that the embedding moves in; default: the norm of the word's embedding",
    ),
]
Cut = Annotated[bool, typer.Option("--cut", help="cut a text that is too long for the model; default: refuse it")]
Chat = Annotated[bool, typer.Option("--chat", help="put the text into the model's chat template")]
Seed = Annotated[int, typer.Option(metavar="S", help="seed of the random numbers")]

Figures = Annotated[list[str] | None, typer.Argument(metavar="[FIGURE]...", help="names of figures; default: all")]
Out = Annotated[str, typer.Option("--out", metavar="DIR", help="folder of the store, the figures and the page")]

Json = Annotated[bool, typer.Option("--json", help="print one JSON object per line, as results arrive")]


def position_or_word(word: str) -> int | str:
    """Return what ``--word`` means: an integer is a position, anything else a word as it is written."""
    try:
        return int(word)
    except ValueError:
        return word


class SeveralValues(TyperCommand):
    """A command whose ``--lengths 16 64 240`` means ``--lengths 16 --lengths 64 --lengths 240``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spread_out(args))


def spread_out(arguments: list[str], names: tuple[str, ...] = ("--lengths",)) -> list[str]:
    """Repeat the name of an option with several values before each of them but the first."""
    spread: list[str] = []
    name: str | None = None
    first = False  # whether the next value follows the name itself
    for argument in arguments:
        if argument.startswith("-") and not _is_number(argument):
            name = argument if argument in names else None
            first = name is not None
            spread.append(argument)
        else:
            spread += [argument] if name is None or first else [name, argument]
            first = False
    return spread


def _is_number(argument: str) -> bool:
    try:
        float(argument)
    except ValueError:
        return False
    return True
