"""Training by gradients: the flow of the linearised and of the actual network, and descent to interpolation.

The loss is L(theta) = |f(X, theta) - y|^2 / 2, so that the outputs of the linearised network follow f' = -K (f - y):
with the smallest eigenvalue of K at the start, L(t) <= L(0) exp(-2 lambda_min t) for the linearised network, and
L(t) <= L(0) exp(-lambda_min t / 2) for the actual one as long as its kernel stays above a quarter of that. The flow of
|f - y|^2 / N takes the same path, N / 2 times as slowly: there these rates are 4 lambda_min / N and lambda_min / N.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from wordsway.checks import as_array, check_size
from wordsway.errors import InputError, NumericalError, one_line
from wordsway.kernels.eigenvalues import SmallestEigenvalue, smallest_eigenvalue
from wordsway.kernels.network import Network, Passes, check_network
from wordsway.kernels.tangent import ntk
from wordsway.records import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDE = 100  # neurons of a layer up to which Adam starts with the rate 0.01


@dataclass(frozen=True, eq=False, repr=False)
class Flow(Record):
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
    lambda_min : Tensor (T,)
        Smallest eigenvalue of the kernel of the network itself at each time.
    smallest : SmallestEigenvalue
        Of the kernel at the start.
    """

    times: Tensor
    linear: Tensor
    actual: Tensor
    bound: Tensor
    lambda_min: Tensor
    smallest: SmallestEigenvalue

    summary_fields = ("times", "smallest")

    def to_dict(self) -> dict[str, Any]:
        columns = {name: getattr(self, name).tolist() for name in ("times", "linear", "actual", "bound", "lambda_min")}
        return {**columns, **self.smallest.to_dict()}

    def rows(self) -> list[dict[str, Any]]:
        names = ("time", "linear", "actual", "bound", "lambda_min")
        columns = (self.times, self.linear, self.actual, self.bound, self.lambda_min)
        return [dict(zip(names, values, strict=True)) for values in torch.stack(columns, 1).tolist()]

    def draw(self, ax: Axes) -> None:
        """Draw the losses and their bound against time."""
        for name in ("actual", "linear", "bound"):
            ax.plot(self.times.tolist(), getattr(self, name).tolist(), "--" if name == "bound" else "-", label=name)
        ax.set(xlabel="time", ylabel="loss", yscale="log")
        ax.legend()


@dataclass(frozen=True, eq=False, repr=False)
class Descent(Record):
    """The end of gradient descent: the trained network, its loss |f - y|^2 / N and that of each step."""

    network: Network
    loss: float
    losses: Tensor
    interpolates: bool

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "steps": len(self.losses)}

    def rows(self) -> list[dict[str, Any]]:
        return [{"step": step, "loss": loss} for step, loss in enumerate(self.losses.tolist())]

    def draw(self, ax: Axes) -> None:
        """Draw the loss against the step."""
        ax.plot(self.losses.tolist())
        ax.set(xlabel="step", ylabel="loss", yscale="log")


def gradient_flow(network: Network, X: Any, y: Any, times: Sequence[float], tolerance: float = 1e-6) -> Flow:
    """The loss of a network and of its linearisation along gradient flow from its weights, and the kernel, by time.

    Parameters
    ----------
    X, y : array (N, d), array (N,)
    times : sequence of float
        From 0 on, increasing.
    tolerance : float
        Relative error of a step of the integration (Runge-Kutta of order 5).

    Notes
    -----
    Cost: an eigendecomposition of K for each time, O(N^3), and a forward and backward pass for each stage of a step; a
    stiff flow takes about lambda_max t of them.
    """
    inputs, labels = (part.double() for part in check_samples(network, X, y))
    when = as_array(times, "times", ("T",)).double()
    if float(when[0]) < 0 or not bool((when.diff() > 0).all()):
        raise InputError("times must be numbers >= 0 that increase, got others")
    kernel = ntk(network, inputs)
    smallest = smallest_eigenvalue(kernel)
    rest = network(inputs) - labels
    eigenvalues, vectors = torch.linalg.eigh(kernel)
    shares = (vectors.mT @ rest) ** 2
    linear = 0.5 * (torch.exp(-2 * eigenvalues.clamp_min(0) * when[:, None]) * shares).sum(-1)
    actual, lambda_min = _integrate(network, inputs, labels, when, tolerance)
    start = 0.5 * float(rest @ rest)
    return Flow(when, linear, actual, start * torch.exp(-smallest.value * when / 2), lambda_min, smallest)


