"""Upper bounds on the local Lipschitz constants of whole blocks of a transformer, joined from those of their parts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from wordsway.errors import InputError
from wordsway.maps import Attention
from wordsway.models.families import Family, family_of, skeleton
from wordsway.records import Record
from wordsway.smoothness import neighbourhood_bound

if TYPE_CHECKING:
    from wordsway.models.model import Model

_SLACK = 1 + 1e-5  # RMSNorm of transformers rounds to float32 in a model of any dtype


@dataclass(frozen=True, eq=False, repr=False)
class BlockBound(Record):
    """Upper bounds on the norm of the Jacobian of a block at what it reads for a text.

    Attributes
    ----------
    layer : int
    norm : float
        The norm of the Jacobian of the norm before the attention; 1 where there is none, as in BERT.
    attention : float
        Bound on that of its attention, at what that reads.
    wordwise : float
        The norm of what follows the first residual sum and acts on each word alone: the MLP with its residual sum, and
        the norms before or after it.
    block : float
        (1 + attention norm) wordwise: the residual connection adds 1.
    stack : float
        The product of the blocks up to this one: from what the first block reads to what this one returns.
    """

    layer: int
    norm: float
    attention: float
    wordwise: float
    block: float
    stack: float


def block_bounds(model: Model, text: str) -> list[BlockBound]:
    """Bound the local Lipschitz constant of every block of a transformer at a text, and of all blocks together.

    The norm that decoders have after their last block is no part of it.

    Notes
    -----
    The bound of the stack is a product, and so a loose one: `local_lipschitz` of the map measures the constant itself.
    """
    tokens, stack, bounds = [model.tokens(text)], 1.0, []
    for layer in range(model.layers):
        bound = block_bound(model, layer, model.layer_inputs(tokens, layer, normed=False)[0])
        stack *= bound.block
        bounds.append(replace(bound, stack=stack))
    return bounds


def block_bound(model: Model, layer: int, X: Tensor, attention: Attention | None = None) -> BlockBound:
    """Bound the local Lipschitz constant of one block at a context.

    Parameters
    ----------
    model
        Of a family whose attention is known (`model.attention`).
    layer
        From 0.
    X : Tensor (n, d)
        What the block reads, before a norm of its own: `model.layer_inputs(tokens, layer, normed=False)`.
    attention
        In place of the layer's own, such as the same with a causal mask.

    Notes
    -----
    Computed in float64 on the CPU. Cost: that of `neighbourhood_bound`, and d backward passes of the MLP with an
    eigenproblem of size d for each word.
    """
    window = model.window(layer)
    if window is not None and len(X) > window:
        raise InputError(f"the context must be at most {window} words, the window of layer {layer}, got {len(X)}")
    family, body = family_of(model.network.config), model.network.base_model
    block = skeleton(family.blocks(body)[layer], device=torch.device("cpu"), dtype=torch.float64)
    read, norm = X.detach().to("cpu", torch.float64), 1.0
    rows = read
    if family.last is not None:
        before = block.get_submodule(family.own_norm)
        with torch.no_grad():
            rows = before(read).double()
        norm = _largest(before, read)
    layer_attention = model.attention(layer) if attention is None else attention
    at_text = neighbourhood_bound(layer_attention, rows).value
    with torch.no_grad():
        attended = read + layer_attention(rows).double().cpu()
    wordwise = _largest(_after_attention(block, family), attended)
    bound = (1 + at_text * norm) * wordwise
    return BlockBound(layer, norm, at_text, wordwise, bound, bound)


def _after_attention(block: Any, family: Family) -> Callable[[Tensor], Tensor]:
    """Return what a block does to a word (d,) after the residual sum of its attention."""
    middle, last = block.get_submodule(family.middle_norm), block.get_submodule(family.own_norm)
    parts = [block.get_submodule(path) for path in family.mlp]

    def mlp(row: Tensor) -> Tensor:
        for part in parts:
            row = part(row)
        return row

    def after(row: Tensor) -> Tensor:
        if family.last is not None:  # norms come first
            return row + mlp(middle(row))
        normed = middle(row)
        result: Tensor = last(mlp(normed) + normed)
        return result

    return after


def _largest(part: Callable[[Tensor], Tensor], rows: Tensor) -> float:
    """Return the largest norm of the Jacobian of what acts on each word alone, over the words."""
    squares = []
    for row in rows:
        matrix = torch.func.jacrev(part)(row).detach().double()
        squares.append(float(torch.linalg.eigvalsh(matrix @ matrix.mT)[-1]))
    return math.sqrt(max(squares)) * _SLACK
