"""Attention as a map of probability measures: each point of a cloud attends to all of them by their weight.

Source: Castin, Ablin and Peyre, "How Smooth Is Attention?" (2024), mean-field framework and contributions 2 and 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from wordsway.errors import InputError
from wordsway.maps.attention import Attention
from wordsway.smoothness.heads import Direction, exponential, norm, plain_attention
from wordsway.smoothness.measures import DiscreteMeasure, check_cloud


def mean_field(layer: Callable[[Tensor], Tensor], mu: DiscreteMeasure) -> DiscreteMeasure:
    """Mean-field attention: F(mu) = (Gamma_mu)# mu, the image of every point with the weight it had.

        Gamma_mu(x) = sum_j w_j exp(<A x, y_j>) V y_j / sum_j w_j exp(<A x, y_j>),   A = K^T Q / sqrt(q)

    For a cloud with positions, a point at s sees the points at tau <= s only (masked attention); points that share a
    position see each other. n words as equal weights give what the layer gives for them, and with positions i / n what
    it gives with a causal mask.

    Parameters
    ----------
    layer : Attention or RandomAttention
        With softmax scores and without rotary positions; heads, values, biases and output as they come. Whether it is
        causal does not matter: the mask is the cloud's, and a causal layer needs one.
    mu : DiscreteMeasure
        m points of the layer's d.

    Returns
    -------
    DiscreteMeasure
        m points of the layer's output, with the weights and positions of `mu`.

    Notes
    -----
    Cost: O(m^2 d) time and O(m^2) memory, in float64 on the CPU.
    """
    attention = softmax_attention(layer)
    check_cloud(mu, "mu")
    if attention.causal and mu.positions is None:
        raise InputError(
            "a causal layer needs a cloud with positions, got none: give DiscreteMeasure positions such as i / n"
        )
    attention.check(mu.points)
    queries, keys, values = attention.project(mu.points)  # H m q, H m q, H m v
    logs = mu.weights.log()
    scores = attention.scores(queries, keys) + (logs - logs.max())  # equal weights change no bit
    rows = attention.join(attention.score.weights(scores, visible(mu.positions)) @ values)
    if attention.output_bias is not None:
        rows = rows + attention.output_bias.to(rows)
    return DiscreteMeasure(rows, mu.weights, mu.positions)


def visible(positions: Tensor | None) -> Tensor | None:
    """Which points (columns) each point sees, tau <= s: (m,) -> (m, m); None when all."""
    return None if positions is None else positions <= positions[:, None]


def softmax_attention(layer: Any) -> Attention:
    """The attention of a layer that a measure can go through."""
    attention = plain_attention(layer)
    if not isinstance(attention, Attention):
        raise InputError(f"a mean-field layer must be an Attention or RandomAttention, got {type(layer).__name__}")
    if not attention.score.softmax:
        raise InputError(f"mean-field attention needs softmax scores, got {attention.score.name}")
    if attention.rotary is not None:
        raise InputError("mean-field attention must have no rotary positions, got some: a measure has no order")
    return attention


def upper_bound(A: Tensor, V: Tensor, R: float, masked: bool = False) -> float:
    """Lip(F) on P(B_R) is at most |V| (1 + 3 |A| R^2) exp(2 |A| R^2); for masked attention twice that is sure.

    Masked, a point at s hears the mean over the past of how far the others moved, and such means have norm up to 2 in
    L2 (Hardy's inequality): with A = 0 and V = I the constant is 2, not 1. Where clouds are compared by the largest
    distance over positions in place of the mean square, the first bound holds for masked attention too.
    """
    size, gain = norm(A) * R**2, norm(V)
    if gain == 0:
        return 0.0  # and not 0 times what may overflow
    return (2 if masked else 1) * gain * (1 + 3 * size) * exponential(2 * size)


def lower_bound(found: Sequence[Direction], R: float) -> float:
    """For V = I, Lip(F) on P(B_R) is at least (gamma / 2) R^2 exp(gamma R^2), gamma the largest of the directions.

    Contribution 3 says so for large R; `two_point` shows it for every R.
    """
    size = max((one.gamma for one in found), default=0.0) * R**2
    return size / 2 * exponential(size)


def two_point(found: Sequence[Direction], V: Tensor, R: float) -> float:
    """What moving the light one of two adversarial points is sure to do, at the best weight: Lip(F) is no less.

    A light point of weight e at one end, a heavy one that looks at it: with E = exp(2 gamma R^2) and
    P = e E / (1 - e + e E), moving the light one along u by h moves the heavy one's image by
    P (1 + 2 gamma R^2 (1 - P)) |V u| h, and in L2(mu) that counts sqrt((1 - e) / e) times more. In terms of the odds
    t = P / (1 - P) it is exp(gamma R^2) sqrt(t) (1 + t + 2 gamma R^2) / (1 + t)^2 |V u| h, largest at `best_odds`.
    At t = 1 and V = I it is (1 + gamma R^2) exp(gamma R^2) / 2, which is above `lower_bound`.
    """
    values = [0.0]
    for one in found:
        size = one.gamma * R**2
        t = best_odds(size)
        gain = float(torch.linalg.vector_norm(V @ one.vector))
        values.append(gain * math.sqrt(t) * (1 + t + 2 * size) / (1 + t) ** 2 * exponential(size))
    return max(values)


def best_odds(size: float) -> float:
    """The root t > 0 of t^2 + 6 size t = 1 + 2 size, where sqrt(t) (1 + t + 2 size) / (1 + t)^2 is largest."""
    return 2 * (1 + 2 * size) / (6 * size + math.sqrt(36 * size**2 + 4 * (1 + 2 * size)))
