"""The tokenizer of a model, and its chat template."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordsway.errors import InputError, MissingExtra, one_line
from wordsway.models.files import CONFIG, ModelFile

if TYPE_CHECKING:
    import tokenizers

TEMPLATE = "chat_template.jinja"
SETTINGS = "tokenizer_config.json"
_USER_TEXT = "\u2402words\u2403"  # placeholder for the text of the user in a template


@dataclass(frozen=True)
class ChatTemplate:
    """What a model expects around the text of a user.

    Attributes
    ----------
    template : str
        In Jinja; transformers renders it in a sandbox.
    special_tokens : mapping of str to str
        The special tokens that the template may use, such as ``bos_token``.
    """

    template: str
    special_tokens: Mapping[str, str] = field(default_factory=dict)

    def frame(self) -> tuple[str, str]:
        """Return the text before and after the text of the user, up to where the answer begins."""
        from transformers.utils.chat_template_utils import render_jinja_template

        options: Any = {"chat_template": self.template, "add_generation_prompt": True, **self.special_tokens}
        try:
            rendered = render_jinja_template([[{"role": "user", "content": _USER_TEXT}]], **options)[0][0]
        except Exception as error:  # a template may raise anything
            raise _unusable(one_line(error, 200)) from error
        parts = rendered.split(_USER_TEXT)
        if len(parts) != 2:
            raise _unusable(f"the text of the user {len(parts) - 1} times")
        return parts[0], parts[1]

    def save(self, folder: Path) -> None:
        """Write the template as `read_template` reads it."""
        (folder / TEMPLATE).write_text(self.template, encoding="utf-8")
        (folder / SETTINGS).write_text(json.dumps(dict(self.special_tokens)), encoding="utf-8")


def _unusable(got: str) -> InputError:
    return InputError(f"the chat template must write one message of a user, got {got}: pass the text without chat")


def read_template(folder: Path) -> ChatTemplate | None:
    """Return the chat template that is saved in the folder of a model, or None; damaged files count as none."""
    settings: Any = None
    with contextlib.suppress(OSError, ValueError):
        settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    settings = settings if isinstance(settings, dict) else {}
    try:
        template = (folder / TEMPLATE).read_text(encoding="utf-8")
    except (OSError, ValueError):
        template = settings.get("chat_template")
    return _template(template, {name: token for name, token in settings.items() if name.endswith("_token")})


def _template(template: Any, special_tokens: Mapping[str, Any]) -> ChatTemplate | None:
    """Return the default one of the templates of a tokenizer, with its special tokens, or None."""
    if isinstance(template, list):  # several, each with its name
        template = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
    if isinstance(template, dict):
        template = template.get("default")
    if not isinstance(template, str):
        return None
    texts = {name: token.get("content") if isinstance(token, dict) else token for name, token in special_tokens.items()}
    return ChatTemplate(template, {name: text for name, text in texts.items() if isinstance(text, str)})


@dataclass(frozen=True)
class Tokenizer:
    """How a model splits texts; equal tokenizers return the same ids.

    Attributes
    ----------
    digest : str
        Checksum of the tokenizer's rules.
    vocabulary : int
        Number of token ids that the model knows.
    positions : int
        Number of tokens that the model can read at once.
    backend : tokenizers.Tokenizer
        It neither truncates nor pads.
    chat : ChatTemplate, optional
        The chat template that comes with it.
    """

    digest: str
    vocabulary: int
    positions: int
    backend: tokenizers.Tokenizer = field(compare=False, repr=False)
    chat: ChatTemplate | None = field(default=None, compare=False, repr=False)

    def split(self, text: str) -> list[int]:
        """Return all token ids of a text, with the special ones that the tokenizer adds around it."""
        ids: list[int] = self.backend.encode(text).ids
        return ids

    @cached_property
    def special(self) -> dict[int, str]:
        """The special tokens by id."""
        added = self.backend.get_added_tokens_decoder()
        return {number: token.content for number, token in added.items() if token.special}

    @cached_property
    def mask(self) -> str | None:
        """The mask token of the vocabulary, or None."""
        return next((token for token in self.special.values() if token.strip("[]<>|").lower() == "mask"), None)

    def frame(self) -> tuple[str, str]:
        """Return what the chat template puts before and after the text of the user; see `ChatTemplate.frame`."""
        if self.chat is None:
            raise InputError("the model must have a chat template, got none: pass the text without chat")
        return self.chat.frame()

    def openings(self, texts: list[str]) -> list[list[int]]:
        """Return the first `positions` tokens of each text, without the special ones that close it."""
        special = self.backend.encode("a film").special_tokens_mask
        closing = special[::-1].index(0)  # number of tokens that close a text
        encodings = self.backend.encode_batch_fast(texts)
        return [encoding.ids[: len(encoding.ids) - closing][: self.positions] for encoding in encodings]


def from_file(file: ModelFile, vocabulary: int, positions: int) -> Tokenizer:
    """Return the tokenizer in a tokenizer.json, with the chat template next to it."""
    digest, backend = _read(file, vocabulary)
    return Tokenizer(digest, vocabulary, positions, backend, read_template(file.path.parent))


def from_object(tokenizer: Any, vocabulary: int, positions: int) -> Tokenizer:
    """Return a copy of a tokenizer of transformers or tokenizers."""
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not isinstance(backend, _library().Tokenizer):
        raise InputError(
            f"tokenizer must be a fast one of transformers or one of tokenizers, got {type(tokenizer).__name__}: "
            "load it with AutoTokenizer"
        )
    digest, own = _parse(backend.to_str())
    _check_ids(own, vocabulary, "tokenizer")
    template = getattr(tokenizer, "chat_template", None)
    return Tokenizer(
        digest, vocabulary, positions, own, _template(template, getattr(tokenizer, "special_tokens_map", {}))
    )


@lru_cache(maxsize=4)
def _read(file: ModelFile, vocabulary: int) -> tuple[str, tokenizers.Tokenizer]:
    _library()
    try:
        digest, backend = _parse(file.path.read_bytes().decode())
    except Exception as error:  # tokenizers raises a bare Exception for a file that it cannot use
        raise InputError(f"{file.path} must be a tokenizer, got {one_line(error)}: {file.remedy}") from error
    _check_ids(backend, vocabulary, str(file.path))
    return digest, backend


def _parse(rules: str) -> tuple[str, tokenizers.Tokenizer]:
    """Return the checksum of the rules, and a tokenizer that neither truncates nor pads, whatever they say."""
    backend = _library().Tokenizer.from_str(rules)
    backend.no_truncation()
    backend.no_padding()
    backend.encode("a film")  # some damage shows only in use
    return hashlib.sha256(rules.encode()).hexdigest(), backend


def _check_ids(backend: tokenizers.Tokenizer, vocabulary: int, name: str) -> None:
    """Raise unless all token ids are rows of a table with `vocabulary` rows."""
    largest = max(backend.get_vocab().values(), default=0)
    if largest >= vocabulary:
        raise InputError(
            f"{name} must have token ids below the {vocabulary} of {CONFIG}, got {largest}: "
            "save the model with the tokenizer that belongs to it"
        )


def _library() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise MissingExtra.of("splitting text into tokens needs tokenizers", "models") from error
    return tokenizers
