"""Cases with two sides: ours against the published algorithm."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.child import Child, ChildError
from benchmarks.report import Outcome, Row, Target, faster, number
from wordsway.memory import human

TABLE = "Ours against the published algorithm"
_AGREE = 1e-9  # relative difference allowed between the two evaluations of one witness


def attention(child: Child, size: Mapping[str, Any]) -> Outcome:
    """raf or relu-raf, same contexts and same weights, one row per trial."""
    name, n, d = size["name"], size["n"], size["d"]
    pairs = []
    for seed in range(size["trials"]):
        ours = child("attention_ours", name=name, n=n, d=d, seed=seed, runs=size["runs"])
        theirs = child("attention_published", name=name, n=n, d=d, seed=seed)
        pairs.append((ours, theirs))
    rows = []
    for seed, (ours, theirs) in enumerate(pairs):
        cells = {
            "case": f"{name}, n={n}, d={d}, trial {seed}",
            **_costs(ours, theirs),
            "published S": f"{theirs['S']:.6f}",
            "our S": f"{ours['S']:.6f}",
            "S ratio": f"{ours['S'] / theirs['S']:.6f}",
            "our S on the same weights": "the same",
            "ours with quick ceiling, s": number(ours["bounded_seconds"]),
            "ceiling": f"{ours['ceiling']:.4f}",
        }
        rows.append(Row(TABLE, cells))
    ratio = min(theirs["seconds"] / ours["seconds"] for ours, theirs in pairs)
    reached = min(ours["S"] / theirs["S"] for ours, theirs in pairs)
    # the child that ran the published algorithm searched again by ours: the same weights give the same number
    same = max(abs(theirs["ours_same_weights"] / ours["S"] - 1) for ours, theirs in pairs)
    case = f"{name}, n={n}, d={d}"
    targets = (
        faster(case, ratio, 300),
        Target(case, "S at least 0.9999 of the published S", f"{reached:.6f}", reached >= 0.9999),
        _agreement(case, [theirs for _, theirs in pairs], same),
    )
    return Outcome(tuple(rows), targets)


def random_features(child: Child, size: Mapping[str, Any]) -> Outcome:
    """rf: different draws of the same law, since ours never holds a dense V; ours also on the published draw."""
    ours, theirs = _layered(child, size)
    case = f"rf, n={size['n']}, d={size['d']}"
    saving = theirs["rise"] / max(ours["rise"], 1)
    mean, spread = statistics.fmean(theirs["values"]), statistics.stdev(theirs["values"])
    # 300 steps leave the published ascent short of the top, so ours is higher on the very same weights; what remains
    # after that factor is a difference in law, which there must not be
    further = theirs["ours_same_weights"] / theirs["S"]
    away = abs(statistics.fmean(ours["values"]) - further * mean) / spread
    targets = (
        faster(case, theirs["seconds"] / ours["seconds"], 300),
        Target(case, "at most 1/20 of the published memory", f"1/{saving:.0f}", saving >= 20),
        Target(
            case,
            f"mean S of {len(ours['values'])} draws within 2 standard deviations of the published one, "
            "times what our search gains on the published weights",
            f"{away:.2f} standard deviations, with a gain of {further:.4f}",
            away <= 2 and further >= 1 - 2 * spread / mean,
        ),
        _agreement(case, [theirs], theirs["block_gap"]),
    )
    remark = (
        f"{case}: draw 0 of the published algorithm is timed with its dense V. Its other draws are for the spread of S "
        "only: along one word the dense map is relu(V flat(X) + V_i Delta), V_i the word's columns, so all steps of "
        f"the ascent are taken from these alone. On draw 0 both ways give the same S to {theirs['block_gap']:.0e}."
    )
    return Outcome((_layered_row(case, ours, theirs),), targets, (remark,))


def deep_random_features(child: Child, size: Mapping[str, Any]) -> Outcome:
    """drf: as rf, with every published draw dense."""
    ours, theirs = _layered(child, size)
    case = f"drf, L={size['depth']}, n={size['n']}, d={size['d']}"
    targets = (
        faster(case, theirs["seconds"] / ours["seconds"], 30),
        _agreement(case, [theirs], 0.0),
    )
    return Outcome((_layered_row(case, ours, theirs),), targets)


def _layered(child: Child, size: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    shape = {"n": size["n"], "d": size["d"], "depth": size["depth"], "draws": size["draws"]}
    return child("layered_ours", data="reviews", **shape), child("layered_published", **shape)


def _layered_row(case: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Row:
    cells = {
        "case": f"{case}, {len(ours['values'])} draws",
        **_costs(ours, theirs),
        "published S": _mean_and_deviation(theirs["values"]),
        "our S": _mean_and_deviation(ours["values"]),
        "S ratio": f"{statistics.fmean(ours['values']) / statistics.fmean(theirs['values']):.4f}",
        "our S on the same weights": f"{theirs['ours_same_weights'] / theirs['S']:.4f} of the published",
    }
    return Row(TABLE, cells)


def _costs(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, str]:
    if ours["threads"] != theirs["threads"]:
        raise ChildError(f"the two sides ran with {ours['threads']} and {theirs['threads']} threads")
    return {
        "published, s": number(theirs["seconds"]),
        "ours, s": number(ours["seconds"]),
        "times faster": number(theirs["seconds"] / ours["seconds"]),
        "published memory": human(theirs["rise"]),
        "our memory": human(ours["rise"]),
        "times less": number(theirs["rise"] / max(ours["rise"], 1)),
    }


def _agreement(case: str, theirs: Sequence[Mapping[str, Any]], other: float) -> Target:
    """Each witness has the same S by both evaluations, and repeated searches agree."""
    gap = max(other, *(max(each["published_by_ours"], each["ours_by_plain"]) for each in theirs))
    return Target(case, f"both sides agree on S of either witness to {_AGREE:.0e}", f"{gap:.0e}", gap <= _AGREE)


def _mean_and_deviation(values: Sequence[float]) -> str:
    return f"{statistics.fmean(values):.4f} +- {statistics.stdev(values):.4f}"
