"""Write the locks in requirements/ again: exact versions of every package, also indirect ones, each with its hashes.

Run it with the Python of .venv after changing the dependencies in pyproject.toml, and commit what it writes. It keeps
the versions that the locks have where it can; `--upgrade` takes the newest. uv resolves them; nothing is installed.

torch has two builds of one version. runtime.txt has the small one for the CPU, which the package index does not have:
UV_FIND_LINKS names a folder or a page that does, for this program as for any use of uv. torch.txt has the build of the
package index, with the CUDA packages that it needs on Linux; tools/install.sh takes it where pip finds no other.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "requirements"
TORCH = "torch==2.13.0"  # the library accepts a range; this is the version whose CPU build is known
HEADER = "# Written by tools/lock.py for Python 3.11, linux. Change pyproject.toml and run that again.\n"
OFFLINE = "# The offline encoder, reviews, decoder and images. Installed with --no-deps: only their data are used.\n"

LINUX = ' ; sys_platform == "linux" '

Lock = dict[str, str]  # the name of each package, and its lines


def read(text: str) -> Lock:
    """Split a lock into packages, each with its hashes."""
    return {entry[1]: entry[0] for entry in re.finditer(r"(?m)^([a-z0-9-]+)==.*(?:\n    .*)*", text)}


def resolve(requirements: list[str], known: Lock, *options: str, public: bool = False) -> Lock:
    """Return the packages that uv chooses; it prefers the versions of a known lock."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, output = Path(folder) / "wanted.in", Path(folder) / "lock.txt"
        wanted.write_text("\n".join(requirements))
        output.write_text("\n".join(known.values()))
        command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--generate-hashes", "--no-annotate"]
        command += ["--no-header", "--python-version", "3.11", "--output-file", str(output), *options, str(wanted)]
        environment = {k: v for k, v in os.environ.items() if not (public and k == "UV_FIND_LINKS")}
        subprocess.run(command, check=True, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
        return read(output.read_text())


def write(name: str, packages: Lock, first: str = HEADER) -> None:
    """Write one lock file, sorted by name."""
    (FOLDER / f"{name}.txt").write_text(first + "".join(f"{packages[package]}\n" for package in sorted(packages)))


def main() -> None:
    """Resolve what the package needs, what its developers need besides, and what the CUDA build of torch needs."""
    old = {path.stem: read(path.read_text()) for path in FOLDER.glob("*.txt")}
    kept = {name: lines for lock in old.values() for name, lines in lock.items() if name != "torch"}
    upgrade = sys.argv[1:]
    project = ["pyproject.toml", "--all-extras"]
    runtime = resolve([TORCH], kept, *project, *upgrade)
    if "+cpu" not in runtime["torch"]:
        sys.exit(
            f"error: uv finds no build of {TORCH} for the CPU: let UV_FIND_LINKS name a folder or a page that has it"
        )
    pins = [lines.split(" ")[0] for lines in runtime.values()]
    everything = resolve(pins, kept, *project, "--group", "dev", *upgrade)
    public = resolve([TORCH], kept, public=True)
    offline = resolve([lines.split(" ")[0] for lines in old["offline"].values()], {}, "--no-deps")
    torch = {name: lines for name, lines in public.items() if name == "torch" or name not in runtime}
    write("runtime", runtime)
    write("dev", {k: v for k, v in everything.items() if k not in runtime}, HEADER + "-r runtime.txt\n")
    write("torch", {k: v if k == "torch" else v.replace(" ", LINUX, 1) for k, v in torch.items()})
    write("offline", offline, OFFLINE)


if __name__ == "__main__":
    main()
