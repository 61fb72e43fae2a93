"""Where reports go: folders that are made or refused, and files that are written whole or not at all."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from experiments.made import Elsewhere, open_folder, page_as_nobody

from wordsway.errors import InputError
from wordsway.report.results import check_folder, replace_file, write_page


def test_output_folders_are_made(tmp_path: Path) -> None:
    assert check_folder(tmp_path / "a" / "b", make=False) == tmp_path / "a" / "b"
    assert not (tmp_path / "a").exists()
    assert check_folder(str(tmp_path / "a" / "b")).is_dir()
    assert check_folder(tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("make", [True, False])
def test_an_output_that_is_a_file_is_refused(tmp_path: Path, make: bool) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(InputError, match="the output must be a folder, got the file"):
        check_folder(tmp_path / "file", make)
    with pytest.raises(InputError, match="the output must be a folder, got the file"):
        check_folder(tmp_path / "file" / "inside")
    assert (tmp_path / "file").read_text() == "text"


def test_an_output_that_cannot_be_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(InputError, match=r"cannot be made \(Permission denied\): choose another"):
        check_folder(tmp_path / "a")


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_file(path, b"old")
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o644
    assert [other.name for other in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("step", ["chmod", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(Path, step, fail)
    expected = InputError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as caught:
        replace_file(path, b"new")
    if expected is InputError:
        assert str(caught.value) == (
            f"cannot write {path} (No space left on device): make room or choose another folder"
        )
    assert path.read_bytes() == b"old"
    assert [other.name for other in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_went_away_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write .*index.html \(No such file or directory\)"):
        write_page(tmp_path / "away")


def test_a_folder_in_the_place_of_a_file_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "index.html").mkdir()
    with pytest.raises(InputError, match=r"cannot write .*index.html \(Is a directory\)"):
        write_page(tmp_path)


def test_a_folder_that_cannot_be_written_is_told_in_one_line() -> None:
    with open_folder() as folder:
        folder.chmod(0o555)
        (refusal,) = Elsewhere(page_as_nobody, folder).rest()
        path = folder / "index.html"
        assert refusal == (f"InputError: cannot write {path} (Permission denied): make room or choose another folder")
