"""Where the files of an encoder are: in the offline package, in a local folder, or on the hub."""

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from wordsway.errors import InputError
from wordsway.models import hub, offline
from wordsway.models.offline import OfflineFile

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"  # of weights in several files
OFFLINE = "minilm"

_PICKLE = "pytorch_model.bin"


@dataclass(frozen=True)
class ModelFile:
    """One file of an encoder as it is now; what is read from it may be kept for as long as this record is the same.

    Attributes
    ----------
    path
        Where it is.
    stamp
        Time of the last change, size and inode: another file at the same place is another record.
    remedy
        What to do where it is damaged, as a command.
    published
        The published file that it has to be, for the offline encoder; else None.
    """

    path: Path
    stamp: tuple[int, int, int]
    remedy: str
    published: OfflineFile | None = None


def is_offline(model: str | None) -> bool:
    """Whether `model` means the offline encoder."""
    return model is None or model == OFFLINE


def locate(model: str | None, name: str) -> ModelFile:
    """Return one of the three files of an encoder, fetched from the hub where that is needed.

    Parameters
    ----------
    model
        None or ``"minilm"``, the path of a folder, or a name on the hub. What exists as a path is a folder, and so is
        whatever starts like one, such as ``./bert``.
    name
        `CONFIG`, `TOKENIZER` or `WEIGHTS`.
    """
    if model is None or model == OFFLINE:
        return offline_file({CONFIG: offline.CONFIG, TOKENIZER: offline.TOKENIZER, WEIGHTS: offline.WEIGHTS}[name])
    if not isinstance(model, str):
        raise InputError(f"model must be None or a string, got {model!r}: give a folder or a name on the hub")
    if is_path(model):
        return record(_in_folder(Path(model).expanduser().absolute(), name), "save the model there again")
    # The configuration decides about the commit, so that the three files belong together.
    commit = None if name == CONFIG else hub.fetch(model, CONFIG).parent.name
    path = hub.fetch(model, name, commit)
    return record(path, f"remove the folder {path.parents[2]} to have it fetched again")


def offline_file(file: OfflineFile) -> ModelFile:
    """Return a file of an offline package."""
    return record(offline.locate(file), f"run `{file.remedy}`", file)


def locate_all(model: str) -> ModelFile:
    """Return the configuration of a model, with all its weights next to it, fetched from the hub where that is needed.

    Parameters
    ----------
    model
        A folder or a name on the hub; the weights may be in several files. Its tokenizer is fetched too, if any.
    """
    config = locate(model, CONFIG)
    if is_path(model):
        if not (config.path.parent / INDEX).is_file():
            locate(model, WEIGHTS)  # to say what the folder lacks
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
    with contextlib.suppress(InputError):  # a model without one can still be read, only not with texts
        hub.fetch(model, TOKENIZER, commit)
    return config


def _parts(index: Path) -> list[str]:
    """The files of weights that an index names."""
    try:
        return sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{index} must name the files of the weights, got {error!r}: remove it") from error


def is_path(model: str) -> bool:
    """Whether a model is a folder; a name on the hub can start with none of these characters."""
    return model.startswith((".", "~", "/", os.sep)) or (model != "" and os.path.exists(model))


def _in_folder(folder: Path, name: str) -> Path:
    """Return the path of a file in a folder, or say what the folder lacks."""
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


def record(path: Path, remedy: str, published: OfflineFile | None = None) -> ModelFile:
    """Return a file as it is now."""
    status = path.stat()
    return ModelFile(path, (status.st_mtime_ns, status.st_size, status.st_ino), remedy, published)
