"""Robustness over many widths, numbers of samples and activations at once, which share their weights.

Rows of the weights are nested in the width, and samples in their number: one kernel is grown block by block, and its
leading parts are those of fewer samples. So a sweep costs what its largest point does, for each activation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from wordsway import memory
from wordsway.activations import Activation
from wordsway.activations import activation as activation_named
from wordsway.contexts import check_size
from wordsway.errors import InputError, NumericalError
from wordsway.kernels.gram import Gram
from wordsway.kernels.network import as_inputs
from wordsway.kernels.robustness import check_features, check_labels, check_point, interpolate
from wordsway.kernels.weights import feature_rows
from wordsway.seeds import check_seed

_ROWS = 8192  # of the weights at a time
_KEPT = 3 * 10**9  # bytes of X V^T that are kept rather than computed twice


@dataclass(frozen=True)
class Point:
    """S at one width, number of samples and activation."""

    width: int
    samples: int
    activation: str
    sensitivity: float
    fit: float


def robustness_sweep(
    kind: str,
    X: Any,
    y: Any,
    x: Any,
    widths: Sequence[int],
    samples: Sequence[int],
    activations: Sequence[str | Activation],
    seed: int = 0,
) -> list[Point]:
    """S(x) of `feature_robustness` at every width, for the first N samples for every N, and every activation.

    Each value is what `feature_robustness` gives for the same seed. Cost, with the largest k and N: O(N k d) once, and
    O(N^2 k) for each activation.
    """
    phis = [activation_named(name) for name in activations]
    for phi in phis:
        check_features(kind, phi)
    inputs, seed = as_inputs(X).double(), check_seed(seed)
    labels = check_labels(y, len(inputs))
    point = check_point(x, inputs.shape[1])
    counts = sorted({check_size(count, "samples") for count in samples})
    sizes = sorted({check_size(width, "widths") for width in widths})
    if counts[-1] > len(inputs):
        raise InputError(f"samples must be at most the {len(inputs)} inputs, got {counts[-1]}")
    per = inputs.shape[1] if kind == "ntk" else 1
    if sizes[0] * per < counts[-1]:
        raise NumericalError(f"{counts[-1]} samples need at least as many features, got {sizes[0] * per}")
    sweep = _Sweep(kind, inputs[: counts[-1]], point, sizes, seed)
    found = []
    for phi in phis:
        found += sweep.points(phi, labels, counts)
    return found


class _Sweep:
    """What all activations share: the pre-activations of the samples and of x, block by block."""

    def __init__(self, kind: str, inputs: Tensor, x: Tensor, widths: list[int], seed: int) -> None:
        self.kind, self.inputs, self.x, self.widths, self.seed = kind, inputs, x, widths, seed
        self.nearby = inputs @ x  # N
        self.products = inputs @ inputs.mT
        keep = 8 * len(inputs) * widths[-1] <= min(_KEPT, memory.available() // 3)
        self.kept = [inputs @ block.mT for block in self._rows()] if keep else None

    def _rows(self) -> Iterator[Tensor]:
        """Blocks of weights that end at every width."""
        start = 0
        for block in feature_rows(self.widths[-1], self.inputs.shape[1], self.seed, _ROWS):
            cuts = [width - start for width in self.widths if 0 < width - start < len(block)]
            for first, last in zip([0, *cuts], [*cuts, len(block)], strict=True):
                yield block[first:last]
            start += len(block)

    def blocks(self) -> Iterator[tuple[Tensor, Tensor, int]]:
        """Weights (rows, d), what they give for the samples (N, rows), and the number of rows up to their end."""
        end = 0
        for number, block in enumerate(self._rows()):
            end += len(block)
            yield block, self.inputs @ block.mT if self.kept is None else self.kept[number], end

    def points(self, phi: Activation, labels: Tensor, counts: list[int]) -> list[Point]:
        """Grow the kernel, solve at every width, then gather all gradients in one more pass."""
        gram = Gram(len(self.inputs))
        solved: dict[tuple[int, int], tuple[Tensor, float]] = {}
        for _, reached, end in self.blocks():
            gram.add(self._features(phi, reached))
            if end in self.widths:
                kernel = gram.matrix() if self.kind == "rf" else gram.matrix() * self.products
                for count in counts:
                    solved[end, count] = _solve(kernel[:count, :count], labels[:count])
        gradients = self._gradients(phi, {key: alpha for key, (alpha, _) in solved.items()})
        size = float(torch.linalg.vector_norm(self.x))
        return [
            Point(width, count, phi.name, size * float(torch.linalg.vector_norm(gradients[width, count])), fit)
            for (width, count), (_, fit) in solved.items()
        ]

    def _features(self, phi: Activation, reached: Tensor) -> Tensor:
        return phi(reached) if self.kind == "rf" else phi.slope(reached)

    def _gradients(self, phi: Activation, alphas: dict[tuple[int, int], Tensor]) -> dict[tuple[int, int], Tensor]:
        keys = list(alphas)
        columns = self.inputs.new_zeros(len(self.inputs), len(keys))  # N points, zero beyond the samples of each
        for place, key in enumerate(keys):
            columns[: key[1], place] = alphas[key]
        widths = torch.tensor([width for width, _ in keys])
        found = self.inputs.new_zeros(len(self.x), len(keys))
        for block, reached, end in self.blocks():
            used = (widths >= end).to(columns)  # blocks end at every width, so that each is used whole or not at all
            features, here = self._features(phi, reached), block @ self.x
            if self.kind == "rf":
                found += block.mT @ (phi.slope(here)[:, None] * (features.mT @ (columns * used)))
            else:
                shares = features @ phi.slope(here)  # N
                found += self.inputs.mT @ (shares[:, None] * columns * used)
                pulled = features.mT @ (self.nearby[:, None] * columns * used)
                found += block.mT @ (phi.curvature(here)[:, None] * pulled)
        return {key: found[:, place] for place, key in enumerate(keys)}


def _solve(kernel: Tensor, labels: Tensor) -> tuple[Tensor, float]:
    """alpha with K alpha = y, refined once, and the largest error on a sample."""
    alpha = interpolate(kernel, labels)
    return alpha, float((kernel @ alpha - labels).abs().max())
