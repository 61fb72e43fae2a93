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


def check_dimension(data: str, d: int | None, published: bool = False) -> int | None:
    """Return d if it is valid for this kind of data; images have their own and take None."""
    check_choice("data", data, NAMES)
    if published and data == "imdb":
        raise InputError("published must be left out for imdb: the published runs have no reviews")
    if data in IMAGES:
        if d is not None:
            raise InputError(f"d must be that of the images in {data}, got {d}: leave it out")
        return None
    if d is None:
        raise InputError(f"d must be given for {data} inputs: only images have their own size")
    size = check_size(d, "d")
    if data == "imdb" and size % (word := embedding_dimension()):
        low = max(size // word, 1) * word
        raise InputError(f"d must be a multiple of {word}, one for each word of a review, got {size}: take {low}")
    return size


def input_samples(
    data: str, count: int, d: int | None = None, seed: int = 0, published: bool = False
) -> tuple[Tensor, Tensor]:
    """Return inputs (count, d) with rows of norm sqrt(d), and labels -1 or +1.

    Row k of real data does not depend on `count`.

    Parameters
    ----------
    data : {"gaussian", "imdb", "mnist", "mnist-full", "cifar10", "digits"}
        Gaussian inputs with random labels; film reviews, the embeddings of their first words after [CLS] concatenated,
        with their verdicts; or images with the parity of their class (see `image_samples`).
    count : int
    d : int, optional
        Dimension of an input. For reviews a multiple of the embedding dimension 384: d / 384 words. For images their
        own, so None.
    seed : int
    published : bool
        The protocol of the published robustness runs: Gaussian labels for Gaussian inputs, and images of the classes 0
        and 1 with pixels from 0 to 1, neither centred nor rescaled.

    Raises
    ------
    InputError
        If there is no such data or it has no published protocol, it has fewer samples, or d does not fit it.
    MissingExtra
        If the packages that hold the data are not installed.
    """
    size = check_dimension(data, d, published)
    if size is None:
        return image_samples(data, count, seed, published)
    if data == "imdb":
        word = embedding_dimension()
        contexts, labels = review_contexts(count, 1 + size // word, word, seed)
        return normalize(contexts[:, 1:].flatten(1)), labels
    count = check_size(count, "count")
    samples = gaussian_context(count, size, seed)  # first, since it refuses what does not fit into memory
    stream = seeds.generator(seed, "labels")
    return samples, seeds.normal(stream, count) if published else seeds.signs(stream, count)
