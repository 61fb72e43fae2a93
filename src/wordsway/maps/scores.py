"""How attention turns scores into weights, and how the weight of one key answers when only its score moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from wordsway.errors import InputError, nearest

Elementwise: TypeAlias = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Score:
    """A rule from scores S_jk to weights.

    softmax: exp(S_jk) over the row's sum; relu and sigmoid: g(S_jk) over the row's sum, 0 where the sum is 0;
    linear: the scores themselves, without a normaliser. The rule is monotone in its own score in every case.
    """

    name: str
    gain: Elementwise | None = None
    slope: Elementwise | None = None
    normalised: bool = True

    def weights(self, scores: Tensor, visible: Tensor | None = None) -> Tensor:
        """Weights of the keys (last axis); keys that a row does not see get 0."""
        if self.gain is None:
            masked = scores if visible is None else scores.masked_fill(~visible, -torch.inf)
            return torch.softmax(masked, dim=-1)
        gains = self.gain(scores)
        if visible is not None:
            gains = gains * visible
        if not self.normalised:
            return gains
        total = gains.sum(-1, keepdim=True)
        return torch.where(total > 0, gains / torch.where(total > 0, total, 1.0), 0.0)


def _sigmoid_slope(scores: Tensor) -> Tensor:
    value = torch.sigmoid(scores)
    return value * (1 - value)


SCORES = {
    score.name: score
    for score in (
        Score("softmax"),
        Score("relu", torch.relu, lambda s: (s > 0).to(s.dtype)),
        Score("sigmoid", torch.sigmoid, _sigmoid_slope),
        Score("linear", lambda s: s, torch.ones_like, normalised=False),
    )
}


def score_named(name: str) -> Score:
    """The score rule of that name."""
    if name not in SCORES:
        raise InputError(f"score must be one of {', '.join(SCORES)}, got {name!r}{nearest(name, SCORES)}")
    return SCORES[name]


@dataclass(frozen=True)
class SoftmaxShare:
    """w(t) = sigmoid(odds + t): the softmax weight of a key whose score moves by t, the others staying.

    `odds` is log(w / (1 - w)) at t = 0, and -inf where the row does not see the key.
    """

    odds: Tensor

    def weight(self, t: Tensor) -> Tensor:
        return torch.sigmoid(t + self.odds)

    def slope(self, t: Tensor, w: Tensor) -> Tensor:
        return w * (1 - w)

    def take(self, index: tuple[Any, ...]) -> SoftmaxShare:
        return SoftmaxShare(self.odds[index])


@dataclass(frozen=True)
class RatioShare:
    """w(t) = g(a + t) / (Z + g(a + t)): the weight of a key whose score a moves by t, the others' gains summing to Z.

    `seen` is 0 where the row does not see the key.
    """

    score: Score
    start: Tensor
    rest: Tensor
    seen: Tensor

    def weight(self, t: Tensor) -> Tensor:
        assert_gain = self.score.gain
        gain = assert_gain(self.start + t) * self.seen  # type: ignore[misc]
        total = self.rest + gain
        return torch.where(total > 0, gain / torch.where(total > 0, total, 1.0), 0.0)

    def slope(self, t: Tensor, w: Tensor) -> Tensor:
        gain = self.score.gain(self.start + t)  # type: ignore[misc]
        total = self.rest + gain
        steep = self.score.slope(self.start + t) * self.rest * self.seen  # type: ignore[misc]
        return torch.where(total > 0, steep / torch.where(total > 0, total, 1.0) ** 2, 0.0)

    def take(self, index: tuple[Any, ...]) -> RatioShare:
        return RatioShare(self.score, self.start[index], self.rest[index], self.seen[index])
