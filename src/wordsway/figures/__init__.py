"""The figures: one small module each, with an `Experiment` named FIGURE. A new file here is a new figure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules

from wordsway.checks import check_choice
from wordsway.errors import InputError
from wordsway.experiments import Experiment


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
