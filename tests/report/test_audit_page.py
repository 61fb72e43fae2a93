"""The page of an audit: self-contained, escaped, and what its script makes of the rows in a real browser."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from wordsway.experiments.audit_records import Audit, AuditedText
from wordsway.records import number as format_number
from wordsway.report.audits import audit_page

HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> \U0001f600 film"
)


def _word(text: str, word: str, typical: float, leads: bool) -> dict[str, Any]:
    start = text.index(word)
    effects = {"masked": -0.2, "typical": typical, "typical_se": 0.01, "worst": -0.4, "replacement": "<i>bad</i>"}
    place = {"position": 0, "word": word, "start": start, "end": start + len(word)}
    return {**place, **effects, "becomes": "no", "flip": True, "leads": leads}


def _text(number: int, text: str, verdict: str, label: str | None, after: float | None) -> AuditedText:
    flips = verdict == "flips"
    words = [_word(text, "film", 0.3 + number / 10, True)]
    measured = {"prediction": "yes", "before": 0.9, "verdict": verdict, "word": "film" if flips else None}
    measured |= {"position": 0 if flips else None, "replacement": "<i>bad</i>" if flips else None, "after": after}
    measured |= {"becomes": "no" if flips else None, "nearest": None, "tried": 7, "total": 9, "passes": 12}
    return AuditedText(number, number + 1, text, label, {**measured, "signed": True, "words": words})


def _audit(against: Audit | None = None) -> Audit:
    texts = (
        _text(0, HOSTILE, "flips", "yes", 0.1),
        _text(1, "a safe film", "safe", "no", 0.7),
        _text(2, "an open film", "not found", None, 0.6),
        AuditedText(3, 4, "<b>broken</b>", "no", None, "the text must be <UTF-8>"),
    )
    return Audit("m<odel", "x & y.csv", "class", "near:30", 7, 0, texts, ("texts are from 'a<b>'",), against)


class _Elements(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href") or name.startswith("on")]


def test_the_page_is_one_file_and_all_text_in_it_is_escaped() -> None:
    page = audit_page(_audit(_audit()))
    elements = _Elements(page)
    assert elements.names.count("script") == 2  # the rows, and the script
    assert not {"img", "i", "b"} & set(elements.names)
    assert all(one.startswith("#") or one == "data:," for one in elements.addresses)
    assert page.count("<script>") == 1
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    (rows,) = re.findall(r'id="data">(.*?)</script>', page, flags=re.DOTALL)
    data = json.loads(rows)
    assert [one["text"] for one in data["texts"]] == [one.text for one in _audit().texts]
    assert data["texts"][0]["words"][0]["word"] == "film"


def test_the_page_has_the_numbers_of_the_record() -> None:
    page, audit = audit_page(_audit()), _audit()
    for share in audit.shares().values():
        assert f"{share.count} of {share.total}" in page
        assert f"{format_number(share.low, 3)} to {format_number(share.high, 3)}" in page
    assert "Clopper-Pearson, 95%" in page
    assert "Side by side" not in page
    assert "Side by side" in audit_page(_audit(_audit()))
    nothing = Audit("m", "x", "class", "near:30", None, 0, _audit().texts[3:])
    assert "None of 1 texts could be measured" in audit_page(nothing)


def _rendered(path: Path, fragment: str = "") -> str:
    """What a browser makes of the page, scripts included."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium is installed")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={path.parent / 'profile'}"]
    address = path.as_uri() + fragment
    return subprocess.run([*command, "--dump-dom", address], capture_output=True, text=True, timeout=120).stdout


def test_a_browser_shows_the_rows_and_the_words_of_a_text(tmp_path: Path) -> None:
    path = tmp_path / "audit.html"
    path.write_text(audit_page(_audit()), encoding="utf-8")
    page = _rendered(path)
    assert "1 to 4 of 4 texts" in page
    assert page.count('href="#text-3"') == 1  # the row of the text that was not measured
    assert "<title>How many decisions does one word flip?</title>" in page
    shown = _rendered(path, "#text-0")
    assert "<title>How many decisions does one word flip?</title>" in shown  # no text ran as a script
    detail = shown.split('id="detail"')[1]
    assert "<h2>Text 0</h2>" in detail
    assert "flips it to no: 0.900 \u2192 0.100." in detail
    assert re.search(r'<span [^>]*title="typical 0.300[^>]*>film</span>', detail)
    assert "&lt;img src=x" in detail
    assert '<div id="overview" hidden="">' in shown
    assert "Not measured: the text must be &lt;UTF-8&gt;" in _rendered(path, "#text-3")
