"""Sets of words that may replace a word of a text: declared by a short name, so that every result can name its set."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wordsway.checks import describe
from wordsway.errors import InputError, nearest
from wordsway.models.outputs import wide
from wordsway.models.tokenizer import Tokenizer
from wordsway.models.words import Text, Word
from wordsway.seeds import generator

if TYPE_CHECKING:
    from wordsway.models.model import Model

NAMES = ("near:30", "vocabulary", "mask", "delete")
_NEAR = re.compile(r"near:([1-9][0-9]{0,5})")
_JOINTS = re.compile("['\u2019-]")  # inside words of letters
_KEPT = 100_000  # words whose neighbours, or tokens, are kept, at most: about 100 MB
_SMALL = 2**27  # bytes of a table of embeddings that is kept
_RULE = "near:K, vocabulary, mask, delete or the path of a file"


@dataclass(frozen=True)
class Candidates:
    """A declared set of replacements.

    Attributes
    ----------
    name : str
        As it was declared, such as "near:30".
    about : str
        What it is, for people.
    of : callable
        The replacements of a word, in a fixed order, without the word itself; "" deletes it.
    """

    name: str
    about: str
    of: Callable[[Word], list[str]]


def candidates_named(model: Model, text: Text, declared: str) -> Candidates:
    """Return the set of replacements that a short name declares, for the words of a text.

    Parameters
    ----------
    model : Model
    text : Text
    declared : str
        ``"near:K"``, the K words of the vocabulary with the nearest embeddings; ``"vocabulary"``, all its words of
        letters; ``"mask"``, the mask of the model; ``"delete"``, nothing; or the path of a file in which each line
        lists words that may replace each other, separated by commas. In a file without commas all words may.

    Notes
    -----
    Replacements from the vocabulary are written as the word is: in lower case, in capitals, or with a capital first.
    """
    if not isinstance(declared, str):
        raise InputError(f"candidates must be {_RULE}, got {describe(declared)}")
    if match := _NEAR.fullmatch(declared):
        count = int(match[1])
        return Candidates(declared, f"the {count} nearest words of the vocabulary", _near(model, text, count))
    if declared == "vocabulary":
        words = _vocabulary(model.texts)
        about = "all words of the vocabulary"
        return Candidates(declared, about, lambda word: words.written(words.fitting(word.text), word.text))
    if declared == "mask":
        mask = model.texts.mask
        if mask is None:
            raise InputError(f"mask needs a model with a mask token, got {model.name}: use delete instead")
        return Candidates(declared, f"the mask token {mask}", lambda word: [mask])
    if declared == "delete":
        alone = len(text.scored) == 1  # without it there would be no text
        return Candidates(declared, "deletion of the word", lambda word: [] if alone else [""])
    groups = _read_groups(declared)
    return Candidates(
        declared, f"the words that {Path(declared).name} lists together", lambda word: _group(groups, word)
    )


class _Words:
    """The entries of a vocabulary that are words of letters: their tokens, and how they are written."""

    def __init__(self, surfaces: Mapping[str, int], cased: bool) -> None:
        self.surfaces, self.tokens, self.cased = list(surfaces), list(surfaces.values()), cased
        self._place = {one: place for place, one in enumerate(surfaces)}
        self._fitting: dict[tuple[str, bool, bool], NDArray[np.intp]] = {}

    def fitting(self, word: str) -> NDArray[np.intp]:
        """The places of the words that can replace a word, in their order, without that of the word itself.

        A word in ASCII is replaced by words in ASCII, one of several letters by words of several letters, and what has
        no letter, such as a comma, by nothing.
        """
        if not any(letter.isalpha() for letter in word):
            return np.empty(0, np.intp)
        kind = (_case(word) if self.cased else "", word.isascii(), len(word) > 1)
        if kind not in self._fitting:
            self._fitting[kind] = np.flatnonzero([self._fits(one, *kind) for one in self.surfaces])
        own = self._place.get(word if self.cased else word.lower(), -1)
        places = self._fitting[kind]
        return np.compress(places != own, places)

    def written(self, places: NDArray[np.intp], word: str) -> list[str]:
        """These words, written as `word` is: a vocabulary without capitals has all of them in lower case."""
        write = str if self.cased else _CASES[_case(word)]
        return [write(self.surfaces[place]) for place in places]

    @staticmethod
    def _fits(surface: str, case: str, ascii_only: bool, several: bool) -> bool:
        same_case = not case or _case(surface) == case
        return same_case and (surface.isascii() or not ascii_only) and (len(surface) > 1 or not several)


@lru_cache(maxsize=4)
def _vocabulary(tokenizer: Tokenizer) -> _Words:
    """Decode the vocabulary once per process: about 0.1 s for 30,000 tokens."""
    backend, special = tokenizer.backend, tokenizer.special
    numbers = sorted(set(backend.get_vocab().values()) - set(special))
    words = {
        number: written
        for number, written in zip(numbers, backend.decode_batch([[number] for number in numbers]), strict=True)
        if all(part.isalpha() for part in _JOINTS.split(written.strip()))
    }
    # inside a text a word follows a blank: where tokens have it, those without are parts of words
    spaced = {number: written for number, written in words.items() if written[:1].isspace()}
    surfaces = {written.strip(): number for number, written in (spaced or words).items()}
    cased = backend.encode("Film").ids != backend.encode("film").ids
    return _Words(surfaces, cased)


class _Neighbours:
    """The nearest words of words, kept while the embeddings stay as they are: texts share most of their words."""

    def __init__(self, model: Model, weight: Tensor) -> None:
        self.words = _vocabulary(model.texts)
        self._weight, self._version = weakref.ref(weight), weight._version  # torch counts every change in place
        self._table: tuple[Tensor, Tensor] | None = None
        self._found: dict[tuple[tuple[int, ...], str, int], list[str]] = {}

    def of(self, model: Model, text: Text, word: Word, count: int) -> list[str]:
        """The nearest words of a word; those of the whole text are found together."""
        key = (_ids(text, word), word.text, count)
        if key not in self._found:
            self._search(model, text, count)
        return self._found[key]

    def holds(self, weight: Tensor) -> bool:
        return self._weight() is weight and self._version == weight._version and len(self._found) < _KEPT

    def _search(self, model: Model, text: Text, count: int) -> None:
        table, squares = self._embeddings(model)
        missing = [word for word in text.words if (_ids(text, word), word.text, count) not in self._found]
        own = torch.stack([wide(model.embedded(_ids(text, word))).mean(0) for word in missing])
        distances = (squares - 2 * own @ table.mT).cpu().numpy()  # W v
        for word, row in zip(missing, distances, strict=True):
            places = self.words.fitting(word.text)
            order = np.argsort(row[places], kind="stable")[:count]  # equal distances by the place in the vocabulary
            self._found[_ids(text, word), word.text, count] = self.words.written(places[order], word.text)

    def _embeddings(self, model: Model) -> tuple[Tensor, Tensor]:
        """Embeddings of the words, (v, e), and their squared lengths; kept where they are small."""
        if self._table is not None:
            return self._table
        table = wide(model.embedded(self.words.tokens))
        found = table, (table * table).sum(1)
        if table.nbytes <= _SMALL:
            self._table = found
        return found


def _ids(text: Text, word: Word) -> tuple[int, ...]:
    return tuple(text.ids[token] for token in word.tokens)


_NEIGHBOURS: weakref.WeakKeyDictionary[Model, _Neighbours] = weakref.WeakKeyDictionary()


def _near(model: Model, text: Text, count: int) -> Callable[[Word], list[str]]:
    weight = next(model.network.get_input_embeddings().parameters())
    known = _NEIGHBOURS.get(model)
    if known is None or not known.holds(weight):
        known = _NEIGHBOURS[model] = _Neighbours(model, weight)
    return lambda word: known.of(model, text, word, count)


@dataclass(frozen=True)
class RandomWords:
    """Words of the vocabulary in a random order, in lower case: the same for every word of a text.

    They are written in the case of the word that they replace, which they are not.
    """

    words: tuple[str, ...]

    def written(self, word: str, start: int, stop: int) -> list[str]:
        """The words from `start` to `stop` of the order, in the place of a word; beyond the last one, none."""
        own = word.lower()
        others = [one for one in self.words[: stop + 1] if one != own]
        return [_CASES[_case(word)](one) for one in others[start:stop]]

    def written_one(self, word: str, place: int) -> str:
        """One word in the place of another."""
        return _CASES[_case(word)](self.words[place])


@lru_cache(maxsize=4)
def _random_words(tokenizer: Tokenizer, seed: int) -> RandomWords:
    words = sorted(one for one in _vocabulary(tokenizer).surfaces if len(one) > 1 and one == one.lower())
    ascii_words = [one for one in words if one.isascii()] or words
    order = generator(seed, "random words").permutation(len(ascii_words))
    return RandomWords(tuple(ascii_words[place] for place in order))


def random_words(model: Model, seed: int) -> RandomWords:
    """Return the words of letters in a model's vocabulary, in ASCII where there are some, in an order that is drawn."""
    pool = _random_words(model.texts, seed)
    if not pool.words:
        raise InputError(f"the vocabulary of {model.name} must have words of letters, got none: choose another model")
    return pool


