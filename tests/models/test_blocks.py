"""Bounds on whole blocks, against the Jacobians of the blocks as transformers computes them."""

from copy import deepcopy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from models import small_transformers as small
from wordsway import InputError, Model, load, local_lipschitz
from wordsway.models.blocks import block_bound, block_bounds
from wordsway.models.families import FAMILIES, family_of
from wordsway.seeds import generator, normal

TEXT = "I love her smile"
FAMILY_MEMBERS = ("bert", "bert-decoder", "roberta", "distilbert", "mpnet", "gpt2", "llama-biases", "mistral", "qwen2")


def run(model: Model, layer: int, X: Tensor) -> Tensor:
    """What the module of transformers returns for rows (n, d)."""
    body = model.network.base_model
    block = family_of(model.network.config).blocks(body)[layer]
    result = block(X[None], **small.options(model.network, X[None], model.causal))
    rows: Tensor = result[0] if isinstance(result, tuple) else result
    return rows.reshape(X.shape)


def constant(model: Model, layer: int, X: Tensor) -> float:
    """The norm of the whole Jacobian of a block, by autograd."""
    jacobian = torch.autograd.functional.jacobian(partial(run, model, layer), X)  # type: ignore[no-untyped-call]
    return float(torch.linalg.matrix_norm(jacobian.reshape(X.numel(), X.numel()), ord=2))


@pytest.mark.parametrize("name", FAMILY_MEMBERS)
def test_no_block_is_steeper_than_its_bound(name: str) -> None:
    """At its own inputs, and at random contexts of all sizes, from which steps uphill raise constant over bound."""
    model = load(small.make(name))
    own = [model.layer_inputs(small.tokens(1, 4), layer, normed=False)[0] for layer in range(model.layers)]
    for layer, X in enumerate(own):
        following = model.layer_inputs(small.tokens(1, 4), layer + 1, normed=False)[0] if layer + 1 < len(own) else None
        if following is not None:
            torch.testing.assert_close(run(model, layer, X), following, rtol=1e-5, atol=1e-5)
        assert _used(model, layer, X) <= 1
    random = generator(0, name)
    best, top = own[0], 0.0
    for scale in (1e-3, 0.1, 1.0, 10.0):
        X = scale * normal(random, own[0].shape)
        used = _used(model, 0, X)
        best, top = (X, used) if used > top else (best, top)
    for _ in range(12):
        X = best + 0.2 * best.norm(dim=-1, keepdim=True) * normal(random, best.shape) / best.shape[1] ** 0.5
        used = _used(model, 0, X)
        best, top = (X, used) if used > top else (best, top)
    assert 0.02 < top <= 1  # close enough for a missing factor of a part to show


def _used(model: Model, layer: int, X: Tensor) -> float:
    return constant(model, layer, X) / block_bound(model, layer, X).block


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_blocks_without_attention_reach_their_bound(name: str) -> None:
    """Without values a block acts on each word alone: the bound is its norm, so every part of it counts."""
    network = small.make(name)
    family = family_of(network.config)
    with torch.no_grad():
        for block in family.blocks(network.base_model):
            for part in (block.get_submodule(path) for path in family.projections[-1:]):
                part.weight.zero_()
    model = load(network)
    for layer in range(model.layers):
        X = model.layer_inputs(small.tokens(1, 4), layer, normed=False)[0]
        bound = block_bound(model, layer, X)
        assert bound.attention < 1e-9
        assert bound.block == pytest.approx(constant(model, layer, X), rel=3e-5)


def test_bounds_join_their_parts_and_blocks_their_product() -> None:
    model = load("minilm")
    bounds = block_bounds(model, TEXT)
    assert [bound.layer for bound in bounds] == list(range(model.layers))
    stack = 1.0
    for bound in bounds:
        stack *= bound.block
        assert bound.norm == 1
        assert bound.block == (1 + bound.attention * bound.norm) * bound.wordwise
        assert bound.stack == stack

    def both(X: Tensor) -> Tensor:
        return run(double, 1, run(double, 0, X))

    double = load(deepcopy(model.network).double())  # the loaded one is kept for others
    X = model.layer_inputs([model.tokens(TEXT)], 0)[0].double()
    found = local_lipschitz(both, X).value
    assert bounds[0].wordwise < local_lipschitz(partial(run, double, 0), X).value < bounds[0].block
    assert found < bounds[1].stack


def test_a_block_with_a_norm_first_counts_it() -> None:
    model = load(small.make("gpt2"))
    X = model.layer_inputs(small.tokens(1, 4), 0, normed=False)[0]
    bound = block_bound(model, 0, X)
    assert bound.norm != 1
    assert bound.block == (1 + bound.attention * bound.norm) * bound.wordwise
    norm: Any = model.network.base_model.h[0].ln_1
    torch.testing.assert_close(norm(X), model.layer_inputs(small.tokens(1, 4), 0)[0])
    assert block_bound(model, 0, 10 * X).norm == pytest.approx(bound.norm / 10, rel=1e-3)


def test_every_family_names_the_parts_of_its_blocks() -> None:
    kinds = {small.make(name).config.model_type for name in FAMILY_MEMBERS}
    assert {FAMILIES[kind] for kind in kinds} == set(FAMILIES.values())


def test_a_context_beyond_the_window_is_refused() -> None:
    model = load(small.make("mistral", sliding_window=4))
    X = model.layer_inputs(small.tokens(1, 6), 0, normed=False)[0]
    with pytest.raises(InputError, match=r"at most 4 words, the window of layer 0, got 6"):
        block_bound(model, 0, X)
