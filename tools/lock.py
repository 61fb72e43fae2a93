"""Write requirements/runtime.txt and requirements/dev.txt anew: exact versions of every package, also indirect ones.

Run it with the Python of .venv after changing the dependencies in pyproject.toml, or to take newer versions, and commit
what it writes. pip resolves them; nothing is installed.
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "requirements"
# The library accepts a range; the lock names one version, since a plain "torch" may bring gigabytes of CUDA packages.
PINNED = ["torch==2.13.0"]
HEADER = "# Written by tools/lock.py on Python {version}, {platform}. Change pyproject.toml and run that again.\n"


def resolve(requirements: list[str]) -> dict[str, str]:
    """Return the version that pip chooses for each package, by normalised name."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    report = subprocess.run([*command, *requirements], check=True, stdout=subprocess.PIPE, text=True).stdout
    chosen = (entry["metadata"] for entry in json.loads(report)["install"])
    # A local version such as 2.13.0+cpu exists only where it was built; the public one matches it too.
    return {item["name"].lower().replace("_", "-").replace(".", "-"): item["version"].split("+")[0] for item in chosen}


def write(path: Path, packages: dict[str, str], first: str = "") -> None:
    """Write one lock file, sorted by name."""
    header = HEADER.format(version=f"{sys.version_info[0]}.{sys.version_info[1]}", platform=sys.platform)
    path.write_text(header + first + "".join(f"{name}=={packages[name]}\n" for name in sorted(packages)))


def main() -> None:
    """Resolve what the package needs, then what its developers need on top of exactly that."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = settings["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    wanted = [*project["dependencies"], *extras, *PINNED]
    runtime = resolve(wanted)
    pins = [f"{name}=={version}" for name, version in runtime.items()]
    everything = resolve([*pins, *settings["dependency-groups"]["dev"]])
    write(FOLDER / "runtime.txt", runtime)
    write(FOLDER / "dev.txt", {k: v for k, v in everything.items() if k not in runtime}, first="-r runtime.txt\n")


if __name__ == "__main__":
    main()
