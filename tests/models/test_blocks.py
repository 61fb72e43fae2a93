"""Bounds on whole blocks of an encoder, against the constants of the blocks as transformers computes them."""

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from models import small_transformers as small
from wordsway import InputError, load, local_lipschitz
from wordsway.models.blocks import block_bounds

TEXT = "I love her smile"


def test_blocks_and_their_stack_are_below_their_bounds() -> None:
    model = load("minilm")
    bounds = block_bounds(model, TEXT)
    parts = [copy.deepcopy(part).double() for part in model.network.base_model.encoder.layer]

    def run(X: Tensor, chosen: list[Any]) -> Tensor:
        rows = X[None]
        for part in chosen:
            rows = part(rows)
            rows = rows[0] if isinstance(rows, tuple) else rows
        return rows[0]

    tokens = [model.tokens(TEXT)]
    inputs = [model.layer_inputs(tokens, layer)[0].double() for layer in range(model.layers)]
    assert [bound.layer for bound in bounds] == list(range(model.layers))
    for bound, X, part in zip(bounds[:2], inputs, parts, strict=False):
        constant = local_lipschitz(partial(run, chosen=[part]), X).value
        assert bound.wordwise < constant < bound.block < 50 * constant
        assert bound.block == (1 + bound.attention) * bound.wordwise
    torch.testing.assert_close(run(inputs[0], parts[:1]), inputs[1], rtol=0, atol=1e-4)
    assert bounds[1].stack == pytest.approx(bounds[0].block * bounds[1].block)
    assert local_lipschitz(partial(run, chosen=parts[:2]), inputs[0]).value < bounds[1].stack


def test_other_families_are_refused_in_one_line() -> None:
    with pytest.raises(InputError, match=r"blocks are known for BERT encoders, got .*: use local_lipschitz"):
        block_bounds(load(small.make("gpt2")), TEXT)
