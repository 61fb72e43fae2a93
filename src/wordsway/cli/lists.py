"""The commands `maps`, `figures` and `models`: what can be measured and reproduced."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from wordsway.cli.options import Json
from wordsway.cli.running import print_json


def maps(as_json: Json = False) -> None:
    """List the maps that can be measured, with their formulas and options."""
    from wordsway.report.lists import print_maps

    rows = stored_lists()["maps"]
    if as_json:
        print_json(rows)
    else:
        print_maps(rows, stored_lists()["paper"])


def figures(as_json: Json = False) -> None:
    """List the figures that can be reproduced, with what they show and how many trials they take."""
    from wordsway.report.lists import print_figure_list

    rows = stored_lists()["figures"]
    if as_json:
        print_json(rows)
    else:
        print_figure_list(rows)


def stored_lists() -> dict[str, Any]:
    """Return the lists that `tools/lists.py` wrote: making them loads PyTorch and all figures, which takes seconds."""
    stored: dict[str, Any] = json.loads(files(__package__).joinpath("lists.json").read_text(encoding="utf-8"))
    return stored


def models(as_json: Json = False) -> None:
    """List the models that can be named, and whether they are installed here."""
    from wordsway.models.known import known_models
    from wordsway.report.lists import print_models

    rows = [asdict(entry) for entry in known_models(stored_lists()["families"])]
    if as_json:
        print_json(rows)
    else:
        print_models(rows)
