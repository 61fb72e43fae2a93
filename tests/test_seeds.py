"""Generators: one per seed and purpose, reproducible, unrelated to each other and to the global ones."""

from typing import Any

import numpy as np
import pytest
import torch

from wordsway import RandomAttention, gaussian_context
from wordsway.checks import check_seed
from wordsway.seeds import derive, generator, normal, signs, untouched


@pytest.mark.parametrize("seed", [0, 7, 2**32, 2**63 - 1, np.int64(5), np.uint8(3), torch.tensor(4)])
def test_seeds_are_integers_of_any_library(seed: Any) -> None:
    assert check_seed(seed) == int(seed)
    assert type(check_seed(seed)) is int


def test_every_purpose_has_its_own_seed() -> None:
    derived = {derive(seed, purpose) for seed in range(300) for purpose in ("starts", "layer 1", "layer 2", "context")}
    assert len(derived) == 1200
    assert all(0 <= seed < 2**63 for seed in derived)
    assert derive(12, "3") != derive(1, "23")  # seed and purpose are kept apart


def test_seeds_and_numbers_never_change() -> None:
    """Results of earlier versions are reproduced only while these stay."""
    assert (derive(0, "context"), derive(7, "layer 1")) == (2565831334389315390, 2788031454862120558)
    assert normal(generator(0, "context"), 2).tolist() == [-1.232332960864938, -1.0109289150674985]
    assert signs(generator(0, "labels"), 8).tolist() == [-1.0, -1.0, 1.0, -1.0, -1.0, 1.0, 1.0, -1.0]


def test_generators_repeat_and_do_not_share_their_numbers() -> None:
    keys = [(3, "a"), (3, "b"), (4, "a"), (3 + 2**32, "a"), (3 + 2**62, "a")]
    draws = [generator(*key).random(500).tolist() for key in keys]
    assert draws[0] == generator(3, "a").random(500).tolist()
    assert len({number for draw in draws for number in draw}) == 500 * len(keys)


def test_numbers_do_not_depend_on_how_many_are_drawn_nor_on_the_dtype() -> None:
    for draw in (normal, signs):
        assert torch.equal(draw(generator(1, "a"), 100)[:7], draw(generator(1, "a"), 7))
    rounded = normal(generator(1, "a"), (3, 2), torch.float32, torch.device("cpu"))
    assert torch.equal(rounded, normal(generator(1, "a"), [3, 2]).float())


def test_a_context_and_a_weight_of_one_seed_are_unrelated() -> None:
    context, weight = gaussian_context(40, 40, seed=5), RandomAttention(40, seed=5).weight
    correlation = float((context.flatten() * weight.flatten()).sum() / (context.norm() * weight.norm()))
    assert abs(correlation) < 4.5 / 40


def test_the_global_generator_is_neither_read_nor_set() -> None:
    states = []
    draws = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        draws.append(normal(generator(3, "a"), 5).tolist())
        with untouched(7):
            draws[-1].append(float(torch.rand(())))
        with pytest.raises(TypeError), untouched():
            float(torch.rand(3).tolist())  # type: ignore[arg-type]
        states.append(torch.equal(torch.get_rng_state(), state))
    assert states == [True, True]
    assert draws[0] == draws[1]
