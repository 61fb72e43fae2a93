"""Texts as words: where they are, which tokens they have, and which tokens belong to none."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers

import wordsway as ws
from models import plain, tiny
from models.test_load import needs_decoder
from wordsway.errors import InputError
from wordsway.models.tokenizer import ChatTemplate, Tokenizer, from_object
from wordsway.models.words import Text, read_text

TEMPLATE = "{% for one in messages %}<|{{ one.role }}|>\n{{ one.content }}<|end|>\n{% endfor %}<|assistant|>"


def _minilm() -> Tokenizer:
    return ws.load("minilm").texts


def _smollm2() -> Tokenizer:
    return ws.load("smollm2").texts


@cache
def _bytes(positions: int = 1000, template: str | None = None) -> Tokenizer:
    """A tokenizer of bytes, most of which are not whole characters, with some pairs of them."""
    merges = [("t", "h"), ("th", "e"), ("\u0120", "the"), (".", "."), ("!", "?")]
    names = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in merges)]
    backend = tokenizers.Tokenizer(models.BPE({name: number for number, name in enumerate(names)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|user|>", "<|assistant|>", "<|end|>", AddedToken("<|mask|>", lstrip=True)])
    made = from_object(backend, len(names) + 4, positions)
    return made if template is None else replace(made, chat=ChatTemplate(template))


def _read(tokenizer: Tokenizer, text: Any, **options: Any) -> Text:
    return read_text(tokenizer, text, "small", **options)


def _shown(text: Text) -> list[str]:
    return [word.text for word in text.scored]


def _is_whole(text: Text) -> None:
    """Every token is in one word, in order, and words are where they say, each behind the one before."""
    assert [place for word in text.words for place in word.tokens] == list(range(len(text.ids)))
    assert [word.position for word in text.scored] == list(range(len(text.scored)))
    end = 0
    for word in text.words:
        if word.start < word.end:
            assert text.text[word.start : word.end] == word.text
        if not word.special:
            assert end <= word.start < word.end
            assert word.text == word.text.strip()
            end = word.end


# Where words are


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I love her smile", "I love her smile"),
        ("the film, the film.", "the film , the film ."),
        ("unbelievableness", "unbelievableness"),
        ("don't o'neil\u2019s rock'n'roll 'quoted'", "don't o'neil\u2019s rock'n'roll ' quoted '"),
        ("  a  b\n\n\tc \n", "a b c"),
        ("x_1 \u00bd\u00b2 3.5", "x_1 \u00bd\u00b2 3 . 5"),
        ("caf\u00e9 cafe\u0301's na\u00efve", "caf\u00e9 cafe\u0301's na\u00efve"),
        ("zq\u0300\u0301 ok", "zq\u0300\u0301 ok"),
        ("\u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e", "\u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e"),
        ("\u65e5\u672c\u8a9e hello", "\u65e5 \u672c \u8a9e hello"),
        ("\u30e9\u30fc\u30e1\u30f3\u3002", "\u30e9 \u30fc \u30e1 \u30f3 \u3002"),
        ("\u0e01\u0e33 here", "\u0e01\u0e33 here"),  # a letter and its vowel, which are displayed as one character
        ("good \U0001f44d\U0001f3fd film \u2764\ufe0f", "good \U0001f44d\U0001f3fd film \u2764\ufe0f"),
        ("a \U0001f469\u200d\U0001f469\u200d\U0001f467 b", "a \U0001f469\u200d\U0001f469\u200d\U0001f467 b"),
        ("\U0001f1eb\U0001f1f7!", "\U0001f1eb\U0001f1f7 !"),  # a flag
    ],
)
def test_words_of_texts(text: str, words: str) -> None:
    for tokenizer in (_minilm(), _bytes()):
        read = _read(tokenizer, text)
        _is_whole(read)
        assert _shown(read) == words.split()


def test_equal_words_and_special_tokens_are_distinguished() -> None:
    read = _read(_minilm(), "smile, unbelievableness smile")
    assert [(word.position, word.text, word.start, word.tokens) for word in read.words] == [
        (None, "[CLS]", 0, (0,)),
        (0, "smile", 0, (1,)),
        (1, ",", 5, (2,)),
        (2, "unbelievableness", 7, (3, 4)),
        (3, "smile", 24, (5,)),
        (None, "[SEP]", 0, (6,)),
    ]


def test_signs_that_share_a_token_are_one_word_and_so_are_bytes_of_a_character() -> None:
    assert _shown(_read(_bytes(), "the... the!?!")) == ["the", "..", ".", "the", "!?", "!"]
    read = _read(_bytes(), "a \u65e5\U0001f600")
    assert [(word.text, len(word.tokens)) for word in read.scored] == [("a", 1), ("\u65e5", 3), ("\U0001f600", 4)]


def test_special_tokens_in_a_text_are_no_words_and_end_a_word() -> None:
    read = _read(_minilm(), "[CLS] hello [SEP] [MASK] [UNK][cls]")
    assert _shown(read)[0] == "hello"
    special = [word.text for word in read.words if word.special]
    assert special == ["[CLS]", "[CLS]", "[SEP]", "[MASK]", "[UNK]", "[SEP]"]
    typed = _read(_bytes(), "ab<|end|>cd <|mask|>\u0301e")
    assert [word.text for word in typed.words] == ["ab", "<|end|>", "cd", "<|mask|>", "\u0301", "e"]
    assert [word.special for word in typed.words] == [False, True, False, True, False, False]
    _is_whole(typed)


def test_unknown_words_are_words_and_blank_tokens_are_none() -> None:
    read = _read(_minilm(), "a \U0001f9ff b")
    assert _shown(read) == ["a", "\U0001f9ff", "b"]
    assert read.ids[read.scored[1].tokens[0]] == 100  # [UNK]
    assert [word.position for word in _read(_bytes(), "a  b\n").words] == [0, None, None, 1, None]


_SCRAPS = ["the", " film", "[CLS]", "[UNK]", "<|end|>", "<|im_end|>", "  ", "\n", "...", "'", "\u2019s", "\x00"]
_SCRAPS += ["e\u0301", "\u00e9", "\u0130", "\U0001f469\u200d\U0001f467", "\u65e5\u672c", "\u0939\u093f"]
_SCRAPS += ["\u200d", "\u200b", "\xad", "\u3000", "\x1c", "\u0600", "\U0001f1eb"]
_TEXTS = st.lists(st.sampled_from(_SCRAPS) | st.characters(codec="utf-8"), max_size=25).map("".join)


@pytest.mark.parametrize("make", [_minilm, _bytes, pytest.param(_smollm2, marks=needs_decoder)])
@settings(max_examples=170, deadline=None)
@given(text=_TEXTS)
@example(text="[MASK]\u0301")
@example(text="e\u0301\u200d[SEP]\u0301")
@example(text="<|im_end|>\u0301")
def test_any_text_is_split_into_words(make: Any, text: str) -> None:
    tokenizer = make()
    try:
        read = _read(tokenizer, text)
    except InputError:  # it has no word: nothing but blanks and special tokens is read from it
        encoding = tokenizer.backend.encode(text, add_special_tokens=False)
        assert {text[first:last].strip() for first, last in encoding.offsets} <= {"", *tokenizer.special.values()}
        return
    _is_whole(read)
    assert list(read.ids) == tokenizer.split(text)
    assert read.scored


# Bad input

_NO_WORD = "text must have at least one word, got none: special tokens and blanks do not count"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, _NO_WORD) for text in ("", "  \n", "[CLS] [SEP]", "\x00\xad", "[PAD]")),
        (3, "text must be a string, got int: give one text at a time"),
        (["a"], "text must be a string, got list: give one text at a time"),
        (b"a", "text must be a string, got bytes: give one text at a time"),
        (None, "text must be a string, got NoneType: give one text at a time"),
        ("ab \ud83d c", "text must be valid unicode, got half a character at 3: correct it"),
    ],
)
def test_bad_texts_are_refused(text: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        _read(_minilm(), text)
    assert str(caught.value) == message


@pytest.mark.parametrize("position", [-1, 4, 1.0, "hate", None, True])
def test_a_position_out_of_range_lists_the_words(position: Any) -> None:
    with pytest.raises(InputError) as caught:
        _read(_minilm(), "I love her smile").word(position)
    rule = f"word must be a position from 0 to 3 or a word of the text, got {position!r}"
    assert str(caught.value) == f"{rule}: 0 I, 1 love, 2 her, 3 smile"


def test_positions_may_be_integers_of_any_kind_and_long_lists_are_cut() -> None:
    read = _read(_minilm(), "I love her smile")
    assert read.word(np.int64(1)) is read.word(torch.tensor(1)) is read.word(1)
    with pytest.raises(InputError, match=r"from 0 to 99 or a word of the text, got 100: 0 a, .*, 29 a, \.\.\.$"):
        _read(_minilm(), "a " * 100).word(100)


def test_a_word_that_occurs_once_may_be_named() -> None:
    read = _read(_minilm(), "The film is the best of films, IT is")
    for name, place in (("film", 1), ("best", 4), ("it", 8), ("The", 0), ("the", 3), ("FILMS", 6), (",", 7)):
        assert read.word(name).position == place
    for name, places in (("is", "2, 9"), ("THE", "0, 3")):
        with pytest.raises(InputError) as caught:
            read.word(name)
        assert str(caught.value) == f"word must occur once in the text, got {name!r} at {places}: give a position"


# Texts that are too long


def test_a_text_that_is_too_long_is_refused_with_the_limit() -> None:
    with pytest.raises(InputError) as caught:
        _read(_bytes(8), "a b c d e")
    expected = "the text must have at most 8 tokens, which is all that small reads, got 9: "
    assert str(caught.value) == expected + "shorten it, or ask for it to be cut"
    assert _read(_bytes(9), "a b c d e").cut == 0


def test_a_text_is_cut_on_request_and_keeps_what_closes_it(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    tokenizer = from_object(tiny.write_tokenizer(tmp_path, tiny.PIECES, "[CLS] $A [SEP]"), 200, 8)
    read = _read(tokenizer, "the film was boring and the film was long", cut=True)
    whole = tokenizer.split("the film was boring and the film was long")
    assert [record.getMessage() for record in caplog.records] == [
        f"{len(whole) - 8} of the text's {len(whole)} tokens are left out: small reads 8"
    ]
    assert list(read.ids) == [*whole[:7], whole[-1]]
    assert read.cut == len(whole) - 8
    assert [word.text for word in read.words] == ["[CLS]", "the", "film", "was", "boring", "[SEP]"]
    assert [word.tokens for word in read.words] == [(0,), (1,), (2,), (3,), (4, 5, 6), (7,)]
    caplog.clear()
    assert _read(tokenizer, "the film", cut=True).cut == 0
    assert not caplog.records


def test_a_cut_chat_keeps_where_the_answer_begins(caplog: pytest.LogCaptureFixture) -> None:
    read = _read(_bytes(12, TEMPLATE), "a b c d e f", chat=True, cut=True)
    assert len(read.ids) == 12
    assert _shown(read) == ["a", "b", "c", "d"]
    assert [word.text for word in read.words[-3:]] == ["<|end|>", "\u010a", "<|assistant|>"]
    assert len(caplog.records) == 1
    for positions in (2, 4):
        with pytest.raises(InputError) as caught:
            _read(_bytes(positions, TEMPLATE), "a b", chat=True, cut=True)
        rule = f"the {positions} tokens that small reads must have at least one word, got none"
        assert str(caught.value) == f"{rule}: use a shorter chat template, or a model that reads more tokens"


# Chats


def test_only_the_text_of_the_user_has_words_in_a_chat(tmp_path: Path) -> None:
    read = _read(_bytes(1000, TEMPLATE), " the end\n", chat=True)
    assert read.text == "<|user|>\nthe end<|end|>\n<|assistant|>"
    assert read.framed
    _is_whole(read)
    assert [(word.text, word.start) for word in read.scored] == [("the", 9), ("end", 13)]
    assert len(read.ids) == sum(len(word.tokens) for word in read.scored) + 6
    assert [read.span(word) for word in read.scored] == [(1, 4), (5, 8)]  # in " the end\n"
    assert {read.span(word) for word in read.words if word.special} == {(0, 0)}
    kind = _read(_bytes(1000, "You are kind. {{ messages[0].content }} Answer:"), "are you kind", chat=True)
    assert _shown(kind) == ["are", "you", "kind"]
    assert kind.scored[0].start == len("You are kind. ")
    with pytest.raises(
        InputError, match=r"^the model must have a chat template, got none: pass the text without chat$"
    ):
        plain.with_words("bert", tmp_path).read("the film", chat=True)


@needs_decoder
def test_the_offline_decoder_has_a_chat() -> None:
    read = _read(_smollm2(), "Is the film good?", chat=True)
    assert _shown(read) == ["Is", "the", "film", "good", "?"]
    assert read.text.endswith("Is the film good?<|im_end|>\n<|im_start|>assistant\n")
    _is_whole(read)
