"""A page of results in one HTML file: pictures, verdicts, numbers and commands; no script, nothing from the network."""

from __future__ import annotations

import base64
import numbers
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from wordsway.errors import InputError
from wordsway.report.terminal import number

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
DASH = "\u2013"
_LEAST = 0.55  # of a picture's own width: below that its letters are too small, and it scrolls sideways
# For each verdict its CSS class, its symbol and its words: it can be told without colours.
_VERDICTS = {
    True: ("holds", "✓", "holds"),
    False: ("fails", "✗", "does not hold"),
    None: ("open", "?", "cannot tell"),
}


@dataclass(frozen=True)
class Check:
    """A claim, what was measured for it, and whether it holds; None where that cannot be told."""

    claim: str
    measured: str
    holds: bool | None


@dataclass(frozen=True)
class Picture:
    """A figure as two SVG documents, for light and for dark screens, and as words for those who cannot see it."""

    light: str
    dark: str
    alt: str


@dataclass(frozen=True)
class Section:
    """One figure of the page.

    Attributes
    ----------
    name
        The short name, such as "fig2-rf"; the address of the section within the page.
    title, about
        The heading, and what is to be seen; empty lines divide paragraphs.
    picture
        The figure, or None where it could not be drawn.
    checks
        The claims that the figure is held against.
    facts
        Names and values that say how it was made, such as ("trials", "4").
    table
        Tidy rows with the numbers of the figure. A key that a row lacks is shown as a dash, as None is.
    command
        The command line that makes the figure.
    files
        Paths relative to the page, with "/" between their parts, offered for download.
    note
        A warning, such as "3 trials failed".
    """

    name: str
    title: str
    about: str
    picture: Picture | None
    checks: Sequence[Check]
    facts: Sequence[tuple[str, str]]
    table: Sequence[Mapping[str, Any]]
    command: str
    files: Sequence[str] = ()
    note: str = ""


def verdict(checks: Sequence[Check]) -> bool | None:
    """False if any check fails, else None if any is open or there is none, else True."""
    outcomes = [check.holds for check in checks]
    if False in outcomes:
        return False
    return None if None in outcomes or not outcomes else True


def page(title: str, lead: str, sections: Sequence[Section], footer: str = "") -> str:
    """The whole HTML document.

    Parameters
    ----------
    title
        The heading of the page and of its window.
    lead
        What the page is about; empty lines divide paragraphs, here and in `footer`.
    sections
        The figures in their order. Their names have to differ; without any, the page says so.
    footer
        Small print at the end.

    Returns
    -------
    str
        HTML to be written as UTF-8. Every text is escaped, and the page's own policy keeps a browser from loading or
        running anything that is not in it. Printing shows the light pictures and all numbers.
    """
    anchors = [_anchor(section.name) for section in sections]
    twice = sorted({anchor for anchor in anchors if anchors.count(anchor) > 1})
    if twice:
        raise InputError(f"names of sections must differ in letters, digits or ._-, got {twice[0]} twice; rename one")
    body = [_summary(sections), *map(_section, sections)] if sections else ["<p>There are no figures yet.</p>"]
    return document(title, f'<div class="lead">{paragraphs(lead)}</div>', body, footer)


def document(title: str, lead: str, body: Sequence[str], footer: str, style: str = "") -> str:
    """A whole page: its head, the title with HTML below it, parts of HTML, small print, and what `style` adds."""
    parts = [
        f"{_head(title, style)}\n<body>",
        f"<header>\n<h1>{escape(title)}</h1>\n{lead}\n</header>",
        *("<main>", *body, "</main>"),
        *([f"<footer>{paragraphs(footer)}</footer>"] if footer.strip() else []),
        "</body>\n</html>\n",
    ]
    return "\n".join(parts)


# Parts


def _head(title: str, more: str) -> str:
    lines = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escape(title)}</title>",
        '<link rel="icon" href="data:,">',  # or else a browser asks the server for one
        f"<style>{_STYLE}{more}</style>\n</head>",
    ]
    return "\n".join(lines)


