"""Section 6 of the paper in the plainest way: pseudo-inverses of whole feature matrices, the map at every context."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from maps.twins import normal
from torch import Tensor

from wordsway import DeepRandomFeatures, RandomAttention, RandomFeatures, gaussian_context, perturb
from wordsway.generalization import Problem
from wordsway.maps import FeatureMap

Array = npt.NDArray[np.float64]
RANK = 1e-10  # singular values below this, relative to the largest, are zero


@dataclass(frozen=True)
class Models:
    """What is learned from features Phi (N, p) with labels, and then from one more sample phi (p,) with its label."""

    rows: Array
    own: Array
    label: float
    theta: Array  # (12)
    fine: Array  # (14)
    again: Array  # (15)
    rest: Array  # P' phi

    @property
    def before(self) -> float:
        return float(self.own @ self.theta)

    @property
    def bordered(self) -> Array:
        return np.vstack([self.rows, self.own])

    def aligned(self, features: Array, retrained: bool) -> Array:
        """<phi', phi> / |phi|^2, or F of (23), for features (..., p)."""
        along = self.rest if retrained else self.own
        return np.asarray(features @ along / (along @ along))

    def after(self, features: Array, training: str) -> Array:
        return np.asarray(features @ (self.again if training == "re-trained" else self.fine))

    def loss(self, problem: Problem, features: Array) -> Array:
        """(16), (25), (147) to (149), or the loss of the other training."""
        retrained = (problem.training == "re-trained") != (problem.loss == "swapped")
        if problem.loss == "error":
            value = (self.after(features, problem.training) + self.label) ** 2
        else:
            value = (self.aligned(features, retrained) + 1) ** 2
        return np.asarray(value + problem.penalty * (features @ self.theta - self.before) ** 2)


def models(
    rows: Array, labels: Array, own: Array, label: float, start: Array | None = None, rank: float = RANK
) -> Models:
    """The models by `numpy.linalg.pinv`."""
    first = np.zeros(rows.shape[1]) if start is None else start
    theta = first + np.linalg.pinv(rows, rcond=rank) @ (labels - rows @ first)
    fine = theta + own * (label - own @ theta) / (own @ own)
    bordered, all_labels = np.vstack([rows, own]), np.append(labels, label)
    again = first + np.linalg.pinv(bordered, rcond=rank) @ (all_labels - bordered @ first)
    rest = own - np.linalg.pinv(rows, rcond=rank) @ (rows @ own)
    return Models(rows, own, label, theta, fine, again, rest)


def signs(count: int, seed: int = 0) -> Array:
    """Labels of both classes."""
    labels = np.where(np.random.default_rng(seed).random(count) < 0.5, -1.0, 1.0)
    labels[:2] = 1.0, -1.0
    return labels


def plain_features(phi: FeatureMap, contexts: Tensor) -> Array:
    """The map at every context, (B, n, d) -> (B, p)."""
    with torch.no_grad():
        batched = getattr(phi, "batched", False)
        found = phi(contexts) if batched else torch.stack([phi(context) for context in contexts])
    return np.asarray(found.reshape(len(contexts), -1).to(torch.float64).numpy())


@dataclass(frozen=True)
class Scene:
    """A map, training samples, and a new sample of which one word moves."""

    phi: FeatureMap
    contexts: Tensor  # N n d
    labels: Array
    X: Tensor  # n d
    y: float
    word: int

    @property
    def radius(self) -> float:
        return math.sqrt(self.X.shape[1])

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The positional arguments of a measurement: map, contexts, labels, X, y, word."""
        return self.phi, self.contexts, self.labels, self.X, self.y, self.word

    def models(self, start: Array | None = None) -> Models:
        own = plain_features(self.phi, self.X[None])[0]
        return models(plain_features(self.phi, self.contexts), self.labels, own, self.y, start)

    def moved(self, deltas: Array | Tensor) -> Array:
        """Features of X^i(Delta) for each Delta (B, d): (B, p)."""
        return plain_features(self.phi, perturb(self.X, self.word, torch.as_tensor(deltas)))

    def ball(self, count: int, seed: int) -> Array:
        """Random points of the ball, (count, d)."""
        source = np.random.default_rng(seed)
        points = source.standard_normal((count, self.X.shape[1]))
        lengths = self.radius * source.random((count, 1)) ** (1 / points.shape[1])
        return np.asarray(lengths * points / np.linalg.norm(points, axis=1, keepdims=True))


def _own_map(d: int, seed: int) -> FeatureMap:
    weight = normal(d, d, seed=seed)

    def features(X: Tensor) -> Tensor:
        return torch.stack([torch.tanh(X @ weight.to(X)), torch.sin(X.cumsum(-2))], dim=-3)

    return features


def _batches(phi: FeatureMap) -> FeatureMap:
    phi.batched = True  # type: ignore[attr-defined]
    return phi


MAPS: dict[str, Callable[[int, int, int], FeatureMap]] = {
    "raf": lambda n, d, seed: RandomAttention(d, seed=seed),
    "relu-raf": lambda n, d, seed: RandomAttention(d, "relu", seed=seed),
    "sigmoid": lambda n, d, seed: RandomAttention(d, "sigmoid", seed=seed),
    "linear": lambda n, d, seed: RandomAttention(d, "linear", seed=seed),
    "rf": lambda n, d, seed: RandomFeatures(n, d, weight=normal(40, n * d, seed=seed) / math.sqrt(n * d)),
    "rf-tanh": lambda n, d, seed: RandomFeatures(
        n, d, weight=normal(40, n * d, seed=seed) / math.sqrt(n * d), activation="tanh"
    ),
    "drf": lambda n, d, seed: DeepRandomFeatures(
        n, d, 2, weights=[normal(30, n * d, seed=seed) / 4, normal(30, 30, seed=seed + 1) / 4]
    ),
    "own": lambda n, d, seed: _own_map(d, seed),
    "own-batched": lambda n, d, seed: _batches(_own_map(d, seed)),
}


def scene(name: str, seed: int = 0, n: int = 5, d: int = 4, count: int = 6) -> Scene:
    """Gaussian samples, and a map with stored weights."""
    contexts = torch.stack([gaussian_context(n, d, 100 * seed + sample) for sample in range(count + 1)])
    return Scene(MAPS[name](n, d, seed), contexts[1:], signs(count, seed), contexts[0], (-1.0) ** seed, seed % n)
