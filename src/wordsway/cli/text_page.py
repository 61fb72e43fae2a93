"""The page that `text --html` writes: replacements of the top words, and on demand the layers of the first of them."""

from __future__ import annotations

import dataclasses
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from wordsway.errors import InputError
from wordsway.experiments.texts import Profiled
from wordsway.models import words
from wordsway.report.pages import text_page
from wordsway.report.results import replace_file

if TYPE_CHECKING:
    from wordsway.cli.text import Plan
    from wordsway.models.swaps import Swaps

_WORDS, _SWAPS, _CHECKS = 3, 3, 120  # words that get replacements, how many each, and candidates that are tried
_STEPS = 12  # of the search at each layer


def write_page(plan: Plan, text: str, found: Profiled, layers: bool, path: Path) -> None:
    """Measure what the page shows besides the profile, and write it whole or not at all."""
    ranked = sorted(
        (record for record in found.records if record["position"] is not None),
        key=lambda record: -record["sensitivity"],
    )
    if found.text.cut:
        logging.getLogger(words.__name__).setLevel(logging.ERROR)  # that it is cut has been logged once
    swaps = [one for record in ranked[:_WORDS] if (one := _swaps(plan, text, record["position"])) is not None]
    levels = _by_layer(plan, text, ranked[0]["position"]) if layers else []
    replace_file(path, text_page(found, _settings(plan, found), swaps, levels).encode(errors="replace"))


def _swaps(plan: Plan, text: str, position: int) -> Swaps | None:
    """The best replacements of a word; None where no word of the vocabulary fits its place."""
    options = plan.options
    rest = {"on": options.on, "cut": options.cut, "chat": options.chat, "seed": options.seed}
    try:
        found: Swaps = plan.model.swaps(text, position, top=_SWAPS, checks=_CHECKS, **rest)
    except InputError:
        return None
    return found


def _by_layer(plan: Plan, text: str, position: int) -> list[float]:
    """How far a word moves the hidden state of each layer, from what the first one reads."""
    found = []
    shown = sys.stderr.isatty()
    for layer in tqdm(range(plan.model.layers + 1), desc="layers", delay=2, leave=False, disable=not shown):
        options = dataclasses.replace(plan.options, words=(position,), on=f"layer {layer}", special=False, steps=_STEPS)
        found.append(options.measure(plan.model, text).best.value)
    return found


def _settings(plan: Plan, found: Profiled) -> dict[str, str]:
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
    return dict(facts)
