"""What was asked for, checked in full before any trial starts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from wordsway.checks import check_choice, check_radius, check_size, check_word
from wordsway.contexts import gaussian_context, load_contexts, normalize
from wordsway.errors import InputError, nearest
from wordsway.maps.catalogue import MapOptions, NamedMap, map_named
from wordsway.seeds import check_seed

DRAWN = ("gaussian", "imdb")
CEILINGS = ("simple", "quick", "tight", "none")
DTYPES = {"float64": torch.float64, "float32": torch.float32}


@dataclass(frozen=True)
class Request:
    """The options of `measure` as they were typed."""

    map: str
    n: int | None
    d: int | None
    data: str = "gaussian"
    word: str = "0"
    depth: int | None = None
    width: int | None = None
    activation: str | None = None
    radius: float | None = None
    trials: int = 1
    seed: int = 0
    ceiling: str = "quick"
    dtype: str | None = None


@dataclass(frozen=True)
class Plan:
    """What will be measured; every field has been checked.

    Attributes
    ----------
    contexts : Tensor (count, n, d) or None
        Those of a file, normalised; None where each trial draws its own.
    word : int or None
        The word that moves; None for every word on its own.
    ceiling : str or None
        How hard to work on the upper bound; None for not at all.
    """

    map: NamedMap
    options: MapOptions
    n: int
    d: int
    data: str
    contexts: Tensor | None
    word: int | None
    radius: float
    ceiling: str | None
    trials: int
    seed: int
    dtype: torch.dtype

    def context(self, seed: int) -> Tensor:
        """The context of the trial with that seed, (n, d)."""
        if self.contexts is not None:
            return self.contexts[seed % len(self.contexts)]
        if self.data == "imdb":
            from wordsway.models import review_contexts

            return review_contexts(1, self.n, self.d, seed, self.dtype)[0][0]
        return gaussian_context(self.n, self.d, seed, self.dtype)


def resolve(request: Request) -> Plan:
    """Check everything that was asked for; only a file of contexts is read, since it decides n and d."""
    named = map_named(request.map)
    word = _parse_word(request.word)
    ceiling = check_choice("ceiling", request.ceiling, CEILINGS)
    trials = check_size(request.trials, "trials")
    seed = check_seeds(request.seed, trials)
    dtype = None if request.dtype is None else DTYPES[check_choice("dtype", request.dtype, tuple(DTYPES))]
    contexts = None
    if _is_file(request.data):
        contexts = _read(request.data, dtype)
        n, d = _agree(request, (contexts.shape[1], contexts.shape[2]))
    else:
        n, d = _size("n", request.n), _size("d", request.d)
    return Plan(
        map=named,
        options=named.resolve(n, d, MapOptions(request.depth, request.width, request.activation)),
        n=n,
        d=d,
        data=request.data,
        contexts=contexts,
        word=None if word is None else check_word(n, word),
        radius=check_radius(request.radius, d),
        ceiling=None if ceiling == "none" else ceiling,
        trials=trials,
        seed=seed,
        dtype=(dtype or torch.float64) if contexts is None else contexts.dtype,
    )


def _parse_word(text: str) -> int | None:
    if text == "all":
        return None
    try:
        return int(text)
    except ValueError:
        raise InputError(f"word must be a position counted from 0, or all, got {text!r}") from None


def check_seeds(seed: int, trials: int) -> int:
    """Trial k has seed + k, which must be a seed too."""
    first = check_seed(seed)
    if first + trials > 2**63:
        raise InputError(f"seed + trials must be at most 2^63, got {seed} + {trials}: choose a smaller seed")
    return first


def _is_file(data: str) -> bool:
    """Whether the data are a file; a name that is neither drawn nor looks like a path is a slip of the pen."""
    if data in DRAWN:
        return False
    if data.endswith(".npy") or os.sep in data or Path(data).exists():
        return True
    raise InputError(f"data must be gaussian, imdb or the path of a .npy file, got {data!r}{nearest(data, DRAWN)}")


def _read(path: str, dtype: torch.dtype | None) -> Tensor:
    """Read the contexts of a file and rescale their rows, so that a bad one is named before any trial."""
    contexts = load_contexts(path)
    for number, context in enumerate(contexts):
        try:
            context.copy_(normalize(context))
        except InputError as error:
            raise InputError(f"cannot use context {number} of {path}: {error}") from error
    return contexts if dtype is None else contexts.to(dtype)  # rescaled before, so that nothing overflows


def _agree(request: Request, found: tuple[int, int]) -> tuple[int, int]:
    """The sizes of a file, which the options may repeat but not change."""
    for name, asked, got in zip("nd", (request.n, request.d), found, strict=True):
        if asked is not None and asked != got:
            raise InputError(f"{name} must be that of {request.data}, {got}, got {asked}: leave --{name} out")
    return found


def _size(name: str, value: int | None) -> int:
    if value is None:
        raise InputError(f"--{name} must be given unless --data is a file, which brings its own")
    return check_size(value, name)
