"""The neural tangent kernel K = J J^T of a network at N inputs, layer by layer, without its Jacobian J."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import linalg
from torch import Tensor, nn

from wordsway import memory
from wordsway.checks import as_array, check_index
from wordsway.errors import InputError, NumericalError
from wordsway.kernels.network import Network, check_network
from wordsway.records import Record, bars

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CHUNK = 5 * 10**8  # bytes of a Jacobian's rows at a time


def ntk(network: Network | nn.Module, X: Any, layer: int | None = None) -> Tensor:
    """The NTK of a network at inputs X (N, d): K_ij is the product of the gradients of f(x_i) and f(x_j), (N, N).

    Parameters
    ----------
    network : Network or torch.nn.Module
        For fully connected networks K = sum_k (F_k F_k^T) o (B_{k+1} B_{k+1}^T), with the features F_k and the
        back-propagated vectors B_{k+1} of the inputs; biases add B_{k+1} B_{k+1}^T. Any other module with one output
        for each input goes through its Jacobian, in chunks, in the dtype and on the device of X.
    X : array (N, d)
    layer : int, optional
        Only the block of one weight of a `Network`, counted from 0; default: the whole kernel.

    Notes
    -----
    Cost: O(N^2 width + N width^2) for each layer and 3 N^2 numbers; through the Jacobian O(N^2 parameters).
    """
    inputs = as_array(X, "inputs", ("N", "d"))
    count = len(inputs)
    memory.require(3 * count**2 * inputs.element_size(), f"a {count} x {count} kernel", "use fewer inputs")
    if isinstance(network, nn.Module):
        if layer is not None:
            raise InputError("layer is for a Network, got a torch module: leave it out")
        return _by_jacobian(network, inputs)
    check_network(network, "a Network or a torch module")
    passes = network.passes(inputs)
    kernel = torch.zeros(count, count, dtype=inputs.dtype).numpy()  # its upper triangle
    for k in range(network.depth) if layer is None else (check_index(layer, network.depth, "layer"),):
        block = _upper(passes.features[k])
        if network.biases is not None:
            block += 1
        kernel += block if k + 1 == network.depth else np.multiply(block, _upper(passes.backward[k]), out=block)
    return torch.from_numpy(np.triu(kernel) + np.triu(kernel, 1).T).to(inputs.device)


def _upper(rows: Tensor) -> npt.NDArray[Any]:
    """Return the upper triangle of rows rows^T, (N, N), with half the operations of a product."""
    matrix = rows.detach().cpu().contiguous().numpy().T  # as BLAS stores it
    syrk = linalg.blas.get_blas_funcs("syrk", (matrix,))
    return np.asarray(syrk(1.0, matrix, trans=1, lower=1).T)


@dataclass(frozen=True, eq=False, repr=False)
class Chain(Record):
    """The matrices of the proof: the kernel K, the block J J^T of one weight, centred (J_FB J_FB^T), centred again.

    K - J J^T is positive semi-definite, so that lambda_min(K) >= lambda_min(J J^T). Centring is no such order:
    J J^T - J_FB J_FB^T has negative eigenvalues for most networks. What holds is that the smallest eigenvalue of the
    last matrix, on the complement of the vector of ones, is at least that of the one before; how they compare with that
    of J J^T is measured here.

    Attributes
    ----------
    block : Tensor (N, N)
        J J^T of the last hidden weight: rows f (x) b, features and back-propagated vectors.
    centred : Tensor (N, N)
        J_FB J_FB^T: both centred over the inputs.
    twice : Tensor (N, N)
        The rows of J_FB centred again.
    scale : float
        The mean eigenvalue of `twice` on the complement of the vector of ones, which centring maps to 0.
    distance : float
        |twice - scale I| / scale there, in operator norm: below 1 it shows that `twice` is well conditioned.
    smallest_kernel, smallest_block, smallest_centred, smallest_twice : float
        The smallest eigenvalues of K and of the three matrices, the last one on the complement of the vector of ones.
    """

    block: Tensor
    centred: Tensor
    twice: Tensor
    scale: float
    distance: float
    smallest_kernel: float
    smallest_block: float
    smallest_centred: float
    smallest_twice: float

    summary_fields = ("scale", "distance", "smallest_kernel", "smallest_block", "smallest_centred", "smallest_twice")

    def draw(self, ax: Axes) -> None:
        """Draw the smallest eigenvalues along the chain, and the multiple of I that the last matrix is close to."""
        names = ("kernel", "block", "centred", "twice")
        bars(ax, {name: getattr(self, f"smallest_{name}") for name in names} | {"scale": self.scale})


def ntk_chain(network: Network, X: Any) -> Chain:
    """The matrices by which the smallest eigenvalue of the NTK is bounded below, for a network of at least 2 weights.

    The means over the distribution of the inputs are those over the given ones. O(N^2 width + N^3).
    """
    inputs = as_array(X, "inputs", ("N", "d"))
    check_network(network)
    if network.depth < 2 or len(inputs) < 2:
        got = f"{network.depth} and {len(inputs)}"
        raise InputError(f"the chain is for networks of at least 2 weights and at least 2 inputs, got {got}")
    passes = network.passes(inputs)
    forward, backward = passes.features[-2], passes.backward[-2]  # N n, N n
    block = (forward @ forward.mT) * (backward @ backward.mT)
    forward, backward = forward - forward.mean(0), backward - backward.mean(0)
    centred = (forward @ forward.mT) * (backward @ backward.mT)
    twice = centred - centred.mean(0) - centred.mean(1, keepdim=True) + centred.mean()
    values = torch.linalg.eigvalsh(twice)[1:]  # the first is 0, for the vector of ones
    scale = float(values.mean())
    if scale <= len(inputs) * torch.finfo(inputs.dtype).eps * float(block.diagonal().max()):
        raise NumericalError("the centred chain vanishes: inputs, or what is propagated back from them, must differ")
    return Chain(
        block=block,
        centred=centred,
        twice=twice,
        scale=scale,
        distance=float((values - scale).abs().max()) / scale,
        smallest_kernel=_smallest(ntk(network, inputs)),
        smallest_block=_smallest(block),
        smallest_centred=_smallest(centred),
        smallest_twice=float(values[0]),
    )


def _smallest(matrix: Tensor) -> float:
    return float(torch.linalg.eigvalsh(matrix)[0])


def _by_jacobian(module: nn.Module, X: Tensor) -> Tensor:
    """Return J J^T from blocks of rows of J, each by vectorised backward passes."""
    parameters = {name: value.detach().to(X) for name, value in module.named_parameters()}
    if not parameters:
        raise InputError("a module must have parameters for a tangent kernel, got none")
    size = sum(value.numel() for value in parameters.values()) * X.element_size()
    rows = max(1, min(len(X), _CHUNK // size))
    memory.require(2 * rows * size + len(X) ** 2 * X.element_size(), f"{rows} gradients", "use a smaller module")
    gradient = torch.func.vmap(torch.func.grad(_output(module, X)), in_dims=(None, 0))

    def block(start: int) -> Tensor:
        try:
            gradients = gradient(parameters, X[start : start + rows])
        except RuntimeError as error:  # dropout and batch norms in training mode are no function of one input
            if module.training:
                raise InputError("a module in training mode cannot be differentiated: call its eval() first") from error
            raise
        return torch.cat([part.flatten(1) for part in gradients.values()], dim=1)

    kernel = X.new_zeros(len(X), len(X))
    for start in range(0, len(X), rows):
        left = block(start)
        for other in range(0, start + 1, rows):
            part = left @ (left if other == start else block(other)).mT
            kernel[start : start + rows, other : other + rows] = part
            kernel[other : other + rows, start : start + rows] = part.mT
    return kernel


def _output(module: nn.Module, like: Tensor) -> Callable[[dict[str, Tensor], Tensor], Tensor]:
    """Return the output at one input as a function of the parameters; buffers get the dtype and device of `like`."""
    buffers = {name: value.to(like) for name, value in module.named_buffers() if value.is_floating_point()}

    def output(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        value: Tensor = torch.func.functional_call(module, {**buffers, **parameters}, (x[None],))
        if value.numel() != 1:
            raise InputError(f"a module must have one output for each input, got {value.numel()}")
        return value.reshape(())

    return output
