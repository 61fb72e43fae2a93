"""Training by gradients: the flow of the linearised and of the actual network, and descent to interpolation.

The loss is L(theta) = |f(X, theta) - y|^2 / 2, so that the outputs of the linearised network follow f' = -K (f - y):
with the smallest eigenvalue of K at the start, L(t) <= L(0) exp(-2 lambda_min t) for the linearised network, and
L(t) <= L(0) exp(-lambda_min t / 2) for the actual one as long as its kernel stays above a quarter of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from wordsway.contexts import check_size
from wordsway.errors import InputError, NumericalError
from wordsway.kernels.eigenvalues import SmallestEigenvalue, smallest_eigenvalue
from wordsway.kernels.network import Network, as_inputs
from wordsway.kernels.robustness import check_labels
from wordsway.kernels.tangent import ntk


@dataclass(frozen=True, eq=False)
class Flow:
    """The loss along gradient flow.

    Attributes
    ----------
    times : Tensor (T,)
    linear : Tensor (T,)
        Loss of the linearised network, exactly.
    actual : Tensor (T,)
        Loss of the network itself, its flow integrated to `tolerance`.
    bound : Tensor (T,)
        L(0) exp(-lambda_min t / 2).
    smallest : SmallestEigenvalue
        Of the kernel at the start.
    """

    times: Tensor
    linear: Tensor
    actual: Tensor
    bound: Tensor
    smallest: SmallestEigenvalue


@dataclass(frozen=True, eq=False)
class Descent:
    """The end of gradient descent: the trained network, its loss |f - y|^2 / N and that of each step."""

    network: Network
    loss: float
    losses: Tensor
    interpolates: bool


def gradient_flow(network: Network, X: Any, y: Any, times: Sequence[float], tolerance: float = 1e-6) -> Flow:
    """The loss of a network and of its linearisation along gradient flow from its weights, at given times.

    Parameters
    ----------
    X, y : array (N, d), array (N,)
    times : sequence of float
        From 0 on, increasing.
    tolerance : float
        Relative error of a step of the integration (Runge-Kutta of order 5).

    Notes
    -----
    Cost: an eigendecomposition of K, O(N^3), and a forward and backward pass for each stage of a step; a stiff flow
    takes about lambda_max t of them.
    """
    inputs, labels = samples(network, X, y)
    when = _times(times)
    kernel = ntk(network, inputs)
    smallest = smallest_eigenvalue(kernel)
    rest = network(inputs) - labels
    numbers, vectors = torch.linalg.eigh(kernel)
    shares = (vectors.mT @ rest) ** 2
    linear = 0.5 * (torch.exp(-2 * numbers.clamp_min(0) * when[:, None]) * shares).sum(-1)
    actual = _integrate(network, inputs, labels, when, tolerance)
    start = 0.5 * float(rest @ rest)
    return Flow(when, linear, actual, start * torch.exp(-smallest.value * when / 2), smallest)


def descend(
    network: Network, X: Any, y: Any, steps: int, rate: float = 1e-2, enough: float = 1e-6, every: int = 50
) -> Descent:
    """Train a network on all samples at once with Adam, until the loss is below `enough` or the steps are used up.

    The rate falls to 0 along a cosine, so that the end is not noise. Cost: O(N parameters) for each step.
    """
    inputs, labels = samples(network, X, y)
    weights = [weight.clone().requires_grad_(True) for weight in network.weights]
    biases = [bias.clone().requires_grad_(True) for bias in network.biases or ()]
    optimizer = torch.optim.Adam([*weights, *biases], lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, check_size(steps, "steps"))
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = ((_outputs(network, weights, biases, inputs) - labels) ** 2).mean()
        losses.append(float(loss.detach()))
        if losses[-1] <= enough and step % every == 0:
            break
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    trained = Network([w.detach() for w in weights], network.activation, [b.detach() for b in biases] or None)
    loss_now = float(((trained(inputs) - labels) ** 2).mean())
    return Descent(trained, loss_now, torch.tensor(losses), loss_now <= enough)


def samples(network: Network, X: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Inputs and labels that fit a network and each other."""
    inputs = as_inputs(X).double()
    network.check(inputs)
    return inputs, check_labels(y, len(inputs))


def _times(times: Sequence[float]) -> Tensor:
    when = torch.as_tensor(list(times), dtype=torch.float64)
    if when.ndim != 1 or not len(when) or float(when[0]) < 0 or not bool((when.diff() > 0).all()):
        raise InputError("times must be numbers >= 0 that increase, got others")
    return when


def _outputs(network: Network, weights: Sequence[Tensor], biases: Sequence[Tensor], X: Tensor) -> Tensor:
    reached = X
    for k, weight in enumerate(weights):
        reached = reached @ weight.mT + (biases[k] if biases else 0)
        if k + 1 < len(weights):
            reached = network.activation(reached)
    return reached[:, 0]


def _integrate(network: Network, X: Tensor, y: Tensor, times: Tensor, tolerance: float) -> Tensor:
    """Losses of the actual flow at the times."""
    shapes = [part.shape for part in (*network.weights, *(network.biases or ()))]
    sizes = [shape.numel() for shape in shapes]

    def built(theta: npt.NDArray[np.float64]) -> Network:
        parts = torch.split(torch.from_numpy(theta), sizes)
        whole = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
        return Network(whole[: network.depth], network.activation, whole[network.depth :] or None)

    def slope(_: float, theta: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        one = built(theta)
        passes = one.passes(X)
        rest = passes.outputs - y
        downhill = [
            -(backward * rest[:, None]).mT @ features
            for features, backward in zip(passes.features, passes.backward, strict=True)
        ]
        if network.biases is not None:
            downhill += [-(rest @ backward) for backward in passes.backward]
        flat: npt.NDArray[np.float64] = torch.cat([part.flatten() for part in downhill]).numpy()
        return flat

    start = torch.cat([part.flatten() for part in (*network.weights, *(network.biases or ()))]).double().numpy()
    end = float(times[-1])
    if end == 0:
        states = start[:, None]
    else:
        found = solve_ivp(slope, (0.0, end), start, t_eval=times.numpy(), rtol=tolerance, atol=tolerance * 1e-3)
        if not found.success:
            raise NumericalError(f"the flow could not be integrated: {' '.join(found.message.split())}")
        states = found.y
    losses = [0.5 * float(((built(states[:, place].copy())(X) - y) ** 2).sum()) for place in range(states.shape[1])]
    return torch.tensor(losses, dtype=torch.float64)
