"""The command `measure`: word sensitivity of a map, between a witness and an upper bound."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from wordsway.cli.options import Json, MapName, Radius, Trials, TrialSeed
from wordsway.cli.running import Rows, notice, run_trials, trial_seeds

if TYPE_CHECKING:
    import torch
    from torch import Tensor

DRAWN = ("gaussian", "imdb")
CEILINGS = ("simple", "quick", "tight", "none")
DTYPES = ("float64", "float32")

N = Annotated[int | None, typer.Option("--n", metavar="N", help="words in a context; default: that of the file")]
D = Annotated[int | None, typer.Option("--d", metavar="D", help="dimension of a word; default: that of the file")]
Data = Annotated[
    str,
    typer.Option(
        metavar="gaussian|imdb|FILE.npy",
        help="random contexts; film reviews as an encoder embeds them (word 0 is [CLS]); or a file of floats of shape "
        "(n, d) or (count, n, d), of which a trial uses context seed mod count. Rows are rescaled to norm sqrt(d)",
    ),
]
Word = Annotated[str, typer.Option(metavar="K|all", help="position of the word that moves, from 0, or each in turn")]
Depth = Annotated[int | None, typer.Option(metavar="L", help="layers of drf; default: 2")]
Width = Annotated[
    int | None,
    typer.Option(metavar="K", help="features of rf and drf (default: n d), or rows of qkv's weights (d)"),
]
Activation = Annotated[str | None, typer.Option(metavar="NAME", help="activation of rf and drf; default: relu")]
Ceiling = Annotated[str, typer.Option(metavar="|".join(CEILINGS), help="upper bound: from cheap to tight, or none")]
Dtype = Annotated[
    str | None, typer.Option(metavar="|".join(DTYPES), help="precision; default: that of the file, or float64")
]


def measure(
    map_name: MapName,
    n: N = None,
    d: D = None,
    data: Data = "gaussian",
    word: Word = "0",
    depth: Depth = None,
    width: Width = None,
    activation: Activation = None,
    radius: Radius = None,
    trials: Trials = 1,
    seed: TrialSeed = 0,
    ceiling: Ceiling = "quick",
    dtype: Dtype = None,
    as_json: Json = False,
) -> None:
    """Measure the word sensitivity of a map: a lower bound with a witness, and an upper bound."""
    from tqdm.auto import tqdm

    from wordsway.checks import check_choice, check_radius, check_word
    from wordsway.maps.catalogue import MapOptions, map_named
    from wordsway.memory import ResourceUsage
    from wordsway.report.measurements import print_trials
    from wordsway.sensitivity import response_sensitivity, sensitivity_profile

    named = map_named(map_name)
    if data in DRAWN and (n is None or d is None):
        raise typer.BadParameter(f"--n and --d must be given with --data {data}: only a file has its own sizes")
    position = None if word == "all" else _position(word)
    bound = None if check_choice("ceiling", ceiling, CEILINGS) == "none" else ceiling
    contexts = Contexts(data, n, d, dtype)
    options = named.resolve(contexts.n, contexts.d, MapOptions(depth, width, activation))
    if position is not None:
        check_word(contexts.n, position)
    reach = check_radius(radius, contexts.d)
    shown = position is None and sys.stderr.isatty()

    def trial(number: int) -> Rows:
        context, n, d = contexts.at(number), contexts.n, contexts.d  # its cost does not count
        with ResourceUsage() as usage:
            if position is None and not named.lazy:
                phi = named.build(n, d, options, number, contexts.dtype)
                profile = sensitivity_profile(phi, context, radius=reach, ceiling=bound, seed=number, progress=shown)
                results = [profile.at(place) for place in range(n)]
            else:  # one word after another, each as if alone: the same numbers, and little memory
                results = []
                places = range(n) if position is None else [position]
                for place in tqdm(places, desc="words", unit="word", delay=2, leave=False, disable=not shown):
                    response = named.respond(context, place, options, number)
                    results.append(response_sensitivity(response, place, reach, ceiling=bound, seed=number))
        which = {} if contexts.count is None else {"context": number % contexts.count}
        return [
            {
                "map": named.name,
                "n": n,
                "d": d,
                "word": result.word,
                "seed": number,
                "sensitivity": result.value,
                "ceiling": result.ceiling,
                "seconds": round(usage.seconds, 6),
                "peak_mb": round(usage.peak_mb, 3),
                "dtype": result.cost.dtype,
                "status": result.status,
                "radius": result.radius,
                "data": data,
                "ceiling_kind": result.ceiling_kind,
                "failure": result.failure,
                **options.given(),
                **which,
            }
            for result in results
        ]

    trial_seeds(trials, seed)  # raises before the note
    if (count := contexts.count) is not None and trials > count:
        note = f"{data} holds {count} of them, so they are used again, with new weights"
        notice(f"wordsway: {trials} trials need more contexts than there are: {note}")

    given = "".join(f" {name}={value}" for name, value in options.given().items())
    moved = "all words" if position is None else f"word {position}"
    title = f"{named.name}{given}, n={contexts.n} d={contexts.d}, {data}, {moved}, radius {reach:.4g}"
    run_trials(trial, trials, seed, as_json, lambda rows: print_trials(title, rows, every_word=position is None))


class Contexts:
    """The contexts of the trials: drawn for each seed, or those of a file, which has its own sizes and dtype."""

    def __init__(self, data: str, n: int | None, d: int | None, dtype: str | None) -> None:
        import torch

        from wordsway.checks import check_choice, check_size
        from wordsway.contexts import load_contexts, normalize
        from wordsway.errors import InputError

        chosen = None if dtype is None else getattr(torch, check_choice("dtype", dtype, DTYPES))
        self.data = data
        self.stored: Tensor | None = None
        self.dtype: torch.dtype = chosen or torch.float64
        if not _is_file(data):
            self.n, self.d = check_size(n or 0, "n"), check_size(d or 0, "d")
            return
        stored = load_contexts(data)
        for number, context in enumerate(stored):
            try:
                context.copy_(normalize(context))  # before any conversion, so that nothing overflows
            except InputError as error:
                raise InputError(f"cannot use context {number} of {data}: {error}") from error
        self.stored = stored if chosen is None else stored.to(chosen)
        self.dtype = self.stored.dtype
        _, self.n, self.d = stored.shape
        for name, given, own in (("n", n, self.n), ("d", d, self.d)):
            if given is not None and given != own:
                raise InputError(f"{name} must be that of {data}, {own}, got {given}: leave --{name} out")

    @property
    def count(self) -> int | None:
        """The number of contexts of a file."""
        return None if self.stored is None else len(self.stored)

    def at(self, seed: int) -> Tensor:
        """The context (n, d) of the trial with that seed."""
        if self.stored is not None:
            return self.stored[seed % len(self.stored)]
        if self.data == "imdb":
            from wordsway.models import review_contexts

            return review_contexts(1, self.n, self.d, seed, self.dtype)[0][0]
        from wordsway.contexts import gaussian_context

        return gaussian_context(self.n, self.d, seed, self.dtype)


def _position(word: str) -> int:
    from wordsway.errors import InputError

    try:
        return int(word)
    except ValueError:
        raise InputError(f"word must be a position counted from 0, or all, got {word!r}") from None


def _is_file(data: str) -> bool:
    """Whether the data are a file; a name that is neither drawn nor looks like a path is a typing error."""
    import os

    from wordsway.errors import InputError, nearest

    if data in DRAWN:
        return False
    if data.endswith(".npy") or os.sep in data or os.path.exists(data):
        return True
    raise InputError(f"data must be gaussian, imdb or the path of a .npy file, got {data!r}{nearest(data, DRAWN)}")
