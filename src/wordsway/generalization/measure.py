"""Does training on a sentence teach anything about the same sentence with one word changed? (section 6 of the paper)"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from wordsway.checks import check_radius, check_several, check_word
from wordsway.errors import InputError
from wordsway.generalization.interpolator import Interpolator, check_labels, features_of
from wordsway.generalization.losses import TRAININGS, Array, Losses, Problem, functionals
from wordsway.generalization.samples import check_label, check_samples
from wordsway.maps import FeatureMap, Response, respond
from wordsway.memory import ResourceUsage
from wordsway.records import Record
from wordsway.seeds import generator, normal
from wordsway.sensitivity.records import status
from wordsway.sensitivity.search import SearchBudget, maximise

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SMOOTH = SearchBudget(power=0, screen=8, keep=3, polish=60, tolerance=1e-6)
_NONSMOOTH = SearchBudget(power=0, screen=12, keep=3, polish=20, anneal=60, tolerance=1e-6)
_FLOOR = 1e-2  # added to losses, so that "relative to its value" means something near 0


@dataclass(frozen=True, eq=False, repr=False)
class Generalization(Record):
    """What one search found: a word changed by `delta`, and what the models say before and after training on X.

    Attributes
    ----------
    problem : Problem
        Training, loss and penalty.
    gamma : float
        |f(X^i(Delta), theta*) - f(X, theta*)| (13): how far the model could tell the two apart before.
    error : float
        (f(X^i(Delta), theta) + y)^2 (16), theta the trained parameters; the changed word turned the label to -y.
    bound : float
        (2 - gamma)^2, below which random features cannot come (Theorems 6.2, 6.3) but for O(1 / sqrt(n)); 0 where
        gamma >= 2, outside of the theorems.
    floor : float
        (2 - gamma - c)^2 with the c that the proofs give for this very Delta, (45): S |y - f_0| for fine-tuning, and
        S |phi(X)| |y - f_0| / sqrt(lambda_min(K_r)) for re-training, S the relative change of the features. Every map
        obeys error >= floor; for random features it is close to `bound`. 0 where the bracket is negative.
    constant : float
        sqrt(n) (bound - error), where bound is 0 for gamma >= 2: the constant of O(1 / sqrt(n)) that would make the
        theorem's inequality an equality here.
    before, moved_before : float
        f(X, theta*) and f(X^i(Delta), theta*).
    after : float
        f(X^i(Delta), theta) after training.
    alignment_fine_tuned, alignment_retrained : float
        <phi, phi'> / |phi|^2, and F (23). Where phi is a combination of the training samples' features (N > p), the
        latter is what stands for F in (22).
    sensitivity : float
        |phi(X^i(Delta)) - phi(X)| / |phi(X)| at this Delta.
    loss : float
        What was minimised, at its end: an upper bound on the smallest one in the ball.
    delta : Tensor (d,)
    status : str
        "converged", or why the search stopped.
    interpolates : bool
        Whether theta* fits every training label.
    lambda_min : float
        The smallest eigenvalue of the kernel K of the training samples.
    cost : ResourceUsage
        Of the whole simulation, shared by all problems.
    """

    problem: Problem
    gamma: float
    error: float
    bound: float
    floor: float
    constant: float
    before: float
    moved_before: float
    after: float
    alignment_fine_tuned: float
    alignment_retrained: float
    sensitivity: float
    loss: float
    delta: Tensor
    status: str
    interpolates: bool
    lambda_min: float
    cost: ResourceUsage

    summary_fields = ("problem", "gamma", "error", "bound", "sensitivity", "status")
    json_names: ClassVar = {"loss": "loss_value"}

    def draw(self, ax: Axes) -> None:
        """Draw the error against gamma, and the line (2 - gamma)^2 of random features."""
        gammas = [step / 20 for step in range(41)]
        ax.plot(gammas, [(2 - gamma) ** 2 for gamma in gammas], "--", label="$(2 - \\gamma)^2$")
        ax.plot([self.gamma], [self.error], "o", label=f"{self.problem.training}, {self.problem.loss}")
        ax.set(xlabel="$\\gamma$", ylabel="error")
        ax.legend()


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
    seed: int = 0,
    budget: SearchBudget | None = None,
) -> list[Generalization]:
    """Train on contexts, then on (X, y), and change one word of X so that the loss on (X^i(Delta), -y) gets small.

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
        What is minimised, see `Problem`: every combination is searched.
    radius : float, optional
        How far the word may move; sqrt(d) if left out.
    seed : int
        Seed of the starts of the search.
    budget : SearchBudget, optional
        How hard to search.

    Returns
    -------
    list of Generalization
        One for each training, loss and penalty, in this order.

    Notes
    -----
    Features, kernel and its factor are computed once for all searches: O(N^2 p + N^3), and N evaluations of the map.
    Each step of the searches takes three functionals of the response for every problem and start.
    """
    problems = _problems(trainings, losses, penalties)
    context, samples = check_samples(contexts, X)
    label, values = check_label(y), check_labels(labels, len(samples))
    position = check_word(len(context), word)
    r = check_radius(radius, context.shape[1])
    with ResourceUsage() as usage:
        simulation = Simulation(phi, samples, values, context, label, position)
        found = simulation.search(problems, r, seed, budget)
    return [simulation.record(problem, *one, usage) for problem, one in zip(problems, found, strict=True)]


def _problems(trainings: Sequence[str], losses: Sequence[str], penalties: Sequence[float]) -> list[Problem]:
    """Every combination, in this order."""
    for name, given in (("trainings", trainings), ("losses", losses), ("penalties", penalties)):
        check_several(given, name)
    problems = [Problem(training, loss, penalty) for training in trainings for loss in losses for penalty in penalties]
    if not problems:
        raise InputError("losses, penalties and trainings must each name at least one, got none")
    return problems


class Simulation:
    """What all searches at one new sample share: features, kernel, response, functionals."""

    def __init__(self, phi: FeatureMap, contexts: Tensor, labels: Any, X: Tensor, label: float, word: int) -> None:
        self.interpolator = Interpolator(features_of(phi, contexts), labels)
        with torch.no_grad():
            found = phi(X).to(torch.float64)
        own = found.reshape(-1)
        response = respond(phi, X, word)
        self.response: Response = response if response.hints.prepare is None else response.hints.prepare()
        self.label, self.n = label, len(X)
        self.before = float(self.interpolator.predict(own))
        self.norm = float(own.norm())
        self.lambda_min, self.lambda_min_after = self.interpolator.lambda_min, self.interpolator.with_sample(own)
        vectors = [self.interpolator.theta, own / self.norm**2, self.interpolator.direction(own)]
        self.several = functionals(self.response, [vector.reshape(found.shape) for vector in vectors])

    def search(
        self, problems: Sequence[Problem], radius: float, seed: int, budget: SearchBudget | None
    ) -> list[tuple[Tensor, float, bool, int]]:
        """The best Delta of each problem, its loss, whether the search converged, and how many evaluations it took."""
        losses = Losses(self.several, problems, self.label, self.before)
        starts = self._starts(losses, radius, seed)

        def objective(point: Array, gradient: bool) -> tuple[Array, Array | None]:
            value, grad = losses(point[:, :, 0])
            return -(value + _FLOOR), -grad[:, :, None]

        nonsmooth = self.response.hints.nonsmooth
        found = maximise(objective, starts, radius, budget or (_NONSMOOTH if nonsmooth else _SMOOTH), inside=True)
        values = -found.value - _FLOOR
        deltas = torch.from_numpy(found.delta[:, 0])
        return [
            (delta, float(value), bool(done), found.evaluations)
            for delta, value, done in zip(deltas, values, found.converged, strict=True)
        ]

    def _starts(self, losses: Losses, radius: float, seed: int) -> Array:
        """Points (B, G, 1, d): down each loss from 0, and random ones; few where each evaluation is costly."""
        expensive = self.response.hints.expensive
        problems, d = len(losses.penalty), self.response.shape[-1]
        drawn = normal(generator(seed, "generalization starts"), (6, d))
        random = (drawn / drawn.norm(dim=-1, keepdim=True)).numpy()
        _, grad = losses(np.zeros((1, problems, d)))
        down = -grad / np.maximum(np.linalg.norm(grad, axis=-1, keepdims=True), np.finfo(float).tiny)  # 1 G d
        spread = random[:1] if expensive else np.concatenate([random[:5], 0.3 * random[5:]])
        points = [down] if expensive else [down, -down, 0.3 * down]
        points.append(np.repeat(spread[:, None], problems, axis=1))
        return np.asarray(radius * np.concatenate(points)[:, :, None])

    def record(
        self, problem: Problem, delta: Tensor, loss: float, converged: bool, evaluations: int, usage: ResourceUsage
    ) -> Generalization:
        """Everything that is known of one Delta."""
        values, _ = self.several(delta[None])
        moved, fine, again = (float(value) for value in values[:, 0])
        change = float(self.response.change(self.response.hints.cast(delta[None]), gradient=False)[0][0])
        missing = self.label - self.before
        after = moved + (again if problem.training == "re-trained" else fine) * missing
        gamma = abs(moved - self.before)
        slack = change * abs(missing)
        if problem.training == "re-trained":
            least = self.lambda_min_after  # where it is 0 nothing is known, also of a word that moves nothing
            slack = slack * self.norm / math.sqrt(least) if least > 0 else math.inf
        error = (after + self.label) ** 2
        bound = max(2 - gamma, 0.0) ** 2
        cost = usage.computed_in(self.response.hints.dtype, self.response.hints.device, evaluations)
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
            loss=loss,
            delta=delta,
            status=status(converged).replace("a lower bound", "an upper bound").replace("raise", "lower"),
            interpolates=self.interpolator.interpolates,
            lambda_min=self.lambda_min,
            cost=cost,
        )
