"""Fully connected networks with one output: their features, and what is propagated back to each layer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from wordsway import memory
from wordsway.activations import Activation
from wordsway.activations import activation as activation_named
from wordsway.checks import as_tensor, check_size
from wordsway.errors import InputError
from wordsway.seeds import generator, normal


@dataclass(frozen=True, eq=False)
class Passes:
    """One forward and one backward pass over N inputs.

    Attributes
    ----------
    outputs : Tensor (N,)
    features : tuple of Tensor (N, n_k)
        F_0 = X, ..., F_{L-1}: what each weight reads.
    backward : tuple of Tensor (N, n_{k+1})
        B_1, ..., B_L: the derivative of the output in what each weight gives, so that the gradient in weight k + 1 is
        the outer product of a row of B_{k+1} and one of F_k.
    """

    outputs: Tensor
    features: tuple[Tensor, ...]
    backward: tuple[Tensor, ...]


class Network:
    """f(x) = W_L phi(W_{L-1} phi(... phi(W_1 x + b_1)) + b_{L-1}) + b_L, with one output.

    Parameters
    ----------
    weights : sequence of array
        W_1, ..., W_L, each (out, in); the last has one row.
    activation : str or Activation
    biases : sequence of array, optional
        b_1, ..., b_L; none if left out.
    """

    def __init__(self, weights: Sequence[Any], activation: str | Activation = "tanh", biases: Any = None) -> None:
        self.activation = activation_named(activation)
        self.weights = tuple(_floats(f"weight {k}", weight, 2) for k, weight in enumerate(weights, 1))
        if not self.weights:
            raise InputError("a network must have at least one weight, got none")
        self.biases = (
            None if biases is None else tuple(_floats(f"bias {k}", bias, 1) for k, bias in enumerate(biases, 1))
        )
        for k, (one, other) in enumerate(itertools.pairwise(self.weights), 1):
            if one.shape[0] != other.shape[1]:
                raise InputError(
                    f"weight {k + 1} must read the {one.shape[0]} outputs of weight {k}, got {other.shape[1]} columns"
                )
        if self.weights[-1].shape[0] != 1:
            raise InputError(f"the last weight must have one row, got {self.weights[-1].shape[0]}")
        if self.biases is not None and [len(b) for b in self.biases] != [len(w) for w in self.weights]:
            raise InputError("there must be a bias of the right length for each weight, or none at all")

    @classmethod
    def drawn(
        cls,
        widths: Sequence[int],
        activation: str | Activation = "tanh",
        seed: int = 0,
        biases: bool = False,
        scale: float = 1.0,
    ) -> Network:
        """A network with Gaussian weights of variance scale / fan-in, and biases of variance scale if wanted.

        Parameters
        ----------
        widths : sequence of int
            Dimension of the input, then the width of each hidden layer: a network of L weights has L widths.
        """
        if not (math.isfinite(scale) and scale > 0):
            raise InputError(f"scale must be a finite number > 0, got {scale!r}")
        sizes = [check_size(width, "widths") for width in widths] + [1]
        total = sum(one * other for one, other in itertools.pairwise(sizes))
        memory.require(8 * total, f"{total:,} weights", "use smaller widths")
        source = generator(seed, "network")
        weights = [normal(source, (other, one)) * math.sqrt(scale / one) for one, other in itertools.pairwise(sizes)]
        shifts = [normal(source, other) * math.sqrt(scale) for other in sizes[1:]]
        return cls(weights, activation, shifts if biases else None)

    @property
    def d(self) -> int:
        return int(self.weights[0].shape[1])

    @property
    def depth(self) -> int:
        """The number of weights L."""
        return len(self.weights)

    @property
    def parameters(self) -> int:
        return sum(weight.numel() for weight in self.weights) + sum(len(bias) for bias in self.biases or ())

    def __call__(self, X: Tensor) -> Tensor:
        """Outputs of inputs (N, d), (N,)."""
        return self._forward(X)[0]

    def passes(self, X: Tensor) -> Passes:
        """The features and the back-propagated vectors of inputs (N, d); O(N parameters)."""
        outputs, features, before = self._forward(X)
        backward = [torch.ones_like(outputs)[:, None]]
        for weight, reached in zip(reversed(self.weights[1:]), reversed(before[:-1]), strict=True):
            backward.append((backward[-1] @ weight.to(X)) * self.activation.derivative(reached))
        return Passes(outputs, tuple(features), tuple(reversed(backward)))

    def _forward(self, X: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        self.check(X)
        features, before = [X], []
        for k, weight in enumerate(self.weights):
            reached = features[-1] @ weight.to(X).mT
            if self.biases is not None:
                reached = reached + self.biases[k].to(X)
            before.append(reached)
            if k + 1 < len(self.weights):
                features.append(self.activation(reached))
        return before[-1][:, 0], features, before

    def check(self, X: Tensor) -> None:
        if X.ndim != 2 or X.shape[1] != self.d:
            raise InputError(f"inputs must have the shape (N, {self.d}), got {tuple(X.shape)}")


def check_network(network: object, asked: str = "a Network") -> None:
    """Refuse what is no fully connected network."""
    if not isinstance(network, Network):
        raise InputError(f"network must be {asked}, got {type(network).__name__}")


def as_inputs(X: Any) -> Tensor:
    """Inputs as a detached tensor (N, d): at least one, of finite floats."""
    inputs = _floats("inputs", X, 2)
    return inputs if inputs.dtype in (torch.float32, torch.float64) else inputs.double()


def _floats(name: str, values: Any, rank: int) -> Tensor:
    tensor = as_tensor(name, values)
    if tensor.ndim != rank or not tensor.is_floating_point() or 0 in tensor.shape:
        kind = "a matrix" if rank == 2 else "a vector"
        got = f"shape {tuple(tensor.shape)} of {tensor.dtype}"
        raise InputError(f"{name} must be {kind} of floats with at least one row, got {got}")
    if not bool(torch.isfinite(tensor).all()):
        raise InputError(f"{name} must be finite, got entries that are not")
    return tensor.detach()
