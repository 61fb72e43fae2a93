"""The command `hear`: does a model still hear one word when the text gets long?"""

from __future__ import annotations

import json
import sys
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wordsway.cli.text import which

if TYPE_CHECKING:
    from wordsway.models.hearing import Curve

Model = Annotated[
    list[str] | None,
    typer.Option("--model", metavar="NAME", help="a model: see wordsway models; repeat it for two side by side"),
]
Lengths = Annotated[list[int] | None, typer.Option(metavar="N ...", help="tokens of the context; 16 32 64 128 256")]
Sentence = Annotated[str | None, typer.Option(metavar="TEXT", help="the sentence that reviews grow around")]
Word = Annotated[
    str | None, typer.Option(metavar="WORD", help="its word that moves, or its position; the last if left out")
]
Texts = Annotated[int, typer.Option(metavar="T", help="reviews, over which means and deviations are taken")]
On = Annotated[
    str, typer.Option(metavar="last|pooled|next|class|LAYER", help="what of the model the change is measured on")
]
Radius = Annotated[float | None, typer.Option(metavar="R", help="how far the word's embedding may move; its own norm")]
Steps = Annotated[int | None, typer.Option(metavar="N", help="passes of a search")]
Maps = Annotated[bool, typer.Option("--maps/--no-maps", help="measure rf and raf at the same sizes too")]
Seed = Annotated[int, typer.Option(metavar="S", help="decides reviews and searches")]
Json = Annotated[bool, typer.Option("--json", help="one JSON object a line, for each model and length")]


def hear(
    model: Model = None,
    lengths: Lengths = None,
    sentence: Sentence = None,
    word: Word = None,
    texts: Texts = 3,
    on: On = "last",
    radius: Radius = None,
    steps: Steps = None,
    maps: Maps = True,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Measure how far one word moves a model, against the length of the text around it."""
    from wordsway.checks import check_size
    from wordsway.models import load
    from wordsway.models.hearing import LENGTHS, SENTENCE, check_lengths, map_curves
    from wordsway.models.hearing import hear as measure
    from wordsway.models.profile import STEPS

    sizes = sorted({check_size(n, "lengths") for n in lengths or LENGTHS})
    loaded = [load(name) for name in dict.fromkeys(model or ["minilm"])]
    said = SENTENCE if sentence is None else sentence
    for one in loaded:
        check_lengths(one, sizes, said)  # before the first is measured, which takes its time
    how: dict[str, Any] = {
        "sentence": said,
        "word": None if word is None else which(word),
        "texts": texts,
        "on": on,
        "radius": radius,
        "steps": STEPS if steps is None else steps,
        "seed": seed,
        "progress": not as_json and sys.stderr.isatty(),
    }
    measured = chain(
        (measure(one, sizes, **how) for one in loaded),
        map_curves(sizes, loaded[0].d, texts, seed) if maps else (),
    )
    curves: list[Curve] = []
    try:
        for curve in measured:
            curves.append(curve)
            if as_json:
                _print_json(curve, on)
    finally:
        if curves and not as_json:  # an error or an interrupt loses no curve that is whole
            _print(curves, on)


def _print_json(curve: Curve, on: str) -> None:
    for record in curve.records():
        print(json.dumps({**record, "on": on, "exponent": curve.exponent}, allow_nan=False), flush=True)


def _print(curves: list[Curve], on: str) -> None:
    from rich.console import Console

    from wordsway import report

    console = Console(highlight=False)
    console.print(f"word sensitivity against the length of the context, on {on}", style="bold")
    console.print()
    table = report.plain_table(["n", *(curve.name for curve in curves)], right=tuple(range(1 + len(curves))))
    for place, n in enumerate(curves[0].lengths):
        table.add_row(str(n), *(report.spread(curve.values[place]) for curve in curves))
    if len(curves[0].lengths) > 1:
        table.add_row("exponent", *("-" if curve.exponent is None else f"{curve.exponent:.2f}" for curve in curves))
    console.print(table)
    console.print()
    console.print("exponent -0.5: one word is forgotten; 0: it is heard at any length", style="bright_black")
