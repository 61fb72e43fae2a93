"""Robustness of regression on random and NTK features: S(x) = |x| |grad_x f(x)|, f the minimum-norm interpolator."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from scipy.linalg import eigvalsh
from torch import Tensor

from wordsway import memory
from wordsway.activations import Activation
from wordsway.checks import as_array, check_positive, check_seed, check_size
from wordsway.errors import InputError
from wordsway.generalization.kernel import Gram, KernelSolver
from wordsway.kernels.eigenvalues import SmallestEigenvalue, smallest_eigenvalue
from wordsway.kernels.features import BLOCK, FeatureBlocks, FeatureFormulas
from wordsway.memory import ResourceUsage
from wordsway.records import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_LARGE = 1e9  # products of inputs and weights from which on random features are computed in float32
_CONDITION = 1e-5  # inverse condition of a kernel below which they are computed again in float64


@dataclass(frozen=True, eq=False, repr=False)
class Terms(Record):
    """The terms of the proofs, for the interaction matrix I = grad phi(x)^T Phi^T (d x N) and the kernel K.

    Attributes
    ----------
    interaction : float
        Operator norm of I.
    smallest : SmallestEigenvalue
        Of K.
    bound : float
        |x| |I| |y| / lambda_min(K), an upper bound on S.
    centred : float
        Frobenius norm of I C, C = I_N - 1 1^T / N: with features that are centred over the training inputs.
    law : float or None
        k sqrt(N / d) (E phi')^2, which `centred` approaches for random features of inputs of norm sqrt(d), as N, d and
        k / d grow; None for NTK features.
    largest : float
        The largest eigenvalue of the centred kernel C K C.
    lower : float
        |x| |A|_F |y| / (sqrt(N) lambda_max(C K C)) with A = I - I 1 1^T K / (1^T K 1): a lower bound on the root mean
        square of S over random labels with E y y^T = (|y|^2 / N) I_N. A differs from I C by a matrix of rank 1 that is
        small for random features: this is the bound of the theorem, S = Omega(|x| |I C|_F / lambda_max(C K C)).

    Notes
    -----
    Proof of `lower`: the mean square of S is |x|^2 |I K^-1|_F^2 |y|^2 / N. With u = 1 / sqrt(N) and the matrix T =
    C K C - C K u u^T K C / (u^T K u) on the complement of u, I K^-1 C = A C T^-1, A C = A, and T is at most C K C.
    """

    interaction: float
    smallest: SmallestEigenvalue
    bound: float
    centred: float
    law: float | None
    largest: float
    lower: float

    json_names: ClassVar = {
        "smallest": "",
        "centred": "interaction_centred",
        "law": "interaction_law",
        "largest": "lambda_max_centred",
        "lower": "lower_bound",
    }

    def to_dict(self) -> dict[str, Any]:
        smallest = {"lambda_min": self.smallest.value, "lambda_min_residual": self.smallest.residual}
        return {**super().to_dict(), **smallest}


def proof_terms(matrix: Tensor, kernel: Tensor, labels: Tensor, size: float, law: float | None) -> Terms:
    """Return the terms of an interaction matrix (d, N), for |x| = size."""
    count, smallest = len(kernel), smallest_eigenvalue(kernel)
    norm, length = float(torch.linalg.matrix_norm(matrix, ord=2)), float(torch.linalg.vector_norm(labels))
    sums = kernel.sum(1)
    centred = kernel - sums / count - sums[:, None] / count + sums.sum() / count**2
    largest = float(eigvalsh(centred.numpy(), subset_by_index=(count - 1, count - 1), check_finite=False)[0])
    rest = matrix - torch.outer(matrix.sum(1), sums / sums.sum())  # maps the vector of ones to 0
    return Terms(
        interaction=norm,
        smallest=smallest,
        bound=size * norm * length / smallest.value,
        centred=float(torch.linalg.matrix_norm(matrix - matrix.mean(1, keepdim=True))),
        law=law,
        largest=largest,
        lower=size * float(torch.linalg.matrix_norm(rest)) * length / (math.sqrt(count) * largest)
        if count > 1
        else 0.0,
    )


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
    Random features of 10^9 products or more are computed in float32, and their kernel is summed and solved in float64:
    S agrees to about 6 digits. Where its inverse condition is below 1e-5, all is computed again in float64. For so many
    the inputs X are rotated first, X = L Q^T with a triangular L, where d is up to 3,000: the law of the weights
    V knows no direction, so that V = W Q^T with independent entries of W has the same law, and X V^T = L W^T takes half
    the operations where N <= d.
    Cost: rf O(N k (d + N)), ntk O(N k (d + N) + N^2 d), and N^3 / 3 for the solution; memory N^2, N k up to
    3 GB, and blocks of 80 MB.
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
        large = kind == "rf" and self.inputs.numel() * self.width >= _LARGE
        d = self.inputs.shape[1]
        self._rotation: Tensor | None = None  # Q (d, d): X Q is triangular
        with ResourceUsage() as self.cost:
            if large and 8 * d**2 <= BLOCK:
                self._rotation = torch.linalg.qr(self.inputs.mT, mode="complete")[0]
            solver = self._solver(torch.float32 if large else torch.float64, features)
            if large and solver.inverse_condition < _CONDITION:
                solver = self._solver(torch.float64, features)
            self.alpha, self.fit = solver.interpolate(self.labels)

    def _solver(self, dtype: torch.dtype, features: int) -> KernelSolver:
        """Compute features in this dtype, and the kernel of float64."""
        self._blocks = FeatureBlocks(
            self._rotated(self.inputs),
            [self.width],
            self.seed,
            self._formulas.features,
            dtype=dtype,
            triangular=self._rotation is not None,
        )
        gram = Gram(len(self.inputs))
        for _, block, _ in self._blocks:
            gram.add(block)
        self.kernel = self._formulas.kernel(gram.matrix(), self._blocks)
        return KernelSolver(self.kernel, features)

    def weights(self) -> Iterator[Tensor]:
        """Yield blocks of rows of the weights, (rows, d), the same every time: N(0, 1/d)."""
        for block in self._blocks.weights():
            yield block if self._rotation is None else block @ self._rotation.mT.to(block)

    def _rotated(self, inputs: Tensor) -> Tensor:
        """Return inputs (..., d) as the blocks have them."""
        return inputs if self._rotation is None else inputs @ self._rotation

    def _rotated_back(self, gradients: Tensor) -> Tensor:
        """Return gradients (d, ...) with respect to inputs from those of the blocks."""
        return gradients if self._rotation is None else self._rotation @ gradients

    def output(self, x: Any) -> float:
        """Return f(x)."""
        return self._at(self._point(x))[0]

    def gradient(self, x: Any) -> Tensor:
        """Return grad f(x), (d,)."""
        return self._at(self._point(x))[1]

    def _point(self, x: Any) -> Tensor:
        return check_point(x, self.inputs.shape[1])

    def _at(self, x: Tensor) -> tuple[float, Tensor]:
        """Return f(x) and its gradient, block by block."""
        total, gradient, point = 0.0, torch.zeros_like(x), self._rotated(x)
        for block, features, _ in self._blocks:
            output, part = self._formulas.share(point, self.inputs, block, features, self.alpha[None])
            total, gradient = total + float(output), gradient + part[0]
        return total, self._rotated_back(gradient)

    def interaction(self, x: Any) -> Tensor:
        """Return the interaction matrix grad phi(x)^T Phi^T, (d, N): grad f(x) is that times alpha."""
        point = self._rotated(self._point(x))
        total = self.inputs.new_zeros(len(point), len(self.inputs))
        for block, features, _ in self._blocks:
            total += self._formulas.interaction(point, self.inputs, block, features)
        return self._rotated_back(total)

    def robustness(self, x: Any, terms: bool = False) -> Robustness:
        """Measure S(x) = |x| |grad f(x)|."""
        point = self._point(x)
        size = float(torch.linalg.vector_norm(point))
        with ResourceUsage() as usage:
            output, gradient = self._at(point)
            law = self._formulas.law(self.width, self.inputs)
            computed = proof_terms(self.interaction(point), self.kernel, self.labels, size, law) if terms else None
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
            terms=computed,
        )

    def attack(self, x: Any, share: float = 0.01) -> tuple[float, float]:
        """Move x by `share` of its length along the gradient: return the change of f, and its linear prediction."""
        point = self._point(x)
        length = check_positive(share, "share") * float(torch.linalg.vector_norm(point))
        before, gradient = self._at(point)
        size = float(torch.linalg.vector_norm(gradient))
        if size == 0:
            return 0.0, 0.0
        return self._at(point + length / size * gradient)[0] - before, length * size


def check_point(x: Any, d: int) -> Tensor:
    """Return an input at which a gradient is taken: finite and not zero."""
    point = as_array(x, "x", (d,)).double()
    if not bool(point.any()):
        raise InputError("x must not be zero: S measures changes relative to |x|")
    return point
