"""One thread inside a block, whatever was set before, and the settings restored afterwards."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.linalg  # noqa: F401
import torch
from scipy.special import expit
from threadpoolctl import threadpool_info, threadpool_limits

from wordsway import RandomAttention, gaussian_context, one_word_generalization, respond, response_sensitivity
from wordsway.maps import Score
from wordsway.maps.catalogue import map_named
from wordsway.maps.scores import Array
from wordsway.threads import one_thread


def _settings() -> tuple[int, ...]:
    """Numbers of threads of torch and of every library that is loaded, in this thread."""
    pools = sorted(threadpool_info(), key=lambda pool: str(pool["filepath"]))
    return torch.get_num_threads(), *(pool["num_threads"] for pool in pools)


@pytest.fixture(autouse=True)
def many() -> Iterator[None]:
    """Three threads for everything, in this thread and in those that start meanwhile."""
    before = torch.get_num_threads()
    with threadpool_limits(limits=3):
        torch.set_num_threads(3)
        yield
    torch.set_num_threads(before)


def test_a_block_has_one_thread_and_restores_the_settings() -> None:
    before = _settings()
    assert set(before) == {3}
    assert len(before) >= 4  # torch, its OpenMP, and the BLAS of NumPy and of SciPy
    with one_thread():
        assert set(_settings()) == {1}
        with one_thread():
            assert set(_settings()) == {1}
        assert set(_settings()) == {1}
    assert _settings() == before


def test_settings_are_restored_after_an_error() -> None:
    before = _settings()
    with pytest.raises(ValueError, match="inside"), one_thread():
        raise ValueError("inside")
    assert _settings() == before


def test_a_function_can_be_decorated() -> None:
    assert set(one_thread()(_settings)()) == {1}
    assert set(_settings()) == {3}


def test_threads_that_overlap_leave_no_limit_behind() -> None:
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()

    def first() -> tuple[int, ...]:
        with one_thread():
            first_in.set()
            second_in.wait(10)
        first_out.set()
        return _settings()

    def second() -> tuple[int, ...]:
        first_in.wait(10)  # a thread that has not used torch yet gets the limit of the first one
        with one_thread():
            second_in.set()
            first_out.wait(10)
            assert set(_settings()) == {1}  # still limited when the first one has left
        return _settings()

    with ThreadPoolExecutor(1) as pool:
        fresh = pool.submit(_settings).result()  # OpenMP starts with its own default in every thread
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.submit(first), pool.submit(second)
        assert (one.result()[0], other.result()[0], fresh[0]) == (3, 3, 3)
    assert set(_settings()) == {3}
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(_settings).result() == fresh


def test_many_threads_at_once_are_all_limited_and_all_restored() -> None:
    def alternate(_: int) -> set[int]:
        seen: set[int] = set()
        for _ in range(50):
            with one_thread():
                seen.update(_settings()[:1])
                np.ones((8, 8)) @ np.ones((8, 8))
            assert torch.get_num_threads() == 3
        return seen

    with ThreadPoolExecutor(8) as pool:
        assert set.union(*pool.map(alternate, range(16))) == {1}
    assert set(_settings()) == {3}


def test_entering_takes_less_than_a_tenth_of_a_millisecond() -> None:
    def seconds() -> float:
        start = time.perf_counter()
        for _ in range(100):
            with one_thread():
                pass
        return (time.perf_counter() - start) / 100

    assert min(seconds() for _ in range(5)) < 1e-4


@pytest.mark.parametrize("name", ["rf", "drf", "raf"])
def test_eight_threads_at_once_get_the_numbers_of_one(name: str) -> None:
    def measure(seed: int) -> float:
        response = map_named(name).respond(gaussian_context(12, 8, seed=seed), 0, seed=seed)
        return response_sensitivity(response, 0, ceiling=None, seed=seed).value

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(measure, range(8)))
    assert together == [measure(seed) for seed in range(8)]


def test_small_attention_is_computed_on_one_thread() -> None:
    seen: set[int] = set()

    def gain(scores: torch.Tensor) -> torch.Tensor:
        seen.add(torch.get_num_threads())
        return torch.sigmoid(scores)

    def array_gain(scores: Array) -> Array:
        seen.update(_settings())
        return np.asarray(expit(scores))

    score = Score("counted", gain, array_gain, lambda s: expit(s) * (1 - expit(s)))
    phi, X = RandomAttention(4, score), gaussian_context(6, 4)
    phi(X)
    response = respond(phi, X, 0)
    response.ceiling(1.0)
    response_sensitivity(response, 0)
    one_word_generalization(phi, torch.stack([X, -X]), [1, -1], 2 * X, 1.0)
    assert seen == {1}
    assert torch.get_num_threads() == 3
