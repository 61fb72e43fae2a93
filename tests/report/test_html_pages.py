"""The pages of figures and of a text: valid documents that escape all text, need no network, and fit a phone."""

import base64
import html
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from report.documents import Document, frames, visit
from wordsway.experiments.experiment import Verdict, tally
from wordsway.experiments.texts import Options, TextStudy
from wordsway.figures import SOURCES, all_figures
from wordsway.memory import ResourceUsage
from wordsway.models import load
from wordsway.models.heat import Piece, heat_strip, pieces
from wordsway.models.layers import LayerProfile
from wordsway.models.profile import Replacement, TextProfile, WordEffect
from wordsway.models.swaps import Swap, Swaps
from wordsway.report.pages import figures_page, picture, text_page, texts_page

HOSTILE = [
    "<script>alert(1)</script> & \"quotes\" 'too' &amp;",
    '"><img src=x onerror=alert(1)>',
    "</style></title><b>",
]
BADGES = {
    Verdict("claim", "measured", True): "✓ holds",
    Verdict("claim", "measured", False, weaker="half of it"): "≈ weaker than the source",
    Verdict("claim", "measured", False): "✗ does not hold",
    Verdict("claim", "measured", None): "? cannot tell",
    Verdict("claim", "measured", True, check=True): "✓ check of the code passes",
    Verdict("claim", "measured", False, check=True): "✗ check of the code fails",
    Verdict("claim", "measured", None, check=True): "? check of the code: cannot tell",
}


def _svg(colour: str, width: float = 633.6) -> str:
    """An SVG document with the header that matplotlib writes."""
    return (
        '<?xml version="1.0" encoding="utf-8" standalone="no"?>\n<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN"\n'
        '  "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">\n'
        f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" width="{width}pt" height="244.8pt" '
        f'viewBox="0 0 {width} 244.8" xmlns="http://www.w3.org/2000/svg" version="1.1">\n'
        f'<style type="text/css">*{{stroke-linejoin: round}}</style>\n<rect width="300" height="200" fill="{colour}"/>'
        "<text>é ∝ n</text>\n</svg>\n"
    )


def _pictures(width: float = 633.6) -> list[dict[str, Any]]:
    return [picture(_svg("#fff", width), "light"), picture(_svg("#000", width), "dark")]


FIGURE: dict[str, Any] = {
    "name": "fig2-rf",
    "title": "Random features",
    "about": "What it is.\n\nWhat to look for.",
    "command": "wordsway reproduce fig2-rf",
    "facts": {"scale": "quick", "trials": "4"},
    "verdicts": [Verdict("it falls", "exponent -0.5", True)],
    "assumptions": [],
    "outcome": "holds",
    "table": [{"map": "rf", "n": 20 * k, "mean": 0.123456, "ceiling": None} for k in range(1, 31)],
    "pictures": _pictures(),
    "files": ["fig2-rf.png", "fig2-rf.csv"],
    "note": "3 trials failed",
}
BARE: dict[str, Any] = {"pictures": [], "verdicts": [], "outcome": "cannot tell", "facts": {}, "table": [], "files": []}
FIGURES = [
    FIGURE,
    FIGURE
    | {"name": "fig3-raf", "verdicts": [Verdict("it stays", "0.3", False)], "outcome": "does not hold", "note": ""},
    FIGURE | {"name": "bare", "title": "Bare"} | BARE,
]


def _everywhere(text: str) -> dict[str, Any]:
    """A figure with one text in every place that shows text."""
    return FIGURE | {
        **dict.fromkeys(("title", "about", "command", "note"), text),
        "facts": {text: text},
        "verdicts": [Verdict(text, text, None)],
        "assumptions": [{"theorem": text, "assumption": text, "measured": text, "met": None}],
        "table": [{text: text}],
        "files": [text],
    }


def _text_page(word: str = "good", swaps: bool = True, layers: tuple[float, ...] = (0.25, 1.0, 0.0)) -> str:
    """The page of a made-up study with one word in every place that shows text."""
    read = load("minilm").read("x")
    cost = ResourceUsage()
    words = (replace(read.scored[0], text=word), read.words[-1])
    effects = (
        WordEffect(words[0], -0.5, 0.7, 0.1, 0.6, 6, (Replacement(word, -0.9, word, True),), True, True),
        WordEffect(words[1], None, None, None, None, 0, (), False, False),
    )
    profile = TextProfile(word, read, word, True, word, 0.8, effects, 20, cost)
    swap = Swap(words[0], word, 0.7, True, word, None, 0, word)
    found = Swaps(word, read, words[0], word, True, 0.8, word, (swap,), 9, 9, None, cost)
    by_layer = LayerProfile(word, read, words[0], 0.9, torch.tensor(layers), torch.zeros(1)) if layers else None
    return text_page(TextStudy(profile, (found,) if swaps else (), by_layer), Options())


