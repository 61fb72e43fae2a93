"""Write src/wordsway/cli/lists.json, what `wordsway maps`, `figures` and `models` list.

Run it as ``python tools/lists.py`` after changing a figure, a map or the families of models; a test
compares the file with them.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from wordsway.experiments.experiment import SCALES, RunConfig
from wordsway.figures import all_figures
from wordsway.maps.catalogue import MAPS, PAPER
from wordsway.models.families import FAMILIES

PATH = Path(__file__).resolve().parents[1] / "src" / "wordsway" / "cli" / "lists.json"
_MAP = ("name", "description", "formula", "weights", "source", "options")


def lists() -> dict[str, Any]:
    """Return the maps, the figures and the families of models as plain values."""
    maps = [{key: getattr(entry, key) for key in _MAP} for entry in MAPS.values()]
    figures = [
        {
            "name": figure.name,
            "title": figure.title,
            "about": figure.about,
            "trials": {scale: len(figure.planned(RunConfig(scale))) for scale in SCALES},
        }
        for figure in all_figures().values()
    ]
    return {"paper": PAPER, "maps": maps, "figures": figures, "families": list(FAMILIES)}


def content() -> str:
    """Return the text of the file, for a machine without the data that is downloaded on request."""
    with tempfile.TemporaryDirectory() as empty, mock.patch.dict(os.environ, WORDSWAY_CACHE=empty):
        return json.dumps(lists(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PATH.write_text(content(), encoding="utf-8")
