"""Lazy matrices have the law of stored Gaussian matrices, also when inputs depend on earlier outputs."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from wordsway.gaussian import DenseGaussian, GaussianMatrix, LazyGaussian
from wordsway.gaussian.base import draw_normal
from wordsway.seeds import generator, normal


def _normal(*shape: int, seed: int = 0) -> Tensor:
    return normal(generator(seed, "test"), shape)


def _same_law(one: Any, two: Any) -> bool:
    return bool(stats.ks_2samp(np.asarray(one), np.asarray(two)).pvalue > 1e-3)


def _entries_by_unit_vectors(matrix: LazyGaussian, seed: int) -> Tensor:
    """Compute rows and columns in random order until every entry is known."""
    rows, cols = matrix.shape
    entries = torch.full((rows, cols), math.nan, dtype=matrix.dtype)
    for number in generator(seed, "order").permutation(rows + cols).tolist():
        if not entries.isnan().any():
            break
        if number < rows:
            entries[number] = matrix.T @ torch.eye(rows, dtype=matrix.dtype)[number]
        else:
            entries[:, number - rows] = matrix @ torch.eye(cols, dtype=matrix.dtype)[number - rows]
    return entries


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_entries_are_independent_and_normal(dtype: torch.dtype) -> None:
    entries = _entries_by_unit_vectors(LazyGaussian(60, 50, scale=0.3, seed=5, dtype=dtype), seed=1).double() / 0.3
    assert stats.kstest(entries.numpy().ravel(), "norm").pvalue > 1e-3
    # Sums along rows, columns and random signs are normal too, which correlated entries would spoil.
    signs = _normal(60, 50, seed=2).sign()
    for sums in (entries.sum(1) / 50**0.5, entries.sum(0) / 60**0.5, (entries * signs).sum(1) / 50**0.5):
        assert stats.kstest(sums.numpy(), "norm").pvalue > 1e-3


def test_singular_values_have_the_law_of_a_dense_matrix() -> None:
    lazy, dense = [], []
    for seed in range(150):
        lazy.append(torch.linalg.svdvals(_entries_by_unit_vectors(LazyGaussian(12, 9, seed=seed), seed)))
        dense.append(torch.linalg.svdvals(DenseGaussian(12, 9, seed=seed + 10_000).dense()))
    for rank in (0, 4, 8):
        assert _same_law([values[rank] for values in lazy], [values[rank] for values in dense])


def test_adaptive_power_iteration_has_the_law_of_a_dense_matrix() -> None:
    def top(matrix: GaussianMatrix) -> float:
        q = _normal(30)
        for _ in range(8):
            y = matrix @ (q / q.norm())
            q = matrix.T @ (y / y.norm())
        return float(q.norm())

    lazy = [top(LazyGaussian(40, 30, seed=seed)) for seed in range(150)]
    dense = [top(DenseGaussian(40, 30, seed=seed + 10_000)) for seed in range(150)]
    assert _same_law(lazy, dense)


def _check_independent(table: Tensor) -> None:
    """Check that entries of many matrices, (draws, entries), are N(0, 1) and uncorrelated."""
    draws, size = table.shape
    assert stats.kstest(table.numpy().ravel(), "norm").pvalue > 1e-3
    scores = (table.mT @ table / draws - torch.eye(size)) * draws**0.5  # standard normal off the diagonal
    off = scores[~torch.eye(size, dtype=torch.bool)]
    assert float(off.abs().max()) < 4.5
    assert float((table.mean(0) * draws**0.5).abs().max()) < 4.5


def test_adaptive_inputs_leave_the_entries_independent() -> None:
    entries = []
    for seed in range(400):
        matrix = LazyGaussian(4, 3, seed=seed)
        vector = torch.ones(3, dtype=torch.float64)
        for _ in range(2):  # the next input depends on the outputs so far, not linearly
            vector = (matrix.T @ (matrix @ vector).sign()).abs().sqrt()
        entries.append(matrix.dense().ravel())
    _check_independent(torch.stack(entries))


def test_columns_and_products_drawn_together_leave_the_entries_independent() -> None:
    """Two columns and two products of a 3 x 6 matrix at once, then the rest of it by an input that depends on them."""
    inputs, entries = _normal(6, 2, seed=4), []
    for seed in range(400):
        matrix = LazyGaussian(3, 6, seed=seed)
        block, outputs = matrix.draw_together(1, 3, inputs)
        adaptive = matrix @ (matrix.T @ outputs[:, 0].sign()).abs().sqrt()
        whole = matrix.dense()
        torch.testing.assert_close(whole[:, 1:3], block.dense())
        torch.testing.assert_close(whole @ inputs, outputs)
        torch.testing.assert_close(whole @ (whole.mT @ outputs[:, 0].sign()).abs().sqrt(), adaptive)
        entries.append(whole.ravel())
    _check_independent(torch.stack(entries))


@pytest.mark.parametrize("case", ["repeated", "only in the columns", "too many", "known before"])
def test_what_cannot_be_drawn_together_is_drawn_in_turn(case: str) -> None:
    inputs = _normal(6, 5 if case == "too many" else 2, seed=4)
    if case == "repeated":
        inputs[:, 1] = 2 * inputs[:, 0]
    elif case == "only in the columns":
        inputs[3:] = inputs[0] = 0
    matrix, plain = LazyGaussian(3, 6, 0.5, seed=1), LazyGaussian(3, 6, 0.5, seed=1)
    if case == "known before":
        torch.testing.assert_close(matrix @ inputs[:, 0], plain @ inputs[:, 0])
    block, outputs = matrix.draw_together(1, 3, inputs)
    torch.testing.assert_close(block.dense(), plain.columns(1, 3).dense())
    torch.testing.assert_close(outputs, plain @ inputs)
    assert block.scale == 0.5


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_products_drawn_together_are_known_and_agree_with_the_transpose(dtype: torch.dtype) -> None:
    digits = 1e-12 if dtype == torch.float64 else 1e-4
    inputs = _normal(40, 7, seed=4).to(dtype)
    matrix = LazyGaussian(30, 40, seed=2, dtype=dtype)
    block, outputs = matrix.draw_together(10, 16, inputs)
    assert (block.dtype, outputs.dtype) == (dtype, dtype)
    assert matrix.known == (13, 0)
    torch.testing.assert_close(matrix @ inputs, outputs, rtol=digits, atol=digits)
    torch.testing.assert_close(matrix.columns(10, 16).dense(), block.dense(), rtol=digits, atol=digits)
    assert matrix.known == (13, 0)
    left = _normal(30, seed=5).to(dtype)
    torch.testing.assert_close((matrix.T @ left) @ inputs, left @ outputs, rtol=10 * digits, atol=10 * digits)


def test_norm_bound_of_a_lazy_matrix_fails_no_more_often_than_stated() -> None:
    bound = LazyGaussian(12, 9, scale=2.0).norm_bound(0.3)
    assert bound.value == pytest.approx(2 * (12**0.5 + 3 + math.sqrt(2 * math.log(1 / 0.3))), rel=1e-12)
    assert (bound.failure, bound.exact) == (0.3, False)
    norms = [float(torch.linalg.matrix_norm(LazyGaussian(12, 9, scale=2.0, seed=s).dense(), ord=2)) for s in range(200)]
    assert sum(norm > bound.value for norm in norms) <= 0.3 * 200
    assert max(norms) > 0.6 * bound.value  # the bound is not far too large
    assert LazyGaussian(12, 9).columns(2, 4).norm_bound(0.3).value < LazyGaussian(12, 9).norm_bound(0.3).value
    assert LazyGaussian(12, 9).norm_bound(1e-9).value > LazyGaussian(12, 9).norm_bound(1e-3).value


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_draws_are_normal_at_every_count(dtype: torch.dtype) -> None:
    source = generator(1, "test")
    for count in (1, 2, 15, 70_001):
        out = torch.full((count,), math.nan, dtype=dtype)
        draw_normal(out, 3.0, source)
        assert out.isfinite().all()
    scaled = out.double() / 3
    assert stats.kstest(scaled.numpy(), "norm").pvalue > 1e-3
    lags = [1, 2, 1 << 14, 1 << 15, 35_000]
    for lag in lags:  # of neighbours and across the blocks of float32
        assert abs(float((scaled[lag:] * scaled[:-lag]).mean())) < 4.5 / (70_001 - lag) ** 0.5


@pytest.mark.parametrize("kind", [DenseGaussian, LazyGaussian])
def test_a_matrix_shares_no_numbers_with_a_context_or_another_matrix(kind: Callable[..., GaussianMatrix]) -> None:
    seeds = [0, 1, 2, 3, 2**32, 2**32 + 1, 2**33, 2**63 - 1]  # seeds that agree in 32 bits differ too
    entries = torch.cat([kind(20, 10, seed=seed).dense().flatten() for seed in seeds])
    contexts = torch.cat([normal(generator(seed, "context"), 200) for seed in seeds])
    assert len({round(value, 10) for value in [*entries.tolist(), *contexts.tolist()]}) == 2 * 200 * len(seeds)
