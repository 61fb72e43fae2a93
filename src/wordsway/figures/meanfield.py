"""Mean-field attention stretches Wasserstein distances by a factor that is exponential in R^2, masked or not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import geometric_mean

import torch

from wordsway.experiments import Estimate, Experiment, Parameters, RunConfig, Table, TrialRecord, TrialResult, Verdict
from wordsway.experiments.claims import above, check, each, points
from wordsway.figures import _assumed
from wordsway.figures import _style as style
from wordsway.maps.attention import Attention
from wordsway.seeds import generator, normal
from wordsway.sensitivity.records import has_converged
from wordsway.smoothness.mean_field_search import mean_field_lipschitz

RADII = {"quick": (0.5, 1.4, 2.4), "paper": (0.5, 0.8, 1.1, 1.4, 1.7, 2.0, 2.2, 2.4)}
_D = 5  # an odd d, so that A has a real eigenvalue
_POINTS = 4
_TITLES = {False: "attention", True: "masked attention"}
_BOUNDS = {
    "published": ((0, (2, 4)), "upper bound: $(1 + 3|A|R^2)\\,e^{2|A|R^2}$"),
    "upper": ((0, (4, 3)), "sharper upper bound"),
    "two_point": ((0, (1, 1.5)), "lower bound: two adversarial points"),
    "lower": ((0, (5, 1.5, 1, 1.5)), "lower bound: $(\\gamma/2)\\,R^2 e^{\\gamma R^2}$"),
}


def layer(d: int, seed: int) -> Attention:
    """Draw Gaussian queries and keys, scaled to |A| = 1; V = I."""
    source = generator(seed, "mean field")
    query, key = (normal(source, (d, d)) for _ in range(2))
    size = torch.linalg.matrix_norm(key.mT @ query, ord=2) / math.sqrt(d)
    return Attention(query / size, key)


def trial(parameters: Parameters, seed: int) -> TrialRecord:
    """Search for the largest ratio of distances over measures in the ball of radius R, and compute the bounds."""
    masked, R = parameters["masked"], parameters["R"]
    return mean_field_lipschitz(layer(parameters["d"], seed), R, parameters["points"], seed, masked=masked)


def grid(config: RunConfig) -> Iterable[Parameters]:
    for masked in (False, True):
        for R in RADII[config.scale]:
            yield {"d": _D, "points": _POINTS, "masked": masked, "R": R}


def table(results: Sequence[TrialResult]) -> Table:
    """Return a row per R; means are geometric, since constants of different A differ by orders of magnitude."""
    rows: Table = []
    for point, trials in points(results, "masked", "R"):
        published = (1 + 3 * point["R"] ** 2) * math.exp(2 * point["R"] ** 2)  # for |A| = |V| = 1
        known = [{**row, "published": published} for row in trials]
        values = [row["value"] for row in known]
        rows.append(
            {
                "panel": _TITLES[point["masked"]],
                "R": point["R"],
                "trials": len(values),
                "mean": geometric_mean(values),
                "least": min(values),
                "most": max(values),
                **{name: geometric_mean([row[name] for row in known]) for name in _BOUNDS},
                "over_lower": min(row["value"] / row["lower"] for row in known),
                "over_two_point": min(row["value"] / row["two_point"] for row in known),
                "margin": min(row["upper"] / row["value"] for row in known),
                "converged": sum(has_converged(row["status"]) for row in known),
            }
        )
    return rows


def claims(rows: Table) -> list[Verdict]:
    def judge(panel: str, mine: Table) -> list[Verdict]:
        return [
            check(above(f"{panel}: the upper bound over the constant is above 1 in every trial", mine, 1.0, "margin")),
            above(f"{panel}: the constant over the lower bound is above 1 in every trial", mine, 1.0, "over_lower"),
            check(above(f"{panel}: and so over what two adversarial points give", mine, 1.0, "over_two_point")),
        ]

    return each(rows, "panel", judge)


def plot(rows: Table, figure: style.Figure) -> None:
    for axes, _, line in style.panels(figure, rows, ["panel"]):
        ordered = sorted(line, key=lambda row: float(row["R"]))
        x = [row["R"] ** 2 for row in ordered]
        least, most, mean = ([row[name] for row in ordered] for name in ("least", "most", "mean"))
        style.band(axes, x, least, most, 0, ("band: least to most over trials", 0.35), 2)
        axes.plot(x, mean, color=style.colour(0), marker="o", label="largest ratio found", zorder=5)
        for name, (dashes, label) in _BOUNDS.items():
            style.theory(axes, x, [row[name] for row in ordered], label)
            axes.get_lines()[-1].set_linestyle(dashes)
        axes.set_yscale("log")
        style.label_axes(axes, "$|A| R^2$", "Lipschitz constant in $W_2$")
    style.legend_below(figure, figure.axes)


def estimate(parameters: Parameters) -> Estimate:
    """Estimate one trial, a few searches, by the CPU seconds of some."""
    return Estimate(0.3 if parameters["masked"] else 0.2, 5 * 10**8)


FIGURE = Experiment(
    name="meanfield",
    title="Mean-field attention is Lipschitz, with a constant exponential in R^2",
    about="The largest W2(F mu, F nu) / W2(mu, nu) that was found over measures in the ball of radius R, for "
    "Gaussian queries and keys with |A| = 1, between the bounds of contribution 3 and a sharper upper bound; lines are "
    "geometric means, bands reach from the least to the most.",
    trial=trial,
    grid=grid,
    trials={"quick": 3, "paper": 5},
    table=table,
    claims=claims,
    plot=plot,
    estimate=estimate,
    assumptions=_assumed.mean_field,
    version=4,
)
