"""The files of a model: in an offline package, in a local folder, or on the hub."""

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from wordsway.data import hub, offline
from wordsway.data.offline import DownloadedFile, OfflineFile
from wordsway.errors import InputError

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"  # of weights in several files
OFFLINE, DOWNLOADED = "minilm", "mpnet"

_PICKLE = "pytorch_model.bin"


@dataclass(frozen=True)
class ModelFile:
    """One file of a model in its present state; what is read from it may be cached by this record."""

    path: Path
    stamp: tuple[int, int, int]  # time of the last change, size and inode: a new file at the same path differs
    remedy: str  # what to do if it is damaged
    published: OfflineFile | DownloadedFile | None = None  # the published file that it must be, for offline models


def is_offline(model: str | None) -> bool:
    """Whether `model` means the offline encoder."""
    return model is None or model == OFFLINE


def locate(model: str | None, name: str) -> ModelFile:
    """Return one of the files of a model, downloaded from the hub if that is needed.

    Parameters
    ----------
    model : str, optional
        Default: ``"minilm"``. Or ``"mpnet"``, which is downloaded on request, the path of a folder, or a name on the
        hub. What exists as a path is a folder, and so is what starts like one, such as ``./bert``.
    name : {CONFIG, TOKENIZER, WEIGHTS}
    """
    if is_offline(model):
        return offline_file({CONFIG: offline.CONFIG, TOKENIZER: offline.TOKENIZER, WEIGHTS: offline.WEIGHTS}[name])
    if model == DOWNLOADED:
        return offline_file(next(file for file in offline.MPNET if file.inside == name))
    if not isinstance(model, str):
        raise InputError(f"model must be None or a string, got {model!r}: give a folder or a name on the hub")
    if _is_path(model):
        return record(_in_folder(Path(model).expanduser().absolute(), name), "save the model there again")
    # The configuration decides about the commit, so that all files belong together.
    commit = None if name == CONFIG else hub.fetch(model, CONFIG).parent.name
    path = hub.fetch(model, name, commit)
    return record(path, f"remove the folder {path.parents[2]} to have it fetched again")


def offline_file(file: OfflineFile | DownloadedFile) -> ModelFile:
    """Return a file of an offline package, or one that was downloaded on request."""
    return record(offline.locate(file), f"run `{file.remedy}`", file)


def locate_all(model: str) -> ModelFile:
    """Return the configuration of a model, with its weights and its tokenizer, if any, in the same folder.

    `model` is a folder or a name on the hub; the weights may be in several files.
    """
    config = locate(model, CONFIG)
    if _is_path(model):
        if not (config.path.parent / INDEX).is_file():
            locate(model, WEIGHTS)  # raises if the folder has none
        return config
    commit = config.path.parent.name
    try:
        hub.fetch(model, WEIGHTS, commit)
    except InputError as error:
        try:
            index = hub.fetch(model, INDEX, commit)
        except InputError:
            raise error from error.__cause__
        for name in _parts(index):
            hub.fetch(model, name, commit)
    with contextlib.suppress(InputError):  # a model without one can be used, only not with texts
        hub.fetch(model, TOKENIZER, commit)
    return config


def record(path: Path, remedy: str, published: OfflineFile | DownloadedFile | None = None) -> ModelFile:
    """Return the record of a file in its present state."""
    status = path.stat()
    return ModelFile(path, (status.st_mtime_ns, status.st_size, status.st_ino), remedy, published)


def _parts(index: Path) -> list[str]:
    """Return the files of weights that an index names."""
    try:
        return sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{index} must name the files of the weights, got {error!r}: remove it") from error


def _is_path(model: str) -> bool:
    """Whether a model is a folder; a name on the hub can start with none of these characters."""
    return model.startswith((".", "~", "/", os.sep)) or (model != "" and os.path.exists(model))


def _in_folder(folder: Path, name: str) -> Path:
    """Return the path of a file in a folder, or raise with what is missing."""
    path = folder / name
    if os.path.isfile(path):
        return path
    if not os.path.isdir(folder):
        got = "a file" if os.path.exists(folder) else "nothing there"
        raise InputError(f"{folder} must be a folder with {CONFIG}, {TOKENIZER} and {WEIGHTS}, got {got}: check it")
    if name == WEIGHTS and os.path.exists(folder / _PICKLE):
        raise InputError(
            f"{folder} must hold {WEIGHTS}, got only {_PICKLE}, a pickle, which can run code when it is read: "
            "save the model again as safetensors, with save_pretrained of transformers"
        )
    what = "the tokenizer" if name == TOKENIZER else "the model"
    raise InputError(
        f"{folder} must hold {name}, got no such file: save {what} there with save_pretrained of transformers"
    )
