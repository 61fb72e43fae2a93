"""The minimum-norm model on given features, by its N x N kernel: theta*, fine-tuned, re-trained, aligned.

Nothing here is p x p. With features Phi (N x p) and K = Phi Phi^T, the projector orthogonal to the rows of Phi is
applied as P' phi = phi - Phi^T K^-1 Phi phi, at O(N p) for each vector after O(N^2 p + N^3) once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from scipy import linalg
from torch import Tensor

from wordsway import memory
from wordsway.checks import check_size
from wordsway.errors import InputError, NumericalError
from wordsway.generalization.samples import as_samples
from wordsway.maps import FeatureMap

_IN_SPAN = 1e-7  # |P' phi| / |phi| below which a sample adds no new direction
_FITTED = 1e-6  # largest error on a label of a model that interpolates
_REFINEMENTS = 5  # solutions by K lose digits twice as fast as Phi does: they are improved at most so often


class Features(Protocol):
    """Features of N samples that are asked for in blocks of rows."""

    shape: tuple[int, int]  # N p

    def rows(self, start: int, stop: int) -> Tensor:
        """Features of the samples start, ..., stop - 1: (stop - start, p)."""


class StreamedFeatures:
    """Features of many contexts, computed anew whenever they are asked, a block at a time.

    For maps whose N x p features do not fit in memory; the kernel then costs N / block evaluations of every context.

    Parameters
    ----------
    phi : callable
        The map; it must give the same features every time.
    contexts : Tensor (N, n, d)
    block : int
        Contexts whose features are held at once, twice.
    """

    def __init__(self, phi: FeatureMap, contexts: Tensor, block: int = 64) -> None:
        self.phi, self.contexts, self.block = phi, as_samples(contexts), check_size(block, "block")
        self.shape = (len(self.contexts), features_of(phi, self.contexts[:1]).shape[1])

    def rows(self, start: int, stop: int) -> Tensor:
        return features_of(self.phi, self.contexts[start:stop])


def features_of(phi: FeatureMap, contexts: Tensor) -> Tensor:
    """Features of contexts (N, n, d) as rows (N, p), one evaluation of the map if it takes batches."""
    if not callable(phi):
        raise InputError(f"a map must be callable on a context, got {type(phi).__name__}: pass a function or a map")
    with torch.no_grad():
        found = [phi(contexts)] if getattr(phi, "batched", False) else [phi(context) for context in contexts]
    if not isinstance(found[0], Tensor):
        raise InputError(f"a map must return a torch tensor, got {type(found[0]).__name__}")
    values = found[0] if len(found) == 1 else torch.stack(found)
    return values.reshape(len(contexts), -1)


class _Stored:
    """Features that are there."""

    def __init__(self, values: Tensor) -> None:
        self.values = values
        self.shape = (values.shape[0], values.shape[1])

    def rows(self, start: int, stop: int) -> Tensor:
        return self.values[start:stop]


class Interpolator:
    """theta* = theta_0 + Phi^+ (y - Phi theta_0), equation (12): what gradient descent from theta_0 finds.

    Parameters
    ----------
    features : array (N, ...) or Features
        One sample a row, flattened; or an object that gives blocks of rows, such as `StreamedFeatures`.
    labels : array (N,)
        -1 or +1; both must occur.
    start : array (p,), optional
        theta_0; 0 if left out.

    Attributes
    ----------
    theta : Tensor (p,)
        theta*.
    singular : bool
        Whether K has no inverse to working precision (N > p, or samples that depend on each other). The pseudo-inverse
        then cuts off eigenvalues below 10 (N + sqrt(p)) eps times the largest, which may be rounding of K.
    interpolates : bool
        Whether theta* gives every label, to 1e-6.

    Notes
    -----
    O(N^2 p + N^3) time; O(N p + N^2) memory for stored features, O(N^2 + block p) for streamed ones.
    """

    def __init__(self, features: Any, labels: Any, start: Any = None) -> None:
        self.features: Features = features if hasattr(features, "rows") else _Stored(_matrix(features))
        count, width = self.features.shape
        self.labels = check_labels(labels, count)
        self.block = int(getattr(self.features, "block", count))
        memory.require(4 * 8 * count * count, f"the kernel of {count} samples", "use fewer samples")
        self.kernel = self._kernel()
        self._cut = 10 * np.finfo(float).eps * (count + math.sqrt(width))  # relative size of what may be rounding
        self._factor = self._factorise()
        self.singular = not isinstance(self._factor, tuple) and bool(self._factor[0][0] <= self._smallest_kept())
        theta0 = torch.zeros(width, dtype=torch.float64) if start is None else _vector(start, width, "start")
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
            if not bool(torch.isfinite(rows).all()):
                raise NumericalError("the features must be finite, got some that are not: rescale the contexts")
            kernel[start:stop, start:stop] = _gram(rows)
            for other in range(stop, count, self.block):
                end = min(other + self.block, count)
                found = rows @ self.features.rows(other, end).to(torch.float64).mT
                kernel[start:stop, other:end] = found
                kernel[other:end, start:stop] = found.mT
        if not bool(torch.isfinite(kernel).all()):
            raise NumericalError("the kernel must be finite, got features whose squares are not: rescale the contexts")
        return (kernel + kernel.mT) / 2

    def _factorise(self) -> Any:
        """The Cholesky factor of K, or its eigenvalues with their vectors where that may have no inverse."""
        values = self.kernel.numpy()
        if self.features.shape[0] <= self.features.shape[1]:
            try:
                factor = linalg.cho_factor(values, lower=True, check_finite=False)
                inverse_condition, _ = linalg.lapack.dpocon(factor[0], np.linalg.norm(values, 1), uplo="L")
                if inverse_condition > self._cut:
                    return factor
            except linalg.LinAlgError:
                pass
        return list(linalg.eigh(values, check_finite=False))

    def _smallest_kept(self) -> float:
        """The eigenvalue up to which K is taken to be singular."""
        return self._cut * max(float(self._factor[0][-1]), 0.0)

    def _fit(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """theta* from theta_0, and what it misses of the labels; refined until it misses no less."""
        missing = self.labels - self.apply(theta)
        for turn in range(_REFINEMENTS):
            better = theta + self.pull(self.solve(missing))
            left = self.labels - self.apply(better)
            if turn and float(left.norm()) >= 0.5 * float(missing.norm()):
                break
            theta, missing = better, left
        return theta, missing

    def solve(self, right: Tensor) -> Tensor:
        """K^-1 times a vector (N,), or K^+ where K is singular."""
        return torch.from_numpy(self._solve(right.numpy(), power=1))

    def _solve(self, right: npt.NDArray[np.float64], power: int) -> npt.NDArray[np.float64]:
        if isinstance(self._factor, tuple):
            for _ in range(power):
                right = linalg.cho_solve(self._factor, right, check_finite=False)
            return right
        values, vectors = self._factor
        kept = values > self._smallest_kept()
        inverse = np.where(kept, 1 / np.where(kept, values, 1.0), 0.0) ** power
        return np.asarray(vectors @ (inverse * (vectors.T @ right)))

    def apply(self, vector: Tensor) -> Tensor:
        """Phi v: (p,) -> (N,)."""
        return torch.cat([rows @ vector for _, _, rows in self._blocks()])

    def pull(self, weights: Tensor) -> Tensor:
        """Phi^T a: (N,) -> (p,)."""
        total = torch.zeros(self.features.shape[1], dtype=torch.float64)
        for start, stop, rows in self._blocks():
            total += rows.mT @ weights[start:stop]
        return total

    @cached_property
    def lambda_min(self) -> float:
        """The smallest eigenvalue of K, at least 0."""
        return _smallest(self.kernel)

    def predict(self, features: Any) -> Tensor:
        """f(X, theta*) for features (..., p), or of one sample in any shape."""
        return self._rows(features) @ self.theta

    def _rows(self, features: Any) -> Tensor:
        values, width = _tensor(features, "features"), self.features.shape[1]
        if values.shape[-1:] != (width,):
            return _vector(values, width, "features")
        return _vector(values, values.numel(), "features").reshape(values.shape)

    def project(self, features: Any) -> Tensor:
        """P' phi: what features (p,) have orthogonal to those of the samples; done again for its digits."""
        rest = _vector(features, self.features.shape[1], "features")
        least = 1e-14 * float(rest.norm())
        for _ in range(_REFINEMENTS):
            known = self.pull(self.solve(self.apply(rest)))
            rest = rest - known
            if float(known.norm()) <= least:
                break
        return rest

    def fine_tune(self, features: Any, label: float) -> Tensor:
        """theta_f = theta* + phi (y - f(X, theta*)) / |phi|^2, equation (14)."""
        phi = _vector(features, self.features.shape[1], "features")
        return self.theta + _over_square(phi) * (float(label) - phi @ self.theta)

    def retrain(self, features: Any, label: float) -> Tensor:
        """theta_r of (15), from scratch on the samples and (X, y), by a rank-one formula: see `direction`."""
        phi = _vector(features, self.features.shape[1], "features")
        return self.theta + self.direction(phi) * (float(label) - phi @ self.theta)

    def direction(self, features: Any) -> Tensor:
        """The vector b (p,) with theta_r = theta* + b (y - f(X, theta*)).

        P' phi / |P' phi|^2, as in (48), where phi is no combination of the samples' features; otherwise the
        least-squares solution moves along Phi^T K^+2 Phi phi.
        """
        phi = _vector(features, self.features.shape[1], "features")
        rest = self.project(phi)
        if float(rest.norm()) > _IN_SPAN * float(phi.norm()):
            return _over_square(rest)
        known = self.apply(phi)
        twice = torch.from_numpy(self._solve(known.numpy(), power=2))
        gain = float(known @ twice)  # phi^T (Phi^T Phi)^+ phi
        return self.pull(twice) / (1 + gain)

    def alignment(self, features: Any) -> Tensor:
        """The vector a (p,) with <a, phi(X')> = F(X, X'), the feature alignment (23): P' phi / |P' phi|^2."""
        phi = _vector(features, self.features.shape[1], "features")
        rest = self.project(phi)
        if float(rest.norm()) <= _IN_SPAN * float(phi.norm()):
            raise NumericalError(
                "the alignment is undefined: the sample's features are a combination of the training samples' "
                f"(N={self.features.shape[0]}, p={self.features.shape[1]}): use fewer samples or more features"
            )
        return _over_square(rest)

    def with_sample(self, features: Any) -> float:
        """lambda_min of the kernel K_r of the samples and one more."""
        phi = _vector(features, self.features.shape[1], "features")
        side = self.apply(phi)
        count = len(side)
        kernel = torch.empty(count + 1, count + 1, dtype=torch.float64)
        kernel[:count, :count], kernel[count, :count], kernel[:count, count] = self.kernel, side, side
        kernel[count, count] = phi @ phi
        return _smallest(kernel)


