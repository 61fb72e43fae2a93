"""Pages of results: one HTML file each, made from templates; nothing from the network."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from wordsway.experiments.experiment import CHECK, FAILS, HOLDS, WEAKER, tally
from wordsway.figures import SOURCES
from wordsway.models.heat import background, pieces
from wordsway.records import cell, html_table, number
from wordsway.report.formulas import formulas
from wordsway.report.terminal import plus_minus
from wordsway.report.texts import change_kind, leading, measured_on, radius_used

if TYPE_CHECKING:
    from wordsway.experiments.texts import Options, TextStudy
    from wordsway.models.profile import Replacement, TextProfile, WordEffect
    from wordsway.models.swaps import Swap, Swaps

_LEAST = 0.55  # of a picture's own width: below that its text is too small to read, and it scrolls sideways


def figures_page(figures: Sequence[Mapping[str, Any]]) -> str:
    """Return the page of figures as HTML, to be written as UTF-8.

    Parameters
    ----------
    figures
        The summary of each figure as it is stored in JSON, with `verdicts` as records, and besides `outcome` (the
        worst verdict, in words), `pictures` (see `picture`), `files` beside the page for download, and `note`, a
        warning or "".

    Notes
    -----
    Figures are grouped by their sources, in the order of these; others follow. All text is escaped. Printing shows the
    light pictures and all numbers.
    """
    known = {figure["name"]: figure for figure in figures}
    groups = [(source, [known.pop(name) for name in source.figures if name in known]) for source in SOURCES]
    shown = [(source, members) for source, members in groups if members]
    return environment().get_template("figures.html.j2").render(figures=figures, groups=shown, others=[*known.values()])


def picture(svg: str, kind: str) -> dict[str, Any]:
    """Return an SVG document as the source of an image for "light" or "dark" screens, with its size if it has one."""
    source = f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
    width, height = _size(svg) or (0, 0)
    return {"kind": kind, "source": source, "width": width, "height": height, "least": round(_LEAST * width)}


def text_page(study: TextStudy, options: Options) -> str:
    """Return the page about one text as HTML, to be written as UTF-8."""
    return _page([study], options, leading(study.profile))


def texts_page(studies: Sequence[TextStudy], options: Options, source: str) -> str:
    """Return the page about several texts, each with its words and their replacements."""
    flips = sum(any(one.flip for one in study.profile.words) for study in studies)
    decides = any(study.profile.decision is not None for study in studies)
    found = f"; a word that was tried flips the prediction of {flips}" if decides else ""
    return _page(studies, options, f"{len(studies)} texts of {source}{found}")


def _page(studies: Sequence[TextStudy], options: Options, lead: str) -> str:
    first = studies[0].profile
    return (
        environment()
        .get_template("text.html.j2")
        .render(
            lead=lead,
            studies=[_shown(study, options, f"text-{number}-") for number, study in enumerate(studies)],
            measured_on=measured_on(first.on),
            change_kind=change_kind(first.on),
            signed=first.signed,
            ball=first.ball is not None,
        )
    )


def _shown(study: TextStudy, options: Options, prefix: str) -> dict[str, Any]:
    """What the template shows of one text; `prefix` begins the names of its places in the page."""
    profile, rows = study.profile, study.profile.rows()
    measured = {
        one.word.tokens: (one.typical or 0.0, _note(row))
        for one, row in zip(profile.words, rows, strict=True)
        if one.typical is not None or one.masked is not None
    }
    row_of = {one.word.tokens: row for one, row in zip(profile.words, rows, strict=True)}
    strip = [
        (piece, row_of.get(word.tokens))
        for piece, word in zip(pieces(profile.text, measured), profile.text.words, strict=True)
    ]
    found = {swaps.swaps[0].replaced.position: swaps for swaps in study.swaps}
    return {
        "prefix": prefix,
        "text": profile.text.text,
        "lead": leading(profile),
        "decision": profile.decision,
        "before": profile.before,
        "settings": _settings(profile, options),
        "rows": rows,
        "strip": strip,
        "replaced": [_replaced(profile, one, found.get(one.word.position)) for one in profile.words if one.tried],
        "flip": max(
            ((one.word.text, swap) for one in profile.words for swap in one.tried if swap.flip),
            key=lambda pair: abs(pair[1].effect),
            default=None,
        ),
        "layers": [] if study.layers is None else study.layers.values.tolist(),
        "top": max((row for row in rows if row["position"] is not None), key=lambda row: row["typical"] or 0.0),
    }


def _replaced(profile: TextProfile, one: WordEffect, swaps: Swaps | None) -> dict[str, Any]:
    """The replacements of a word with the largest effects: those of a search, or those that its profile tried."""
    tried: Sequence[Replacement | Swap] = one.tried if swaps is None else swaps.swaps
    text, word = profile.text.text, one.word
    return {
        "word": word,
        "declared": "random words of the vocabulary, and those that gradients rank first"
        if swaps is None
        else f"{swaps.declared}, {swaps.checked} of {swaps.candidates} tried, those that rank first",
        "swaps": [
            {
                "word": swap.word,
                "effect": swap.effect,
                "becomes": swap.becomes,
                "flip": swap.flip,
                "after": profile.before + swap.effect if profile.signed and profile.before is not None else None,
                "text": text[: word.start] + swap.word + text[word.end :],
            }
            for swap in tried
        ],
    }


def _settings(profile: TextProfile, options: Options) -> dict[str, Any]:
    """Return names and values that describe how a text was measured."""
    ball = profile.ball
    settings = {
        "model": profile.model,
        "measured on": profile.on,
        "predicts": None if profile.decision is None else f"{profile.decision}, {number(profile.before, 3)}",
        "passes": profile.passes,
        "ball": None if ball is None else f"{options.mode}, {options.steps} steps, radius {radius_used(options)}",
        "seed": options.seed,
        "tokens": len(profile.text.ids),
        "cut off": f"{profile.text.cut} tokens" if profile.text.cut else None,
        "chat template": "yes" if options.chat else None,
        "fast mode": f"{100 * ball.shortfall:.0f}% below the search" if ball and ball.shortfall is not None else None,
    }
    return {name: value for name, value in settings.items() if value is not None}


def _badge(word: str) -> tuple[str, str]:
    """Return the style of an outcome and a symbol for it, so that neither depends on colours alone."""
    if word in (FAILS, f"{CHECK} fails"):
        return "fails", "✗"
    if word in (HOLDS, f"{CHECK} passes"):
        return "holds", "✓"
    return "open", "≈" if word == WEAKER else "?"


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the templates of all pages, which escape what they are given."""
    environment = Environment(
        loader=PackageLoader("wordsway.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["tally"] = lambda verdicts: tally(verdict.word for verdict in verdicts)
    environment.filters |= {
        "background": background,
        "badge": _badge,
        "cell": cell,
        "number": number,
        "paragraphs": _paragraphs,
        "share": _share,
        "effect": _effect,
        "formulas": formulas,
        "html_table": lambda rows: Markup(html_table(rows, limit=None)),
    }
    return environment


def read_template(name: str) -> str:
    """Return a template as it is written, such as a script."""
    source: str = environment().loader.get_source(environment(), name)[0]  # type: ignore[union-attr]
    return source


def _paragraphs(text: str) -> list[str]:
    return [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]


def _effect(value: float | None, signed: bool) -> str:
    """A change, with its sign where it has one."""
    return number(value, 3) if value is None or not signed else ("+" if value > 0 else "") + number(value, 3)


def _share(value: float, top: float, full: float = 100.0) -> str:
    """The length of a bar, where `full` is that of the largest value."""
    return f"{full * value / top if top > 0 else 0.0:.2f}"


def _note(row: Mapping[str, Any]) -> str:
    """Return the numbers of a word, one per line, shown when it is pointed at."""
    lines = [f"masked {number(row['masked'])}"]
    if row["draws"]:
        lines.append(f"typical {plus_minus(row['typical'], row['typical_se'])}")
        lines.append(f"worst {number(row['worst'])}: {row['replacement']}")
    if row["flip"]:
        lines.append("flips")
    if "sensitivity" in row:
        lines.append(f"sensitivity {number(row['sensitivity'])} within {number(row['radius'])}, {row['status']}")
    return "\n".join(lines)


def _size(svg: str) -> tuple[int, int] | None:
    """Width and height in CSS pixels, of which 4 are 3 points."""
    root = re.search(r"<svg\b[^>]*>", svg)
    sides = [root and re.search(rf'\s{name}="([0-9.]+)(pt|px|)"', root[0]) for name in ("width", "height")]
    width, height = (round(float(side[1]) * (4 / 3 if side[2] == "pt" else 1)) if side else 0 for side in sides)
    return (width, height) if width and height else None
