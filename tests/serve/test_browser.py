"""The page in a real browser: type, click a word, apply a replacement, see the flip, compare, save."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from serve.server import Server, running

pytest.importorskip("playwright")
from playwright.sync_api import Browser, Page, expect, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if CHROMIUM is None and not os.environ.get("CI"):
    pytest.skip("needs Chromium", allow_module_level=True)

TEXT = "The film was not good, but the acting was brilliant."
HOSTILE = '<img src=x onerror="document.title=1"> "quotes" & <script>document.title=2</script> good \u202e film'


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    opened = browser.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    opened.goto(server.url)
    yield opened
    opened.close()
    assert [problem for problem in problems if "400 (Bad Request)" not in problem] == []


def _wait(page: Page, place: str, pattern: str) -> None:
    expect(page.locator(place)).to_have_text(re.compile(pattern), timeout=60000)


def _measure(page: Page, text: str) -> None:
    page.fill("#text", text)
    page.click("text=Measure >> nth=0")
    _wait(page, "#status", "^done")


def test_a_word_is_replaced_and_the_prediction_flips(page: Page) -> None:
    _measure(page, TEXT)
    assert "predicts negative" in page.inner_text("#prediction")
    page.click("#strip button:has-text('good')")
    page.wait_for_selector("#swaps li .flip", timeout=30000)
    item = page.locator("#swaps li", has=page.locator(".flip")).first
    word = item.locator("b").inner_text()
    item.locator("button").click()
    _wait(page, "#status", "flips")
    assert word in page.input_value("#text")
    assert "predicts positive" in page.inner_text("#prediction")
    page.click("#undo")
    _wait(page, "#status", "^done")
    assert page.input_value("#text") == TEXT


def test_two_texts_are_compared(page: Page) -> None:
    _measure(page, TEXT)
    page.fill("#other", TEXT.replace("good", "bad"))
    page.select_option("#layer", "3")
    page.click("text=Compare >> nth=-1")
    page.wait_for_selector(".matrix td[title*='good → good']", timeout=30000)
    assert page.locator(".side").count() == 2
    page.hover(".matrix td[title*='good → film']")
    assert page.inner_text("#reading").startswith("good → film: 0.")
    page.select_option("#head", "5")
    page.click("#comparison button")
    _wait(page, "#status", "^compared$")
    assert [one.inner_text().split()[0] for one in page.locator(".decision").all()] == ["negative", "positive"]


def test_layers_are_drawn(page: Page) -> None:
    _measure(page, TEXT)
    page.click("#by-layer")
    expect(page.locator("#layers tbody tr")).to_have_count(6, timeout=60000)


def test_the_link_restores_the_page(page: Page, browser: Browser) -> None:
    _measure(page, "A good film.")
    other = browser.new_page()
    other.goto(page.url)
    _wait(other, "#status", "^done")
    assert other.input_value("#text") == "A good film."
    other.close()


def test_a_page_is_saved(page: Page, tmp_path: Path) -> None:
    _measure(page, HOSTILE)
    with page.expect_download(timeout=60000) as download:
        page.click("#save")
    path = tmp_path / "saved.html"
    download.value.save_as(path)
    saved = path.read_text(encoding="utf-8")
    assert "onerror=&#34;" in saved
    assert "<script" not in saved


def test_hostile_text_stays_text(page: Page) -> None:
    _measure(page, HOSTILE)
    title = page.title()
    page.click("#strip button:has-text('good')")
    page.wait_for_selector("#swaps li", timeout=30000)
    page.fill("#other", HOSTILE)
    page.click("#comparison button")
    page.wait_for_selector(".side", timeout=30000)
    assert page.title() == title
    assert page.locator("main img, main script").count() == 0


def test_the_keyboard_suffices(page: Page) -> None:
    page.focus("#text")
    page.keyboard.press("Control+Enter")
    _wait(page, "#status", "^done")
    page.focus("#strip button")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector("#swaps li", timeout=30000)
    assert "film" in page.inner_text("#word-title")
    assert page.get_attribute("#strip button >> nth=1", "aria-pressed") == "true"


@pytest.mark.parametrize("width", [420, 1600])
def test_nothing_is_wider_than_the_screen(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    _measure(page, TEXT + " " + "Supercalifragilistic" * 8)
    page.fill("#other", TEXT)
    page.click("#comparison button")
    page.wait_for_selector(".side", timeout=30000)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_wrong_text_and_a_dead_server_are_reported(browser: Browser) -> None:
    with running("--model", "minilm") as server:
        page = browser.new_page()
        page.goto(server.url)
        page.fill("#text", "   ")
        page.click("text=Measure >> nth=0")
        _wait(page, "#error", ".")
        page.fill("#text", "a good film and a long one " * 8)
        page.click("text=Measure >> nth=0")
        page.wait_for_selector("#strip button", timeout=60000)
        server.process.kill()
        server.process.wait()
        _wait(page, "#error", "still running")
        page.close()