def _gram(rows: Tensor) -> Tensor:
    """rows rows^T, only one triangle of it computed."""
    half = linalg.blas.dsyrk(1.0, rows.contiguous().numpy().T, trans=1, lower=0)  # the upper triangle
    return torch.from_numpy(np.triu(half) + np.triu(half, 1).T)


def check_labels(labels: Any, count: int) -> Tensor:
    """Labels as a vector of -1 and +1, both of which occur."""
    values = _tensor(labels, "labels").to(torch.float64)
    if values.ndim != 1 or len(values) != count:
        raise InputError(f"labels must be one for each of the {count} samples, got shape {tuple(values.shape)}")
    wrong = values[values.abs() != 1]
    if len(wrong):
        raise InputError(f"labels must be -1 or +1, got {wrong[0].item():g}")
    if float(values.min()) == float(values.max()):
        raise InputError(f"labels must be of both classes, got only {values[0].item():+g}: add samples of the other")
    return values


def _matrix(features: Any) -> Tensor:
    """Features as rows."""
    values = _tensor(features, "features")
    if values.ndim < 2 or values.numel() == 0 or not values.is_floating_point():
        shape = tuple(values.shape)
        raise InputError(f"features must be floats, one sample a row, N >= 1; got shape {shape} of {values.dtype}")
    return values.reshape(len(values), -1)


def _tensor(values: Any, what: str) -> Tensor:
    try:
        found = torch.as_tensor(values).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{what} must be an array of numbers, got {type(values).__name__}") from error
    if found.is_complex():
        raise InputError(f"{what} must be real, got {found.dtype}: take the real part first")
    return found


def _vector(values: Any, width: int, what: str) -> Tensor:
    vector = _tensor(values, what).to(torch.float64).reshape(-1)
    if len(vector) != width:
        raise InputError(f"{what} must have {width} entries, got {len(vector)}")
    if not bool(torch.isfinite(vector).all()):
        raise NumericalError(f"{what} must be finite, got entries that are not: rescale the context")
    return vector


def _over_square(vector: Tensor) -> Tensor:
    """v / |v|^2."""
    square = float(vector @ vector)
    if square == 0:
        raise NumericalError("the sample's features are all zero: choose another sample or map")
    return vector / square


def _smallest(kernel: Tensor) -> float:
    found = linalg.eigvalsh(kernel.numpy(), subset_by_index=(0, 0), check_finite=False)
    return max(float(found[0]), 0.0) if math.isfinite(found[0]) else math.nan
