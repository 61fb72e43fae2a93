"""Robustness of regression on random and NTK features: S(x) = |x| |grad_x f(x)|, f the minimum-norm interpolator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from wordsway import memory
from wordsway.activations import Activation
from wordsway.checks import as_array, check_positive, check_several, check_size
from wordsway.errors import InputError
from wordsway.generalization.kernel import Gram, KernelSolver
from wordsway.kernels.eigenvalues import SmallestEigenvalue, smallest_eigenvalue
from wordsway.kernels.features import BLOCK, FeatureBlocks, FeatureFormulas
from wordsway.memory import ResourceUsage
from wordsway.records import Record
from wordsway.seeds import check_seed

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, repr=False)
class Terms(Record):
    """The terms of the proofs.

    Attributes
    ----------
    interaction : float
        Operator norm of the interaction matrix I = grad phi(x)^T Phi^T (d x N).
    smallest : SmallestEigenvalue
        Of the kernel.
    bound : float
        |x| |I| |y| / lambda_min, an upper bound on S.
    centred : float
        Frobenius norm of I with its columns centred over the training inputs.
    """

    interaction: float
    smallest: SmallestEigenvalue
    bound: float
    centred: float

    summary_fields = ("interaction", "smallest", "bound", "centred")

    def to_dict(self) -> dict[str, Any]:
        small = {"lambda_min": self.smallest.value, "lambda_min_residual": self.smallest.residual}
        return {"interaction": self.interaction, "interaction_centred": self.centred, "bound": self.bound, **small}


@dataclass(frozen=True, eq=False, repr=False)
class Robustness(Record):
    """How far the interpolator's output moves at x, relative to how far x moves: S = |x| |grad f(x)|.

    Attributes
    ----------
    value : float
        S; exact up to rounding.
    output : float
        f(x).
    fit : float
        Largest |f(x_i) - y_i| on the training inputs: the model interpolates where this is small.
    gradient : Tensor (d,)
        grad f(x); the adversarial direction is along it.
    cost : ResourceUsage
        Of building the model and of measuring at x.
    terms : Terms or None
        With ``terms=True``.
    """

    kind: str
    samples: int
    d: int
    width: int
    activation: str
    seed: int
    value: float
    output: float
    fit: float
    gradient: Tensor
    cost: ResourceUsage
    terms: Terms | None = None

    summary_fields = ("kind", "value", "fit", "samples", "d", "width", "activation")
    json_names: ClassVar = {"value": "sensitivity", "terms": ""}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON, without the gradient."""
        return super().to_dict() | ({} if self.terms is None else self.terms.to_dict())

    def draw(self, ax: Axes) -> None:
        """Draw the gradient, coordinate by coordinate."""
        ax.bar(range(self.d), self.gradient.tolist())
        ax.set(xlabel="coordinate", ylabel="gradient of f", title=f"S = {self.value:.4g}")


def feature_robustness(
    kind: str,
    X: Any,
    y: Any,
    x: Any,
    k: int,
    activation: str | Activation = "tanh",
    seed: int = 0,
    terms: bool = False,
) -> Robustness:
    """S(x) of the minimum-norm interpolator on k random features, or on the NTK features of k neurons.

    Parameters
    ----------
    kind : {"rf", "ntk"}
    X : array (N, d)
        Training inputs, with labels y (N,).
    x : array (d,)
        Where the sensitivity is measured; not zero.
    k : int
        Random features, or neurons (p = k d NTK features).
    activation : str or Activation
        ntk needs its second derivative: phi'' of relu is 0 and misses its kink, so that relu is refused there.
    terms : bool
        Whether to compute the terms of the proofs too.

    Raises
    ------
    NumericalError
        Where the kernel is singular or nearly so: inputs that are repeated, more samples than features, or labels that
        are missed by 1e-4 of the largest one.

    Notes
    -----
    Cost: rf O(N k (d + N)), ntk O(N k (d + N) + N^2 d), and N^3 / 3 for the solution; memory N^2, N k up to
    3 GB, and blocks of 200 MB.
    """
    return FeatureModel(kind, X, y, k, activation, seed).robustness(x, terms)


