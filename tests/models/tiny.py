"""Very small encoders with random weights, saved in folders as transformers saves real ones."""

import json
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor

from wordsway.contexts import normalize

DIMENSION = 16
POSITIONS = 64
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
LETTERS = string.ascii_lowercase + string.digits + string.punctuation
PIECES = [*LETTERS, *(f"##{letter}" for letter in string.ascii_lowercase), "the", "film", "##ing", "was", "and"]
SIZES = {"intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}


def write_tokenizer(folder: Path, pieces: list[str], template: str = "[CLS] $A [SEP]") -> Tokenizer:
    """Save a small WordPiece tokenizer; its file also requests cutting and padding, which has to be ignored."""
    words = [*SPECIAL, *pieces]
    numbers = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if template:
        special = [(word, numbers[word]) for word in SPECIAL if word in template]
        tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=special)
    tokenizer.enable_truncation(12)
    tokenizer.enable_padding(length=12)
    tokenizer.save(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def write_bert(
    folder: Path, seed: int = 0, pieces: list[str] | None = None, dimension: int = DIMENSION, **options: Any
) -> Any:
    """Save a small BERT and its tokenizer in a new folder, and return it as transformers' own object."""
    import transformers

    pieces = PIECES if pieces is None else pieces
    sizes = {"vocab_size": len(SPECIAL) + len(pieces), "max_position_embeddings": POSITIONS, **SIZES, **options}
    config = transformers.BertConfig(hidden_size=dimension, **sizes)
    model = _random(transformers.BertModel, config, seed)
    model.save_pretrained(folder)
    write_tokenizer(folder, pieces)
    return model


def write_distilbert(folder: Path, seed: int = 0) -> Any:
    """Save a small DistilBERT with a classifier on top, so that its tables have a prefix, and return its encoder."""
    import transformers

    config = transformers.DistilBertConfig(
        vocab_size=len(SPECIAL) + len(PIECES),
        max_position_embeddings=POSITIONS,
        dim=DIMENSION,
        hidden_dim=8,
        n_layers=1,
        n_heads=2,
    )
    model = _random(transformers.DistilBertForSequenceClassification, config, seed)
    model.save_pretrained(folder)
    write_tokenizer(folder, PIECES)
    return model.distilbert


def write_mpnet(folder: Path, seed: int = 0) -> Any:
    """Save a small MPNet, whose table of positions starts with two that no word has, and return it."""
    import transformers

    sizes: dict[str, Any] = {"vocab_size": len(SPECIAL) + len(PIECES), "max_position_embeddings": POSITIONS + 2}
    sizes |= SIZES
    model = _random(transformers.MPNetModel, transformers.MPNetConfig(hidden_size=DIMENSION, **sizes), seed)
    model.save_pretrained(folder)
    write_tokenizer(folder, PIECES)
    return model


def _random(kind: Callable[[Any], Any], config: Any, seed: int) -> Any:
    """Make a model with random parameters everywhere: fresh ones have LayerNorm 1 and 0, which hides mistakes."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = kind(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_()
    return model


def rewrite(folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    """Save what `change` makes of the weights in a folder."""
    path = folder / "model.safetensors"
    save_file({name: table.clone() for name, table in change(load_file(path)).items()}, path)


def configure(folder: Path, **changes: Any) -> None:
    """Change entries of the configuration in a folder; None removes one."""
    path = folder / "config.json"
    raw = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in raw.items() if value is not None}))


def tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer in a folder, without truncation and padding."""
    plain = Tokenizer.from_file(str(folder / "tokenizer.json"))
    plain.no_truncation()
    plain.no_padding()
    return plain


def layer_zero(folder: Path, model: Any, texts: list[str], n: int) -> Tensor:
    """Return the contexts of texts: transformers' own embeddings of their first n tokens, rescaled; float64."""
    plain = tokenizer(folder)
    tokens = torch.tensor([plain.encode(text).ids[:n] for text in texts])
    given = {"input_ids": tokens}
    if model.config.model_type == "mpnet":  # it takes number 1, which is unknown here, for padding
        given = {"inputs_embeds": model.embeddings.word_embeddings(tokens)}
    with torch.no_grad():
        rows: Tensor = model.embeddings(**given)
    return normalize(rows.double())


def write_gguf(path: Path, seed: int = 0) -> None:
    """Save a small decoder with random weights as a GGUF file, with a tokenizer of bytes and a few words."""
    import gguf

    d, heads, key_heads, inner, layers = 48, 6, 2, 80, 3
    tokens = ["<|endoftext|>", "<s>", "</s>", *string.ascii_lowercase, "Ġ", "Ġt", "Ġth", "Ġthe", "Ġf", "Ġw", "Ġa"]
    merges = ["Ġ t", "Ġt h", "Ġth e", "Ġ f", "Ġ w", "Ġ a"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(d)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(key_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(d // heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (len(tokens) - 3))
    writer.add_token_merges(merges)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (len(tokens), d), "output_norm": (d,)}
    for layer in range(layers):
        keys = key_heads * d // heads
        own: dict[str, tuple[int, ...]] = {
            "attn_q": (d, d),
            "attn_k": (keys, d),
            "attn_v": (keys, d),
            "attn_output": (d, d),
        }
        own |= {"ffn_gate": (inner, d), "ffn_up": (inner, d), "ffn_down": (d, inner)}
        own |= {"attn_norm": (d,), "ffn_norm": (d,)}
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in own.items()}
    source = np.random.default_rng(seed)
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", source.normal(size=shape, scale=0.5).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
