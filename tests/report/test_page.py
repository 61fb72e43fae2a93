"""The page of results: one sound HTML document that escapes every text, needs no network, and fits a phone."""

import base64
import dataclasses
import html
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wordsway.errors import InputError
from wordsway.report.page import Check, Picture, Section, page, verdict

VOID = {"meta", "link", "img", "br", "hr"}
WORDS = {True: "✓ holds", False: "✗ does not hold", None: "? cannot tell"}


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


PICTURE = Picture(_svg("#fff"), _svg("#000"), "two falling lines")
SECTION = Section(
    name="fig2-rf",
    title="Random features",
    about="What it is.\n\nWhat to look for.",
    picture=PICTURE,
    checks=[Check("it falls", "slope -0.5", True)],
    facts=[("scale", "quick"), ("trials", "4")],
    table=[{"map": "rf", "n": 20 * k, "mean": 0.123456, "ceiling": None} for k in range(1, 31)],
    command="wordsway reproduce fig2-rf",
    files=["fig2-rf.png", "data/fig2-rf.csv"],
    note="3 trials failed",
)
SECTIONS = [
    SECTION,
    dataclasses.replace(SECTION, name="fig3-raf", title="Attention", checks=[Check("it stays", "0.3", False)], note=""),
    dataclasses.replace(SECTION, name="bare", title="Bare", picture=None, checks=[], facts=[], table=[], files=[]),
]