def _summary(sections: Sequence[Section]) -> str:
    """Every figure with its verdict and how many of its checks hold."""
    lines = [
        '<table class="summary">\n<caption>The figures at a glance</caption>\n<thead><tr>'
        '<th scope="col">figure</th><th scope="col">verdict</th><th scope="col">checks</th></tr></thead>',
        "<tbody>",
    ]
    for section in sections:
        held = sum(check.holds is True for check in section.checks)
        lines.append(
            f'<tr><th scope="row"><a href="#{_anchor(section.name)}">{escape(section.title)}</a></th>'
            f"<td>{_badge(verdict(section.checks))}</td>"
            f"<td>{f'{held} of {len(section.checks)} hold' if section.checks else DASH}</td></tr>"
        )
    return "\n".join([*lines, "</tbody>\n</table>"])


def _section(section: Section) -> str:
    parts = [
        f'<section id="{_anchor(section.name)}">\n<header>\n<p class="name">{escape(section.name)}</p>',
        f'<h2>{escape(section.title)}</h2>\n<p class="verdict">{_badge(verdict(section.checks))}</p>\n</header>',
        paragraphs(section.about),
        f'<p class="note"><strong>Note:</strong> {escape(section.note)}</p>' if section.note else "",
        _figure(section.picture) if section.picture else "",
        _checks(section.checks),
        fact_list(section.facts),
        f"<pre><code>{escape(section.command)}</code></pre>" if section.command else "",
        _files(section.files),
        _numbers(section.table, section.title),
        "</section>",
    ]
    return "\n".join(filter(None, parts))


def _figure(picture: Picture) -> str:
    """Both pictures, of which the style shows the one that suits.

    A `picture` element would choose too, but Chromium keeps its choice when it prints from a dark screen.
    """
    return f"<figure>{_image(picture.light, picture.alt, 'light')}{_image(picture.dark, picture.alt, 'dark')}</figure>"


def _image(svg: str, alt: str, kind: str) -> str:
    """A picture with its room known beforehand, where the SVG tells its size."""
    source = f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
    size = _size(svg)
    room = f' width="{size[0]}" height="{size[1]}" style="min-width: {_LEAST * size[0]:.0f}px"' if size else ""
    return f'<img class="{kind}" src="{source}" alt="{escape(alt)}"{room}>'


def _checks(checks: Sequence[Check]) -> str:
    items = [
        f'<li>{_badge(check.holds)}<div><p>{escape(check.claim)}</p><p class="measured">{escape(check.measured)}</p>'
        "</div></li>"
        for check in checks
    ]
    return "\n".join(['<ul class="checks">', *items, "</ul>"]) if items else ""


def fact_list(facts: Sequence[tuple[str, str]]) -> str:
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    return f"<dl>{items}</dl>" if items else ""


def _files(files: Sequence[str]) -> str:
    """Links that stay beside the page, whatever the names are."""
    items = "".join(
        f'<li><a href="./{escape(quote(file))}" download>{escape(PurePosixPath(file).name)}</a></li>' for file in files
    )
    return f'<ul class="files" aria-label="Downloads">{items}</ul>' if items else ""


def _numbers(rows: Sequence[Mapping[str, Any]], title: str) -> str:
    """The rows behind a line that opens; columns in the order in which keys come up."""
    if not rows:
        return ""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    kinds = [' class="number"' if _is_numeric([row.get(key) for row in rows]) else "" for key in columns]
    head = "".join(f'<th scope="col"{kind}>{escape(str(key))}</th>' for key, kind in zip(columns, kinds, strict=True))
    lines = [
        "<tr>"
        + "".join(f"<td{kind}>{escape(_cell(row.get(key)))}</td>" for key, kind in zip(columns, kinds, strict=True))
        + "</tr>"
        for row in rows
    ]
    count = f"{len(rows)} row{'s' if len(rows) > 1 else ''}"
    return "\n".join(
        [
            f"<details>\n<summary>The numbers ({count})</summary>",
            f'<div class="scroll" role="region" tabindex="0" aria-label="Numbers of {escape(title)}">',
            f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>",
            *lines,
            "</tbody>\n</table>\n</div>\n</details>",
        ]
    )


