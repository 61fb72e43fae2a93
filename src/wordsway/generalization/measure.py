"""Does training on a sentence teach anything about the same sentence with one word changed? (section 6 of the paper)

And how far does one word move the prediction of a re-trained model: O(sqrt(N / n)) for random features (appendix E).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wordsway.checks import (
    as_array,
    as_context,
    as_contexts,
    check_radius,
    check_several,
    check_word,
    describe,
    like_parameters,
)
from wordsway.errors import InputError
from wordsway.generalization.interpolator import Interpolator, check_labels, features_of
from wordsway.generalization.losses import TRAININGS, Array, Losses, Problem, functionals
from wordsway.generalization.records import Generalization, PredictionGap
from wordsway.maps import DeepRandomFeatures, FeatureMap, RandomFeatures, Response, respond
from wordsway.maps.response import Functionals
from wordsway.memory import ResourceUsage
from wordsway.seeds import generator, normal
from wordsway.sensitivity.records import status
from wordsway.sensitivity.search import SearchBudget, SearchResult, maximise
from wordsway.threads import suited

_SMOOTH = SearchBudget(power=0, select=24, screen=8, keep=3, polish=60, tolerance=1e-6)
_NONSMOOTH = SearchBudget(power=0, screen=12, keep=3, polish=20, anneal=60, tolerance=1e-6)
_MORE_STARTS = 30  # of maps with kinks, whose losses have many local minima
_BEST_STARTS = 24  # of those tried, for each problem
_GAP = SearchBudget(power=3, screen=8, polish=24)  # little: the prediction is nearly linear in Delta
_FLOOR = 1e-2  # added to losses, so that "relative to its value" means something near 0


def one_word_generalization(
    phi: FeatureMap,
    contexts: Any,
    labels: Any,
    X: Any,
    y: float,
    word: int = 0,
    *,
    losses: Sequence[str] = ("alignment", "error"),
    penalties: Sequence[float] = (0.0,),
    trainings: Sequence[str] = TRAININGS,
    radius: float | None = None,
    start: Any = None,
    seed: int = 0,
    budget: SearchBudget | None = None,
) -> list[Generalization]:
    """Train on contexts, then on (X, y), and change one word of X so that the loss on (X^i(Delta), -y) is small.

    Parameters
    ----------
    phi : callable
        The map; the model is linear in its features. See `wordsway.respond` for what makes it fast.
    contexts : array (N, n, d)
        Training samples, none of them X.
    labels : array (N,)
        -1 or +1.
    X : array (n, d)
        The new sample.
    y : {-1, +1}
        Its label.
    word : int
        The word that changes.
    losses, penalties, trainings : sequences
        Every combination is minimised, see `Problem`.
    radius : float, optional
        How far the word may move, default: sqrt(d).
    start : array (p,) or float, optional
        theta_0 of (12), from which the model is trained. A number s draws it, with independent N(0, s^2 / p) entries;
        default: 0.
    seed : int
        Seed of a random theta_0 and of the starts of the search.
    budget : SearchBudget, optional
        How long to search.

    Returns
    -------
    list of Generalization
        One per training, loss and penalty, in this order.

    Notes
    -----
    Features, kernel and its factor are computed once for all searches: O(N^2 p + N^3), and N evaluations of the map.
    Each step of the searches takes three functionals of the response per problem and start.
    """
    problems = _problems(trainings, losses, penalties)
    with ResourceUsage() as usage:
        simulation = Simulation(phi, contexts, labels, X, y, word, radius, start, seed)
        best = simulation.search(problems, seed, budget)
    cost = simulation.cost(usage, best.evaluations)
    with simulation.threads(1):
        return [simulation.record(problem, best, place, cost) for place, problem in enumerate(problems)]


def prediction_gap(
    phi: FeatureMap,
    contexts: Any,
    labels: Any,
    X: Any,
    y: float,
    word: int = 0,
    *,
    radius: float | None = None,
    start: Any = None,
    seed: int = 0,
) -> PredictionGap:
    """How far one word can move the prediction for X of a model that was trained on X too.

    Parameters are those of `one_word_generalization`. Cost: that of the kernel, then about 60 functionals of the
    response.
    """
    with ResourceUsage() as usage:
        simulation = Simulation(phi, contexts, labels, X, y, word, radius, start, seed)
        theta = simulation.interpolator.theta + simulation.direction * simulation.missing
        functional = simulation.functionals([theta])
        before = float(simulation.own @ theta)

        def objective(point: Array, gradient: bool) -> tuple[Array, Array | None]:
            values, pull = functional(torch.from_numpy(np.ascontiguousarray(point[:, 0, 0])))
            gap = values[0] - before
            return gap.abs().numpy()[:, None], pull(gap.sign()[None]).numpy()[:, None, None]

        # The prediction is nearly linear in Delta: start along both signs of its gradient at 0, and at random.
        values, pull = functional(torch.zeros(1, simulation.d, dtype=torch.float64))
        gradient = pull(torch.ones_like(values))  # 1 d
        drawn = normal(generator(seed, "gap starts"), (1, simulation.d), gradient.dtype)
        starts = torch.cat([gradient, -gradient, drawn])[:, None, None].numpy()
        with simulation.threads(len(starts)):
            best = maximise(objective, starts, simulation.radius, _GAP)
        bound = simulation.response.ceiling(simulation.radius, "quick")
    ceiling, least = None, simulation.lambda_min_after
    if bound is not None and least > 0:
        samples = len(simulation.interpolator.labels) + 1
        length = math.hypot(simulation.start_norm, math.sqrt(samples / least))  # at least |theta_r|
        ceiling = float(bound.value) * simulation.norm * length
    return PredictionGap(
        value=float(best.value[0]),
        ceiling=ceiling,
        delta=torch.from_numpy(best.delta[0, 0]),
        lambda_min=least,
        status=status(bool(best.converged[0])),
        cost=simulation.cost(usage, best.evaluations),
    )


def _problems(trainings: Sequence[str], losses: Sequence[str], penalties: Sequence[float]) -> list[Problem]:
    """Return every combination, in this order."""
    for name, given in (("trainings", trainings), ("losses", losses), ("penalties", penalties)):
        check_several(given, name)
    problems = [Problem(training, loss, penalty) for training in trainings for loss in losses for penalty in penalties]
    if not problems:
        raise InputError("losses, penalties and trainings must each name at least one, got none")
    return problems


class Simulation:
    """What all searches at one new sample share: features, kernel, response, functionals.

    Parameters are those of `one_word_generalization`; all are checked before the map is evaluated.
    """

    def __init__(
        self,
        phi: FeatureMap,
        contexts: Any,
        labels: Any,
        X: Any,
        y: float,
        word: int = 0,
        radius: float | None = None,
        start: Any = None,
        seed: int = 0,
    ) -> None:
        context, samples = _check_samples(contexts, X)
        self.n, self.d = context.shape
        self.label, values = _check_label(y), check_labels(labels, len(samples))
        position = check_word(self.n, word)
        self.radius = check_radius(radius, self.d)
        initial = check_start(start)
        rows, features, response = _evaluate(phi, samples, context, position)
        self.own, self._shape = features.reshape(-1), features.shape
        with suited(2.0 * len(rows) * rows.numel() + 10.0 * len(rows) ** 3):  # the kernel and its decomposition
            if initial.ndim == 0:
                drawn = normal(generator(seed, "theta_0"), rows.shape[1])
                initial = drawn * float(initial) / math.sqrt(len(drawn))
            self.start_norm = float(initial.norm())
            self.interpolator = Interpolator(rows, values, initial)
            self.before = float(self.interpolator.predict(self.own))
            self.missing = self.label - self.before
            self.norm = float(self.own.norm())
            self.direction = self.interpolator.direction(self.own)
            self.lambda_min_after = self.interpolator.with_sample(self.own)
        response = respond(phi, context, position) if response is None else response
        self.response: Response = response if response.hints.prepare is None else response.hints.prepare()

    def functionals(self, vectors: Sequence[Tensor]) -> Functionals:
        """Return the inner products of phi(X^i(Delta)) with vectors (p,), as a function of Delta."""
        return functionals(self.response, [vector.reshape(self._shape) for vector in vectors])

    @cached_property
    def several(self) -> Functionals:
        """The three functionals that all losses depend on."""
        return self.functionals([self.interpolator.theta, self.own / self.norm**2, self.direction])

    def threads(self, points: int) -> AbstractContextManager[None]:
        """Return a block with as many threads as evaluations at this many points are worth."""
        work = self.response.hints.work
        return suited(None if work is None else work * points)

    def cost(self, usage: ResourceUsage, evaluations: int) -> ResourceUsage:
        return usage.computed_in(self.response.hints.dtype, self.response.hints.device, evaluations)

    def search(self, problems: Sequence[Problem], seed: int, budget: SearchBudget | None) -> SearchResult:
        """Maximise -(loss + a constant) of each problem over Delta, all at once."""
        losses = Losses(self.several, problems, self.label, self.before)

        def objective(point: Array, gradient: bool) -> tuple[Array, Array | None]:
            value, grad = losses(point[:, :, 0])
            return -(value + _FLOOR), -grad[:, :, None]

        budget = budget or (_NONSMOOTH if self.response.hints.nonsmooth else _SMOOTH)
        with self.threads(len(problems)):
            starts = self._starts(losses, seed)
        with self.threads(starts.shape[0] * starts.shape[1]):
            return maximise(objective, starts, self.radius, budget, inside=True)

    def _starts(self, losses: Losses, seed: int) -> Array:
        """Return points (B, G, 1, d): down each loss from 0, and random ones; few where an evaluation is expensive.

        Where a map suggests directions, such as those that capture many rows, losses end lower than from random ones:
        all are tried, and the best for each problem go on. Maps with kinks keep their many random starts.
        """
        hints = self.response.hints
        _, grad = losses(np.zeros((1, len(losses.penalty), self.d)))
        down = -self.radius * _unit(grad)  # 1 G d
        count = 6 + (_MORE_STARTS if hints.nonsmooth else 0)
        random = _unit(normal(generator(seed, "generalization starts"), (count, self.d)).numpy())
        if hints.expensive:
            points = [down, np.repeat(self.radius * random[:1, None], len(losses.penalty), axis=1)]
        else:
            random[5] *= 0.3
            if hints.starts is not None and not hints.nonsmooth:
                random = np.concatenate([random, _unit(hints.starts(generator(seed, "suggested")).double().numpy())])
            many = self.radius * random
            best = np.argsort(losses.at(many), axis=0)[: None if hints.nonsmooth else _BEST_STARTS]  # B G
            points = [down, -down, 0.3 * down, many[best]]
        return np.asarray(np.concatenate(points)[:, :, None])

    def record(self, problem: Problem, best: SearchResult, place: int, cost: ResourceUsage) -> Generalization:
        """Return everything that is known of the Delta that a search found for one problem."""
        delta, ended = torch.from_numpy(best.delta[place, 0]), status(bool(best.converged[place]))
        values, _ = self.several(delta[None])
        moved, fine, again = (float(value) for value in values[:, 0])
        change = float(self.response.change(self.response.hints.cast(delta[None]), gradient=False)[0][0])
        after = moved + (again if problem.training == "re-trained" else fine) * self.missing
        gamma = abs(moved - self.before)
        slack = change * abs(self.missing)
        if problem.training == "re-trained":
            least = self.lambda_min_after  # where it is 0 nothing is known, also of a word that moves nothing
            slack = slack * self.norm / math.sqrt(least) if least > 0 else math.inf
        error = (after + self.label) ** 2
        bound = max(2 - gamma, 0.0) ** 2
        return Generalization(
            problem=problem,
            gamma=gamma,
            error=error,
            bound=bound,
            floor=max(2 - gamma - slack, 0.0) ** 2,
            constant=math.sqrt(self.n) * (bound - error),
            before=self.before,
            moved_before=moved,
            after=after,
            alignment_fine_tuned=fine,
            alignment_retrained=again,
            sensitivity=change,
            loss=-float(best.value[place]) - _FLOOR,
            delta=delta,
            status=ended.replace("a lower bound", "an upper bound").replace("raise", "lower"),
            interpolates=self.interpolator.interpolates,
            lambda_min=self.interpolator.lambda_min,
            cost=cost,
        )


def _unit(vectors: Array) -> Array:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.finfo(float).tiny))


def _evaluate(phi: FeatureMap, samples: Tensor, context: Tensor, word: int) -> tuple[Tensor, Tensor, Response | None]:
    """Return the features of the samples, as rows, and of the context; and its response where they share a draw."""
    if isinstance(phi, RandomFeatures | DeepRandomFeatures):
        features, response = phi.features_along(torch.cat([samples, context[None]]), word)
        return features[:-1], features[-1].double(), response
    rows = features_of(phi, samples)
    with torch.no_grad():
        own = phi(like_parameters(phi, context)).to(torch.float64)
    return rows, own, None


def _check_samples(contexts: Any, X: Any) -> tuple[Tensor, Tensor]:
    """Return the new sample and the training samples, of one shape and dtype, the new one not among them."""
    context, samples = as_context(X), as_contexts(contexts)
    if samples.shape[1:] != context.shape:
        new, others = (" x ".join(map(str, shape)) for shape in (context.shape, samples.shape[1:]))
        raise InputError(f"all contexts must have the same n x d, got {new} for the new sample and {others} for others")
    samples = samples.detach().to(context)
    alike = samples[(samples[:, -1] == context[-1]).all(1)]  # few: the whole of these is compared
    if bool((alike == context).flatten(1).all(1).any()):
        raise InputError("the new sample must not be a training sample, got one that is: leave it out of the contexts")
    return context, samples


def check_start(start: Any, name: str = "start") -> Tensor:
    """Return theta_0 as an array, or the scale of a Gaussian one as a single number >= 0."""
    values = as_array(0.0 if start is None else start, name).double()
    if values.ndim == 0 and float(values) < 0:
        raise InputError(f"{name} must be a number >= 0 or a vector, got {describe(start)}")
    return values


def _check_label(y: Any) -> float:
    try:
        label = math.nan if isinstance(y, str) else float(y)
    except (TypeError, ValueError, RuntimeError):
        label = math.nan
    if label not in (-1.0, 1.0):
        raise InputError(f"the new sample's label must be -1 or +1, got {describe(y)}")
    return label
