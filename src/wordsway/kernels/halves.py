"""Two-layer networks with two halves, whose gradient at the start is the vector of NTK features."""

from __future__ import annotations

from typing import Any

import torch

from wordsway.activations import Activation
from wordsway.checks import check_seed, check_size
from wordsway.errors import NumericalError
from wordsway.kernels.features import feature_rows
from wordsway.kernels.flow import Descent, check_samples
from wordsway.kernels.network import Network
from wordsway.kernels.tangent import ntk


def two_halves(d: int, k: int, activation: str | Activation = "tanh", seed: int = 0) -> Network:
    """Return f(x) = sum_{i <= k} phi(w_i x) - sum_{k < i <= 2k} phi(w_i x), with both halves equal at the start.

    So it starts at 0, and its gradient in the first weight is x (x) phi'(W x) twice, with opposite signs: the model of
    `FeatureModel("ntk", ..., k, activation, seed)` is that of its linearisation.
    """
    check_size(d, "d")
    half = torch.cat(list(feature_rows(check_size(k, "k"), d, check_seed(seed), k))).double()
    signs = torch.cat([torch.ones(k, dtype=torch.float64), -torch.ones(k, dtype=torch.float64)])
    return Network([torch.cat([half, half]), signs[None]], activation)


def train_first_weight(network: Network, X: Any, y: Any, steps: int, enough: float = 1e-16) -> Descent:
    """Train the first weight of a network alone by gradient descent, with the step 1 / lambda_max of its kernel.

    It ends after `steps` steps, or where the loss |f - y|^2 / N is at most `enough`: a factor e^2 of the loss takes
    about lambda_max / lambda_min steps. Cost: O(N parameters) per step.
    """
    inputs, labels = (part.double() for part in check_samples(network, X, y))
    largest = float(torch.linalg.eigvalsh(ntk(network, inputs, layer=0))[-1])
    if not largest > 0:
        raise NumericalError(
            "the kernel of the first weight must not be 0: use inputs and a network with gradients there"
        )
    first, *others = (weight.double() for weight in network.weights)
    losses = []
    for step in range(check_size(steps, "steps") + 1):
        moved = Network([first, *others], network.activation, network.biases)
        passes = moved.passes(inputs)
        rest = passes.outputs - labels
        losses.append(float(rest @ rest) / len(rest))
        if losses[-1] <= enough or step == steps:
            break
        first = first - (passes.backward[0] * rest[:, None]).mT @ inputs / largest
        if not bool(torch.isfinite(first).all()):
            raise NumericalError(
                "gradient descent diverges, since the kernel grows: scale the labels down or widen the network"
            )
    return Descent(moved, losses[-1], torch.tensor(losses, dtype=torch.float64), losses[-1] <= enough)
