"""Files and folders that are made once and kept in the user's cache folder, whole or not at all."""

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
_SUMS = "sha256.json"  # in a saved folder: the checksum of each other file


def cache_folder() -> Path:
    """Return the cache folder: the environment variable WORDSWAY_CACHE, or else the user's cache folder."""
    return Path(os.environ.get("WORDSWAY_CACHE") or platformdirs.user_cache_dir("wordsway"))


def load(path: Path) -> bytes | None:
    """Return what was saved at `path`, or None where there is nothing or it is damaged.

    A saved file starts with the sha256 of the rest, so that a cut or altered file is noticed.
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
    """Save `payload` at `path`; where that cannot be done, say so in one line and go on.

    The file is written under another name in the same folder and then renamed, which is atomic: of two processes that
    save at once one wins, and no reader sees half a file.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}.", suffix=".part", delete=False) as part:
            try:
                part.write(hashlib.sha256(payload).digest() + payload)
                part.close()
                os.replace(part.name, path)
            except BaseException:
                part.close()
                Path(part.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        _cannot_keep(path, error)


def is_whole(path: Path) -> bool:
    """Whether `save_folder` saved a folder at `path` and its files are still as they were."""
    if not path.exists():
        return False
    try:
        sums = json.loads((path / _SUMS).read_text(encoding="utf-8"))
        whole = all(_sum(path / name) == digest for name, digest in sums.items())
    except (OSError, ValueError, AttributeError):
        whole = False
    if not whole:
        _LOG.warning("the cache folder %s is damaged: making it again", path)
    return whole


def save_folder(path: Path, make: Callable[[Path], None]) -> None:
    """Save a folder at `path`, which `make` fills; where that cannot be done, say so in one line and go on.

    As for `save`, it is made under another name and then renamed; of two processes that save at once one wins.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=path.parent, prefix=f"{path.name}.", suffix=".part"))
        try:
            make(part)
            (part / _SUMS).write_text(json.dumps({file.name: _sum(file) for file in part.iterdir()}))
            if not is_whole(path):  # another process may have been quicker, and a third be reading its folder
                shutil.rmtree(path, ignore_errors=True)
                os.replace(part, path)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        _cannot_keep(path, error)


def _sum(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _cannot_keep(path: Path, error: OSError) -> None:
    _LOG.warning(
        "cannot keep %s (%s): the next run will be as slow; set WORDSWAY_CACHE to a folder that can be written",
        path,
        error,
    )
