"""The central seam: a feature map's response along one word, and the plain response that any callable has."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from wordsway import memory
from wordsway.checks import all_finite, as_context, check_position, check_radius, like_parameters
from wordsway.contexts import perturb
from wordsway.errors import InputError, NumericalError, nearest

FeatureMap: TypeAlias = Callable[[Tensor], Tensor]
ValueAndGradient: TypeAlias = tuple[Tensor, Tensor | None]
EFFORTS = ("simple", "quick", "tight")  # how hard to work on a ceiling
Functional: TypeAlias = Callable[[Tensor], ValueAndGradient]
# Delta (..., *shape) -> m values (m, ..., *batch), and weights of that shape -> the gradient of their weighted sum
Functionals: TypeAlias = Callable[[Tensor], tuple[Tensor, Callable[[Tensor], Tensor]]]
# Delta -> values (..., *batch), excesses (..., *batch, K), which are > 0 beyond the ends of the piece, and a function
# of weights of the excesses -> the gradient of the value less their weighted sum
Piece: TypeAlias = Callable[[Tensor], tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]]


@dataclass(frozen=True)
class Ceiling:
    """A certified upper bound on the relative change over a ball, one value per word.

    Attributes
    ----------
    value : Tensor
        The bounds, of the shape of `Response.batch`.
    kind : str
        How the bound was obtained, for example "row norms" or "dual certificate".
    failure : float
        Probability, over the weights, that the bound is wrong: 0 when it is deterministic.
    """

    value: Tensor
    kind: str
    failure: float = 0.0


@dataclass(frozen=True)
class SearchHints:
    """What a search may use besides the values of a response; the defaults suit any response.

    Attributes
    ----------
    dtype, device
        What perturbations are evaluated in.
    starts : callable or None
        A random generator -> directions (B, *shape) that are worth starting from, in addition to random ones. Where a
        response is nonsmooth and expensive, they are points: where its ascent begins.
    nearby : callable or None
        Perturbations (B, *shape), best first -> points in other basins near the first of them.
    pieces : callable or None
        Perturbations (B, *shape) -> the change on the smooth piece that each of them is on, continued beyond its ends:
        a function of B perturbations.
    exchange : callable or None
        Witnesses (*shape) of words that move one at a time, and their values -> points (B, *shape) that are worth
        trying for all of them, such as what moved another word most. An ascent tries them for all words, and another
        search goes on from them for the words whose starts disagree, where `part` is known.
    part : callable or None
        Returns the same response along some of its words only, given their numbers.
    random_starts : int
        Number of random starts.
    work : float or None
        Operations of one evaluation at one perturbation; small kernels run on one thread.
    nonsmooth : bool
        Whether the gradient jumps, so that quasi-Newton steps fail and steps of shrinking length follow.
    cheap : bool
        Whether hundreds of evaluations at once cost little, so that the search takes more starts and steps.
    expensive : bool
        Whether an evaluation costs much: fewer starts and steps.
    inners : callable or None
        Several functionals at once, where that is cheaper than `Response.inner` for each: a sequence of u -> a function
        of Delta to m values, and a function of their weights to the gradient of the weighted sum.
    prepare : callable or None
        Returns the same response, set up for many evaluations.
    single : callable or None
        Returns the same response in float32, along which a search takes its steps; it ends along this one.
    """

    dtype: torch.dtype = torch.float64
    device: torch.device | str = "cpu"
    starts: Callable[[np.random.Generator], Tensor] | None = None
    nearby: Callable[[Tensor], Tensor] | None = None
    pieces: Callable[[Tensor], Piece] | None = None
    exchange: Callable[[Tensor, Tensor], Tensor] | None = None
    part: Callable[[Sequence[int]], Response] | None = None
    random_starts: int = 10
    work: float | None = None
    nonsmooth: bool = False
    cheap: bool = False
    expensive: bool = False
    inners: Callable[[Sequence[Tensor]], Functionals] | None = None
    prepare: Callable[[], Response] | None = None
    single: Callable[[], Response] | None = None

    def cast(self, x: Tensor) -> Tensor:
        """Return a tensor in the dtype and on the device of the response."""
        return x.to(self.device, self.dtype)


@runtime_checkable
class Response(Protocol):
    """The features as a function of a perturbation of words of one context: Delta -> phi(X^i(Delta)).

    A perturbation has the shape `shape`: (d,) for one word, (W, d) for W words that move one at a time, (m, d) for m
    words that move together. Every method takes a batch of them, (..., *shape), and returns one value for each: `batch`
    is () for one word or for words together, and (W,) for words one at a time. `hints` is what a search may use
    besides; ``SearchHints()`` is always valid.
    """

    shape: tuple[int, ...]
    batch: tuple[int, ...]

    @property
    def hints(self) -> SearchHints:
        """What a search may use besides the values."""

    def features(self, delta: Tensor) -> Tensor:
        """Features of the perturbed contexts, (..., *batch, *feature shape)."""

    def change(self, delta: Tensor, gradient: bool = True) -> ValueAndGradient:
        """Relative changes |phi(X^i(Delta)) - phi(X)| / |phi(X)|, and their gradients in Delta (0 where it is 0)."""

    def inner(self, u: Tensor) -> Functional:
        """The functional Delta -> <u, phi(X^i(Delta))> with its gradient; u has the shape of phi(X)."""

    def ceiling(self, radius: float, effort: str = "quick") -> Ceiling | None:
        """A certified bound on `change` over |Delta| <= radius, or None where none is known."""


_MEMBERS = ("shape", "batch", "hints", "features", "change", "inner", "ceiling")  # of `Response`


def respond(phi: FeatureMap, X: Any, word: int | Sequence[int], together: bool = False) -> Response:
    """The response of a map at a context along a word, the fast one where the map has it.

    Parameters
    ----------
    phi : callable
        Features of a context, (n, d) -> any shape. If it has a method `respond(X, words, together)`, that is used and
        must return a `Response`; otherwise the map is evaluated in full at each Delta and differentiated by autograd.
        A map that takes contexts with leading batch dimensions has an attribute `batched = True`.
    X : array (n, d)
        The context. A torch module gets it in the dtype and on the device of its parameters.
    word : int or sequence of int
        A position, or several, which move one at a time or `together`.
    together : bool
        Whether several words move at once (Remark 4.2 of the paper).
    """
    if not callable(phi):
        raise InputError(f"a map must be callable on a context, got {type(phi).__name__}: pass a function or a map")
    context = as_context(X).detach()
    position = check_position(len(context), word)
    own = getattr(phi, "respond", None)
    if own is None:
        return PlainResponse(phi, like_parameters(phi, context), position, together)
    name = f"{type(phi).__name__}.respond"
    try:
        inspect.signature(own).bind(context, position, together)
    except TypeError as error:
        raise InputError(f"{name} must take (X, word, together), got other parameters: {error}") from None
    response = own(context, position, together)
    if not isinstance(response, Response):
        missing = ", ".join(member for member in _MEMBERS if not hasattr(response, member))
        raise InputError(f"{name} must return a Response, got {type(response).__name__}: it lacks {missing}")
    return response


def check_effort(effort: str) -> None:
    """Refuse a name that is not one of the efforts."""
    if effort not in EFFORTS:
        raise InputError(f"ceiling must be one of {', '.join(EFFORTS)}, got {effort!r}{nearest(effort, EFFORTS)}")


def check_ball(radius: float, effort: str, d: int) -> None:
    """Refuse a radius or an effort for which no ceiling can be computed."""
    check_radius(radius, d)
    check_effort(effort)


def above_rounding(bound: Tensor, dtype: torch.dtype, values: float) -> Tensor:
    """A bound on relative changes, raised by the rounding of such changes as they are computed.

    So that it also holds at radii that are hardly resolved, and for changes many times as large as |phi(X)|; `values`
    is |U| / |phi(X)| of the values that are mixed.
    """
    return bound + 8 * torch.finfo(dtype).eps * bound.clamp_min(max(1.0, values))


def check_moves(delta: object, shape: tuple[int, ...]) -> None:
    """Refuse what is no batch of perturbations of this shape."""
    if isinstance(delta, Tensor) and delta.is_floating_point() and tuple(delta.shape[-len(shape) :]) == shape:
        return
    got = f"shape {tuple(delta.shape)} of {delta.dtype}" if isinstance(delta, Tensor) else type(delta).__name__
    wanted = ", ".join(["...", *map(str, shape)])
    raise InputError(f"perturbations must be a tensor of floats ({wanted}), got {got}")


def layout(d: int, word: int | Sequence[int], together: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """`shape` and `batch` of a response along `word`."""
    if isinstance(word, int):
        return ((1, d), ()) if together else ((d,), ())
    return ((len(word), d), () if together else (len(word),))


def positive_norm(features: Tensor) -> float:
    """|phi(X)|, which must be finite and positive for a relative change to exist."""
    norm = float(torch.linalg.vector_norm(features))
    if not math.isfinite(norm):
        raise NumericalError(
            "phi(X) is not finite, so its relative change is undefined: rescale the context or the map"
        )
    if norm == 0.0:
        raise NumericalError("phi(X) is zero, so its relative change is undefined: choose another context or map")
    return norm


def relative(square: Tensor, gradient: Tensor | None, norm: float) -> ValueAndGradient:
    """Relative change and gradient from the squared change and its gradient; the gradient is 0 where the change is."""
    change = square.clamp_min(0).sqrt()
    if gradient is None:
        return change / norm, None
    down = torch.where(change > 0, 0.5 / norm / change.clamp_min(torch.finfo(change.dtype).tiny), 0.0)
    return change / norm, gradient * down.reshape(down.shape + (1,) * (gradient.ndim - down.ndim))


def single_functional(several: Functionals) -> Functional:
    """Return the first of several functionals alone."""

    def functional(delta: Tensor) -> ValueAndGradient:
        values, pull = several(delta)
        return values[0], pull(torch.ones_like(values))

    return functional


class AutogradResponse:
    """Everything a response needs, from its differentiable `features` alone.

    Cost: one evaluation of the features for a value, about three with its gradient.
    """

    def __init__(self, features: FeatureMap, base: Tensor, shape: tuple[int, ...], batch: tuple[int, ...]) -> None:
        self._features = features
        self._base = base
        self._norm = positive_norm(base)
        self.shape = shape
        self.batch = batch
        self.hints = SearchHints(base.dtype, base.device)

    def features(self, delta: Tensor) -> Tensor:
        check_moves(delta, self.shape)
        with torch.no_grad():
            return self._features(delta)

    def change(self, delta: Tensor, gradient: bool = True) -> ValueAndGradient:
        def square(moved: Tensor) -> Tensor:
            difference = self._finite(moved) - self._base
            return self._by_move(difference * difference, moved).sum(-1)

        check_moves(delta, self.shape)
        return relative(*differentiate(square, delta, gradient), self._norm)

    def inner(self, u: Tensor) -> Functional:
        weights = u.to(self._base).reshape(-1)

        def functional(delta: Tensor) -> ValueAndGradient:
            check_moves(delta, self.shape)
            return differentiate(lambda moved: self._by_move(self._finite(moved), moved) @ weights, delta, True)

        return functional

    def _finite(self, delta: Tensor) -> Tensor:
        features = self._features(delta)
        if not all_finite(features):
            raise NumericalError("the features of a perturbed context are not finite: use a smaller radius")
        return features

    def _by_move(self, features: Tensor, delta: Tensor) -> Tensor:
        """(..., *batch, *feature shape) -> (..., *batch, p)."""
        return features.reshape(*features.shape[: delta.ndim - len(self.shape) + len(self.batch)], -1)

    def ceiling(self, radius: float, effort: str = "quick") -> Ceiling | None:
        return None


def differentiate(function: FeatureMap, delta: Tensor, gradient: bool) -> ValueAndGradient:
    """Values of a function of each Delta in a batch and, if wanted, the gradients by autograd."""
    if not gradient:
        with torch.no_grad():
            return function(delta), None
    with torch.enable_grad():
        moved = delta.detach().requires_grad_(True)
        value = function(moved)
        if not value.requires_grad:
            raise InputError("a map must depend on the context through torch operations, got features without gradient")
        (grad,) = torch.autograd.grad(value.sum(), moved)
    return value.detach(), grad


class PlainResponse:
    """The response of any callable: the map itself at each perturbed context, differentiated by autograd.

    Cost: a full evaluation of the map for each Delta; the reference that every fast response is checked against.
    """

    def __init__(self, phi: FeatureMap, X: Tensor, word: int | Sequence[int], together: bool = False) -> None:
        self._phi = phi
        self._context = X
        self._word = word
        self._together = together
        self.shape, self.batch = layout(X.shape[1], word, together)
        self.hints = SearchHints(X.dtype, X.device)
        with torch.no_grad():
            base = self._evaluate(X)
        if not base.is_floating_point():
            raise InputError(f"a map must return real floating-point features, got {base.dtype}")
        self._autograd = AutogradResponse(self._at, base, self.shape, self.batch)

    def features(self, delta: Tensor) -> Tensor:
        return self._autograd.features(delta)

    def change(self, delta: Tensor, gradient: bool = True) -> ValueAndGradient:
        return self._autograd.change(delta, gradient)

    def inner(self, u: Tensor) -> Functional:
        return self._autograd.inner(u)

    def ceiling(self, radius: float, effort: str = "quick") -> Ceiling | None:
        return None

    def _at(self, delta: Tensor) -> Tensor:
        n, d = self._context.shape
        memory.require(
            delta.numel() * n * delta.element_size(),
            "the perturbed contexts of a batch",
            "evaluate fewer perturbations at once",
        )
        if self._together or not self.batch:
            contexts = perturb(self._context, self._word, delta)  # ... n d
            lead = contexts.shape[:-2]
        else:
            moved = [perturb(self._context, w, delta[..., s, :]) for s, w in enumerate(self._words())]
            contexts = torch.stack(moved, dim=-3)  # ... W n d
            lead = contexts.shape[:-2]
        flat = contexts.reshape(-1, n, d)
        if getattr(self._phi, "batched", False):
            values = self._evaluate(flat)
        else:
            values = torch.stack([self._evaluate(context) for context in flat])
        return values.reshape(lead + values.shape[1:])

    def _words(self) -> Sequence[int]:
        return (self._word,) if isinstance(self._word, int) else self._word

    def _evaluate(self, X: Tensor) -> Tensor:
        features = self._phi(X)
        if not isinstance(features, Tensor):
            raise InputError(f"a map must return a torch tensor, got {type(features).__name__}: compute it with torch")
        return features


class StackedResponse:
    """Several one-word responses as one response along words that move one at a time."""

    def __init__(self, parts: Sequence[Response]) -> None:
        self.parts = list(parts)
        self.shape: tuple[int, ...] = (len(parts), *parts[0].shape)
        self.batch: tuple[int, ...] = (len(parts),)
        hints = [part.hints for part in parts]
        self.hints = replace(
            hints[0],
            starts=None,
            nearby=None,
            exchange=None,
            part=None,
            inners=None,
            prepare=None,
            random_starts=min(hint.random_starts for hint in hints),
            work=sum(hint.work or math.inf for hint in hints),
            nonsmooth=any(hint.nonsmooth for hint in hints),
            expensive=any(hint.expensive for hint in hints),
        )

    def features(self, delta: Tensor) -> Tensor:
        return torch.stack([part.features(delta[..., s, :]) for s, part in enumerate(self.parts)], dim=delta.ndim - 2)

    def change(self, delta: Tensor, gradient: bool = True) -> ValueAndGradient:
        return self._stack([part.change(delta[..., s, :], gradient) for s, part in enumerate(self.parts)])

    def inner(self, u: Tensor) -> Functional:
        functionals = [part.inner(u) for part in self.parts]
        return lambda delta: self._stack([f(delta[..., s, :]) for s, f in enumerate(functionals)])

    def ceiling(self, radius: float, effort: str = "quick") -> Ceiling | None:
        ceilings = [part.ceiling(radius, effort) for part in self.parts]
        known = [ceiling for ceiling in ceilings if ceiling is not None]
        if len(known) < len(ceilings):
            return None
        return Ceiling(torch.stack([c.value for c in known]), known[0].kind, sum(c.failure for c in known))

    @staticmethod
    def _stack(pairs: list[ValueAndGradient]) -> ValueAndGradient:
        gradients = [grad for _, grad in pairs if grad is not None]
        values = torch.stack([value for value, _ in pairs], dim=-1)
        return values, torch.stack(gradients, dim=-2) if gradients else None
