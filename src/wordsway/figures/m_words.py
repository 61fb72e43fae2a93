"""Remark 4.2: random features respond to a constant share of the words, attention to a single one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from wordsway.experiments import Estimate, Experiment, Parameters, RunConfig, Table, TrialRecord, TrialResult, Verdict
from wordsway.experiments.claims import above, below, each, exponent_near, overlap, points, statistics
from wordsway.figures import _sensitivity as shared
from wordsway.figures import _style as style
from wordsway.maps.catalogue import map_named
from wordsway.sensitivity import Assumptions, assumptions, word_sensitivity

LENGTHS = {"quick": (20, 40), "paper": (20, 40, 80)}
SHARES = {"quick": (0.05, 0.1, 0.2), "paper": (0.05, 0.1, 0.2, 0.4)}
_D = {"quick": 32, "paper": 48}


def trial(parameters: Parameters, seed: int) -> TrialRecord:
    """Measure S of the first m words together, each in its own ball."""
    n, d, words = parameters["n"], parameters["d"], range(parameters["m"])
    phi = map_named(parameters["map"]).build(n, d, None, seed)
    return word_sensitivity(phi, shared.context(parameters, seed), words, together=True, seed=seed)


def grid(config: RunConfig) -> Iterable[Parameters]:
    for name in ("rf", "raf"):
        for data, _ in shared.sizes(config):
            for n in LENGTHS[config.scale]:
                for m in sorted({1, *(round(share * n) for share in SHARES[config.scale])}):
                    yield {"map": name, **data, "d": _D[config.scale], "n": n, "m": m}


def table(results: Sequence[TrialResult]) -> Table:
    """Return one row per point of the grid: mean, deviation and least of S, and its mean ceiling."""
    rows: Table = []
    for point, trials in points(results, "map", "data", "model", "d", "n", "m"):
        share = point["m"] / point["n"]
        values = statistics([one["sensitivity"] for one in trials], "mean", "deviation", "least")
        rows.append(
            {
                "panel": f"{point['map']}, {shared.data_name(point['data'], point.pop('model'))}",
                **point,
                "share": share,
                **values,
                "scaled": values["mean"] / shared.edge(1 / share),
                "ceiling": fmean(one["ceiling"] for one in trials),
            }
        )
    return rows


def assumed(results: Sequence[TrialResult]) -> list[Assumptions]:
    """Return the assumptions of Remark 4.2, and of Theorem 5.1 for single words of attention."""
    sizes = {(one["map"], one["n"], one["d"], one["m"]): None for one in results if one["map"] == "rf" or one["m"] == 1}
    return [assumptions(name, n=n, d=d, words=m, normalized=True) for name, n, d, m in sizes]


def claims(rows: Table) -> list[Verdict]:
    rf, raf = ([row for row in rows if row["map"] == name] for name in ("rf", "raf"))

    def judge_rf(panel: str, rows: Table) -> list[Verdict]:
        few = f"{panel}: S / (1 + (2m/n)^(1/2)) grows like (m/n)^(1/2)"
        return [
            exponent_near(few, rows, 0.5, 0.1, x="share", y="scaled", curve=("n",), plain="mean"),
            overlap(f"{panel}: S depends on m and n through m/n", rows, 0.05, x="share"),
            below(f"{panel}: below that of raf at every point", rows, raf, ("data", "n", "m")),
        ]

    def judge_raf(panel: str, rows: Table) -> list[Verdict]:
        single = [row for row in rows if row["m"] == 1]
        return [above(f"{panel}: S > 1 for a single word in every trial", single, 1.0)]

    return each(rf, "panel", judge_rf) + each(raf, "panel", judge_raf)


def plot(rows: Table, figure: style.Figure) -> None:
    compared: dict[str, list[style.Axes]] = {}
    for axes, _, members in style.panels(figure, rows, ["panel"], columns=2):
        compared.setdefault(members[0]["map"], []).append(axes)
        style.lines(axes, members, "n", "n = {}", x="share")
        if members[0]["map"] == "rf":
            law = "∝ $(m/n)^{1/2}(1 + (2m/n)^{1/2})$"
            style.law(axes, members, lambda share: share**0.5 * shared.edge(1 / share), law, x="share")
        style.finish(axes, "share m/n of the words that move", "word sensitivity", SHARES["paper"], logarithmic=True)
    for group in compared.values():
        style.common_scale(group)


def estimate(parameters: Parameters) -> Estimate:
    """Estimate one trial; random features cost most, by the words' block of V."""
    n, d, m = parameters["n"], parameters["d"], parameters["m"]
    if parameters["map"] == "rf":
        return Estimate(0.05 + 6e-7 * n * d * m * d, 4 * 10**8 + 100 * n * d * m * d)
    return Estimate(0.1 + 1e-6 * n * m * d, 4 * 10**8)


FIGURE = Experiment(
    name="m-words",
    title="Random features respond to a share of the words, attention to one",
    about="Word sensitivity when the first m words move together, each in its own ball, against m/n: that of random "
    "features with ReLU is of order (m/n)^(1/2), so that only a constant share of the words moves them "
    "(Remark 4.2); that of attention is of constant order for a single word.",
    trial=trial,
    grid=grid,
    trials={"quick": 2, "paper": 10},
    table=table,
    claims=claims,
    plot=plot,
    estimate=estimate,
    assumptions=assumed,
)