# Pieces


def _badge(holds: bool | None) -> str:
    kind, symbol, words = _VERDICTS[holds]
    return f'<span class="badge {kind}"><span aria-hidden="true">{symbol}</span> {words}</span>'


def paragraphs(text: str) -> str:
    return "\n".join(f"<p>{escape(part.strip())}</p>" for part in re.split(r"\n\s*\n", text) if part.strip())


def _anchor(name: str) -> str:
    """The name as an id that needs no escaping in HTML or in an address."""
    anchor = re.sub(r"[^A-Za-z0-9._-]+", "-", name)
    if not anchor:
        raise InputError("the name of a section must not be empty, got ''; give it one such as fig2-rf")
    return anchor


def _size(svg: str) -> tuple[int, int] | None:
    """Width and height in CSS pixels, of which 4 are 3 points."""
    root = re.search(r"<svg\b[^>]*>", svg)
    found = [root and re.search(rf'\s{name}="([0-9.]+)(pt|px|)"', root[0]) for name in ("width", "height")]
    width, height = (round(float(side[1]) * (4 / 3 if side[2] == "pt" else 1)) if side else 0 for side in found)
    return (width, height) if width and height else None


def _is_numeric(values: Sequence[Any]) -> bool:
    return all(value is None or (isinstance(value, numbers.Real) and not isinstance(value, bool)) for value in values)


def _cell(value: Any) -> str:
    if value is None:
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
        return number(float(value))
    return str(value)


