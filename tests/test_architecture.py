"""The architecture: packages import only from those above, imports are light, the lock is exact, set-up is atomic."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from wordsway.data import offline

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "wordsway"
PACKAGES = (
    *("contexts", "activations", "gaussian", "maps", "sensitivity", "generalization", "smoothness", "kernels"),
    *("data", "models", "experiments", "figures", "report", "serve", "cli"),
)
BASE = ("errors", "checks", "seeds", "memory", "threads", "records", "workers", "packing")  # any package may use these
FRONT = ("__init__", "__main__")  # the public list and `python -m wordsway`
SUITES = "testing"  # the shipped conformance suites: for users' tests, so no package may import them

# Packages


def _imported(tree: ast.AST, module: tuple[str, ...]) -> Iterator[str]:
    """Yield the dotted names that a module imports, those inside functions too.

    `module` is the dotted name of the package that relative imports start from, as a tuple.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = module[: len(module) - node.level + 1] if node.level else ()
            source = ".".join([*start, *filter(None, [node.module])])
            yield from (f"{source}.{alias.name}" for alias in node.names)


def _packages_imported(source: str, package: tuple[str, ...]) -> set[str]:
    """Return which packages of wordsway a module imports from; "" is wordsway itself."""
    names = [name.split(".") for name in _imported(ast.parse(source), package)]
    return {name[1] if len(name) > 1 else "" for name in names if name[0] == "wordsway"}


def _violations(package: str, imported: set[str]) -> list[str]:
    """Return the imports that a package may not have."""
    if package == "__init__":
        allowed = {*BASE, *PACKAGES} - {"serve", "cli"}
    elif package == SUITES:
        allowed = {SUITES, *BASE, *PACKAGES} - {"cli"}
    elif package == "__main__":
        allowed = {"cli"}
    elif package in BASE:
        allowed = set(BASE)
    else:
        allowed = {*BASE, *PACKAGES[: PACKAGES.index(package) + 1]}
    return [f"{package} imports {name or 'the whole package'}" for name in sorted(imported - allowed)]


def _modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def test_every_module_is_in_a_known_package() -> None:
    tops = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in _modules()}
    assert tops <= {*PACKAGES, *BASE, *FRONT, SUITES}
    assert {"contexts", "models"} <= tops  # the search found something


