"""Run the benchmarks: ``python -m benchmarks [CASE ...] [--skip CASE] [--list] [--quick] [--resume]``.

Exit code 1 when a target does not hold, or a case did not finish. A run of all cases at full size writes RESULTS.md,
which names those that were skipped.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import kept
from benchmarks.cases import CASES
from benchmarks.child import Child, ChildError, run_child
from benchmarks.report import Outcome, Target, failures, machine, page, render

_RUNS = "the case runs"
RESULTS = Path(__file__).resolve().parent / "RESULTS.md"


def main(
    arguments: Sequence[str] | None = None,
    child: Child = run_child,
    results: Path = RESULTS,
    folder: Path | None = None,
) -> int:
    """Run the chosen cases, print their tables, and return the exit code."""
    options = _parser().parse_args(arguments)
    unknown = [name for name in (*options.cases, *options.skip) if name not in CASES]
    if unknown:
        print(f"unknown case {unknown[0]!r}: choose from {', '.join(CASES)}", file=sys.stderr)
        return 2
    if options.list:
        width = max(map(len, CASES))
        print("\n".join(f"{name.ljust(width)}  {case.summary}" for name, case in CASES.items()))
        return 0
    chosen = [name for name in dict.fromkeys(options.cases or CASES) if name not in options.skip]
    busy = load()
    if busy is not None and busy > 0.5:
        print(f"the machine is busy (load {busy:.1f}): times will be too long, and ratios off", file=sys.stderr)
    begin = time.perf_counter()
    outcomes = _outcomes(chosen, options, child, folder or kept.FOLDER)
    print(f"{time.perf_counter() - begin:.0f} s in all", file=sys.stderr)
    print(machine(), end="\n\n")
    print(render(outcomes, targets=not options.quick))
    if not options.quick and not options.cases:
        results.write_text(page(outcomes, busy, options.skip), encoding="utf-8")
        print(f"written to {results.parent.name}/{results.name}", file=sys.stderr)
    return _verdict(outcomes, options.quick)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure every speed claim, ours against the published algorithm. All cases together, at full "
        "size, write benchmarks/RESULTS.md; some of them only print.",
    )
    parser.add_argument("cases", metavar="CASE", nargs="*", help="cases to run; default: all")
    parser.add_argument("--skip", metavar="CASE", action="append", default=[], help="leave out a case; may be repeated")
    parser.add_argument("--list", action="store_true", help="list the cases")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, no targets, nothing written: does it run?")
    parser.add_argument(
        "--resume", action="store_true", help="keep what an earlier run of the same code measured on this machine"
    )
    return parser


def _outcomes(chosen: Sequence[str], options: argparse.Namespace, child: Child, folder: Path) -> list[Outcome]:
    """The outcome of each case, kept as it ends; with --resume those that held all their targets are not run again."""
    if options.quick:
        return [_run(name, True, child, position, len(chosen)) for position, name in enumerate(chosen, 1)]
    now = kept.state()
    outcomes = []
    for position, name in enumerate(chosen, 1):
        known = kept.load(folder, name, now) if options.resume else None
        if known is not None and not failures([known]):
            print(f"[{position}/{len(chosen)}] {name}: kept from an earlier run", file=sys.stderr)
        else:
            known = _run(name, False, child, position, len(chosen))
            kept.save(folder, name, now, known)
        outcomes.append(known)
    return outcomes


def _run(name: str, quick: bool, child: Child, position: int, count: int) -> Outcome:
    case = CASES[name]
    print(f"[{position}/{count}] {name}: {case.summary}{', at a tiny size' if quick else ''}", file=sys.stderr)
    try:
        return case.run(child, case.small if quick else case.full)
    except ChildError as error:  # the other cases still run
        return Outcome(targets=(Target(name, _RUNS, str(error), False),))


def _verdict(outcomes: Sequence[Outcome], quick: bool) -> int:
    """0 if everything ran and, at full size, every target holds."""
    failed = failures(outcomes)
    if quick:
        failed = [target for target in failed if target.claim == _RUNS]
    for target in failed:
        print(f"FAILED {target.case}: {target.claim}, got {target.measured}", file=sys.stderr)
    return 1 if failed else 0


def load() -> float | None:
    """Return how many programs ran at once in the last minute, where it is known: their work would count as ours."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


if __name__ == "__main__":
    sys.exit(main())
