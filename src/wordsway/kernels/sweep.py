"""Robustness at many widths, numbers of samples and activations at once, at the cost of the largest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from wordsway.activations import Activation
from wordsway.checks import as_array, check_seed, check_several, check_size
from wordsway.errors import InputError
from wordsway.generalization.kernel import Gram, KernelSolver
from wordsway.kernels.features import FeatureBlocks, FeatureFormulas
from wordsway.kernels.robustness import Terms, check_point, proof_terms
from wordsway.memory import ResourceUsage
from wordsway.records import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, repr=False)
class Point(Record):
    """S at one width, number of samples and activation, with the terms of the proofs where they were computed."""

    width: int
    samples: int
    activation: str
    sensitivity: float
    fit: float
    terms: Terms | None = None

    json_names: ClassVar = {"terms": ""}

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | ({} if self.terms is None else self.terms.to_dict())


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
    terms: int | None = None,
) -> RobustnessSweep:
    """S(x) of `feature_robustness` at every width, for the first N samples for every N, and every activation.

    Each value is that of `feature_robustness` with the same seed, or, for rf from N k d = 10^9 on, one of the same law:
    there it rotates its inputs, and with them the weights. Rows of the weights are nested in the width, and
    samples in their number: one kernel is grown block by block, and its leading parts are those of fewer samples. Cost,
    with the largest k and N: O(N k d) once, and O(N^2 k) per activation. `terms` is a width at which those of the
    proofs are computed too, for O(N k d) more per activation with that k.
    """
    for name, values in (("widths", widths), ("samples", samples), ("activations", activations)):
        check_several(values, name)
        if not values:
            raise InputError(f"widths, samples and activations must each name at least one, got no {name}")
    formulas = [FeatureFormulas(kind, name) for name in activations]
    inputs, seed = as_array(X, "inputs", ("N", "d")).double(), check_seed(seed)
    labels = as_array(y, "y", (len(inputs),)).double()
    point = check_point(x, inputs.shape[1])
    counts = sorted({check_size(count, "samples") for count in samples})
    sizes = sorted({check_size(width, "widths") for width in widths})
    if counts[-1] > len(inputs):
        raise InputError(f"samples must be at most the {len(inputs)} inputs, got {counts[-1]}")
    if terms is not None and terms not in sizes:
        raise InputError(f"terms must be one of the widths, got {terms!r}: choose from {', '.join(map(str, sizes))}")
    inputs = inputs[: counts[-1]]
    formulas[0].count(sizes[0], inputs)
    with ResourceUsage() as usage:
        points = _sweep(formulas, inputs, labels, point, FeatureBlocks(inputs, sizes, seed), counts, terms)
    return RobustnessSweep(kind, points, usage.computed_in(inputs.dtype, inputs.device, len(points)))


def _sweep(
    formulas: list[FeatureFormulas],
    inputs: Tensor,
    labels: Tensor,
    x: Tensor,
    blocks: FeatureBlocks,
    counts: list[int],
    terms: int | None,
) -> tuple[Point, ...]:
    """Grow the kernels and solve them at every width, then sum all gradients in one more pass."""
    keys = [(width, count) for width in blocks.widths for count in counts]
    grams = [Gram(len(inputs)) for _ in formulas]
    alphas = inputs.new_zeros(len(formulas), len(keys), len(inputs))  # zero beyond the samples of each key
    fits = inputs.new_zeros(len(formulas), len(keys))
    kernels: dict[int, Tensor] = {}  # of each activation, at the width of the terms
    for _, products, end in blocks:
        for number, (formula, gram) in enumerate(zip(formulas, grams, strict=True)):
            gram.add(formula.features(products))
            kernel = formula.kernel(gram.matrix(), blocks) if end in blocks.widths else None
            if kernel is not None and end == terms:
                kernels[number] = kernel
            for place, (width, count) in enumerate(keys):
                if kernel is not None and width == end:
                    part, target = kernel[:count, :count], labels[:count]
                    solver = KernelSolver(part, formula.count(width, inputs[:count]))
                    alphas[number, place, :count], fits[number, place] = solver.interpolate(target)
    gradients = inputs.new_zeros(len(formulas), len(keys), len(x))
    interactions = inputs.new_zeros(len(kernels), len(x), len(inputs))
    ends = torch.tensor([[width] for width, _ in keys])
    for block, products, end in blocks:
        used = (ends >= end).to(alphas)  # blocks end at every width, so that each is used whole or not at all
        for number, formula in enumerate(formulas):
            features = formula.features(products)
            gradients[number] += formula.share(x, inputs, block, features, alphas[number] * used)[1]
            if terms is not None and end <= terms:
                interactions[number] += formula.interaction(x, inputs, block, features)
    size = float(torch.linalg.vector_norm(x))

    def terms_at(number: int, width: int, count: int) -> Terms | None:
        if width != terms:
            return None
        law = formulas[number].law(width, inputs[:count])
        kernel = kernels[number][:count, :count]
        return proof_terms(interactions[number, :, :count], kernel, labels[:count], size, law)

    values = size * torch.linalg.vector_norm(gradients, dim=2)
    return tuple(
        Point(
            width=width,
            samples=count,
            activation=formula.phi.name,
            sensitivity=float(values[number, place]),
            fit=float(fits[number, place]),
            terms=terms_at(number, width, count),
        )
        for number, formula in enumerate(formulas)
        for place, (width, count) in enumerate(keys)
    )
