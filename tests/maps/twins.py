"""Maps written in the plainest way, straight from their definitions: what the fast ones are compared with."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from wordsway.maps import Attention, DeepRandomFeatures, FeatureMap, RandomFeatures


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@dataclass(frozen=True)
class Setting:
    """One member of the attention family."""

    score: str = "softmax"
    heads: int = 1
    causal: bool = False
    value: bool = False
    output: bool = False

    def __str__(self) -> str:
        extras = [name for name in ("causal", "value", "output") if getattr(self, name)]
        return "-".join([self.score, str(self.heads), *extras])

    def attention(self, d: int, seed: int) -> Attention:
        """The member with random weights: heads of 3 for queries and keys, of 2 for values, and 4 outputs."""
        width = 2 * self.heads if self.value else d
        return Attention(
            normal(3 * self.heads, d, seed=seed + 10) / 2,
            normal(3 * self.heads, d, seed=seed + 20) / 2,
            normal(width, d, seed=seed + 30) / math.sqrt(d) if self.value else None,
            heads=self.heads,
            causal=self.causal,
            score=self.score,
            output=normal(4, width, seed=seed + 40) / math.sqrt(width) if self.output else None,
        )


GAINS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda s: s * (s > 0),
    "sigmoid": lambda s: 1 / (1 + torch.exp(-s)),
    "linear": lambda s: s,
}


def plain_attention(of: Attention) -> FeatureMap:
    """Attention one head after another, with every weight of every pair of words."""

    def features(X: Tensor) -> Tensor:
        query, key, value = (X if w is None else X @ w.T for w in (of.query, of.key, of.value))
        parts = []
        for head in range(of.heads):
            q, k, u = (
                x[..., head * (x.shape[-1] // of.heads) :][..., : x.shape[-1] // of.heads] for x in (query, key, value)
            )
            parts.append(_weights(of, torch.einsum("...jq,...kq->...jk", q, k) / math.sqrt(q.shape[-1])) @ u)
        rows = torch.cat(parts, dim=-1)
        return rows if of.output is None else torch.einsum("...v,pv->...p", rows, of.output)

    features.batched = True  # type: ignore[attr-defined]
    return features


def _weights(of: Attention, scores: Tensor) -> Tensor:
    n = scores.shape[-1]
    seen = torch.tensor([[k <= j or not of.causal for k in range(n)] for j in range(n)])
    if of.score.name == "softmax":
        most = torch.where(seen, scores, -math.inf).amax(-1, keepdim=True).detach()
        gains = torch.where(seen, torch.exp(torch.where(seen, scores - most, 0.0)), 0.0)
    else:
        gains = GAINS[of.score.name](scores) * seen
    if of.score.name == "linear":
        return gains
    total = gains.sum(-1, keepdim=True)
    return gains / (total + (total == 0).to(total))


def plain_layers(of: RandomFeatures | DeepRandomFeatures) -> FeatureMap:
    """Random features through the whole of every weight, revealed as it then is."""
    weights = [weight.dense() for weight in of.weights]

    def features(X: Tensor) -> Tensor:
        hidden = X.reshape(-1)
        for weight in weights:
            hidden = of.activation(weight @ hidden)
        return hidden

    return features
