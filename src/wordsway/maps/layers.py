"""The response of layered maps: a block of the first weight for each moving word, then layers with an activation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from wordsway import memory
from wordsway.activations import Activation
from wordsway.checks import all_finite
from wordsway.errors import NumericalError
from wordsway.gaussian import DenseGaussian, GaussianMatrix
from wordsway.maps.deep_ceiling import GaussianLayer, Perturbations, gaussian_radii
from wordsway.maps.response import (
    Ceiling,
    Functional,
    Functionals,
    SearchHints,
    ValueAndGradient,
    check_ball,
    check_moves,
    positive_norm,
    relative,
    single_functional,
)

_MANY = 1024  # features from which on one start is used
_FUSED = 2**17  # pre-activations of a block of rows that goes through the last activation at once: 1 MB in float64
_BATCH = 2**25  # numbers in the features of a batch, when only values are computed: 256 MB in float64
_NOT_FINITE = "the features of a perturbed context are not finite: use a smaller radius"
_FAILURE = 1e-9  # of a ceiling over random weights: half for their norms, half for the comparison


class LayeredResponse:
    """Response of phi(V_L ... phi(V_1 flat(X))) when words move together (or one alone).

    Parameters
    ----------
    blocks : list of GaussianMatrix (k, d)
        The columns of V_1 that each moving word is multiplied by.
    start : Tensor (k,)
        V_1 flat(X).
    deeper : sequence of GaussianMatrix (k, k)
        V_2, ..., V_L.
    lengths : tuple of float, optional
        |X| and the sum of |x_i| over the words that move, for the ceiling of Gaussian weights.

    Notes
    -----
    A value takes one product with every layer, its gradient one more with every transpose. Inputs are differences from
    the features of X itself, so that small moves keep their digits.
    """

    def __init__(
        self,
        blocks: list[GaussianMatrix],
        start: Tensor,
        deeper: Sequence[GaussianMatrix],
        phi: Activation,
        together: bool = False,
        lengths: tuple[float, float] | None = None,
    ) -> None:
        self.blocks = blocks
        self.lengths = lengths
        self.deeper = list(deeper)
        self.phi = phi
        d = blocks[0].shape[1]
        self.shape: tuple[int, ...] = (len(blocks), d) if together else (d,)
        self.batch: tuple[int, ...] = ()
        self.starts = [start.unsqueeze(-1)]  # k 1, pre-activations of X by layer
        for layer in self.deeper:
            self.starts.append(layer @ phi(self.starts[-1]))
        self.base = phi(self.starts[-1])  # k 1
        self.norm = positive_norm(self.base)

    @property
    def hints(self) -> SearchHints:
        # Each start adds its own inputs to every layer's memory. With many features the objective has few local
        # maxima, and one start is enough; with few features it has many, and is cheap.
        expensive = len(self.base) > _MANY
        return SearchHints(
            self.base.dtype,
            self.base.device,
            random_starts=1 if expensive else 10,
            work=4.0 * len(self.base) * (self.blocks[0].shape[1] + len(self.base) * len(self.deeper)),
            nonsmooth=not expensive and self.phi.nonsmooth,
            expensive=expensive,
            inners=self.inners,
            prepare=self.stored,
        )

    def _forward(self, delta: Tensor) -> tuple[list[Tensor], Tensor]:
        """Pre-activations of the hidden layers and the change of those of the last one, all (k, B)."""
        check_moves(delta, self.shape)
        moves = delta.to(self.base.device, self.blocks[0].dtype).reshape(-1, len(self.blocks), self.shape[-1])  # B m d
        needed = 4 * len(self.starts) * self.starts[0].numel() * moves.shape[0] * moves.element_size()
        memory.require(needed, "the features of a batch of perturbations", "evaluate fewer perturbations at once")
        shift = self.blocks[0] @ moves[:, 0].mT
        for slot, block in enumerate(self.blocks[1:], 1):
            shift = shift + block @ moves[:, slot].mT
        reached = []
        for start, layer in zip(self.starts, self.deeper, strict=False):
            reached.append(start + shift)
            shift = layer @ (self.phi(reached[-1]) - self.phi(start))
        return reached, shift

    def _last(self, shift: Tensor) -> tuple[Tensor, Tensor]:
        """Pre-activations of the last layer and the change of the features, (k, B)."""
        reached = self.starts[-1] + shift
        change = self.phi(reached) - self.base
        if not all_finite(change):
            raise NumericalError(_NOT_FINITE)
        return reached, change

    def _square(self, shift: Tensor, gradient: bool) -> Tensor:
        """The squared change, (B,), in blocks of rows; with `gradient`, that in the pre-activations replaces shift."""
        square = self.base.new_zeros(shift.shape[1])
        rows = max(1, _FUSED // max(1, shift.shape[1]))
        for start, base, part in zip(*(torch.split(x, rows) for x in (self.starts[-1], self.base, shift)), strict=True):
            reached = start + part
            change = self.phi(reached).sub_(base)
            if not all_finite(change):
                raise NumericalError(_NOT_FINITE)
            square += (change * change).sum(0)
            if gradient:
                part.copy_(change.mul_(2).mul_(self.phi.derivative(reached)))
        return square

    def _backward(self, reached: list[Tensor], back: Tensor, delta: Tensor) -> Tensor:
        """Gradient in Delta from the gradient in the pre-activations of the last layer, (k, B)."""
        for layer, at in zip(reversed(self.deeper), reversed(reached), strict=True):
            back = (layer.T @ back) * self.phi.derivative(at)
        pulled = [(block.T @ back.to(block.dtype)).mT.to(self.base) for block in self.blocks]  # each B d
        return torch.stack(pulled, dim=1).reshape(delta.shape)

    def _parts(self, delta: Tensor) -> list[Tensor] | None:
        """A batch cut into pieces whose features take little memory; None when it is small enough."""
        check_moves(delta, self.shape)
        flat = delta.reshape(-1, *self.shape)
        size = max(1, _BATCH // (len(self.starts) * self.starts[0].numel()))
        return None if len(flat) <= size else [flat[start : start + size] for start in range(0, len(flat), size)]

    def _lead(self, delta: Tensor) -> torch.Size:
        return delta.shape[: delta.ndim - len(self.shape)]

    def features(self, delta: Tensor) -> Tensor:
        _, change = self._last(self._forward(delta)[1])
        return (self.base + change).mT.reshape(self._lead(delta) + self.base.shape[:1])

    def change(self, delta: Tensor, gradient: bool = True) -> ValueAndGradient:
        if not gradient and (parts := self._parts(delta)) is not None:
            return torch.cat([self.change(part, False)[0] for part in parts]).reshape(self._lead(delta)), None
        reached, shift = self._forward(delta)
        square = self._square(shift, gradient)
        grad = self._backward(reached, shift, delta) if gradient else None
        return relative(square.reshape(self._lead(delta)), grad, self.norm)

    def inner(self, u: Tensor) -> Functional:
        return single_functional(self.inners([u]))

    def inners(self, us: Sequence[Tensor]) -> Functionals:
        """Several functionals at once: they share the features, and their gradients one backward pass."""
        vectors = torch.stack([u.to(self.base).reshape(-1) for u in us])  # m k
        bases = vectors @ self.base  # m 1

        def functionals(delta: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
            hidden, shift = self._forward(delta)
            reached, change = self._last(shift)

            def pull(weights: Tensor) -> Tensor:
                above = vectors.mT @ weights.to(self.base).reshape(len(vectors), -1)
                return self._backward(hidden, above * self.phi.derivative(reached), delta)

            return (bases + vectors @ change).reshape(-1, *self._lead(delta)), pull

        return functionals

    def stored(self) -> LayeredResponse:
        """The same response with the words' columns of V_1 drawn in full and stored: k d numbers per word.

        Faster for many evaluations, or after many products with V_1: an evaluation is then one dense product.
        """
        blocks: list[GaussianMatrix] = [DenseGaussian.of(block.dense(), block.scale) for block in self.blocks]
        together = len(self.shape) == 2
        return LayeredResponse(blocks, self.starts[0][:, 0], self.deeper, self.phi, together, self.lengths)

    def ceiling(self, radius: float, effort: str = "quick") -> Ceiling | None:
        """Simple: |phi|_Lip^L |V_L| ... |V_2| sum_i |block i of V_1| r / |phi(X)|.

        Other efforts return the smaller one of this and, for weights of known law, the bound of `deep_ceiling`.
        """
        check_ball(radius, effort, self.shape[-1])
        if math.isinf(self.phi.lipschitz):
            return None
        share = _FAILURE / 2 / (len(self.blocks) + len(self.deeper))
        first = [block.norm_bound(share) for block in self.blocks]
        later = [layer.norm_bound(share) for layer in self.deeper]
        reach = radius * sum(bound.value for bound in first) * math.prod(bound.value for bound in later)
        reach *= self.phi.lipschitz ** len(self.starts)
        kind, failure = "Lipschitz constants and norms", sum(bound.failure for bound in first + later)
        if effort != "simple" and (layers := self._gaussian_layers()):
            rectified = self.phi.phi is torch.relu
            compared = gaussian_radii(layers, self._ball(radius), self.phi.lipschitz, rectified, _FAILURE / 2)[-1]
            # Which of the two is smaller depends on the weights, so both must hold.
            kind, reach, failure = "comparison of Gaussian processes", min(reach, compared), failure + _FAILURE / 2
        return Ceiling(torch.tensor(reach / self.norm, dtype=torch.float64).to(self.base), kind, failure)

    def _gaussian_layers(self) -> list[GaussianLayer]:
        """The forward pass of X, where the law of all weights is known; otherwise nothing."""
        scales = [weight.scale for weight in (*self.blocks[:1], *self.deeper) if weight.scale is not None]
        if self.lengths is None or len(scales) < len(self.starts):
            return []
        inputs = [self.lengths[0], *(float(torch.linalg.vector_norm(self.phi(start))) for start in self.starts[:-1])]
        return [
            GaussianLayer(scale, size, start[:, 0].double())
            for scale, size, start in zip(scales, inputs, self.starts, strict=True)
        ]

    def _ball(self, radius: float) -> Perturbations:
        """The perturbations as changes of flat(X): each word in its own ball."""
        words, (whole, moving) = len(self.blocks), self.lengths or (0.0, 0.0)
        along = radius * moving / whole if whole > 0 else 0.0
        return Perturbations(radius * math.sqrt(words), radius * words * math.sqrt(self.shape[-1]), along)
