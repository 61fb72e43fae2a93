"""The page on mean-field attention: its numbers and its formula are right."""

import math

import pytest
import torch


def test_means_over_the_past_have_the_norms_it_tells() -> None:
    norms = []
    for n in (2, 2000):
        means = torch.ones(n, n, dtype=torch.float64).tril() / torch.arange(1, n + 1)[:, None]
        norms.append(float(torch.linalg.matrix_norm(means, ord=2)))
    assert norms[0] == pytest.approx(1.14, abs=0.005)
    assert 1.7 < norms[1] < 2


@pytest.mark.parametrize("g", [0.1, 1.0, 8.0])
def test_its_formula_of_two_points_is_that_of_the_library(g: float) -> None:
    from wordsway.smoothness.field import two_point
    from wordsway.smoothness.heads import Direction

    t = (math.sqrt(9 * g**2 + 4 * (1 + g)) - 3 * g) / 2
    direction = Direction(torch.tensor([1.0, 0.0], dtype=torch.float64), -g / 2, g / 2, "opposite")
    told = math.exp(g / 2) * math.sqrt(t) * (1 + t + g) / (1 + t) ** 2
    assert two_point([direction], torch.eye(2, dtype=torch.float64), 1.0) == pytest.approx(told, rel=1e-12)
