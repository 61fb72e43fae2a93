"""Robustness of regression on random and NTK features: S(x) = |x| |grad_x f(x)|, f the minimum-norm interpolator.

Random features are phi(V x), V (k, d) of independent N(0, 1/d) entries; NTK features x (x) phi'(W x), W likewise, so
that p = k d. With K alpha = y on the N training inputs (Bombari, Kiyani and Mondelli 2023)

    rf:   K = Phi Phi^T, Phi = phi(X V^T),    grad f(x) = V^T (phi'(V x) o Phi^T alpha)
    ntk:  K = X X^T o G G^T, G = phi'(X W^T),
          grad f(x) = sum_i alpha_i ( x_i <phi'(W x), g_i> + <x, x_i> W^T (phi''(W x) o g_i) ).

Weights are used in blocks of rows, drawn again where they are needed again: no p-vector, and no k x d matrix, is kept.
Features of the inputs (N x k) are kept while they take less than 3 GB.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from wordsway import memory
from wordsway.activations import Activation
from wordsway.activations import activation as activation_named
from wordsway.checks import as_tensor, check_size
from wordsway.errors import InputError, NumericalError, nearest
from wordsway.kernels.eigenvalues import SmallestEigenvalue, smallest_eigenvalue
from wordsway.kernels.gram import Gram
from wordsway.kernels.network import as_inputs
from wordsway.kernels.weights import feature_rows
from wordsway.memory import ResourceUsage
from wordsway.records import Record
from wordsway.seeds import check_seed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = ("rf", "ntk")
_BLOCK = 2 * 10**8  # bytes of features of all inputs at a time
_KEPT = 3 * 10**9  # bytes of features that are kept rather than computed again for each gradient


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
        |x| |I| |y| / lambda_min: S is no more.
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
    """How far the interpolator's output moves at x, relative to how far x does: S = |x| |grad f(x)|.

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
        ntk needs its second derivative: phi'' of relu is 0 and says nothing of its kink, so relu is refused there.
    terms : bool
        Whether to give the terms of the proofs too.

    Raises
    ------
    NumericalError
        Where the kernel is singular: repeated inputs, or more samples than features.

    Notes
    -----
    Cost: rf O(N k (d + N)), ntk O(N k (d + N) + N^2 d), and N^3 / 3 for the solution; memory N^2, N k up to
    3 GB, and blocks of 200 MB.
    """
    model = FeatureModel(kind, X, y, k, activation, seed)
    return model.robustness(x, terms)


class FeatureModel:
    """The minimum-norm interpolator on random or NTK features, asked for outputs, gradients and robustness.

    Parameters are those of `feature_robustness`. Cost: see there; asking once more costs O(N k + k d).
    """

    def __init__(self, kind: str, X: Any, y: Any, k: int, activation: str | Activation = "tanh", seed: int = 0) -> None:
        self.kind, self.activation, self.seed = kind, activation_named(activation), check_seed(seed)
        check_features(kind, self.activation)
        self.inputs = as_inputs(X).double()
        count, d = self.inputs.shape
        self.labels = check_labels(y, count)
        self.width = check_size(k, "k")
        features = self.width * (d if kind == "ntk" else 1)
        if features < count:
            raise NumericalError(f"{count} samples need at least as many features, got {features}: use a larger width")
        memory.require(4 * 8 * count**2 + 3 * _BLOCK, f"a {count} x {count} kernel", "use fewer samples")
        with ResourceUsage() as self.cost:
            keep = 8 * count * self.width <= min(_KEPT, memory.available() // 3)
            self._kept: list[Tensor] | None = [] if keep else None
            self.kernel = self._kernel()
            self.alpha = interpolate(self.kernel, self.labels)
            fitted = self.kernel @ self.alpha
            self.fit = float((fitted - self.labels).abs().max())

    def weights(self) -> Iterator[Tensor]:
        """Blocks of rows of the weights, (rows, d), the same every time: N(0, 1/d)."""
        count, d = self.inputs.shape
        return feature_rows(self.width, d, self.seed, _BLOCK // (8 * (count + d)))

    def _features(self, block: Tensor) -> Tensor:
        """phi(X V^T) or phi'(X W^T) for a block of weights, (N, rows)."""
        reached = self.inputs @ block.mT
        return self.activation(reached) if self.kind == "rf" else self.activation.derivative(reached)

    def _blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Blocks of weights, (rows, d), with what they give for the inputs, (N, rows)."""
        for number, block in enumerate(self.weights()):
            yield block, self._features(block) if self._kept is None else self._kept[number]

    def _kernel(self) -> Tensor:
        gram = Gram(len(self.inputs))
        for block in self.weights():
            features = self._features(block)
            gram.add(features)
            if self._kept is not None:
                self._kept.append(features)
        return gram.matrix() if self.kind == "rf" else gram.matrix() * (self.inputs @ self.inputs.mT)

    def output(self, x: Any) -> float:
        """f(x)."""
        return self._at(self._point(x))[0]

    def gradient(self, x: Any) -> Tensor:
        """grad f(x), (d,)."""
        return self._at(self._point(x))[1]

    def _point(self, x: Any) -> Tensor:
        return check_point(x, self.inputs.shape[1])

    def _at(self, x: Tensor) -> tuple[float, Tensor]:
        """f(x) and its gradient, block by block."""
        total, gradient = 0.0, torch.zeros_like(x)
        nearby = self.inputs @ x  # N
        for block, features in self._blocks():
            reached = block @ x
            if self.kind == "rf":
                pulled = features.mT @ self.alpha
                total += float(self.activation(reached) @ pulled)
                gradient += block.mT @ (self.activation.derivative(reached) * pulled)
            else:
                derivatives = self.activation.derivative(reached)
                shares = features @ derivatives  # N
                total += float(self.alpha @ (nearby * shares))
                gradient += self.inputs.mT @ (self.alpha * shares)
                pulled = features.mT @ (self.alpha * nearby)
                gradient += block.mT @ (self.activation.curvature(reached) * pulled)
        return total, gradient

    def interaction(self, x: Any) -> Tensor:
        """The interaction matrix grad phi(x)^T Phi^T, (d, N): grad f(x) is that times alpha."""
        point = self._point(x)
        nearby = self.inputs @ point
        found = self.inputs.new_zeros(len(point), len(self.inputs))
        for block, features in self._blocks():
            reached = block @ point
            if self.kind == "rf":
                found += block.mT @ (self.activation.derivative(reached)[:, None] * features.mT)
            else:
                found += self.inputs.mT * (features @ self.activation.derivative(reached))
                found += (block.mT @ (self.activation.curvature(reached)[:, None] * features.mT)) * nearby
        return found

    def robustness(self, x: Any, terms: bool = False) -> Robustness:
        """S(x) = |x| |grad f(x)|."""
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
        """What moving x by `share` of its length along the gradient does: the real change of f, and the linear one."""
        if not (math.isfinite(share) and share > 0):
            raise InputError(f"share must be a finite number > 0, got {share}")
        point = self._point(x)
        before, gradient = self._at(point)
        length = float(torch.linalg.vector_norm(gradient))
        if length == 0:
            return 0.0, 0.0
        step = share * float(torch.linalg.vector_norm(point)) / length
        return self._at(point + step * gradient)[0] - before, step * length**2


def check_features(kind: str, phi: Activation) -> None:
    """Whether there are such features, with the derivatives that are needed."""
    if kind not in KINDS:
        raise InputError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}{nearest(kind, KINDS)}")
    if kind == "ntk" and phi.nonsmooth:
        raise InputError(f"ntk robustness needs phi'', which {phi.name} does not have at a kink: use softplus or gelu")


def check_labels(y: Any, count: int) -> Tensor:
    """Labels, one for each input."""
    labels = as_tensor("y", y).detach().double()
    if tuple(labels.shape) != (count,):
        raise InputError(f"y must have one label for each of the {count} inputs, got {tuple(labels.shape)}")
    if not bool(torch.isfinite(labels).all()):
        raise InputError("y must be finite, got nan or inf")
    return labels


def check_point(x: Any, d: int) -> Tensor:
    """An input where a gradient is taken: finite and not zero."""
    point = as_tensor("x", x).detach().double()
    if tuple(point.shape) != (d,):
        raise InputError(f"x must have the shape ({d},), got {tuple(point.shape)}")
    if not bool(torch.isfinite(point).all()):
        raise InputError("x must be finite, got nan or inf")
    if not bool(point.any()):
        raise InputError("x must not be zero: S measures changes relative to |x|")
    return point


def interpolate(kernel: Tensor, labels: Tensor) -> Tensor:
    """alpha with K alpha = y by a Cholesky factor, refined once; a kernel that is singular in float64 is refused."""
    factor, failed = torch.linalg.cholesky_ex(kernel)
    pivots = factor.diagonal() ** 2
    floor = len(pivots) * torch.finfo(torch.float64).eps * float(kernel.diagonal().max())
    if int(failed) or bool(pivots.min() <= floor):
        raise NumericalError(
            "the kernel is singular: inputs are repeated, or there are too few features to tell them apart"
        )
    alpha = torch.cholesky_solve(labels[:, None], factor)
    rest = labels[:, None] - kernel @ alpha
    return (alpha + torch.cholesky_solve(rest, factor))[:, 0]
