"""Where each family of transformers keeps its self-attention; sizes come from the configuration, never from shapes.

Everything here reads objects that transformers made, without importing it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from wordsway.errors import InputError
from wordsway.maps import Rotary

Arguments = dict[str, Any]
HALF = "EncoderModel"  # how classes end that are half of what reads and writes, such as T5EncoderModel


@dataclass(frozen=True)
class Family:
    """What has to be known about models of one kind. A body is the model without what it has on top.

    Attributes
    ----------
    blocks
        The layers of a body, a ModuleList.
    projections
        The arguments of `Attention` for one layer of a body.
    norm
        The norm whose output the attention of a layer reads: its own, or the last one before it.
    last
        The norm after all layers, which is where layers have their own norm first; else None.
    embeddings
        The module that makes the rows which the first layer reads, where that is more than adding positions; else None.
    causal
        Whether words see only what comes before them.
    positions
        Number of tokens that can be read at once.
    window
        Words that a layer sees at most, itself included; None is all.
    """

    blocks: Callable[[Any], nn.ModuleList]
    projections: Callable[[Any, int], Arguments]
    norm: Callable[[Any, int], Any]
    last: Callable[[Any], Any] | None = None
    embeddings: Callable[[Any], Any] | None = None
    causal: Callable[[Any], bool] = lambda config: True
    positions: Callable[[Any], int] = lambda config: int(config.max_position_embeddings)
    window: Callable[[Any, int], int | None] = lambda config, index: None


def family_of(config: Any) -> Family:
    """Return the family of a model by its configuration, or raise where its attention is not known."""
    family = FAMILIES[check_type(config.model_type)]
    positions = getattr(config, "position_embedding_type", None) or "absolute"
    if positions != "absolute":
        raise _unknown(f"the position_embedding_type {positions!r}", "choose a model that adds positions to words")
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if "dynamic" in rope or rope == "longrope":
        raise _unknown(f"the rope_type {rope!r}, whose angles depend on the length", "choose a model with fixed angles")
    return family


def known_family(config: Any) -> Family | None:
    """Return the family of a model, or None where its attention is not known: it can still be run as a whole."""
    try:
        return family_of(config)
    except InputError:
        return None


def classes(config: Mapping[str, Any]) -> list[str]:
    """The classes that a configuration names, where it names any."""
    said = config.get("architectures")
    return [name for name in said if isinstance(name, str)] if isinstance(said, list) else []


def check_whole(config: Mapping[str, Any]) -> None:
    """Raise where a model is not a stack of layers over words, by its configuration."""
    kind = config.get("model_type")
    if not isinstance(kind, str):
        raise InputError(f"the model must say its model_type, got {kind!r}: give a folder that transformers saved")
    half = next(iter(classes(config)), "").endswith(HALF)  # its configuration may be that of both
    if config.get("is_encoder_decoder") and not half:
        raise InputError(
            f"the model must be an encoder or a decoder, got {kind}, which is both: choose a model of one stack"
        )


def check_type(model_type: object) -> str:
    """Return a model_type whose attention is known, or raise."""
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise _unknown(f"the model_type {model_type!r}", f"choose a model of the type {', '.join(FAMILIES)}")
    return model_type


def _unknown(found: str, remedy: str) -> InputError:
    return InputError(f"the model's attention must be a softmax of scaled products, got {found}: {remedy}")


def _projections(**modules: Any) -> Arguments:
    """Weights and biases of linear layers, as `Attention` calls them."""
    arguments: Arguments = {}
    for name, module in modules.items():
        if type(module) is not nn.Linear:
            raise InputError(
                f"the {name} projection must be a plain Linear layer, got {type(module).__name__}: "
                "merge adapters into the model first, and load it without quantisation"
            )
        arguments |= {name: module.weight, f"{name}_bias": module.bias}
    return arguments


# BERT and its kin: norms come last, so a layer reads what the one below has normalised


def _bert_attention(body: Any, index: int) -> Arguments:
    part = body.encoder.layer[index].attention
    given = _projections(query=part.self.query, key=part.self.key, value=part.self.value, output=part.output.dense)
    return {**given, "heads": body.config.num_attention_heads}


_BERT = Family(
    blocks=lambda body: body.encoder.layer,
    projections=_bert_attention,
    norm=lambda body, index: body.encoder.layer[index - 1].output.LayerNorm if index else body.embeddings.LayerNorm,
    embeddings=lambda body: body.embeddings,
    causal=lambda config: bool(config.is_decoder),
)
_ROBERTA = Family(  # its positions start after that of the padding
    blocks=_BERT.blocks,
    projections=_BERT.projections,
    norm=_BERT.norm,
    embeddings=_BERT.embeddings,
    causal=_BERT.causal,
    positions=lambda config: int(config.max_position_embeddings - config.pad_token_id - 1),
)


def _distilbert_attention(body: Any, index: int) -> Arguments:
    part = body.transformer.layer[index].attention
    given = _projections(query=part.q_lin, key=part.k_lin, value=part.v_lin, output=part.out_lin)
    return {**given, "heads": body.config.num_attention_heads}


_DISTILBERT = Family(
    blocks=lambda body: body.transformer.layer,
    projections=_distilbert_attention,
    norm=lambda body, index: (
        body.transformer.layer[index - 1].output_layer_norm if index else body.embeddings.LayerNorm
    ),
    embeddings=lambda body: body.embeddings,
    causal=lambda config: False,
)


# GPT-2: one matrix (in x out) for queries, keys and values; its ways to scale scores go into the queries


def _gpt2_attention(body: Any, index: int) -> Arguments:
    part, config = body.h[index].attn, body.config
    weight, bias = _transposed("c_attn", part.c_attn)
    output, output_bias = _transposed("c_proj", part.c_proj)
    d = config.hidden_size
    query, key, value = weight[:d], weight[d : 2 * d], weight[2 * d :]
    query_bias, key_bias, value_bias = bias[:d], bias[d : 2 * d], bias[2 * d :]
    scale = 1.0 if config.scale_attn_weights else math.sqrt(d // config.num_attention_heads)
    if config.scale_attn_by_inverse_layer_idx:
        scale /= index + 1
    if scale != 1.0:
        query, query_bias = scale * query, scale * query_bias
    weights = {"query": query, "key": key, "value": value, "output": output}
    biases = {"query_bias": query_bias, "key_bias": key_bias, "value_bias": value_bias, "output_bias": output_bias}
    return {**weights, **biases, "heads": config.num_attention_heads}


def _transposed(name: str, module: Any) -> tuple[Tensor, Tensor]:
    if type(module).__name__ != "Conv1D":
        raise InputError(f"{name} must be a Conv1D of GPT-2, got {type(module).__name__}: merge adapters first")
    return module.weight.detach().mT, module.bias.detach()


_GPT2 = Family(
    blocks=lambda body: body.h,
    projections=_gpt2_attention,
    norm=lambda body, index: body.h[index].ln_1,
    last=lambda body: body.ln_f,
)


# Llama and its kin: rotary positions, heads that share keys and values


def _llama_attention(body: Any, index: int) -> Arguments:
    part, config = body.layers[index].self_attn, body.config
    given = _projections(query=part.q_proj, key=part.k_proj, value=part.v_proj, output=part.o_proj)
    turned = Rotary(body.rotary_emb.inv_freq, scale=body.rotary_emb.attention_scaling)
    heads = {"heads": config.num_attention_heads, "key_heads": config.num_key_value_heads}
    return {**given, **heads, "rotary": turned}


def _window(config: Any, index: int) -> int | None:
    """Mistral has one window for all layers; Qwen2 says which layers have it."""
    size = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    return None if size is None or (kinds and kinds[index] != "sliding_attention") else int(size)


_LLAMA = Family(
    blocks=lambda body: body.layers,
    projections=_llama_attention,
    norm=lambda body, index: body.layers[index].input_layernorm,
    last=lambda body: body.norm,
    window=_window,
)

FAMILIES = {
    "bert": _BERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "distilbert": _DISTILBERT,
    "gpt2": _GPT2,
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
}
