"""The figures: one small module each, with an `Experiment` named FIGURE. A new file here is a new figure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from wordsway.checks import check_choice
from wordsway.errors import InputError

if TYPE_CHECKING:
    from wordsway.experiments import Experiment


@dataclass(frozen=True)
class Source:
    """A paper, poster or talk, and the figures about it in its own order."""

    name: str
    reference: str
    figures: tuple[str, ...]


SOURCES = (
    Source(
        "The paper on word sensitivity",
        "S. Bombari and M. Mondelli, Towards Understanding the Word Sensitivity of Attention Layers: A Study via "
        "Random Features, ICML 2024",
        (
            *("fig1", "fig2-rf", "fig2-drf", "fig3-raf", "fig3-relu", "fig3-layers", "fig3-scores"),
            *("theorem51", "m-words", "fig4", "fig5", "fig6", "fig7", "appendix-e"),
        ),
    ),
    Source(
        "The poster on how smooth attention is",
        "V. Castin, P. Ablin and G. Peyré, How Smooth Is Attention?, ICML 2024",
        ("smooth-real", "smooth-adversarial", "smooth-bounds", "meanfield"),
    ),
    Source(
        "The slides on optimization and robustness",
        "M. Mondelli, Optimization, Robustness and Attention in Deep Learning, 2024",
        (
            *("ntk-pyramid", "ntk-lambda", "ntk-loss", "ntk-flow", "ntk-chain"),
            *("ntk-halves", "robust-rf", "robust-ntk"),
        ),
    ),
)


@lru_cache(maxsize=1)
def all_figures() -> dict[str, Experiment]:
    """Return every figure by name, sorted with numbers as numbers."""
    modules = [module.name for module in iter_modules(__path__) if not module.name.startswith("_")]
    figures: dict[str, Experiment] = {}
    for module in modules:
        figure = import_module(f"{__name__}.{module}").FIGURE
        if figure.name in figures:
            raise InputError(f"two modules of figures must not share a name, got {figure.name!r} again in {module}")
        figures[figure.name] = figure
    return dict(sorted(figures.items(), key=lambda item: natural(item[0])))


def figures_named(names: Sequence[str]) -> list[Experiment]:
    """Return the figures of some names, each once; default: all."""
    known = all_figures()
    return [known[check_choice("figure", name, tuple(known))] for name in dict.fromkeys(names or known)]


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts names with numbers as numbers."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]
