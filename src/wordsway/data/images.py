"""Small images as inputs: the digits of scikit-learn, MNIST and CIFAR-10 from the hub."""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wordsway import seeds
from wordsway.checks import check_at_most, check_choice
from wordsway.contexts import normalize
from wordsway.data import hub
from wordsway.errors import InputError, MissingExtra, one_line

# Repository on the hub, file in it, and its column of pictures; the classes are in the column "label"
_HUB = {
    "mnist": ("ylecun/mnist", "mnist/train-00000-of-00001.parquet", "image"),
    "cifar10": ("uoft-cs/cifar10", "plain_text/train-00000-of-00001.parquet", "img"),
}
NAMES = ("digits", *_HUB)

Classes = NDArray[np.int64]


def image_samples(name: str, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return images as inputs (count, d) with rows of norm sqrt(d), and labels +1 for even classes, -1 for odd ones.

    The mean of each image is subtracted before it is rescaled, so that a row depends on its own image only; row k does
    not depend on `count`.

    Parameters
    ----------
    name : {"digits", "mnist", "cifar10"}
        1,797 digits of 8 x 8 pixels (d = 64), which come with scikit-learn; 60,000 of 28 x 28 (d = 784) and 50,000
        coloured pictures of 32 x 32 (d = 3072), downloaded once from the hub.
    count : int
    seed : int

    Raises
    ------
    InputError
        If there is no such collection, it has fewer images, or the hub cannot be reached.
    MissingExtra
        If scikit-learn, or pyarrow and pillow for the other two, are not installed.
    """
    check_choice("images", name, NAMES)
    classes, pictures = _digits() if name == "digits" else _from_hub(*_HUB[name])
    count = check_at_most(count, "count", len(classes), f"the number of images in {name}")
    order = seeds.generator(seed, "images").permutation(len(classes))[:count].tolist()
    pixels = torch.from_numpy(np.stack([_pixels(pictures[number]) for number in order]))
    labels = 1.0 - 2.0 * torch.from_numpy(classes[order] % 2).double()
    return normalize(pixels - pixels.mean(1, keepdim=True)), labels


@lru_cache(maxsize=1)
def _digits() -> tuple[Classes, Any]:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtra.of("the digits come with scikit-learn", "images") from error
    digits = load_digits()
    return np.asarray(digits.target, np.int64), digits.data


def _from_hub(repository: str, file: str, column: str) -> tuple[Classes, list[bytes]]:
    return _read(hub.fetch(repository, file, kind="dataset"), column)


@lru_cache(maxsize=2)
def _read(path: Path, column: str) -> tuple[Classes, list[bytes]]:
    """Return the classes and the compressed pictures of a Parquet file."""
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise MissingExtra.of("images from the hub need pyarrow", "images") from error
    try:
        table = ParquetFile(path).read(columns=[column, "label"]).to_pydict()
        return np.asarray(table["label"], np.int64), [picture["bytes"] for picture in table[column]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} must hold pictures and their classes, got {one_line(error)}: remove it to fetch it again"
        ) from error


def _pixels(picture: Any) -> NDArray[np.float64]:
    """Return the pixels of a picture as one row; a compressed one is decoded."""
    if not isinstance(picture, bytes):
        return np.asarray(picture, np.float64)
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtra.of("images from the hub need pillow", "images") from error
    return np.asarray(Image.open(io.BytesIO(picture)), np.float64).ravel()
