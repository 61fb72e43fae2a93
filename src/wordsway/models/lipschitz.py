"""Local Lipschitz constants of the attention layers of a model, at their own inputs and between bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wordsway.checks import check_size
from wordsway.errors import InputError, NumericalError
from wordsway.models.blocks import block_bound
from wordsway.models.transformer import load
from wordsway.records import Record
from wordsway.smoothness import (
    LocalLipschitz,
    adversarial_context,
    lipschitz_bounds,
    local_lipschitz,
    neighbourhood_bound,
)

if TYPE_CHECKING:
    from wordsway.models.model import Model

LENGTHS = (16, 32, 64, 128)
PRODUCTS = 400
NEAR = 0.01


@dataclass(frozen=True, eq=False, repr=False)
class LayerLipschitz(Record):
    """The local Lipschitz constant of one attention layer at one context.

    Attributes
    ----------
    model : str
    layer, n : int
        The layer, and the number of words in the context.
    local : LocalLipschitz
        The constant at the context.
    at_text : float
        Upper bound on the constant at the context.
    near : float
        Upper bound on the constant at all contexts whose words are within `near_radius` of those of the context.
    near_radius : float
    all_inputs : float
        Upper bound on the constant over all contexts of n words that the norm before the layer can return.
    upper : float
        Upper bound on the constant over all contexts of n words in the ball.
    lower : float or None
        The largest known lower bound on it, by formula or at an adversarial context.
    block : float or None
        Upper bound on the constant at the context of the whole block: its norms, residual sums and MLP included; None
        where it was not requested.
    radius : float
        Of the ball: the largest norm of a word that the layer reads.
    causal : bool
    data : {"imdb", "text", "adversarial"}
        Where the context is from.
    seed : int
    """

    model: str
    layer: int
    n: int
    local: LocalLipschitz
    at_text: float
    near: float
    near_radius: float
    all_inputs: float
    upper: float
    lower: float | None
    block: float | None
    radius: float
    causal: bool
    data: str
    seed: int

    summary_fields = ("model", "layer", "n", "local", "at_text", "near", "all_inputs", "lower")


def layer_lipschitz(
    model: Model | str,
    layers: Sequence[int] | None = None,
    lengths: Sequence[int] | None = None,
    *,
    text: str | None = None,
    near: float = NEAR,
    blocks: bool = False,
    causal: bool = False,
    adversarial: bool = False,
    steps: int = 0,
    products: int = PRODUCTS,
    seeds: Sequence[int] = (0,),
) -> Iterator[LayerLipschitz]:
    """Measure local Lipschitz constants of attention layers; results arrive one by one.

    Parameters
    ----------
    model
        A model or its name. All other arguments are checked before it is loaded, as far as they can be.
    layers
        Counted from 0; default: all.
    lengths
        Numbers of words; default: 16, 32, 64 and 128, as far as the model reads them.
    text
        A text to measure at, with all its tokens, in place of film reviews; then there are no lengths and one seed.
    near
        How far each word of the neighbourhood may be from its place, in mean lengths of the words of the context.
    blocks
        Whether whole blocks are bounded as well, which takes longer.
    causal
        Whether an encoder gets a causal mask.
    adversarial
        Whether contexts are adversarial ones instead of film reviews; then `seeds` is one seed.
    steps
        With `adversarial`: steps of gradient ascent from there.
    products
        Products with the Jacobian or its transpose after which an iteration stops; its status then reports it.
    seeds
        One review per length and seed, which is also that of the iteration.
    """
    least = 2 if adversarial else 1
    for n in lengths or ():
        if check_size(n, "lengths") < least:
            raise InputError(f"lengths must be at least {least} for adversarial contexts, got {n}")
    if check_size(products, "products") < 2:
        raise InputError(f"products must be at least 2, got {products}")
    if steps < 0 or (steps and not adversarial):
        raise InputError(f"steps must be at least 0, and 0 without adversarial contexts, got {steps}")
    if adversarial and len(seeds) != 1:
        raise InputError(f"there must be 1 trial for adversarial contexts, where nothing is drawn, got {len(seeds)}")
    if not (math.isfinite(near) and near >= 0):
        raise InputError(f"near must be a finite number >= 0, got {near}")
    if text is not None and (lengths or adversarial or len(seeds) != 1):
        raise InputError("a text has its own length and 1 trial, got lengths, trials or adversarial contexts as well")
    if blocks and adversarial:
        raise InputError("blocks are bounded at texts, got adversarial contexts as well: leave one of them out")
    loaded = load(model) if isinstance(model, str) else model
    chosen = range(loaded.layers) if layers is None else list(dict.fromkeys(layers))
    for layer in chosen:
        loaded.attention(layer)  # refuses an unknown layer, and one that is no softmax attention
    tokens = None if text is None else loaded.tokens(text)
    sizes = sorted(set(lengths or [n for n in LENGTHS if n <= loaded.positions] or [loaded.positions]))
    if tokens is not None:
        sizes = [len(tokens)]
    if sizes[-1] > loaded.positions and not adversarial:
        limit = f"{loaded.positions}, the words {loaded.name} can read"
        raise InputError(f"{'lengths' if tokens is None else 'the text'} must be at most {limit}, got {sizes[-1]}")
    masked = causal or loaded.causal

    def measure(layer: int, n: int) -> Iterator[LayerLipschitz]:
        attention, radius = loaded.attention(layer, causal=masked), loaded.radius(layer)
        bounds = lipschitz_bounds(attention, n, radius, loaded.ellipsoid(layer))
        ball = [bound.value for bound in bounds.all if bound.kind == "upper" and bound.name != "ellipsoid"]
        steep = None  # an adversarial context, a witness for the lower bound
        try:
            if n > 1:
                steep = adversarial_context(attention, n, radius, steps=steps, seed=seeds[0], products=products)
        except NumericalError:  # no head has a real eigenvalue
            if adversarial:
                raise
        known = (bounds.lower, None if steep is None else steep.lipschitz.value)
        for seed in seeds:
            block = None
            if adversarial and steep is not None:
                context, local, data = steep.context, steep.lipschitz, "adversarial"
            else:
                numbers = loaded.review_tokens(1, n, seed) if tokens is None else [tokens]
                context = loaded.layer_inputs(numbers, layer)[0].double()
                local = local_lipschitz(attention, context, products=products, seed=seed)
                if blocks:
                    rows = loaded.layer_inputs(numbers, layer, normed=False)[0]
                    block = block_bound(loaded, layer, rows, attention).block
                data = "imdb" if tokens is None else "text"
            near_radius = near * float(context.norm(dim=-1).mean())
            yield LayerLipschitz(
                model=loaded.name,
                layer=layer,
                n=n,
                local=local,
                at_text=neighbourhood_bound(attention, context).value,
                near=neighbourhood_bound(attention, context, near_radius).value,
                near_radius=near_radius,
                all_inputs=bounds.upper,
                upper=min(value for value in ball if value is not None),
                lower=max((value for value in known if value is not None), default=None),
                block=block,
                radius=radius,
                causal=masked,
                data=data,
                seed=seed,
            )

    return (record for layer in chosen for n in sizes for record in measure(layer, n))
