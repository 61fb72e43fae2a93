"""Jobs in processes of their own, so that none sees the memory or the threads of another."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

Job: TypeAlias = Callable[..., dict[str, Any]]
JOBS: dict[str, Job] = {}  # by name, see `job`
Child: TypeAlias = Callable[..., dict[str, Any]]  # child(job, **parameters) -> the job's numbers

_ROOT = Path(__file__).resolve().parent.parent


def job(function: Job) -> Job:
    """Register a function that is run in a process of its own: plain arguments in, plain numbers out."""
    JOBS[function.__name__] = function
    return function


class ChildError(RuntimeError):
    """A job did not finish; its own message is on stderr."""


def run_child(job: str, **parameters: Any) -> dict[str, Any]:
    """Run one of `JOBS` in a new process and return its numbers; progress goes to stderr."""
    shown = " ".join(f"{name}={value}" for name, value in parameters.items() if value is not None)
    print(f"  {job} {shown}", end=" ", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "benchmarks.child", job, json.dumps(parameters)]
    begin = time.perf_counter()
    done = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=False)
    print(f"({time.perf_counter() - begin:.1f} s)", file=sys.stderr, flush=True)
    if done.returncode:
        raise ChildError(f"{job} {shown} ended with exit code {done.returncode}")
    numbers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return numbers


if __name__ == "__main__":
    importlib.import_module("benchmarks.cases")  # registers the jobs
    jobs = importlib.import_module("benchmarks.child").JOBS  # not those of this module, which is __main__
    print(json.dumps(jobs[sys.argv[1]](**json.loads(sys.argv[2]))))