# Both pages


@pytest.mark.parametrize("content", [figures_page(FIGURES), figures_page([]), _text_page()])
def test_documents_are_valid_and_complete_in_themselves(content: str) -> None:
    document = Document(content)
    assert document.all("html") == [{"lang": "en"}]
    assert document.all("meta")[0] == {"charset": "utf-8"}
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in document.all("meta")
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    assert {"http-equiv": "Content-Security-Policy", "content": policy} in document.all("meta")
    assert [len(document.all(tag)) for tag in ("title", "h1", "main", "script", "iframe")] == [1, 1, 1, 0, 0]
    assert all(attributes.get("scope") in {"row", "col", "rowgroup"} for attributes in document.all("th"))
    assert all(attributes["alt"] for attributes in document.all("img"))
    assert all(re.match(r"data:|#|\./", value) for name in ("src", "href") for value in document.values(name))
    assert not re.search(r"https?:|url\(|@import|srcset", content)


@pytest.mark.parametrize("evil", [*HOSTILE, "שלום 家 👩"])
def test_all_text_is_escaped(evil: str) -> None:
    for make in (lambda text: figures_page([_everywhere(text)]), _text_page):
        found, known = Document(make(evil)), Document(make("good"))
        assert [tag for tag, _ in found.tags] == [tag for tag, _ in known.tags]  # no text becomes a tag
        assert [list(attributes) for _, attributes in found.tags] == [list(attributes) for _, attributes in known.tags]
        assert sum(text.count(evil) for text in found.texts) >= 9
    document = Document(figures_page([_everywhere(evil)]))
    assert [attributes["alt"] for attributes in document.all("img")] == [f"{evil}: {evil}"] * 2
    assert f"Numbers of {evil}" in document.values("aria-label")


def _luminance(colour: str) -> float:
    parts = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_text_has_enough_contrast_on_light_and_dark_pages_and_dark_is_for_screens_only() -> None:
    style = figures_page([])
    assert style.count("prefers-color-scheme") == style.count("@media screen and (prefers-color-scheme: dark)") == 2
    schemes = [dict(re.findall(r"--(\w+): (#\w{6})", block)) for block in style.split(":root {")[1:]]
    assert len(schemes) == 2
    for scheme in schemes:
        for ink, ground in product(("text", "muted", "link", "holds", "fails", "open"), ("back", "soft")):
            dark, light = sorted((_luminance(scheme[ink]), _luminance(scheme[ground])))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, ground)


# Figures


def test_every_part_of_a_figure_is_shown() -> None:
    content = figures_page([FIGURE])
    document = Document(content)
    parts = {"Random features", "What it is.", "What to look for.", "it falls", "exponent -0.5", "scale", "quick"}
    parts |= {"wordsway reproduce fig2-rf", " 3 trials failed", "fig2-rf.csv", "The numbers (30 rows)"}
    assert parts <= {*document.texts}
    assert [value for value in document.values("href") if value[0] == "."] == ["./fig2-rf.png", "./fig2-rf.csv"]
    assert '<th scope="col">map</th><th scope="col" class="number">n</th>' in content
    assert (
        '<td>rf</td><td class="number">600</td><td class="number">0.1235</td><td class="number">\u2013</td>' in content
    )
    ids = Document(figures_page(FIGURES)).values("id")
    assert ids == [figure["name"] for figure in FIGURES]
    assert [link[1:] for link in Document(figures_page(FIGURES)).values("href") if link[0] == "#"] == ids
    scrolls = [attributes for _, attributes in document.tags if attributes.get("role") == "region"]
    assert [part["tabindex"] for part in [*scrolls, *document.all("figure")]] == ["0", "0"]


def test_parts_without_content_leave_nothing_behind() -> None:
    document = Document(figures_page([FIGURE | BARE | {"command": "", "about": "", "note": ""}]))
    assert not {"figure", "ul", "dl", "pre", "details"} & {tag for tag, _ in document.tags}
    empty = Document(figures_page([]))
    assert "There are no figures yet." in empty.texts
    assert empty.all("table") == []


