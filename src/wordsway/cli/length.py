"""The command `length`: does a model still respond to one word when the text gets long?"""

from __future__ import annotations

import sys
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wordsway.cli.options import EmbeddingRadius, Json, On, Seed, position_or_word
from wordsway.cli.running import deliver

if TYPE_CHECKING:
    from wordsway.models.length import LengthCurve

Models = Annotated[
    list[str] | None,
    typer.Option("--model", metavar="NAME", help="a model: see wordsway models; may be repeated; default: minilm"),
]
Lengths = Annotated[
    list[int] | None,
    typer.Option(
        metavar="N ...", help="tokens of the context, separated by blanks or commas; default: 16 32 64 128 256"
    ),
]
Sentence = Annotated[
    str | None, typer.Option(metavar="TEXT", help='sentence in the middle of reviews; default: "I love her smile"')
]
Word = Annotated[
    str | None, typer.Option(metavar="WORD", help="its word that moves, or the position of it; default: the last one")
]
Texts = Annotated[int, typer.Option(metavar="T", help="reviews, for means and standard deviations")]
Steps = Annotated[int, typer.Option(metavar="N", help="forward and backward passes of a search")]
Maps = Annotated[bool, typer.Option("--maps/--no-maps", help="measure rf and raf at the same sizes too")]


def length(
    model: Models = None,
    lengths: Lengths = None,
    sentence: Sentence = None,
    word: Word = None,
    texts: Texts = 3,
    on: On = "last",
    radius: EmbeddingRadius = None,
    steps: Steps = 16,
    maps: Maps = True,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Measure how far one word moves a model, against the length of the text around it."""
    from wordsway.checks import check_size
    from wordsway.models import load
    from wordsway.models.length import LENGTHS, SENTENCE, check_lengths, length_curve, map_curves
    from wordsway.report.measurements import print_lengths

    sizes = sorted({check_size(n, "lengths") for n in lengths or LENGTHS})
    loaded = [load(name) for name in dict.fromkeys(model or ["minilm"])]
    around = SENTENCE if sentence is None else sentence
    for one in loaded:
        check_lengths(one, sizes, around)  # of all models, before the first is measured
    options: dict[str, Any] = {
        "sentence": around,
        "word": None if word is None else position_or_word(word),
        "texts": texts,
        "on": on,
        "radius": radius,
        "steps": steps,
        "seed": seed,
        "progress": not as_json and sys.stderr.isatty(),
    }
    curves = chain(
        (length_curve(one, sizes, **options) for one in loaded),
        map_curves(sizes, loaded[0].d, texts, seed) if maps else (),
    )
    deliver((_rows(curve, on) for curve in curves), as_json, print_lengths)


def _rows(curve: LengthCurve, on: str) -> list[dict[str, Any]]:
    return [{**row, "on": on, "exponent": curve.exponent} for row in curve.rows()]
