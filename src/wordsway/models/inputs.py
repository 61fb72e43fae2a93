"""Inputs of networks and feature maps, one vector per sample: Gaussian, images, or reviews as flat contexts."""

from __future__ import annotations

from torch import Tensor

from wordsway import seeds
from wordsway.checks import check_choice, check_size
from wordsway.contexts import gaussian_context, normalize
from wordsway.data.images import NAMES as IMAGES
from wordsway.data.images import image_samples
from wordsway.errors import InputError
from wordsway.models.encoder import embedding_dimension, review_contexts

NAMES = ("gaussian", "imdb", *IMAGES)


def check_dimension(data: str, d: int | None) -> int | None:
    """Return d if it is valid for this kind of data; images have their own and take None."""
    check_choice("data", data, NAMES)
    if data in IMAGES:
        if d is not None:
            raise InputError(f"d must be that of the images in {data}, got {d}: leave it out")
        return None
    if d is None:
        raise InputError(f"d must be given for {data} inputs: only images bring their own")
    size = check_size(d, "d")
    if data == "imdb" and size % (word := embedding_dimension()):
        low = max(size // word, 1) * word
        raise InputError(f"d must be a multiple of {word}, one for each word of a review, got {size}: take {low}")
    return size


def input_samples(data: str, count: int, d: int | None = None, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return inputs (count, d) with rows of norm sqrt(d), and labels -1 or +1.

    Row k of real data does not depend on `count`.

    Parameters
    ----------
    data : {"gaussian", "imdb", "digits", "mnist", "cifar10"}
        Gaussian inputs with random labels; film reviews, the embeddings of their first words after [CLS] concatenated,
        with their verdicts; or images with the parity of their class (see `image_samples`).
    count : int
    d : int, optional
        Dimension of an input. For reviews a multiple of the embedding dimension 384: d / 384 words. For images their
        own, so None.
    seed : int

    Raises
    ------
    InputError
        If there is no such data, it has fewer samples, or d does not fit it.
    MissingExtra
        If the packages that hold the data are not installed.
    """
    size = check_dimension(data, d)
    if size is None:
        return image_samples(data, count, seed)
    if data == "imdb":
        word = embedding_dimension()
        contexts, labels = review_contexts(count, 1 + size // word, word, seed)
        return normalize(contexts[:, 1:].flatten(1)), labels
    count = check_size(count, "count")
    samples = gaussian_context(count, size, seed)  # first, since it refuses what does not fit into memory
    return samples, seeds.signs(seeds.generator(seed, "labels"), count)
