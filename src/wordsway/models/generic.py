"""What can be found out about a network whose family is not known, by looking at it and by running it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from wordsway import seeds
from wordsway.errors import InputError, one_line

if TYPE_CHECKING:
    from wordsway.models.layered import Layered

_NO_LIMIT = 2**20
_SAME = 1e-4  # relative difference that rounding may make


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
    rows = _run(body, name, inputs_embeds=texts)[:, :2]
    return bool(torch.allclose(rows[0], rows[1], atol=1e-6))


def check_embeddings(model: Layered) -> None:
    """Raise unless a model gives the same for words and for their embeddings, as those are what is moved.

    Some look words up again in higher layers (Gemma 3n), where a moved embedding would be of no word.
    """
    padding = getattr(model.network.config, "pad_token_id", None)
    ids = [number for part in (1, 2, 3) if (number := model.vocabulary * part // 4) != padding]
    rows, body = model.embedded(ids)[None], model.network.base_model
    spoken = _run(body, model.name, input_ids=torch.tensor([ids], device=rows.device))
    moved = _run(body, model.name, inputs_embeds=rows.clone())
    if bool(torch.isfinite(spoken).all()) and not alike(moved, spoken):
        apart = float(torch.linalg.vector_norm(moved - spoken) / torch.linalg.vector_norm(spoken))
        raise InputError(
            f"{model.name} must give the same for words and for their embeddings, got a relative difference of "
            f"{apart:.2g}: choose another model"
        )


def alike(found: Tensor, expected: Tensor) -> bool:
    """Whether two outputs are as near to each other as rounding lets them be."""
    apart = torch.linalg.vector_norm((found - expected).double())
    size = torch.linalg.vector_norm(expected.double())
    return bool(apart <= size * max(_SAME, 10 * torch.finfo(expected.dtype).eps))


def _run(body: Any, name: str, **words: Tensor) -> Tensor:
    """The last hidden state for words that are none of them padding: (B, n, d)."""
    (given,) = words.values()
    ones = torch.ones(given.shape[:2], dtype=torch.long, device=given.device)
    with torch.no_grad(), seeds.untouched(0):  # some models draw where they look
        try:
            rows: Tensor = body(attention_mask=ones, **words)[0]
        except Exception as error:  # what a model raises that takes other things is of any kind
            said = one_line(error, 200)
            raise InputError(f"{name} must take embeddings of words, got {said}: choose another model") from error
    return rows
