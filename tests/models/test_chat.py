"""Chat templates: rendered by transformers in its sandbox, read from files and tokenizers, refused in one line."""

import json
from pathlib import Path
from typing import Any

import pytest

from models import tiny
from wordsway.errors import InputError
from wordsway.models.tokenizer import SETTINGS, TEMPLATE, ChatTemplate, from_object, read_template

PLAIN = "{{ bos_token }}{% for one in messages %}[{{ one['role'] }}] {{ one.content }}{{ eos_token }}{% endfor %}"
ANSWER = "{% if add_generation_prompt %}[assistant]{% endif %}"
SYSTEM = "{% if messages[0].role != 'system' %}[system] be kind {% endif %}[user] {{ messages[0].content }}"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask>"}


@pytest.mark.parametrize(
    ("template", "frame"),
    [
        (PLAIN + ANSWER, ("<s>[user] ", "</s>[assistant]")),
        (SYSTEM, ("[system] be kind [user] ", "")),
        ("  {% for one in messages %}\n{{ one.content }}\n    {% break %}\n{% endfor %}\nend", ("", "\nend")),
        ("{% if tools is not none %}TOOLS {% endif %}{{ messages[0].content }}", ("", "")),
        ("{{ unk_token }} {{ mask_token }} {{ messages[0].content }}", ("<unk> <mask> ", "")),
        ("{{ strftime_now('%%') }} {{ messages[0].content }}", ("% ", "")),
        (
            "{% set name = 'bob' %}{% generation %}\n[{{ name }}]{% endgeneration %} {{ messages[0].content }}",
            ("[bob] ", ""),
        ),
    ],
)
def test_the_frame_is_the_text_before_and_after_that_of_the_user(template: str, frame: tuple[str, str]) -> None:
    assert ChatTemplate(template, TOKENS).frame() == frame


@pytest.mark.parametrize(
    ("template", "got"),
    [
        ("{{ ''.__class__.__mro__ }}{{ messages[0].content }}", "access to attribute '__class__' of 'str' object"),
        ("{{ messages.append(1) }}{{ messages[0].content }}", "access to attribute 'append' of 'list' object"),
        ("{% include '/etc/passwd' %}{{ messages[0].content }}", "no loader for this environment"),
        ("{% for k in range(10**9) %}{% endfor %}", "Range too big"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{% if", "unexpected 'end of template'|Expected an expression"),
        ("{{ raise_exception('a system must\n speak first') }}", "a system must speak first: pass"),
        ("Hello.", "the text of the user 0 times"),
        ("{{ messages[0].content }} {{ messages[0].content }}", "the text of the user 2 times"),
    ],
)
def test_harmful_and_unusable_templates_are_refused_in_one_line(template: str, got: str) -> None:
    with pytest.raises(InputError, match=f"^the chat template must write one message of a user, got .*({got})") as e:
        ChatTemplate(template).frame()
    assert "\n" not in str(e.value)
    assert str(e.value).endswith(": pass the text without chat")


# Where templates come from


def test_a_saved_template_is_read_again(tmp_path: Path) -> None:
    template = ChatTemplate(PLAIN + "\n\u00e9", {"bos_token": "<s>"})
    template.save(tmp_path)
    assert read_template(tmp_path) == template


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"chat_template": PLAIN, "bos_token": {"content": "<s>", "lstrip": False}, "eos_token": None},
            ChatTemplate(PLAIN, {"bos_token": "<s>"}),
        ),
        (
            {"chat_template": PLAIN, "sep_token": "|", "add_bos_token": True, "model_max_length": 9},
            ChatTemplate(PLAIN, {"sep_token": "|"}),
        ),
        (
            {"chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": PLAIN}]},
            ChatTemplate(PLAIN),
        ),
        ({"chat_template": [{"name": "tool_use", "template": "x"}, "odd"]}, None),
        ({"chat_template": 3}, None),
        ({}, None),
        ([], None),
    ],
)
def test_the_settings_of_a_tokenizer_may_hold_the_template(
    tmp_path: Path, settings: Any, expected: ChatTemplate | None
) -> None:
    (tmp_path / SETTINGS).write_text(json.dumps(settings))
    assert read_template(tmp_path) == expected
    (tmp_path / TEMPLATE).write_text("newer")
    assert read_template(tmp_path) == ChatTemplate("newer", expected.special_tokens if expected else {})


@pytest.mark.parametrize("damaged", [b"{", b"\xff\xfe"])
def test_damaged_files_count_as_none(tmp_path: Path, damaged: bytes) -> None:
    (tmp_path / SETTINGS).write_bytes(damaged)
    assert read_template(tmp_path) is None
    (tmp_path / TEMPLATE).write_text(PLAIN)
    assert read_template(tmp_path) == ChatTemplate(PLAIN)
    (tmp_path / TEMPLATE).write_bytes(b"\xff\xfe\xff")
    assert read_template(tmp_path) is None


def test_a_tokenizer_of_transformers_brings_its_template(tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    make: Any = PreTrainedTokenizerFast
    backend = tiny.write_tokenizer(tmp_path, tiny.PIECES)
    fast = make(tokenizer_object=backend, chat_template=PLAIN, eos_token="[SEP]")
    assert from_object(fast, 200, 9).chat == ChatTemplate(PLAIN, {"eos_token": "[SEP]"})
    fast.chat_template = {"default": ANSWER, "tool_use": "x"}
    assert from_object(fast, 200, 9).chat == ChatTemplate(ANSWER, {"eos_token": "[SEP]"})
    assert from_object(backend, 200, 9).chat is None
