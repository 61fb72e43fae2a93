"""The losses that are minimised over Delta: squares of functionals of phi(X^i(Delta)), each with its gradient.

Every loss is a function of three inner products with phi' = phi(X^i(Delta)):

    f = <theta*, phi'>,   a_f = <phi, phi'> / |phi|^2,   a_r = <P' phi, phi'> / |P' phi|^2 = F(X, X^i(Delta)),

since the fine-tuned model predicts f + a_f (y - f_0) and the re-trained one f + a_r (y - f_0), f_0 = f(X, theta*), by
(18) and (22). So each loss is (c . (f, a_f, a_r) + c_0)^2 + p (f - f_0)^2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from wordsway.checks import check_choice
from wordsway.errors import InputError
from wordsway.maps.response import Functionals, Response

Array = npt.NDArray[np.floating[Any]]
TRAININGS = ("fine-tuned", "re-trained")
LOSSES = ("alignment", "error", "swapped")


@dataclass(frozen=True, repr=False)
class Problem:
    """One search: the training whose prediction is tested, the loss that is minimised, and the penalty on gamma.

    Attributes
    ----------
    training : {"fine-tuned", "re-trained"}
    loss : {"alignment", "error", "swapped"}
        (25): the alignment that the training depends on, plus 1, squared; (16): the test error; or the alignment of the
        other training, as in the paper's last figure.
    penalty : float
        p >= 0 in (147) to (149): adds p (f(X^i(Delta), theta*) - f(X, theta*))^2.
    """

    training: str
    loss: str = "alignment"
    penalty: float = 0.0

    def __post_init__(self) -> None:
        check_choice("training", self.training, TRAININGS)
        check_choice("loss", self.loss, LOSSES)
        try:
            penalty = float(self.penalty)
        except (TypeError, ValueError):
            penalty = math.nan
        if not 0 <= penalty < math.inf:
            raise InputError(f"penalty must be a finite number, at least 0, got {self.penalty!r}")
        object.__setattr__(self, "penalty", penalty)

    def __repr__(self) -> str:
        return f"Problem({self.training!r}, {self.loss!r}, {self.penalty:g})"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def coefficients(self, label: float, before: float) -> tuple[tuple[float, float, float], float]:
        """Return c and c_0 of the loss, for the sample's label y and f_0."""
        retrained = (self.training == "re-trained") != (self.loss == "swapped")
        if self.loss == "error":
            missing = label - before
            return (1.0, 0.0, missing) if retrained else (1.0, missing, 0.0), label
        return ((0.0, 0.0, 1.0) if retrained else (0.0, 1.0, 0.0)), 1.0


def functionals(response: Response, vectors: Sequence[Tensor]) -> Functionals:
    """Return the inner products with m vectors as a function of Delta (..., d), see `Functionals`."""
    hints = response.hints
    if hints.inners is not None:
        return hints.inners(vectors)
    single = [response.inner(vector) for vector in vectors]

    def several(delta: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        moved = hints.cast(delta)  # a map of float32 does not take float64
        pairs = [inner(moved) for inner in single]
        gradients = [torch.zeros_like(moved) if grad is None else grad for _, grad in pairs]

        def pull(weights: Tensor) -> Tensor:
            parts = hints.cast(weights)
            return sum((part[..., None] * grad for part, grad in zip(parts, gradients, strict=True)), moved * 0)

        return torch.stack([value for value, _ in pairs]), pull

    return several


class Losses:
    """The losses of several problems at one sample, evaluated together.

    Cost: three functionals of the response per Delta, whatever the number of problems.
    """

    def __init__(self, several: Functionals, problems: Sequence[Problem], label: float, before: float) -> None:
        self.several, self.before = several, before
        pairs = [problem.coefficients(label, before) for problem in problems]
        self.mix = np.array([c for c, _ in pairs])  # G 3
        self.shift = np.array([c for _, c in pairs])  # G
        self.penalty = np.array([problem.penalty for problem in problems])  # G

    def __call__(self, delta: Array) -> tuple[Array, Array]:
        """(B, G, d) -> losses (B, G) and gradients (B, G, d)."""
        inners, pull = self._inners(delta)
        loss, miss, gap = self._losses(inners)
        weights = 2 * np.moveaxis(miss[..., None] * self.mix, -1, 0)  # 3 B G
        weights[0] += 2 * self.penalty * gap
        grad = pull(torch.from_numpy(weights.reshape(3, -1))).to(torch.float64)
        return loss, grad.numpy().reshape(*loss.shape, -1)

    def at(self, delta: Array) -> Array:
        """Losses (B, G) of all problems at the same points (B, d)."""
        return self._losses(self._inners(delta[:, None])[0])[0]

    def _inners(self, delta: Array) -> tuple[Array, Callable[[Tensor], Tensor]]:
        """(f, a_f, a_r) at points (B, G', d), (3, B, G'), and the gradient of their weighted sums."""
        values, pull = self.several(torch.from_numpy(np.ascontiguousarray(delta.reshape(-1, delta.shape[-1]))))
        return values.numpy().reshape(3, *delta.shape[:2]), pull

    def _losses(self, inners: Array) -> tuple[Array, Array, Array]:
        """Losses (B, G), the terms that are squared, and f - f_0, from (3, B, G) or (3, B, 1)."""
        miss, gap = self.shift + sum(self.mix[:, c] * inners[c] for c in range(3)), inners[0] - self.before
        return miss**2 + self.penalty * gap**2, miss, gap
