"""A Gaussian matrix that is drawn as far as it is used, and never stored."""

import math

import torch
from torch import Tensor

from wordsway.checks import check_dtype, check_finite, check_positive, check_size
from wordsway.gaussian.base import NormBound, check_columns, check_failure, multiply
from wordsway.gaussian.conditioning import Conditioning
from wordsway.gaussian.dense import DenseGaussian


class LazyGaussian:
    """A matrix G of independent N(0, scale^2) entries, of which only the products that were computed are known.

    Multiplying changes its state: an input in a new direction draws fresh numbers and is remembered with its output,
    and inputs in the span of earlier ones are multiplied from memory. The realised matrix therefore depends on the seed
    and on the order of the inputs; its law does not.

    Notes
    -----
    Let Q_R be an orthonormal basis of the right inputs so far, with outputs Y_R = G Q_R, and Q_L, Y_L = G^T Q_L the
    same on the left. A new right input is split as q = Q_R c + rho u, with u a unit vector orthogonal to Q_R, and

        G q = Y_R c + rho (Q_L (Y_L^T u) + (I - Q_L Q_L^T) z),   z fresh with independent N(0, scale^2) entries;

    left inputs are the mirror image (Bolthausen's conditioning; Lu, "Householder Dice", 2021).

    This is exact, also for inputs that depend on earlier outputs. By induction: given all inputs and outputs so far, G
    is fixed on the known directions, and its unknown part (I - Q_L Q_L^T) G (I - Q_R Q_R^T) still has the law of a
    fresh Gaussian matrix between the two orthogonal complements. The next input is a function of what is known, so
    conditioning on it changes nothing, and by rotation invariance the unknown part applied to the unit vector u is
    (I - Q_L Q_L^T) z. Once z is drawn, what remains unknown is again a fresh Gaussian matrix, with one direction less.
    Rounding in u does no harm: any unit vector orthogonal to Q_R would do.

    Cost: T inputs take O((rows + cols) T^2) time and (rows + cols) T numbers of memory, and a right input draws `rows`
    normal numbers. An input in the span of earlier ones draws nothing, nor does any input once one side spans its whole
    space. A block has the same outputs, to rounding, as its columns one after another. Views (`T`, `columns`) share the
    memory. Not for use from several threads at once.

    Parameters
    ----------
    rows, cols
        At least 1 each.
    scale
        Standard deviation of an entry.
    seed
        The same seed and the same inputs give the same outputs.
    dtype
        torch.float64 or torch.float32. In float64, <p, G q> = <G^T p, q> holds to about 1e-13 of |p| |G q|, in float32
        to about 1e-5.

    Raises
    ------
    InputError
        On bad arguments or inputs, and before allocating if a large block of inputs does not fit into memory.
    """

    def __init__(
        self, rows: int, cols: int, scale: float = 1.0, seed: int = 0, dtype: torch.dtype = torch.float64
    ) -> None:
        rows, cols = check_size(rows, "rows"), check_size(cols, "cols")
        self._conditioning = Conditioning(rows, cols, check_positive(scale, "scale"), seed, check_dtype(dtype))
        self._side = 0  # the side of the conditioning that `@` uses: 0 for G q, 1 for G^T p
        self._inputs = slice(0, cols)  # the part of a full input that this view takes; the rest is zero
        self._outputs = slice(0, rows)  # the part of a full output that it returns

    def _view(self, side: int, inputs: slice, outputs: slice) -> "LazyGaussian":
        view = LazyGaussian.__new__(LazyGaussian)
        view._conditioning = self._conditioning
        view._side, view._inputs, view._outputs = side, inputs, outputs
        return view

    def __repr__(self) -> str:
        rows, cols = self.shape
        return f"LazyGaussian({rows} x {cols}, scale={self.scale}, {self.dtype}, known directions {self.known})"

    @property
    def shape(self) -> tuple[int, int]:
        return self._outputs.stop - self._outputs.start, self._inputs.stop - self._inputs.start

    @property
    def dtype(self) -> torch.dtype:
        return self._conditioning.dtype

    @property
    def scale(self) -> float:
        """Standard deviation of an entry."""
        return self._conditioning.scale

    @property
    def known(self) -> tuple[int, int]:
        """The numbers of directions whose products are remembered, of G and of G^T."""
        self._conditioning.settle()
        right, left = self._conditioning.bases
        return right.count, left.count

    def __matmul__(self, inputs: Tensor) -> Tensor:
        """Multiply: (cols,) to (rows,), or a block (cols, b) to (rows, b), and remember it; see the class for the cost.

        Differentiable in the inputs: a backward pass multiplies with the transpose, which is remembered too.
        """
        return multiply(self, inputs, self._multiply)

    @property
    def T(self) -> "LazyGaussian":
        return self._view(1 - self._side, self._outputs, self._inputs)

    def _multiply(self, inputs: Tensor) -> Tensor:
        block = inputs.unsqueeze(1) if inputs.ndim == 1 else inputs  # cols b
        outputs = self._conditioning.multiply(self._side, block.mT, self._inputs, self._outputs)  # b rows
        return outputs[0] if inputs.ndim == 1 else outputs.mT

    @classmethod
    def conditioned(
        cls, vector: Tensor, output: Tensor, scale: float = 1.0, seed: int = 0, dtype: torch.dtype = torch.float64
    ) -> "LazyGaussian":
        """A matrix with a given product `output` (rows,) with `vector` (cols,), and the Gaussian law given that."""
        matrix = cls(len(output), len(vector), scale, seed, dtype)
        if bool(vector.any()):
            matrix._conditioning.impose(vector, output)
        return matrix

    def draw_together(self, start: int, stop: int, inputs: Tensor) -> tuple[DenseGaussian, Tensor]:
        """Columns start, ..., stop - 1, stored, and the products with inputs (cols, b), in one draw: (rows, b).

        As ``self @ inputs`` and ``self.columns(start, stop).dense()``, and remembered like these, at a quarter of their
        cost: where nothing is known yet, one Cholesky factor and one product replace the orthogonal bases, which are
        made when a further product is needed. The law is the same, the realised numbers are others.
        """
        first, last = check_columns(start, stop, self.shape[1])
        conditioning = self._conditioning
        check_finite(inputs, "inputs")
        if self._side == 0 and self.shape == (conditioning.bases[1].length, conditioning.bases[0].length):
            drawn = conditioning.draw_together(slice(first, last), inputs.mT)
            if drawn is not None:
                block, outputs = drawn
                return DenseGaussian.of(block.mT, self.scale), outputs.mT
        return DenseGaussian.of(self.columns(first, last).dense(), self.scale), self @ inputs

    def columns(self, start: int, stop: int) -> "LazyGaussian":
        """Columns start, ..., stop - 1, as a view on the same memory.

        Inputs are padded with zeros to the full width before they are remembered, so an input of a narrow block takes
        as much memory as one of the whole matrix.
        """
        first, last = check_columns(start, stop, self.shape[1])
        offset = self._inputs.start
        return self._view(self._side, slice(offset + first, offset + last), self._outputs)

    def dense(self) -> Tensor:
        """The whole matrix, by a product with all unit vectors of its shorter side.

        Afterwards the matrix is known in full. Cost as for min(rows, cols) inputs; raises if they do not fit into
        memory.
        """
        rows, cols = self.shape
        if rows < cols:
            return self.T.dense().mT
        # Each of the unit vectors below is written once, and its output too.
        self._conditioning.require(self._side, cols, cols + rows, f"the dense form of a {rows} x {cols} lazy matrix")
        return self @ torch.eye(cols, dtype=self.dtype)

    def norm_bound(self, failure: float = 1e-9) -> NormBound:
        """The Gaussian bound scale (sqrt(rows) + sqrt(cols) + t), t = sqrt(2 log(1 / failure)).

        P(s_max > scale (sqrt(rows) + sqrt(cols) + t)) <= exp(-t^2 / 2), over the draw of this matrix. It costs nothing
        and draws nothing. Several blocks bounded at once fail with at most the sum of their probabilities.
        """
        rows, cols = self.shape
        margin = math.sqrt(-2.0 * math.log(check_failure(failure)))
        return NormBound(self.scale * (math.sqrt(rows) + math.sqrt(cols) + margin), float(failure), False)