@pytest.mark.parametrize("path", _modules(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_packages_import_only_from_packages_above(path: Path) -> None:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    imported = _packages_imported(path.read_text(encoding="utf-8"), ("wordsway", *parts[:-1]))
    assert _violations(parts[0], imported) == []


@pytest.mark.parametrize(
    ("package", "source", "wrong"),
    [
        ("maps", "from wordsway.contexts import normalize", []),
        ("maps", "from wordsway import errors, memory, gaussian", []),
        ("maps", "from wordsway.maps.attention import x\nfrom . import y\nfrom .z import w", []),
        ("maps", "import torch, numpy as np", []),
        ("maps", "import wordsway.sensitivity.search", ["maps imports sensitivity"]),
        ("maps", "def f():\n    from wordsway.models import review_contexts", ["maps imports models"]),
        ("maps", "from wordsway import normalize", ["maps imports normalize"]),
        ("maps", "from ..experiments import run", ["maps imports experiments"]),
        ("maps", "import wordsway", ["maps imports the whole package"]),
        ("report", "from wordsway.cli import main", ["report imports cli"]),
        ("memory", "from wordsway.contexts import normalize", ["memory imports contexts"]),
        ("testing", "from wordsway.experiments import run", []),
        ("maps", "from wordsway.testing.gaussian import suite", ["maps imports testing"]),
        ("__init__", "from wordsway.cli import main", ["__init__ imports cli"]),
        ("__main__", "from wordsway.cli import main", []),
    ],
)
def test_violations_are_found(package: str, source: str, wrong: list[str]) -> None:
    assert _violations(package, _packages_imported(source, ("wordsway", "maps"))) == wrong


@pytest.mark.parametrize("package", ["wordsway", "wordsway.data", "wordsway.models"])
def test_importing_loads_neither_matplotlib_nor_transformers(package: str) -> None:
    program = f"import {package}, sys; print(sorted({{'matplotlib', 'transformers'}} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"


# Requirements


_HASHES = r"(?: \\\n    --hash=sha256:[0-9a-f]{64})+"
_PINNED = re.compile(rf"""([a-z0-9-]+)==([0-9][0-9a-z.]*(?:\+cpu)?)(?: ; sys_platform == "linux")?{_HASHES}\n""")


def _lock(text: str, ordered: bool = True) -> dict[str, str]:
    """Return the versions of a lock in which every package has one version and the hashes of its files."""
    entries = re.sub(r"(?m)^(#.*|-r .*)\n", "", text)
    assert _PINNED.sub("", entries) == "", "a package without an exact version or without hashes"
    names = [entry[1] for entry in _PINNED.finditer(entries)]
    assert len(names) == len(set(names))
    assert not ordered or names == sorted(names)
    return {entry[1]: entry[2] for entry in _PINNED.finditer(entries)}


def _locked(name: str) -> dict[str, str]:
    return _lock((ROOT / "requirements" / f"{name}.txt").read_text())


@pytest.mark.parametrize(
    "line", ["numpy==2.4.6", "numpy>=2 \\\n    --hash=sha256:" + "0" * 64, "https://x.org/numpy.whl"]
)
def test_a_lock_that_is_not_exact_is_found(line: str) -> None:
    exact = "torch==2.13.0 \\\n    --hash=sha256:" + "1" * 64 + "\n"
    assert _lock(exact) == {"torch": "2.13.0"}
    with pytest.raises(AssertionError):
        _lock(f"{line}\n{exact}")


def test_torch_and_the_offline_packages_are_pinned() -> None:
    assert _locked("runtime")["torch"] == "2.13.0+cpu"
    assert _locked("torch")["torch"] == "2.13.0"
    assert set(_locked("torch")) & {*_locked("runtime"), *_locked("dev")} == {"torch"}
    files = [value for value in vars(offline).values() if isinstance(value, offline.OfflineFile)]
    assert set(_locked("offline")) == {file.package for file in files}


def test_the_lock_satisfies_all_requirements() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    runtime, dev = _locked("runtime"), _locked("dev")
    assert not set(runtime) & set(dev)
    extras = settings["project"]["optional-dependencies"].values()
    required = [*settings["project"]["dependencies"], *(line for lines in extras for line in lines)]
    for line, lock in [(line, runtime) for line in required] + [
        (line, dev) for line in settings["dependency-groups"]["dev"]
    ]:
        requirement = Requirement(line)
        assert requirement.specifier.contains(lock[requirement.name]), line


# Set-up, with a stand-in for Python that records its arguments and fails on request

_STAND_IN = """#!/bin/sh
echo "$*" >>"$LOG"
case "$*" in
    *"index versions torch") echo "Available versions: ${TORCH-2.15.0, 2.13.0+cpu, 2.13.0}" ;;
    *" -r "*/dev.txt) [ -z "${COPY_TO:-}" ] || cp -r "$(dirname "${*##* }")" "$COPY_TO" ;;
    -c*) exit "${TOO_OLD:-0}" ;;
    "-m venv"*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
esac
case "$*" in
    *"${FAIL_ON:-nothing}"*) echo "no such package" >&2; exit 1 ;;
esac
"""


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    path = tmp_path / "python"
    path.write_text(_STAND_IN)
    path.chmod(0o755)
    return path


def _set_up(stand_in: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    folder = stand_in.parent
    environment = {**os.environ, "PYTHON": str(stand_in), "LOG": str(folder / "log"), **settings}
    command = ["/bin/sh", "tools/setup.sh", str(folder / "venv")]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_set_up_installs_and_verifies_everything(stand_in: Path) -> None:
    venv = stand_in.parent / "venv"
    assert _set_up(stand_in).returncode == 0
    log = (stand_in.parent / "log").read_text()
    order = [
        "-m venv",
        "--require-hashes -r requirements/dev.txt\n",
        "--require-hashes --no-deps -r requirements/offline.txt\n",
        "--editable .",
        "verify_offl",
    ]
    assert sorted(order, key=log.index) == order
    assert (venv / ".ready").exists()
    assert not (venv / ".unfinished").exists()


@pytest.mark.parametrize("versions", ["2.15.0, 2.13.0", "2.12.0+cpu, 2.13.0", ""])
def test_set_up_installs_the_other_build_of_torch(stand_in: Path, versions: str) -> None:
    locks = stand_in.parent / "locks"
    assert _set_up(stand_in, TORCH=versions, COPY_TO=str(locks)).returncode == 0
    assert _lock((locks / "runtime.txt").read_text(), ordered=False) == _locked("runtime") | _locked("torch")
    assert (locks / "dev.txt").read_text() == (ROOT / "requirements" / "dev.txt").read_text()
    used = re.search(r"-r (\S+)/dev.txt\n", (stand_in.parent / "log").read_text())
    assert used is not None
    assert not Path(used[1]).exists()


@pytest.mark.parametrize("step", ["dev.txt", "offline.txt", "--editable", "verify_offline"])
def test_a_failed_set_up_is_not_finished_and_starts_over(stand_in: Path, step: str) -> None:
    venv = stand_in.parent / "venv"
    assert _set_up(stand_in).returncode == 0
    failed = _set_up(stand_in, FAIL_ON=step)
    assert failed.returncode != 0
    assert "no such package" in failed.stderr
    assert not (venv / ".ready").exists()
    (venv / "half-installed").touch()
    assert _set_up(stand_in).returncode == 0
    assert (venv / ".ready").exists()
    assert not (venv / "half-installed").exists()


def test_a_new_set_up_over_a_finished_one_keeps_it(stand_in: Path) -> None:
    assert _set_up(stand_in).returncode == 0
    (stand_in.parent / "venv" / "kept").touch()
    assert _set_up(stand_in).returncode == 0
    assert (stand_in.parent / "venv" / "kept").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"TOO_OLD": "1"}, "needs Python 3.11 or later"), ({"PYTHON": "", "PATH": ""}, "found none")],
)
def test_a_python_that_is_old_or_missing_is_refused_in_one_line(
    stand_in: Path, settings: dict[str, str], message: str
) -> None:
    refused = _set_up(stand_in, **settings)
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert message in refused.stderr
    assert not (stand_in.parent / "venv").exists()


def test_a_second_set_up_waits_for_the_first(stand_in: Path) -> None:
    venv = stand_in.parent / "venv"
    venv.mkdir()
    program = "import pathlib, sys, time; time.sleep(1); pathlib.Path(sys.argv[1]).touch()"
    with subprocess.Popen([sys.executable, "-c", program, str(venv / ".ready")]) as first:
        (venv / ".unfinished").write_text(f"{first.pid}\n")
        waiting = subprocess.Popen(
            ["/bin/sh", "tools/setup.sh", str(venv)],
            cwd=ROOT,
            env={**os.environ, "PYTHON": str(stand_in), "LOG": str(stand_in.parent / "log")},
            stderr=subprocess.PIPE,
            text=True,
        )
        first.wait()
        message = waiting.communicate(timeout=30)[1]
    assert waiting.returncode == 0
    assert f"process {first.pid}" in message
    assert "-m venv" not in (stand_in.parent / "log").read_text()
