"""The pages: examples print what follows them, every picture is shown, and every name exists."""

import contextlib
import dataclasses
import importlib
import io
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from wordsway.experiments.experiment import WORDS
from wordsway.figures import all_figures
from wordsway.maps import Response
from wordsway.maps.response import SearchHints
from wordsway.records import Record

DOCS = Path(__file__).resolve().parents[1] / "docs"
EXAMPLES = (
    "api.md",
    "guide.md",
    "word-sensitivity.md",
    "lazy-gaussian.md",
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


@pytest.mark.parametrize("path", sorted((DOCS / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_each_notebook_prints_what_is_stored_in_it(path: Path) -> None:
    tool = runpy.run_path(str(DOCS.parent / "tools" / "notebooks.py"))
    stored, executed = (json.loads(path.read_text(encoding="utf-8")) for _ in range(2))
    tool["execute"](executed)
    assert tool["texts"](executed) == tool["texts"](stored)
    assert any(output for cell in stored["cells"] for output in cell.get("outputs", ()))


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
    assert {name.removesuffix("-mpnet") for name in parts} == set(all_figures())
    for name, part in parts.items():
        rows = [line for line in part.splitlines() if line.startswith("| ")][1:]
        assert rows, name
        assert all(line.split(" | ")[-1].removesuffix(" |") in WORDS for line in rows), name
        text = " ".join(part.split())  # lines are wrapped anywhere
        command = rf"{name.removesuffix('-mpnet')} --scale \w+{' --model mpnet' if name.endswith('-mpnet') else ''}"
        assert re.search(rf"`wordsway reproduce {command}`: .* trials, .* of one core", text), name


def test_the_table_of_all_figures_agrees_with_their_sections() -> None:
    page = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    tool = runpy.run_path(str(DOCS.parent / "tools" / "reproduction.py"))
    assert tool["overview"](page) in page


def test_the_documentation_builds_without_a_warning_and_needs_no_network(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    pages = list(tmp_path.glob("*.html"))
    assert {path.name for path in pages} >= {path.with_suffix(".html").name for path in DOCS.glob("*.md")}
    for path in pages:
        addresses = re.findall(
            r"<(?:script|link|img|iframe)[^>]*(?:src|href)=[\"']([^\"']*)", path.read_text(encoding="utf-8")
        )
        assert addresses
        assert not [address for address in addresses if "//" in address], path.name
    assert "<math" in (tmp_path / "guide.html").read_text(encoding="utf-8")
    gallery = (tmp_path / "gallery.html").read_text(encoding="utf-8")
    assert set(re.findall(r'src="_images/([a-z0-9-]+)\.png"', gallery)) == set(all_figures())
    for path in (DOCS / "notebooks").glob("*.ipynb"):
        assert "<pre>" in (tmp_path / "notebooks" / f"{path.stem}.html").read_text(encoding="utf-8")


ARCHITECTURE = (DOCS / "architecture.md").read_text(encoding="utf-8")


def _resolve(name: str) -> object:
    """Return what a dotted name refers to: the longest part that is a module, and attributes after it."""
    parts = name.split(".")
    value: object = importlib.import_module(parts[0])
    for depth, part in enumerate(parts[1:], start=2):
        try:
            value = importlib.import_module(".".join(parts[:depth]))
        except ModuleNotFoundError:
            value = getattr(value, part)
    return value


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(wordsway\.[\w.]+)`", ARCHITECTURE))))
def test_a_name_on_the_page_of_the_architecture_exists(name: str) -> None:
    _resolve(name)


def test_the_files_on_the_page_of_the_architecture_exist() -> None:
    paths = re.findall(r"`((?:src|tests)/[\w/.]+)`", ARCHITECTURE)
    assert len(paths) > 5
    assert [path for path in paths if not (DOCS.parent / path).is_file()] == []


def _first_column(title: str) -> list[str]:
    """The names in the first column of the table with that title."""
    table = re.search(rf"^\| {re.escape(title)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", ARCHITECTURE, flags=re.MULTILINE)
    assert table is not None
    return [name for line in table[1].splitlines() for name in re.findall(r"`(\w+)`", line.split("|")[1])]


def test_the_tables_of_the_architecture_have_every_member_of_the_seam() -> None:
    members = {name for name in (*vars(Response), *Response.__annotations__) if not name.startswith("_")}
    assert set(_first_column("`Response`")) == members
    fields = [field.name for field in dataclasses.fields(SearchHints)]
    assert set(_first_column("`SearchHints`")) == set(fields)
    methods = {name for name, value in vars(Record).items() if callable(value) and not name.startswith("_")}
    assert set(_first_column("`Record`")) == methods


def test_the_packages_of_the_architecture_are_all_there_in_the_order_of_imports() -> None:
    package = DOCS.parent / "src" / "wordsway"
    names = _first_column("package")
    present = {path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert set(names) == present - {"__init__", "__main__"}
    shared = names.index("contexts")  # the modules before it use each other
    for path in package.rglob("*.py"):
        name = path.relative_to(package).parts[0].removesuffix(".py")
        if name in names[shared:]:
            imported = re.findall(r"from wordsway\.(\w+)", path.read_text(encoding="utf-8"))
            assert {other for other in imported if names.index(other) > names.index(name)} == set(), path
