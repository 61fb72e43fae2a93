"""Word sensitivity (4): S(X) = sup over i and |Delta| <= r of |phi(X^i(Delta)) - phi(X)| / |phi(X)|."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from tqdm.auto import tqdm

from wordsway.checks import as_context, check_position, check_radius, check_word
from wordsway.errors import InputError, NumericalError
from wordsway.maps import Ceiling, FeatureMap, Response, respond
from wordsway.maps.response import SearchHints, check_effort
from wordsway.memory import ResourceUsage
from wordsway.seeds import generator, normal
from wordsway.sensitivity.records import Profile, Sensitivity, VocabularySensitivity, status
from wordsway.sensitivity.search import (
    Array,
    Exchange,
    Nearby,
    Piece,
    Pieces,
    SearchBudget,
    SearchResult,
    maximise,
    refine,
)
from wordsway.threads import suited

_WITNESS = "lower bound with a witness"
_EXACT = "exact over the given embeddings"
_STARTS = 10
_WORTH = 0.001  # relative gain of a round of exchanges from which on another one follows
# Operations per word, up to which all points beside a witness are searched on from. Above, those of the largest values
# found as much (250 x 768, Gaussian) in half the time; below, they would miss more than 0.5% for 6 to 31% of the words.
# Contexts of few words have so few points that all are searched on from: with 16 x 1024 the others would miss 2%.
_ALL_BESIDE, _FEW_BESIDE = 1e6, 100
EXPENSIVE = SearchBudget(power=3, screen=0, keep=1, polish=28, tolerance=1e-4)
NONSMOOTH = SearchBudget(power=3, screen=2, keep=24, polish=0, anneal=40, follow=5)
# Of cheap responses, those of short contexts: power iterations would lead many starts into few basins.
CHEAP = SearchBudget(power=0, select=300)
# Relu scores of short contexts have a basin for every set of keys that the moved row may attend to: all starts go on.
# Tuned on 180 contexts of 1 to 15 words and 2 to 12 dimensions: 97% of the searches end within 0.5% of the best known
# value, 92% with half the random steps, 70% with NONSMOOTH.
CHEAP_NONSMOOTH = SearchBudget(power=0, select=400, screen=0, keep=400, polish=0, anneal=60, scatter=60)
ASCENT = SearchBudget(ascent=16)  # of functions that are both
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
        One word (default: word 0 alone); or several, of which the one that moves the map most is returned; "all" is the
        supremum over i in (4).
    radius : float, optional
        Radius r of the ball; default: sqrt(d).
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
    sensitivity = response_sensitivity(response, tuple(words), radius, ceiling=ceiling, seed=seed, budget=budget)
    return replace(sensitivity, cost=replace(sensitivity.cost, seconds=sensitivity.cost.seconds + usage.seconds))


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
        result = search(response, r, seed, budget)
        bound = None if ceiling is None else response.ceiling(r, ceiling)
    return Sensitivity(
        float(result.value[0]),
        None if bound is None else float(bound.value),
        word,
        _tensor(result.delta[0], response).reshape(response.shape),
        r,
        status(bool(result.converged[0])),
        _WITNESS,
        None if bound is None else bound.kind,
        0.0 if bound is None else bound.failure,
        usage.computed_in(response.hints.dtype, response.hints.device, result.evaluations),
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
    """Word sensitivity of each word on its own; by default of all words of the context.

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
    results, bounds = [], []
    with ResourceUsage() as usage:
        groups = list(_groups(positions, n))
        for group in tqdm(groups, desc="words", unit="group", delay=2, leave=False, disable=not progress):
            response = respond(phi, context, group)
            results.append(search(response, r, seed, budget, progress=progress and len(groups) == 1))
            bounds.append(None if ceiling is None else response.ceiling(r, ceiling))
    return _profile(response, positions, results, bounds, r, usage)


