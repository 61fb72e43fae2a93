"""What an encoder's configuration says about its layer 0."""

import json
import math
from dataclasses import dataclass
from typing import Any

from wordsway.errors import InputError
from wordsway.models import files

_EPS = 1e-12  # of LayerNorm, where BERT's configuration leaves it out; DistilBERT has no other
_DIMENSION = {"bert": "hidden_size", "distilbert": "dim"}  # the key that holds it, for every type that is known


@dataclass(frozen=True)
class Config:
    """The sizes of layer 0.

    Attributes
    ----------
    kind
        ``"bert"`` or ``"distilbert"``.
    vocabulary, positions, segments
        Rows of the three tables; a DistilBERT has no segments, which is 0 here.
    dimension
        Their columns.
    eps
        Of the LayerNorm that follows their sum.
    """

    kind: str
    vocabulary: int
    positions: int
    segments: int
    dimension: int
    eps: float


def load_config(model: str | None = None) -> Config:
    """Read an encoder's configuration; other types of models are refused, since their layer 0 is another."""
    file = files.locate(model, files.CONFIG)
    try:
        raw = json.loads(file.path.read_text(encoding="utf-8"))
        if not isinstance(raw, dict):
            raise ValueError(f"a {type(raw).__name__}")
        _check_kind(raw, str(file.path))
        return _config(raw)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{file.path} must be the encoder's configuration, got {error}: {file.remedy}") from error


def embedding_dimension(model: str | None = None) -> int:
    """Return an encoder's embedding dimension, the largest d that `review_contexts` takes for it.

    Only the configuration is read, or fetched where `model` is a name on the hub.

    Parameters
    ----------
    model
        As for `review_contexts`.

    Raises
    ------
    InputError
        Where there is no such model, or its type is not known.
    MissingExtra
        Where the offline package is not installed, or huggingface_hub for a name on the hub.
    """
    return load_config(model).dimension


def _check_kind(raw: dict[str, Any], where: str) -> None:
    """Raise unless layer 0 is LayerNorm(word + position + segment), all of one dimension."""
    kind = raw.get("model_type")
    if not isinstance(kind, str) or kind not in _DIMENSION:
        known = " or ".join(_DIMENSION)
        raise InputError(f"{where} must have the model_type {known}, got {kind!r}: choose a model of such a type")
    positions = raw.get("position_embedding_type") or "absolute"
    if positions != "absolute":
        raise InputError(
            f"{where} must have the position_embedding_type absolute, got {positions!r}: "
            "choose a model that adds its positions to its words"
        )
    hidden = raw.get(_DIMENSION[kind])
    embedding = raw.get("embedding_size", hidden)
    if embedding != hidden:
        raise InputError(
            f"{where} must have embeddings of the hidden size {hidden}, got embedding_size {embedding}: "
            "choose a model without a projection between them"
        )


def _config(raw: dict[str, Any]) -> Config:
    """Take what is needed from a configuration, or raise ValueError."""
    kind = raw["model_type"]
    bert = kind == "bert"
    eps = raw.get("layer_norm_eps", _EPS) if bert else _EPS
    if type(eps) not in (int, float) or not 0 <= eps < math.inf:
        raise ValueError(f"layer_norm_eps {eps!r}")
    return Config(
        kind=kind,
        vocabulary=_size(raw, "vocab_size"),
        positions=_size(raw, "max_position_embeddings"),
        segments=_size({"type_vocab_size": 2, **raw}, "type_vocab_size") if bert else 0,
        dimension=_size(raw, _DIMENSION[kind]),
        eps=float(eps),
    )


def _size(raw: dict[str, Any], key: str) -> int:
    value = raw.get(key)
    if type(value) is not int or value < 1:
        raise ValueError(f"{key} {value!r}")
    return value
