"""A Gaussian matrix that is revealed as it is asked and never stored."""

import math

import torch
from torch import Tensor

from wordsway.gaussian.interface import (
    NormBound,
    check_columns,
    check_dtype,
    check_failure,
    check_scale,
    check_size,
)
from wordsway.gaussian.oracle import Oracle
from wordsway.gaussian.product import multiply


class LazyGaussian:
    """A matrix G of independent N(0, scale^2) entries that exists only as far as it was asked.

    Asking changes its state: a question in a new direction draws fresh numbers and is remembered with its answer, and
    everything asked before is answered from memory. The realised matrix therefore depends on the seed and on the order
    of the questions; its law does not.

    Notes
    -----
    Let Q_R hold an orthonormal basis of the right questions so far with answers Y_R = G Q_R, and Q_L, Y_L = G^T Q_L the
    same on the left. A new right question is split as q = Q_R c + rho u with u a unit vector orthogonal to Q_R, and

        G q = Y_R c + rho (Q_L (Y_L^T u) + (I - Q_L Q_L^T) z),   z fresh with independent N(0, scale^2) entries;

    left questions are the mirror image (Bolthausen's conditioning; Lu, "Householder Dice", 2021).

    This is exact, also for questions that depend on earlier answers. By induction: given all that was asked and
    answered, G is fixed on the known directions, and its unknown part (I - Q_L Q_L^T) G (I - Q_R Q_R^T) still has the
    law of a fresh Gaussian matrix between the two orthogonal complements. The next question is a function of what is
    known, so to condition on it adds nothing, and by rotation invariance that unknown part applied to the unit vector u
    is (I - Q_L Q_L^T) z. Once it is drawn, what stays unknown is again a fresh Gaussian matrix, with one direction
    less. Rounding in u does no harm: any unit vector orthogonal to Q_R will do.

    Cost: T questions take O((rows + cols) T^2) time and (rows + cols) T numbers of memory, and a right question draws
    `rows` normal numbers. A question that lies in the span of earlier ones draws nothing; nor does any question once
    one side spans its whole space. Asking a block is the same, to rounding, as asking its columns one after another.
    Views (`T`, `columns`) share the memory. Not for use from several threads at once.

    Parameters
    ----------
    rows, cols
        At least 1 each.
    scale
        Standard deviation of an entry.
    seed
        Makes an own generator; the same seed and the same questions give the same answers.
    dtype
        torch.float64 or torch.float32. In float64, <p, G q> = <G^T p, q> holds to about 1e-13 of |p| |G q|, in float32
        to about 1e-5.

    Raises
    ------
    InputError
        On bad arguments or questions, and before allocating when a large block of questions does not fit in memory.
    """

    def __init__(
        self, rows: int, cols: int, scale: float = 1.0, seed: int = 0, dtype: torch.dtype = torch.float64
    ) -> None:
        rows, cols = check_size(rows, cols)
        self._oracle = Oracle(rows, cols, check_scale(scale), seed, check_dtype(dtype))
        self._side = 0  # which side of the oracle `@` asks: 0 for G q, 1 for G^T p
        self._inputs = slice(0, cols)  # the part of a question that this view lets vary; the rest is zero
        self._outputs = slice(0, rows)  # the part of an answer that it shows

    def _view(self, side: int, inputs: slice, outputs: slice) -> "LazyGaussian":
        made = LazyGaussian.__new__(LazyGaussian)
        made._oracle = self._oracle
        made._side, made._inputs, made._outputs = side, inputs, outputs
        return made

    def __repr__(self) -> str:
        rows, cols = self.shape
        asked = tuple(ledger.count for ledger in self._oracle.ledgers)
        return f"LazyGaussian({rows} x {cols}, scale={self.scale}, {self.dtype}, known directions {asked})"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self._outputs.stop - self._outputs.start, self._inputs.stop - self._inputs.start

    @property
    def dtype(self) -> torch.dtype:
        """Of the entries, of the questions it takes and of its answers."""
        return self._oracle.dtype

    @property
    def scale(self) -> float:
        """Standard deviation of an entry."""
        return self._oracle.scale

    def __matmul__(self, questions: Tensor) -> Tensor:
        """Multiply (cols,) to (rows,) or a block (cols, b) to (rows, b), and remember; see the class for the cost.

        Differentiable with respect to the questions: a backward pass asks the transpose, which is remembered too.
        """
        return multiply(self, questions)

    def answer(self, questions: Tensor) -> Tensor:
        """Answer questions that were checked; use `@`, which checks them."""
        block = questions.unsqueeze(1) if questions.ndim == 1 else questions  # cols b
        answers = self._oracle.ask(self._side, block.mT, self._inputs, self._outputs)  # b rows
        return answers[0] if questions.ndim == 1 else answers.mT

    @property
    def T(self) -> "LazyGaussian":
        """The transpose, as a view on the same memory."""
        return self._view(1 - self._side, self._outputs, self._inputs)

    def columns(self, start: int, stop: int) -> "LazyGaussian":
        """Columns start, ..., stop - 1, as a view on the same memory.

        Its questions are padded with zeros to the full width before they are remembered, so a question to a narrow
        block takes as much memory as one to the whole matrix.
        """
        first, last = check_columns(start, stop, self.shape[1])
        offset = self._inputs.start
        return self._view(self._side, slice(offset + first, offset + last), self._outputs)

    def dense(self) -> Tensor:
        """The whole matrix, by asking for every column, or every row where there are fewer.

        Afterwards it is known in full. Cost as for min(rows, cols) questions; refused with an estimate when they do not
        fit in memory.
        """
        rows, cols = self.shape
        if rows < cols:
            return self.T.dense().mT
        # Each of the questions below is written once, and its answer too.
        self._oracle.require(self._side, cols, cols + rows, f"the dense form of a {rows} x {cols} revealed matrix")
        return self @ torch.eye(cols, dtype=self.dtype)

    def norm_bound(self, failure: float = 1e-9) -> NormBound:
        """The Gaussian bound scale (sqrt(rows) + sqrt(cols) + t), t = sqrt(2 log(1 / failure)).

        P(s_max > scale (sqrt(rows) + sqrt(cols) + t)) <= exp(-t^2 / 2), over the draw of this matrix. It costs nothing
        and draws nothing. Several blocks bounded at once fail with at most the sum of their probabilities.
        """
        rows, cols = self.shape
        margin = math.sqrt(-2.0 * math.log(check_failure(failure)))
        return NormBound(self.scale * (math.sqrt(rows) + math.sqrt(cols) + margin), float(failure), False)
