"""A page about one text in one HTML file: its words by strength, their numbers, replacements and layers; no script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from wordsway.models.heat import Piece, heat_strip
from wordsway.report.page import DASH, document, fact_list, paragraphs
from wordsway.report.terminal import number

__all__ = ["Piece", "Replacements", "WordRow", "heat_strip", "text_page"]

_ROW, _BAR = 26, 16  # height of a line of the chart and of its bar, in pixels
_LEFT, _WIDE = 20, 60  # where bars begin and how long the longest is, in percent of the chart's width


@dataclass(frozen=True)
class WordRow:
    """A line of the table of words; a special token has no position."""

    position: int | None
    word: str
    tokens: int
    value: float
    radius: float
    status: str


@dataclass(frozen=True)
class Replacements:
    """The best replacements of one word: each with how far it moves the model, and the text that it makes."""

    position: int
    word: str
    swaps: Sequence[tuple[str, float, str]]


def text_page(
    title: str,
    lead: str,
    strip: Sequence[Piece],
    words: Sequence[WordRow],
    replacements: Sequence[Replacements] = (),
    layers: Sequence[tuple[int, float]] = (),
    layers_of: str = "",
    facts: Sequence[tuple[str, str]] = (),
    footer: str = "",
) -> str:
    """The whole HTML document.

    Parameters
    ----------
    title, lead
        The heading, and what was measured; empty lines divide paragraphs, here and in `footer`.
    strip
        The text, piece by piece.
    words
        The numbers, in the order of the text.
    replacements
        For some words, the best first.
    layers, layers_of
        How far a word moves each layer, and what the chart is about.
    facts
        Names and values that say how it was made.
    footer
        Small print at the end.

    Returns
    -------
    str
        HTML to be written as UTF-8. Every text is escaped, and the page's own policy keeps a browser from loading or
        running anything that is not in it.
    """
    body = [
        f'<section id="text">\n<h2>The text</h2>\n{heat_strip(strip)}',
        '<p class="measured">The stronger the colour, the further the word moves the model. '
        "Point at a word for its numbers.</p>\n</section>",
        _words(words),
        _replacements(replacements),
        _layers(layers, layers_of),
    ]
    above = f'<div class="lead">{paragraphs(lead)}</div>\n{fact_list(facts)}'
    return document(title, above, [part for part in body if part], footer, _MORE)


def _words(words: Sequence[WordRow]) -> str:
    top = max((row.value for row in words), default=0.0)
    lines = [
        '<section id="words">\n<h2>Its words</h2>\n<table class="words">\n<thead><tr><th scope="col" class="number">'
        '<span class="wide">position</span></th><th scope="col">word</th>'
        '<th scope="col" class="number wide">tokens</th><th scope="col" class="number">sensitivity</th>'
        '<th scope="col" class="wide" aria-hidden="true"></th><th scope="col" class="number">radius</th>'
        '<th scope="col" class="wide">search</th></tr></thead>\n<tbody>'
    ]
    for row in words:
        share = 100 * row.value / top if top > 0 else 0.0
        best = ' class="best"' if row.value == top else ""
        place = DASH if row.position is None else row.position
        lines.append(
            f'<tr{best}><td class="number">{place}</td><th scope="row" dir="auto">{escape(row.word)}</th>'
            f'<td class="number wide">{row.tokens}</td><td class="number">{number(row.value)}</td>'
            f'<td class="wide" aria-hidden="true"><span class="bar" style="width: {share:.1f}%"></span></td>'
            f'<td class="number">{number(row.radius)}</td><td class="wide">{escape(row.status)}</td></tr>'
        )
    return "\n".join([*lines, "</tbody>\n</table>\n</section>"])


def _replacements(replacements: Sequence[Replacements]) -> str:
    if not replacements:
        return ""
    lines = ['<section id="replacements">\n<h2>Replacements that move it most</h2>']
    for one in replacements:
        items = "".join(
            f'<li><span class="number">{number(value)}</span> <b dir="auto">{escape(word)}</b> '
            f'<span class="measured" dir="auto">{escape(text)}</span></li>'
            for word, value, text in one.swaps
        )
        lines.append(f'<h3>word {one.position}: <span dir="auto">{escape(one.word)}</span></h3>\n<ul>{items}</ul>')
    return "\n".join([*lines, "</section>"])


def _layers(layers: Sequence[tuple[int, float]], about: str) -> str:
    """Bars by layer, in percent of the width, so that letters keep their size on a phone."""
    if not layers:
        return ""
    top = max(value for _, value in layers)
    said = f"{about}: " + ", ".join(f"layer {layer} {number(value)}" for layer, value in layers)
    lines = [
        f'<section id="layers">\n<h2>By layer</h2>\n<p>{escape(about)}</p>',
        f'<svg class="chart" role="img" aria-label="{escape(said)}" width="100%" height="{_ROW * len(layers)}">',
    ]
    for place, (layer, value) in enumerate(layers):
        middle = _ROW * place + _ROW / 2
        wide = _WIDE * value / top if top > 0 else 0.0
        lines.append(
            f'<text x="0" y="{middle}">layer {layer}</text>'
            f'<rect x="{_LEFT}%" y="{middle - _BAR / 2}" width="{wide:.2f}%" height="{_BAR}" rx="2"/>'
            f'<text x="100%" y="{middle}" text-anchor="end">{number(value)}</text>'
        )
    return "\n".join([*lines, "</svg>\n</section>"])


_MORE = """
:root { --heat: #c65300; }
@media screen and (prefers-color-scheme: dark) { :root { --heat: #f0924a; } }
main > section { margin-top: 2.5rem; padding-top: 1.75rem; }
.heat { max-width: 56rem; font-size: 1.25rem; }
h3 { margin: 1.5rem 0 0.25rem; font-size: 1.0625rem; font-weight: 600; }
.words { width: 100%; max-width: 56rem; }
.words tbody th { width: 26%; min-width: 6.5rem; font-weight: 400; }
.words th, .words td { padding-block: 0.25rem; }
.words :is(.number, thead th, td:last-child) { white-space: nowrap; }
.words .number { width: 1%; text-align: right; }
.words td:nth-child(5) { width: 22%; }
.words td:last-child { width: 1%; color: var(--muted); font-size: 0.875rem; }
.words .best :is(th, td) { font-weight: 650; }
.bar { display: block; height: 0.8rem; border-radius: 2px; background: var(--heat); }
#replacements li { display: grid; grid-template-columns: 4rem minmax(6rem, 11rem) 1fr; gap: 0 1rem; padding: 0.2rem 0; }
#replacements .number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.chart { display: block; max-width: 40rem; font-size: 0.875rem; font-variant-numeric: tabular-nums; }
.chart text { fill: var(--text); dominant-baseline: central; }
.chart rect { fill: var(--heat); }
@media (max-width: 40rem) {
  .wide { display: none; }
  #replacements li { grid-template-columns: 4rem 1fr; }
  #replacements li .measured { grid-column: 2; }
}
@media print {
  main > section { break-before: auto; padding-top: 1rem; }
  .heat span, .bar { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
