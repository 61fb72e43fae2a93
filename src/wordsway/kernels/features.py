"""Random and NTK features of N inputs, in blocks of rows of their weights.

Random features are phi(V x), V (k, d) of independent N(0, 1/d) entries; NTK features x (x) phi'(W x), W likewise, so
that p = k d. With weights alpha of the N training inputs (Bombari, Kiyani and Mondelli 2023), f(x) = sum_i alpha_i
<features of x, features of x_i> has the kernel and the gradient

    rf:   K = Phi Phi^T, Phi = phi(X V^T),    grad f(x) = V^T (phi'(V x) o Phi^T alpha)
    ntk:  K = X X^T o G G^T, G = phi'(X W^T),
          grad f(x) = sum_i alpha_i ( x_i <phi'(W x), g_i> + <x, x_i> W^T (phi''(W x) o g_i) ).

Weights are drawn again when they are needed again: neither a p-vector nor a k x d matrix is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import torch
from torch import Tensor

from wordsway import memory
from wordsway.activations import Activation
from wordsway.activations import activation as activation_named
from wordsway.checks import check_choice
from wordsway.errors import InputError, NumericalError
from wordsway.gaussian.base import draw_normal, empty
from wordsway.seeds import generator

KINDS = ("rf", "ntk")
BLOCK = 8 * 10**7  # bytes in float64 of a block of weights and of its products with the inputs
_KEPT = 3 * 10**9  # bytes of products with the inputs that are kept rather than computed again
_MAX_WEIGHTS = 10**10  # drawn twice, at about 1e8 per second
_CHUNK = 1024  # rows of weights that are drawn, and multiplied, together
_PANEL = 128  # inputs that are multiplied together; products of fewer are slow, and of more waste half a triangle


def feature_rows(width: int, d: int, seed: int, rows: int) -> Iterator[Tensor]:
    """Yield the rows of a (width, d) matrix of independent N(0, 1/d) entries, about `rows` at a time.

    Row i depends on the seed, on d and on i alone: fewer rows of the same seed are the first ones. Drawn anew each
    time, in float32.
    """
    together = max(1, rows // _CHUNK)
    chunks = -(-width // _CHUNK)
    for first in range(0, chunks, together):
        block = empty((min(chunks, first + together) - first) * _CHUNK, d, torch.float32)
        for number, part in enumerate(torch.split(block, _CHUNK), first):
            draw_normal(part, 1 / math.sqrt(d), generator(seed, f"features {number}"))
        yield block[: width - first * _CHUNK]


class FeatureBlocks:
    """Blocks of weights (rows, d) with a function of their products with the inputs, (N, rows).

    Parameters
    ----------
    inputs : Tensor (N, d)
    widths : sequence of int
        A block ends at each of them; the largest is the number of rows of all blocks.
    seed : int
    transform : callable, optional
        The function of the products, entry by entry; default: the products themselves.
    rows : int, optional
        Rows of a block, default: as many as take 80 MB in float64.
    keep : bool, optional
        Whether values and weights are kept for the next pass, default: either, and then both, if they fit into 3 GB and
        a third of the free memory.
    dtype : torch.dtype
        Of blocks and values.
    triangular : bool
        Whether the inputs are 0 above their diagonal, which nearly halves the products of inputs of no more than d.
    """

    def __init__(
        self,
        inputs: Tensor,
        widths: Sequence[int],
        seed: int,
        transform: Callable[[Tensor], Tensor] | None = None,
        rows: int | None = None,
        keep: bool | None = None,
        dtype: torch.dtype = torch.float64,
        triangular: bool = False,
    ) -> None:
        self.inputs, self.widths, self.seed, self.transform = inputs, sorted(widths), seed, transform
        self._cast, self._triangular = inputs.to(dtype), triangular
        self._rows = rows or BLOCK // (8 * sum(inputs.shape))
        fits = dtype.itemsize * len(inputs) * self.widths[-1] <= min(_KEPT, memory.available() // 3)
        self._keep = fits if keep is None else keep
        self._kept: list[Tensor] = []
        whole = dtype.itemsize * sum(inputs.shape) * self.widths[-1] <= min(_KEPT, memory.available() // 3)
        self._keep_weights = whole if keep is None else keep
        self._weights: list[Tensor] = []

    @cached_property
    def inner_products(self) -> Tensor:
        """X X^T, (N, N)."""
        return self.inputs @ self.inputs.mT

    def weights(self) -> Iterator[Tensor]:
        """Yield the blocks of weights, the same every time."""
        if self._weights:
            yield from self._weights
            return
        end = 0
        kept: list[Tensor] = []
        for drawn in feature_rows(self.widths[-1], self.inputs.shape[1], self.seed, self._rows):
            cuts = [width - end for width in self.widths if 0 < width - end < len(drawn)]
            parts = drawn.to(self._cast.dtype).tensor_split(cuts)
            kept += parts if self._keep_weights else ()
            yield from parts
            end += len(drawn)
        self._weights = kept

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, int]]:
        """Yield the weights of each block, the values of the inputs, and the number of rows up to its end."""
        end = 0
        for number, block in enumerate(self.weights()):
            end += len(block)
            if number < len(self._kept):
                values = self._kept[number]
            else:
                values = self._values(block)
                if self._keep:
                    self._kept.append(values)
            yield block, values, end

    def _values(self, block: Tensor) -> Tensor:
        """Return the function of the products of inputs and weights, (N, rows), in parts that stay in the cache."""
        count, d = self._cast.shape
        values = empty(count, len(block), self._cast.dtype)
        for first in range(0, len(block), _CHUNK):
            part = block[first : first + _CHUNK]
            for start in range(0, count, _PANEL):
                stop = min(start + _PANEL, count)
                used = min(stop, d) if self._triangular else d  # columns, the others are 0
                products = self._cast[start:stop, :used] @ part[:, :used].mT
                values[start:stop, first : first + _CHUNK] = (
                    products if self.transform is None else self.transform(products)
                )
        return values


class FeatureFormulas:
    """The formulas of one kind of features and one activation."""

    def __init__(self, kind: str, activation: str | Activation) -> None:
        self.kind, self.phi = check_choice("kind", kind, KINDS), activation_named(activation)
        if kind == "ntk" and self.phi.nonsmooth:
            name = self.phi.name
            raise InputError(f"ntk robustness needs phi'', which {name} does not have at a kink: use softplus or gelu")

    def features(self, products: Tensor) -> Tensor:
        """Return phi(X V^T) or phi'(X W^T) from the products of inputs and weights, (N, rows)."""
        return self.phi(products) if self.kind == "rf" else self.phi.derivative(products)

    def count(self, width: int, inputs: Tensor) -> int:
        """Return the number of features p; refuse fewer than inputs, and more weights than can be drawn in minutes."""
        if (weights := width * inputs.shape[1]) > _MAX_WEIGHTS:
            raise InputError(f"k d must be at most {_MAX_WEIGHTS}, got {weights}: use a smaller width or dimension")
        features = width * (inputs.shape[1] if self.kind == "ntk" else 1)
        if features < len(inputs):
            raise NumericalError(
                f"{len(inputs)} samples need at least as many features, got {features}: use a larger width"
            )
        return features

    def law(self, width: int, inputs: Tensor) -> float | None:
        """Return k sqrt(N / d) (E phi')^2, the norm of the centred interaction matrix in the limit; for rf only."""
        count, d = inputs.shape
        return width * math.sqrt(count / d) * self.phi.mean_derivative**2 if self.kind == "rf" else None

    def kernel(self, gram: Tensor, blocks: FeatureBlocks) -> Tensor:
        """Return K (N, N) from the sum of F F^T over all blocks of features F."""
        return gram if self.kind == "rf" else gram * blocks.inner_products

    def share(self, x: Tensor, inputs: Tensor, block: Tensor, features: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Return what a block adds to f(x), (m,), and to its gradient, (m, d), for m rows of alpha (m, N)."""
        x, inputs, alpha = x.to(block), inputs.to(block), alpha.to(block)
        products = block @ x  # rows
        if self.kind == "rf":
            pulled = alpha @ features  # m rows
            return pulled @ self.phi(products), (pulled * self.phi.derivative(products)) @ block
        inner = features @ self.phi.derivative(products)  # N
        near = alpha * (inputs @ x)  # m N
        bent = (near @ features) * self.phi.curvature(products)  # m rows
        return near @ inner, (alpha * inner) @ inputs + bent @ block

    def interaction(self, x: Tensor, inputs: Tensor, block: Tensor, features: Tensor) -> Tensor:
        """Return what a block adds to the interaction matrix, (d, N): the gradient for alpha = I."""
        x, inputs = x.to(block), inputs.to(block)
        products = block @ x
        if self.kind == "rf":
            return block.mT @ (self.phi.derivative(products)[:, None] * features.mT)
        bent = block.mT @ (self.phi.curvature(products)[:, None] * features.mT)
        return inputs.mT * (features @ self.phi.derivative(products)) + bent * (inputs @ x)
