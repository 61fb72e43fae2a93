"""What the figures of word sensitivity against the length of the context share: trial, grid, table, picture."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from wordsway.contexts import gaussian_context
from wordsway.experiments.claims import curves, deviation, exponent_near
from wordsway.experiments.experiment import Estimate, Parameters, RunConfig, Table, TrialResult, Verdict
from wordsway.maps.catalogue import MapOptions, map_named
from wordsway.sensitivity import SearchBudget, response_sensitivity

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

REVIEWS, GAUSSIAN = "imdb", "gaussian"
_PAPER_DIMENSION = 768
_PATIENT = SearchBudget(power=3, screen=7, polish=0, anneal=200)


def trial(parameters: Parameters, seed: int) -> dict[str, Any]:
    """S of the first word (X^1 in the paper), as `wordsway measure` gives it for the same sizes and seed.

    Only for relu scores the search takes more steps than there, because kinks slow it down.
    """
    named = map_named(parameters["map"])
    response = named.respond(context_of(parameters, seed), 0, MapOptions(depth=parameters.get("depth")), seed)
    budget = _PATIENT if named.name == "relu-raf" else None
    found = response_sensitivity(response, 0, ceiling="quick", seed=seed, budget=budget)
    return {
        "sensitivity": found.value,
        "ceiling": found.ceiling,
        "status": "converged" if found.status == "converged" else "step limit",
        "ceiling_kind": found.ceiling_kind,
        "dtype": found.cost.dtype,
    }


def context_of(parameters: Parameters, seed: int) -> Tensor:
    """The context of a trial, (n, d)."""
    n, d = parameters["n"], parameters["d"]
    if parameters["data"] == GAUSSIAN:
        return gaussian_context(n, d, seed)
    from wordsway.models import review_contexts

    return review_contexts(1, n, d, seed, model=parameters.get("model"))[0][0]


def sizes(config: RunConfig) -> list[tuple[dict[str, Any], tuple[int, int, int]]]:
    """The data of a config with their three dimensions: the whole embedding, a half and a quarter of it.

    Reviews through the offline encoder and Gaussian contexts of the paper's dimension, or one model's reviews.
    """
    from wordsway.models import embedding_dimension

    if config.model is not None:
        return [({"data": REVIEWS, "model": config.model}, _fractions(embedding_dimension(config.model)))]
    return [
        ({"data": REVIEWS}, _fractions(embedding_dimension())),
        ({"data": GAUSSIAN}, _fractions(_PAPER_DIMENSION)),
    ]


def _fractions(dimension: int) -> tuple[int, int, int]:
    return dimension // 4, dimension // 2, dimension


def grid_over_d(name: str, lengths: Callable[[str], Sequence[int]]) -> Callable[[RunConfig], Iterable[Parameters]]:
    """The grid of a map over three dimensions and the lengths of a scale."""

    def grid(config: RunConfig) -> Iterable[Parameters]:
        for data, dimensions in sizes(config):
            for d in dimensions:
                for n in lengths(config.scale):
                    yield {"map": name, **data, "d": d, "n": n}

    return grid


def table(finished: Sequence[TrialResult]) -> Table:
    """One row for each point of the grid: mean, deviation and extremes of S, and the mean ceiling."""
    points: dict[tuple[tuple[str, Any], ...], list[TrialResult]] = {}
    for one in finished:
        points.setdefault(tuple(one.parameters.items()), []).append(one)
    return [_row(dict(point), members) for point, members in points.items()]


def _row(point: dict[str, Any], members: list[TrialResult]) -> dict[str, Any]:
    values = [one["sensitivity"] for one in members]
    ceilings = [one["ceiling"] for one in members]
    return {
        "panel": _panel(point),
        "map": point["map"],
        "data": point["data"],
        "d": point["d"],
        "depth": point.get("depth"),
        "n": point["n"],
        "trials": len(values),
        "mean": statistics.fmean(values),
        "scaled": statistics.fmean(values) / edge(point["n"]),
        "deviation": deviation(values),
        "least": min(values),
        "most": max(values),
        "ceiling": None if None in ceilings else statistics.fmean(ceilings),
        "converged": sum(one["status"] == "converged" for one in members),
    }


def _panel(point: dict[str, Any]) -> str:
    if point["data"] == GAUSSIAN:
        return "Gaussian contexts"
    return f"reviews, {point['model']}" if "model" in point else "reviews"


def draw(
    rows: Table,
    figure: Figure,
    curve: str,
    guide: Callable[[Axes, Table], None],
    logarithmic: bool = True,
) -> None:
    """A panel for each kind of data: mean, a band of one standard deviation, a lighter one up to the ceiling."""
    from wordsway.figures import _style as style

    panels = curves(rows, "panel")
    for place, ((panel,), members) in enumerate(panels.items()):
        axes = style.panel(figure, len(panels), place, panel)
        lines = curves(members, curve)
        for number, ((value,), line) in enumerate(lines.items()):
            ordered = sorted(line, key=lambda row: row["n"])
            style.curve(
                axes,
                [row["n"] for row in ordered],
                [row["mean"] for row in ordered],
                [row["deviation"] for row in ordered],
                [row["ceiling"] for row in ordered],
                label=f"{'L' if curve == 'depth' else curve} = {value}",
                number=number,
            )
        guide(axes, [dict(row) for row in members])
        lengths = sorted({row["n"] for row in members})
        style.finish(axes, "context length n", "word sensitivity" if place == 0 else "", lengths, logarithmic)


def edge(n: int) -> float:
    """1 + n^(-1/2): how much the norm of a word's block of V exceeds its typical stretch, for k = n d features.

    The block is k x d with entries N(0, 1/(n d)), so its largest singular value is (sqrt(k) + sqrt(d)) / sqrt(n d) in
    the limit. The proof of Theorem 4.1 bounds S by this over sqrt(n): in short contexts S is a little steeper than
    n^(-1/2), by this factor.
    """
    return 1 + 1 / math.sqrt(n)


def falls_like_root(panel: str, rows: Table, tolerance: float, curve: str) -> Verdict:
    """That S falls like n^(-1/2), once the factor of short contexts is taken out."""
    claim = f"{panel}: S / (1 + n^(-1/2)) falls like n^(-1/2)"
    return exponent_near(claim, rows, -0.5, tolerance, "scaled", (curve,), plain="mean")


def inverse_root(axes: Axes, rows: Table) -> None:
    """The theory's n^(-1/2) with its factor for short contexts, through the middle of the measured means."""
    from wordsway.figures import _style as style

    lengths = sorted({row["n"] for row in rows})
    height = statistics.fmean(row["scaled"] * row["n"] ** 0.5 for row in rows)
    style.theory(axes, lengths, [height * edge(n) / n**0.5 for n in lengths], "∝ $n^{-1/2}(1 + n^{-1/2})$")


def estimate(parameters: Parameters) -> Estimate:
    """Seconds and memory of one trial, fitted to measured ones: right within a factor of about two."""
    n, d, idle = parameters["n"], parameters["d"], 4 * 10**8
    if parameters["map"] in ("rf", "drf"):
        k, depth = n * d, parameters.get("depth")
        if depth is None:
            return Estimate(0.05 + 2.5e-6 * k, idle + 320 * k)
        return Estimate(0.2 + 9e-6 * k * depth, idle + 1200 * k * depth)
    slow = 2 if parameters["map"] == "relu-raf" else 1
    return Estimate(slow * (0.08 + 4e-6 * n * d), idle + 500 * n * (n + d))