def test_links_stay_beside_the_page() -> None:
    files = ["javascript:alert(1)", "//example.org/x", "https://example.org/x"]
    links = Document(figures_page([FIGURE | {"files": files}])).values("href")[-3:]
    assert all(link.startswith("./") and ":" not in link for link in links)


@pytest.mark.parametrize("verdict", BADGES)
def test_verdicts_are_words_and_symbols(verdict: Verdict) -> None:
    other = Verdict("claim", "measured", True, source="the paper")
    content = figures_page([FIGURE | {"verdicts": [verdict, other], "outcome": verdict.word}])
    badges = [
        re.sub(r"<[^>]*>", "", badge) for badge in re.findall(r'<span class="badge.*?</span>[^<]*</span>', content)
    ]
    assert badges == [BADGES[verdict]] * 3 + ["✓ holds"]
    counts = tally([verdict.word, "holds"])
    assert f"<td>{counts}</td>" in content
    assert f"<strong>{counts}</strong>" in content
    assert f'<p class="measured">{verdict.details}</p>' in content
    assert '<p class="measured">Source: the paper</p>' in content


def test_assumptions_follow_the_verdicts() -> None:
    row = {"theorem": "Theorem 5.1", "assumption": "d > n", "measured": "d = 3 against n = 4"}
    rows = [row | {"met": met} for met in (True, False, None)]
    content = figures_page([FIGURE | {"verdicts": [], "assumptions": rows}])
    words = re.findall(r'<li><span class="badge.*?</span>\s*([^<]*)</span>', content)
    assert words == ["met", "not met", "cannot tell"]
    assert content.count("<p>Theorem 5.1: d &gt; n</p>") == content.count("d = 3 against n = 4") == 3


def test_pictures_are_embedded_whole() -> None:
    images = Document(figures_page([FIGURE])).all("img")
    for image, kind, colour in zip(images, ("light", "dark"), ("#fff", "#000"), strict=True):
        head, data = image["src"].split(",")
        assert head == "data:image/svg+xml;base64"
        assert base64.b64decode(data).decode() == _svg(colour)
        assert (image["class"], image["width"], image["height"]) == (kind, "845", "326")


@pytest.mark.parametrize("svg", ["", "<svg/>", '<svg width="100%" height="3"/>', '<svg line-width="3" height="2"/>'])
def test_pictures_without_a_size_have_none(svg: str) -> None:
    document = Document(figures_page([FIGURE | {"pictures": [picture(svg, "light")]}]))
    assert "width" not in document.all("img")[0]


# A text


def test_the_page_of_a_text_has_its_numbers() -> None:
    content = html.unescape(_text_page())
    for number in ("-0.500", "0.700", "0.10", "-0.900", "0.2500", "1.000"):
        assert number in content
    assert re.findall(r'<rect [^>]*width="([0-9.]+)%"', content) == ["15.00", "60.00", "0.00"]
    assert re.findall(r'class="bar" style="width: ([0-9.]+)%', content) == ["100.00", "0.00"]


def test_parts_of_a_text_that_were_not_measured_are_left_out() -> None:
    content = _text_page(layers=())
    assert not re.search('id="text-0-layers"', content)


def test_every_word_has_its_replacements_at_a_click() -> None:
    """A link of the word leads to them: those of its profile, or those of a search where there is one."""
    for swaps, effect, after in ((False, "-0.900", "-0.100"), (True, "+0.700", "1.50")):
        document = Document(_text_page(swaps=swaps))
        links = [one["href"] for one in document.all("a")]
        (replaced,) = [one for one in document.all("div") if one.get("class") == "replaced"]
        assert links == [f"#{replaced['id']}"] * 2  # in the strip and in the table
        shown = " ".join("".join(document.texts).split())
        assert f"{effect} good good 0.800 → {after} ✗ flips to good" in shown
        assert ("9 of 9 tried" in shown) == swaps
    assert ".replaced:target { display: block; }" in _text_page()


def test_the_page_of_several_texts_has_all_of_them() -> None:
    model, options = load("minilm-sentiment"), Options()
    studies = [TextStudy(options.measure(model, text), ()) for text in ("a <b>bad</b> film", "rain")]
    content = texts_page(studies, options, "films.txt")
    document = Document(content)
    assert [one["id"] for one in document.all("details")] == ["text-0", "text-1"]
    names = [one["id"] for one in document.all("div") if "id" in one]
    measured = [len([one for one in study.profile.words if one.typical is not None]) for study in studies]
    assert len(set(names)) == len(names) == sum(measured)
    assert measured[1] == 1
    assert {one["href"] for one in document.all("a")} == {f"#{name}" for name in names}
    assert "2 texts of films.txt; a word that was tried flips the prediction of" in content
    assert "<b>bad" not in content
    assert all(one["href"] for one in document.all("a"))