class FeatureModel:
    """The minimum-norm interpolator on random or NTK features, with its outputs, gradients and robustness.

    Parameters are those of `feature_robustness`. Cost: see there; each further input costs O(N k + k d).
    """

    def __init__(self, kind: str, X: Any, y: Any, k: int, activation: str | Activation = "tanh", seed: int = 0) -> None:
        self._formulas = FeatureFormulas(kind, activation)
        self.kind, self.activation, self.seed = kind, self._formulas.phi, check_seed(seed)
        self.inputs = as_array(X, "inputs", ("N", "d")).double()
        self.labels = as_array(y, "y", (len(self.inputs),)).double()
        self.width = check_size(k, "k")
        features = self._formulas.count(self.width, self.inputs)
        count = len(self.inputs)
        memory.require(4 * 8 * count**2 + 3 * BLOCK, f"a {count} x {count} kernel", "use fewer samples")
        with ResourceUsage() as self.cost:
            self._blocks = FeatureBlocks(self.inputs, [self.width], self.seed, self._formulas.features)
            gram = Gram(count)
            for _, block, _ in self._blocks:
                gram.add(block)
            self.kernel = self._formulas.kernel(gram.matrix(), self._blocks)
            self.alpha, self.fit = KernelSolver(self.kernel, features).interpolate(self.labels)

    def weights(self) -> Iterator[Tensor]:
        """Yield blocks of rows of the weights, (rows, d), the same every time: N(0, 1/d)."""
        return self._blocks.weights()

    def output(self, x: Any) -> float:
        """Return f(x)."""
        return self._at(self._point(x))[0]

    def gradient(self, x: Any) -> Tensor:
        """Return grad f(x), (d,)."""
        return self._at(self._point(x))[1]

    def _point(self, x: Any) -> Tensor:
        return _check_point(x, self.inputs.shape[1])

    def _at(self, x: Tensor) -> tuple[float, Tensor]:
        """Return f(x) and its gradient, block by block."""
        total, gradient = 0.0, torch.zeros_like(x)
        for block, features, _ in self._blocks:
            output, part = self._formulas.share(x, self.inputs, block, features, self.alpha[None])
            total, gradient = total + float(output), gradient + part[0]
        return total, gradient

    def interaction(self, x: Any) -> Tensor:
        """Return the interaction matrix grad phi(x)^T Phi^T, (d, N): grad f(x) is that times alpha."""
        point = self._point(x)
        total = self.inputs.new_zeros(len(point), len(self.inputs))
        for block, features, _ in self._blocks:
            total += self._formulas.interaction(point, self.inputs, block, features)
        return total

    def robustness(self, x: Any, terms: bool = False) -> Robustness:
        """Measure S(x) = |x| |grad f(x)|."""
        point = self._point(x)
        size = float(torch.linalg.vector_norm(point))
        with ResourceUsage() as usage:
            output, gradient = self._at(point)
            proof_terms = self._terms(point, size) if terms else None
        usage.seconds += self.cost.seconds
        usage.peak_mb = max(usage.peak_mb, self.cost.peak_mb)
        return Robustness(
            kind=self.kind,
            samples=len(self.inputs),
            d=len(point),
            width=self.width,
            activation=self.activation.name,
            seed=self.seed,
            value=size * float(torch.linalg.vector_norm(gradient)),
            output=output,
            fit=self.fit,
            gradient=gradient,
            cost=usage.computed_in(point.dtype, point.device, 1),
            terms=proof_terms,
        )

    def _terms(self, point: Tensor, size: float) -> Terms:
        matrix = self.interaction(point)
        smallest = smallest_eigenvalue(self.kernel)
        norm = float(torch.linalg.matrix_norm(matrix, ord=2))
        bound = size * norm * float(torch.linalg.vector_norm(self.labels)) / smallest.value
        centred = matrix - matrix.mean(1, keepdim=True)
        return Terms(norm, smallest, bound, float(torch.linalg.matrix_norm(centred)))

    def attack(self, x: Any, share: float = 0.01) -> tuple[float, float]:
        """Move x by `share` of its length along the gradient: return the change of f, and its linear prediction."""
        point = self._point(x)
        length = check_positive(share, "share") * float(torch.linalg.vector_norm(point))
        before, gradient = self._at(point)
        size = float(torch.linalg.vector_norm(gradient))
        if size == 0:
            return 0.0, 0.0
        return self._at(point + length / size * gradient)[0] - before, length * size


# Sweeps


@dataclass(frozen=True, eq=False, repr=False)
class Point(Record):
    """S at one width, number of samples and activation."""

    width: int
    samples: int
    activation: str
    sensitivity: float
    fit: float


