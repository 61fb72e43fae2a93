"""Files and folders that are made once and kept in the user's cache folder, complete or not at all."""

import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import platformdirs

_LOG = logging.getLogger(__name__)
_DIGEST_SIZE = hashlib.sha256().digest_size
_CHECKSUMS = "sha256.json"  # in a saved folder: the checksum of each other file


def cache_folder() -> Path:
    """Return the cache folder: the environment variable WORDSWAY_CACHE, or else the user's cache folder."""
    return Path(os.environ.get("WORDSWAY_CACHE") or platformdirs.user_cache_dir("wordsway"))


def sha256(path: Path) -> str:
    """Return the checksum of a file in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def load(path: Path) -> bytes | None:
    """Return what was saved at `path`, or None if nothing was or the file is damaged.

    A saved file starts with the sha256 of the rest, so that truncated and altered files are detected.
    """
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        _LOG.warning("the cache file %s cannot be read (%s): doing its work again", path, error)
        return None
    digest, payload = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
    if hashlib.sha256(payload).digest() != digest:
        _LOG.warning("the cache file %s is damaged: making it again", path)
        return None
    return payload


def save(path: Path, payload: bytes) -> None:
    """Save `payload` at `path`; if that fails, log one warning and continue.

    The file is written under another name in the same folder and then renamed, which is atomic: if two processes save
    at once one of them wins, and no reader sees half a file.
    """

    def write(folder: Path) -> Path:
        part = folder / path.name
        part.write_bytes(hashlib.sha256(payload).digest() + payload)
        return part

    _replace(path, write)


def is_complete(path: Path) -> bool:
    """Whether `save_folder` saved a folder at `path` and its files still have their checksums."""
    if not path.exists():
        return False
    try:
        checksums = json.loads((path / _CHECKSUMS).read_text(encoding="utf-8"))
        complete = all(sha256(path / name) == digest for name, digest in checksums.items())
    except (OSError, ValueError, AttributeError):
        complete = False
    if not complete:
        _LOG.warning("the cache folder %s is damaged: making it again", path)
    return complete


def save_folder(path: Path, make: Callable[[Path], None]) -> None:
    """Save a folder at `path`, which `make` fills; if that fails, log one warning and continue.

    As for `save`, it is made under another name and then renamed.
    """

    def write(folder: Path) -> Path | None:
        part = folder / path.name
        part.mkdir()
        make(part)
        (part / _CHECKSUMS).write_text(json.dumps({file.name: sha256(file) for file in part.iterdir()}))
        if is_complete(path):  # another process was faster, and a third may be reading its folder
            return None
        shutil.rmtree(path, ignore_errors=True)
        return part

    _replace(path, write)


def _replace(path: Path, write: Callable[[Path], Path | None]) -> None:
    """Move what `write` makes in a temporary folder to `path`, in one step."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f"{path.name}.", suffix=".part") as folder:
            part = write(Path(folder))
            if part is not None:
                os.replace(part, path)
    except OSError as error:
        _LOG.warning(
            "cannot keep %s (%s): the next run will be as slow; set WORDSWAY_CACHE to a folder that can be written",
            path,
            error,
        )