# Fonts are those of the reader's machine. Letters keep a contrast of 4.5 or more to what they stand on.
_STYLE = """
:root {
  color-scheme: light dark;
  --back: #ffffff; --soft: #f4f5f6; --line: #d5dade; --text: #1c2024; --muted: #59626a; --link: #0b57a4;
  --holds: #1a6b3c; --fails: #a3271d; --open: #7a5200;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --back: #15181c; --soft: #1e2226; --line: #3a4147; --text: #e3e6e8; --muted: #a3abb2; --link: #8ab8f0;
    --holds: #7fcf9b; --fails: #f0998f; --open: #e0bb6a;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  max-width: 70rem; margin: 0 auto; padding: 4rem 2rem 3rem; background: var(--back); color: var(--text);
  font: 1.0625rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  overflow-wrap: anywhere;
}
p, h1, h2, dl, ul, figure, pre, table { margin: 0 0 1rem; }
p { max-width: 44rem; }
.note, .summary, .checks, pre { max-width: 56rem; }
h1, h2 { font-weight: 650; line-height: 1.2; letter-spacing: -0.01em; text-wrap: balance; }
h1 { font-size: clamp(1.75rem, 1.3rem + 2vw, 2.5rem); }
h2 { max-width: 48rem; margin-bottom: 0.35rem; font-size: 1.5rem; }
a { color: var(--link); text-decoration-thickness: 1px; text-underline-offset: 0.18em; }
a:focus-visible, summary:focus-visible, .scroll:focus-visible { outline: 2px solid var(--link); outline-offset: 3px; }
.lead { color: var(--muted); font-size: 1.1875rem; }
section { margin-top: 4rem; padding-top: 2.5rem; border-top: 1px solid var(--line); }
section:target .name { color: var(--link); }
.name { margin: 0 0 0.35rem; color: var(--muted); }
.name, pre { font: 0.875rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.badge { font-weight: 600; white-space: nowrap; }
.holds { color: var(--holds); }
.fails { color: var(--fails); }
.open { color: var(--open); }
.note { padding: 0.6rem 1rem; border-left: 3px solid var(--open); background: var(--soft); }
.note strong { color: var(--open); }

table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.45rem 1.5rem 0.45rem 0; border-bottom: 1px solid var(--line); text-align: left; }
th:last-child, td:last-child { padding-right: 0; }
th { font-weight: 600; }
thead th { color: var(--muted); font-size: 0.875rem; vertical-align: bottom; }
.summary { width: 100%; margin-top: 2.5rem; }
.summary caption { margin-bottom: 0.5rem; font-weight: 650; font-size: 1.1875rem; text-align: left; }
.summary tbody th { font-weight: 400; }
.summary tbody * { vertical-align: baseline; }
.summary td, .summary thead th:last-child { white-space: nowrap; }

figure { margin: 2rem 0; overflow-x: auto; }
img { display: block; max-width: 100%; height: auto; }
img.dark { display: none; }
@media screen and (prefers-color-scheme: dark) {
  img.light { display: none; }
  img.dark { display: block; }
}
ul { padding: 0; list-style: none; }
.checks { margin: 2rem 0; }
.checks li {
  display: grid; grid-template-columns: 10rem 1fr; gap: 0 1rem; padding: 0.75rem 0; border-top: 1px solid var(--line);
}
.checks li:last-child { border-bottom: 1px solid var(--line); }
.checks p { margin: 0; }
.measured, dt { color: var(--muted); }
dl, .files { display: flex; flex-wrap: wrap; gap: 0.35rem 1.75rem; font-size: 0.9375rem; }
dl div { display: flex; gap: 0.5rem; min-width: 0; }
dd { margin: 0; min-width: 2rem; flex-shrink: 1000; font-variant-numeric: tabular-nums; }
pre { padding: 0.7rem 1rem; border-radius: 4px; background: var(--soft); white-space: pre-wrap; }
summary { width: fit-content; color: var(--link); font-size: 0.9375rem; cursor: pointer; }
.scroll { margin-top: 0.75rem; max-height: 32rem; overflow: auto; font-size: 0.875rem; line-height: 1.4; }
.scroll table { margin: 0; }
.scroll th, .scroll td { padding-block: 0.3rem; white-space: nowrap; }
.scroll thead th {
  position: sticky; top: 0; background: var(--back); box-shadow: inset 0 -1px var(--line); font-size: inherit;
}
.scroll .number { text-align: right; }
footer { margin-top: 4rem; padding-top: 1.5rem; border-top: 1px solid var(--line); color: var(--muted); }
footer p { font-size: 0.875rem; }

@media (max-width: 40rem) {
  body { padding: 2rem 1rem; }
  section { margin-top: 2.5rem; padding-top: 2rem; }
  h2 { font-size: 1.3125rem; }
  :is(th, td):not(:last-child) { padding-right: 0.9rem; }
  .summary thead th:last-child, .summary td:last-child { display: none; }
  .checks li { grid-template-columns: 1fr; gap: 0.15rem; }
  .scroll { max-height: none; }
}

@media print {
  @page { margin: 18mm 16mm; }
  html { font-size: 10pt; }
  body { max-width: none; padding: 0; }
  a { color: inherit; text-decoration: none; }
  section { margin: 0; padding: 0; border: 0; break-before: page; }
  h1, h2, caption, summary, section > header { break-after: avoid; }
  p, li, dl, pre, tr, figure, section > header { break-inside: avoid; }
  thead { display: table-header-group; }
  figure { overflow: visible; }
  img { min-width: 0 !important; max-height: 160mm; width: auto; }
  pre { margin-right: 1px; border: 1px solid var(--line); background: none; }
  .files { display: none; }
  summary { color: inherit; list-style: none; }
  .scroll { max-height: none; overflow: visible; font-size: 7pt; }
  .scroll th, .scroll td { padding-block: 0.15rem; white-space: normal; }
  .scroll :is(th, td):not(:last-child) { padding-right: 0.8rem; }
  .scroll thead th { position: static; box-shadow: none; }
  details::details-content { display: block; content-visibility: visible; block-size: auto; }
}
"""
