"""Rows, targets, and the page that is made of them."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import torch

from wordsway.memory import human

_CPU_INFO = Path("/proc/cpuinfo")

PREFACE = """\
# Speed and memory

Written by `make bench`. Both sides run on the same machine in the same run, one after the other, each in a process of
its own with the same number of threads.

- **Published** is the published algorithm, written from its description (`benchmarks/published.py`): dense weights, the
  whole map and autograd through it at every step, float64, projected gradient ascent in the ball |Delta| <= sqrt(d)
  around the clean word, from a small random Delta; rf and drf with rate 100 for 300 steps, raf and relu-raf with rate
  10 for 50 n steps. The best value of all its steps counts. It is run once.
- **Ours** is the library with its defaults. Its seconds are a median after one warm-up run.
- **Seconds** are those of the work: without imports and without making the context. The attention weight W is common to
  both and drawn before; random features include their own weights, dense for the published algorithm, drawn lazily for
  ours.
- **Memory** is the rise of the peak of resident memory over what was resident just before the work. Where a target
  limits it, the whole process is meant, with Python and torch.
- **S** is the relative change at the witness that was found: a lower bound on the word sensitivity, for word 1. Each
  side's value is computed again by the other's evaluation, at the witness.
"""


@dataclass(frozen=True)
class Row:
    """A line of a table: the heading of the table, and the cells by column."""

    table: str
    cells: Mapping[str, str]


@dataclass(frozen=True)
class Target:
    """What a case must reach, what was measured, and whether it holds."""

    case: str
    claim: str
    measured: str
    holds: bool


@dataclass(frozen=True)
class Outcome:
    """The result of a case: rows for the tables, targets to be met, remarks below."""

    rows: tuple[Row, ...] = ()
    targets: tuple[Target, ...] = ()
    remarks: tuple[str, ...] = ()


def costs(got: Mapping[str, Any], rise: bool = False) -> dict[str, str]:
    """Return cells with the seconds and the memory of a job; with `rise`, also the memory of the work alone."""
    memory = {"memory": human(got["rise"])} if rise else {}
    return {"seconds": number(got["seconds"]), **memory, "whole process": human(got["peak"])}


def within(case: str, got: Mapping[str, Any], limit: float) -> Target:
    """Return a limit on the seconds of a job."""
    return Target(case, f"within {limit:g} s", f"{number(got['seconds'])} s", got["seconds"] <= limit)


def under(case: str, got: Mapping[str, Any], limit: int, what: str = ", the whole process") -> Target:
    """Return a limit on the memory of a job."""
    return Target(case, f"under {human(limit)}{what}", human(got["peak"]), got["peak"] < limit)


def faster(case: str, ratio: float, least: float, note: str = "") -> Target:
    """Return a ratio of seconds that must be reached."""
    return Target(case, f"at least {least:g} times faster{note}", f"{number(ratio)} times", ratio >= least)


def agree(case: str, gap: float, tolerance: float, claim: str) -> Target:
    """Return a limit on the largest difference between two sides."""
    return Target(case, claim, f"{gap:.1e} apart at most", gap <= tolerance)


def failures(outcomes: Iterable[Outcome]) -> list[Target]:
    """The targets that do not hold."""
    return [target for outcome in outcomes for target in outcome.targets if not target.holds]


def render(outcomes: Sequence[Outcome], targets: bool = True) -> str:
    """All tables in Markdown, in the order in which their headings first appear; the targets last, if wanted."""
    rows = [row for outcome in outcomes for row in outcome.rows]
    headings = dict.fromkeys(row.table for row in rows)
    parts = [f"## {name}\n\n{table([row.cells for row in rows if row.table == name])}" for name in headings]
    remarks = [remark for outcome in outcomes for remark in outcome.remarks]
    if remarks:
        parts.append("## Remarks\n\n" + "\n".join(f"- {remark}" for remark in remarks) + "\n")
    held = [target for outcome in outcomes for target in outcome.targets]
    if targets and held:
        lines = [
            {"case": t.case, "target": t.claim, "measured": t.measured, "holds": "yes" if t.holds else "**no**"}
            for t in held
        ]
        parts.append(f"## Targets\n\n{table(lines)}")
    return "\n".join(parts)


def table(lines: Sequence[Mapping[str, str]]) -> str:
    """A Markdown table, padded so that it can be read as text; its columns are those of all lines together."""
    columns = list(dict.fromkeys(name for line in lines for name in line))
    grid = [columns, *([line.get(name, "") for name in columns] for line in lines)]
    grid = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in grid]
    widths = [max(3, *(len(line[k]) for line in grid)) for k in range(len(columns))]
    grid.insert(1, ["-" * width for width in widths])
    padded = (" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in grid)
    return "".join(f"| {line} |\n" for line in padded)


def page(outcomes: Sequence[Outcome], load: float | None = None, skipped: Sequence[str] = ()) -> str:
    """The whole of RESULTS.md; `load` is that of the machine before the run, where it is known."""
    idle = "" if load is None else f" Load before the run: {load:.1f}."
    without = f"\nNot measured in this run: {', '.join(skipped)}.\n" if skipped else ""
    return f"{PREFACE}\n{machine()}{idle}\n{without}\n{render(outcomes)}"


def machine() -> str:
    """Return a description of the machine, without its name."""
    memory = human(int(psutil.virtual_memory().total))
    threads = torch.get_num_threads()
    return (
        f"Machine: {os.cpu_count()} cores ({_cpu()}), {memory} of memory, {platform.system()}; Python "
        f"{platform.python_version()}, torch {torch.__version__}, {threads} thread{'s' if threads > 1 else ''}."
    )


def _cpu() -> str:
    try:
        lines = _CPU_INFO.read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def number(value: float) -> str:
    """Three digits, without an exponent where it can be helped: 0.0917, 2.35, 118, 1,420."""
    if value == 0 or 1e-3 <= abs(value) < 100:
        return f"{value:#.3g}".rstrip(".")
    return f"{value:,.0f}" if 100 <= abs(value) < 1e7 else f"{value:.1e}"


def span(values: Sequence[float]) -> str:
    """Smallest, mean and largest."""
    return f"{min(values):.3f} / {sum(values) / len(values):.3f} / {max(values):.3f}"
