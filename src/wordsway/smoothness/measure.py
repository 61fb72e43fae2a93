"""The local Lipschitz constant of a layer at a context: the norm of its Jacobian, with a witness and a residual."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from wordsway.checks import as_context, check_size
from wordsway.errors import InputError
from wordsway.smoothness.jacobian import Jacobian, jacobian_of
from wordsway.smoothness.lanczos import Triplets, top_triplets

TOLERANCE = 1e-4
PRODUCTS = 400


@dataclass(frozen=True, eq=False)
class LocalLipschitz:
    """|D_X f|_2 at a context X: how much the layer amplifies the worst small change of it.

    Attributes
    ----------
    value : float
        The largest singular value of the Jacobian as found: never above the true one.
    residual : float
        |J^T left - value right|: a singular value lies within it of `value`.
    products : int
        Products with the Jacobian and its transpose that it took.
    status : str
        "converged", or how far it came.
    left, right : Tensor
        The witness: moving X along `right` (unit, of the shape of X) moves f(X) along `left` at the rate `value`.
    seconds : float
        Of the whole batch that the context was measured in, divided by its size.
    dtype, device : str
        What it was computed in.
    """

    value: float
    residual: float
    products: int
    status: str
    left: Tensor
    right: Tensor
    seconds: float
    dtype: str
    device: str

    @property
    def converged(self) -> bool:
        return self.status == "converged"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; the witness is left out."""
        names = ("residual", "products", "status", "seconds", "dtype", "device")
        return {"n": len(self.right), "lipschitz": self.value, **{name: getattr(self, name) for name in names}}


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
        Stop when the residual is at most so many times the value.
    products : int
        Give up after so many products with the Jacobian or its transpose; the status then says so.
    store : bool or None
        Whether attention's n x n weights are kept; None decides by their size. Without them memory is O(n d).
    seed : int
        Of the vector that the search starts from.

    Notes
    -----
    Golub-Kahan-Lanczos: some 20 products of O(n^2 d + n d^2) each, where power iteration needs 40 to 200. The residual
    bounds the distance to a singular value; the error of the value is of the order of its square.
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
    contexts = _contexts(X)
    if not callable(layer):
        raise InputError(f"a layer must be callable on a context, got {type(layer).__name__}")
    if not 0 < tolerance < 1:
        raise InputError(f"tolerance must be between 0 and 1, got {tolerance}")
    if check_size(products, "products") < 2:
        raise InputError(f"products must be at least 2, with the Jacobian and with its transpose, got {products}")
    begin = time.perf_counter()
    with torch.no_grad():
        operator = jacobian_of(layer, contexts, store)
        found = top_triplets(operator, tolerance, products, seed)
    seconds = (time.perf_counter() - begin) / len(contexts)
    return [_record(found, number, operator, seconds) for number in range(len(contexts))]


def _record(found: Triplets, number: int, operator: Jacobian, seconds: float) -> LocalLipschitz:
    value, residual, spent = (float(part[number]) for part in (found.values, found.residuals, found.products))
    share = residual / value if value else math.inf
    limit = f"stopped after {spent:.0f} products with a residual of {share:.1g} of the value"
    return LocalLipschitz(
        value=value,
        residual=residual,
        products=int(spent),
        status="converged" if found.converged[number] else limit,
        left=found.left[number],
        right=found.right[number],
        seconds=seconds,
        dtype=str(operator.like.dtype).removeprefix("torch."),
        device=str(operator.like.device),
    )


def _contexts(X: Any) -> Tensor:
    """Contexts of one size as a detached batch."""
    if isinstance(X, list | tuple):
        return _stacked([as_context(one) for one in X])
    given = X if isinstance(X, Tensor) else torch.as_tensor(X)
    if given.ndim != 3 or len(given) == 0:
        raise InputError(f"contexts must have the shape (count, n, d), got {tuple(given.shape)}")
    return _stacked([as_context(one) for one in given])


def _stacked(contexts: list[Tensor]) -> Tensor:
    if not contexts:
        raise InputError("contexts must be at least one, got none")
    for one in contexts:
        if one.shape != contexts[0].shape:
            got = f"{tuple(contexts[0].shape)} and {tuple(one.shape)}"
            raise InputError(f"contexts must all have one shape, got {got}: use local_lipschitz for each")
    return torch.stack(contexts).detach()
