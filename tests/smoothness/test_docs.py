"""The pages on smoothness and mean-field attention: their tables, numbers and formulas."""

import math
import re
from pathlib import Path

import pytest
import torch

from wordsway import RandomAttention, lipschitz_bounds
from wordsway.smoothness import Ellipsoid
from wordsway.smoothness.heads import Direction
from wordsway.smoothness.mean_field_search import two_point

PAGE = Path(__file__).resolve().parents[2] / "docs" / "smoothness.md"


def test_every_bound_has_a_row() -> None:
    rows = re.findall(r"^\| `([a-z ]+)` \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert rows == [bound.name for bound in lipschitz_bounds(RandomAttention(3), 4, 1.0, Ellipsoid.ball(3, 1.0)).all]


def test_means_over_the_past_have_the_stated_norms() -> None:
    norms = []
    for n in (2, 300):
        means = torch.ones(n, n, dtype=torch.float64).tril() / torch.arange(1, n + 1)[:, None]
        norms.append(float(torch.linalg.matrix_norm(means, ord=2)))
    assert norms[0] == pytest.approx(1.14, abs=0.005)
    assert 1.65 < norms[1] < 2


@pytest.mark.parametrize("g", [0.1, 1.0, 8.0])
def test_the_formula_of_two_points_is_that_of_the_library(g: float) -> None:
    t = (math.sqrt(9 * g**2 + 4 * (1 + g)) - 3 * g) / 2
    direction = Direction(torch.tensor([1.0, 0.0], dtype=torch.float64), -g / 2, g / 2, "opposite")
    expected = math.exp(g / 2) * math.sqrt(t) * (1 + t + g) / (1 + t) ** 2
    assert two_point([direction], torch.eye(2, dtype=torch.float64), 1.0) == pytest.approx(expected, rel=1e-12)
