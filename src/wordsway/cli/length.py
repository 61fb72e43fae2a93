"""The command `length`: does a model still respond to one word when the text gets long?"""

from __future__ import annotations

import sys
from itertools import chain
from typing import Annotated, Any

import typer

from wordsway.cli.options import Column, Device, Dtype, EmbeddingRadius, Json, On, Seed, position_or_word
from wordsway.cli.running import deliver

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
    str | None, typer.Option(metavar="TEXT", help='sentence inside other texts; default: "I love her smile"')
]
Word = Annotated[
    str | None, typer.Option(metavar="WORD", help="its word that changes, or the position of it; default: the last one")
]
Texts = Annotated[int | None, typer.Option(metavar="T", help="film reviews around the sentence; default: 6")]
Input = Annotated[
    str | None,
    typer.Option(
        "--input", metavar="FILE", help="texts around the sentence: a .txt (one per line), .csv or .jsonl file"
    ),
]
Draws = Annotated[
    int | None, typer.Option(metavar="D", help="random words in its place, the same for all lengths; default: 8")
]
Ball = Annotated[bool, typer.Option("--ball", help="move its embedding in a ball instead, by a search")]
Steps = Annotated[int | None, typer.Option(metavar="N", help="with --ball: passes of a search; default: 16")]
Maps = Annotated[bool, typer.Option("--maps/--no-maps", help="measure rf and raf at the same sizes too")]


def length(
    model: Models = None,
    lengths: Lengths = None,
    sentence: Sentence = None,
    word: Word = None,
    texts: Texts = None,
    file: Input = None,
    column: Column = None,
    draws: Draws = None,
    on: On = None,
    ball: Ball = False,
    radius: EmbeddingRadius = None,
    steps: Steps = None,
    maps: Maps = True,
    seed: Seed = 0,
    device: Device = "auto",
    dtype: Dtype = "float32",
    as_json: Json = False,
) -> None:
    """Measure how far one word moves a model, against the length of the text around it."""
    for wrong, message in (
        (file is not None and texts is not None, "--texts and --input exclude each other: all texts of FILE are used"),
        (file is None and column is not None, "--column needs --input: reviews have no columns"),
        (ball and draws is not None, "--draws and --ball exclude each other: a ball has no words to draw"),
        (
            not ball and (radius is not None or steps is not None),
            "--radius and --steps need --ball: they are about its search",
        ),
    ):
        if wrong:
            raise typer.BadParameter(message)
    from wordsway.checks import check_size
    from wordsway.data.texts import read_texts
    from wordsway.models import load
    from wordsway.models.length import DRAWS, LENGTHS, SENTENCE, TEXTS, check_lengths, length_curve, map_curves
    from wordsway.models.outputs import output_named
    from wordsway.report.measurements import print_lengths

    sizes = sorted({check_size(n, "lengths") for n in lengths or LENGTHS})
    count = check_size(DRAWS if draws is None else draws, "draws")
    reviews = check_size(TEXTS if texts is None else texts, "texts")
    lines = None if file is None else [line.text for line in read_texts(file, column or "text")]
    loaded = [load(name, device=device, dtype=dtype) for name in dict.fromkeys(model or ["minilm"])]
    around = SENTENCE if sentence is None else sentence
    for one in loaded:  # all models, before the first is measured
        check_lengths(one, sizes, around)
        if on is not None:
            output_named(one, on)
    options: dict[str, Any] = {
        "sentence": around,
        "word": None if word is None else position_or_word(word),
        "texts": reviews if lines is None else lines,
        "draws": count,
        "on": on,
        "ball": ball,
        "radius": radius,
        "steps": 16 if steps is None else steps,
        "seed": seed,
        "progress": not as_json and sys.stderr.isatty(),
    }
    curves = chain(
        (length_curve(one, sizes, **options) for one in loaded),
        map_curves(sizes, loaded[0].d, reviews, seed, None if ball else count) if maps else (),
    )
    deliver(([{**row, **curve.fit()} for row in curve.rows()] for curve in curves), as_json, print_lengths)
