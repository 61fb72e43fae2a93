"""From finished trials to files: a table, a picture and verdicts for each figure, and one page for all of them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from wordsway.experiments.experiment import NAME, VERDICTS, Experiment, RunConfig, Verdict, overall
from wordsway.experiments.results import FigureResult
from wordsway.experiments.runner import sizes
from wordsway.figures._style import render
from wordsway.report.files import replace_file, table_as_csv
from wordsway.report.pages import figures_page, picture

STORE = "store.sqlite"
_PAGE = "index.html"
# What a file has to hold to be the summary of a figure.
_SUMMARY = {"name": str, "title": str, "about": str, "command": str, "facts": dict, "verdicts": list, "table": list}
_COUNTS = ("asked", "finished", "problems")


def write_figure(found: FigureResult, folder: Path) -> list[Path]:
    """Write a figure's table (CSV), pictures (PNG, SVG, SVG for a dark page) and verdicts (JSON)."""
    name = found.experiment.name
    files: dict[str, bytes] = {f"{name}.csv": table_as_csv(found.table).encode()}
    if found.table:

        def draw(figure: Any) -> None:
            found.experiment.plot(found.table, figure)

        files |= {
            f"{name}.svg": render(draw, "svg"),
            f"{name}-dark.svg": render(draw, "svg", dark=True),
            f"{name}.png": render(draw, "png"),
        }
    files[f"{name}.json"] = json.dumps(_summary(found), indent=1, ensure_ascii=False).encode()
    for file, content in files.items():
        replace_file(folder / file, content)
    return [folder / file for file in files]


def _summary(found: FigureResult) -> dict[str, Any]:
    """Everything that the page shows of a figure, so that it can be made without running anything."""
    experiment, scope = found.experiment, found.config
    return {
        "name": experiment.name,
        "title": experiment.title,
        "about": experiment.about,
        "command": command(experiment, scope),
        "facts": _facts(found),
        "verdicts": [verdict.to_dict() for verdict in found.verdicts],
        "asked": found.planned,
        "finished": found.finished,
        "problems": found.problems,
        "table": found.table,
    }


def _facts(found: FigureResult) -> dict[str, str]:
    scope = found.config
    count = found.experiment.trials[scope.scale] if scope.trials is None else scope.trials
    return {
        "scale": scope.scale,
        "parameters": sizes(found.experiment.planned(scope)),
        "trials per point": str(count),
        "seeds": f"{scope.seed} to {scope.seed + count - 1}",
        "trials finished": f"{found.finished} of {found.planned}",
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def command(experiment: Experiment, scope: RunConfig) -> str:
    """The command that makes a figure."""
    parts = ["wordsway reproduce", experiment.name, f"--scale {scope.scale}"]
    parts += [f"--model {shlex.quote(scope.model)}"] if scope.model and uses_model(experiment, scope) else []
    parts += [f"--trials {scope.trials}"] if scope.trials else []
    parts += [f"--seed {scope.seed}"] if scope.seed else []
    return " ".join(parts)


def uses_model(experiment: Experiment, scope: RunConfig) -> bool:
    """Whether the model of a scope changes what an experiment asks."""
    return experiment.planned(scope) != experiment.planned(replace(scope, model=None))


def write_page(folder: Path, order: Sequence[str] = ()) -> Path:
    """Write the page of all figures that the folder holds, those named in `order` first."""
    found = {path.stem: _shown(path) for path in sorted(folder.glob("*.json"))}
    names = [name for name in order if name in found]
    names += [name for name in found if name not in names]
    figures = [figure for name in names if (figure := found[name]) is not None]
    replace_file(folder / _PAGE, figures_page(figures).encode())
    return folder / _PAGE


def _shown(path: Path) -> dict[str, Any] | None:
    """Return a figure as the page shows it, from its summary and pictures; None where the file is something else."""
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
        valid = all(isinstance(summary[name], kind) for name, kind in _SUMMARY.items())
        valid = valid and all(isinstance(row, dict) for row in summary["table"])
        if not valid or summary["name"] != path.stem or not NAME.fullmatch(path.stem):  # a copy would be shown twice
            return None
        asked, finished, problems = (int(summary[name]) for name in _COUNTS)
        verdicts = [Verdict(**raw) for raw in summary["verdicts"]]
        if any(verdict.holds not in VERDICTS for verdict in verdicts):
            return None
        pictures = _pictures(path) if summary["table"] else []  # older pictures may lie there
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    notes = [f"{asked - finished} of {asked} trials are missing"] if finished < asked else []
    notes += [f"{problems} of them failed"] if problems else []
    kinds = ("png", "svg", "csv") if summary["table"] else ("csv",)
    return {
        **summary,
        "verdicts": verdicts,
        "holds": overall(verdicts),
        "pictures": pictures,
        "files": [path.with_suffix(f".{kind}").name for kind in kinds if path.with_suffix(f".{kind}").exists()],
        "note": "; ".join(notes),
    }


def _pictures(path: Path) -> list[dict[str, Any]]:
    """Return the light and the dark picture beside a summary, or none where one is missing."""
    light, dark = path.with_suffix(".svg"), path.with_name(f"{path.stem}-dark.svg")
    if not (light.exists() and dark.exists()):
        return []
    return [picture(file.read_text(encoding="utf-8"), kind) for file, kind in ((light, "light"), (dark, "dark"))]
