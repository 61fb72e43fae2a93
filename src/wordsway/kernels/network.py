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
from wordsway.checks import as_array, check_positive, check_size
from wordsway.errors import InputError
from wordsway.seeds import generator, normal


@dataclass(frozen=True, eq=False)
class Passes:
    """One forward and one backward pass over N inputs.

    Attributes
    ----------
    outputs : Tensor (N,)
    features : tuple of Tensor (N, n_k)
        F_0 = X, ..., F_{L-1}: the inputs of each weight.
    backward : tuple of Tensor (N, n_{k+1})
        B_1, ..., B_L: the derivative of the output in the products of each weight, so that the gradient in weight k + 1
        is the outer product of a row of B_{k+1} and one of F_k.
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
        b_1, ..., b_L, default: none.
    """

    def __init__(self, weights: Sequence[Any], activation: str | Activation = "tanh", biases: Any = None) -> None:
        self.activation = activation_named(activation)
        self.weights = tuple(as_array(weight, f"weight {k}", ("out", "in")) for k, weight in enumerate(weights, 1))
        if not self.weights:
            raise InputError("a network must have at least one weight, got none")
        for k, (weight, after) in enumerate(itertools.pairwise(self.weights), 1):
            if len(weight) != after.shape[1]:
                raise InputError(
                    f"weight {k + 1} must read the {len(weight)} outputs of weight {k}, got {after.shape[1]} columns"
                )
        if len(self.weights[-1]) != 1:
            raise InputError(f"the last weight must have one row, got {len(self.weights[-1])}")
        self.biases = None
        if biases is not None:
            self.biases = tuple(as_array(bias, f"bias {k}", ("out",)) for k, bias in enumerate(biases, 1))
            if [len(bias) for bias in self.biases] != [len(weight) for weight in self.weights]:
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
        """Draw a network with Gaussian weights of variance scale / fan-in and, with `biases`, biases of variance scale.

        Parameters
        ----------
        widths : sequence of int
            Dimension of the input, then the width of each hidden layer: a network of L weights has L widths.
        """
        check_positive(scale, "scale")
        shapes = list(itertools.pairwise([*(check_size(width, "widths") for width in widths), 1]))
        total = sum(math.prod(shape) for shape in shapes)
        memory.require(8 * total, f"{total:,} weights", "use smaller widths")
        source = generator(seed, "network")
        weights = [normal(source, (rows, columns)) * math.sqrt(scale / columns) for columns, rows in shapes]
        shifts = [normal(source, rows) * math.sqrt(scale) for _, rows in shapes]
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
        """Return the outputs (N,) of inputs (N, d)."""
        return self._forward(X)[0]

    def passes(self, X: Tensor) -> Passes:
        """Return the features and the back-propagated vectors of inputs (N, d); O(N parameters)."""
        outputs, features, before = self._forward(X)
        backward = [torch.ones_like(outputs)[:, None]]
        for weight, values in zip(reversed(self.weights[1:]), reversed(before[:-1]), strict=True):
            backward.append((backward[-1] @ weight.to(X)) * self.activation.derivative(values))
        return Passes(outputs, tuple(features), tuple(reversed(backward)))

    def _forward(self, X: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        self.check(X)
        features, before = [X], []
        for k, weight in enumerate(self.weights):
            values = features[-1] @ weight.to(X).mT
            before.append(values if self.biases is None else values + self.biases[k].to(X))
            if k + 1 < len(self.weights):
                features.append(self.activation(before[-1]))
        return before[-1][:, 0], features, before

    def check(self, X: Tensor) -> None:
        if X.ndim != 2 or X.shape[1] != self.d:
            raise InputError(f"inputs must have the shape (N, {self.d}), got {tuple(X.shape)}")


def check_network(network: object, wanted: str = "a Network") -> None:
    """Refuse anything but a fully connected network."""
    if not isinstance(network, Network):
        raise InputError(f"network must be {wanted}, got {type(network).__name__}")
