"""The largest row after a norm, against climbing from many starts and against cases with a known value."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from wordsway.models import load, norm_radius


def _climb(a: Tensor, b: Tensor) -> float:
    """max |a o z + b| over |z| = sqrt(d), from below: repeated steps to the point where the grad is steepest."""
    d = len(a)
    eye = torch.eye(d, dtype=torch.float64)
    random = torch.randn(300, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    z = torch.cat([eye, -eye, random])
    for _ in range(400):
        z = a * (a * z + b)
        length = z.norm(dim=1, keepdim=True)
        z = math.sqrt(d) * torch.where(length > 0, z / length, eye[0])
    return float((a * z + b).norm(dim=1).max())


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), d=st.integers(1, 9), size=st.sampled_from([0.0, 1e-3, 0.1, 1.0, 10.0]))
def test_no_row_is_longer_and_some_row_is_as_long(seed: int, d: int, size: float) -> None:
    random = torch.Generator().manual_seed(seed)
    a = torch.randn(d, generator=random, dtype=torch.float64)
    b = size * torch.randn(d, generator=random, dtype=torch.float64)
    found, radius = _climb(a, b), norm_radius(a, b)
    assert found <= radius * (1 + 1e-12)
    assert radius <= found * (1 + 1e-3)  # climbing is slow where two factors nearly agree


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([2.0, 1.0, 0.5], [0.0, 0.1, 0.1]),  # hard: nothing is added where the factor is largest
        ([2.0, 1.0, 0.5], [0.0, 30.0, 2.0]),  # nothing is added there, yet so much elsewhere that it does not matter
        ([2.0, 1.0, 0.5], [1e-9, 0.1, 0.1]),  # nearly hard
        ([2.0, 1.0, 0.5], [1e-170, 0.1, 0.1]),
        ([2.0, -2.0, 0.5], [0.0, 0.0, 3.0]),  # hard, twice
        ([2.0, -2.0, 2.0], [1.0, 2.0, -1.0]),
        ([1.0, 0.0, 0.0], [0.0, 1.0, 5.0]),
        ([-0.3], [0.7]),
    ],
)
def test_hard_cases(a: list[float], b: list[float]) -> None:
    weight, bias = torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64)
    assert norm_radius(weight, bias) == pytest.approx(_climb(weight, bias), rel=1e-9)


def test_known_values() -> None:
    assert norm_radius(torch.tensor([1.0, -3.0, 2.0])) == pytest.approx(3 * math.sqrt(3))
    assert norm_radius(torch.ones(4), torch.ones(4)) == pytest.approx(4.0)
    assert norm_radius(torch.zeros(2), torch.tensor([3.0, 4.0])) == pytest.approx(5.0)
    hard = norm_radius(torch.tensor([2.0, 1.0]), torch.tensor([0.0, 1.0]))
    assert hard == pytest.approx(math.sqrt(8 + 1 + 1 / 3))  # z = (sqrt(17)/3, 1/3)


def test_half_precision_and_gradients_are_no_hindrance() -> None:
    weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]).half())
    assert norm_radius(weight, weight) == pytest.approx(norm_radius(weight.double(), weight.double()))


def test_the_inputs_of_a_layer_are_in_its_ellipsoid() -> None:
    minilm = load("minilm")
    words = minilm.ellipsoid(3)
    X = minilm.layer_inputs(minilm.review_tokens(1, 12), 3)[0].double()
    z = torch.linalg.lstsq(words.matrix, (X - words.centre).mT, driver="gelsd").solution
    torch.testing.assert_close(words.matrix @ z, (X - words.centre).mT, rtol=0, atol=1e-5)
    assert float(z.norm(dim=0).max()) <= words.radius * (1 + 1e-5)
