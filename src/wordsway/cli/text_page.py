"""The page that `text --html` writes: replacements of the top words, and on demand the layers of the first of them."""

from __future__ import annotations

import dataclasses
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from wordsway.cli.text_views import kind_of, said_on
from wordsway.errors import InputError
from wordsway.experiments.texts import Profiled
from wordsway.models import words
from wordsway.models.heat import pieces
from wordsway.report.results import replace_file
from wordsway.report.terminal import number
from wordsway.report.text_page import Replacements, WordRow, text_page

if TYPE_CHECKING:
    from wordsway.cli.text import Plan

_WORDS, _SWAPS, _CHECKS = 3, 3, 120  # words that get replacements, how many each, and candidates that are tried
_STEPS = 12  # of the search at each layer


def write_page(plan: Plan, text: str, found: Profiled, layers: bool, path: Path) -> None:
    """Measure what the page shows besides the profile, and write it whole or not at all."""
    ranked = sorted(
        (record for record in found.records if record["position"] is not None),
        key=lambda record: -record["sensitivity"],
    )
    if found.text.cut:
        logging.getLogger(words.__name__).setLevel(logging.ERROR)  # that it is cut has been said once
    replaced = [one for record in ranked[:_WORDS] if (one := _replacements(plan, text, record)) is not None]
    levels = _by_layer(plan, text, ranked[0]["position"]) if layers else []
    notes = {one.position: "; ".join(f"{word} {number(value)}" for word, value, _ in one.swaps) for one in replaced}
    told = {
        word.tokens: (record["sensitivity"], _note(record, notes.get(record["position"])))
        for word, record in zip(found.words, found.records, strict=True)
    }
    names = ("position", "word", "tokens", "sensitivity", "radius", "status")
    rows = [WordRow(*(record[name] for name in names)) for record in found.records]
    content = text_page(
        "Which word moves the model?",
        _lead(plan, found),
        pieces(found.text, told),
        rows,
        replaced,
        levels,
        f'How far word {ranked[0]["position"]}, "{ranked[0]["word"]}", moves the hidden state of each layer.',
        _facts(plan, found),
        f"Sensitivity is the {kind_of(plan.options.on)} at the move of the word's embedding that was found: a lower "
        "bound with a witness. Values of replacements are exact, but only some candidates were tried.",
    )
    replace_file(path, content.encode(errors="replace"))


def _replacements(plan: Plan, text: str, record: dict[str, Any]) -> Replacements | None:
    """The best replacements of a word; None where no word of the vocabulary fits its place."""
    options = plan.options
    rest = {"on": options.on, "cut": options.cut, "chat": options.chat, "seed": options.seed}
    try:
        found = plan.model.swaps(text, record["position"], top=_SWAPS, checks=_CHECKS, **rest)
    except InputError:
        return None
    swaps = [(swap.word, swap.value, swap.text) for swap in found.swaps]
    return Replacements(record["position"], record["word"], swaps)


def _by_layer(plan: Plan, text: str, position: int) -> list[tuple[int, float]]:
    """How far a word moves the hidden state of each layer, from what the first one reads."""
    found = []
    shown = sys.stderr.isatty()
    for layer in tqdm(range(plan.model.layers + 1), desc="layers", delay=2, leave=False, disable=not shown):
        options = dataclasses.replace(plan.options, words=(position,), on=f"layer {layer}", special=False, steps=_STEPS)
        found.append((layer, options.measure(plan.model, text).best.value))
    return found


def _lead(plan: Plan, found: Profiled) -> str:
    best = max(found.records, key=lambda record: record["sensitivity"])
    return (
        f'"{best["word"]}" moves {plan.model.name} most: {number(best["sensitivity"])} within radius '
        f"{number(best['radius'])}, measured on {said_on(plan.options.on)}."
    )


def _note(record: dict[str, Any], swaps: str | None) -> str:
    """What is told of a word when it is pointed at, a line each."""
    lines = [f"sensitivity {number(record['sensitivity'])}", f"radius {number(record['radius'])}", record["status"]]
    return "\n".join([*lines, f"replacements: {swaps}"] if swaps else lines)


def _facts(plan: Plan, found: Profiled) -> list[tuple[str, str]]:
    options = plan.options
    facts = [
        ("model", plan.model.name),
        ("measured on", options.on),
        ("mode", options.mode),
        ("steps", str(options.steps)),
        ("radius", "each word's own norm" if options.radius is None else f"{options.radius:g}"),
        ("seed", str(options.seed)),
        ("tokens", str(len(found.text.ids))),
    ]
    facts += [("cut off", f"{found.text.cut} tokens")] if found.text.cut else []
    facts += [("chat template", "yes")] if options.chat else []
    facts += [("fast mode", f"{100 * found.shortfall:.0f}% below the search")] if found.shortfall is not None else []
    return facts