def response_profile(
    response: Response,
    words: Sequence[int],
    radii: Sequence[float] | Tensor,
    *,
    seed: int = 0,
    budget: SearchBudget | None = None,
    starts: Tensor | None = None,
    progress: bool = False,
) -> Profile:
    """Word sensitivity of each word along one response, with a radius for each word.

    `words` names what moves, for the record. `starts` (B, *shape) are points to start from, in place of random ones and
    those of the response. Other parameters are those of `sensitivity_profile`; no ceilings are computed.
    """
    reach = torch.as_tensor(radii, dtype=torch.float64)
    with ResourceUsage() as usage:
        result = search(response, reach.numpy(), seed, budget, starts, progress)
    return _profile(response, words, [result], [None], reach, usage)


def _profile(
    response: Response,
    words: Sequence[int],
    results: Sequence[SearchResult],
    bounds: Sequence[Ceiling | None],
    radii: float | Tensor,
    usage: ResourceUsage,
) -> Profile:
    """The record of searches over groups of words, in their order."""
    known = [bound for bound in bounds if bound is not None]
    complete = len(known) == len(bounds)
    gains = [result.gain for result in results if result.gain is not None]
    return Profile(
        tuple(words),
        _tensor(np.concatenate([result.value for result in results]), response),
        torch.cat([bound.value for bound in known]) if complete else None,
        _tensor(np.concatenate([result.delta[:, 0] for result in results]), response),
        torch.from_numpy(np.concatenate([result.converged for result in results])),
        torch.as_tensor(radii, dtype=torch.float64).expand(len(words)),
        _WITNESS,
        known[0].kind if complete else None,
        sum(bound.failure for bound in known) if complete else 0.0,
        usage.computed_in(response.hints.dtype, response.hints.device, sum(r.evaluations for r in results)),
        torch.from_numpy(np.concatenate(gains)) if gains else None,
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
        The vectors that replace it, scaled as the context's rows are.
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
        raise InputError(f"embeddings must be a table like a context, one vector per row: {error}") from None
    if table.shape[1] != d:
        raise InputError(f"embeddings must have the context's d={d} columns, got {table.shape[1]}")
    size = max(1, 2**25 // (n * d))
    with ResourceUsage() as usage:
        response = respond(phi, context, position)
        parts = [table[start : start + size] for start in range(0, len(table), size)]
        bar = tqdm(parts, desc="vocabulary", unit="batch", delay=2, leave=False, disable=not progress)
        values = torch.cat(
            [response.change(response.hints.cast(part - context[position]), gradient=False)[0] for part in bar]
        )
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


def search(
    response: Response,
    radius: float | Array,
    seed: int = 0,
    budget: SearchBudget | None = None,
    starts: Tensor | None = None,
    progress: bool = False,
) -> SearchResult:
    """Maximise the change of a response over the ball, from random starts and those that its hints name.

    Where starts disagree, the search goes on from points beside the witness.
    """
    hints = response.hints
    budget = _default_budget(hints) if budget is None else budget
    result = _search(response, radius, seed, budget, starts, progress)
    if hints.exchange is None or hints.part is None or result.agreed is None:
        return result
    reach = np.broadcast_to(radius, len(result.value))
    numbers = np.flatnonzero(~result.agreed)
    for _ in range(budget.exchange):
        if not len(numbers):
            break
        part = response if len(numbers) == len(reach) else hints.part(numbers.tolist())
        before = result.value[numbers]
        result = _search_beside(part, reach[numbers], seed, budget, result, numbers)
        numbers = numbers[result.value[numbers] > before * (1 + _WORTH)]
    return result


def _search_beside(
    part: Response, reach: Array, seed: int, budget: SearchBudget, known: SearchResult, numbers: npt.NDArray[np.intp]
) -> SearchResult:
    """The better of a result and a search from points beside its witnesses, for the words with these numbers."""
    assert part.hints.exchange is not None
    witness = torch.from_numpy(known.delta[numbers]).to(part.hints.device).reshape(part.shape)
    with suited(part.hints.work):
        starts = torch.cat([witness[None], part.hints.exchange(witness, torch.from_numpy(known.value[numbers]))])
    enough = len(starts) > _FEW_BESIDE and (part.hints.work or 0) > _ALL_BESIDE * len(numbers)
    budget = replace(budget, power=0, select=budget.select if enough else len(starts))
    result = _search(part, reach, seed, budget, starts)
    better = result.value > known.value[numbers]
    value, delta, converged = known.value.copy(), known.delta.copy(), known.converged.copy()
    value[numbers[better]], delta[numbers[better]] = result.value[better], result.delta[better]
    converged[numbers[better]] = result.converged[better]
    evaluations = known.evaluations + result.evaluations
    return replace(known, value=value, delta=delta, converged=converged, evaluations=evaluations)


def _default_budget(hints: SearchHints) -> SearchBudget:
    if hints.expensive:
        return ASCENT if hints.nonsmooth else EXPENSIVE
    if hints.cheap:
        return CHEAP_NONSMOOTH if hints.nonsmooth else CHEAP
    return NONSMOOTH if hints.nonsmooth else SearchBudget()


def _search(
    response: Response,
    radius: float | Array,
    seed: int,
    budget: SearchBudget,
    starts: Tensor | None = None,
    progress: bool = False,
) -> SearchResult:
    """One search of `maximise`; its steps are in float32 where the response has such a twin."""
    hints = response.hints
    together = len(response.shape) == 2 and not response.batch
    moves, d = (response.shape[0], response.shape[1]) if together else (1, response.shape[-1])
    problems = response.batch[0] if response.batch else 1

    def lower(delta: Array) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(delta)).to(hints.device).reshape(-1, *response.shape)

    def objective(delta: Array, gradient: bool) -> tuple[Array, Array | None]:
        value, grad = response.change(lower(delta), gradient)
        gradients = None if grad is None else grad.cpu().numpy().astype(delta.dtype, copy=False).reshape(delta.shape)
        return value.cpu().numpy().astype(delta.dtype, copy=False).reshape(delta.shape[:2]), gradients

    def lifted(points: Tensor) -> Array:
        return np.asarray(points.cpu().contiguous().numpy().reshape(-1, problems, moves, d))

    nearby: Nearby | None = None
    pieces: Pieces | None = None
    exchange: Exchange | None = None
    if (other_basins := hints.nearby) is not None:

        def nearby(delta: Array) -> Array:
            return lifted(other_basins(lower(delta)))

    if (pieces_of := hints.pieces) is not None:

        def pieces(start: Array) -> Piece:
            piece = pieces_of(lower(start))

            def evaluate(delta: Array) -> tuple[Array, Array, Callable[[Array], Array]]:
                value, excess, pull = piece(lower(delta))
                return (
                    value.cpu().numpy().astype(delta.dtype, copy=False).reshape(delta.shape[:2]),
                    excess.cpu().numpy().astype(delta.dtype, copy=False).reshape(*delta.shape[:2], -1),
                    lambda weights: lifted(pull(torch.from_numpy(weights))).astype(delta.dtype, copy=False),
                )

            return evaluate

    if (shared := hints.exchange) is not None:

        def exchange(delta: Array, value: Array) -> Array:
            return lifted(shared(lower(delta)[0], torch.from_numpy(value)))

    if hints.single is not None:
        single = hints.single()
        rounded = None if starts is None else single.hints.cast(starts)
        with suited(hints.work):
            result = refine(objective, _search(single, radius, seed, budget, rounded, progress), radius)
        if result is not None:
            return result
    if starts is None:
        starts = _starts(response, problems, moves, d, seed)
    with suited(None if hints.work is None else hints.work * len(starts)):
        result = maximise(
            objective, lifted(starts), radius, budget, nearby, pieces=pieces, exchange=exchange, progress=progress
        )
    if not np.isfinite(result.value).all():
        raise NumericalError("the relative change is not finite: use a smaller radius")
    return result


def _starts(response: Response, problems: int, moves: int, d: int, seed: int) -> Tensor:
    """Random directions and what the hints name, (B, G, m, d).

    The random ones are the same for every word, so that a word's result does not depend on which others are measured.
    """
    hints = response.hints
    source = generator(seed, "starts")
    random = normal(source, (hints.random_starts, 1, moves, d))
    starts = hints.cast(random).expand(-1, problems, -1, -1)
    if hints.starts is None:
        return starts
    return torch.cat([starts, hints.starts(source).reshape(-1, problems, moves, d)])


def _tensor(array: Array, response: Response) -> Tensor:
    return torch.from_numpy(array).to(response.hints.device)