def test_a_strip_colours_measured_words_and_dims_special_tokens() -> None:
    made = [Piece("[CLS]", special=True), Piece("good", 1.0, "sensitivity 1.5"), Piece(".", 0.5, apart=False)]
    spans = Document(heat_strip(made)).all("span")
    strengths = [re.search(r"/ ([0-9.]+)\)", span["style"]) for span in spans]
    assert strengths[0] is None
    assert "opacity" in spans[0]["style"]
    assert strengths[1] is not None
    assert strengths[2] is not None
    assert float(strengths[1][1]) == 2 * float(strengths[2][1]) > 0
    assert [span.get("title") for span in spans] == [None, "sensitivity 1.5", None]


def test_a_strip_is_the_text_with_its_blanks_and_shares_of_the_largest_value() -> None:
    text = load("minilm").read("It's good, or  not.")
    assert "".join(Document(heat_strip(pieces(text, {}))).texts) == "[CLS] It's good, or not. [SEP]"
    text = load("minilm").read("not good")
    for values, shares in (((2.0, 4.0), [0.5, 1.0]), ((0.0, 0.0), [0.0, 0.0])):
        found = {word.tokens: (value, "") for word, value in zip(text.scored, values, strict=True)}
        assert [piece.share for piece in pieces(text, found)] == [None, *shares, None]


def test_a_profile_shows_itself_in_a_notebook_and_on_a_page() -> None:
    profile = load("minilm").profile("<b> good", ball=True, steps=2)
    shown = profile._repr_html_()
    masked = [f"{one.masked:.3g}" for one in profile.words if one.masked is not None]
    strip = "[CLS] <{}b{}>{} good{} [SEP]".format(*masked)
    assert strip in "".join(Document(shown).texts)
    assert shown.count("title=") == 4
    page = text_page(TextStudy(profile, (), None), Options(ball=True))
    assert "sensitivity" in page
    assert "minilm depends most on" in page
    assert profile.ball is not None
    assert "[CLS] <b> good [SEP]" in "".join(Document(profile.ball._repr_html_()).texts)


# In a browser


def test_the_browser_reports_violations_and_requests(tmp_path: Path) -> None:
    content = figures_page(FIGURES).replace("<h1>", '<img src="https://example.org/x.png"><h1>')
    assert "Content Security Policy" in visit(tmp_path, content).console[0]
    free = re.sub(r"<meta http-equiv=[^>]*>", "", content)
    assert visit(tmp_path, free).requests == ["https://example.org/x.png"]


@pytest.mark.parametrize("kind", ["light", "dark"])
def test_figures_are_seen_and_a_phone_does_not_scroll_sideways(tmp_path: Path, kind: str) -> None:
    """With words that cannot be broken at a blank, and more columns than fit on a phone."""
    table = [{f"column {k}": 0.5 for k in range(30)}]
    wide = _everywhere("w" * 120) | {"name": "wide", "pictures": _pictures(950.4), "table": table}
    options = ["--blink-settings=preferredColorScheme=0"] if kind == "dark" else []
    phone, desktop = frames(tmp_path, figures_page([*FIGURES, wide]), *options)
    assert (phone["width"], desktop["width"]) == (360, 1200)
    assert phone["shown"] == desktop["shown"] == [kind] * 3
    assert phone["least"] > 845 / 2  # large enough to read: wide pictures scroll within the page
    assert phone["scrolls"] == [False, False, True]


def test_the_page_of_a_text_fits_a_phone(tmp_path: Path) -> None:
    phone, desktop = frames(tmp_path, _text_page("w" * 120))
    assert (phone["width"], desktop["width"]) == (360, 1200)


def test_figures_are_grouped_by_their_sources_in_the_order_of_these() -> None:
    names = ["own", "ntk-flow", "fig2-rf", "fig1", "smooth-real"]
    document = Document(figures_page([FIGURE | {"name": name} for name in names]))
    assert document.values("id") == ["fig1", "fig2-rf", "smooth-real", "ntk-flow", "own"]
    assert [link for link in document.values("href") if link.startswith("#")] == [
        "#fig1",
        "#fig2-rf",
        "#smooth-real",
        "#ntk-flow",
        "#own",
    ]
    assert any("Castin" in text for text in document.texts)
    assert set(all_figures()) == {name for source in SOURCES for name in source.figures}
