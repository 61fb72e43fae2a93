"""The reviews as token numbers: tokenised when they are first asked for, kept on disk for the next time."""

import csv
import hashlib
import io
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wordsway.models import cache, configuration, encoder, files, offline, splitter
from wordsway.models.splitter import Splitter

_FORMAT = 2  # raise it when what is cached changes

Tokens = NDArray[np.unsignedinteger[Any]]


class Library:
    """All reviews with their labels. Asking for tokens changes its state: what was tokenised is remembered.

    Attributes
    ----------
    labels
        One for each review, in file order: -1 (against the film) or +1 (for it).

    Notes
    -----
    One file in the cache folder holds the labels and the tokens known so far; its name tells the reviews, tokenizer and
    number of positions that it belongs to. A process writes all that it knows, so of two at once the later one wins;
    what only the other knew is tokenised again when it is needed, at about 0.3 seconds for 500 reviews.
    """

    def __init__(self, texts: Path, rules: Splitter, folder: Path) -> None:
        self._texts = texts
        self._rules = rules
        self._dtype: type[np.unsignedinteger[Any]] = np.uint16 if rules.vocabulary <= 2**16 else np.uint32
        key = f"{_FORMAT} {offline.REVIEWS.sha256} {rules.digest} {rules.positions}"
        key = hashlib.sha256(key.encode()).hexdigest()
        self._path = folder / f"reviews-{key[:16]}.bin"
        self._tokens: dict[int, Tokens] = {}
        self._saved = 0
        self.labels = self._load()

    def tokens(self, reviews: Iterable[int]) -> list[Tokens]:
        """Return the tokens of some reviews, as far as the model has positions: what opens a text and the text."""
        asked = list(reviews)
        missing = [review for review in asked if review not in self._tokens]
        if missing:
            texts, _ = _read_texts(self._texts)
            openings = self._rules.openings([texts[review] for review in missing])
            for review, tokens in zip(missing, openings, strict=True):
                self._tokens[review] = np.array(tokens, dtype=self._dtype)
        return [self._tokens[review] for review in asked]

    def save(self) -> None:
        """Keep what is known on disk, if there is anything new."""
        if len(self._tokens) == self._saved:
            return
        reviews = np.fromiter(self._tokens, dtype=np.int32)
        lengths = np.array([len(tokens) for tokens in self._tokens.values()], dtype=np.int32)
        stream = io.BytesIO()
        tokens = np.concatenate(list(self._tokens.values()))
        np.savez(stream, labels=self.labels, reviews=reviews, lengths=lengths, tokens=tokens)
        cache.save(self._path, stream.getvalue())
        self._saved = len(self._tokens)

    def _load(self) -> NDArray[np.int8]:
        """Take over what is on disk, and return the labels."""
        payload = cache.load(self._path)
        if payload is None:
            return _read_texts(self._texts)[1]
        with np.load(io.BytesIO(payload), allow_pickle=False) as arrays:
            pieces = np.split(arrays["tokens"].astype(self._dtype, copy=False), np.cumsum(arrays["lengths"])[:-1])
            self._tokens.update(zip(arrays["reviews"].tolist(), pieces, strict=True))
            self._saved = len(self._tokens)
            labels: NDArray[np.int8] = arrays["labels"]
            return labels


def load_library(model: str | None = None) -> Library:
    """Return the library of the installed reviews as an encoder splits them; one for all callers in a process."""
    config = configuration.load_config(model)
    texts = offline.locate(offline.REVIEWS)
    tokenizer = files.locate(model, files.TOKENIZER)
    if not files.is_offline(model):
        encoder.load_bert_tokenizer(tokenizer, config.vocabulary)  # to refuse it now, also where all tokens are cached
    return _open(texts, splitter.from_file(tokenizer, config.vocabulary, config.positions), cache.cache_folder())


def split_library(rules: Splitter) -> Library:
    """Return the library of the installed reviews as any tokenizer splits them; one for all callers in a process."""
    return _open(offline.locate(offline.REVIEWS), rules, cache.cache_folder())


@lru_cache(maxsize=4)
def _open(texts: Path, rules: Splitter, folder: Path) -> Library:
    return Library(texts, rules, folder)


@lru_cache(maxsize=1)
def _read_texts(path: Path) -> tuple[list[str], NDArray[np.int8]]:
    """Verify and read the file of reviews: texts, and labels -1 or +1."""
    offline.verify(offline.REVIEWS, path)
    with path.open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["source"] == "imdb"]
    labels = [1 if row["label"] == "1" else -1 for row in rows]
    return [row["text"] for row in rows], np.array(labels, dtype=np.int8)
