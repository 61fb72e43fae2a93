"""The search engine: maximise a function of one or several moves, each in its own ball, for many problems at once.

Two strategies share it. Smooth and cheap functions take many starts, the generalised power iteration and L-BFGS along
the ball. Expensive functions with kinks and plateaus at every scale, such as transformers, take an ascent with steps of
shrinking length, in rounds.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from tqdm.auto import tqdm

from wordsway.errors import InputError

Array: TypeAlias = npt.NDArray[np.floating[Any]]
# (B, G, m, d) -> values (B, G) and, if wanted, gradients (B, G, m, d): B starts for each of G problems of m moves
Objective: TypeAlias = Callable[[Array, bool], tuple[Array, Array | None]]
Nearby: TypeAlias = Callable[[Array], Array]
Exchange: TypeAlias = Callable[[Array, Array], Array]
# (B, G, m, d) -> values (B, G), excesses (B, G, K), and a function of their weights -> gradients (B, G, m, d)
Piece: TypeAlias = Callable[[Array], tuple[Array, Array, Callable[[Array], Array]]]
Pieces: TypeAlias = Callable[[Array], Piece]

# Of the ascent, tuned on texts of 4 to 64 tokens of an encoder (minilm) and a decoder (SmolLM2): steps in shares of the
# radius, from the first to the last of a round, and how much of a step is carried over to the next one.
_FIRST_ROUND, _LATER_ROUNDS, _MOMENTUM = (0.4, 0.1), (0.2, 0.03), 0.3
_ANNEAL_MOMENTUM = 0.7  # tuned on relu scores, 50 x 96: steps along kinks zigzag without it
# Of random steps, tuned on relu scores, 1 to 15 words: points that they start from, how many of each, change of length.
_SCATTERED, _TRIES, _LONGER, _SHORTER = 32, 40, 1.3, 0.85
# Of the climb on smooth pieces, tuned on relu scores, 5 to 250 words: how many points anneal, and how many of these
# climb, each with several weights of squared excesses, relative to value and radius (small ones end higher, but may
# leave the basin for good), how these grow from round to round, and the quasi-Newton steps of a round.
_ANNEALED, _FOLLOWED, _STIFF, _STIFFER, _PIECE_STEPS = 10, 4, (60.0, 200.0), 3.0, 20
_SAME = 0.99  # cosine from which on two starts count as one after the power iterations
# Cosine from which on a start agrees with the best one. Tuned on 250 contexts: after the power iterations all selected
# starts agree for 96% of the words of reviews (100 x 384, softmax), and in none of 12 contexts with a gap.
_AGREE = 0.85
_ROUND = 8  # steps of the first round
_SETTLED = 0.01  # an ascent whose second half gained less, relative to its value, has converged


@dataclass(frozen=True)
class SearchBudget:
    """How hard to search.

    Attributes
    ----------
    power : int
        Power iterations for every start.
    select, screen : int
        How many starts go on (a third of them where that is more), and their quasi-Newton steps.
    keep, polish : int
        How many starts go on (a quarter of them where that is more), and their quasi-Newton steps.
    anneal : int
        Gradient steps of shrinking length that follow, for functions with kinks.
    follow : int
        Rounds of quasi-Newton steps along kinks that follow, where the smooth pieces of the function are known.
    scatter : int
        Rounds of random steps that follow, for functions that also jump.
    exchange : int
        Rounds of further searches, at most, from points in other basins that the response names near the witness. Only
        for problems whose starts led to different points, and as long as a round gains more than a thousandth.
    ascent : int
        In place of all these: steps of an ascent in rounds, for expensive functions. The rounds of a short search are
        the first ones of a longer search, so that more steps never find less.
    history : int
        Pairs of steps and gradients that quasi-Newton directions are made of.
    tolerance : float
        A start is done when its quadratic model promises a smaller gain, relative to its value.
    """

    power: int = 5
    select: int = 12
    screen: int = 7
    keep: int = 3
    polish: int = 24
    anneal: int = 0
    follow: int = 0
    scatter: int = 0
    exchange: int = 4
    ascent: int = 0
    history: int = 6
    tolerance: float = 1e-5

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self) if field.name != "tolerance"):
            value, smallest = getattr(self, name), int(name in ("select", "keep", "history"))
            try:
                enough = not isinstance(value, bool) and operator.index(value) >= smallest
            except TypeError:
                enough = False
            if not enough:
                raise InputError(f"{name} must be an integer >= {smallest}, got {value!r}")
        try:
            positive = math.isfinite(self.tolerance) and self.tolerance > 0
        except TypeError:
            positive = False
        if not positive:
            raise InputError(f"tolerance must be a finite number > 0, got {self.tolerance!r}")


# After a search in float32: quasi-Newton steps in float64, and how far values may differ between both.
_FINISH, _MISLED = SearchBudget(screen=0, keep=1, polish=6), 1e-3


@dataclass(frozen=True)
class SearchResult:
    """The best move of each problem: a witness, so `value` is a lower bound on the supremum.

    `gain` is how much the second half of an ascent added to each value, None for other searches; `agreed` is whether
    the starts that were polished had come near the best of them before, None for an ascent.
    """

    value: Array  # G
    delta: Array  # G m d
    converged: npt.NDArray[np.bool_]  # G
    evaluations: int
    gain: Array | None = None  # G
    agreed: npt.NDArray[np.bool_] | None = None  # G


def maximise(
    objective: Objective,
    starts: Array,
    radius: float | Array,
    budget: SearchBudget | None = None,
    nearby: Nearby | None = None,
    inside: bool = False,
    pieces: Pieces | None = None,
    exchange: Exchange | None = None,
    progress: bool = False,
) -> SearchResult:
    """Maximise over |Delta_l| <= radius for each of the m moves l. Never returns less than the best value seen.

    Without an ascent: first the generalised power iteration Delta <- r g / |g|, then L-BFGS along the ball: on the
    sphere while the gradient points outwards, inside when it points inwards. One evaluation of the batch per step; a
    problem whose step fails keeps its point and shortens the step. At last the witness is shrunk along its ray, and
    polished again where that is better.

    Parameters
    ----------
    objective : callable
        (B, G, m, d), bool -> values (B, G), gradients (B, G, m, d).
    starts : array (B, G, m, d)
        Directions to start from; their length does not matter, unless `inside` or in an ascent.
    radius : float or array (G,)
        Radius of the balls of each problem.
    budget : SearchBudget
    nearby : callable, optional
        Points (B', G, m, d) in other basins near given ones (best first); they are polished too.
    inside : bool
        Whether the starts are points of the ball, rather than directions to its edge.
    pieces : callable, optional
        Points (B', G, m, d) -> the smooth piece of the objective that each is on, continued beyond its ends.
    exchange : callable, optional
        Witnesses (G, m, d) and their values (G,) -> points (B', G, m, d) that an ascent tries for every problem.
    progress : bool
        Show a bar on stderr when an ascent takes longer than two seconds.
    """
    budget = SearchBudget() if budget is None else budget
    if not isinstance(budget, SearchBudget):
        raise InputError(f"budget must be a SearchBudget or None, got {budget!r}: give SearchBudget(polish=60), say")
    reach = np.asarray(radius, starts.dtype).reshape(-1, 1, 1)  # G 1 1, or 1 1 1
    if budget.ascent:
        return _ascend(objective, starts, reach, budget.ascent, exchange, progress)
    best = _Best(starts)
    point = _to_ball(starts, reach) if inside else _to_sphere(starts, reach)
    for _ in range(budget.power):
        _, grad = best.climb(objective, point)
        point = _to_sphere(np.where(_length(grad) > 0, grad, point), reach)
    order = np.argsort(-best.look(objective, point), axis=0)  # B G
    point = _pick(order[: max(budget.select, len(order) // 3)], point)
    agreed = np.asarray(_near(point, point[:1]).all(0))
    skip = None
    if nearby is not None:
        point = np.concatenate([point[: (len(point) + 1) // 2], nearby(point)])  # in place of the worse half
    elif budget.power and starts.dtype == np.float32:  # in float64 results must not depend on which start is first
        skip = _repeated(point)
        order = np.argsort(skip, axis=0, kind="stable")
        point, skip = _pick(order, point), _pick_flags(order, skip)
    point, converged = _polish(objective, best, point, reach, budget, skip)
    if budget.anneal:
        point, converged = _anneal(objective, best, point, reach, budget)
    if budget.follow and pieces is not None:
        converged = _follow(objective, best, point, reach, pieces, budget)
    if budget.scatter:
        converged = _scatter(objective, best, point, reach, budget.scatter)
    before = best.value.copy()
    best.look(objective, np.linspace(0.1, 0.9, 9, dtype=starts.dtype).reshape(-1, 1, 1, 1) * best.delta)
    better = best.value > before + budget.tolerance * np.abs(before)
    if better.any():
        _, again = _polish(objective, best, best.delta[None].copy(), reach, budget, skip=~better)
        converged = np.where(better, again, converged)
    return SearchResult(best.value, best.delta, converged, best.evaluations, agreed=agreed)


def refine(objective: Objective, coarse: SearchResult, radius: float | Array) -> SearchResult | None:
    """The result of a search in float32, polished in float64; None where rounding misled that search.

    It did where a value that it reports is not that of its witness.
    """
    point: Array = coarse.delta.astype(np.float64)[None]
    reach = np.asarray(radius, np.float64).reshape(-1, 1, 1)
    best = _Best(point)
    point = _to_ball(point, reach)
    best.look(objective, point)
    if not (np.abs(best.value - coarse.value) <= _MISLED * np.abs(best.value)).all():
        return None
    if not coarse.converged.all():
        _polish(objective, best, point, reach, _FINISH)
    return replace(coarse, value=best.value, delta=best.delta, evaluations=coarse.evaluations + best.evaluations)


def _ascend(
    objective: Objective, starts: Array, reach: Array, steps: int, exchange: Exchange | None, progress: bool
) -> SearchResult:
    """Ascend along the gradient, with momentum and steps whose length shrinks within each round.

    Quasi-Newton steps fail on functions with kinks and plateaus at every scale, so the length of a step is prescribed.
    Rounds, their starts and the exchanges between problems depend on the steps before them only: the search of N steps
    is the beginning of every longer one, and what its second half gained is what doubling N / 2 steps has gained.
    """
    best = _Best(starts)
    half, taken = best.value, 0
    bar = tqdm(total=steps, desc="steps", delay=2, leave=False, disable=not progress)
    for length, start in _rounds(len(starts)):
        point = best.delta[None] if start is None else _to_ball(starts[start : start + 1], reach)
        first, last = _LATER_ROUNDS if taken else _FIRST_ROUND
        step = np.zeros_like(point)
        for share in np.geomspace(first, last, length)[: steps - taken].tolist():
            _, grad = best.climb(objective, point)
            step = _to_sphere(_MOMENTUM * step + (1 - _MOMENTUM) * _to_sphere(grad, reach), reach)
            point = _to_ball(point + share * step, reach)
            if taken == steps // 2:  # the point after N / 2 steps, which a search of that many looks at last
                half = best.value
            taken += 1
            bar.update()
        best.look(objective, point)
        if exchange is not None and taken >= 2 * _ROUND and taken & (taken - 1) == 0:  # after 16, 32, 64, ... steps
            best.look(objective, _to_ball(exchange(best.delta, best.value), reach))
        if taken == steps // 2:
            half = best.value
        if taken == steps:
            break
    bar.close()
    gain = best.value - half
    return SearchResult(best.value, best.delta, gain <= _SETTLED * np.abs(best.value), best.evaluations, gain)


def _rounds(starts: int) -> Iterator[tuple[int, int | None]]:
    """Lengths of the rounds of an ascent, each with the number of its start, or None for the best point so far.

    Whatever the search has done is doubled by as many steps: half of them from the best point, half from a new start.
    """
    yield _ROUND, 0
    yield _ROUND, None
    for doubling in itertools.count():
        length = _ROUND << doubling
        yield length, None
        yield length, (1 + doubling) % starts


class _Best:
    """The best point seen of each problem, and the number of evaluations of a batch."""

    def __init__(self, starts: Array) -> None:
        self.value: Array = np.full(starts.shape[1], -np.inf, starts.dtype)
        self.delta: Array = np.zeros_like(starts[0])
        self.evaluations = 0

    def climb(self, objective: Objective, point: Array) -> tuple[Array, Array]:
        value, grad = objective(point, True)
        self._note(value, point)
        return value, grad if grad is not None else np.zeros_like(point)

    def look(self, objective: Objective, point: Array) -> Array:
        value, _ = objective(point, False)
        self._note(value, point)
        return value

    def _note(self, value: Array, point: Array) -> None:
        self.evaluations += 1
        problems = np.arange(point.shape[1])
        start = value.argmax(0)
        top = value[start, problems]
        better = top > self.value
        self.value = np.where(better, top, self.value)
        self.delta = np.where(better[:, None, None], point[start, problems], self.delta)


def _pick(order: npt.NDArray[np.intp], x: Array) -> Array:
    """The chosen starts of each problem, (K, G) of (B, G, ...)."""
    return x[order, np.arange(x.shape[1])]


def _pick_flags(order: npt.NDArray[np.intp], x: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    return x[order, np.arange(x.shape[1])]


def _repeated(point: Array) -> npt.NDArray[np.bool_]:
    """Which starts are where a better one, before them, has come to: both would climb to the same maximum, (B, G)."""
    flat = np.moveaxis(point.reshape(*point.shape[:2], -1), 1, 0)  # G B m d
    lengths = np.linalg.norm(flat, axis=-1, keepdims=True)
    near = flat @ np.swapaxes(flat, 1, 2) > _SAME * lengths * np.swapaxes(lengths, 1, 2)  # G B B
    return np.asarray(np.tril(near, -1).any(-1).T)


def _near(point: Array, other: Array) -> npt.NDArray[np.bool_]:
    """Which points are in nearly the same direction as another one, by each of their moves, (B, G)."""
    cosines = np.einsum("bgmd,bgmd->bgm", point, other)[..., None] > _AGREE * _length(point) * _length(other)
    return np.asarray(cosines.all((-2, -1)))


def _dot(a: Array, b: Array) -> Array:
    """Inner products of whole moves, (B, G)."""
    return np.asarray(np.einsum("bgmd,bgmd->bg", a, b))


def _length(x: Array) -> Array:
    return np.asarray(np.sqrt(np.einsum("...d,...d->...", x, x))[..., None])


def _to_sphere(x: Array, reach: Array) -> Array:
    length = _length(x)
    return x * np.divide(reach, length, out=np.zeros_like(length), where=length > 0)


def _to_ball(x: Array, reach: Array) -> Array:
    return x * (reach / np.maximum(_length(x), reach))


def _held(grad: Array, point: Array, reach: Array) -> npt.NDArray[np.bool_]:
    """Which moves the ball holds back: at its edge, with a gradient that points outwards, (B, G, m, 1)."""
    outward = np.einsum("...d,...d->...", grad, point)[..., None] > 0
    return np.asarray(outward & (_length(point) > reach * (1 - 1e-6)))


def _along(x: Array, point: Array, held: npt.NDArray[np.bool_], reach: Array) -> Array:
    """x without its part across the edge of the ball, for the moves that are held back."""
    across = np.einsum("...d,...d->...", x, point)[..., None]
    return np.asarray(x - np.where(held, across / reach**2, 0.0) * point)


def _free(grad: Array, point: Array, reach: Array) -> Array:
    """The gradient along what may move: tangent where the ball holds the point back, whole elsewhere."""
    return _along(grad, point, _held(grad, point, reach), reach)


def _polish(
    objective: Objective,
    best: _Best,
    point: Array,
    reach: Array,
    budget: SearchBudget,
    skip: npt.NDArray[np.bool_] | None = None,
) -> tuple[Array, npt.NDArray[np.bool_]]:
    """L-BFGS ascent of every (start, problem) at its own pace; returns the points, and which problems converged.

    A start is done for good when its quadratic model promises less than the tolerance, or cannot reach the leader of
    its problem any more; so no problem's result depends on which others are solved with it.
    """
    keep = max(budget.keep, len(point) // 4)
    done: npt.NDArray[np.bool_] = np.zeros(point.shape[:2], bool)
    if skip is not None:
        done |= skip
    wanted = ~done.all(1) | (np.arange(len(point)) == 0)
    point, done = point[wanted], done[wanted]
    value, grad = best.climb(objective, point)
    held = _held(grad, point, reach)
    free = _along(grad, point, held, reach)
    pairs: list[tuple[Array, Array]] = []
    scale = np.ones_like(value)
    leader = _Leader(value.shape[1], value.dtype)
    for turn in range(budget.screen + budget.polish):
        if turn == budget.screen and len(value) > keep:
            # those that are done need no polish, unless annealing follows
            order = np.argsort(-value if budget.anneal else np.where(done, np.inf, -value), axis=0)[:keep]
            point, free, value, scale = (_pick(order, x) for x in (point, free, value, scale))
            held, done = _pick_flags(order, held), _pick_flags(order, done)
            pairs = [(_pick(order, step), _pick(order, bend)) for step, bend in pairs]
        ascent, promise = _direction(pairs, free, reach)
        settled = (promise <= budget.tolerance * np.abs(value)) | (scale < 1e-5)
        leader.note(value, settled, done)
        done |= settled | (value + 20 * promise < leader.value)
        going = np.asarray(~done.all(1))  # B
        if not going.any():
            break
        if not budget.anneal and going.sum() <= len(going) // 2:  # starts that are done need no more evaluations
            point, free, value, scale, ascent = (x[going] for x in (point, free, value, scale, ascent))
            held, done = held[going], done[going]
            pairs = [(step[going], bend[going]) for step, bend in pairs]
        # old pairs may point across the edge, where the objective only falls: the step stays along it
        ascent = _along(ascent, point, held, reach)
        trial = _to_ball(point + np.where(done, 0.0, scale)[..., None, None] * ascent, reach)
        trial_value, trial_slope = best.climb(objective, trial)
        trial_held = _held(trial_slope, trial, reach)
        trial_free = _along(trial_slope, trial, trial_held, reach)
        step, bend = trial - point, free - trial_free
        gain, hoped = trial_value - value, _dot(free, step)
        accept = (gain > 0) & (gain >= 1e-4 * hoped) & ~done
        taken = accept[..., None, None]
        pairs = [*pairs, (step * taken, bend * taken)][-budget.history :]
        point, free = np.where(taken, trial, point), np.where(taken, trial_free, free)
        held = np.where(taken, trial_held, held)
        value = np.where(accept, trial_value, value)
        # a failed step is shortened to where the parabola through what was seen has its top
        shorter = np.clip(0.5 * hoped / np.maximum(hoped - gain, 1e-30), 0.1, 0.5)
        scale = np.where(accept, 1.0, scale * shorter)
    leader.note(value, np.zeros(value.shape, bool), done)
    order = np.argsort(-value, axis=0)[:keep]
    return _pick(order, point), leader.settled


class _Leader:
    """The best value of each problem among the starts that were polished, and whether that start had settled."""

    def __init__(self, problems: int, dtype: Any) -> None:
        self.value: Array = np.full(problems, -np.inf, dtype)
        self.settled: npt.NDArray[np.bool_] = np.zeros(problems, bool)

    def note(self, value: Array, settled: npt.NDArray[np.bool_], done: npt.NDArray[np.bool_]) -> None:
        """Look at the starts that were going on until now."""
        problems = np.arange(value.shape[1])
        open_value = np.where(done, -np.inf, value)
        start = open_value.argmax(0)
        top = open_value[start, problems]
        better = top >= self.value
        self.value = np.where(better, top, self.value)
        self.settled = np.where(better & (top > -np.inf), settled[start, problems], self.settled)


def _anneal(
    objective: Objective, best: _Best, point: Array, reach: Array, budget: SearchBudget
) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Gradient steps whose length shrinks from a tenth to a thousandth of the reach: they cross and follow kinks.

    Quasi-Newton steps fail on a kink, because the model is wrong on its far side; these zigzag along it. After an
    eighth of the steps only the best quarter of the starts of each problem goes on. Returns the best point of each, and
    which problems converged: those whose last quarter of the steps gained less than a thousandth.
    """
    before, steps = best.value.copy(), budget.anneal
    step = np.zeros_like(point)
    top, height = point, np.full(point.shape[:2], -np.inf, point.dtype)
    for turn, length in enumerate((0.1 * np.geomspace(1, 0.01, steps)).tolist()):
        if turn == steps - steps // 4:
            before = best.value.copy()
        value, grad = best.climb(objective, point)
        top, height = np.where((value > height)[..., None, None], point, top), np.maximum(value, height)
        if turn == steps // 8:
            first = np.argsort(-height, axis=0)[: max(_ANNEALED if budget.follow else 1, len(value) // 4)]
            point, grad, step, top, height = (_pick(first, x) for x in (point, grad, step, top, height))
        free = _free(grad, point, reach)
        step = _ANNEAL_MOMENTUM * step + (1 - _ANNEAL_MOMENTUM) * _to_sphere(free, reach)
        point = _to_ball(point + length * _to_sphere(step, reach), reach)
    best.look(objective, point)
    return top, _settled(best, before)


def _follow(
    objective: Objective, best: _Best, point: Array, reach: Array, pieces: Pieces, budget: SearchBudget
) -> npt.NDArray[np.bool_]:
    """Climb on the smooth piece that each point is on, up to its ends and along them: an augmented Lagrangian.

    Steps of prescribed length zigzag across kinks where many pieces meet, and end lower. Every start is a problem of
    itself. Returns which problems converged: those whose last round gained less than a thousandth.
    """
    value = best.look(objective, point)
    order = np.argsort(-value, axis=0)
    point, value = _pick(order, point), _pick(order, value)
    order = np.argsort(_repeated(point), axis=0, kind="stable")[:_FOLLOWED]
    stiff = np.repeat(np.array(_STIFF, point.dtype), len(order)).reshape(-1, 1, 1)  # B 1 1
    order = np.tile(order, (len(_STIFF), 1))
    point, value = _pick(order, point), _pick(order, value)
    shape, line = point.shape, (1, -1, *point.shape[2:])  # B G m d; 1 BG m d
    limit = np.broadcast_to(reach, (shape[1], 1, 1))
    limits = np.tile(limit, (shape[0], 1, 1))
    scale = np.maximum(np.abs(value), np.finfo(point.dtype).tiny)[..., None]  # B G 1
    piece, multipliers = pieces(point), np.zeros(1, point.dtype)
    inner = replace(budget, screen=_PIECE_STEPS, polish=0, keep=1, anneal=0)
    before = best.value.copy()
    for _ in range(budget.follow):
        weight = stiff * scale / np.square(limit[..., 0])

        def lagrangian(
            x: Array, gradient: bool, held: Array = multipliers, weight: Array = weight
        ) -> tuple[Array, Array]:
            value, excess, pull = piece(x.reshape(shape))
            push = np.maximum(held + weight * excess, 0)
            value = (value - ((push**2 - held**2) / (2 * weight)).sum(-1)) / scale[..., 0]
            return value.reshape(1, -1), (pull(push) / scale[..., None]).reshape(x.shape)

        tried = _Best(point.reshape(line))
        point = _polish(lagrangian, tried, point.reshape(line), limits, inner)[0].reshape(shape)
        multipliers = np.maximum(multipliers + weight * piece(point)[1], 0)
        before = best.value.copy()
        best.evaluations += tried.evaluations + 1
        best.look(objective, point)
        stiff = stiff * _STIFFER
    return _settled(best, before)


def _scatter(objective: Objective, best: _Best, point: Array, reach: Array, rounds: int) -> npt.NDArray[np.bool_]:
    """Random steps from each point, longer after a gain and shorter after none; returns which problems converged.

    They find what gradients do not show: higher values beyond a jump, and the way along an edge where kinks meet.
    """
    value = best.look(objective, point)
    first = np.argsort(-value, axis=0)[:_SCATTERED]
    point, value = _pick(first, point), _pick(first, value)
    source = np.random.default_rng(0)  # the same steps for every problem and search
    length = np.full(value.shape, 0.1, value.dtype)
    unit = reach / math.sqrt(math.prod(point.shape[2:]))
    before = best.value.copy()
    for turn in range(rounds):
        if turn == rounds - rounds // 4:
            before = best.value.copy()
        steps = source.standard_normal((_TRIES, len(point), 1, *point.shape[2:])).astype(point.dtype)
        trials = _to_ball(point + length[..., None, None] * unit * steps, reach)  # T K G m d
        values = best.look(objective, trials.reshape(-1, *point.shape[1:])).reshape(_TRIES, *value.shape)
        higher = values.max(0) > value
        highest = np.take_along_axis(trials, values.argmax(0)[None, ..., None, None], 0)[0]
        point, value = np.where(higher[..., None, None], highest, point), np.maximum(value, values.max(0))
        length = np.maximum(np.where(higher, _LONGER * length, _SHORTER * length), 0.001)
    return _settled(best, before)


def _settled(best: _Best, before: Array) -> npt.NDArray[np.bool_]:
    return np.asarray(best.value <= before + 0.001 * np.abs(before))


def _direction(pairs: list[tuple[Array, Array]], free: Array, reach: Array) -> tuple[Array, Array]:
    """The L-BFGS direction (B, G, m, d) and the gain that its quadratic model promises (B, G).

    The two-loop recursion runs on coefficients: all inner products come from one Gram matrix. Pairs without positive
    curvature drop out; before the first good one, the direction is a tenth of a reach along the gradient.
    """
    count, (starts, problems) = len(pairs), free.shape[:2]
    vectors = np.stack([*(s for s, _ in pairs), *(b for _, b in pairs), free], axis=2)  # B G 2c+1 m d
    vectors = vectors.reshape(starts * problems, 2 * count + 1, -1)
    gram = (vectors @ vectors.transpose(0, 2, 1)).astype(np.float64)
    steep = np.sqrt(gram[:, -1, -1])
    tenth = np.broadcast_to(0.1 * reach[:, 0, 0], (starts, problems)).ravel()
    short = np.divide(tenth, steep, out=np.zeros_like(steep), where=steep > 0)
    mix = np.zeros(gram.shape[:2])
    mix[:, -1] = 1.0
    steps, bends = np.arange(count), np.arange(count, 2 * count)
    curvature, bend_square = gram[:, steps, bends], gram[:, bends, bends]
    good = (curvature > 0) & (curvature**2 > 1e-20 * gram[:, steps, steps] * bend_square)
    weights = np.divide(1.0, curvature, out=np.zeros_like(curvature), where=good)
    size = short
    for k in range(count):  # the newest good pair sets the scale
        size = np.where(good[:, k], curvature[:, k] / np.where(good[:, k], bend_square[:, k], 1.0), size)
    amounts = np.zeros_like(weights)
    for k in reversed(range(count)):
        amounts[:, k] = weights[:, k] * np.einsum("nv,nv->n", gram[:, k], mix)
        mix[:, count + k] -= amounts[:, k]
    mix *= size[:, None]
    for k in range(count):
        mix[:, k] += amounts[:, k] - weights[:, k] * np.einsum("nv,nv->n", gram[:, count + k], mix)
    falling = ~(np.einsum("nv,nv->n", gram[:, -1], mix) > 0)
    mix[falling] = 0.0
    mix[falling, -1] = short[falling]
    promise = 0.5 * np.einsum("nv,nv->n", gram[:, -1], mix).astype(free.dtype)
    ascent = (mix[:, None].astype(free.dtype) @ vectors).reshape(free.shape)
    return ascent, promise.reshape(starts, problems)
