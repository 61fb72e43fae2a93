"""How steep attention can be: local Lipschitz constants at adversarial contexts, between the bounds."""

from functools import partial

from wordsway.experiments import Parameters, Table, TrialRecord, Verdict
from wordsway.experiments.claims import at_least_one, check, each
from wordsway.figures import _assumed
from wordsway.figures import _smoothness as shared
from wordsway.smoothness import adversarial_directions, lipschitz_bounds, local_lipschitz

_SOURCE = 'at adversarial configurations "local Lipschitz constant proportional to sqrt(n)" (poster)'
LENGTHS = {"quick": (16, 64, 256), "paper": (16, 32, 64, 128, 256, 512, 1024)}
_CHOSEN_AT = 512  # words: the same head and direction for every length, so that the contexts are one family


def trial(parameters: Parameters, seed: int) -> TrialRecord:
    """Measure the constant of a layer at its adversarial context in the ball of its norm, and the upper bound there."""
    model, attention = shared.layer_of(parameters)
    n, radius = parameters["n"], model.radius(parameters["layer"])
    head, direction = adversarial_directions(attention, _CHOSEN_AT, radius)[0]
    constant = local_lipschitz(attention, direction.context(n, radius), seed=seed).to_dict()
    return {
        **{name: constant[name] for name in ("lipschitz", "residual", "products", "status", "dtype")},
        "head": head,
        "kind": direction.kind,
        "exponent": 2 * direction.gamma * radius**2,
        "upper": lipschitz_bounds(attention, n, radius).upper,
        "rotary": attention.rotary is not None,
    }


def claims(table: Table) -> list[Verdict]:
    def judge(name: str, rows: Table) -> list[Verdict]:
        if any(row["rotary"] for row in rows):
            return []  # the construction needs scores that do not depend on the position
        return shared.layers_grow(name, rows, 0.5, "n^(1/2)", (0.0, 0.25), _SOURCE)

    rows = [{**row, "room": row["upper"] / row["most"]} for row in table]
    below = at_least_one("every constant is below its upper bound", rows, "room", "at least {:.1f} times below it")
    return [*each(table, "panel", judge), check(below), shared.converged(table)]


FIGURE = shared.experiment(
    name="smooth-adversarial",
    title="How attention grows steeper at adversarial contexts",
    about="Local Lipschitz constants of the same layers where one word is far from all others and all of them look at "
    "it, in the ball that the layer's own norm gives. The dashed line is n^(1/2), the worst rate, up to a factor; "
    "rotary positions break the construction, so that the last model is drawn and not judged.",
    trial=trial,
    grid=shared.grid_over(LENGTHS),
    trials={"quick": 1, "paper": 1},
    claims=claims,
    plot=partial(shared.plot, power=0.5, label="∝ $n^{1/2}$"),
    assumptions=_assumed.at_adversarial,
    version=4,
)
