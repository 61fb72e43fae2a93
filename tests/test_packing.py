"""Products on oneDNN's layout of a matrix."""

import pytest
import torch

from wordsway import packing
from wordsway.packing import FixedMatrix


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [(3,), (2, 5), (600,)])
def test_products_are_those_of_the_matrix(dtype: torch.dtype, rows: tuple[int, ...]) -> None:
    draw = torch.Generator().manual_seed(0)
    weight = torch.randn(9, 7, generator=draw, dtype=dtype)
    matrix = FixedMatrix(weight)
    forward, back = (torch.randn(*rows, size, generator=draw, dtype=dtype) for size in (7, 9))
    torch.testing.assert_close(matrix.product(forward), forward @ weight.mT)
    torch.testing.assert_close(matrix.adjoint(back), back @ weight)


def test_only_small_matrices_in_single_precision_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[torch.Tensor] = []
    monkeypatch.setattr(packing, "pack", copied.append)
    FixedMatrix(torch.ones(4, 4, dtype=torch.float64))
    assert not copied
    FixedMatrix(torch.ones(4, 4))
    assert len(copied) == 2 * packing.available()
    copied.clear()
    monkeypatch.setattr(packing, "_MOST", 10)
    FixedMatrix(torch.ones(4, 4))
    assert not copied
