"""What has to be known about a network of transformers: its family's attention, or what running it shows.

Sizes come from the configuration, never from shapes. Everything here works on objects that transformers made, without
importing it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from wordsway import seeds
from wordsway.errors import InputError, one_line
from wordsway.maps import RelativeBias, Rotary

if TYPE_CHECKING:
    from wordsway.models.model import Model

HALF = "EncoderModel"  # suffix of classes that are the encoder of an encoder-decoder, such as T5EncoderModel
_NO_LIMIT = 2**20
_FARTHEST = 128  # words apart: MPNet treats all larger distances alike
_ROUNDING = 1e-4  # relative difference between two passes of a float32 network that rounding explains
_HOOKS = "_output_capturing_hooks_installed"  # where transformers notes its hooks, which a copy does not have


@dataclass(frozen=True)
class Family:
    """Where models of one type keep what is measured, as paths in a body (the model without its head) or in a layer.

    Attributes
    ----------
    layers
        The list of layers in a body.
    projections
        The linear layers for queries, keys, values and the output in a layer; GPT-2 has one for the first three.
    own_norm
        The norm of a layer: before its attention where there is a `last` norm, otherwise at its end.
    middle_norm
        The other norm of a layer: before its MLP where there is a `last` norm, otherwise after its attention.
    mlp
        The parts of its MLP, one after the other.
    last
        The norm in a body after all layers; None where layers end with a norm, as the embeddings before them then do.
    decoder
        Whether all models of the type are decoders; otherwise the configuration decides.
    """

    layers: str
    projections: tuple[str, ...]
    own_norm: str
    middle_norm: str
    mlp: tuple[str, ...]
    last: str | None = None
    decoder: bool = False

    def blocks(self, body: Any) -> Any:
        """Return the layers of a body, a ModuleList."""
        return body.get_submodule(self.layers)

    def norm(self, body: Any, index: int) -> Any:
        """Return the norm whose output the attention of a layer reads: its own, or the last one before it."""
        if self.last is None:
            return self.blocks(body)[index - 1].get_submodule(self.own_norm) if index else body.embeddings.LayerNorm
        return self.blocks(body)[index].get_submodule(self.own_norm)

    def causal(self, config: Any) -> bool:
        """Whether words attend only to what comes before them."""
        return self.decoder or bool(getattr(config, "is_decoder", False))

    def attention(self, body: Any, index: int) -> dict[str, Any]:
        """Return the arguments of `Attention` for one layer of a body."""
        config, block = body.config, self.blocks(body)[index]
        linear = [_linear(block, path) for path in self.projections]
        if len(linear) == 2:  # GPT-2: one matrix for queries, keys and values
            (weight, bias), output = linear
            linear = [*zip(weight.chunk(3), bias.chunk(3), strict=True), output]
        arguments: dict[str, Any] = {"heads": config.num_attention_heads}
        arguments["key_heads"] = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        for name, (weight, bias) in zip(("query", "key", "value", "output"), linear, strict=True):
            arguments |= {name: weight, f"{name}_bias": bias}
        scale = _score_scale(config, index)
        if scale != 1.0:
            arguments |= {name: scale * arguments[name] for name in ("query", "query_bias")}
        if hasattr(body, "rotary_emb"):
            arguments["rotary"] = Rotary(body.rotary_emb.inv_freq, scale=body.rotary_emb.attention_scaling)
        if hasattr(getattr(body, "encoder", None), "relative_attention_bias"):
            arguments["relative"] = _relative(body.encoder)
        return arguments


def _relative(encoder: Any) -> RelativeBias:
    """Return the relative positions of MPNet, one table for all layers."""
    distances = torch.arange(-_FARTHEST, _FARTHEST + 1, device=encoder.relative_attention_bias.weight.device)
    return RelativeBias(encoder.relative_attention_bias.weight.detach()[encoder.relative_position_bucket(distances)].mT)


def _linear(block: Any, path: str) -> tuple[Tensor, Any]:
    """Return the weight (out, in) and the bias of a linear layer."""
    module = block.get_submodule(path)
    if type(module).__name__ == "Conv1D":  # GPT-2 keeps its matrices transposed
        return module.weight.detach().mT, module.bias.detach()
    if type(module) is not nn.Linear:
        raise InputError(
            f"{path} must be a plain linear layer, got {type(module).__name__}: "
            "merge adapters into the model first, and load it without quantisation"
        )
    return module.weight, module.bias


def _score_scale(config: Any, index: int) -> float:
    """Return what scores are multiplied by besides 1 / sqrt(dimension of a head): options of GPT-2 only."""
    scale = 1.0 if getattr(config, "scale_attn_weights", True) else math.sqrt(config.n_embd // config.n_head)
    return scale / (index + 1) if getattr(config, "scale_attn_by_inverse_layer_idx", False) else scale


def window(config: Any, index: int) -> int | None:
    """Return the number of words that a layer attends to, itself included; None is all of them.

    Mistral has one window for all layers; Qwen2 lists the layers that have it.
    """
    size = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    return None if size is None or (kinds and kinds[index] != "sliding_attention") else int(size)


_ATTENTION = ("self.query", "self.key", "self.value", "output.dense")
_FEED_FORWARD = ("intermediate", "output.dense")
_BERT = Family(
    "encoder.layer",
    tuple(f"attention.{name}" for name in _ATTENTION),
    own_norm="output.LayerNorm",
    middle_norm="attention.output.LayerNorm",
    mlp=_FEED_FORWARD,
)
_LINEAR = tuple(f"attention.{name}_lin" for name in ("q", "k", "v", "out"))
_DISTILBERT = Family(
    "transformer.layer", _LINEAR, own_norm="output_layer_norm", middle_norm="sa_layer_norm", mlp=("ffn",)
)
_MPNET = Family(
    "encoder.layer",
    tuple(f"attention.attn.{name}" for name in "qkvo"),
    own_norm="output.LayerNorm",
    middle_norm="attention.LayerNorm",
    mlp=_FEED_FORWARD,
)
_GPT2 = Family(
    "h", ("attn.c_attn", "attn.c_proj"), own_norm="ln_1", middle_norm="ln_2", mlp=("mlp",), last="ln_f", decoder=True
)
_LLAMA = Family(
    "layers",
    tuple(f"self_attn.{name}_proj" for name in ("q", "k", "v", "o")),
    own_norm="input_layernorm",
    middle_norm="post_attention_layernorm",
    mlp=("mlp",),
    last="norm",
    decoder=True,
)

FAMILIES = {
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "camembert": _BERT,
    "distilbert": _DISTILBERT,
    "mpnet": _MPNET,
    "gpt2": _GPT2,
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
}


def family_of(config: Any) -> Family:
    """Return the family of a model by its configuration, or raise if its attention is not known."""
    kind = config.model_type
    if kind not in FAMILIES:
        raise _unknown(f"the model_type {kind!r}", f"choose a model of the type {', '.join(FAMILIES)}")
    positions = getattr(config, "position_embedding_type", None) or "absolute"
    if positions != "absolute":
        raise _unknown(f"the position_embedding_type {positions!r}", "choose a model that adds positions to words")
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if "dynamic" in rope or rope == "longrope":
        raise _unknown(f"the rope_type {rope!r}, whose angles depend on the length", "choose a model with fixed angles")
    return FAMILIES[kind]


def known_family(config: Any) -> Family | None:
    """Return the family of a model, or None if its attention is not known: it can still be run as a whole."""
    try:
        return family_of(config)
    except InputError:
        return None


def classes(config: Mapping[str, Any]) -> list[str]:
    """Return the classes that a configuration names."""
    named = config.get("architectures")
    return [name for name in named if isinstance(name, str)] if isinstance(named, list) else []


def check_one_stack(config: Mapping[str, Any]) -> None:
    """Raise if a model is not one stack of layers over words, by its configuration."""
    kind = config.get("model_type")
    if not isinstance(kind, str):
        raise InputError(f"the model must say its model_type, got {kind!r}: give a folder that transformers saved")
    half = next(iter(classes(config)), "").endswith(HALF)  # its configuration may be that of both
    if config.get("is_encoder_decoder") and not half:
        raise InputError(
            f"the model must be an encoder or a decoder, got {kind}, which is both: choose a model of one stack"
        )


def _unknown(got: str, remedy: str) -> InputError:
    return InputError(f"the model's attention must be a softmax of scaled products, got {got}: {remedy}")


# Networks of any family: found out by looking at them and by running them


def positions_of(body: Any) -> int:
    """Return the number of tokens that a body can read at once; 2^20 if nothing limits it."""
    for name, module in body.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return int(module.num_embeddings - module.padding_idx - 1)  # RoBERTa counts from behind the padding
    limit = getattr(body.config, "max_position_embeddings", None)
    return int(limit) if limit and limit > 0 else _NO_LIMIT


def is_causal(body: Any, name: str) -> bool:
    """Whether rows do not depend on what follows them: tested on two random texts that differ in their last word.

    They are embeddings, not token ids, since an id may be that of the padding, which some models leave out.
    """
    table = body.get_input_embeddings().weight.detach()
    texts = seeds.normal(seeds.generator(0, "texts"), (2, 3, table.shape[1])).to(table) * table.std()
    texts[1, :2] = texts[0, :2]
    rows = _run(body, name, inputs_embeds=texts)[:, :2]
    return bool(torch.allclose(rows[0], rows[1], atol=1e-6))


def check_embeddings(model: Model) -> None:
    """Raise unless a model returns the same for token ids and for their embeddings, since embeddings are perturbed.

    Some models look words up again in higher layers (Gemma 3n), where a perturbed embedding belongs to no word.
    """
    padding = getattr(model.network.config, "pad_token_id", None)
    ids = [number for part in (1, 2, 3) if (number := model.vocabulary * part // 4) != padding]
    rows, body = model.embedded(ids)[None], model.network.base_model
    from_ids = _run(body, model.name, input_ids=torch.tensor([ids], device=rows.device))
    from_rows = _run(body, model.name, inputs_embeds=rows.clone())
    if bool(torch.isfinite(from_ids).all()) and not alike(from_rows, from_ids):
        difference = float(torch.linalg.vector_norm(from_rows - from_ids) / torch.linalg.vector_norm(from_ids))
        raise InputError(
            f"{model.name} must give the same for words and for their embeddings, got a relative difference of "
            f"{difference:.2g}: choose another model"
        )


def alike(actual: Tensor, expected: Tensor) -> bool:
    """Whether two outputs are equal up to rounding."""
    difference = torch.linalg.vector_norm((actual - expected).double())
    size = torch.linalg.vector_norm(expected.double())
    return bool(difference <= size * max(_ROUNDING, 10 * torch.finfo(expected.dtype).eps))


def _run(body: Any, name: str, **inputs: Tensor) -> Tensor:
    """Return the last hidden state (B, n, d) for token ids or embeddings, none of which is padding."""
    (given,) = inputs.values()
    ones = torch.ones(given.shape[:2], dtype=torch.long, device=given.device)
    with torch.no_grad(), seeds.untouched(0):  # some models draw random numbers in a forward pass
        try:
            rows: Tensor = body(attention_mask=ones, **inputs)[0]
        except Exception as error:  # models that take other inputs raise anything
            got = one_line(error, 200)
            raise InputError(f"{name} must take embeddings of words, got {got}: choose another model") from error
    return rows


def lower_layers(body: Any, family: Family, count: int, last: nn.Module) -> Any:
    """Return a body with its first `count` layers, and with `last` as the norm after them, where it has one there."""
    blocks = family.blocks(body)
    instead: list[tuple[Any, Any]] = [(blocks, nn.ModuleList(list(blocks)[:count]))]
    if family.last is not None:
        instead.append((body.get_submodule(family.last), last))
    return skeleton(body, instead)


def skeleton(
    module: nn.Module,
    instead: Iterable[tuple[Any, Any]] = (),
    *,
    device: torch.device | None = None,
    dtype: torch.dtype | None = None,
) -> Any:
    """Return a copy of a module in evaluation mode, without hooks and gradient flags, which shares its weights.

    Parameters
    ----------
    module
        Not changed. If its weights are changed in place, those of the copy change too.
    instead
        Pairs of an object inside the module and its replacement in the copy.
    device, dtype
        Where the weights of the copy are, by default where they are shared. Buffers keep their dtype, in which a model
        computes them: angles of rotary embeddings are too coarse in half precision.

    Notes
    -----
    The cost is that of the Python objects, a few milliseconds: no weight is copied.
    """
    memo: dict[int, Any] = {id(old): new for old, new in instead}
    for part in module.modules():
        hooks = [table for name, table in vars(part).items() if "hooks" in name and isinstance(table, dict)]
        memo.update({id(table): type(table)() for table in hooks})
    for weight in module.parameters():
        memo[id(weight)] = nn.Parameter(weight.detach().to(device, dtype), requires_grad=False)
    memo.update({id(buffer): buffer.to(device) for buffer in module.buffers()})
    twin = copy.deepcopy(module, memo).eval()
    for part in twin.modules():
        vars(part).pop(_HOOKS, None)
    return twin
