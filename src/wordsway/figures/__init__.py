"""The figures: one small module each, which holds an `Experiment` named FIGURE. A new file here is a new figure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules

from wordsway.errors import InputError, nearest
from wordsway.experiments.experiment import Experiment


@lru_cache(maxsize=1)
def all_figures() -> dict[str, Experiment]:
    """Every figure by name, in the order of their names with numbers counted as numbers."""
    names = [module.name for module in iter_modules(__path__) if not module.name.startswith("_")]
    found = {}
    for name in names:
        figure = import_module(f"{__name__}.{name}").FIGURE
        if figure.name in found:
            raise InputError(f"two modules of figures must not share a name, got {figure.name!r} again in {name}")
        found[figure.name] = figure
    return dict(sorted(found.items(), key=lambda item: _natural(item[0])))


def figures_named(names: Sequence[str]) -> list[Experiment]:
    """The figures of those names, each once; all of them if none is named."""
    known = all_figures()
    for name in names:
        if name not in known:
            raise InputError(f"figure must be one of {', '.join(known)}, got {name!r}{nearest(name, known)}")
    return [known[name] for name in dict.fromkeys(names or known)]


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]
