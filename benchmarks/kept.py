"""Outcomes of cases that have ended, so that a run that was stopped can go on: the whole takes over an hour."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

from benchmarks.report import Outcome, Row, Target, machine

_ROOT = Path(__file__).resolve().parent.parent
FOLDER = _ROOT / "build" / "benchmarks"


def state(root: Path = _ROOT) -> str:
    """A digest of the code that is measured, and of what it runs on: an outcome of another state does not count."""
    digest = hashlib.sha256(machine().encode())
    for folder in ("src", "benchmarks"):
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def save(folder: Path, name: str, of: str, outcome: Outcome) -> None:
    """Keep the outcome of a case, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{name}.part"
    part.write_text(json.dumps({"state": of, "outcome": asdict(outcome)}), encoding="utf-8")
    part.replace(folder / f"{name}.json")


def load(folder: Path, name: str, of: str) -> Outcome | None:
    """The outcome of a case in this state; None where there is none, or it is damaged."""
    try:
        kept = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        if kept["state"] != of:
            return None
        outcome = kept["outcome"]
        return Outcome(
            tuple(Row(**row) for row in outcome["rows"]),
            tuple(Target(**target) for target in outcome["targets"]),
            tuple(outcome["remarks"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
