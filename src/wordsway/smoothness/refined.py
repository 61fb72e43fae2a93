"""The largest singular value of attention's Jacobian: searched in float32, computed in float64."""

from __future__ import annotations

import math
from dataclasses import fields

import torch
from torch import Tensor

from wordsway.errors import NumericalError
from wordsway.smoothness.jacobian import AttentionJacobian
from wordsway.smoothness.lanczos import DENSE, Triplets, top_triplets, unit

# Error of products in float32, relative to the largest singular value: 84 times eps. On layers of MiniLM and SmolLM2 it
# was 2e-7 to 2e-6 at the witness; where it is larger, as with very large scores, the search is repeated in float64.
_ERROR = 1e-5


def refined_triplets(operator: AttentionJacobian, tolerance: float, products: int, seed: int = 0) -> Triplets:
    """`top_triplets` by products in float32, and the values of what they find by one more pair in float64.

    Values, residuals and witnesses are those of the operator in float64: |J v| at the unit vector v that was found is a
    lower bound on the largest singular value up to rounding errors in float64, and below that of a search in float64
    by the square of the error of v. Ceilings and doubts allow for products that are wrong by 1e-5 of the value: where
    they differ by more at the witness there is no ceiling. Such an operator is searched again in float64 while products
    are left, as is one whose residual in float64 is above the tolerance. Tolerances below 3e-5, few inputs and few
    products are searched in float64.
    """
    few = products < 4 or math.prod(operator.inputs[1:]) <= DENSE
    if operator.like.dtype != torch.float64 or few or tolerance < 3 * _ERROR:
        return top_triplets(operator, tolerance, products, seed)
    try:
        found = top_triplets(operator.single(), tolerance, products - 2, seed, _ERROR)
    except NumericalError:  # what overflows in float32 may be finite in float64
        return top_triplets(operator, tolerance, products, seed)
    refined, errors = _in_double(operator, found)
    wrong = errors > _ERROR * refined.values
    refined.ceilings[wrong], refined.doubts[wrong] = math.inf, 1.0  # they rest on products within that
    sure = ~wrong & (refined.residuals <= tolerance * refined.values)
    refined.converged[~sure] = False
    left = products - int(refined.products.max())
    again = (found.converged & ~sure).nonzero().flatten()
    if len(again) and left >= 2:
        repeated = top_triplets(operator.take(again), tolerance, left, seed)
        refined.products[again] += repeated.products
        # with few products left the first search may be the better one
        better = repeated.converged | (repeated.values >= refined.values[again])
        for name in (field.name for field in fields(Triplets) if field.name not in ("failure", "products")):
            getattr(refined, name)[again[better]] = getattr(repeated, name)[better]
    return refined


def _in_double(operator: AttentionJacobian, found: Triplets) -> tuple[Triplets, Tensor]:
    """Return triplets by one product and one adjoint in float64, and how far the products in float32 differ, (B,)."""
    right, left = _units(found.right.double())[0], found.left.double()
    moved = operator.product(right)
    errors = _lengths(moved - _each(found.values.double(), moved) * left)
    left, values = _units(moved)
    residuals = _lengths(operator.adjoint(left) - _each(values, right) * right)
    ceilings = values.maximum(found.ceilings.double() + errors)
    doubts, counts = found.doubts.double(), found.products + 2
    return Triplets(
        values, residuals, ceilings, found.failure, doubts, left, right, counts, found.converged.clone()
    ), errors


def _units(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Return vectors (B, ...) of length 1 and the original lengths; where the length is 0 so is the vector."""
    flat, lengths = unit(vectors.flatten(1))
    return flat.reshape(vectors.shape), lengths


def _lengths(vectors: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(vectors.flatten(1), dim=-1)
    return lengths


def _each(numbers: Tensor, like: Tensor) -> Tensor:
    """Return one number for each of a batch, (B,), in a shape that is multiplied with the batch, (B, 1, ...)."""
    return numbers.reshape(-1, *[1] * (like.dim() - 1))
