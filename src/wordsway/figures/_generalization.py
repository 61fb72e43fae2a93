"""What the figures of generalization share: one simulation is one trial, its points are the rows of the table."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from wordsway.experiments.claims import TOO_FEW, curves
from wordsway.experiments.experiment import Estimate, Parameters, RunConfig, Table, TrialResult, Verdict
from wordsway.generalization import TRAININGS, Problem, one_word_generalization
from wordsway.maps.catalogue import map_named

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PENALTIES = (1.0, 0.1, 0.01)
_KEPT = ("gamma", "error", "bound", "floor", "constant", "sensitivity", "after")


def simulate(parameters: Parameters, seed: int, losses: Sequence[str], penalties: Sequence[float]) -> dict[str, Any]:
    """Train on N reviews, then on one more, and change its first word; all trainings, losses and penalties at once."""
    from wordsway.models import review_contexts

    n, d, samples = parameters["n"], parameters["d"], parameters["samples"]
    contexts, labels = review_contexts(samples + 1, n, d, seed, model=parameters.get("model"))
    phi = map_named(parameters["map"]).build(n, d, None, seed)
    found = one_word_generalization(
        phi,
        contexts[:-1],
        labels[:-1],
        contexts[-1],
        float(labels[-1]),
        0,
        losses=losses,
        penalties=penalties,
        seed=seed,
    )
    first = found[0]
    record: dict[str, Any] = {
        "interpolates": first.interpolates,
        "lambda_min": first.lambda_min,
        "before": first.before,
        "dtype": first.cost.dtype,
    }
    for one in found:
        values = one.to_dict()
        record |= {key(name, one.problem): values[name] for name in _KEPT}
    return record


def key(name: str, problem: Problem) -> str:
    """The name of a number of one search in the flat record: "gamma re-trained alignment 0.1"."""
    return f"{name} {problem.training} {problem.loss} {problem.penalty:g}"


def dimension(config: RunConfig) -> dict[str, Any]:
    """The data of a config: the whole embedding of the offline encoder, or of one model."""
    from wordsway.models import embedding_dimension

    data: dict[str, Any] = {"data": "imdb", "d": embedding_dimension(config.model)}
    return data if config.model is None else {**data, "model": config.model}


def points(finished: Sequence[TrialResult], losses: Sequence[str], penalties: Sequence[float]) -> Table:
    """One row for each simulation, training, loss and penalty."""
    rows: Table = []
    for one in finished:
        shared = {name: one[name] for name in ("map", "n", "d", "samples")}
        for problem in (Problem(t, loss, p) for t in TRAININGS for loss in losses for p in penalties):
            row = {**shared, "seed": one.seed, "training": problem.training, "loss": problem.loss}
            row |= {"penalty": problem.penalty, **{name: one[key(name, problem)] for name in _KEPT}}
            rows.append({**row, "interpolates": one["interpolates"]})
    return rows


def named(panel: tuple[Any, ...]) -> str:
    """The name of a panel: "raf, n = 40, fine-tuned"."""
    name, n, training = panel
    return f"{name}, n = {n}, {training}"


def panels(rows: Table) -> dict[tuple[Any, ...], Table]:
    """The rows of each map, length and training, the trainings below each other."""
    found = curves(rows, "map", "n", "training")
    order = sorted(found, key=lambda panel: TRAININGS.index(panel[2]))
    return {panel: [dict(row) for row in found[panel]] for panel in order}


def below(rows: Table) -> float:
    """The share of points below the line (2 - gamma)^2 that random features cannot cross."""
    return statistics.fmean(row["error"] < row["bound"] for row in rows)


def share_below(claim: str, rows: Table, least: float) -> Verdict:
    """That more than a share of the points with gamma < 2 (Assumption 6.1) lies below the line; told by panel too."""
    within = [row for row in rows if row["gamma"] < 2]
    if not within:
        return Verdict(claim, TOO_FEW, None)
    shares = [f"{n} {training} {below(members):.0%}" for (_, n, training), members in panels(within).items()]
    measured = f"{below(within):.0%} of {len(within)} points; by n and training: {', '.join(shares)}"
    return Verdict(claim, measured, below(within) > least)


def smaller(claim: str, rows: Table, others: Table, name: str) -> Verdict:
    """That the median of a number is smaller in one set of points than in another."""
    if not rows or not others:
        return Verdict(claim, TOO_FEW, None)
    one, other = (statistics.median(row[name] for row in some) for some in (rows, others))
    return Verdict(claim, f"median {name} {one:.3f} against {other:.3f}", one < other)


def scatter(rows: Table, figure: Figure, colour: str, marker: Callable[[dict[str, Any]], str], columns: int) -> None:
    """A panel for each map, length and training: error against gamma, the line dashed, the share below it told."""
    from wordsway.figures import _style as style

    found = panels(rows)
    values = list(dict.fromkeys(row[colour] for row in rows))
    for place, (panel, members) in enumerate(found.items()):
        axes = style.panel(figure, len(found), place, named(panel), columns, size=(3.3, 3.0))
        style.theory(axes, *_line(), "$(2 - \\gamma)^2$" if place == 0 else "")
        for (value, mark), some in curves([{**row, "mark": marker(row)} for row in members], colour, "mark").items():
            label = f"{'N' if colour == 'samples' else colour} = {value:g}" if isinstance(value, int | float) else value
            xs, ys = [row["gamma"] for row in some], [row["error"] for row in some]
            style.dots(axes, xs, ys, values.index(value), mark, label if mark == "o" and place == 0 else "")
        share = f"{below(members):.0%} below"
        if panel[0] == "rf":  # the theorem lets them by O(1 / sqrt(n))
            share += f", by {max(row['bound'] - row['error'] for row in members):.2f} at most"
        style.square(axes, f"$\\gamma$ ({share})", "error" if place % columns == 0 else "", 2.2, 4.4, legend=place == 0)


def _line() -> tuple[list[float], list[float]]:
    gammas = [step / 20 for step in range(41)]
    return gammas, [(2 - gamma) ** 2 for gamma in gammas]


def estimate(parameters: Parameters) -> Estimate:
    """Seconds and memory of one simulation, fitted to measured ones: right within a factor of about two."""
    width, samples = parameters["n"] * parameters["d"], parameters["samples"]
    kernel = 4e-11 * samples**2 * width
    questions = 4e-10 * width * samples**2 if parameters["map"] == "rf" else 0.0
    return Estimate(1.0 + kernel + questions + 4e-6 * width * 12, 5 * 10**8 + 30 * samples * width + 32 * samples**2)
