"""Shared by the figures of generalization: one simulation is one trial, and each of its searches is a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import torch

from wordsway import models
from wordsway.experiments import Estimate, Experiment, Parameters, RunConfig, Table, TrialRecord, TrialResult, Verdict
from wordsway.experiments.claims import Points, Row, check, curves, judge, share_interval
from wordsway.figures import _style as style
from wordsway.generalization import TRAININGS, one_word_generalization
from wordsway.maps.catalogue import map_named
from wordsway.sensitivity import Assumptions, assumptions

if TYPE_CHECKING:
    from torch import Tensor

PENALTIES = (1.0, 0.1, 0.01)
SMALL = 1.0  # an error below it has the sign of the changed label; a gamma below it is nearer to 0 than to 2
_WIDTH, _HEIGHT, _HIGHEST = 2.2, 4.4, 6.6  # axes show at least the line from (0, 4) to (2, 0); few points are far above
_FEW = 0.05  # share of exceptions that leaves a claim weaker than its source
_THEOREMS = {"fine-tuned": "Theorem 6.2", "re-trained": "Theorem 6.3"}
_SHARED = ("map", "n", "d", "samples")
_KEPT = ("gamma", "error", "bound", "floor", "constant", "sensitivity", "after", "interpolates")


def simulate(parameters: Parameters, seed: int, losses: Sequence[str], penalties: Sequence[float]) -> TrialRecord:
    """Train on N reviews, then on one more, and change its first word; all trainings, losses and penalties at once."""
    phi = map_named(parameters["map"]).build(parameters["n"], parameters["d"], None, seed)
    reviews = split_reviews(parameters, seed)
    searches = one_word_generalization(phi, *reviews, 0, losses=losses, penalties=penalties, seed=seed)
    record: dict[str, Any] = {"dtype": searches[0].cost.dtype, "searches": searches}
    if parameters["map"] == "rf":  # the theorems are about it
        record["assumptions"] = data_assumptions(phi, *reviews, theorems=list(_THEOREMS.values()), f=searches[0].before)
    return record


def data_assumptions(
    phi: Any, contexts: Tensor, labels: Tensor, X: Tensor, y: float, theorems: Sequence[str], f: float | None = None
) -> Assumptions:
    """Compare all samples of a simulation with what theorems assume; `f` is the prediction for X before training."""
    samples = torch.cat([contexts, X[None]])
    return assumptions(phi, samples, samples=len(contexts), prediction=f, theorems=theorems)


def assumed(results: Sequence[TrialResult]) -> list[Assumptions]:
    """Return the assumptions of the theorems on random features in each simulation, with the gamma of each search."""
    records = []
    for result in results:
        if result["map"] == "rf":
            record = Assumptions.from_dict(result["assumptions"])
            checks = [check for check in record.checks if not check.assumption.startswith("gamma")]
            for search in result["searches"]:
                (gamma,) = (one for one in record.of(_THEOREMS[search["training"]]) if one.quantity == "gamma")
                checks.append(replace(gamma, value=search["gamma"]))
            records.append(replace(record, checks=tuple(checks)))
    return records


def split_reviews(parameters: Parameters, seed: int) -> tuple[Tensor, Tensor, Tensor, float]:
    """Draw N + 1 reviews: contexts and labels of the first N, context and label of the last."""
    n, d, samples = parameters["n"], parameters["d"], parameters["samples"]
    contexts, labels = models.review_contexts(samples + 1, n, d, seed, model=parameters.get("model"))
    return contexts[:-1], labels[:-1], contexts[-1], float(labels[-1])


def dimension(config: RunConfig) -> dict[str, Any]:
    """Return the data of a configuration: the whole embedding of the offline encoder, or of one model."""
    data: dict[str, Any] = {"data": "imdb", "d": models.embedding_dimension(config.model)}
    return data if config.model is None else {**data, "model": config.model}


def table(results: Sequence[TrialResult], losses: Sequence[str], penalties: Sequence[float]) -> Table:
    """Return one row per simulation, training, loss and penalty."""
    return [
        {name: result[name] for name in _SHARED}
        | {"seed": result.seed}
        | {name: search[name] for name in ("training", "loss", "penalty", *_KEPT)}
        for result in results
        for search in result["searches"]
        if search["loss"] in losses and search["penalty"] in penalties
    ]


def panels(rows: Points) -> dict[str, Table]:
    """Group rows by map, length and training, the trainings below each other: "raf, n = 40, fine-tuned"."""
    groups = curves(rows, "map", "n", "training")
    order = sorted(groups, key=lambda panel: TRAININGS.index(panel[2]))
    return {f"{panel[0]}, n = {panel[1]}, {panel[2]}": [dict(row) for row in groups[panel]] for panel in order}


def below(rows: Points) -> float:
    """Return the share of points below the line (2 - gamma)^2 that random features cannot cross."""
    return fmean(row["error"] < row["bound"] for row in rows)


def above_floor(rows: Table) -> Verdict:
    """Check the bound that the proofs of the theorems have for every map and perturbation."""
    claim = "no error is below the floor of the proofs (45)"
    above = sum(row["error"] >= row["floor"] * (1 - 1e-9) - 1e-9 for row in rows)
    return check(judge(claim, rows, lambda: (f"{above} of {len(rows)} are above it", above == len(rows))))


def most_below(panel: str, rows: Table, source: str) -> Verdict:
    """Judge that most points of a panel are below the line, with a 95% interval of their share.

    It is weaker than the source where this is not so of the circles alone. Shares of those with gamma < 2
    (Assumption 6.1) are reported: beyond, the line is 0, and nothing can be below it.
    """
    claim = f"{panel}: most points are below (2 - gamma)^2"
    circles = [row for row in rows if row["loss"] == "alignment"]
    low, high = share_interval(sum(row["error"] < row["bound"] for row in rows), len(rows))
    within = [[row for row in some if row["gamma"] < 2] for some in (rows, circles)]
    shares = [f"{below(some):.0%}" if some else "none" for some in (rows, circles, *within)]
    measured = (
        f"{shares[0]} of {len(rows)} ({low:.0%} to {high:.0%}), circles {shares[1]}; "
        f"with gamma < 2 {shares[2]}, circles {shares[3]}"
    )
    if low <= 0.5 <= high:
        return Verdict(claim, measured, None, source=source)
    how = "not of the circles alone" if low > 0.5 and below(circles) <= 0.5 else ""
    return Verdict(claim, measured, low > 0.5 and not how, weaker=how, source=source)


def small_needs_gamma(claim: str, rows: Table, source: str) -> Verdict:
    """Judge that the error is small only where gamma is large; weaker than the source with few exceptions."""
    gammas = [row["gamma"] for row in rows if row["error"] < SMALL]
    early = sum(gamma < SMALL for gamma in gammas)
    claim = f"{claim}: an error below {SMALL:g} needs a gamma of at least {SMALL:g}"
    if not gammas:
        return Verdict(claim, f"none of {len(rows)} errors is that small", True, source=source)
    measured = f"{early} of {len(gammas)} have a smaller gamma, the least is {min(gammas):.3f}"
    how = f"{early} of {len(rows)} points are exceptions" if 0 < early <= _FEW * len(rows) else ""
    return Verdict(claim, measured, not early, weaker=how, source=source)


def of_seed(rows: Points, *names: str) -> dict[tuple[Any, ...], Row]:
    """Return rows by seed and some other columns."""
    return {(row["seed"], *(row[name] for name in names)): row for row in rows}


def penalty_verdicts(rows: Table) -> list[Verdict]:
    """Check for each panel that the penalty lowers gamma, as that of any optimiser must."""
    verdicts = []
    for panel, members in panels(rows).items():
        least, most = ([row["gamma"] for row in members if row["penalty"] == p] for p in (0.01, 1.0))
        claim = f"{panel}: the penalty 1 leaves a smaller median gamma than 0.01"

        def measured(most: list[float] = most, least: list[float] = least) -> tuple[str, bool]:
            return f"{median(most):.3f} against {median(least):.3f}", median(most) < median(least)

        verdicts.append(check(judge(claim, most and least, measured)))
    return verdicts


def scatter(
    rows: Table, figure: style.Figure, colour: str, columns: int, marker: Callable[[Row], str] = lambda row: "o"
) -> None:
    """Draw error against gamma in a panel for each map, length and training, with the line and the share below it.

    All panels have one scale, so that points far above the line are drawn as triangles at its upper end. Where there
    are markers of two kinds, they are explained: circles for the alignment losses, crosses for the error.
    """
    groups = panels(rows)
    marked = len({marker(row) for row in rows}) > 1
    width = max([_WIDTH, *(1.05 * row["gamma"] for row in rows)])
    height = min(_HIGHEST, max([_HEIGHT, *(1.05 * row["error"] for row in rows)]))
    beyond = any(row["error"] > height for row in rows)
    values = list(dict.fromkeys(row[colour] for row in rows))
    gammas = [step / 20 for step in range(41)]
    for place, (panel, members) in enumerate(groups.items()):
        axes = style.panel(figure, len(groups), place, panel, columns, size=(3.3, 3.0))
        style.theory(axes, gammas, [(2 - gamma) ** 2 for gamma in gammas], "" if place else "$(2 - \\gamma)^2$")
        shown = [{**row, "mark": "^" if row["error"] > height else marker(row)} for row in members]
        for (value, mark), some in curves(shown, colour, "mark").items():
            xs, ys = [row["gamma"] for row in some], [min(row["error"], height) for row in some]
            style.dots(axes, xs, ys, values.index(value), mark)
        if place == 0:
            for number, value in enumerate(values):
                style.dots(axes, [], [], number, "o", _name(colour, value))
            kinds = (("o", "alignment loss (25) minimised"), ("x", "error (16) minimised"))
            for mark, label in (*(kinds if marked else ()), *((("^", "error beyond the axis"),) if beyond else ())):
                axes.scatter([], [], s=18, color="grey", marker=mark, label=label)
        style.square(axes, "$\\gamma$", "error", width, height)
        axes.set_title(f"{panel}: {below(members):.0%} below", fontsize=9)
    style.legend_below(figure, figure.axes[:1], columns)


def _name(column: str, value: Any) -> str:
    """Return what the legend calls a value of the column that chooses colours."""
    if column == "loss":
        return {"alignment": "loss of this training", "swapped": "loss of the other training"}[value]
    return f"{'N' if column == 'samples' else column} = {value:g}"


def estimate(parameters: Parameters, start: float = 0.05) -> Estimate:
    """Estimate one simulation: features and their kernel, and for rf the weights V and products with them.

    Constants are a fit to CPU seconds of simulations with 100 to 1,300 samples of 40 and 120 words, d = 384.
    """
    width, samples = parameters["n"] * parameters["d"], parameters["samples"]
    rf = parameters["map"] == "rf"
    products = width**2 * (2e-9 + 9e-12 * samples) if rf else 0.0
    seconds = start + 5e-8 * samples * width + (6e-11 if rf else 2e-11) * samples**2 * width + products
    return Estimate(seconds, 5 * 10**8 + 30 * samples * width + 32 * samples**2)


experiment = partial(Experiment, estimate=estimate, version=7)