class Document(HTMLParser):
    """What a page holds, read strictly: every tag that opens is closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs)
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def values(self, attribute: str) -> list[str]:
        return [attributes[attribute] for _, attributes in self.tags if attribute in attributes]


def _rows(text: str, table: int) -> list[list[str]]:
    """The cells of one of the tables of a page."""
    body = re.findall(r"<table.*?</table>", text, re.DOTALL)[table]
    lines = re.findall(r"<tr>(.*?)</tr>", body)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line) for line in lines]
    return [[html.unescape(re.sub(r"<[^>]*>", "", cell)) for cell in line] for line in cells]


# The document


def test_the_document_is_sound() -> None:
    document = Document(page("Title", "Lead", SECTIONS, "Footer"))
    assert document.all("html") == [{"lang": "en"}]
    assert document.all("meta")[0] == {"charset": "utf-8"}
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in document.all("meta")
    assert [len(document.all(tag)) for tag in ("title", "h1", "main", "h2", "script")] == [1, 1, 1, 3, 0]
    assert all(attributes.get("scope") in {"row", "col"} for attributes in document.all("th"))
    assert all(attributes["alt"] for attributes in document.all("img"))
    ids = document.values("id")
    assert ids == [section.name for section in SECTIONS]
    assert [value[1:] for value in document.values("href") if value.startswith("#")] == ids


def test_every_part_of_a_section_is_there() -> None:
    text = page("Title", "Lead", [SECTION])
    document = Document(text)
    for part in ("Random features", "What it is.", "What to look for.", "it falls", "slope -0.5", "scale", "quick"):
        assert part in document.texts
    assert {"wordsway reproduce fig2-rf", " 3 trials failed", "fig2-rf.csv", "The numbers (30 rows)"} <= {
        *document.texts
    }
    assert [value for value in document.values("href") if value[0] == "."] == ["./fig2-rf.png", "./data/fig2-rf.csv"]
    assert "<footer>" not in text


def test_parts_without_content_leave_nothing_behind() -> None:
    document = Document(page("Title", "Lead", [dataclasses.replace(SECTIONS[2], command="", about="", note="")]))
    assert not {"figure", "ul", "dl", "pre", "details"} & {tag for tag, _ in document.tags}


def test_without_sections_the_page_says_so() -> None:
    document = Document(page("Title", "Lead", []))
    assert "There are no figures yet." in document.texts
    assert document.all("table") == []


def test_every_text_is_escaped() -> None:
    def evil(place: str) -> str:
        return f"<script>{place}</script> & \"double\" 'single' &amp;"

    names = ["title", "about", "claim", "measured", "fact", "value", "key", "cell", "command", "note", "name"]
    section = Section(
        name=evil("name"),
        title=evil("title"),
        about=evil("about"),
        picture=Picture(PICTURE.light, PICTURE.dark, evil("alt")),
        checks=[Check(evil("claim"), evil("measured"), None)],
        facts=[(evil("fact"), evil("value"))],
        table=[{evil("key"): evil("cell")}],
        command=evil("command"),
        files=["<script>\"&'.png"],
        note=evil("note"),
    )
    document = Document(page(evil("page"), evil("lead"), [section], evil("footer")))
    assert document.all("script") == []
    told = {text.strip() for text in document.texts}
    assert {evil(name) for name in [*names, "page", "lead", "footer"]} <= told
    assert "<script>\"&'.png" in told
    assert [attributes["alt"] for attributes in document.all("img")] == [evil("alt")] * 2
    assert f"Numbers of {evil('title')}" in document.values("aria-label")
    assert document.values("href")[-1] == "./%3Cscript%3E%22%26%27.png"
    assert re.fullmatch(r"[\w.-]+", document.values("id")[0])


@pytest.mark.parametrize("file", ["javascript:alert(1)", "//example.org/x", "https://example.org/x"])
def test_links_stay_beside_the_page(file: str) -> None:
    link = Document(page("Title", "Lead", [dataclasses.replace(SECTION, files=[file])])).values("href")[-1]
    assert link.startswith("./")
    assert ":" not in link


def test_nothing_comes_from_elsewhere() -> None:
    text = page("Title", "Lead", SECTIONS, "Footer")
    document = Document(text)
    policy = {"http-equiv": "Content-Security-Policy"}
    assert {**policy, "content": "default-src 'none'; img-src data:; style-src 'unsafe-inline'"} in document.all("meta")
    assert all(re.match(r"data:|#|\./", value) for name in ("src", "href") for value in document.values(name))
    assert not re.search(r"https?:|url\(|@import|srcset", text)


def test_pictures_come_back_whole() -> None:
    images = Document(page("Title", "Lead", [SECTION])).all("img")
    for image, kind, svg in zip(images, ("light", "dark"), (PICTURE.light, PICTURE.dark), strict=True):
        head, data = image["src"].split(",")
        assert head == "data:image/svg+xml;base64"
        assert base64.b64decode(data).decode() == svg
        assert (image["class"], image["width"], image["height"]) == (kind, "845", "326")


@pytest.mark.parametrize("svg", ["", "<svg/>", '<svg width="100%" height="3"/>', '<svg line-width="3" height="2"/>'])
def test_pictures_without_a_size_have_none(svg: str) -> None:
    section = dataclasses.replace(SECTION, picture=Picture(svg, svg, "alt"))
    assert "width" not in Document(page("Title", "Lead", [section])).all("img")[0]


def test_names_must_tell_sections_apart() -> None:
    with pytest.raises(InputError, match="got fig2-rf twice"):
        page("Title", "Lead", [SECTION, SECTION])
    with pytest.raises(InputError, match="must not be empty"):
        page("Title", "Lead", [dataclasses.replace(SECTION, name="")])


# Verdicts and numbers


@pytest.mark.parametrize("outcomes", [(), *product([True, False, None], repeat=2), (True,), (None,), (False,)])
def test_one_failure_decides_and_one_doubt_leaves_it_open(outcomes: Sequence[bool | None]) -> None:
    checks = [Check("claim", "measured", holds) for holds in outcomes]
    expected = False if False in outcomes else None if None in outcomes or not outcomes else True
    assert verdict(checks) is expected
    line = _rows(page("Title", "Lead", [dataclasses.replace(SECTION, checks=checks)]), 0)[1]
    count = f"{outcomes.count(True)} of {len(outcomes)} hold" if outcomes else "\u2013"
    assert line == ["Random features", WORDS[expected], count]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.123456, "0.1235"),
        (np.float32(2.0), "2.000"),
        (12345.6, "1.235e+04"),
        (12345, "12345"),
        (np.int64(7), "7"),
        (None, "\u2013"),
        (True, "yes"),
        (False, "no"),
        ("rf", "rf"),
    ],
)
def test_cells(value: Any, text: str) -> None:
    assert _rows(page("T", "", [dataclasses.replace(SECTION, table=[{"key": value}])]), 1) == [["key"], [text]]


def test_rows_may_have_different_keys() -> None:
    rows = [{"a": 1, "b": "x"}, {"b": "y", "c": 2.5}]
    text = page("Title", "Lead", [dataclasses.replace(SECTION, table=rows)])
    assert _rows(text, 1) == [["a", "b", "c"], ["1", "x", "\u2013"], ["\u2013", "y", "2.500"]]
    assert [attributes.get("class") for attributes in Document(text).all("th")[-3:]] == ["number", None, "number"]


# Style


def _luminance(colour: str) -> float:
    parts = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_letters_stand_out_on_light_and_dark_pages() -> None:
    schemes = [dict(re.findall(r"--(\w+): (#\w{6})", block)) for block in page("T", "", []).split(":root {")[1:]]
    assert len(schemes) == 2
    for scheme in schemes:
        for ink, ground in product(("text", "muted", "link", "holds", "fails", "open"), ("back", "soft")):
            dark, light = sorted((_luminance(scheme[ink]), _luminance(scheme[ground])))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, ground)


def test_dark_is_for_screens_only() -> None:
    style = page("T", "", [])
    assert style.count("prefers-color-scheme") == style.count("@media screen and (prefers-color-scheme: dark)") == 2


# In a browser

# Shows the page, as it is, in a frame of a phone's width and in a wide one, and writes down what is to be seen.
HARNESS = """<!DOCTYPE html><meta charset="utf-8"><title>harness</title><link rel="icon" href="data:,">
<iframe style="width: 360px; height: 700px; border: 0" srcdoc="{page}"></iframe>
<iframe style="width: 1200px; height: 700px; border: 0" srcdoc="{page}"></iframe>
<pre id="found"></pre><script>
const seen = image => image.complete && image.naturalWidth > 0 && image.getBoundingClientRect().height > 50;
const look = page => ({{
  width: page.documentElement.scrollWidth,
  shown: [...page.images].filter(seen).map(image => image.className),
  least: Math.min(...[...page.images].filter(seen).map(image => image.getBoundingClientRect().width)),
  scrolls: [...page.querySelectorAll(".scroll")].map(part => part.scrollWidth > part.clientWidth),
}});
addEventListener("load", () => {{
  const pages = [...document.querySelectorAll("iframe")].map(frame => frame.contentDocument);
  for (const page of pages) page.querySelectorAll("details").forEach(part => part.open = true);
  document.getElementById("found").textContent = JSON.stringify(pages.map(look));
}});
</script>
"""


@dataclasses.dataclass(frozen=True)
class Visit:
    """A page opened in Chromium: its document, what it wrote to the console, and what it asked the network for."""

    dom: str
    console: list[str]
    requests: list[str]


def _visit(folder: Path, text: str, *options: str) -> Visit:
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("needs Chromium")
    (folder / "page.html").write_text(text, encoding="utf-8")
    quiet = ("background-networking", "component-update", "sync", "default-apps", "extensions", "dev-shm-usage", "gpu")
    done = subprocess.run(
        [
            *(browser, "--headless", "--no-sandbox", "--hide-scrollbars", *(f"--disable-{name}" for name in quiet)),
            *(f"--user-data-dir={folder / 'profile'}", f"--log-net-log={folder / 'net.json'}"),
            *("--no-first-run", "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--v=0"),
            *("--virtual-time-budget=2000", *options, "--dump-dom", (folder / "page.html").as_uri()),
        ],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    )
    log = json.loads((folder / "net.json").read_text(encoding="utf-8"))
    start = log["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"]
    asked = [event["params"] for event in log["events"] if event["type"] == start and "url" in event.get("params", {})]
    # The browser's own requests, which no switch stops entirely, have no page as their origin.
    requests = [params["url"] for params in asked if params.get("initiator") != "not an origin"]
    console = [line for line in done.stderr.splitlines() if re.search(r"\bCONSOLE\b", line)]
    return Visit(done.stdout, console, [url for url in requests if not url.startswith(("file:", "data:"))])


def _long_page() -> str:
    """All parts, with words that cannot be broken at a blank and more columns than a phone has room for."""
    long = "w" * 120
    wide = dataclasses.replace(
        SECTION,
        name="wide",
        title=long,
        about=long,
        picture=Picture(_svg("#fff", 950.4), _svg("#000", 950.4), long),
        checks=[Check(long, long, False)],
        facts=[(long, long)],
        table=[{f"column {k}": 0.5 for k in range(30)}],
        command=long,
        files=[f"{long}.png"],
        note=long,
    )
    return page(long, long, [*SECTIONS, wide], long)


def test_a_browser_has_nothing_to_complain_of(tmp_path: Path) -> None:
    visit = _visit(tmp_path, page("Title", "Lead", SECTIONS, "Footer"))
    assert "There are no figures" not in visit.dom
    assert 'id="fig3-raf"' in visit.dom
    assert (visit.console, visit.requests) == ([], [])


def test_the_browser_would_have_told(tmp_path: Path) -> None:
    text = page("Title", "Lead", SECTIONS).replace("<h1>", '<img src="https://example.org/x.png"><h1>')
    assert "Content Security Policy" in _visit(tmp_path, text).console[0]
    free = re.sub(r"<meta http-equiv=[^>]*>", "", text)
    assert _visit(tmp_path, free).requests == ["https://example.org/x.png"]


@pytest.mark.parametrize("kind", ["light", "dark"])
def test_figures_are_seen_and_a_phone_does_not_scroll_sideways(tmp_path: Path, kind: str) -> None:
    options = ["--blink-settings=preferredColorScheme=0"] if kind == "dark" else []
    visit = _visit(tmp_path, HARNESS.format(page=html.escape(_long_page())), *options)
    found = re.search(r'<pre id="found">(.+?)</pre>', visit.dom)
    assert found is not None
    phone, desk = json.loads(html.unescape(found[1]))
    assert (phone["width"], desk["width"]) == (360, 1200)
    assert phone["shown"] == desk["shown"] == [kind] * 3
    assert phone["least"] > 845 / 2  # letters large enough to read: wide pictures scroll within the page
    assert phone["scrolls"] == [False, False, True]
    assert (visit.console, visit.requests) == ([], [])