def descend(network: Network, X: Any, y: Any, steps: int, rate: float | None = None, enough: float = 1e-6) -> Descent:
    """Train a network on all samples at once with Adam, until the loss is at most `enough` or after `steps` steps.

    Parameters
    ----------
    X, y : array (N, d), array (N,)
        The network is trained in the precision of X: float32 takes less than half the time of float64.
    rate : float, optional
        Of the first step; it falls to 0 along a cosine, so that the end is not noise. Default: 0.01, and 1 / width for
        layers of more than 100 neurons, since a step changes outputs by about the rate times the width.
    enough : float
        Compared with the loss |f - y|^2 / N every 50 steps.

    Notes
    -----
    Cost: O(N parameters) per step.
    """
    inputs, labels = check_samples(network, X, y)
    moving, count = _Moving(network, inputs.dtype), check_size(steps, "steps")
    if rate is None:
        rate = 1 / max(_WIDE, *(len(weight) for weight in network.weights))
    optimizer = torch.optim.Adam([moving.theta], lr=rate, fused=True)
    losses = []
    for step in range(count):
        passes = moving.network.passes(inputs)
        rest = passes.outputs - labels
        losses.append(float(rest @ rest) / len(rest))
        if losses[-1] <= enough and step % 50 == 0:
            break
        moving.theta.grad = moving.derivative(passes, rest) * (2 / len(rest))
        optimizer.param_groups[0]["lr"] = rate * (1 + math.cos(math.pi * step / count)) / 2
        optimizer.step()
    loss = float(((moving.network(inputs) - labels) ** 2).mean())
    return Descent(moving.network, loss, torch.tensor(losses, dtype=torch.float64), loss <= enough)


def check_samples(network: Network, X: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Return inputs and labels that fit a network and each other, in the precision of the inputs."""
    check_network(network)
    inputs = as_array(X, "inputs", ("N", "d"))
    network.check(inputs)
    return inputs, as_array(y, "y", (len(inputs),)).to(inputs)


class _Moving:
    """A network whose parameters are parts of one vector theta: a change of theta is a change of the network."""

    def __init__(self, network: Network, dtype: torch.dtype = torch.float64) -> None:
        given = (*network.weights, *(network.biases or ()))
        self.theta = torch.cat([part.flatten() for part in given]).to(dtype)
        pieces = torch.split(self.theta, [part.numel() for part in given])
        parts = [piece.view(part.shape) for piece, part in zip(pieces, given, strict=True)]
        self.network = Network(parts[: network.depth], network.activation, parts[network.depth :] or None)

    def derivative(self, passes: Passes, rest: Tensor) -> Tensor:
        """The gradient of |f - y|^2 / 2 in theta, from f - y."""
        pulled = [backward * rest[:, None] for backward in passes.backward]
        parts = [(back.mT @ features).flatten() for back, features in zip(pulled, passes.features, strict=True)]
        if self.network.biases is not None:
            parts += [back.sum(0) for back in pulled]
        return torch.cat(parts)


def _integrate(network: Network, X: Tensor, y: Tensor, times: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """Return the losses of the actual flow and the smallest eigenvalues of its kernel, at the times."""
    moving = _Moving(network)
    start: npt.NDArray[np.float64] = moving.theta.numpy().copy()

    def downhill(_: float, theta: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        moving.theta.copy_(torch.from_numpy(theta))
        passes = moving.network.passes(X)
        flat: npt.NDArray[np.float64] = -moving.derivative(passes, passes.outputs - y).numpy()
        return flat

    def measure(theta: npt.NDArray[np.float64]) -> tuple[float, float]:
        moving.theta.copy_(torch.from_numpy(theta))
        loss = 0.5 * float(((moving.network(X) - y) ** 2).sum())
        return loss, float(torch.linalg.eigvalsh(ntk(moving.network, X))[0])

    end = float(times[-1])
    states = start[None]
    if end > 0:
        path = solve_ivp(downhill, (0.0, end), start, t_eval=times.numpy(), rtol=tolerance, atol=tolerance * 1e-3)
        if not path.success:
            raise NumericalError(f"the flow could not be integrated: {one_line(path.message)}")
        states = path.y.T.copy()
    losses, lambda_min = torch.tensor([measure(state) for state in states], dtype=torch.float64).T
    return losses, lambda_min
