"""The offline encoder at layer 0: its vocabulary and the embeddings that its first attention layer sees."""

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from wordsway.errors import InputError, MissingExtra
from wordsway.models import offline

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_EXTRA = "pip install 'wordsway[models]'"


@dataclass(frozen=True)
class Config:
    """What the encoder's own configuration says about its layer 0."""

    vocabulary: int
    positions: int
    dimension: int
    eps: float


@dataclass(frozen=True)
class Embeddings:
    """The tables of layer 0, in float32 as they are stored.

    Attributes
    ----------
    word, position, segment
        Tables of shape (vocabulary, dimension), (positions, dimension) and (segments, dimension).
    weight, bias, eps
        Parameters of the LayerNorm that follows their sum.
    """

    word: Tensor
    position: Tensor
    segment: Tensor
    weight: Tensor
    bias: Tensor
    eps: float

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Return LayerNorm(word + position + segment 0), one row a token, shape (tokens, dimension).

        In float64, so that the sums do not depend on the machine: within 1e-6 of the model's own float32 numbers.
        """
        total = self.word[tokens].double() + self.position[positions].double() + self.segment[0].double()
        return torch.nn.functional.layer_norm(
            total, self.weight.shape, self.weight.double(), self.bias.double(), self.eps
        )


def load_config() -> Config:
    """Read the encoder's configuration."""
    path = offline.locate(offline.CONFIG)
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return Config(
            vocabulary=int(raw["vocab_size"]),
            positions=int(raw["max_position_embeddings"]),
            dimension=int(raw["hidden_size"]),
            eps=float(raw["layer_norm_eps"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} must be the encoder's configuration, got {error!r}: run `{offline.CONFIG.remedy}`"
        ) from error


def load_embeddings() -> Embeddings:
    """Return the tables of layer 0; the weights are verified and read once a process."""
    return _read_embeddings(offline.locate(offline.WEIGHTS), load_config().eps)


@lru_cache(maxsize=1)
def _read_embeddings(path: Path, eps: float) -> Embeddings:
    try:
        from safetensors import safe_open
    except ImportError as error:
        raise MissingExtra(f"reading model weights needs safetensors: run `{_EXTRA}`") from error
    offline.verify(offline.WEIGHTS, path)
    with safe_open(path, framework="pt") as weights:
        return Embeddings(
            word=weights.get_tensor("embeddings.word_embeddings.weight"),
            position=weights.get_tensor("embeddings.position_embeddings.weight"),
            segment=weights.get_tensor("embeddings.token_type_embeddings.weight"),
            weight=weights.get_tensor("embeddings.LayerNorm.weight"),
            bias=weights.get_tensor("embeddings.LayerNorm.bias"),
            eps=eps,
        )


@lru_cache(maxsize=1)
def load_tokenizer(path: Path) -> "Tokenizer":
    """Read the encoder's tokenizer, without the cutting and padding to 128 tokens that its file asks for."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtra(f"splitting text into tokens needs tokenizers: run `{_EXTRA}`") from error
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises a bare Exception for a file it cannot use
        raise InputError(f"{path} must be a tokenizer, got {error}: run `{offline.TOKENIZER.remedy}`") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def vocabulary() -> list[str]:
    """Return the encoder's vocabulary; an entry's place in the list is its token number."""
    numbers = load_tokenizer(offline.locate(offline.TOKENIZER)).get_vocab()
    return sorted(numbers, key=numbers.__getitem__)
