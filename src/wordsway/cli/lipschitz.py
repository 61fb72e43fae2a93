"""The command `lipschitz`: how much the attention layers of a model amplify a small change of a text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

Model = Annotated[
    str, typer.Option(metavar="NAME", help="minilm, smollm2, gpt2-random, a folder or a model on the hub")
]
Layer = Annotated[list[int] | None, typer.Option(metavar="L", help="layer, from 0; may be repeated; all if left out")]
Lengths = Annotated[list[int] | None, typer.Option(metavar="N ...", help="words in a context, one number or several")]
Causal = Annotated[bool, typer.Option("--causal", help="put a causal mask on an encoder")]
Adversarial = Annotated[
    bool, typer.Option("--adversarial", help="at contexts made to be steep, in place of film reviews")
]
Steps = Annotated[int, typer.Option(metavar="K", help="then climb to steeper contexts, for at most K steps")]
Products = Annotated[int, typer.Option(metavar="P", help="give up after so many products with the Jacobian")]
Trials = Annotated[int, typer.Option(metavar="T", help="reviews for each length; review k = 0, 1, ... has seed S + k")]
Seed = Annotated[int, typer.Option(metavar="S", help="decides the reviews and where the search starts")]
Json = Annotated[bool, typer.Option("--json", help="one JSON object a line, for each layer, length and trial")]

_LENGTHS = (16, 32, 64, 128)


def lipschitz(
    model: Model = "minilm",
    layer: Layer = None,
    lengths: Lengths = None,
    causal: Causal = False,
    adversarial: Adversarial = False,
    steps: Steps = 0,
    products: Products = 400,
    trials: Trials = 1,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Measure the local Lipschitz constant of a model's attention layers on real text, between certified bounds."""
    plan = _resolve(model, layer, lengths, causal, adversarial, steps, products, trials, seed)
    if as_json:
        for record in run(plan):
            print(json.dumps(record, allow_nan=False), flush=True)
        return
    from wordsway.cli.lipschitz_views import print_constants

    print_constants(plan, run(plan))


@dataclass(frozen=True)
class Plan:
    """What will be measured; every field has been checked."""

    model: Any
    layers: tuple[int, ...]
    lengths: tuple[int, ...]
    causal: bool
    adversarial: bool
    steps: int
    products: int
    trials: int
    seed: int

    @property
    def data(self) -> str:
        return "adversarial" if self.adversarial else "imdb"


def _resolve(
    model: str,
    layers: list[int] | None,
    lengths: list[int] | None,
    causal: bool,
    adversarial: bool,
    steps: int,
    products: int,
    trials: int,
    seed: int,
) -> Plan:
    """Check everything that was asked for; the model is read, since it knows how many layers and words there are."""
    from wordsway.checks import check_size
    from wordsway.cli.plan import check_seeds
    from wordsway.errors import InputError
    from wordsway.models import load

    least = 2 if adversarial else 1
    for n in lengths or ():
        if check_size(n, "lengths") < least:
            raise InputError(f"lengths must be at least {least} with --adversarial, got {n}")
    if check_size(products, "products") < 2:
        raise InputError(f"products must be at least 2, got {products}")
    if steps < 0 or (steps and not adversarial):
        raise InputError(f"steps must be at least 0, and 0 without --adversarial, got {steps}")
    count = check_size(trials, "trials")
    if adversarial and count > 1:
        raise InputError(f"trials must be 1 with --adversarial, where nothing is drawn, got {count}")
    first = check_seeds(seed, count)
    found = load(model)
    chosen = tuple(range(found.layers)) if layers is None else tuple(dict.fromkeys(layers))
    for index in chosen:
        found.attention(index)  # refuses an unknown layer, and one that is no softmax attention
    sizes = tuple(sorted(set(lengths or [n for n in _LENGTHS if n <= found.positions] or [found.positions])))
    if sizes[-1] > found.positions and not adversarial:
        raise InputError(f"lengths must be at most {found.positions}, the words {model} can read, got {sizes[-1]}")
    return Plan(found, chosen, sizes, causal or found.causal, adversarial, steps, products, count, first)


def run(plan: Plan) -> Iterator[dict[str, Any]]:
    """The record of each layer, length and trial, as it is measured."""
    from wordsway.smoothness import lipschitz_bounds

    for layer in plan.layers:
        attention = plan.model.attention(layer, causal=plan.causal)
        radius = plan.model.radius(layer)
        for n in plan.lengths:
            bounds = lipschitz_bounds(attention, n, radius)
            steep = _steepest(plan, attention, n, radius)
            lower = max((value for value in (bounds.lower, steep and steep.value) if value is not None), default=None)
            head = {"model": plan.model.name, "layer": layer, "n": n}
            rest = {"upper": bounds.upper, "lower": lower, "radius": radius, "causal": plan.causal, "data": plan.data}
            for seed, found in _constants(plan, attention, layer, n, steep):
                yield {**head, **found.to_dict(), **rest, "seed": seed}


def _steepest(plan: Plan, attention: Any, n: int, radius: float) -> Any:
    """The constant at an adversarial context, a witness for the lower bound; None where there is none."""
    from wordsway.errors import NumericalError
    from wordsway.smoothness import adversarial_context

    if n < 2:
        return None
    try:
        found = adversarial_context(attention, n, radius, steps=plan.steps, seed=plan.seed, products=plan.products)
        return found.lipschitz
    except NumericalError:  # no head has a real eigenvalue
        if plan.adversarial:
            raise
        return None


def _constants(plan: Plan, attention: Any, layer: int, n: int, steep: Any) -> Iterator[tuple[int, Any]]:
    from wordsway.smoothness import local_lipschitz

    if plan.adversarial:
        yield plan.seed, steep
        return
    for seed in range(plan.seed, plan.seed + plan.trials):
        tokens = plan.model.review_tokens(1, n, seed)
        context = plan.model.layer_inputs(tokens, layer)[0].double()
        yield seed, local_lipschitz(attention, context, products=plan.products, seed=seed)
