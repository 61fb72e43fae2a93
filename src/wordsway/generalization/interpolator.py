"""The minimum-norm model on given features, by its N x N kernel: theta*, fine-tuned, re-trained, aligned.

Nothing here is p x p. With features Phi (N x p) and K = Phi Phi^T, the projector orthogonal to the rows of Phi is
applied as P' phi = phi - Phi^T K^-1 Phi phi, at O(N p) per vector after O(N^2 p + N^3) once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Protocol

import torch
from scipy import linalg
from torch import Tensor

from wordsway import memory
from wordsway.checks import all_finite, as_array, as_contexts, check_size, like_parameters
from wordsway.errors import InputError, NumericalError
from wordsway.generalization.kernel import Gram, KernelSolver
from wordsway.maps import FeatureMap

_IN_SPAN = 1e-7  # |P' phi| / |phi| below which a sample adds no new direction
_ORTHOGONAL = 1e-13  # |<P' phi, phi_i>| / |phi_i| |phi| up to which P' phi is orthogonal to sample i
_FITTED = 1e-6  # largest error on a label of a model that interpolates
_REFINEMENTS = 5  # at most; solutions by K lose digits twice as fast as Phi does, so that they are improved


class Features(Protocol):
    """Features of N samples, computed in blocks of rows."""

    shape: tuple[int, int]  # N p

    def rows(self, start: int, stop: int) -> Tensor:
        """Return the features of the samples start, ..., stop - 1: (stop - start, p)."""


class StreamedFeatures:
    """Features of many contexts, computed anew at every use, a block at a time.

    For maps whose N x p features do not fit in memory; the kernel then costs N / block evaluations of every context.

    Parameters
    ----------
    phi : callable
        The map; it must return the same features every time.
    contexts : Tensor (N, n, d)
    block : int
        Contexts whose features are held at once, twice.
    """

    def __init__(self, phi: FeatureMap, contexts: Tensor, block: int = 64) -> None:
        self.phi, self.contexts, self.block = phi, as_contexts(contexts), check_size(block, "block")
        self.shape = (len(self.contexts), features_of(phi, self.contexts[:1]).shape[1])

    def rows(self, start: int, stop: int) -> Tensor:
        return features_of(self.phi, self.contexts[start:stop])


class _StoredFeatures:
    """Features that are held in memory."""

    def __init__(self, features: Any) -> None:
        values = as_array(features, "features", finite=False)
        if values.ndim < 2 or 0 in values.shape:
            raise InputError(f"features must have the shape (N, ...) with N >= 1, got {tuple(values.shape)}")
        self.values = values.reshape(len(values), -1).to(torch.float64)  # once: every product takes float64
        self.shape = (self.values.shape[0], self.values.shape[1])

    def rows(self, start: int, stop: int) -> Tensor:
        return self.values[start:stop]


def features_of(phi: FeatureMap, contexts: Tensor) -> Tensor:
    """Return the features of contexts (N, n, d) as rows (N, p), by one evaluation if the map takes batches."""
    if not callable(phi):
        raise InputError(f"a map must be callable on a context, got {type(phi).__name__}: pass a function or a map")
    contexts = like_parameters(phi, contexts)
    with torch.no_grad():
        parts = [phi(contexts)] if getattr(phi, "batched", False) else [phi(context) for context in contexts]
    if not isinstance(parts[0], Tensor):
        raise InputError(f"a map must return a torch tensor, got {type(parts[0]).__name__}: compute it with torch")
    features = parts[0] if len(parts) == 1 else torch.stack(parts)
    if not features.is_floating_point():
        raise InputError(f"a map must return features of floats, got {features.dtype}")
    return features.reshape(len(contexts), -1)


class Interpolator:
    """theta* = theta_0 + Phi^+ (y - Phi theta_0), equation (12): the limit of gradient descent from theta_0.

    Parameters
    ----------
    features : array (N, ...) or Features
        One sample per row, flattened; or an object that computes blocks of rows, such as `StreamedFeatures`.
    labels : array (N,)
        -1 or +1; both must occur.
    start : array (p,), optional
        theta_0, default: 0.

    Attributes
    ----------
    theta : Tensor (p,)
        theta*.
    singular : bool
        Whether K has no inverse to working precision (N > p, or samples that depend on each other), see `KernelSolver`.
    error : float
        Largest error of theta* on a label.
    interpolates : bool
        Whether that is at most 1e-6.

    Notes
    -----
    O(N^2 p + N^3) time; O(N p + N^2) memory for stored features, O(N^2 + block p) for streamed ones.
    """

    def __init__(self, features: Any, labels: Any, start: Any = None) -> None:
        self.features: Features = features if hasattr(features, "rows") else _StoredFeatures(features)
        count, width = self.features.shape
        self.labels = check_labels(labels, count)
        self.block = int(getattr(self.features, "block", count))
        memory.require(4 * 8 * count * count, f"the kernel of {count} samples", "use fewer samples")
        self.kernel = self._kernel()
        self._solver = KernelSolver(self.kernel, width)
        self.singular = self._solver.singular
        theta0 = torch.zeros(width, dtype=torch.float64) if start is None else self._vector(start, "start")
        self.theta, missing = self._fit(theta0)
        self.error = float(missing.abs().max())
        self.interpolates = self.error <= _FITTED

    def _blocks(self) -> Iterator[tuple[int, int, Tensor]]:
        count = self.features.shape[0]
        for start in range(0, count, self.block):
            stop = min(start + self.block, count)
            yield start, stop, self.features.rows(start, stop).to(torch.float64)

    def _kernel(self) -> Tensor:
        """K = Phi Phi^T, by pairs of blocks."""
        count = self.features.shape[0]
        kernel = torch.empty(count, count, dtype=torch.float64)
        for start, stop, rows in self._blocks():
            kernel[start:stop, start:stop] = Gram(len(rows)).add(rows).matrix()
            for other in range(stop, count, self.block):
                end = min(other + self.block, count)
                part = rows @ self.features.rows(other, end).to(torch.float64).mT
                kernel[start:stop, other:end] = part
                kernel[other:end, start:stop] = part.mT
        if not all_finite(kernel):
            for _, _, rows in self._blocks():
                _check_finite(rows, "the features")
        return _check_finite(kernel, "the kernel")

    def _fit(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Return theta* from theta_0, and its errors on the labels; refined until they are rounding errors."""
        missing = self.labels - self.apply(theta) if bool(theta.any()) else self.labels
        least = 1e-14 * float(self.labels.norm())
        for turn in range(_REFINEMENTS):
            better = theta + self.pull(self._solver.solve(missing))
            left = self.labels - self.apply(better)
            if turn and float(left.norm()) >= 0.5 * float(missing.norm()):
                break
            theta, missing = better, left
            if float(left.norm()) <= least:
                break
        return theta, missing

    def apply(self, vector: Tensor) -> Tensor:
        """Return Phi v: (p,) -> (N,)."""
        return torch.cat([rows @ vector for _, _, rows in self._blocks()])

    def pull(self, weights: Tensor) -> Tensor:
        """Return Phi^T a: (N,) -> (p,)."""
        total = torch.zeros(self.features.shape[1], dtype=torch.float64)
        for start, stop, rows in self._blocks():
            total += rows.mT @ weights[start:stop]
        return total

    @cached_property
    def lambda_min(self) -> float:
        """The smallest eigenvalue of K, at least 0."""
        return _smallest(self.kernel)

    def predict(self, features: Any) -> Tensor:
        """Return f(X, theta*) for features (..., p), or for one sample in any shape."""
        values = as_array(features, "features", finite=False).double()
        rows = values if values.shape[-1:] == self.theta.shape else self._vector(values)
        return _check_finite(rows, "features") @ self.theta

    def project(self, features: Any) -> Tensor:
        """Return P' phi, the part of features (p,) orthogonal to those of the samples; repeated for its digits."""
        rest = self._vector(features)
        least, before = 1e-14 * float(rest.norm()), 0.0
        for _ in range(_REFINEMENTS):
            known = self.pull(self._solver.solve(self.apply(rest)))
            rest, size = rest - known, float(known.norm())
            if size <= least or size * size <= least * before:  # what is left falls by the same factor each time
                break
            before = size
        return rest

    def fine_tune(self, features: Any, label: float) -> Tensor:
        """Return theta_f = theta* + phi (y - f(X, theta*)) / |phi|^2, equation (14)."""
        phi = self._vector(features)
        return self.theta + _over_square(phi) * (float(label) - phi @ self.theta)

    def retrain(self, features: Any, label: float) -> Tensor:
        """Return theta_r of (15), from scratch on the samples and (X, y), by a rank-one formula: see `direction`."""
        phi = self._vector(features)
        return self.theta + self.direction(phi) * (float(label) - phi @ self.theta)

    def direction(self, features: Any) -> Tensor:
        """Return the vector b (p,) with theta_r = theta* + b (y - f(X, theta*)).

        P' phi / |P' phi|^2, as in (48), where phi is no combination of the samples' features; otherwise the
        least-squares solution moves along Phi^T K^+2 Phi phi.
        """
        phi = self._vector(features)
        rest = self.project(phi)
        if float(rest.norm()) > _IN_SPAN * float(phi.norm()):
            return _over_square(rest)
        known = self.apply(phi)
        twice = self._solver.solve(self._solver.solve(known))
        gain = float(known @ twice)  # phi^T (Phi^T Phi)^+ phi
        return self.pull(twice) / (1 + gain)

    def alignment(self, features: Any) -> Tensor:
        """Return the vector a (p,) with <a, phi(X')> = F(X, X'), the feature alignment (23): P' phi / |P' phi|^2."""
        phi = self._vector(features)
        rest, size = self.project(phi), float(phi.norm())
        overlap = self.apply(rest).abs() / self.kernel.diagonal().clamp_min(torch.finfo(torch.float64).tiny).sqrt()
        least = 10 * _IN_SPAN if self.singular else _IN_SPAN  # a singular K hides directions of about 1e-7
        if float(rest.norm()) <= least * size or float(overlap.max()) > _ORTHOGONAL * size:
            raise NumericalError(
                "the alignment is undefined: the sample's features are a combination of the training samples', or some "
                f"of these are too alike (N={self.features.shape[0]}, p={self.features.shape[1]}): use fewer samples "
                "or more features"
            )
        return _over_square(rest)

    def with_sample(self, features: Any) -> float:
        """Return lambda_min of the kernel K_r of the samples and one more."""
        phi = self._vector(features)
        side, corner = self.apply(phi)[:, None], (phi @ phi)[None, None]
        return _smallest(torch.cat([torch.cat([self.kernel, side], 1), torch.cat([side.mT, corner], 1)]))

    def _vector(self, values: Any, name: str = "features") -> Tensor:
        """Return p finite numbers, of any shape, as a vector in float64."""
        vector = as_array(values, name, finite=False).double().reshape(-1)
        if len(vector) != self.features.shape[1]:
            raise InputError(f"{name} must have {self.features.shape[1]} entries, got {len(vector)}")
        return _check_finite(vector, name)


def _check_finite(values: Tensor, name: str) -> Tensor:
    """Refuse what a map computed where it is not finite: the input was legal."""
    if not all_finite(values):
        raise NumericalError(f"{name} must be finite, got entries that are not: rescale the contexts")
    return values


def check_labels(labels: Any, count: int) -> Tensor:
    """Return labels as a vector of -1 and +1, both of which occur."""
    values = as_array(labels, "labels", (count,), finite=False).double()
    wrong = values[values.abs() != 1]
    if len(wrong):
        raise InputError(f"labels must be -1 or +1, got {wrong[0].item():g}")
    if float(values.min()) == float(values.max()):
        raise InputError(f"labels must be of both classes, got only {values[0].item():+g}: add samples of the other")
    return values


def _over_square(vector: Tensor) -> Tensor:
    """v / |v|^2."""
    square = float(vector @ vector)
    if square == 0:
        raise NumericalError("the sample's features are all zero: choose another sample or map")
    return vector / square


def _smallest(kernel: Tensor) -> float:
    return max(float(linalg.eigvalsh(kernel.numpy(), subset_by_index=(0, 0), check_finite=False)[0]), 0.0)
