"""How steep attention can be: local Lipschitz constants at adversarial contexts, between the bounds."""

from collections.abc import Iterable
from functools import partial

from wordsway.experiments import Parameters, RunConfig, Table, TrialRecord, Verdict
from wordsway.experiments.claims import at_least_one, check, each
from wordsway.figures import _assumed
from wordsway.figures import _smoothness as shared
from wordsway.models import Model
from wordsway.smoothness import adversarial_directions, lipschitz_bounds, local_lipschitz

_SOURCE = 'at adversarial configurations "local Lipschitz constant proportional to sqrt(n)" (poster)'
LENGTHS = {"quick": (16, 64, 256), "paper": (16, 32, 64, 128, 256, 512, 1024)}
_CHOSEN_AT = 512  # words: the same head and direction for every length, so that the contexts are one family
PUBLISHED = "one head"
_PUBLISHED_LENGTHS = {"quick": (2, 22, 97), "paper": (2, 7, 12, 22, 47, 97)}  # of 2, 7, ..., 97
_HEADS = {False: 0, True: 7}  # the first layer without a mask, the middle one with it


def grid(config: RunConfig) -> Iterable[Parameters]:
    """Return all layers over the lengths of a scale, and those of the published protocol over its own."""
    yield from shared.grid_over(LENGTHS)(config)
    for block in shared.published_blocks(config, heads=1 + max(_HEADS.values())):
        head = {"protocol": PUBLISHED, "head": _HEADS[block["causal"]]}
        if block["causal"] == (block["layer"] > 0):
            yield from ({**block, **head, "n": n} for n in _PUBLISHED_LENGTHS[config.scale])


def trial(parameters: Parameters, seed: int) -> TrialRecord:
    """Measure the constant of a layer at its adversarial context in the ball of its norm, and the upper bound there."""
    model, attention = shared.layer_of(parameters)
    n, radius = parameters["n"], model.radius(parameters["layer"])
    published = "protocol" in parameters
    if published:
        attention, radius = attention.without_output(), _typical_radius(model, parameters["layer"])
    head, direction = adversarial_directions(attention, _CHOSEN_AT, radius, parameters.get("head"))[0]
    context = direction.context(n, radius)
    constant = local_lipschitz(attention, context, seed=seed).to_dict()
    record = {
        **{name: constant[name] for name in ("lipschitz", "residual", "products", "status", "dtype")},
        "head": head,
        "kind": direction.kind,
        "exponent": 2 * direction.gamma * radius**2,
        "upper": lipschitz_bounds(attention, n, radius).upper,
        "rotary": attention.rotary is not None,
    }
    return {**record, "published": shared.published_number(attention, context)} if published else record


def _typical_radius(model: Model, layer: int) -> float:
    """Return the norm of a row that a LayerNorm returns, in the mean square, if its coordinates are of size 1."""
    words = model.ellipsoid(layer)
    return float((words.matrix.square().sum() + words.centre.square().sum()).sqrt())


def claims(table: Table) -> list[Verdict]:
    def judge(name: str, rows: Table) -> list[Verdict]:
        if any(row["rotary"] for row in rows):
            return []  # the construction needs scores that do not depend on the position
        return shared.layers_grow(name, rows, 0.5, "n^(1/2)", (0.0, 0.25), _SOURCE)

    rows = [{**row, "margin": row["upper"] / row["most"]} for row in shared.constants(table)]
    below = at_least_one("every constant is below its upper bound", rows, "margin", "at least {:.1f} times below it")
    return [*each(table, "panel", judge), check(below), shared.converged(table)]


FIGURE = shared.experiment(
    name="smooth-adversarial",
    title="How attention grows steeper at adversarial contexts",
    about="Local Lipschitz constants of the same layers where one word is far from all others and all of them look at "
    "it, in the ball that the layer's own norm gives. The last two panels follow the published script: the first layer "
    "with its head 0, the middle one, masked, with its head 7, n up to 97, heads side by side, and R the usual norm of "
    "a word; its own number is the square root of |D f^T f(X)|. The dashed line is n^(1/2), the worst rate, up to a "
    "factor; rotary positions break the construction, so that the last model is drawn and not judged.",
    trial=trial,
    estimate=partial(shared.estimate, speed=2.7e10),  # more products, and some of them again in float64
    grid=grid,
    trials={"quick": 1, "paper": 1},
    claims=claims,
    plot=partial(shared.plot, power=0.5, label="∝ $n^{1/2}$"),
    assumptions=_assumed.at_adversarial,
    version=4,
)
