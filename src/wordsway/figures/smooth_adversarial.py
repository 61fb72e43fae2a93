"""How steep attention can be: local Lipschitz constants at adversarial contexts, between the bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wordsway.experiments.claims import TOO_FEW, each
from wordsway.experiments.experiment import Experiment, Parameters, Table, Verdict
from wordsway.figures import _smoothness as shared
from wordsway.smoothness import adversarial_directions, lipschitz_bounds, local_lipschitz

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTHS = {"quick": (16, 64, 256), "paper": (16, 32, 64, 128, 256, 512, 1024)}
_CHOSEN_AT = 512  # words: the same head and direction for every length, so that the contexts are one family


def trial(parameters: Parameters, seed: int) -> dict[str, Any]:
    """The constant of a layer at its adversarial context in the ball of its norm, and the upper bound there."""
    model, attention = shared.layer_of(parameters)
    n, radius = parameters["n"], model.radius(parameters["layer"])
    head, direction = adversarial_directions(attention, _CHOSEN_AT, radius)[0]
    found = local_lipschitz(attention, direction.context(n, radius), seed=seed)
    upper = lipschitz_bounds(attention, n, radius).upper
    rotary = attention.rotary is not None
    return {**shared.constant(found), "head": head, "kind": direction.kind, "upper": upper, "rotary": rotary}


def claims(table: Table) -> list[Verdict]:
    def judge(name: str, rows: Table) -> list[Verdict]:
        if any(row["rotary"] for row in rows):
            return []  # the construction needs scores that do not depend on the place
        return [shared.exponent(f"{name}: grows like n^(1/2)", rows, 0.5, 0.1)]

    room = min((row["upper"] / row["most"] for row in table), default=None)
    measured = TOO_FEW if room is None else f"at least {room:.1f} times below it"
    below = Verdict("every constant is below its upper bound", measured, None if room is None else room >= 1)
    return [*each(table, "panel", judge), below, shared.converged(table)]


def plot(table: Table, figure: Figure) -> None:
    shared.draw(table, figure, 0.5, "∝ $n^{1/2}$")


FIGURE = Experiment(
    name="smooth-adversarial",
    title="At adversarial contexts attention grows steeper like n^(1/2)",
    about="Local Lipschitz constants of the same layers where one word is far from all others and all of them look at "
    "it, in the ball that the layer's own norm gives: the worst rate there is, up to a factor.",
    trial=trial,
    grid=shared.grid_over(LENGTHS),
    trials={"quick": 1, "paper": 1},
    table=shared.table,
    claims=claims,
    plot=plot,
    estimate=shared.estimate,
    version=2,
)
