"""Terminal views of measurements on maps, models and kernels: a title, a table, and what the numbers are."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from wordsway.experiments.claims import curves, power_law
from wordsway.records import number
from wordsway.report.terminal import NOTE, Bar, Columns, Row, console, plus_minus, show, table
from wordsway.sensitivity.records import LOCALLY_CONVERGED, has_converged

# What a narrow table of trials leaves out: the seed still identifies a trial, and JSON has everything.
_SPARE = ("trial", "peak MB", "ratio", "seconds", "status")


def print_trials(title: str, rows: Sequence[Row], every_word: bool = False) -> None:
    """Print trials of `measure`: bars for the words of each trial if there are several, then a line per trial.

    Of all words of a trial the table has the one that moves the map most, with the largest ceiling.
    """
    out = console()
    trials = [words for (_,), words in curves(rows, "seed").items()]
    parts: list[Any] = []
    for words in trials if every_word else ():
        parts += [f"seed {words[0]['seed']}"] if len(trials) > 1 else []
        parts += [word_bars(words), ""]
    best = [_best(number, words) for number, words in enumerate(trials)]
    columns: Columns = {name: name for name in ("trial", "seed", "word", "sensitivity", "ceiling", "ratio", "seconds")}
    parts.append(table(best, {**columns, "peak MB": "peak_mb", "status": "status"}, spare=_SPARE, width=out.width))
    values = [row["sensitivity"] for row in best]
    what = "largest of all words" if every_word else f"sensitivity to word {best[0]['word']}:"
    count = "1 trial" if len(best) == 1 else f"mean and standard deviation of {len(best)} trials"
    deviation = statistics.stdev(values) if len(values) > 1 else None
    kinds = "sensitivity: lower bound with a witness"
    if best[0]["ceiling"] is not None:
        failure = best[0]["failure"]
        doubt = f", wrong with probability at most {failure:.1g}" if failure else ""
        kinds += f"; ceiling: upper bound by {best[0]['ceiling_kind']}{doubt}"
    if not every_word:  # one word's value is no value of S, nor is its ceiling a ceiling of S
        kinds += "; for this word alone (S, the largest over all words: --word all)"
    total = f"{what} {plus_minus(statistics.fmean(values), deviation)} ({count})"
    show(title, Group(*parts), total, Text(kinds, NOTE))


def _best(trial: int, words: Sequence[Row]) -> dict[str, Any]:
    best = max(words, key=lambda row: float(row["sensitivity"]))
    ceilings = [row["ceiling"] for row in words]
    ceiling = None if None in ceilings else max(ceilings)
    ratio = ceiling / best["sensitivity"] if ceiling is not None and best["sensitivity"] > 0 else None
    status = LOCALLY_CONVERGED if all(has_converged(row["status"]) for row in words) else "step limit"
    return {**best, "trial": trial, "ceiling": ceiling, "ratio": ratio, "status": status}


def word_bars(rows: Sequence[Row]) -> Any:
    """Return a table with a bar for each word of a context.

    All bars have one scale: the full width is the largest ceiling, but at most twice the largest value, so that values
    can be compared below loose ceilings.
    """
    most = max(row["sensitivity"] for row in rows)
    bounded = all(row["ceiling"] is not None for row in rows)
    top = min(max(row["ceiling"] for row in rows), 2 * most) if bounded else most
    columns: Columns = {
        "word": lambda row: f"{row['word']} {row['spelling']}" if "spelling" in row else row["word"],
        "": lambda row: Bar(row["sensitivity"], top, row["ceiling"]),
        "sensitivity": "sensitivity",
        **({"ceiling": "ceiling"} if bounded else {}),
    }
    return table(rows, columns, bold=lambda row: row["sensitivity"] == most)


def print_simulations(title: str, rows: Sequence[Row]) -> None:
    """Print simulations of `generalize`, a line for each search."""
    penalty = ("penalty",) if any(row["penalty"] for row in rows) else ()
    columns: Columns = {name: name for name in ("seed", "training", "loss", *penalty, "gamma", "error")}
    more: Columns = {"(2-gamma)^2": "bound", "F": _alignment, "change": "sensitivity"}
    share = statistics.fmean(row["error"] < row["bound"] for row in rows)
    fits = all(row["interpolates"] for row in rows)
    fitted = "every training label is fitted" if fits else "not every training label is fitted: too few features"
    show(
        title,
        table(rows, {**columns, **more}, digits=3, spare=("(2-gamma)^2",), width=console().width),
        f"{share:.0%} of {len(rows)} points below the line (2 - gamma)^2 of random features",
        Text(f"gamma, error, change (of the features): at the word that the search found; {fitted}", NOTE),
    )


def _alignment(row: Row) -> Any:
    return row["alignment_retrained" if row["training"] == "re-trained" else "alignment_fine_tuned"]


def print_rows(title: str, rows: Sequence[Row], keys: Sequence[str]) -> None:
    """Print some columns of rows."""
    show(title, table(rows, {key.replace("_", " "): key for key in keys}))


def print_constants(rows: Sequence[Row]) -> None:
    """Print local Lipschitz constants of a model, a line for each layer and length, and how they grow."""
    mask = ", causal" if rows[0]["causal"] else ""
    title = f"{rows[0]['model']}{mask}, {rows[0]['data']}, local Lipschitz constants of attention"
    points = [_point(members) for members in curves(rows, "layer", "n").values()]
    notes: list[Text | str] = []
    for (layer,), members in curves(rows, "layer").items():
        law = power_law(members, "n", "lipschitz")
        if law is not None:
            notes.append(f"layer {layer}: grows like n^{law.exponent:.2f} (standard error {law.error:.2f})")
    if stopped := sum(row["status"] != "converged" for row in rows):
        notes.append(Text(f"{stopped} of {len(rows)} stopped before they converged: raise --products", "yellow"))
    bounds = (
        "constant: measured at the text",
        "at text: upper bound there",
        f"near: upper bound where each word is within {_range(rows, 'near_radius')} of its place",
        "all inputs: upper bound over all that the norm before the layer returns",
        f"lower: steepest context known in the ball of that norm, R = {_range(rows, 'radius')}",
        *(("block: upper bound at the text for the whole block",) if "block" in points[0] else ()),
    )
    show(title, table(points, {key: key for key in points[0]}), *notes, Text("; ".join(bounds), NOTE))


def _range(rows: Sequence[Row], key: str) -> str:
    values = [row[key] for row in rows]
    return " to ".join(dict.fromkeys((number(min(values)), number(max(values)))))


def _point(members: Sequence[Row]) -> dict[str, Any]:
    values = [row["lipschitz"] for row in members]
    return {
        "layer": members[0]["layer"],
        "n": members[0]["n"],
        "constant": statistics.fmean(values),
        "+-": statistics.stdev(values) if len(values) > 1 else None,
        "at text": statistics.fmean(row["at_text"] for row in members),
        "near": statistics.fmean(row["near"] for row in members),
        "all inputs": members[0]["all_inputs"],
        "lower": members[0]["lower"],
        **({} if members[0]["block"] is None else {"block": statistics.fmean(row["block"] for row in members)}),
    }


def print_lengths(rows: Sequence[Row]) -> None:
    """Print the change that one word makes against the length of the context, a column for each model, with exponents.

    `rows` are those of `LengthCurve`, each with the fit of its curve.
    """
    lengths = sorted({row["n"] for row in rows})
    outputs = list(dict.fromkeys(row["on"] for row in rows if row["on"] is not None))
    lines: dict[Any, dict[str, str]] = {n: {"n": str(n)} for n in lengths}
    if len(outputs) > 1:
        lines = {"on": {"n": "on"}, **lines}
    if len(lengths) > 1:
        lines |= {"exponent": {"n": "exponent"}, "95%": {"n": "95%"}}
    notes: list[Text | str] = []
    for (name,), members in curves(rows, "model").items():
        if len(outputs) > 1 and members[0]["on"] is not None:
            lines["on"][name] = members[0]["on"]
        for row in members:
            error = "" if row["error"] is None else f" +- {number(row['error'], 2)}"
            lines[row["n"]][name] = f"{number(row['sensitivity'], 3)}{error}"
        fit = members[0]
        if len(lengths) < 2 or fit["exponent"] is None:
            continue
        error = "" if fit["exponent_error"] is None else f" +- {fit['exponent_error']:.2f}"
        lines["exponent"][name] = f"{fit['exponent']:.2f}{error}"
        if fit["exponent_low"] is not None:
            lines["95%"][name] = f"{fit['exponent_low']:.2f} to {fit['exponent_high']:.2f}"
        if fit["power_law"] is False:
            short, long = f"n^{fit['exponent_short']:.2f}", f"n^{fit['exponent_long']:.2f}"
            notes.append(
                Text(f"{name}: no power law: {short} for the shorter lengths, {long} for the longer", "yellow")
            )
    where = f", on {outputs[0]}" if len(outputs) == 1 else ""
    measured = f"{rows[0]['draws']} random words in its place" if rows[0]["by"] == "swaps" else "the largest in a ball"
    title = f"change by one word against the length of the context{where}: {measured}"
    notes.append(Text(_length_note(outputs, rows[0]["by"]), NOTE))
    columns: Columns = {name: name for name in ("n", *(row["model"] for row in rows))}
    show(title, table(list(lines.values()), columns, right=list(columns)), *notes)


def _length_note(outputs: Sequence[str], by: str) -> str:
    """What errors and exponents mean for these outputs."""
    sample = "texts and words" if by == "swaps" else "texts"
    parts = [f"+-: standard error over {sample}", "exponent 0: the effect does not depend on length"]
    if any(on == "last" or on.startswith("layer") for on in outputs):
        parts.append("-0.5 on the hidden state of all tokens: only the row of the word itself changes")
    if "pooled" in outputs:
        parts.append("-1 on pooled: only the row of the word itself changes")
    return "; ".join(parts)
