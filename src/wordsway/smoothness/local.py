"""The local Lipschitz constant of a layer at a context: the norm of its Jacobian, with a witness and a residual."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from wordsway.checks import as_context, as_contexts, check_size, like_parameters
from wordsway.errors import InputError
from wordsway.maps import Attention
from wordsway.memory import ResourceUsage
from wordsway.records import Record
from wordsway.smoothness.heads import plain_attention
from wordsway.smoothness.jacobian import AttentionJacobian, Jacobian, jacobian_of
from wordsway.smoothness.lanczos import Triplets, top_triplets
from wordsway.smoothness.refined import refined_triplets
from wordsway.threads import suited

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TOLERANCE = 1e-4
PRODUCTS = 400


@dataclass(frozen=True, eq=False, repr=False)
class LocalLipschitz(Record):
    """|D_X f|_2 at a context X: how much the layer amplifies the worst small change of it.

    Attributes
    ----------
    value : float
        The largest singular value of the Jacobian that was found: above the true one by rounding errors at most,
        which are of the order of eps times the largest score, relative (1e-4 in single precision at scores of 1000).
        The ceiling is without them, but for a search in float32 at a context in float64, where it is 1e-5 higher.
    residual : float
        |J^T left - value right|: a singular value, usually but not always the largest, lies within it of `value`.
    ceiling : float
        Upper bound on the largest singular value, whatever the others are.
    failure : float
        Probability, over the start of the search, that the ceiling is wrong: 1e-6, and 0 for up to 128 numbers in X,
        where the whole Jacobian is decomposed.
    doubt : float
        The level at which it is excluded that the largest singular value is above (1 + tolerance) `value`: for every p,
        a start of the search with a doubt of at most p and such a value has a probability of at most p. It is 1 where
        nothing is known, as for flat spectra and few products.
    products : int
        Products with the Jacobian and its transpose.
    status : str
        "converged", or the residual at the limit of products.
    left, right : Tensor
        The witness: moving X along `right` (unit, of the shape of X) moves f(X) along `left` at the rate `value`.
    cost : ResourceUsage
        Its seconds are those of the batch that the context was measured in, divided by the size of the batch.
    """

    value: float
    residual: float
    ceiling: float
    failure: float
    doubt: float
    products: int
    status: str
    left: Tensor
    right: Tensor
    cost: ResourceUsage

    summary_fields = ("value", "ceiling", "residual", "products", "status")
    json_names: ClassVar = {"value": "lipschitz"}

    @property
    def converged(self) -> bool:
        return self.status == "converged"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON, without the witness."""
        return {"n": len(self.right), **super().to_dict()}

    def draw(self, ax: Axes) -> None:
        """Draw how far each word moves in the direction that the layer amplifies most."""
        lengths = torch.linalg.vector_norm(self.right.flatten(1), dim=1).tolist()
        ax.bar(range(len(lengths)), lengths)
        ax.set(xlabel="word", ylabel="length of its change", title=f"local Lipschitz constant {self.value:.4g}")


def local_lipschitz(
    layer: Callable[[Tensor], Tensor],
    X: Any,
    tolerance: float = TOLERANCE,
    products: int = PRODUCTS,
    store: bool | None = None,
    seed: int = 0,
) -> LocalLipschitz:
    """The local Lipschitz constant |D_X f|_2 of a layer at a context.

    Parameters
    ----------
    layer : callable
        Softmax `Attention` and `RandomAttention` have closed forms; any other differentiable callable on contexts
        goes through autograd.
    X : array (n, d)
    tolerance : float
        Stop when the residual is at most this times the value.
    products : int
        Stop after so many products with the Jacobian or its transpose; the status then states the residual.
    store : bool or None
        Whether attention's n x n weights are kept, default: if they are small. Without them memory is O(n d).
    seed : int
        Seed of the vector at which the search starts.

    Notes
    -----
    Golub-Kahan-Lanczos: some 20 products of O(n^2 d + n d^2) each, where power iteration needs 40 to 200. The residual
    bounds the distance to a singular value. Where many singular values are nearly the same, the largest one can be
    farther away; `ceiling` bounds it and `doubt` the probability of that, see
    `wordsway.smoothness.lanczos.top_triplets`. Values are exact up to rounding errors: a Jacobian that is 0 has a value
    of the size of the rounding errors of its products. For attention at a context in float64 the search runs in
    float32; value, residual and witness are those of a last pair of products in float64, see
    `wordsway.smoothness.refined`.
    """
    return local_lipschitz_many(layer, as_context(X)[None], tolerance, products, store, seed)[0]


def local_lipschitz_many(
    layer: Callable[[Tensor], Tensor],
    X: Any,
    tolerance: float = TOLERANCE,
    products: int = PRODUCTS,
    store: bool | None = None,
    seed: int = 0,
) -> list[LocalLipschitz]:
    """`local_lipschitz` at each of several contexts of one size, (B, n, d) or a list of (n, d), in one batch."""
    contexts = like_parameters(layer, as_contexts(X).detach())
    if not callable(layer):
        raise InputError(f"a layer must be callable on a context, got {type(layer).__name__}")
    if not 0 < tolerance < 1:
        raise InputError(f"tolerance must be between 0 and 1, got {tolerance}")
    if check_size(products, "products") < 2:
        raise InputError(f"products must be at least 2, with the Jacobian and with its transpose, got {products}")
    with ResourceUsage() as usage, torch.no_grad():
        attention = plain_attention(layer)
        # Nothing is known about the cost of other layers, so they keep the threads they have.
        with suited(attention.operations(contexts) if isinstance(attention, Attention) else None):
            operator = jacobian_of(layer, contexts, store)
            if isinstance(operator, AttentionJacobian):
                triplets = refined_triplets(operator, tolerance, products, seed)
            else:
                triplets = top_triplets(operator, tolerance, products, seed)
    usage.seconds /= len(contexts)
    return [_record(triplets, number, operator, usage) for number in range(len(contexts))]


def _record(triplets: Triplets, number: int, operator: Jacobian, usage: ResourceUsage) -> LocalLipschitz:
    value, residual, spent = (float(part[number]) for part in (triplets.values, triplets.residuals, triplets.products))
    share = residual / value if value else math.inf
    limit = f"stopped after {spent:.0f} products with a residual of {share:.1g} of the value"
    return LocalLipschitz(
        value=value,
        residual=residual,
        ceiling=float(triplets.ceilings[number]),
        failure=triplets.failure,
        doubt=float(triplets.doubts[number]),
        products=int(spent),
        status="converged" if triplets.converged[number] else limit,
        left=triplets.left[number],
        right=triplets.right[number],
        cost=usage.computed_in(operator.like.dtype, operator.like.device, int(spent)),
    )
