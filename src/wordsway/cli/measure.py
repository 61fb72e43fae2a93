"""The command `measure`: word sensitivity of a map, between a witness and an upper bound, or of a model at a text."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wordsway.cli.options import Device, Json, Model, OptionalMap, Trials, TrialSeed, position_or_word
from wordsway.cli.running import Rows, notice, run_trials, trial_seeds

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from wordsway.memory import ResourceUsage
    from wordsway.sensitivity import Sensitivity

_OF_MAPS = "--n, --d, --data, --depth, --width, --activation and --ceiling"
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
Word = Annotated[
    str,
    typer.Option(
        metavar="K|all", help="position of the word that moves, from 0, or each in turn; of a text, or a word"
    ),
]
Text = Annotated[
    str | None, typer.Option("--text", metavar="TEXT", help="measure a model at this text, in place of a map")
]
On = Annotated[
    str | None,
    typer.Option(
        "--on", metavar="OUTPUT", help="output of the model, as for wordsway text; default: last hidden state"
    ),
]
Radius = Annotated[
    float | None,
    typer.Option(
        metavar="R",
        help="radius of the ball that the word moves in; default: sqrt(d), or with --text the norm of its embedding",
    ),
]
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
    map_name: OptionalMap = None,
    text: Text = None,
    model: Model = "minilm",
    on: On = None,
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
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Measure the word sensitivity of a map: a lower bound with a witness, and an upper bound.

    With --text, measure that of a model at a text, without upper bound.
    """
    of_map = (n, d, depth, width, activation) != (None,) * 5 or data != "gaussian" or ceiling not in ("quick", "none")
    for wrong, message in (
        ((map_name is None) == (text is None), "give either MAP or --text TEXT"),
        (text is not None and of_map, f"{_OF_MAPS} are about maps: leave them out with --text"),
        (text is None and (model, on, device) != ("minilm", None, "auto"), "--model, --on and --device need --text"),
    ):
        if wrong:
            raise typer.BadParameter(message)
    if text is not None:
        _measure_text(text, model, on, word, radius, trials, seed, dtype, device, as_json)
        return
    from tqdm.auto import tqdm

    from wordsway.checks import check_choice, check_radius, check_word
    from wordsway.maps.catalogue import MapOptions, map_named
    from wordsway.memory import ResourceUsage
    from wordsway.report.measurements import print_trials
    from wordsway.sensitivity import response_sensitivity, sensitivity_profile

    named = map_named(str(map_name))
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
        more = options.given() if contexts.count is None else {**options.given(), "context": number % contexts.count}
        return [_row(result, named.name, (n, d), number, usage, data, more) for result in results]

    trial_seeds(trials, seed)  # raises before the note
    if (count := contexts.count) is not None and trials > count:
        note = f"{data} holds {count} of them, so they are used again, with new weights"
        notice(f"wordsway: {trials} trials need more contexts than there are: {note}")

    given = "".join(f" {name}={value}" for name, value in options.given().items())
    moved = "all words" if position is None else f"word {position}"
    title = f"{named.name}{given}, n={contexts.n} d={contexts.d}, {data}, {moved}, radius {reach:.4g}"
    run_trials(trial, trials, seed, as_json, lambda rows: print_trials(title, rows, every_word=position is None))


def _measure_text(
    text: str,
    name: str,
    on: str | None,
    word: str,
    radius: float | None,
    trials: int,
    seed: int,
    dtype: str | None,
    device: str,
    as_json: bool,
) -> None:
    """Measure a model at a text: its rows are tokens, and those of one word move in one ball."""
    from tqdm.auto import tqdm

    from wordsway.checks import check_choice, check_positive
    from wordsway.memory import ResourceUsage
    from wordsway.models import load
    from wordsway.models.ball import word_radii
    from wordsway.report.measurements import print_trials
    from wordsway.sensitivity import response_profile

    trial_seeds(trials, seed)
    if radius is not None:
        check_positive(radius, "radius")
    model = load(name, device=device, dtype=check_choice("dtype", dtype or "float32", DTYPES))
    read = model.read(text)
    words = read.scored if word == "all" else [read.word(position_or_word(word))]
    phi = model.features(read, on)
    X = phi.embedded
    n, d = X.shape
    reaches = word_radii(phi, words, radius).tolist()

    def trial(number: int) -> Rows:
        rows = []
        hidden = not sys.stderr.isatty()
        pairs = list(zip(words, reaches, strict=True))
        for one, reach in tqdm(pairs, desc="words", unit="word", delay=2, leave=False, disable=hidden):
            with ResourceUsage() as usage:
                result = response_profile(phi.along([one.tokens]), [one.position], [reach], seed=number).at(0)
            more = {"on": phi.output.name, "spelling": one.text}
            rows.append(_row(result, model.name, (n, d), number, usage, text, more))
        return rows

    moved = "all words" if word == "all" else f'word {words[0].position} "{words[0].text}"'
    reach = reaches[0] if len(set(reaches)) == 1 else None
    ball = "the norm of each embedding" if reach is None else f"{reach:.4g}"
    title = f"{model.name} on {phi.output.name}, n={n} d={d}, {moved}, radius {ball}"
    run_trials(trial, trials, seed, as_json, lambda rows: print_trials(title, rows, every_word=word == "all"))


def _row(
    result: Sensitivity,
    name: str,
    sizes: tuple[int, int],
    seed: int,
    usage: ResourceUsage,
    data: str,
    more: dict[str, Any],
) -> dict[str, Any]:
    return {
        "map": name,
        "n": sizes[0],
        "d": sizes[1],
        "word": result.word,
        "seed": seed,
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
        **more,
    }


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
