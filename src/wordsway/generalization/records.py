"""Records of generalization: a word that was found, and how far predictions move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from wordsway.generalization.losses import Problem
from wordsway.memory import ResourceUsage
from wordsway.records import Record, bars

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, repr=False)
class Generalization(Record):
    """The result of one search: a word changed by `delta`, and the predictions before and after training on X.

    Attributes
    ----------
    problem : Problem
        Training, loss and penalty.
    gamma : float
        |f(X^i(Delta), theta*) - f(X, theta*)| (13): how far the model told the two apart before.
    error : float
        (f(X^i(Delta), theta) + y)^2 (16), theta the trained parameters; the changed word turned the label to -y.
    bound : float
        (2 - gamma)^2, below which random features cannot come (Theorems 6.2, 6.3) but for O(1 / sqrt(n)); 0 where
        gamma >= 2, outside of the theorems.
    floor : float
        (2 - gamma - c)^2 with the c of the proofs for this Delta, (45): S |y - f_0| for fine-tuning, and
        S |phi(X)| |y - f_0| / sqrt(lambda_min(K_r)) for re-training, S the relative change of the features. Every map
        satisfies error >= floor; for random features it is close to `bound`. 0 where the bracket is negative.
    constant : float
        sqrt(n) (bound - error), where bound is 0 for gamma >= 2: the constant of O(1 / sqrt(n)) for which the
        theorem's inequality is an equality here.
    before, moved_before : float
        f(X, theta*) and f(X^i(Delta), theta*).
    after : float
        f(X^i(Delta), theta) after training.
    alignment_fine_tuned, alignment_retrained : float
        <phi, phi'> / |phi|^2, and F (23). Where phi is a combination of the training samples' features (N > p), the
        latter is the factor that takes the place of F in (22).
    sensitivity : float
        |phi(X^i(Delta)) - phi(X)| / |phi(X)| at this Delta.
    loss : float
        The minimised loss at the end: an upper bound on the smallest one in the ball.
    delta : Tensor (d,)
    status : str
        "locally converged", or why the search stopped.
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


@dataclass(frozen=True, eq=False, repr=False)
class PredictionGap(Record):
    """max over Delta of |f(X^i(Delta), theta_r) - f(X, theta_r)|: `value` <= it <= `ceiling`.

    Attributes
    ----------
    value : float
        The gap at the witness: a lower bound.
    ceiling : float or None
        (143): |phi(X^i(Delta)) - phi(X)| bounded over the ball, times sqrt(|theta_0|^2 + (N + 1) / lambda_min(K_r)),
        which is at least |theta_r|.
    delta : Tensor (d,)
        The witness.
    lambda_min : float
        Of the kernel K_r of all N + 1 samples.
    status : str
        "locally converged", or why the search stopped.
    cost : ResourceUsage
    """

    value: float
    ceiling: float | None
    delta: Tensor
    lambda_min: float
    status: str
    cost: ResourceUsage

    json_names: ClassVar = {"value": "gap"}

    def draw(self, ax: Axes) -> None:
        """Draw the gap and its upper bound on a logarithmic axis."""
        bars(ax, {"gap": self.value, "ceiling": self.ceiling}, logarithmic=True)
