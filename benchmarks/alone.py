"""Cases with one side: sizes that dense weights cannot reach, many words at once, and certificates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.child import Child
from benchmarks.report import Outcome, Row, Target, costs, number, span, under, within
from wordsway.memory import human

LARGE = "Sizes that dense weights cannot reach, and many words at once (ours)"
CERTIFIED = "Certified ceiling over the value found (ours)"
ACCURATE = "Fast response against the plain map"


def large(child: Child, size: Mapping[str, Any]) -> Outcome:
    """rf or drf at a size whose dense weights do not fit, with its ceiling."""
    n, d, depth = size["n"], size["d"], size["depth"]
    got = child("layered_ours", data="gaussian", n=n, d=d, depth=depth, draws=size["draws"], ceiling="quick")
    dense = (n * d) ** 2 * 8 * (depth or 1)
    case = f"rf, n={n:,}, d={d}" if depth is None else f"drf, L={depth}, n={n:,}, d={d}"
    cells = {
        "case": case,
        "dense weights need": human(dense),
        **costs(got, rise=True),
        "S": f"{min(got['values']):.5f} to {max(got['values']):.5f}" if len(got["values"]) > 1 else _one(got["values"]),
        "ceiling": _one(got["ceilings"]),
    }
    targets = (within(case, got, size["seconds"]), under(case, got, size["memory"]))
    return Outcome((Row(LARGE, cells),), targets)


def profile(child: Child, size: Mapping[str, Any]) -> Outcome:
    """raf along all words of a context, with ceilings and without."""
    n, d = size["n"], size["d"]
    rows, targets = [], []
    for ceiling, label in (("quick", "quick ceilings"), (None, "no ceilings")):
        got = child("profile", n=n, d=d, ceiling=ceiling)
        case = f"raf, n={n}, d={d}, all {got['words']} words, {label}"
        cells = {"case": case, **costs(got, rise=True), "S": f"{got['S']:.5f}"}
        rows.append(Row(LARGE, {**cells, "ceiling": f"{got['ceiling']:.5f}"} if ceiling else cells))
        targets.append(within(case, got, size["seconds"]))
    return Outcome(tuple(rows), tuple(targets))


def vocabulary(child: Child, size: Mapping[str, Any]) -> Outcome:
    """raf for every entry of the vocabulary in place of one word."""
    got = child("vocabulary", n=size["n"], d=size["d"], sample=size["sample"], runs=size["runs"])
    case = f"raf, n={size['n']}, d={size['d']}, {got['candidates']:,} replacements of a word"
    row = Row(LARGE, {"case": case, **costs(got, rise=True), "S": f"{got['S']:.5f}", "ceiling": "exact"})
    exact = Target(
        case,
        f"equal to the plain map for {got['sample']} random replacements, to 1e-10",
        f"{got['gap']:.0e}",
        got["gap"] <= 1e-10,
    )
    return Outcome((row,), (within(case, got, size["seconds"]), exact))


def ceilings(child: Child, size: Mapping[str, Any]) -> Outcome:
    """How far the certificates are above the values, over several reviews."""
    n, d, contexts = size["n"], size["d"], size["contexts"]
    got = child("ceilings", n=n, d=d, contexts=contexts, efforts=["simple", *size["limits"]])
    case = f"raf, n={n}, d={d}, {contexts} reviews"
    rows, targets = [], []
    for effort, measured in got["efforts"].items():
        cells = {
            "case": case,
            "certificate": effort,
            "ceiling / value: least / mean / most": span(measured["ratios"]),
            "seconds": number(measured["seconds"]),
        }
        rows.append(Row(CERTIFIED, cells))
        limit = size["limits"].get(effort)
        if limit is not None:
            worst, least = max(measured["ratios"]), min(measured["ratios"])
            claim = f"{effort} ceiling / value between 1 and {limit} for every review"
            targets.append(Target(case, claim, f"{least:.3f} to {worst:.3f}", least >= 1 - 1e-9 and worst <= limit))
    return Outcome(tuple(rows), tuple(targets))


def accuracy(child: Child, size: Mapping[str, Any]) -> Outcome:
    """The fast responses against the plain maps."""
    rows, targets = [], []
    for name, (n, d) in size["maps"].items():
        got = child("accuracy", name=name, n=n, d=d, count=size["count"])
        case = f"{name}, n={n}, d={d}"
        gap = "largest relative difference of the change"
        rows.append(Row(ACCURATE, {"case": case, "random Deltas": str(got["count"]), gap: f"{got['gap']:.1e}"}))
        targets.append(Target(case, f"{gap} at most 1e-12", f"{got['gap']:.1e}", got["gap"] <= 1e-12))
    return Outcome(tuple(rows), tuple(targets))


def _one(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{known[0]:.5f}" if known else ""
