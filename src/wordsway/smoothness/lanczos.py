"""The largest singular value of a linear operator by Golub-Kahan-Lanczos, a batch of operators at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy import special
from scipy.optimize import brentq
from torch import Tensor

from wordsway.errors import NumericalError
from wordsway.seeds import generator, normal
from wordsway.smoothness.jacobian import Jacobian

FAILURE = 1e-6  # probability, over the start, that the largest singular value is above its ceiling
DENSE = 128  # inputs up to which the whole matrix is computed
_BASIS = 24  # vectors kept on each side before a restart
_KEPT = 6  # of them after it
_EARLY = 16  # products after which a small residual is enough: 2% of layers of near-identity spectra fail with 8
_WORTH = 0.75  # operators that are done are dropped when no more than this share of a batch goes on


@dataclass(frozen=True, eq=False)
class Triplets:
    """Singular triplets of a batch of operators: J right = value left, |J^T left - value right| = residual.

    Attributes
    ----------
    values, residuals : Tensor (B,)
        No value exceeds the largest singular value, and some singular value lies within the residual of it.
    ceilings : Tensor (B,)
        Upper bounds on the largest singular values.
    failure : float
        Probability, over the start, that a ceiling is wrong.
    doubts : Tensor (B,)
        Levels at which it is excluded that the largest singular value exceeds the value by more than the tolerance.
    left, right : Tensor (B, ...)
        Unit vectors, of the shapes of outputs and inputs.
    products : Tensor (B,)
        Products and adjoints of each.
    converged : Tensor (B,)
    """

    values: Tensor
    residuals: Tensor
    ceilings: Tensor
    failure: float
    doubts: Tensor
    left: Tensor
    right: Tensor
    products: Tensor
    converged: Tensor


def top_triplets(operator: Jacobian, tolerance: float, products: int, seed: int = 0, error: float = 0.0) -> Triplets:
    """Return the largest singular value of each operator of a batch, with its vectors.

    Golub-Kahan-Lanczos bidiagonalisation from a random vector, the same for all, with full reorthogonalisation on both
    sides and thick restarts. An operator is done when its residual is at most `tolerance` times its value: then its
    numbers are taken, while the others go on. In the first steps it must be far smaller: where nearly all singular
    values are alike, a random vector is nearly a singular one, with a small residual and not the largest value. A
    residual of the size of the rounding errors of the products is enough too. Operators of up to 128 inputs are
    decomposed as matrices.

    Parameters
    ----------
    operator : Jacobian
    tolerance : float
    products : int
        At most so many products and adjoints together, at least 2.
    error : float
        Bound on the error of the products, relative to the largest singular value and below half the tolerance:
        ceilings and doubts are those of all operators that are so near.

    Notes
    -----
    Cost: the products, and O(25 size) for each to make it orthogonal; memory for 49 vectors.

    The residual bounds the distance to a singular value, not to the largest one, which a start that is nearly
    orthogonal to its vector misses. With N inputs, the start has a component of at least s along that vector but for
    the probability P(B <= s^2), B of the distribution Beta(1/2, (N - 1)/2). `ceilings` hold then, see
    `_First`. A doubt is P(B <= s^2) for the s below which the largest singular value could be farther away than the
    tolerance. If it is, the start's own component is at most s, so that the doubt is at least the probability of a
    component no larger than that one, which is uniform: doubts are p-values.
    """
    size = math.prod(operator.inputs[1:])
    if size <= min(DENSE, products):
        return _decompose(operator, size)
    basis = _Basis(operator, seed)
    batch, like = operator.inputs[0], operator.like
    values, ceilings, doubts = (like.new_zeros(batch) for _ in range(3))
    residuals = like.new_full((batch,), math.inf)
    left, right = like.new_zeros(operator.outputs), like.new_zeros(operator.inputs)
    counts = torch.zeros(batch, dtype=torch.int64)
    converged = torch.zeros(batch, dtype=torch.bool)
    least = max(1e-6 * tolerance, 100 * torch.finfo(like.dtype).eps)
    early = 0.0 if error else min(tolerance, least)  # so small a residual may be the error
    component = math.sqrt(special.betaincinv(0.5, (size - 1) / 2, FAILURE))  # s
    running = torch.arange(batch)  # the operator of each row of the basis
    first: dict[int, _First] = {}
    for spent in range(2, products + 1, 2):
        beta = basis.step()
        if not (torch.isfinite(beta).all() and torch.isfinite(basis.small).all()):
            raise NumericalError("the Jacobian is not finite at this context: rescale the context or the layer")
        rows, sizes, columns = basis.decompose()
        gaps = beta * rows[:, -1, 0].abs()
        enough = (tolerance * sizes[:, 0]).maximum(10 * basis.rounding) if spent > _EARLY else early * sizes[:, 0]
        done = (gaps <= enough).cpu()
        for place in range(len(running)):
            number = int(running[place])
            if not converged[number] and (done[place] or spent + 2 > products):
                values[number], residuals[number] = sizes[place, 0], gaps[place]
                left[number], right[number] = basis.vectors(place, rows, columns)
                counts[number], converged[number] = spent, done[place]
            if spent <= 2 * _BASIS and (counts[number] == spent or basis.full()):
                first[number] = _First(sizes[place].double().square().tolist(), float(basis.logs[place]))
        if converged.all():
            break
        if basis.full():
            basis.restart(rows, sizes, columns)
        going = ~converged[running]
        if int(going.sum()) <= _WORTH * len(running):
            basis.take(going.nonzero().flatten())
            running = running[going]
    for number, krylov in first.items():
        ceilings[number] = krylov.ceiling(component) * (1 + error)
        # the operator's own product with the vector may be that much shorter, too
        reached = krylov.component((float(values[number]) * (1 + tolerance) / (1 + error) ** 2) ** 2)
        doubts[number] = special.betainc(0.5, (size - 1) / 2, reached**2)
    return Triplets(values, residuals, ceilings.maximum(values), FAILURE, doubts, left, right, counts, converged)


class _First(NamedTuple):
    """What the first basis of k vectors, before any restart, proves about the largest singular value.

    For A = J^T J, its start b and the monic polynomial p with the squared singular values theta_i as zeros, |p(A) b| is
    the product of all alpha and beta, with the logarithm `logs`. If b has at least the component s along the vector of
    the largest eigenvalue t, p(t) s is no more, which bounds t (van Dorsselaer, Hochstenbach and van der Vorst 2000).
    Nor does t exceed cosh(arccosh(1/s) / (2k - 1))^2 theta_1, by the polynomial T_{2k-1}(y) / y in x, y^2 =
    1 - x / theta_1, whatever the spectrum is (Kuczynski and Wozniakowski 1992).
    """

    thetas: list[float]
    logs: float

    def ceiling(self, component: float) -> float:
        """Return an upper bound on the largest singular value, where the start has that component s."""
        top, *others = self.thetas
        if top == 0 or self.logs == -math.inf:  # the largest is one of those of the basis, which is invariant
            return math.sqrt(top)
        target, gaps = self.logs - math.log(component), [math.log(max(top - theta, 1e-300)) for theta in others]

        def excess(log: float) -> float:
            return log + sum(float(np.logaddexp(log, gap)) for gap in gaps) - target

        highest = target / len(self.thetas)  # the root if all theta_i are theta_1, and above it otherwise
        beyond = math.exp(brentq(excess, min(highest, -700.0) - 1, highest + 1))
        worst = math.cosh(math.acosh(1 / component) / (2 * len(self.thetas) - 1))
        return min(math.sqrt(top + beyond), worst * math.sqrt(top))

    def component(self, largest: float) -> float:
        """Return the s, at most 1, above which the largest eigenvalue cannot exceed `largest`."""
        top = self.thetas[0]
        if top == 0:
            return 0.0
        by_polynomial = self.logs - sum(math.log(largest - theta) for theta in self.thetas)
        by_size = math.cosh((2 * len(self.thetas) - 1) * math.acosh(math.sqrt(largest / top)))
        return min(math.exp(min(by_polynomial, 0.0)), 1 / by_size)


def _decompose(operator: Jacobian, size: int) -> Triplets:
    """Return the largest singular values of operators whose matrices are small."""
    batch, like = operator.inputs[0], operator.like
    units = torch.eye(size, dtype=like.dtype, device=like.device).reshape(size, 1, *operator.inputs[1:])
    columns = [operator.product(unit.expand(operator.inputs)).reshape(batch, -1) for unit in units]
    matrix = torch.stack(columns, -1)
    if not torch.isfinite(matrix).all():
        raise NumericalError("the Jacobian is not finite at this context: rescale the context or the layer")
    rows, sizes, vectors = torch.linalg.svd(matrix, full_matrices=False)
    left, value, right = rows[..., 0], sizes[:, 0], vectors[:, 0]
    rest = (matrix.mT @ left[..., None])[..., 0] - value[:, None] * right
    counts, done = torch.full((batch,), size), torch.ones(batch, dtype=torch.bool)
    shaped = left.reshape(operator.outputs), right.reshape(operator.inputs)
    residual, doubts = torch.linalg.vector_norm(rest, dim=-1), torch.zeros_like(value)
    return Triplets(value, residual, value, 0.0, doubts, *shaped, counts, done)


class _Basis:
    """Orthonormal vectors of a batch: J V = U M and J^T U = V M^T + beta v e^T, with M upper triangular.

    V has one vector more than U, the v at which the next step starts.
    """

    def __init__(self, operator: Jacobian, seed: int) -> None:
        self.operator, self.count = operator, 0
        batch, like = operator.inputs[0], operator.like
        draw = normal(generator(seed, "lanczos"), math.prod(operator.inputs[1:]))
        self.right = like.new_empty(batch, _BASIS + 1, draw.numel())
        self.left = like.new_empty(batch, _BASIS, math.prod(operator.outputs[1:]))
        self.small = like.new_zeros(batch, _BASIS, _BASIS)  # M
        self.rounding = like.new_zeros(batch)  # largest |u . (J v) - (J^T u) . v| so far: 0 without rounding errors
        self.logs = torch.zeros(batch, dtype=torch.float64)  # of the product of all alpha and beta before a restart
        self.right[:, 0] = (draw / torch.linalg.vector_norm(draw)).to(like)

    def step(self) -> Tensor:
        """Add one product and one adjoint; return beta, (B,)."""
        k, batch = self.count, len(self.right)
        moved = self.operator.product(self.right[:, k].reshape(self.operator.inputs)).reshape(batch, -1)
        moved, self.small[:, :k, k] = _orthogonal(moved, self.left[:, :k])
        self.left[:, k], self.small[:, k, k] = unit(moved)
        back = self.operator.adjoint(self.left[:, k].reshape(self.operator.outputs)).reshape(batch, -1)
        error = self.small[:, k, k] - (back * self.right[:, k]).sum(-1)
        self.rounding = self.rounding.maximum(error.abs())
        back, _ = _orthogonal(back, self.right[:, : k + 1])
        self.right[:, k + 1], beta = unit(back)
        alpha = self.small[:, k, k]
        least = 10 * torch.finfo(beta.dtype).eps * alpha  # a smaller beta may be rounding
        self.logs += (alpha.double() * beta.maximum(least).double()).log().cpu()  # of products that float32 has not
        self.count = k + 1
        return beta

    def decompose(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return singular vectors and values of M, (B, k, k), (B, k), (B, k, k), the vectors in columns."""
        rows, sizes, columns = torch.linalg.svd(self.small[:, : self.count, : self.count])
        return rows, sizes, columns.mT

    def vectors(self, number: int, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Return the leading singular vectors of one operator."""
        left = rows[number, :, 0] @ self.left[number, : self.count]
        right = columns[number, :, 0] @ self.right[number, : self.count]
        return left.reshape(self.operator.outputs[1:]), right.reshape(self.operator.inputs[1:])

    def take(self, places: Tensor) -> None:
        """Continue with some of the batch."""
        self.operator = self.operator.take(places)
        self.right, self.left, self.small = self.right[places], self.left[places], self.small[places]
        self.rounding, self.logs = self.rounding[places], self.logs[places.cpu()]

    def full(self) -> bool:
        return self.count == _BASIS

    def restart(self, rows: Tensor, sizes: Tensor, columns: Tensor) -> None:
        """Keep the best directions and the vector at which the next step starts (a thick restart)."""
        start = self.right[:, self.count].clone()
        self.right[:, :_KEPT] = columns[..., :_KEPT].mT @ self.right[:, : self.count]
        self.left[:, :_KEPT] = rows[..., :_KEPT].mT @ self.left
        self.right[:, _KEPT] = start
        self.small.zero_()
        self.small[:, range(_KEPT), range(_KEPT)] = sizes[:, :_KEPT]
        self.count = _KEPT


def _orthogonal(vectors: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    """Return vectors (B, size) without their part in a basis (B, k, size), and its coefficients (B, k).

    That part is subtracted twice: after once, errors of the basis would grow by a factor with every vector. One
    operator follows another, so that its basis is still in the processor's cache when it is read again.
    """
    rest, parts = torch.empty_like(vectors), vectors.new_empty(basis.shape[:2])
    for vector, rows, left, part in zip(vectors, basis, rest, parts, strict=True):
        torch.mv(rows, vector, out=part)
        torch.addmv(vector, rows.mT, part, alpha=-1, out=left)
        again = torch.mv(rows, left)
        left.addmv_(rows.mT, again, alpha=-1)
        part += again
    return rest, parts


def unit(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Return vectors of length 1 and the original lengths; where the length is 0 so is the vector."""
    lengths = torch.linalg.vector_norm(vectors, dim=-1)
    return vectors / torch.where(lengths > 0, lengths, torch.inf)[:, None], lengths
