"""Chat templates: what a model expects around the words of a user. They are rendered in a sandbox."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from wordsway.errors import InputError, one_line

TEMPLATE = "chat_template.jinja"
SETTINGS = "tokenizer_config.json"
# Special tokens that templates may name
_MARKS = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "pad", "sep", "cls", "mask"))
_WORDS = "\u2402words\u2403"  # stands for what the user says


@dataclass(frozen=True)
class Chat:
    """A template in Jinja, and the special tokens that it may name."""

    template: str
    marks: tuple[tuple[str, str], ...] = ()

    def frame(self) -> tuple[str, str]:
        """What stands before and after the words of a user, up to where the answer begins."""
        from jinja2 import TemplateError

        def refuse(message: str) -> None:
            raise TemplateError(message)

        said = [{"role": "user", "content": _WORDS}]
        try:
            known = {"raise_exception": refuse, "strftime_now": lambda form: datetime.now().strftime(form)}
            page = _sandbox().from_string(self.template, globals=known)
            given = {"messages": said, "tools": None, "documents": None, "add_generation_prompt": True}
            parts = page.render(**given, **dict(self.marks)).split(_WORDS)
        except Exception as error:  # what a template may raise is of any kind
            raise _unusable(one_line(error, 200)) from error
        if len(parts) != 2:
            raise _unusable(f"what the user says {len(parts) - 1} times")
        return parts[0], parts[1]


def _sandbox() -> Any:
    """Where templates are rendered: what transformers lets them use, and nothing else."""
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """``{% generation %}`` marks what an assistant says, for those who train it; it is written as it is."""

        tags = {"generation"}  # noqa: RUF012 - it is declared so there

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    extensions = ["jinja2.ext.loopcontrols", Generation]
    return ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)


def _unusable(got: str) -> InputError:
    return InputError(f"the chat template must write one message of a user, got {got}: give the text as it is")


def read_chat(folder: Path) -> Chat | None:
    """The chat template that is saved in the folder of a model, or None."""
    settings: Any = None
    with contextlib.suppress(OSError, ValueError):
        settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    settings = settings if isinstance(settings, dict) else {}
    try:
        template = (folder / TEMPLATE).read_text(encoding="utf-8")
    except (OSError, ValueError):
        template = settings.get("chat_template")
    return _chat(template, {name: settings.get(name) for name in _MARKS})


def chat_of(tokenizer: Any) -> Chat | None:
    """The chat template of a tokenizer of transformers, or None."""
    return _chat(getattr(tokenizer, "chat_template", None), {name: getattr(tokenizer, name, None) for name in _MARKS})


def write_chat(chat: Chat | None, folder: Path) -> None:
    """Save a template as `read_chat` reads it."""
    if chat is not None:
        (folder / TEMPLATE).write_text(chat.template, encoding="utf-8")
        (folder / SETTINGS).write_text(json.dumps(dict(chat.marks)), encoding="utf-8")


def _chat(template: Any, marks: dict[str, Any]) -> Chat | None:
    if isinstance(template, list):  # several by name
        template = {one.get("name"): one.get("template") for one in template if isinstance(one, dict)}
    if isinstance(template, dict):
        template = template.get("default")
    if not isinstance(template, str):
        return None
    named = {name: mark.get("content") if isinstance(mark, dict) else mark for name, mark in marks.items()}
    return Chat(template, tuple((name, mark) for name, mark in named.items() if isinstance(mark, str)))
