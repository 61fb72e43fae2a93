"""How smooth attention is on real text: local Lipschitz constants against the length of the context."""

import copy
from collections.abc import Callable, Iterable
from functools import partial

from torch import Tensor

from wordsway.experiments import Parameters, RunConfig, Table, TrialRecord, Verdict
from wordsway.experiments.claims import each
from wordsway.figures import _smoothness as shared
from wordsway.maps import Attention
from wordsway.models import Model
from wordsway.smoothness import local_lipschitz

_SOURCE = '"The local Lipschitz constant with real data grows like Cn^(1/4)" (poster)'
LENGTHS = {"quick": (4, 16, 64, 128), "paper": (2, 4, 8, 16, 32, 64, 128, 240)}
PUBLISHED = "with residual and norm"
_PUBLISHED_LENGTHS = {"quick": (2, 14, 50, 98), "paper": (2, 6, 14, 30, 62, 98)}  # of 2, 4, ..., 98


def grid(config: RunConfig) -> Iterable[Parameters]:
    """Return all layers over the lengths of a scale, and those of the published protocol over its own."""
    yield from shared.grid_over(LENGTHS)(config)
    for block in shared.published_blocks(config):
        yield from ({**block, "protocol": PUBLISHED, "n": n} for n in _PUBLISHED_LENGTHS[config.scale])


def trial(parameters: Parameters, seed: int) -> TrialRecord:
    """Measure the constant of a layer at its input on the first n tokens of a review."""
    model, attention = shared.layer_of(parameters)
    tokens = model.review_tokens(1, parameters["n"], seed)
    context = model.layer_inputs(tokens, parameters["layer"])[0].double()
    if "protocol" not in parameters:
        return local_lipschitz(attention, context, seed=seed)
    layer = _with_residual(model, attention, parameters["layer"])
    published = shared.published_number(layer, context)
    return {**local_lipschitz(layer, context, seed=seed).to_dict(), "published": published}


def _with_residual(model: Model, attention: Attention, index: int) -> Callable[[Tensor], Tensor]:
    """Return LayerNorm(X + f(X)), which the module `attention` of a BERT layer computes, in float64."""
    norm = copy.deepcopy(model.network.base_model.encoder.layer[index].attention.output.LayerNorm).double()

    def layer(X: Tensor) -> Tensor:
        features: Tensor = norm(X + attention(X))
        return features

    return layer


def claims(table: Table) -> list[Verdict]:
    """Judge that trained layers grow like n^(1/4), and random ones, which the poster does not measure, no faster."""

    def judge(name: str, rows: Table) -> list[Verdict]:
        if name == "gpt2-random":
            return shared.layers_grow_slowly(name, rows, 0.25, "n^(1/4)")
        return shared.layers_grow(name, rows, 0.25, "n^(1/4)", (0.0, 0.5), _SOURCE)

    return [*each(table, "panel", judge), shared.converged(table)]


FIGURE = shared.experiment(
    name="smooth-real",
    title="How attention grows steeper on real text",
    about="Local Lipschitz constants of attention layers at their own inputs on film reviews, against the length of "
    "the text: an encoder, the same with a causal mask, a GPT-2 with random weights and a small language model. The "
    "last two panels follow the published script, whose encoder layers include the residual connection and the "
    "LayerNorm, at n up to 98; its own number is the square root of |D f^T f(X)|, which is no Lipschitz constant. "
    "Bands are one standard deviation over reviews; the dashed line is n^(1/4), which the poster measures.",
    trial=trial,
    grid=grid,
    trials={"quick": 3, "paper": 10},
    claims=claims,
    plot=partial(shared.plot, power=0.25, label="∝ $n^{1/4}$"),
)