def embeddings_of(model: Model, replacements: Sequence[str]) -> Tensor:
    """The mean embedding of the tokens of each replacement inside a text, (C, e); zero where there are none."""
    ids = _tokens_inside(model.texts, replacements)
    table = wide(model.embedded([token for one in ids for token in one]))
    owners = torch.tensor([place for place, one in enumerate(ids) for _ in one], device=table.device, dtype=torch.long)
    sums = table.new_zeros(len(ids), table.shape[1]).index_add(0, owners, table)
    counts = torch.tensor([max(len(one), 1) for one in ids], device=table.device)
    return sums / counts[:, None]


def _tokens_inside(tokenizer: Tokenizer, words: Sequence[str]) -> list[list[int]]:
    """The tokens of words inside a text: those of earlier calls are kept, 0.15 s for 20,000 of them."""
    known = _known_tokens(tokenizer)
    ids = {word: known.get(word) for word in words}
    missing = [word for word, one in ids.items() if one is None]
    encodings = tokenizer.backend.encode_batch_fast([f" {one}" for one in missing], add_special_tokens=False)
    ids |= {word: encoding.ids for word, encoding in zip(missing, encodings, strict=True)}
    if len(known) > _KEPT:
        known.clear()
    known.update({word: ids[word] for word in missing})
    return [one or [] for one in map(ids.__getitem__, words)]


