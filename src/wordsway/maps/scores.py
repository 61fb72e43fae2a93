"""How attention turns scores into weights, and the weight of one key as a function of its score alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import expit, log_expit
from torch import Tensor
from torch.nn.functional import logsigmoid

from wordsway.errors import InputError, nearest

Array: TypeAlias = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Score:
    """A rule from scores S_jk to weights.

    softmax: exp(S_jk) over the row's sum; relu and sigmoid: g(S_jk) over the row's sum, 0 where the sum is 0;
    linear: the scores themselves, without a normaliser. A weight grows with its own score in every case.

    `gain` is g on tensors; `array_gain` and `array_derivative` are g and g' on arrays. A custom score needs all three:
    g at least 0 and never falling, on which searches and ceilings rely. Set `positive` where g is > 0 at all scores
    that occur, as it is computed (exp(-800) is 0): a row then never loses all its weights, and ceilings may be lower.
    Set `logarithmic` where the three functions are log g and its derivative, finite at all scores: weights are then
    the softmax of log g, which never underflows. Softmax is the logarithmic rule without functions: log g(s) = s.
    Without a normaliser only the linear rule has ceilings.
    """

    name: str
    gain: Callable[[Tensor], Tensor] | None = None
    array_gain: Callable[[Array], Array] | None = None
    array_derivative: Callable[[Array], Array] | None = None
    normalised: bool = True
    positive: bool = False
    logarithmic: bool = False

    def __post_init__(self) -> None:
        given = [rule is not None for rule in (self.gain, self.array_gain, self.array_derivative)]
        if self.normalised and any(given) and not all(given):
            raise InputError("a score must have gain, array_gain and array_derivative, or none of them, got some")
        if not self.normalised and self.gain is None:
            raise InputError("a score without a normaliser must have a gain, got none")
        if self.logarithmic and not self.normalised:
            raise InputError("a logarithmic score must be normalised, got normalised=False")
        if self.positive and self.array_gain is not None and not self.logarithmic:
            tried = np.array([-10.0, 0.0, 10.0])
            for score, gain in zip(tried, self.array_gain(tried), strict=True):
                if not gain > 0:
                    raise InputError(
                        f"gains of a positive score must be > 0, got {gain:g} at {score:g}: leave positive out"
                    )

    @property
    def softmax(self) -> bool:
        """Whether this is the softmax, the only rule without a gain."""
        return self.gain is None

    @property
    def may_vanish(self) -> bool:
        """Whether a row may lose all its weights."""
        return not (self.by_odds or self.positive)

    @property
    def by_odds(self) -> bool:
        """Whether weights are the softmax of log g, and so positive and exact where g itself underflows."""
        return self.gain is None or self.logarithmic

    @property
    def linear(self) -> bool:
        """Whether this is the built-in rule whose weights are the scores themselves."""
        return self == SCORES["linear"]

    def logs(self, scores: Tensor, visible: Tensor | None = None) -> Tensor:
        """log g of a rule with `by_odds`; -inf for keys that a row does not see."""
        logs = scores if self.gain is None else self.gain(scores)
        return logs if visible is None else logs.masked_fill(~visible, -torch.inf)

    def weights(self, scores: Tensor, visible: Tensor | None = None) -> Tensor:
        """Weights of the keys (last axis); keys that a row does not see get 0."""
        if self.by_odds:
            return torch.softmax(self.logs(scores, visible), dim=-1)
        assert self.gain is not None
        gains = self.gain(scores)
        if visible is not None:
            gains = gains * visible
        if not self.normalised:
            return gains
        total = gains.sum(-1, keepdim=True)
        return torch.where(total > 0, gains / torch.where(total > 0, total, 1.0), 0.0)


SCORES = {
    score.name: score
    for score in (
        Score("softmax", positive=True, logarithmic=True),
        Score("relu", torch.relu, lambda s: np.maximum(s, 0), lambda s: (s > 0).astype(s.dtype)),
        # sigmoid(-104) is 0 in single precision
        Score("sigmoid", logsigmoid, log_expit, lambda s: expit(-s), positive=True, logarithmic=True),
        Score("linear", lambda s: s, normalised=False),
    )
}


def score_named(name: str | Score) -> Score:
    """Return the score rule of that name; a `Score` is returned unchanged."""
    if isinstance(name, Score):
        return name
    if not isinstance(name, str) or name not in SCORES:
        raise InputError(f"score must be one of {', '.join(SCORES)}, got {name!r}{nearest(name, SCORES)}")
    return SCORES[name]


def over(part: Array, total: Array) -> Array:
    """part / total, and 0 where the total is 0 (or so small that its inverse overflows)."""
    enough = total > np.finfo(total.dtype).tiny
    zero = np.zeros(np.broadcast(part, total).shape, part.dtype)
    return np.asarray(np.divide(part, total, out=zero, where=enough))


class OddsShare:
    """w(t) = sigmoid(L(start + t) - rest): the weight of a key whose score moves by t, the others staying.

    L is log g, None for the softmax, where it is the identity; `rest` is the logarithm of the others' summed gains, and
    inf where the row does not see the key.
    """

    def __init__(
        self,
        start: Array,
        rest: Array,
        log_gain: Callable[[Array], Array] | None = None,
        log_derivative: Callable[[Array], Array] | None = None,
    ) -> None:
        self.log_gain, self.log_derivative = log_gain, log_derivative
        self.start, self.rest = start, rest
        self.odds = start - rest  # of the softmax at t = 0

    def weight(self, t: Array) -> Array:
        odds = t + self.odds if self.log_gain is None else self.log_gain(self.start + t) - self.rest
        return np.asarray(expit(odds))

    def derivative(self, t: Array, w: Array) -> Array:
        derivative = w * (1 - w)
        return derivative if self.log_derivative is None else derivative * self.log_derivative(self.start + t)

    def take(self, index: Any) -> OddsShare:
        return OddsShare(self.start[index], self.rest[index], self.log_gain, self.log_derivative)

    def ravel(self) -> OddsShare:
        start, rest = (x.ravel().astype(np.float64) for x in (self.start, self.rest))
        return OddsShare(start, rest, self.log_gain, self.log_derivative)


class RatioShare:
    """w(t) = g(a + t) / (Z + g(a + t)): the weight of a key whose score a moves by t, the others' gains summing to Z.

    `seen` is 0 where the row does not see the key.
    """

    def __init__(
        self,
        gain: Callable[[Array], Array],
        derivative: Callable[[Array], Array],
        start: Array,
        rest: Array,
        seen: Array,
    ) -> None:
        self.gain, self.gain_derivative = gain, derivative
        self.start, self.rest, self.seen = start, rest, seen
        self.steep = over(seen, rest)

    def weight(self, t: Array) -> Array:
        gain = self.gain(self.start + t) * self.seen
        return over(gain, self.rest + gain)

    def derivative(self, t: Array, w: Array) -> Array:
        others = 1 - w
        return np.asarray(self.gain_derivative(self.start + t) * self.steep * (others * others))

    def take(self, index: Any) -> RatioShare:
        parts = (self.start[index], self.rest[index], self.seen[index])
        return RatioShare(self.gain, self.gain_derivative, *parts)

    def ravel(self) -> RatioShare:
        parts = (x.ravel().astype(np.float64) for x in (self.start, self.rest, self.seen))
        return RatioShare(self.gain, self.gain_derivative, *parts)
