"""Film reviews with their verdicts: texts from the offline package, tokenized once and cached, drawn by a seed."""

import csv
import hashlib
import io
from collections.abc import Hashable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from wordsway import seeds
from wordsway.checks import check_at_most
from wordsway.data import cache, offline
from wordsway.errors import InputError

_FORMAT = 2  # increase it when the content of cache files changes
_BLOCK = 500  # reviews tokenized at once: about 0.3 seconds
_REPEAT = 20  # reviews whose first 20 tokens are equal are one text that was posted twice

Tokens = NDArray[np.unsignedinteger[Any]]


class ReviewTokenizer(Hashable, Protocol):
    """What tokenizes reviews; equal ones must return equal tokens, since they share a cache."""

    @property
    def digest(self) -> str:
        """Checksum of the tokenizer's rules."""

    @property
    def vocabulary(self) -> int:
        """Token ids are below this number."""

    @property
    def positions(self) -> int:
        """Largest number of tokens of a text."""

    def openings(self, texts: list[str]) -> list[list[int]]:
        """Return the first `positions` tokens of each text, without those that close it."""


class Reviews:
    """All reviews of the offline package as tokens, with their labels.

    The object is mutable: tokens are computed on first use and remembered.

    Attributes
    ----------
    labels : array of int8
        One for each review, in file order: -1 (against the film) or +1 (for it).

    Notes
    -----
    One file in the cache folder holds the labels and the tokens known so far, at most 13 MB for the offline encoder.
    Its name depends on the reviews, the tokenizer and the number of positions. A process writes all that it knows, so
    of two at once the later one wins, and what only the other knew is tokenized again when it is needed.
    """

    def __init__(self, texts: Path, tokenizer: ReviewTokenizer, folder: Path) -> None:
        self._texts = texts
        self._tokenizer = tokenizer
        self._dtype: type[np.unsignedinteger[Any]] = np.uint16 if tokenizer.vocabulary <= 2**16 else np.uint32
        key = f"{_FORMAT} {offline.REVIEWS.sha256} {tokenizer.digest} {tokenizer.positions}"
        self._path = folder / f"reviews-{hashlib.sha256(key.encode()).hexdigest()[:16]}.bin"
        self._tokens: dict[int, Tokens] = {}
        self.labels = self._load()
        self._saved = len(self._tokens)

    def tokens(self, reviews: Iterable[int]) -> list[Tokens]:
        """Return the tokens of some reviews, without those that close a text."""
        numbers = list(reviews)
        missing = [number for number in numbers if number not in self._tokens]
        if missing:
            texts, _ = _read_texts(self._texts)
            openings = self._tokenizer.openings([texts[number] for number in missing])
            self._tokens |= {k: np.array(ids, self._dtype) for k, ids in zip(missing, openings, strict=True)}
        return [self._tokens[number] for number in numbers]

    def texts(self, reviews: Iterable[int]) -> list[str]:
        """Return some reviews as they are written."""
        texts, _ = _read_texts(self._texts)
        return [texts[number] for number in reviews]

    def draw(self, count: int, n: int, seed: int) -> list[int]:
        """Return the numbers of `count` reviews with at least n tokens, drawn without replacement.

        They come in pairs of one positive and one negative review, in random order; entry k does not depend on `count`.
        """
        count = check_at_most(count, "count", len(self.labels), "the number of reviews there are")
        source = seeds.generator(seed, "reviews")
        order = source.permutation(len(self.labels)).tolist()
        positive_first = source.integers(2, size=len(order)).tolist()
        positive, negative = self._usable(order, count, n)
        pairs = zip(positive, negative, positive_first, strict=False)
        chosen = [review for plus, minus, first in pairs for review in ((plus, minus) if first else (minus, plus))]
        if len(chosen) < count:
            raise InputError(
                f"count must be at most {len(chosen)}, twice the smaller of {len(positive)} positive and "
                f"{len(negative)} negative reviews with at least n={n} tokens, got {count}: ask for fewer reviews or a "
                "smaller n"
            )
        return chosen[:count]

    def _usable(self, order: list[int], count: int, n: int) -> tuple[list[int], list[int]]:
        """Go through the reviews until `count` are long enough; return the positive and the negative ones."""
        usable: dict[int, list[int]] = {1: [], -1: []}
        seen: set[bytes] = set()
        blocks = range(0, len(order), _BLOCK)
        try:
            for start in tqdm(blocks, desc="reviews", unit_scale=_BLOCK, delay=2, disable=None, leave=False):
                if 2 * min(map(len, usable.values())) >= count:
                    break
                block = order[start : start + _BLOCK]
                for review, tokens in zip(block, self.tokens(block), strict=True):
                    opening = tokens[: max(n, _REPEAT)].tobytes()
                    if len(tokens) >= n and opening not in seen:
                        seen.add(opening)
                        usable[int(self.labels[review])].append(review)
        finally:
            self._save()  # also when interrupted, so that no review is tokenized twice
        return usable[1], usable[-1]

    def _save(self) -> None:
        """Write all known tokens to the cache, if there are new ones."""
        if len(self._tokens) == self._saved:
            return
        stream = io.BytesIO()
        np.savez(
            stream,
            labels=self.labels,
            reviews=np.fromiter(self._tokens, dtype=np.int32),
            lengths=np.array([len(tokens) for tokens in self._tokens.values()], dtype=np.int32),
            tokens=np.concatenate(list(self._tokens.values())),
        )
        cache.save(self._path, stream.getvalue())
        self._saved = len(self._tokens)

    def _load(self) -> NDArray[np.int8]:
        """Read the tokens that are cached, and return the labels."""
        payload = cache.load(self._path)
        if payload is None:
            return _read_texts(self._texts)[1]
        with np.load(io.BytesIO(payload), allow_pickle=False) as arrays:
            pieces = np.split(arrays["tokens"].astype(self._dtype, copy=False), np.cumsum(arrays["lengths"])[:-1])
            self._tokens.update(zip(arrays["reviews"].tolist(), pieces, strict=True))
            labels: NDArray[np.int8] = arrays["labels"]
            return labels


def load_reviews(tokenizer: ReviewTokenizer) -> Reviews:
    """Return the installed reviews as a tokenizer splits them; equal tokenizers share one object per process."""
    return _open(offline.locate(offline.REVIEWS), tokenizer, cache.cache_folder())


@lru_cache(maxsize=4)
def _open(texts: Path, tokenizer: ReviewTokenizer, folder: Path) -> Reviews:
    return Reviews(texts, tokenizer, folder)


def short_reviews() -> tuple[list[str], NDArray[np.int8]]:
    """Return the short reviews of the package, most of one sentence, and their labels -1 or +1."""
    return _read_texts(offline.locate(offline.REVIEWS), "rotten_tomatoes")


@lru_cache(maxsize=2)
def _read_texts(path: Path, source: str = "imdb") -> tuple[list[str], NDArray[np.int8]]:
    """Verify and read the reviews of one source: texts, and labels -1 or +1."""
    offline.verify(offline.REVIEWS, path)
    with path.open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["source"] == source]
    labels = [1 if row["label"] == "1" else -1 for row in rows]
    return [row["text"] for row in rows], np.array(labels, dtype=np.int8)
