"""Texts as words: where they stand, which tokens they have, and which tokens are none."""

import logging
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

import wordsway as ws
from models import plain, tiny
from models.test_load import needs_decoder
from wordsway.errors import InputError
from wordsway.models import files, tokenizer
from wordsway.models.tokenizer import ChatTemplate
from wordsway.models.tokenizer import Tokenizer as Splitter
from wordsway.models.words import Text, read_text

TEMPLATE = "{% for one in messages %}<|{{ one.role }}|>\n{{ one.content }}<|end|>\n{% endfor %}<|assistant|>"


@cache
def _minilm() -> Splitter:
    return tokenizer.from_file(files.locate("minilm", files.TOKENIZER), 30522, 512)


@cache
def _smollm2() -> Splitter:
    found = ws.load("smollm2").tokenizer
    assert found is not None
    return found


@cache
def _bytes(positions: int = 1000, template: str | None = None) -> Splitter:
    """A tokenizer of bytes, most of which are not whole characters, with some pairs of them."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), (".", "."), ("!", "?")]
    names = [*alphabet, *("".join(pair) for pair in merges)]
    backend = Tokenizer(models.BPE({name: number for number, name in enumerate(names)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|user|>", "<|assistant|>", "<|end|>", AddedToken("<|mask|>", lstrip=True)])
    found = tokenizer.from_object(backend, len(names) + 4, positions)
    return (
        found
        if template is None
        else Splitter(found.digest, found.vocabulary, positions, found.backend, ChatTemplate(template))
    )


def _read(which: Splitter, text: Any, **options: Any) -> Text:
    return read_text(which, text, "small", **options)


def _shown(found: Text) -> list[str]:
    return [word.text for word in found.scored]


def _is_whole(found: Text) -> None:
    """Every token is in one word, in order, and words are where they say, each behind the one before."""
    assert [place for word in found.words for place in word.tokens] == list(range(len(found.ids)))
    assert [word.position for word in found.scored] == list(range(len(found.scored)))
    end = 0
    for word in found.words:
        if word.start < word.end:
            assert found.text[word.start : word.end] == word.text
        if not word.special:
            assert end <= word.start < word.end
            assert word.text == word.text.strip()
            end = word.end


# Where words stand


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I love her smile", ["I", "love", "her", "smile"]),
        ("the film, the film.", ["the", "film", ",", "the", "film", "."]),
        ("unbelievableness", ["unbelievableness"]),
        ("don't o'neil\u2019s rock'n'roll 'quoted'", ["don't", "o'neil\u2019s", "rock'n'roll", "'", "quoted", "'"]),
        ("  a  b\n\n\tc \n", ["a", "b", "c"]),
        ("caf\u00e9 cafe\u0301 na\u00efve", ["caf\u00e9", "cafe\u0301", "na\u00efve"]),
        ("cafe\u0301's", ["cafe\u0301's"]),
        ("zq\u0300\u0301 ok", ["zq\u0300\u0301", "ok"]),
        (
            "\u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e\u0937\u093e",
            ["\u0939\u093f\u0928\u094d\u0926\u0940", "\u092d\u093e\u0937\u093e"],
        ),
        ("\u65e5\u672c\u8a9e hello", ["\u65e5", "\u672c", "\u8a9e", "hello"]),
        ("good \U0001f44d\U0001f3fd film \u2764\ufe0f", ["good", "\U0001f44d\U0001f3fd", "film", "\u2764\ufe0f"]),
        ("a \U0001f469\u200d\U0001f469\u200d\U0001f467 b", ["a", "\U0001f469\u200d\U0001f469\u200d\U0001f467", "b"]),
        ("\u0e01\u0e33 here", ["\u0e01\u0e33", "here"]),  # a letter and its vowel, one character on the screen
        ("\U0001f1eb\U0001f1f7!", ["\U0001f1eb\U0001f1f7", "!"]),  # a flag
        ("\u30e9\u30fc\u30e1\u30f3\u3002", ["\u30e9", "\u30fc", "\u30e1", "\u30f3", "\u3002"]),
        ("x_1 \u00bd\u00b2 3.5", ["x_1", "\u00bd\u00b2", "3", ".", "5"]),
    ],
)
def test_words_of_texts(text: str, words: list[str]) -> None:
    for which in (_minilm(), _bytes()):
        found = _read(which, text)
        _is_whole(found)
        assert _shown(found) == words


def test_a_word_that_occurs_twice_is_two() -> None:
    first, _, second = _read(_minilm(), "smile, smile").scored
    assert (first.text, second.text) == ("smile", "smile")
    assert (first.start, second.start) == (0, 7)
    assert (first.tokens, second.tokens) == ((1,), (3,))


def test_pieces_of_a_word_are_joined_and_special_tokens_are_none() -> None:
    found = _read(_minilm(), "unbelievableness !")
    assert [(word.position, word.text, word.tokens) for word in found.words] == [
        (None, "[CLS]", (0,)),
        (0, "unbelievableness", (1, 2)),
        (1, "!", (3,)),
        (None, "[SEP]", (4,)),
    ]


def test_signs_that_share_a_token_are_one_word() -> None:
    found = _read(_bytes(), "the... the!?!")
    assert _shown(found) == ["the", "..", ".", "the", "!?", "!"]
    _is_whole(found)


def test_bytes_of_a_character_are_one_word() -> None:
    found = _read(_bytes(), "a \u65e5\U0001f600")
    assert [(word.text, len(word.tokens)) for word in found.scored] == [("a", 1), ("\u65e5", 3), ("\U0001f600", 4)]


def test_special_tokens_that_are_typed_are_none_and_end_a_word() -> None:
    found = _read(_minilm(), "[CLS] hello [SEP] [MASK] [UNK][cls]")
    assert _shown(found)[0] == "hello"
    assert [word.text for word in found.words if word.special] == [
        "[CLS]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "[UNK]",
        "[SEP]",
    ]
    typed = _read(_bytes(), "ab<|end|>cd <|mask|>\u0301e")
    assert [(word.text, word.special) for word in typed.words] == [
        ("ab", False),
        ("<|end|>", True),
        ("cd", False),
        ("<|mask|>", True),
        ("\u0301", False),
        ("e", False),
    ]
    _is_whole(typed)


def test_a_word_that_the_tokenizer_does_not_know_is_a_word() -> None:
    found = _read(_minilm(), "a \U0001f9ff b")
    assert _shown(found) == ["a", "\U0001f9ff", "b"]
    unknown = found.scored[1].tokens[0]
    assert found.ids[unknown] == 100  # [UNK]


def test_blanks_that_are_tokens_are_shown_but_not_words() -> None:
    found = _read(_bytes(), "a  b\n")
    assert [word.position for word in found.words] == [0, None, None, 1, None]


_SCRAPS = [
    "the",
    " film",
    "[CLS]",
    "[UNK]",
    "<|end|>",
    "<|im_end|>",
    "  ",
    "\n",
    "'",
    "\u2019s",
    "e\u0301",
    "\u00e9",
    "\u0130",
]
_SCRAPS += [
    "\U0001f469\u200d\U0001f467",
    "\u65e5\u672c",
    "\u0939\u093f",
    "\u200d",
    "\u200b",
    "\xad",
    "\u3000",
    "\x00",
    "...",
]
_TEXTS = st.lists(st.sampled_from(_SCRAPS) | st.characters(codec="utf-8"), max_size=25).map("".join)


def _holds(which: Splitter, text: str) -> None:
    try:
        found = _read(which, text)
    except InputError:  # it has no word, so that nothing but blanks and special tokens is read from it
        read = which.backend.encode(text, add_special_tokens=False)
        shown = {text[first:last].strip() for first, last in read.offsets}
        assert shown <= {"", *which.special.values()}
        return
    _is_whole(found)
    assert list(found.ids) == which.split(text)
    assert found.scored


@settings(max_examples=250, deadline=None)
@given(_TEXTS)
@example("[MASK]\u0301")
@example("e\u0301\u200d[SEP]\u0301")
def test_any_text_is_split_into_words_of_an_encoder(text: str) -> None:
    _holds(_minilm(), text)


@settings(max_examples=150, deadline=None)
@given(_TEXTS)
def test_any_text_is_split_into_words_of_bytes(text: str) -> None:
    _holds(_bytes(), text)


@needs_decoder
@settings(max_examples=100, deadline=None)
@given(_TEXTS)
@example("<|im_end|>\u0301")
def test_any_text_is_split_into_words_of_the_offline_decoder(text: str) -> None:
    _holds(_smollm2(), text)


# Bad input


@pytest.mark.parametrize("text", ["", "  \n", "[CLS] [SEP]", "\x00\xad", "[PAD]"])
def test_a_text_without_a_word_is_refused(text: str) -> None:
    with pytest.raises(
        InputError, match=r"^text must have a word at least, got none: special tokens and blanks do not"
    ):
        _read(_minilm(), text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (3, "text must be a string, got int: give one text at a time"),
        (["a"], "text must be a string, got list: give one text at a time"),
        (b"a", "text must be a string, got bytes: give one text at a time"),
        (None, "text must be a string, got NoneType: give one text at a time"),
        ("ab \ud83d c", "text must be valid unicode, got half a character at 3: correct it"),
    ],
)
def test_what_is_no_text_is_refused(text: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        _read(_minilm(), text)
    assert str(caught.value) == message


@pytest.mark.parametrize("position", [-1, 4, 1.0, "hate", None, True])
def test_a_position_that_is_not_there_lists_the_words(position: Any) -> None:
    with pytest.raises(InputError) as caught:
        _read(_minilm(), "I love her smile").word(position)
    said = f"word must be a position from 0 to 3 or a word of the text, got {position!r}"
    assert str(caught.value) == f"{said}: 0 I, 1 love, 2 her, 3 smile"


def test_positions_may_be_integers_of_any_kind_and_long_lists_are_cut() -> None:
    found = _read(_minilm(), "I love her smile")
    assert found.word(np.int64(1)) is found.word(torch.tensor(1)) is found.word(1)
    with pytest.raises(InputError, match=r"from 0 to 99 or a word of the text, got 100: 0 a, .*, 29 a, \.\.\.$"):
        _read(_minilm(), "a " * 100).word(100)


def test_a_word_may_be_named_as_it_is_written_where_it_stands_once() -> None:
    found = _read(_minilm(), "The film is the best of films, IT is")
    for said, place in (("film", 1), ("best", 4), ("it", 8), ("The", 0), ("the", 3), ("FILMS", 6), (",", 7)):
        assert found.word(said).position == place
    for said, places in (("is", "2, 9"), ("THE", "0, 3")):
        with pytest.raises(InputError) as caught:
            found.word(said)
        assert str(caught.value) == f"word must occur once in the text, got {said!r} at {places}: give a position"


# Texts that are too long


def test_a_text_that_is_too_long_is_refused_with_the_limit() -> None:
    with pytest.raises(InputError) as caught:
        _read(_bytes(8), "a b c d e")
    expected = "the text must have at most 8 tokens, which is all that small reads, got 9: "
    assert str(caught.value) == expected + "shorten it, or ask for it to be cut"
    assert _read(_bytes(9), "a b c d e").cut == 0


def test_a_text_is_cut_when_asked_and_keeps_what_closes_it(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    backend = tiny.write_tokenizer(tmp_path, tiny.PIECES, "[CLS] $A [SEP]")
    which = tokenizer.from_object(backend, 200, 8)
    with caplog.at_level(logging.WARNING):
        found = _read(which, "the film was boring and the film was long", cut=True)
    whole = which.split("the film was boring and the film was long")
    assert [record.getMessage() for record in caplog.records] == [
        f"{len(whole) - 8} of the text's {len(whole)} tokens are left out: small reads 8"
    ]
    assert list(found.ids) == [*whole[:7], whole[-1]]
    assert found.cut == len(whole) - 8
    assert [(word.text, word.tokens) for word in found.words] == [
        ("[CLS]", (0,)),
        ("the", (1,)),
        ("film", (2,)),
        ("was", (3,)),
        ("boring", (4, 5, 6)),
        ("[SEP]", (7,)),
    ]
    caplog.clear()
    assert _read(which, "the film", cut=True).cut == 0
    assert not caplog.records


def test_a_cut_chat_keeps_where_the_answer_begins(caplog: pytest.LogCaptureFixture) -> None:
    which = _bytes(12, TEMPLATE)
    found = _read(which, "a b c d e f", chat=True, cut=True)
    assert len(found.ids) == 12
    assert _shown(found) == ["a", "b", "c", "d"]
    assert [word.text for word in found.words[-3:]] == ["<|end|>", "\u010a", "<|assistant|>"]
    assert len(caplog.records) == 1


@pytest.mark.parametrize("positions", [2, 4])
def test_a_chat_that_leaves_no_room_for_a_word_is_refused(positions: int) -> None:
    with pytest.raises(InputError) as caught:
        _read(_bytes(positions, TEMPLATE), "a b", chat=True, cut=True)
    expected = (
        f"the {positions} tokens that small reads must have a word, got none: "
        "use a shorter chat template, or a model that reads more tokens"
    )
    assert str(caught.value) == expected


# Chats


def test_a_chat_has_words_where_the_user_speaks_only() -> None:
    found = _read(_bytes(1000, TEMPLATE), " the end\n", chat=True)
    assert found.text == "<|user|>\nthe end<|end|>\n<|assistant|>"
    assert found.framed
    _is_whole(found)
    assert [(word.text, word.start) for word in found.scored] == [("the", 9), ("end", 13)]
    assert len(found.ids) == sum(len(word.tokens) for word in found.scored) + 6
    assert [found.span(word) for word in found.scored] == [(1, 4), (5, 8)]  # in " the end\n"
    assert {found.span(word) for word in found.words if word.special} == {(0, 0)}


def test_words_of_the_template_are_not_measured_though_they_are_words() -> None:
    framed = _bytes(1000, "You are kind. {{ messages[0].content }} Answer:")
    found = _read(framed, "are you kind", chat=True)
    assert _shown(found) == ["are", "you", "kind"]
    assert found.scored[0].start == len("You are kind. ")


def test_a_model_without_a_template_says_so(tmp_path: Path) -> None:
    model = plain.with_words("bert", tmp_path)
    with pytest.raises(InputError, match=r"^the model must have a chat template, got none: give the text as it is$"):
        model.read("the film", chat=True)


@needs_decoder
def test_the_offline_decoder_has_a_chat() -> None:
    found = _read(_smollm2(), "Is the film good?", chat=True)
    assert _shown(found) == ["Is", "the", "film", "good", "?"]
    assert found.text.endswith("Is the film good?<|im_end|>\n<|im_start|>assistant\n")
    _is_whole(found)
