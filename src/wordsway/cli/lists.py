"""The commands `maps` and `models`: what can be measured."""

from __future__ import annotations

from dataclasses import asdict

from wordsway.cli.options import Json
from wordsway.cli.running import print_json

_MAP = ("name", "description", "formula", "weights", "source", "options")


def maps(as_json: Json = False) -> None:
    """List the maps that can be measured, with their formulas and options."""
    from wordsway.maps.catalogue import MAPS, PAPER
    from wordsway.report.measurements import print_maps

    rows = [{key: getattr(entry, key) for key in _MAP} for entry in MAPS.values()]
    if as_json:
        print_json(rows)
    else:
        print_maps(rows, PAPER)


def models(as_json: Json = False) -> None:
    """List the models that can be named, and whether they are installed here."""
    from wordsway.models.known import known_models
    from wordsway.report.measurements import print_models

    rows = [asdict(entry) for entry in known_models()]
    if as_json:
        print_json(rows)
    else:
        print_models(rows)
