"""Chat templates: rendered in a sandbox, read from files and tokenizers, and refused in one line."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wordsway.errors import InputError
from wordsway.models.chat import SETTINGS, TEMPLATE, Chat, chat_of, read_chat, write_chat

PLAIN = "{{ bos_token }}{% for one in messages %}[{{ one['role'] }}] {{ one.content }}{{ eos_token }}{% endfor %}"
ANSWER = "{% if add_generation_prompt %}[assistant]{% endif %}"


def test_a_frame_is_what_stands_around_the_words() -> None:
    chat = Chat(PLAIN + ANSWER, (("bos_token", "<s>"), ("eos_token", "</s>")))
    assert chat.frame() == ("<s>[user] ", "</s>[assistant]")
    assert Chat(PLAIN).frame() == ("[user] ", "")


def test_blocks_leave_no_blanks_behind_and_loops_can_be_left() -> None:
    chat = Chat("  {% for one in messages %}\n{{ one.content }}\n    {% break %}\n{% endfor %}\nend")
    assert chat.frame() == ("", "\nend")


@pytest.mark.parametrize(
    ("template", "before"),
    [
        ("{% if tools is not none %}TOOLS {% endif %}", ""),
        ("{% if documents != none %}DOCUMENTS {% endif %}", ""),
        ("{{ unk_token }} {{ mask_token }} ", "<unk> <mask> "),
        ("{{ strftime_now('%%') }} ", "% "),
        ("{% set name = 'bob' %}{% generation %}\n[{{ name }}]{% endgeneration %} ", "[bob] "),
    ],
)
def test_templates_are_told_what_transformers_tells_them(template: str, before: str) -> None:
    words = SimpleNamespace(
        chat_template=template + "{{ messages[0].content }}", unk_token="<unk>", mask_token="<mask>"
    )
    chat = chat_of(words)
    assert chat is not None
    assert chat.frame() == (before, "")


@pytest.mark.parametrize(
    ("template", "got"),
    [
        ("{{ ''.__class__.__mro__ }}{{ messages[0].content }}", "access to attribute '__class__' of 'str' object"),
        ("{{ cycler.__init__.__globals__.os.popen('id').read() }}", "access to attribute '__init__' of"),
        ("{{ messages.append(1) }}{{ messages[0].content }}", "access to attribute 'append' of 'list' object"),
        ("{% include '/etc/passwd' %}{{ messages[0].content }}", "no loader for this environment"),
        ("{% for k in range(10**9) %}{% endfor %}", "Range too big"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ messages[0].content + 1 }}", "can only concatenate str"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "maximum recursion depth"),
        ("{% if", "unexpected 'end of template'|Expected an expression"),
        ("{{ raise_exception('a system must\n speak first') }}", "a system must speak first: give"),
        ("{% generation %}{{ messages[0].content }}", "Unexpected end of template|unexpected 'end of template'"),
        ("{{ nothing.name }}", "'nothing' is undefined"),
        ("Hello.", "what the user says 0 times"),
        ("{{ messages[0].content | upper }}", "what the user says 0 times"),
        ("{{ messages[0].content }} {{ messages[0].content }}", "what the user says 2 times"),
    ],
)
def test_templates_that_cannot_be_used_or_do_harm_are_refused_in_one_line(template: str, got: str) -> None:
    with pytest.raises(
        InputError, match=f"^the chat template must write one message of a user, got .*({got})"
    ) as caught:
        Chat(template).frame()
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(": give the text as it is")


# Where templates come from


def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    chat = Chat(PLAIN + "\n\u00e9", (("bos_token", "<s>"),))
    write_chat(chat, tmp_path)
    assert read_chat(tmp_path) == chat


def test_nothing_is_saved_where_there_is_nothing(tmp_path: Path) -> None:
    write_chat(None, tmp_path)
    assert not list(tmp_path.iterdir())
    assert read_chat(tmp_path) is None


def _settings(folder: Path, **settings: Any) -> None:
    (folder / SETTINGS).write_text(json.dumps(settings))


def test_settings_may_hold_the_template_and_describe_tokens(tmp_path: Path) -> None:
    _settings(tmp_path, chat_template=PLAIN, bos_token={"content": "<s>", "lstrip": False}, eos_token=None)
    assert read_chat(tmp_path) == Chat(PLAIN, (("bos_token", "<s>"),))
    (tmp_path / TEMPLATE).write_text("newer {{ messages[0].content }}")
    found = read_chat(tmp_path)
    assert found is not None
    assert found.frame() == ("newer ", "")
    assert found.marks == (("bos_token", "<s>"),)


def test_of_several_templates_the_default_is_taken(tmp_path: Path) -> None:
    _settings(tmp_path, chat_template=[{"name": "tool_use", "template": "x"}, {"name": "default", "template": PLAIN}])
    assert read_chat(tmp_path) == Chat(PLAIN)
    _settings(tmp_path, chat_template=[{"name": "tool_use", "template": "x"}, "odd"])
    assert read_chat(tmp_path) is None


@pytest.mark.parametrize("damaged", [b"{", b"[]", b"\xff\xfe", b'{"chat_template": 3}'])
def test_damaged_settings_are_as_good_as_none(tmp_path: Path, damaged: bytes) -> None:
    (tmp_path / SETTINGS).write_bytes(damaged)
    assert read_chat(tmp_path) is None
    (tmp_path / TEMPLATE).write_text(PLAIN)
    assert read_chat(tmp_path) == Chat(PLAIN)
    (tmp_path / TEMPLATE).write_bytes(b"\xff\xfe\xff")
    assert read_chat(tmp_path) is None


def test_tokenizers_bring_their_template() -> None:
    given = SimpleNamespace(chat_template=PLAIN, bos_token="<s>", eos_token=None)
    assert chat_of(given) == Chat(PLAIN, (("bos_token", "<s>"),))
    assert chat_of(SimpleNamespace(chat_template={"default": PLAIN})) == Chat(PLAIN)
    assert chat_of(object()) is None
