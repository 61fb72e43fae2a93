"""Files of figures: a table, pictures and verdicts for each, and one page for all of them."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from wordsway import figures
from wordsway.experiments.experiment import NAME, Experiment, RunConfig, Verdict, worst
from wordsway.experiments.results import FigureResult
from wordsway.experiments.runner import sizes
from wordsway.figures._style import render
from wordsway.report.files import replace_file, table_as_csv
from wordsway.report.pages import figures_page, picture

_PAGE = "index.html"
# Keys of the summary of a figure, with their types.
_SUMMARY = {"name": str, "title": str, "about": str, "command": str, "facts": dict, "verdicts": list, "table": list}
_ASSUMPTION = ("theorem", "assumption", "measured", "met")  # files of older versions have none
_PICTURES = (".svg", "-dark.svg", ".png")
_COUNTS = ("asked", "finished", "problems")


def write_figure(result: FigureResult, folder: Path) -> list[Path]:
    """Write a figure's table (CSV), pictures (PNG, SVG, SVG for a dark page) and verdicts (JSON).

    Pictures are drawn again only where the table or the code that draws it has changed.
    """
    name, drawn = result.experiment.name, _drawing(result)
    files: dict[str, bytes] = {f"{name}.csv": table_as_csv(result.table).encode()}
    if result.table and not _is_drawn(folder, name, drawn):

        def draw(figure: Any) -> None:
            result.experiment.plot(result.table, figure)

        files |= {
            f"{name}.svg": render(draw, "svg"),
            f"{name}-dark.svg": render(draw, "svg", dark=True),
            f"{name}.png": render(draw, "png"),
        }
    summary = {**_summary(result), "drawing": drawn}
    files[f"{name}.json"] = json.dumps(summary, indent=1, ensure_ascii=False).encode()
    for file, content in files.items():
        replace_file(folder / file, content)
    return [folder / file for file in files]


def _drawing(result: FigureResult) -> str:
    """Return a checksum of what the pictures of a figure depend on: its table and the code that draws it."""
    import matplotlib as mpl

    digest = hashlib.sha256(f"{mpl.__version__} {json.dumps(result.table)}".encode())
    for path in sorted(Path(figures.__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _is_drawn(folder: Path, name: str, drawing: str) -> bool:
    """Whether the pictures of a figure in a folder are those of this checksum."""
    try:
        written = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["drawing"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return written == drawing and all((folder / f"{name}{end}").is_file() for end in _PICTURES)


def _summary(result: FigureResult) -> dict[str, Any]:
    """Return everything that the page shows of a figure, so that it can be made without running anything."""
    experiment, config = result.experiment, result.config
    return {
        "name": experiment.name,
        "title": experiment.title,
        "about": experiment.about,
        "command": command(experiment, config),
        "facts": _facts(result),
        "verdicts": [verdict.to_dict() for verdict in result.verdicts],
        "assumptions": result.assumptions,
        "asked": result.planned,
        "finished": result.finished,
        "problems": result.problems,
        "table": result.table,
    }


def _facts(result: FigureResult) -> dict[str, str]:
    config = result.config
    count = result.experiment.trials[config.scale] if config.trials is None else config.trials
    return {
        "scale": config.scale,
        "parameters": sizes(result.experiment.planned(config)),
        "trials per point": str(count),
        "seeds": f"{config.seed} to {config.seed + count - 1}",
        "trials finished": f"{result.finished} of {result.planned}",
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def command(experiment: Experiment, config: RunConfig) -> str:
    """Return the command that makes a figure."""
    parts = ["wordsway reproduce", experiment.name, f"--scale {config.scale}"]
    parts += [f"--model {shlex.quote(config.model)}"] if config.model and uses_model(experiment, config) else []
    parts += [f"--trials {config.trials}"] if config.trials else []
    parts += [f"--seed {config.seed}"] if config.seed else []
    return " ".join(parts)


def uses_model(experiment: Experiment, config: RunConfig) -> bool:
    """Whether the model of a config changes what an experiment measures."""
    return experiment.planned(config) != experiment.planned(replace(config, model=None))


def write_page(folder: Path, order: Sequence[str] = ()) -> Path:
    """Write the page of all figures that the folder holds, those named in `order` first."""
    written = {path.stem: _shown(path) for path in sorted(folder.glob("*.json"))}
    names = dict.fromkeys([*(name for name in order if name in written), *written])
    shown = [figure for name in names if (figure := written[name]) is not None]
    replace_file(folder / _PAGE, figures_page(shown).encode())
    return folder / _PAGE


def _shown(path: Path) -> dict[str, Any] | None:
    """Return a figure as the page shows it, from its summary and pictures; None where the file is something else."""
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
        valid = all(isinstance(summary[name], kind) for name, kind in _SUMMARY.items())
        valid = valid and all(isinstance(row, dict) for row in summary["table"])
        if not valid or summary["name"] != path.stem or not NAME.fullmatch(path.stem):  # a copy would be shown twice
            return None
        planned, finished, problems = (int(summary[name]) for name in _COUNTS)
        verdicts = [Verdict.from_dict(raw) for raw in summary["verdicts"]]
        assumptions = [{name: row[name] for name in _ASSUMPTION} for row in summary.get("assumptions", [])]
        if any(row["met"] not in (True, False, None) for row in assumptions):
            return None
        pictures = _pictures(path) if summary["table"] else []  # older pictures may lie there
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    notes = [f"{planned - finished} of {planned} trials are missing"] if finished < planned else []
    notes += [f"{problems} of them failed"] if problems else []
    kinds = ("png", "svg", "csv") if summary["table"] else ("csv",)
    return {
        **summary,
        "verdicts": verdicts,
        "assumptions": assumptions,
        "outcome": worst(verdict.word for verdict in verdicts),
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
