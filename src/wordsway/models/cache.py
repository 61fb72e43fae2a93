"""Files that are made once and kept in the user's cache folder, whole or not at all."""

import hashlib
import logging
import os
import tempfile
from pathlib import Path

import platformdirs

_LOG = logging.getLogger(__name__)
_DIGEST_SIZE = hashlib.sha256().digest_size


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
        _LOG.warning(
            "cannot keep %s (%s): the next run will be as slow; set WORDSWAY_CACHE to a folder that can be written",
            path,
            error,
        )
