"""Theorem 5.1, step by step: what its proof constructs, in contexts as long as it allows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean

from wordsway.experiments import Estimate, Experiment, Parameters, RunConfig, Table, TrialRecord, TrialResult, Verdict
from wordsway.experiments.claims import at_least_one, check, curves, each, judge, points, statistics
from wordsway.figures import _sensitivity as shared
from wordsway.figures import _style as style
from wordsway.maps import RandomAttention
from wordsway.sensitivity import Assumptions, assumptions, theorem51, word_sensitivity

CONSTANTS = {"quick": (20, 80), "paper": (20, 40, 80, 160)}  # c of n = c d / log^4 d
WIDER = {"quick": (), "paper": (1536, 3072)}  # dimensions of Gaussian contexts beyond the paper's
_MEASURED = ("alignment", "score", "captured", "proved")
_SHARE = 0.9  # of its value at the smallest d, which a quantity that does not fall must keep
_STEPS = {  # by column: the panel's title, and its axis
    "alignment": ("alignment (Lemma D.1)", "median of $x_j^\\top\\delta^* \\sqrt{n} / d$"),
    "captured": ("captured rows (Lemma D.4)", "share of the rows"),
    "mean": ("change (Lemma D.5)", "relative change"),
}


def trial(parameters: Parameters, seed: int) -> TrialRecord:
    """Construct the perturbations of the proof for the first word, and search for larger changes."""
    phi, context = RandomAttention(parameters["d"], seed=seed), shared.context(parameters, seed)
    proof = theorem51(phi, context, seed=seed)
    return {"proof": proof, "search": word_sensitivity(phi, context, ceiling=None, seed=seed)}


def grid(config: RunConfig) -> Iterable[Parameters]:
    for data, dimensions in shared.sizes(config):
        wider = WIDER[config.scale] if data["data"] == shared.GAUSSIAN else ()
        for constant in CONSTANTS[config.scale]:
            for d in (*dimensions, *wider):
                n = max(2, round(constant * d / math.log(d) ** 4))
                yield {**data, "constant": constant, "d": d, "n": n}


def table(results: Sequence[TrialResult]) -> Table:
    """Return one row per point of the grid, with means over trials of what each step measures."""
    rows: Table = []
    for point, trials in points(results, "data", "model", "constant", "d", "n"):
        proofs, values = [one["proof"] for one in trials], [one["search"]["sensitivity"] for one in trials]
        changes = [proof["sensitivity"] for proof in proofs]
        rows.append(
            {
                "panel": shared.data_name(point["data"], point.pop("model")),
                **point,
                "least_aligned": min(proof["aligned"] for proof in proofs),
                **{
                    name: fmean(proof[name] for proof in proofs)
                    for name in ("alignment", "score", "captured", "proved")
                },
                **statistics(changes, "mean", "deviation", "least"),
                "search": fmean(values),
                "margin": min(value / change for value, change in zip(values, changes, strict=True)),
            }
        )
    return rows


def assumed(results: Sequence[TrialResult]) -> list[Assumptions]:
    sizes = {(one["n"], one["d"]): None for one in results}
    return [assumptions("raf", n=n, d=d, normalized=True) for n, d in sizes]


def claims(rows: Table) -> list[Verdict]:
    def judge_panel(panel: str, rows: Table) -> list[Verdict]:
        along = f"{panel}: along n = c d / log^4 d"
        return [
            _half_aligned(f"{panel}: x_j . delta* >= 0.1 d / sqrt(n) for half of the rows in every trial", rows),
            _keeps(f"{along} the added score over log^2 d does not fall", rows, "score"),
            _keeps(f"{along} the share of captured rows does not fall", rows, "captured"),
            _keeps(f"{along} the change does not fall", rows, "mean"),
            check(
                at_least_one(
                    f"{panel}: a search finds at least this change", rows, "margin", "at least {:.2f} times it"
                )
            ),
        ]

    return each(rows, "panel", judge_panel)


def _half_aligned(claim: str, rows: Table) -> Verdict:
    shares = [row["least_aligned"] for row in rows]
    return judge(claim, shares, lambda: (f"{min(shares):.0%} of them at least", min(shares) >= 0.5))


def _keeps(claim: str, rows: Table, y: str) -> Verdict:
    """Judge that y at the largest d is at least a share of that at the smallest, for every constant."""
    lines = [sorted(line, key=lambda row: int(row["d"])) for line in curves(rows, "constant").values()]
    ends = {line[0]["constant"]: (line[0][y], line[-1][y]) for line in lines if len(line) > 1}
    texts = [f"c = {constant}: {first:.3f} to {last:.3f}" for constant, (first, last) in ends.items()]
    claim = f"{claim}: {_SHARE:.0%} of the value at the smallest d at least"
    return judge(claim, texts, lambda: ("; ".join(texts), all(last >= _SHARE * first for first, last in ends.values())))


def plot(rows: Table, figure: style.Figure) -> None:
    """Draw a row for each kind of data, each column on one scale: alignment, captured share, and changes."""
    groups = curves(rows, "panel")
    compared: dict[str, list[style.Axes]] = {}
    for place, ((panel,), members) in enumerate(groups.items()):
        for step, (column, (title, label)) in enumerate(_STEPS.items()):
            axes = style.panel(figure, len(groups) * len(_STEPS), place * len(_STEPS) + step, f"{panel}: {title}")
            compared.setdefault(column, []).append(axes)
            axes.set_xscale("log")
            for number, ((constant,), line) in enumerate(curves(members, "constant").items()):
                ordered = sorted(line, key=lambda row: int(row["d"]))
                dimensions = [row["d"] for row in ordered]
                spread = [row["deviation"] for row in ordered] if column == "mean" else []
                style.curve(axes, dimensions, [row[column] for row in ordered], f"c = {constant}", number, spread)
                if column == "mean":
                    found = [row["search"] for row in ordered]
                    style.line(
                        axes, dimensions, found, "_" if number else "found by a search", number
                    )  # one entry for all
            places = sorted({row["d"] for row in members})
            style.finish(axes, "dimension d, at $n = c\\, d / \\log^4 d$", label, places, logarithmic=False)
            axes.set_ylabel(label)
    for group in compared.values():
        style.common_scale(group)


def estimate(parameters: Parameters) -> Estimate:
    """Estimate one trial by a fit to CPU seconds at d = 96 to 3,072: the weight and some fifty evaluations."""
    n, d = parameters["n"], parameters["d"]
    return Estimate(0.01 + 7e-8 * d**2 + 2e-6 * n * d, 4 * 10**8 + 40 * d**2)


FIGURE = Experiment(
    name="theorem51",
    version=2,
    title="The proof that softmax attention is sensitive to one word, step by step",
    about="What the proof of Theorem 5.1 constructs for the first word, in contexts of n = c d / log^4 d words, "
    "against the dimension: how well its direction is aligned with the words (Lemma D.1), the share of rows that "
    "give their attention to the moved word (Lemma D.4), and the change (Lemma D.5), with what a search finds.",
    trial=trial,
    grid=grid,
    trials={"quick": 3, "paper": 10},
    table=table,
    claims=claims,
    plot=plot,
    estimate=estimate,
    assumptions=assumed,
)
