"""The command `lipschitz`: how much the attention layers of a model amplify a small change of a text."""

from __future__ import annotations

from typing import Annotated

import typer

from wordsway.cli.options import Json, Model, TrialSeed
from wordsway.cli.running import deliver, trial_seeds

Layer = Annotated[list[int] | None, typer.Option(metavar="L", help="layer, from 0; may be repeated; default: all")]
Lengths = Annotated[
    list[int] | None,
    typer.Option(metavar="N ...", help="words in a context, separated by blanks or commas; default: 16 32 64 128"),
]
OwnText = Annotated[
    str | None, typer.Option("--text", metavar="TEXT", help="measure at this text, in place of film reviews")
]
Near = Annotated[
    float,
    typer.Option(metavar="E", help="also bound it where words move by E times their mean length"),
]
Blocks = Annotated[
    bool, typer.Option("--blocks", help="also bound whole blocks: norms, residual sums and MLP included")
]
Causal = Annotated[bool, typer.Option("--causal", help="put a causal mask on an encoder")]
Adversarial = Annotated[
    bool, typer.Option("--adversarial", help="measure at adversarial contexts instead of film reviews")
]
Steps = Annotated[int, typer.Option(metavar="K", help="with --adversarial: at most K steps of gradient ascent from it")]
Products = Annotated[int, typer.Option(metavar="P", help="stop after so many products with the Jacobian")]
Trials = Annotated[int, typer.Option(metavar="T", help="reviews per length; review k = 0, 1, ... has seed S + k")]


def lipschitz(
    model: Model = "minilm",
    layer: Layer = None,
    lengths: Lengths = None,
    text: OwnText = None,
    near: Near = 0.01,
    blocks: Blocks = False,
    causal: Causal = False,
    adversarial: Adversarial = False,
    steps: Steps = 0,
    products: Products = 400,
    trials: Trials = 1,
    seed: TrialSeed = 0,
    as_json: Json = False,
) -> None:
    """Measure the local Lipschitz constants of a model's attention layers on real text, between certified bounds."""
    from wordsway.models.lipschitz import layer_lipschitz
    from wordsway.report.measurements import print_constants

    results = layer_lipschitz(
        model,
        layer,
        lengths,
        text=text,
        near=near,
        blocks=blocks,
        causal=causal,
        adversarial=adversarial,
        steps=steps,
        products=products,
        seeds=trial_seeds(trials, seed),
    )
    deliver((result.rows() for result in results), as_json, print_constants)