@lru_cache(maxsize=4)
def _known_tokens(tokenizer: Tokenizer) -> dict[str, list[int] | None]:
    return {}


def _read_groups(path: str) -> list[list[str]]:
    try:
        lines = Path(path).expanduser().read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError, ValueError) as error:
        hint = nearest(path, NAMES)
        raise InputError(f"candidates must be {_RULE}, got {path!r}, which cannot be read{hint}") from error
    rows = [[part.strip() for part in line.split(",") if part.strip()] for line in lines]
    if all(len(row) <= 1 for row in rows):
        rows = [[row[0] for row in rows if row]]
    groups = [list(dict.fromkeys(row)) for row in rows if len(set(row)) > 1]
    if not groups:
        raise InputError(f"{path} must list two words at least that may replace each other, got none")
    return groups


def _group(groups: Sequence[Sequence[str]], word: Word) -> list[str]:
    own = word.text.casefold()
    shared = [group for group in groups if own in (one.casefold() for one in group)]
    return list(dict.fromkeys(one for group in shared for one in group if one.casefold() != own))


def _title(word: str) -> str:
    return word[:1].upper() + word[1:]


_CASES: Mapping[str, Callable[[str], str]] = {"lower": str, "title": _title, "upper": str.upper, "mixed": str}


def _case(word: str) -> str:
    """The case of a word: "lower", "upper", "title" or "mixed"; a single capital counts as a title."""
    if word == word.lower():
        return "lower"
    if word[:1].isupper() and word[1:] == word[1:].lower():
        return "title"
    return "upper" if word == word.upper() else "mixed"
