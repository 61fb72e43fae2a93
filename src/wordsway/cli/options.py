"""Declarations of options that several commands share, and how commands parse them and show their help."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from wordsway.errors import nearest


def _known_map(name: str | None) -> str | None:
    """Refuse an unknown map before the parser complains about other options."""
    if name is not None and name not in _stored_names("maps"):
        from wordsway.maps.catalogue import map_named

        map_named(name)
    return name


def _stored_names(kind: str) -> list[str]:
    from wordsway.cli.lists import stored_lists

    return [row["name"] for row in stored_lists()[kind]]


def _completion(kind: str) -> Callable[[str], list[str]]:
    """Return what a shell calls to complete the name of a map or of a figure."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in _stored_names(kind) if name.startswith(incomplete)]

    return complete


_MAP = typer.Argument(
    metavar="MAP",
    callback=_known_map,
    autocompletion=_completion("maps"),
    help="rf, drf, qkv, raf, relu-raf, sigmoid-raf or linear-raf: see wordsway maps",
)
MapName = Annotated[str, _MAP]
OptionalMap = Annotated[str | None, _MAP]
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
    str,
    typer.Option(
        metavar="NAME",
        help="minilm, minilm-sentiment, mpnet, smollm2, gpt2-random, a folder, a GGUF file or a name on the hub",
    ),
]
Device = Annotated[
    str,
    typer.Option(
        metavar="auto|cpu|cuda|...", help="where the model runs; auto: the first CUDA device, or the CPU without one"
    ),
]
Dtype = Annotated[str, typer.Option(metavar="NAME", help="dtype of the model: float16, bfloat16, float32 or float64")]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="class|next|pooled|last|mask|token WORD|LAYER",
        help="output whose change is measured: class, distribution of the next token, mean of the last hidden state, "
        "that of all tokens, distribution of the token that is masked in the text, class of a word, or hidden state of "
        "a layer; default: the first of class, next and pooled that the model has",
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
Label = Annotated[
    str | None, typer.Option(metavar="CLASS", help="follow the probability of this class; default: the predicted one")
]
Answers = Annotated[
    list[str] | None,
    typer.Option(
        "--answer",
        metavar="WORD",
        help="probability that a decoder goes on with this word, or that it is the masked one; may be repeated",
    ),
]
Pair = Annotated[
    str | None, typer.Option(metavar="TEXT", help="a second text, for models that read two, such as a hypothesis")
]
Candidates = Annotated[
    str,
    typer.Option(
        metavar="near:K|vocabulary|mask|delete|FILE",
        help="replacements of each word: the K words with the nearest embeddings, all words of the vocabulary, the "
        "mask, nothing, or a file whose lines list words that may replace each other",
    ),
]
Target = Annotated[
    str | None, typer.Option(metavar="TEXT", help="logarithm of the probability that a decoder goes on with this text")
]
Input = Annotated[
    str | None, typer.Option("--input", metavar="FILE", help="many texts: a .txt (one per line), .csv or .jsonl file")
]
Column = Annotated[
    str | None, typer.Option(metavar="NAME", help="with --input: column or key of the texts; default: text")
]
TextOrFile = Annotated[str | None, typer.Argument(metavar="TEXT", help="the text, in quotes; or use --input")]
Cut = Annotated[bool, typer.Option("--cut", help="cut a text that is too long for the model; default: refuse it")]
Chat = Annotated[bool, typer.Option("--chat", help="put the text into the model's chat template")]
Seed = Annotated[int, typer.Option(metavar="S", help="seed of the random numbers")]

Figures = Annotated[
    list[str] | None,
    typer.Argument(metavar="FIGURE", autocompletion=_completion("figures"), help="names of figures; default: all"),
]
Out = Annotated[str, typer.Option("--out", metavar="DIR", help="folder of the store, the figures and the page")]
Workers = Annotated[int | None, typer.Option(metavar="W", help="processes; default: one per core")]
Dask = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="run on the Dask cluster whose scheduler is at tcp://HOST:PORT")
]

Json = Annotated[bool, typer.Option("--json", help="print one JSON object per line, as results arrive")]


def position_or_word(word: str) -> int | str:
    """Return what ``--word`` means: an integer is a position, anything else a word as it is written."""
    try:
        return int(word)
    except ValueError:
        return word


class Command(TyperCommand):
    """A command with plain help, helpful usage errors, and options that take several values."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.allow_extra_args = any(parameter.name == "text" for parameter in self.params)  # refused below
        try:
            rest = super().parse_args(ctx, spread_out(args))
        except Exception as error:
            unknown: Any = error
            if hasattr(error, "possibilities"):  # an option that does not exist
                known = [option for parameter in self.get_params(ctx) for option in parameter.opts]
                unknown.message += nearest(unknown.option_name, known)
                unknown.possibilities = None
            raise
        if rest:
            example = f'{ctx.command_path} "I love her smile"'
            ctx.fail(f"the text must be one argument, got {1 + len(rest)}: put it in quotes, as in {example}")
        return rest


class Group(TyperGroup):
    """A group of commands with plain help."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


def _without_types(parameters: list[Any]) -> list[Any]:
    """Leave the Python types of flags and arguments out of the help: their names and metavars describe them."""
    for parameter in parameters:
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: None
        elif parameter.is_flag:
            parameter.metavar = ""
    return parameters


def spread_out(arguments: list[str], names: tuple[str, ...] = ("--lengths",)) -> list[str]:
    """Repeat the name of an option for each of its values, which are separated by blanks or commas."""
    spread: list[str] = []
    name: str | None = None
    for argument in arguments:
        value = argument
        if argument.startswith("-") and not _is_number(argument):
            option, equals, value = argument.partition("=")
            name = option if option in names else None
            if name is None or not equals:
                spread.append(argument)
                continue
        if name is None:
            spread.append(value)
            continue
        if spread[-1:] == [name]:
            spread.pop()
        spread += [f"{name}={one}" for one in value.split(",")]
    return spread


def _is_number(argument: str) -> bool:
    try:
        float(argument)
    except ValueError:
        return False
    return True
