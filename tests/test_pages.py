"""The pages with examples: each prints what it says, and every picture is there."""

import contextlib
import io
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from wordsway.figures import all_figures

DOCS = Path(__file__).resolve().parents[1] / "docs"
EXAMPLES = (
    "guide.md",
    "word-sensitivity.md",
    "revealed.md",
    "generalization.md",
    "smoothness.md",
    "mean-field.md",
    "kernels.md",
    "transformers.md",
)


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_prints_what_follows_it(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    kinds, blocks = zip(*re.findall(r"```(python|text)\n(.*?)```", text, flags=re.DOTALL), strict=True)
    assert kinds == ("python", "text") * (len(kinds) // 2)
    for code, expected in zip(blocks[::2], blocks[1::2], strict=True):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, name, "exec"), {})
        assert printed.getvalue() == expected


def test_every_picture_is_there_and_shown() -> None:
    shown = set()
    for page in DOCS.glob("*.md"):
        for name in re.findall(r"!\[[^]]*\]\(([^)]*)\)", page.read_text(encoding="utf-8")):
            assert (DOCS / name).read_bytes().startswith(b"\x89PNG")
            shown.add(name)
    assert shown == {f"images/{path.name}" for path in (DOCS / "images").iterdir()}


def test_every_figure_is_in_the_reproduction_table_with_a_verdict_for_each_claim() -> None:
    page = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    parts = dict(re.findall(r"<!-- (\S+) -->\n(.*?)<!-- end -->", page, flags=re.DOTALL))
    assert set(parts) == set(all_figures())
    for name, part in parts.items():
        rows = [line for line in part.splitlines() if line.startswith("| ")][1:]
        assert rows, name
        assert all(line.endswith(("| holds |", "| does not hold |", "| cannot tell |")) for line in rows), name
        said = " ".join(part.split())  # lines are wrapped anywhere
        assert re.search(rf"`wordsway reproduce {name} --scale \w+`: .* trials, .* of one core", said), name


def test_the_table_of_all_figures_says_what_their_sections_say() -> None:
    page = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    tool = runpy.run_path(str(DOCS.parent / "tools" / "reproduction.py"))
    assert tool["summary"](page) in page


def test_the_documentation_builds_without_a_warning_and_asks_nothing_of_the_network(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    pages = list(tmp_path.glob("*.html"))
    assert {path.name for path in pages} >= {path.with_suffix(".html").name for path in DOCS.glob("*.md")}
    for path in pages:
        asked = re.findall(
            r"<(?:script|link|img|iframe)[^>]*(?:src|href)=[\"']([^\"']*)", path.read_text(encoding="utf-8")
        )
        assert asked
        assert not [address for address in asked if "//" in address], path.name
    assert "<math" in (tmp_path / "guide.html").read_text(encoding="utf-8")
