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
from wordsway.experiments.claims import Points, Row, curves, judge
from wordsway.figures import _style as style
from wordsway.generalization import TRAININGS, one_word_generalization
from wordsway.maps.catalogue import map_named
from wordsway.sensitivity import Assumptions, assumptions

if TYPE_CHECKING:
    from torch import Tensor

PENALTIES = (1.0, 0.1, 0.01)
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


def share_below(claim: str, rows: Table, least: float = 0.5) -> Verdict:
    """Judge that more than a share of the points with gamma < 2 (Assumption 6.1) is below the line."""
    within = [row for row in rows if row["gamma"] < 2]

    def measured() -> tuple[str, bool]:
        groups = panels(within).values()
        shares = [f"{group[0]['n']} {group[0]['training']} {below(group):.0%}" for group in groups]
        share = f"{below(within):.0%} of {len(within)} points; by n and training: {', '.join(shares)}"
        return share, below(within) > least

    return judge(claim, within, measured)


def smaller(claim: str, rows: Table, others: Table, name: str) -> Verdict:
    """Judge that the median of a number is smaller in some points than in others."""

    def measured() -> tuple[str, bool]:
        first, second = (median(row[name] for row in some) for some in (rows, others))
        return f"median {name} {first:.3f} against {second:.3f}", first < second

    return judge(claim, rows and others, measured)


def penalty_verdicts(rows: Table) -> list[Verdict]:
    """Judge for each panel that the penalty lowers gamma."""
    verdicts = []
    for panel, members in panels(rows).items():
        least, most = ([row for row in members if row["penalty"] == p] for p in (0.01, 1.0))
        claim = f"{panel}: the penalty 1 leaves a smaller gamma than 0.01"
        verdicts.append(smaller(claim, most, least, "gamma"))
    return verdicts


def scatter(
    rows: Table, figure: style.Figure, colour: str, columns: int, marker: Callable[[Row], str] = lambda row: "o"
) -> None:
    """Draw error against gamma in a panel for each map, length and training, with the line and the share below it."""
    groups = panels(rows)
    values = list(dict.fromkeys(row[colour] for row in rows))
    gammas = [step / 20 for step in range(41)]
    for place, (panel, members) in enumerate(groups.items()):
        axes = style.panel(figure, len(groups), place, panel, columns, size=(3.3, 3.0))
        style.theory(axes, gammas, [(2 - gamma) ** 2 for gamma in gammas], "" if place else "$(2 - \\gamma)^2$")
        for (value, mark), some in curves([{**row, "mark": marker(row)} for row in members], colour, "mark").items():
            label = f"{'N' if colour == 'samples' else colour} = {value:g}" if isinstance(value, int | float) else value
            xs, ys = [row["gamma"] for row in some], [row["error"] for row in some]
            style.dots(axes, xs, ys, values.index(value), mark, label if mark == "o" and place == 0 else "")
        share = f"{below(members):.0%} below"
        if members[0]["map"] == "rf":  # the theorem allows O(1 / sqrt(n))
            share += f", by {max(row['bound'] - row['error'] for row in members):.2f} at most"
        style.square(axes, f"$\\gamma$ ({share})", "error", 2.2, 4.4, legend=place == 0)


def estimate(parameters: Parameters) -> Estimate:
    """Estimate one simulation by a fit to measured ones: right within a factor of about two."""
    width, samples = parameters["n"] * parameters["d"], parameters["samples"]
    kernel = 4e-11 * samples**2 * width
    products = 4e-10 * width * samples**2 if parameters["map"] == "rf" else 0.0
    return Estimate(1.0 + kernel + products + 4e-6 * width * 12, 5 * 10**8 + 30 * samples * width + 32 * samples**2)


experiment = partial(Experiment, estimate=estimate, version=5)
