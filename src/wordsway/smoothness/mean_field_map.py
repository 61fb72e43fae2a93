"""Attention as a map of probability measures: each point attends to all of them by their weight.

Source: Castin, Ablin and Peyre, "How Smooth Is Attention?" (2024), mean-field framework and contributions 2 and 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from wordsway.errors import InputError
from wordsway.maps.attention import Attention
from wordsway.smoothness.heads import plain_attention
from wordsway.smoothness.transport import DiscreteMeasure, check_measure


def mean_field(layer: Callable[[Tensor], Tensor], mu: DiscreteMeasure) -> DiscreteMeasure:
    """Mean-field attention: F(mu) = (Gamma_mu)# mu, the image of every point with its weight.

        Gamma_mu(x) = sum_j w_j exp(<A x, y_j>) V y_j / sum_j w_j exp(<A x, y_j>),   A = K^T Q / sqrt(q)

    For a measure with positions, a point at s attends to the points at tau <= s only (masked attention); points that
    share a position attend to each other. n words with equal weights have the images that the layer computes for them,
    and with positions i / n those of the layer with a causal mask.

    Parameters
    ----------
    layer : Attention or RandomAttention
        With softmax scores and without rotary positions; heads, values, biases and output as they are. Whether it is
        causal does not matter: the mask is that of the measure, and a causal layer needs one.
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
    check_measure(mu, "mu")
    if attention.causal and mu.positions is None:
        raise InputError(
            "a causal layer needs a measure with positions, got none: give DiscreteMeasure positions such as i / n"
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
    """Return which points (columns) each point attends to, tau <= s: (m,) -> (m, m); None for all."""
    return None if positions is None else positions <= positions[:, None]


def softmax_attention(layer: Any) -> Attention:
    """Return the attention of a layer that is defined on measures."""
    attention = plain_attention(layer)
    if not isinstance(attention, Attention):
        raise InputError(f"a mean-field layer must be an Attention or RandomAttention, got {type(layer).__name__}")
    if not attention.score.softmax:
        raise InputError(f"mean-field attention needs softmax scores, got {attention.score.name}")
    if attention.rotary is not None:
        raise InputError("mean-field attention must have no rotary positions, got some: a measure has no order")
    return attention
