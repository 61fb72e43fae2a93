"""What can be found out about a network whose family is not known, by looking at it and by running it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from wordsway.errors import InputError, one_line

_NO_LIMIT = 2**20


def positions_of(body: Any) -> int:
    """Number of tokens that a body can read at once; a large number where nothing limits it."""
    for name, module in body.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return int(module.num_embeddings - module.padding_idx - 1)  # they are counted from behind the padding
    said = getattr(body.config, "max_position_embeddings", None)
    return int(said) if said and said > 0 else _NO_LIMIT


def sees_the_past_only(body: Any, name: str) -> bool:
    """Whether a word is the same whatever follows it: tried on two random texts that differ in their last word.

    They are given as embeddings, since numbers may stand for padding, which some models leave out.
    """
    table = body.get_input_embeddings().weight.detach()
    texts = torch.randn(2, 3, table.shape[1], generator=torch.Generator().manual_seed(0)).to(table) * table.std()
    texts[1, :2] = texts[0, :2]
    ones = torch.ones(2, 3, dtype=torch.long, device=table.device)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):  # some models draw where they look
        try:
            rows = body(inputs_embeds=texts, attention_mask=ones)[0][:, :2]
        except Exception as error:  # what a model raises that takes other things is of any kind
            said = one_line(error, 200)
            raise InputError(f"{name} must take embeddings of words, got {said}: choose another model") from error
    return bool(torch.allclose(rows[0], rows[1], atol=1e-6))
