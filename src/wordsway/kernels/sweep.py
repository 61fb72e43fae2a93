"""Robustness over many widths, numbers of samples and activations at once, which share their weights.

Rows of the weights are nested in the width, and samples in their number: one kernel is grown block by block, and its
leading parts are those of fewer samples. So a sweep costs what its largest point does, for each activation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from wordsway import memory
from wordsway.activations import Activation
from wordsway.activations import activation as activation_named
from wordsway.checks import check_several, check_size
from wordsway.errors import InputError, NumericalError
from wordsway.kernels.gram import Gram
from wordsway.kernels.network import as_inputs
from wordsway.kernels.robustness import check_features, check_labels, check_point, interpolate
from wordsway.kernels.weights import feature_rows
from wordsway.memory import ResourceUsage
from wordsway.records import Record
from wordsway.seeds import check_seed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROWS = 8192  # of the weights at a time
_KEPT = 3 * 10**9  # bytes of X V^T that are kept rather than computed twice


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

    Each value is what `feature_robustness` gives for the same seed. Cost, with the largest k and N: O(N k d) once, and
    O(N^2 k) for each activation.
    """
    for name, given in (("widths", widths), ("samples", samples), ("activations", activations)):
        check_several(given, name)
    phis = [activation_named(name) for name in activations]
    for phi in phis:
        check_features(kind, phi)
    inputs, seed = as_inputs(X).double(), check_seed(seed)
    labels = check_labels(y, len(inputs))
    point = check_point(x, inputs.shape[1])
    counts = sorted({check_size(count, "samples") for count in samples})
    sizes = sorted({check_size(width, "widths") for width in widths})
    for what, given in (("widths", sizes), ("samples", counts), ("activations", phis)):
        if not given:
            raise InputError(f"widths, samples and activations must each name at least one, got no {what}")
    if counts[-1] > len(inputs):
        raise InputError(f"samples must be at most the {len(inputs)} inputs, got {counts[-1]}")
    per = inputs.shape[1] if kind == "ntk" else 1
    if sizes[0] * per < counts[-1]:
        raise NumericalError(f"{counts[-1]} samples need at least as many features, got {sizes[0] * per}")
    with ResourceUsage() as usage:
        points = _Sweep(kind, inputs[: counts[-1]], point, sizes, seed).points(phis, labels, counts)
    return RobustnessSweep(kind, tuple(points), usage.computed_in(inputs.dtype, inputs.device, len(points)))


_Key: TypeAlias = tuple[int, int]  # width and number of samples


class _Sweep:
    """What all activations share: the pre-activations of the samples and of x, block by block."""

    def __init__(self, kind: str, inputs: Tensor, x: Tensor, widths: list[int], seed: int) -> None:
        self.kind, self.inputs, self.x, self.widths, self.seed = kind, inputs, x, widths, seed
        self.nearby = inputs @ x  # N
        self.products = inputs @ inputs.mT
        self.kept: list[Tensor] = []
        self.keep = 8 * len(inputs) * widths[-1] <= min(_KEPT, memory.available() // 3)

    def blocks(self) -> Iterator[tuple[Tensor, Tensor, int]]:
        """Weights (rows, d), what they give for the samples (N, rows), and the number of rows up to their end.

        A block ends at every width. What weights give is kept for the second time, where there is room for it.
        """
        end = number = 0
        for drawn in feature_rows(self.widths[-1], self.inputs.shape[1], self.seed, _ROWS):
            cuts = [width - end for width in self.widths if 0 < width - end < len(drawn)]
            for first, last in zip([0, *cuts], [*cuts, len(drawn)], strict=True):
                block = drawn[first:last]
                reached = self.kept[number] if number < len(self.kept) else self.inputs @ block.mT
                if self.keep and number == len(self.kept):
                    self.kept.append(reached)
                number += 1
                yield block, reached, end + last
            end += len(drawn)

    def points(self, phis: list[Activation], labels: Tensor, counts: list[int]) -> list[Point]:
        """Grow the kernels, solve at every width, then gather all gradients in one more pass."""
        grams = [Gram(len(self.inputs)) for _ in phis]
        solved: list[dict[_Key, tuple[Tensor, float]]] = [{} for _ in phis]
        for _, reached, end in self.blocks():
            for phi, gram, known in zip(phis, grams, solved, strict=True):
                gram.add(self._features(phi, reached))
                if end in self.widths:
                    kernel = gram.matrix() if self.kind == "rf" else gram.matrix() * self.products
                    known |= {(end, count): _solve(kernel[:count, :count], labels[:count]) for count in counts}
        gradients = self._gradients(phis, [{key: alpha for key, (alpha, _) in known.items()} for known in solved])
        size = float(torch.linalg.vector_norm(self.x))
        return [
            Point(width, count, phi.name, size * float(torch.linalg.vector_norm(derivatives[width, count])), fit)
            for phi, known, derivatives in zip(phis, solved, gradients, strict=True)
            for (width, count), (_, fit) in known.items()
        ]

    def _features(self, phi: Activation, reached: Tensor) -> Tensor:
        return phi(reached) if self.kind == "rf" else phi.derivative(reached)

    def _gradients(self, phis: list[Activation], alphas: list[dict[_Key, Tensor]]) -> list[dict[_Key, Tensor]]:
        keys = list(alphas[0])
        columns = self.inputs.new_zeros(len(phis), len(self.inputs), len(keys))  # zero beyond the samples of each
        for place, (width, count) in enumerate(keys):
            for column, known in zip(columns, alphas, strict=True):
                column[:count, place] = known[width, count]
        widths = torch.tensor([width for width, _ in keys])
        found = self.inputs.new_zeros(len(phis), len(self.x), len(keys))
        for block, reached, end in self.blocks():
            here = block @ self.x
            used = (widths >= end).to(columns)  # blocks end at every width, so that each is used whole or not at all
            for phi, column, sums in zip(phis, columns, found, strict=True):
                sums += self._share(phi, block, reached, here, column * used)
        return [{key: sums[:, place] for place, key in enumerate(keys)} for sums in found]

    def _share(self, phi: Activation, block: Tensor, reached: Tensor, here: Tensor, alpha: Tensor) -> Tensor:
        """What one block of weights adds to the gradients, (d, keys)."""
        features = self._features(phi, reached)
        if self.kind == "rf":
            return ((alpha.mT @ features) * phi.derivative(here) @ block).mT
        shares = features @ phi.derivative(here)  # N
        pulled = (alpha.mT * self.nearby) @ features
        return ((alpha.mT * shares) @ self.inputs + pulled * phi.curvature(here) @ block).mT


def _solve(kernel: Tensor, labels: Tensor) -> tuple[Tensor, float]:
    """alpha with K alpha = y, refined once, and the largest error on a sample."""
    alpha = interpolate(kernel, labels)
    return alpha, float((kernel @ alpha - labels).abs().max())
