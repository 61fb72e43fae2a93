"""Word sensitivity (4): S(X) = sup over i and |Delta| <= r of |phi(X^i(Delta)) - phi(X)| / |phi(X)|."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from wordsway.checks import as_context, check_position, check_radius, check_word
from wordsway.errors import InputError, NumericalError
from wordsway.maps import FeatureMap, Response, respond
from wordsway.maps.response import check_effort
from wordsway.memory import ResourceUsage
from wordsway.seeds import generator
from wordsway.sensitivity.records import Profile, Sensitivity, VocabularySensitivity, status
from wordsway.sensitivity.search import Array, Found, SearchBudget, maximise

_WITNESS = "lower bound with a witness"
_EXACT = "exact over the given embeddings"
_STARTS = 10
EXPENSIVE = SearchBudget(power=3, screen=0, keep=1, polish=28, tolerance=1e-4)
NONSMOOTH = SearchBudget(power=3, screen=4, polish=0, anneal=44)
_BATCH = 2**21  # entries of a (starts, words, n) array: what is kept in cache-friendly reach


def word_sensitivity(
    phi: FeatureMap,
    X: Any,
    word: int | Sequence[int] | str = 0,
    radius: float | None = None,
    *,
    together: bool = False,
    ceiling: str | None = "quick",
    seed: int = 0,
    budget: SearchBudget | None = None,
) -> Sensitivity:
    """Word sensitivity of a map at a context, with a witness below it and a certificate above it.

    Parameters
    ----------
    phi : callable
        The map; see `wordsway.respond` for what makes it fast.
    X : array (n, d)
        The context.
    word : int, sequence of int, or "all"
        One word; or several, of which the one that moves the map most is returned; "all" is the supremum over i in (4).
    radius : float, optional
        Radius r of the ball; sqrt(d) if left out.
    together : bool
        Whether the given words move at once, each in its own ball (Remark 4.2).
    ceiling : {"simple", "quick", "tight", None}
        How hard to work on the upper bound; None leaves it out.
    seed : int
        Seed of the random starts of the search.
    budget : SearchBudget, optional
        How hard to search.

    Notes
    -----
    About 70 evaluations of the response for each word, batched over words and starts.
    """
    context = as_context(X)
    words = _positions(len(context), word)
    if not together:
        return sensitivity_profile(phi, context, words, radius, ceiling=ceiling, seed=seed, budget=budget).best
    with ResourceUsage() as usage:
        response = respond(phi, context, words, together=True)
    found = response_sensitivity(response, tuple(words), radius, ceiling=ceiling, seed=seed, budget=budget)
    return replace(found, cost=replace(found.cost, seconds=found.cost.seconds + usage.seconds))


def response_sensitivity(
    response: Response,
    word: int | tuple[int, ...],
    radius: float | None = None,
    *,
    ceiling: str | None = "quick",
    seed: int = 0,
    budget: SearchBudget | None = None,
) -> Sensitivity:
    """Word sensitivity along one response, for example that of `random_feature_response`.

    `word` names what moves, for the record; the other parameters are those of `word_sensitivity`.
    """
    if response.batch:
        raise InputError(f"a response along one word (or words together) is needed, got one along {response.batch[0]}")
    r = check_radius(radius, response.shape[-1])
    if ceiling is not None:
        check_effort(ceiling)
    with ResourceUsage() as usage:
        found = _search(response, r, seed, budget)
        bound = None if ceiling is None else response.ceiling(r, ceiling)
    return Sensitivity(
        float(found.value[0]),
        None if bound is None else float(bound.value),
        word,
        _tensor(found.delta[0], response).reshape(response.shape),
        r,
        status(bool(found.converged[0])),
        _WITNESS,
        None if bound is None else bound.kind,
        0.0 if bound is None else bound.failure,
        usage.computed_in(response.hints.dtype, response.hints.device, found.evaluations),
    )


def sensitivity_profile(
    phi: FeatureMap,
    X: Any,
    words: Sequence[int] | None = None,
    radius: float | None = None,
    *,
    ceiling: str | None = "quick",
    seed: int = 0,
    budget: SearchBudget | None = None,
    progress: bool = False,
) -> Profile:
    """Word sensitivity of each word on its own; all words of the context unless some are named.

    Parameters are those of `word_sensitivity`; `progress` shows a bar on stderr when it takes longer than two seconds.
    """
    context = as_context(X)
    n, d = context.shape
    several = check_position(n, range(n) if words is None else words)
    if isinstance(several, int):
        raise InputError(f"a profile is of several words, got the single word {several}: give it as [{several}]")
    positions = list(several)
    r = check_radius(radius, d)
    if ceiling is not None:
        check_effort(ceiling)
    founds: list[Found] = []
    bounds = []
    with ResourceUsage() as usage:
        groups = list(_groups(positions, n))
        for group in tqdm(groups, desc="words", unit="group", delay=2, leave=False, disable=not progress):
            response = respond(phi, context, group)
            founds.append(_search(response, r, seed, budget))
            bounds.append(None if ceiling is None else response.ceiling(r, ceiling))
    known = [bound for bound in bounds if bound is not None]
    complete = len(known) == len(bounds)
    return Profile(
        tuple(positions),
        _tensor(np.concatenate([found.value for found in founds]), response),
        torch.cat([bound.value for bound in known]) if complete else None,
        _tensor(np.concatenate([found.delta[:, 0] for found in founds]), response),
        torch.from_numpy(np.concatenate([found.converged for found in founds])),
        r,
        _WITNESS,
        known[0].kind if complete else None,
        sum(bound.failure for bound in known) if complete else 0.0,
        usage.computed_in(response.hints.dtype, response.hints.device, sum(found.evaluations for found in founds)),
    )


def vocabulary_sensitivity(
    phi: FeatureMap, X: Any, word: int, embeddings: Any, *, progress: bool = False
) -> VocabularySensitivity:
    """Relative change for every replacement of one word by a row of `embeddings`: exact, no search.

    Parameters
    ----------
    phi, X, word
        The map, the context (n, d) and the position that is replaced.
    embeddings : array (v, d)
        The vectors that may stand there, scaled as the context's rows are.
    progress : bool
        Show a bar on stderr when it takes longer than two seconds.

    Notes
    -----
    v evaluations of the response without gradients, in large batches: O(v (n d + d^2)) for attention.
    """
    context = as_context(X).detach()
    n, d = context.shape
    position = check_word(n, word)
    try:
        table = as_context(embeddings).detach().to(context)
    except InputError as error:
        raise InputError(f"embeddings must be a table like a context, one vector a row: {error}") from None
    if table.shape[1] != d:
        raise InputError(f"embeddings must have the context's d={d} columns, got {table.shape[1]}")
    size = max(1, 2**25 // (n * d))
    with ResourceUsage() as usage:
        response = respond(phi, context, position)
        parts = [table[start : start + size] for start in range(0, len(table), size)]
        bar = tqdm(parts, desc="vocabulary", unit="batch", delay=2, leave=False, disable=not progress)
        values = torch.cat([response.change(part - context[position], gradient=False)[0] for part in bar])
    best = int(values.argmax())
    cost = usage.computed_in(response.hints.dtype, response.hints.device, len(parts))
    return VocabularySensitivity(position, values, best, float(values[best]), _EXACT, cost)


def _positions(n: int, word: int | Sequence[int] | str) -> list[int]:
    if isinstance(word, str) and word == "all":
        return list(range(n))
    if isinstance(word, str):
        raise InputError(f'word must be a position, a sequence of positions or "all", got {word!r}')
    position = check_position(n, word)
    return [position] if isinstance(position, int) else list(position)


def _groups(positions: list[int], n: int) -> Iterator[tuple[int, ...]]:
    """Words that are searched at once: as many as keep the work arrays small."""
    size = max(1, _BATCH // (2 * max(_STARTS * n, 1000)))
    for start in range(0, len(positions), size):
        yield tuple(positions[start : start + size])


def _search(response: Response, radius: float, seed: int, budget: SearchBudget | None) -> Found:
    """Maximise the relative change over the ball, from random starts and the response's own."""
    hints = response.hints
    if budget is None:
        budget = EXPENSIVE if hints.expensive else NONSMOOTH if hints.nonsmooth else None
    together = len(response.shape) == 2 and not response.batch
    moves, d = (response.shape[0], response.shape[1]) if together else (1, response.shape[-1])
    problems = response.batch[0] if response.batch else 1
    source = generator(seed, "starts")
    # the same directions for every word, so that a word's result does not depend on which others are measured
    starts = torch.randn(hints.random_starts, 1, moves, d, generator=source, dtype=torch.float64)
    starts = hints.cast(starts).expand(-1, problems, -1, -1)
    if hints.starts is not None:
        starts = torch.cat([starts, hints.starts().reshape(-1, problems, moves, d)])

    def lower(delta: Array) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(delta)).to(response.hints.device).reshape(-1, *response.shape)

    def objective(delta: Array, gradient: bool) -> tuple[Array, Array | None]:
        value, grad = response.change(lower(delta), gradient)
        gradients = None if grad is None else grad.cpu().numpy().astype(delta.dtype, copy=False).reshape(delta.shape)
        return value.cpu().numpy().astype(delta.dtype, copy=False).reshape(delta.shape[:2]), gradients

    nearby = None
    if (other_basins := hints.nearby) is not None:

        def nearby(delta: Array) -> Array:
            return np.asarray(other_basins(lower(delta)).cpu().numpy().reshape(-1, *delta.shape[1:]))

    found = maximise(objective, starts.cpu().contiguous().numpy(), radius, budget, nearby)
    if not np.isfinite(found.value).all():
        raise NumericalError("the change that was found is not finite: use a smaller radius")
    return found


def _tensor(array: Array, response: Response) -> Tensor:
    return torch.from_numpy(array).to(response.hints.device)
