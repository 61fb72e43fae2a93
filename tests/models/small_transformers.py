"""Very small transformers of every family that is known, with random weights, and their own attention modules."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

VOCABULARY = 50
LAYERS = 3


@dataclass(frozen=True)
class Small:
    """A configuration of transformers by the names of its classes, and what is special about it."""

    config: str
    model: str
    options: dict[str, Any] = field(default_factory=dict)
    causal: bool = True


_BERT = {"num_hidden_layers": LAYERS, "hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 20}
_BERT |= {"max_position_embeddings": 40}
_GPT2 = {"n_layer": LAYERS, "n_embd": 24, "n_head": 3, "n_positions": 40}
_LLAMA = {"num_hidden_layers": LAYERS, "hidden_size": 24, "num_attention_heads": 6, "num_key_value_heads": 2}
_LLAMA |= {"intermediate_size": 20, "max_position_embeddings": 40, "head_dim": 8}
_QWEN2 = {key: value for key, value in _LLAMA.items() if key != "head_dim"}  # it has none of its own
_DISTILBERT = {"n_layers": LAYERS, "dim": 24, "n_heads": 3, "hidden_dim": 20, "max_position_embeddings": 40}
_YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 10}
_LINEAR = {"rope_type": "linear", "rope_theta": 100.0, "factor": 4.0}

SMALL = {
    "bert": Small("BertConfig", "BertModel", _BERT, causal=False),
    "bert-classifier": Small("BertConfig", "BertForSequenceClassification", _BERT, causal=False),
    "bert-tokens": Small("BertConfig", "BertForTokenClassification", {**_BERT, "num_labels": 3}, causal=False),
    "bert-decoder": Small("BertConfig", "BertLMHeadModel", {**_BERT, "is_decoder": True}),
    "roberta": Small("RobertaConfig", "RobertaModel", _BERT, causal=False),
    "xlm-roberta": Small("XLMRobertaConfig", "XLMRobertaForMaskedLM", _BERT, causal=False),
    "camembert": Small("CamembertConfig", "CamembertModel", _BERT, causal=False),
    "distilbert": Small("DistilBertConfig", "DistilBertModel", _DISTILBERT, causal=False),
    "mpnet": Small("MPNetConfig", "MPNetForMaskedLM", {**_BERT, "attn_implementation": "eager"}, causal=False),
    "gpt2": Small("GPT2Config", "GPT2LMHeadModel", _GPT2),
    "gpt2-unscaled": Small("GPT2Config", "GPT2Model", {**_GPT2, "scale_attn_weights": False}),
    "gpt2-by-layer": Small("GPT2Config", "GPT2Model", {**_GPT2, "scale_attn_by_inverse_layer_idx": True}),
    "llama": Small("LlamaConfig", "LlamaForCausalLM", _LLAMA),
    "llama-biases": Small("LlamaConfig", "LlamaModel", {**_LLAMA, "attention_bias": True}),
    "llama-linear": Small("LlamaConfig", "LlamaModel", {**_LLAMA, "rope_parameters": _LINEAR}),
    "llama-yarn": Small("LlamaConfig", "LlamaModel", {**_LLAMA, "rope_parameters": _YARN}),
    "mistral": Small("MistralConfig", "MistralModel", _LLAMA),
    "mistral-all": Small("MistralConfig", "MistralModel", {**_LLAMA, "sliding_window": None}),
    "qwen2": Small("Qwen2Config", "Qwen2ForCausalLM", _QWEN2),
}


def make(name: str, seed: int = 0, dtype: torch.dtype = torch.float64, **options: Any) -> Any:
    """Return transformers' own object, with random parameters everywhere: fresh norms would hide mistakes.

    Attention runs in the kernel of torch, since that of Llama in transformers' own code rounds to float32.
    """
    import transformers

    small = SMALL[name]
    settings = {"vocab_size": VOCABULARY, "attn_implementation": "sdpa", **small.options, **options}
    config = getattr(transformers, small.config)(**settings)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = getattr(transformers, small.model)(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=0.4)
    return model.to(dtype)


def tokens(texts: int, n: int, seed: int = 0) -> Tensor:
    """Random token numbers (texts, n), none of which is special."""
    return torch.randint(5, VOCABULARY, (texts, n), generator=torch.Generator().manual_seed(seed))


def module(body: Any, index: int) -> Any:
    """The module of a layer whose first argument is what its attention reads."""
    kind = body.config.model_type
    if kind == "distilbert":
        return body.transformer.layer[index].attention
    if kind == "mpnet":
        return body.encoder.layer[index].attention.attn
    if kind == "gpt2":
        return body.h[index].attn
    return body.layers[index].self_attn if hasattr(body, "layers") else body.encoder.layer[index].attention.self


def options(network: Any, X: Tensor, causal: bool) -> dict[str, Any]:
    """What a layer has to be given besides rows X (B, n, d): its mask, and positions where it adds them itself."""
    body = network.base_model
    n = X.shape[1]
    mask = torch.zeros(n, n, dtype=X.dtype)
    if causal:
        mask = mask.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
    given: dict[str, Any] = {"attention_mask": mask[None, None].expand(len(X), 1, n, n)}
    if hasattr(body, "rotary_emb"):
        angles = torch.arange(n).double()[:, None] * body.rotary_emb.inv_freq.double()
        angles = torch.cat([angles, angles], dim=1)[None]
        scale = body.rotary_emb.attention_scaling
        given["position_embeddings"] = (scale * angles.cos().to(X), scale * angles.sin().to(X))
    if body.config.model_type == "mpnet":
        given["position_bias"] = body.encoder.compute_position_bias(X)
    return given


def own_attention(network: Any, index: int, X: Tensor, causal: bool) -> Tensor:
    """What the model's own attention module gives for rows X (B, n, d), with its output projection."""
    body = network.base_model
    with torch.no_grad():
        given: Tensor = module(body, index)(X, **options(network, X, causal))[0]
        apart = hasattr(body, "encoder") and body.config.model_type != "mpnet"
        return body.encoder.layer[index].attention.output.dense(given) if apart else given


def read_by(network: Any, index: int, run: Callable[[], Any]) -> Tensor:
    """What the attention of a layer reads while the whole model runs."""
    seen: list[Tensor] = []

    def look(_: Any, given: tuple[Tensor, ...], named: dict[str, Tensor]) -> None:
        seen.append(given[0] if given else named["hidden_states"])

    handle = module(network.base_model, index).register_forward_pre_hook(look, with_kwargs=True)
    try:
        run()
    finally:
        handle.remove()
    return seen[0].detach()
