"""The page about a text: one sound document that escapes every text, runs nothing, and fits a phone."""

import html
import re
from html.parser import HTMLParser

import pytest

from wordsway.models import load
from wordsway.models.heat import Piece, heat_strip, pieces
from wordsway.report.text_page import Replacements, WordRow, text_page

HOSTILE = "<script>alert(1)</script> & \"quotes\" 'too'"
VOID = {"meta", "link"}
STRIP = [Piece("[CLS]", special=True), Piece("good", 1.0, "sensitivity 1.5"), Piece(".", 0.5, apart=False)]
ROWS = [WordRow(0, "good", 1, 1.5, 0.9, "converged"), WordRow(None, "[SEP]", 1, 0.3, 0.8, "stopped at the step limit")]


class Document(HTMLParser):
    """Tags with their attributes and all text of a page, in which every tag that opens is closed in its turn."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(content)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def _page(word: str = "good") -> str:
    return text_page(
        word,
        f"{word} moves it\n\nmost",
        [Piece(word, 1.0, word), *STRIP],
        [WordRow(0, word, 1, 1.5, 0.9, word), *ROWS],
        [Replacements(0, word, [(word, 0.7, word)])],
        [(0, 0.25), (1, 1.0), (2, 0.0)],
        word,
        [(word, word)],
        word,
    )


# The strip


def test_a_strip_colours_what_was_measured_and_dims_special_tokens() -> None:
    spans = [attributes for tag, attributes in Document(heat_strip(STRIP)).tags if tag == "span"]
    strengths = [re.search(r"/ ([0-9.]+)\)", str(span["style"])) for span in spans]
    assert strengths[0] is None
    assert "opacity" in str(spans[0]["style"])
    assert strengths[1] is not None
    assert strengths[2] is not None
    assert float(strengths[1][1]) > float(strengths[2][1]) > 0
    assert [span.get("title") for span in spans] == [None, "sensitivity 1.5", None]


def test_a_strip_is_the_text_with_its_blanks() -> None:
    text = load("minilm").read("It's good, or  not.")
    made = pieces(text, {})
    assert Document(heat_strip(made)).text == "[CLS] It's good, or not. [SEP]"
    assert all(piece.share is None for piece in made)


def test_shares_are_of_the_largest_value() -> None:
    text = load("minilm").read("not good")
    found = {word.tokens: (value, "") for word, value in zip(text.scored, (2.0, 4.0), strict=True)}
    assert [piece.share for piece in pieces(text, found)] == [None, 0.5, 1.0, None]
    nothing = {word.tokens: (0.0, "") for word in text.scored}
    assert [piece.share for piece in pieces(text, nothing)] == [None, 0.0, 0.0, None]


def test_a_profile_shows_itself_in_a_notebook() -> None:
    shown = load("minilm").profile("<b> good", steps=2)._repr_html_()
    assert Document(shown).text == "[CLS] <b> good [SEP]"
    assert shown.count("title=") == 4


# The page


@pytest.mark.parametrize(
    "word", ["good", HOSTILE, '"><img src=x onerror=alert(1)>', "</style></title><b>", "שלום 家 👩"]
)
def test_a_page_escapes_everything_and_loads_nothing(word: str) -> None:
    content = _page(word)
    found = Document(content)
    known = Document(_page())
    assert [tag for tag, _ in found.tags] == [tag for tag, _ in known.tags]  # no text becomes a tag
    assert [list(attributes) for _, attributes in found.tags] == [list(attributes) for _, attributes in known.tags]
    assert found.text.count(word) == 13 + 2 * (word == "good")  # which has two places of its own
    assert not {"script", "iframe", "img", "object", "base", "form"} & {tag for tag, _ in found.tags}
    assert not [attributes for _, attributes in found.tags if {"src", "onclick", "onerror"} & set(attributes)]
    assert [attributes["href"] for _, attributes in found.tags if "href" in attributes] == ["data:,"]
    assert "http" not in content.replace("http-equiv", "")
    assert "url(" not in content
    (policy,) = [a["content"] for _, a in found.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in str(policy)
    assert "script" not in str(policy)


def test_a_page_has_the_numbers() -> None:
    content = html.unescape(_page())
    for number in ("1.500", "0.9000", "0.3000", "0.7000", "0.2500", "1.000"):
        assert number in content
    assert re.findall(r'<rect [^>]*width="([0-9.]+)%"', content) == ["15.00", "60.00", "0.00"]
    assert "prefers-color-scheme: dark" in content
    assert "max-width: 40rem" in content


def test_parts_that_were_not_measured_are_left_out() -> None:
    content = text_page("a", "b", STRIP, ROWS)
    assert not re.search('id="(replacements|layers)"', content)
    assert "<footer>" not in content
    Document(content)
