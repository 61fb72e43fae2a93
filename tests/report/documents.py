"""HTML documents read strictly, and pages opened in Chromium."""

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

VOID = {"meta", "link", "img", "br", "hr"}


class Document(HTMLParser):
    """The tags, attributes and texts of a page, in which every tag that opens is closed in its turn."""

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

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def values(self, attribute: str) -> list[str]:
        return [attributes[attribute] for _, attributes in self.tags if attribute in attributes]


@dataclass(frozen=True)
class Visit:
    """A page opened in Chromium: its document, what it wrote to the console, and what it requested from the network."""

    dom: str
    console: list[str]
    requests: list[str]


def visit(folder: Path, text: str, *options: str) -> Visit:
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
    begun = [event["params"] for event in log["events"] if event["type"] == start and "url" in event.get("params", {})]
    # The browser's own requests, which no switch stops entirely, have no page as their origin.
    requests = [params["url"] for params in begun if params.get("initiator") != "not an origin"]
    console = [line for line in done.stderr.splitlines() if re.search(r"\bCONSOLE\b", line)]
    return Visit(done.stdout, console, [url for url in requests if not url.startswith(("file:", "data:"))])


# Shows the page, as it is, in a frame of a phone's width and in a wide one, and writes down what can be seen.
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


def frames(folder: Path, content: str, *options: str) -> list[dict[str, Any]]:
    """What is seen of a page on a phone and on a desktop; nothing may be wrong with it."""
    visited = visit(folder, HARNESS.format(page=html.escape(content)), *options)
    found = re.search(r'<pre id="found">(.+?)</pre>', visited.dom)
    assert found is not None
    assert (visited.console, visited.requests) == ([], [])
    shown: list[dict[str, Any]] = json.loads(html.unescape(found[1]))
    return shown
