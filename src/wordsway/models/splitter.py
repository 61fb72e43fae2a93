"""A tokenizer together with the model that it is for: texts as token numbers."""

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from wordsway.errors import InputError, MissingExtra
from wordsway.models import encoder
from wordsway.models.chat import Chat, chat_of, read_chat
from wordsway.models.files import ModelFile

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SAMPLE = "a film"


@dataclass(frozen=True)
class Splitter:
    """How a model splits texts; two that are equal give the same numbers.

    Attributes
    ----------
    digest
        Checksum of the tokenizer's rules.
    vocabulary
        Token numbers that the model knows.
    positions
        Tokens that the model can read at once.
    file
        Where the rules are read from when they are first needed, or None.
    given
        The tokenizer itself where there is no file.
    chat
        The chat template that comes with it, or None.
    """

    digest: str
    vocabulary: int
    positions: int
    file: ModelFile | None = None
    given: Any = field(default=None, compare=False, repr=False)
    chat: Chat | None = field(default=None, compare=False, repr=False)

    @property
    def tokenizer(self) -> "Tokenizer":
        """The tokenizer, which neither cuts nor pads; read once a process."""
        given: Tokenizer = self.given
        return given if self.file is None else encoder.load_tokenizer(self.file, self.vocabulary)

    def split(self, text: str) -> list[int]:
        """All tokens of a text, with those that the tokenizer puts before and after it."""
        ids: list[int] = self.tokenizer.encode(text).ids
        return ids

    @cached_property
    def special(self) -> dict[int, str]:
        """The special tokens by number."""
        return {number: one.content for number, one in self.tokenizer.get_added_tokens_decoder().items() if one.special}

    def frame(self) -> tuple[str, str]:
        """What the chat template puts before and after the words of a user, up to where the answer begins."""
        if self.chat is None:
            raise InputError("the model must have a chat template, got none: give the text as it is")
        return self.chat.frame()

    def openings(self, texts: list[str]) -> list[list[int]]:
        """For each text the tokens before it and its own, without those after it, as many as the model can read."""
        tokenizer = self.tokenizer
        special = tokenizer.encode(_SAMPLE).special_tokens_mask
        after = special[::-1].index(0)  # how many tokens close a text
        encodings = tokenizer.encode_batch_fast(texts)
        return [encoding.ids[: len(encoding.ids) - after][: self.positions] for encoding in encodings]


def from_file(file: ModelFile, vocabulary: int, positions: int) -> Splitter:
    """Return how the model with this tokenizer.json splits texts."""
    digest = hashlib.sha256(file.path.read_bytes()).hexdigest()
    return Splitter(digest, vocabulary, positions, file, chat=read_chat(file.path.parent))


def from_object(tokenizer: Any, vocabulary: int, positions: int) -> Splitter:
    """Return how a tokenizer of transformers or tokenizers splits texts; it is copied, so it stays as it is."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtra.of("a tokenizer needs tokenizers", "models") from error
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not isinstance(backend, Tokenizer):
        raise InputError(
            f"tokenizer must be a fast one of transformers or one of tokenizers, got {type(tokenizer).__name__}: "
            "load it with AutoTokenizer"
        )
    rules = backend.to_str()
    own = Tokenizer.from_str(rules)
    own.no_truncation()
    own.no_padding()
    encoder.check_numbers(own, vocabulary, "tokenizer")
    digest = hashlib.sha256(rules.encode()).hexdigest()
    return Splitter(digest, vocabulary, positions, given=own, chat=chat_of(tokenizer))
