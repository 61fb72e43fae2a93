"""An encoder at layer 0: its vocabulary and the embeddings that its first attention layer sees."""

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from wordsway.errors import InputError, MissingExtra, one_line
from wordsway.models import files, offline
from wordsway.models.configuration import Config, load_config
from wordsway.models.files import ModelFile

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_WORD = "embeddings.word_embeddings.weight"
_SAMPLE = "a film"


@dataclass(frozen=True)
class Embeddings:
    """The tables of layer 0, as they are stored.

    Attributes
    ----------
    word, position, segment
        Tables of shape (vocabulary, dimension), (positions, dimension) and (segments, dimension). An encoder without
        segments has one row of zeros for them.
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

        `positions` has one entry for each token, or one for all. In float64, so that the sums do not depend on the
        machine: within 1e-6 of the model's own float32 numbers.
        """
        total = self.word[tokens].double() + self.position[positions].double() + self.segment[0].double()
        return torch.nn.functional.layer_norm(
            total, self.weight.shape, self.weight.double(), self.bias.double(), self.eps
        )


def load_embeddings(model: str | None = None) -> Embeddings:
    """Return the tables of layer 0; the weights are checked and read once a process, while they stay the same."""
    return _read_embeddings(files.locate(model, files.WEIGHTS), load_config(model))


@lru_cache(maxsize=2)  # a table of words may take some hundred MB
def _read_embeddings(file: ModelFile, config: Config) -> Embeddings:
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


def _tables(weights: Any, config: Config) -> Embeddings:
    """Read the tables of layer 0 from an open file of weights, or raise ValueError.

    Their names may start with the name of the encoder in a larger model, such as ``bert.``; old files call the
    parameters of LayerNorm gamma and beta.
    """
    names = set(weights.keys())
    prefixes = [name.removesuffix(_WORD) for name in names if name == _WORD or name.endswith(f".{_WORD}")]
    if len(prefixes) != 1:
        raise ValueError(f"{len(prefixes)} tables called {_WORD}")

    def table(shape: tuple[int, ...], *spellings: str) -> Tensor:
        name = next((prefixes[0] + name for name in spellings if prefixes[0] + name in names), None)
        if name is None:
            raise ValueError(f"no {prefixes[0]}{spellings[0]}")
        values: Tensor = weights.get_tensor(name).clone()  # it is a view of the file, which may be written again
        if values.shape != shape:
            raise ValueError(f"{name} of shape {tuple(values.shape)} in place of {shape}")
        if not values.is_floating_point() or not bool(values.isfinite().all()):
            raise ValueError(f"{name} with entries that are not finite floats")
        return values

    d = config.dimension
    segment = "embeddings.token_type_embeddings.weight"
    return Embeddings(
        word=table((config.vocabulary, d), _WORD),
        position=table((config.positions, d), "embeddings.position_embeddings.weight"),
        segment=table((config.segments, d), segment) if config.segments else torch.zeros(1, d),
        weight=table((d,), "embeddings.LayerNorm.weight", "embeddings.LayerNorm.gamma"),
        bias=table((d,), "embeddings.LayerNorm.bias", "embeddings.LayerNorm.beta"),
        eps=config.eps,
    )


@lru_cache(maxsize=4)
def load_tokenizer(file: ModelFile, vocabulary: int) -> "Tokenizer":
    """Read a model's tokenizer, without the cutting and padding that its file may ask for.

    It is refused unless its tokens are rows of a table with `vocabulary` of them.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtra.of("splitting text into tokens needs tokenizers", "models") from error
    try:
        tokenizer = Tokenizer.from_file(str(file.path))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode(_SAMPLE)
    except Exception as error:  # the library raises a bare Exception for a file it cannot use
        raise InputError(f"{file.path} must be a tokenizer, got {one_line(error)}: {file.remedy}") from error
    check_numbers(tokenizer, vocabulary, str(file.path))
    return tokenizer


def check_numbers(tokenizer: "Tokenizer", vocabulary: int, name: str) -> None:
    """Raise unless a tokenizer's numbers are rows of a table with `vocabulary` of them."""
    largest = max(tokenizer.get_vocab().values(), default=0)
    if largest >= vocabulary:
        raise InputError(
            f"{name} must have token numbers below the {vocabulary} that {files.CONFIG} says, got {largest}: "
            "save the model with the tokenizer that belongs to it"
        )


def load_bert_tokenizer(file: ModelFile, vocabulary: int) -> "Tokenizer":
    """Read an encoder's tokenizer; it is refused unless it puts one token before and one after a text.

    All that is made of its tokens at layer 0 assumes that.
    """
    tokenizer = load_tokenizer(file, vocabulary)
    empty, sample = tokenizer.encode("").ids, tokenizer.encode(_SAMPLE).ids
    if len(empty) != 2 or len(sample) < 3 or [sample[0], sample[-1]] != empty:
        raise InputError(
            f"{file.path} must put one token before and one after a text, got {len(empty)} tokens for no text and "
            f"{len(sample)} for {_SAMPLE!r}: choose a model with a tokenizer like BERT's"
        )
    return tokenizer


def vocabulary(model: str | None = None) -> list[str]:
    """Return an encoder's vocabulary; an entry's place in the list is its token number.

    A row that the tokenizer never uses is called ``[no entry]``.
    """
    size = load_config(model).vocabulary
    words = ["[no entry]"] * size
    numbers = load_bert_tokenizer(files.locate(model, files.TOKENIZER), size).get_vocab()
    for word in sorted(numbers):
        words[numbers[word]] = word
    return words
