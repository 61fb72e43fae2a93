"""Seeds: own generators, one for each purpose, the same every time."""

from typing import Any

import numpy as np
import pytest
import torch

from wordsway import RandomAttention, gaussian_context
from wordsway.seeds import check_seed, derive, generator


@pytest.mark.parametrize("seed", [0, 7, 2**32, 2**63 - 1, np.int64(5), np.uint8(3), torch.tensor(4)])
def test_seeds_are_natural_numbers_of_any_kind(seed: Any) -> None:
    assert check_seed(seed) == int(seed)
    assert type(check_seed(seed)) is int


def test_a_purpose_has_a_seed_of_its_own() -> None:
    derived = {derive(seed, purpose) for seed in range(300) for purpose in ("starts", "layer 1", "layer 2", "context")}
    assert len(derived) == 1200
    assert all(0 <= seed < 2**63 for seed in derived)
    assert derive(12, "3") != derive(1, "23")  # the seed and the purpose do not run into each other


def test_derived_seeds_never_change() -> None:
    """Results of earlier versions are reproduced only while these stay."""
    assert derive(0, "context") == 2565831334389315390
    assert derive(7, "layer 1") == 2788031454862120558


def test_generators_repeat_and_do_not_share_their_numbers() -> None:
    one, two, other = (torch.from_numpy(generator(3, purpose).random(500)) for purpose in ("a", "a", "b"))
    assert torch.equal(one, two)
    assert not set(one.tolist()) & set(other.tolist())


def test_a_context_and_a_weight_of_one_seed_are_unrelated() -> None:
    context, weight = gaussian_context(40, 40, seed=5), RandomAttention(40, seed=5).weight
    correlation = float((context.flatten() * weight.flatten()).sum() / (context.norm() * weight.norm()))
    assert abs(correlation) < 4.5 / 40


def test_the_global_generator_is_neither_read_nor_set() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = torch.from_numpy(generator(3, "a").random(5))
    torch.manual_seed(2)
    assert torch.equal(torch.from_numpy(generator(3, "a").random(5)), first)
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state)
