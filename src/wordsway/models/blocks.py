"""Upper bounds on the local Lipschitz constants of whole blocks of an encoder, joined from those of their parts."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from wordsway.errors import InputError
from wordsway.records import Record
from wordsway.smoothness import neighbourhood_bound

if TYPE_CHECKING:
    from wordsway.models.model import Model


@dataclass(frozen=True, eq=False, repr=False)
class BlockBound(Record):
    """Upper bounds on the norm of the Jacobian of a block at what it reads for a text.

    Attributes
    ----------
    layer : int
    attention : float
        Bound on that of its attention.
    wordwise : float
        The norm of what follows the first residual sum and acts on each word alone: norm, MLP, residual sum, norm.
    block : float
        (1 + attention) wordwise: the residual connection adds 1.
    stack : float
        The product of the blocks up to this one: from what the first block reads to what this one returns.
    """

    layer: int
    attention: float
    wordwise: float
    block: float
    stack: float


def block_bounds(model: Model, text: str) -> list[BlockBound]:
    """Bound the local Lipschitz constant of every block of a BERT encoder at a text, and of all blocks together.

    Notes
    -----
    Cost: d backward passes of the MLP for each word and layer. The bound of the stack is a product, and so a loose one:
    `local_lipschitz` of the map measures the constant itself.
    """
    if model.network.config.model_type != "bert" or model.causal:
        raise InputError(f"blocks are known for BERT encoders, got {model.name}: use local_lipschitz on its features")
    tokens, stack, bounds = [model.tokens(text)], 1.0, []
    for layer, original in enumerate(model.network.base_model.encoder.layer):
        part = copy.deepcopy(original).cpu().double().eval()

        def after(row: Tensor, part: Any = part) -> Tensor:
            middle = part.attention.output.LayerNorm(row)
            moved: Tensor = part.output.LayerNorm(part.output.dense(part.intermediate(middle)) + middle)
            return moved

        X = model.layer_inputs(tokens, layer)[0].cpu().double()
        attention = model.attention(layer)
        matrices = (torch.func.jacrev(after)(row) for row in X + attention(X))
        wordwise = max(float(torch.linalg.matrix_norm(matrix.detach(), ord=2)) for matrix in matrices)
        at_text = neighbourhood_bound(attention, X).value
        block = (1 + at_text) * wordwise
        stack *= block
        bounds.append(BlockBound(layer, at_text, wordwise, block, stack))
    return bounds