@dataclass(frozen=True, eq=False, repr=False)
class RobustnessSweep(Record):
    """S at every width, number of samples and activation; iterating over it yields its points."""

    kind: str
    points: tuple[Point, ...]
    cost: ResourceUsage

    summary_fields = ("kind", "points")

    def __iter__(self) -> Iterator[Point]:
        return iter(self.points)

    def __len__(self) -> int:
        return len(self.points)

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "points": self.rows()}

    def rows(self) -> list[dict[str, Any]]:
        return [point.to_dict() for point in self.points]

    def draw(self, ax: Axes) -> None:
        """Draw S against the width, a line per activation and number of samples."""
        for name, count in dict.fromkeys((point.activation, point.samples) for point in self.points):
            line = [point for point in self.points if (point.activation, point.samples) == (name, count)]
            label = f"{name}, N = {count}"
            ax.plot([point.width for point in line], [point.sensitivity for point in line], "o-", label=label)
        ax.set(xlabel="width k", ylabel="S", xscale="log", yscale="log")
        ax.legend()


def robustness_sweep(
    kind: str,
    X: Any,
    y: Any,
    x: Any,
    widths: Sequence[int],
    samples: Sequence[int],
    activations: Sequence[str | Activation],
    seed: int = 0,
) -> RobustnessSweep:
    """S(x) of `feature_robustness` at every width, for the first N samples for every N, and every activation.

    Each value is that of `feature_robustness` with the same seed. Rows of the weights are nested in the width, and
    samples in their number: one kernel is grown block by block, and its leading parts are those of fewer samples. Cost,
    with the largest k and N: O(N k d) once, and O(N^2 k) per activation.
    """
    for name, values in (("widths", widths), ("samples", samples), ("activations", activations)):
        check_several(values, name)
        if not values:
            raise InputError(f"widths, samples and activations must each name at least one, got no {name}")
    formulas = [FeatureFormulas(kind, name) for name in activations]
    inputs, seed = as_array(X, "inputs", ("N", "d")).double(), check_seed(seed)
    labels = as_array(y, "y", (len(inputs),)).double()
    point = _check_point(x, inputs.shape[1])
    counts = sorted({check_size(count, "samples") for count in samples})
    sizes = sorted({check_size(width, "widths") for width in widths})
    if counts[-1] > len(inputs):
        raise InputError(f"samples must be at most the {len(inputs)} inputs, got {counts[-1]}")
    inputs = inputs[: counts[-1]]
    formulas[0].count(sizes[0], inputs)
    with ResourceUsage() as usage:
        points = _sweep(formulas, inputs, labels, point, FeatureBlocks(inputs, sizes, seed), counts)
    return RobustnessSweep(kind, points, usage.computed_in(inputs.dtype, inputs.device, len(points)))


def _sweep(
    formulas: list[FeatureFormulas], inputs: Tensor, labels: Tensor, x: Tensor, blocks: FeatureBlocks, counts: list[int]
) -> tuple[Point, ...]:
    """Grow the kernels and solve them at every width, then sum all gradients in one more pass."""
    keys = [(width, count) for width in blocks.widths for count in counts]
    grams = [Gram(len(inputs)) for _ in formulas]
    alphas = inputs.new_zeros(len(formulas), len(keys), len(inputs))  # zero beyond the samples of each key
    fits = inputs.new_zeros(len(formulas), len(keys))
    for _, products, end in blocks:
        for number, (formula, gram) in enumerate(zip(formulas, grams, strict=True)):
            gram.add(formula.features(products))
            kernel = formula.kernel(gram.matrix(), blocks) if end in blocks.widths else None
            for place, (width, count) in enumerate(keys):
                if kernel is not None and width == end:
                    part, target = kernel[:count, :count], labels[:count]
                    solver = KernelSolver(part, formula.count(width, inputs[:count]))
                    alphas[number, place, :count], fits[number, place] = solver.interpolate(target)
    gradients = inputs.new_zeros(len(formulas), len(keys), len(x))
    ends = torch.tensor([[width] for width, _ in keys])
    for block, products, end in blocks:
        used = (ends >= end).to(alphas)  # blocks end at every width, so that each is used whole or not at all
        for formula, alpha, gradient in zip(formulas, alphas, gradients, strict=True):
            gradient += formula.share(x, inputs, block, formula.features(products), alpha * used)[1]
    values = torch.linalg.vector_norm(x) * torch.linalg.vector_norm(gradients, dim=2)
    return tuple(
        Point(width, count, formula.phi.name, float(values[number, place]), float(fits[number, place]))
        for number, formula in enumerate(formulas)
        for place, (width, count) in enumerate(keys)
    )


def _check_point(x: Any, d: int) -> Tensor:
    """Return an input at which a gradient is taken: finite and not zero."""
    point = as_array(x, "x", (d,)).double()
    if not bool(point.any()):
        raise InputError("x must not be zero: S measures changes relative to |x|")
    return point
