"""How the documentation is built: MyST pages, formulas as MathML, nothing from the network."""

from __future__ import annotations

import json
import re
import runpy
import sys
import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

_ROOT = Path(__file__).resolve().parents[1]
_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

_TICKS = re.compile(r"(`+[^`]*`+)")
_SIGNS = re.compile(r"([|*])")

sys.path.insert(0, str(_ROOT / "src"))

project = _PROJECT["name"]
author = "The wordsway authors"
project_copyright = author
release = _PROJECT["version"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
nitpicky = False
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown", ".ipynb": "markdown"}  # notebooks become MyST when they are read
html_theme = "furo"
html_title = f"{project} {release}"
html_static_path: list[str] = []
html_show_sphinx = False
autodoc_typehints = "none"  # the docstrings have them
suppress_warnings = ["ref.python"]  # a dimension T is not a member of that name
autodoc_member_order = "bysource"
templates_path: list[str] = []


def setup(app: Sphinx) -> None:
    """Formulas become MathML, which browsers draw by themselves; notebooks and the gallery become pages."""
    app.add_node(nodes.math, override=True, html=(_inline, None))
    app.add_node(nodes.math_block, override=True, html=(_display, None))
    app.connect("source-read", _rendered)
    app.connect("autodoc-process-docstring", _plain, priority=100)  # before sections are read


def _rendered(app: Sphinx, name: str, source: list[str]) -> None:
    """Turn a notebook into a page, and fill the gallery with a picture for each figure."""
    if name.startswith("notebooks/"):
        source[0] = runpy.run_path(str(_ROOT / "tools" / "notebooks.py"))["as_markdown"](json.loads(source[0]))
    if name == "gallery":
        source[0] += _gallery()


def _gallery() -> str:
    """Return a table with the picture and the title of each figure, three in a row."""
    from wordsway.figures import all_figures

    page = (_ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^\| \[([a-z0-9-]+)\]\((#[^)]*)\)", page, flags=re.MULTILINE))
    cells = [
        f"[![{figure.title}](images/{name}.png)](reproduction.md{sections[name]})<br>{name}: {figure.title}"
        for name, figure in all_figures().items()
    ]
    cells += [""] * (-len(cells) % 3)
    rows = [f"| {' | '.join(cells[start : start + 3])} |" for start in range(0, len(cells), 3)]
    return "\n".join(["", "| | | |", "|---|---|---|", *rows, ""])


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _display(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>\n')
    raise nodes.SkipNode


def _plain(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text: |x| is a norm, and a star multiplies."""
    lines[:] = [
        "".join(part if part.startswith("`") else _SIGNS.sub(r"\\\1", part) for part in _TICKS.split(line))
        for line in lines
    ]
