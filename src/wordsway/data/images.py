"""Small images as inputs: the digits of scikit-learn, MNIST and CIFAR-10 from the hub."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True, eq=False)
class _Images:
    """The classes of all images of a collection, and a function that returns the pixels (count, d) of some of them."""

    classes: NDArray[np.int64]
    pixels: Callable[[list[int]], NDArray[np.float64]]


@dataclass(frozen=True)
class _HubFile:
    """One Parquet file of a dataset on the hub, and its columns of pictures and classes."""

    dataset: str
    file: str
    picture: str
    label: str


_HUB = {
    "mnist": _HubFile("ylecun/mnist", "mnist/train-00000-of-00001.parquet", "image", "label"),
    "cifar10": _HubFile("uoft-cs/cifar10", "plain_text/train-00000-of-00001.parquet", "img", "label"),
}
NAMES = ("digits", *_HUB)


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
    images = _digits() if name == "digits" else _from_hub(name)
    count = check_at_most(count, "count", len(images.classes), f"the number of images in {name}")
    order = seeds.generator(seed, "images").permutation(len(images.classes))[:count].tolist()
    pixels = torch.from_numpy(images.pixels(order))
    labels = 1.0 - 2.0 * torch.from_numpy(images.classes[order] % 2).double()
    return normalize(pixels - pixels.mean(1, keepdim=True)), labels


@lru_cache(maxsize=1)
def _digits() -> _Images:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtra.of("the digits come with scikit-learn", "images") from error
    digits = load_digits()
    pixels = np.asarray(digits.data, np.float64)
    return _Images(np.asarray(digits.target, np.int64), lambda chosen: pixels[chosen])


def _from_hub(name: str) -> _Images:
    file = _HUB[name]
    return _read(hub.fetch(file.dataset, file.file, kind="dataset"), file)


@lru_cache(maxsize=2)
def _read(path: Path, file: _HubFile) -> _Images:
    """Read the classes and the compressed pictures; pixels are decoded when they are needed."""
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise MissingExtra.of("images from the hub need pyarrow", "images") from error
    try:
        table = ParquetFile(path).read(columns=[file.picture, file.label]).to_pydict()
        pictures = [picture["bytes"] for picture in table[file.picture]]
        classes = np.asarray(table[file.label], np.int64)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} must hold pictures and their classes, got {one_line(error)}: remove it to fetch it again"
        ) from error
    return _Images(classes, lambda chosen: np.stack([_decode(pictures[number]) for number in chosen]))


def _decode(picture: bytes) -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtra.of("images from the hub need pillow", "images") from error
    return np.asarray(Image.open(io.BytesIO(picture)), np.float64).ravel()
