"""Shared by the figures of word sensitivity against the length of the context: trial, grid, table, plot."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

from wordsway import models
from wordsway.contexts import gaussian_context
from wordsway.experiments import Estimate, Experiment, Parameters, RunConfig, Table, TrialRecord, TrialResult, Verdict
from wordsway.experiments.claims import exponent_near, points, statistics
from wordsway.figures import _style as style
from wordsway.maps.catalogue import MapOptions, map_named
from wordsway.sensitivity import Assumptions, assumptions, response_sensitivity
from wordsway.sensitivity.records import has_converged

if TYPE_CHECKING:
    from torch import Tensor

REVIEWS, GAUSSIAN = "imdb", "gaussian"
_PAPER_DIMENSION = 768
_SIZES = ("map", "n", "d", "depth")


def trial(parameters: Parameters, seed: int) -> TrialRecord:
    """Measure S of the first word (X^1 in the paper), as `wordsway measure` does for the same sizes and seed."""
    named = map_named(parameters["map"])
    response = named.respond(context(parameters, seed), 0, MapOptions(depth=parameters.get("depth")), seed)
    return response_sensitivity(response, 0, ceiling="quick", seed=seed)


def context(parameters: Parameters, seed: int) -> Tensor:
    """Return the context of a trial, (n, d): Gaussian, or the first words of a review."""
    n, d = parameters["n"], parameters["d"]
    if parameters["data"] == GAUSSIAN:
        return gaussian_context(n, d, seed)
    return models.review_contexts(1, n, d, seed, model=parameters.get("model"))[0][0]


def sizes(config: RunConfig) -> list[tuple[dict[str, Any], tuple[int, int, int]]]:
    """Return the data of a configuration with three dimensions: a quarter, a half and all of the embedding.

    Reviews through the offline encoder and Gaussian contexts of the paper's dimension, or one model's reviews.
    """
    chosen = {} if config.model is None else {"model": config.model}
    data = [({"data": REVIEWS, **chosen}, models.embedding_dimension(config.model))]
    if config.model is None:
        data.append(({"data": GAUSSIAN}, _PAPER_DIMENSION))
    return [(names, (d // 4, d // 2, d)) for names, d in data]


def grid_over_d(name: str, lengths: Mapping[str, Sequence[int]]) -> Callable[[RunConfig], Iterable[Parameters]]:
    """Return the grid of a map over three dimensions and the lengths of each scale."""

    def grid(config: RunConfig) -> Iterable[Parameters]:
        for data, dimensions in sizes(config):
            for d in dimensions:
                for n in lengths[config.scale]:
                    yield {"map": name, **data, "d": d, "n": n}

    return grid


def table(results: Sequence[TrialResult]) -> Table:
    """Return one row per point of the grid: mean, deviation and extremes of S, and the mean ceiling."""
    rows: Table = []
    for point, trials in points(results, "map", "data", "model", "d", "depth", "n"):
        panel, ceilings = data_name(point["data"], point.pop("model")), [trial["ceiling"] for trial in trials]
        values = statistics([trial["sensitivity"] for trial in trials], "mean", "deviation", "least", "most")
        rows.append(
            {
                "panel": panel,
                **point,
                **values,
                "scaled": values["mean"] / edge(point["n"], point["depth"] or 1),
                "ceiling": None if None in ceilings else fmean(ceilings),
                "converged": sum(has_converged(trial["status"]) for trial in trials),
            }
        )
    return rows


def assumed(results: Sequence[TrialResult]) -> list[Assumptions]:
    """Return the assumptions of the theorem on each map, at each size; no theorem is about relu scores."""
    sizes = [(point["map"], point["n"], point["d"], point["depth"]) for point, _ in points(results, *_SIZES)]
    return [assumptions(name, n=n, d=d, depth=depth, normalized=True) for name, n, d, depth in dict.fromkeys(sizes)]


def data_name(data: str, model: str | None) -> str:
    """Return the name of the data of a trial, as the title of a panel."""
    if data == GAUSSIAN:
        return "Gaussian contexts"
    return "reviews" if model is None else f"reviews, {model}"


def edge(n: float, depth: int = 1) -> float:
    """Return 1 + sqrt(2 L / n): how much S of ReLU features exceeds n^(-1/2) to leading order, for k = n d features.

    ReLU passes half of the features on, a block of k/2 x d with entries N(0, 1/(n d)), whose largest singular value is
    1 + sqrt(2 d / k) times its typical stretch in the limit. In short contexts S is a little steeper than n^(-1/2), by
    this factor; L layers have L such terms.
    """
    return 1 + math.sqrt(2 * depth / n)


def falls_like_root(panel: str, rows: Table, tolerance: float, curve: str) -> Verdict:
    """Judge that S falls like n^(-1/2), without the factor of short contexts."""
    factor = "(2/n)^(1/2)" if curve == "d" else "(2L/n)^(1/2)"
    claim = f"{panel}: S / (1 + {factor}) falls like n^(-1/2)"
    return exponent_near(claim, rows, -0.5, tolerance, y="scaled", curve=(curve,), plain="mean")


def inverse_root(axes: style.Axes, rows: Table) -> None:
    """Draw the theory's n^(-1/2) with its factor for short contexts."""
    style.law(axes, rows, lambda n: edge(n) / n**0.5, "∝ $n^{-1/2}(1 + (2/n)^{1/2})$")


def plot(
    rows: Table,
    figure: style.Figure,
    curve: str = "d",
    guide: Callable[[style.Axes, Table], None] = inverse_root,
    logarithmic: bool = True,
) -> None:
    """Draw a panel for each kind of data, on one scale: mean, deviation and ceiling."""
    compared = []
    for axes, _, members in style.panels(figure, rows, ["panel"]):
        compared.append(axes)
        style.lines(axes, members, curve, f"{'L' if curve == 'depth' else curve} = {{}}")
        guide(axes, members)
        lengths = sorted({row["n"] for row in members})
        style.finish(axes, "context length n", "word sensitivity", lengths, logarithmic)
    style.common_scale(compared)


def estimate(parameters: Parameters) -> Estimate:
    """Estimate one trial by a fit to CPU seconds of trials at the smallest, middle and largest sizes of the figures."""
    n, d, idle = parameters["n"], parameters["d"], 4 * 10**8
    if parameters["map"] in ("rf", "drf"):
        k, depth = n * d, parameters.get("depth")
        if depth is None:
            return Estimate(0.03 + 1.2e-6 * k, idle + 320 * k)
        return Estimate(0.09 + 5.3e-6 * k * (depth - 1), idle + 1200 * k * depth)
    start, each = (0.1, 3e-6) if parameters["map"] == "relu-raf" else (0.04, 2.5e-6)
    return Estimate(start + each * n * d, idle + 500 * n * (n + d))


experiment = partial(Experiment, trial=trial, table=table, estimate=estimate, version=5, assumptions=assumed)
