"""Bad arguments of the packages at the base: one line that names what must hold, what was received and what to do."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
import torch

from wordsway.checks import as_array, as_contexts, check_dtype, check_finite
from wordsway.errors import InputError
from wordsway.gaussian import DenseGaussian, LazyGaussian
from wordsway.seeds import check_seed, derive, generator

Case = tuple[Callable[[], object], str]
NAN = math.nan


def _matrices(**arguments: Any) -> list[Callable[[], object]]:
    sizes: dict[str, Any] = {"rows": 4, "cols": 3}
    return [partial(kind, **(sizes | arguments)) for kind in (DenseGaussian, LazyGaussian)]


GAUSSIAN: list[Case] = [
    (call, message)
    for arguments, message in (
        ({"rows": 0}, "rows must be an integer >= 1, got 0"),
        ({"cols": -3}, "cols must be an integer >= 1, got -3"),
        ({"rows": 2.5}, "rows must be an integer >= 1, got 2.5"),
        ({"scale": 0.0}, "scale must be a number > 0, got 0.0"),
        ({"scale": NAN}, "scale must be a number > 0, got nan"),
        ({"scale": math.inf}, "scale must be a number > 0, got inf"),
        ({"scale": "wide"}, "scale must be a number > 0, got 'wide'"),
        ({"dtype": torch.float16}, "dtype must be float32 or float64, got torch.float16: "),
        ({"dtype": torch.complex128}, "dtype must be float32 or float64, got torch.complex128: "),
        ({"seed": 0.5}, "seed must be an integer with 0 <= seed < 2^63, got 0.5"),
        ({"seed": -1}, "seed must be an integer with 0 <= seed < 2^63, got -1"),
    )
    for call in _matrices(**arguments)
] + [
    (lambda: DenseGaussian.of(torch.ones(3)), "a matrix must have the shape (rows, cols), got (3,)"),
    (lambda: DenseGaussian.of(torch.ones(0, 3)), "a matrix must have the shape (rows, cols), got (0, 3)"),
    (lambda: DenseGaussian.of(torch.ones(2, 2) * 1j), "a matrix must be real numbers, got complex64: "),
    (lambda: DenseGaussian.of(torch.tensor([[1.0, NAN]])), "a matrix must be finite, got nan or inf: "),
    (lambda: DenseGaussian.of(torch.ones(2, 2, device="meta")), "a matrix must be on the cpu, got meta: "),
    (lambda: LazyGaussian(3, 2) @ torch.ones(2, device="meta").double(), "inputs must be on the cpu, got meta: "),
]

SEEDS: list[Case] = [
    (partial(use, seed), f"seed must be an integer with 0 <= seed < 2^63, got {got}")
    for seed, got in (
        (-1, "-1"),
        (2**63, "9223372036854775808"),
        (1.0, "1.0"),
        (True, "True"),
        (None, "None"),
        ([1], "[1]"),
        ("long\n" * 50, "'long"),
    )
    for use in cast(Any, (check_seed, partial(derive, purpose="a"), partial(generator, purpose="a")))
]

CHECKS: list[Case] = [
    (lambda: as_array([[1.0], [1.0, 2.0]], "x"), "x must be rectangular numbers, got rows of different lengths"),
    (lambda: as_array(["a"], "x"), "x must be real numbers, got <U1: "),
    (lambda: as_array(cast(Any, None), "x"), "x must be real numbers, got NoneType: "),
    (lambda: as_array(np.ones(2, object), "x"), "x must be real numbers, got object: "),
    (lambda: as_array([1j], "x"), "x must be real numbers, got complex128: take the real part first"),
    (lambda: as_array(torch.eye(2).to_sparse(), "x"), "x must be a dense tensor, got layout torch.sparse_coo: "),
    (lambda: as_array(np.ones(2, np.longdouble), "x"), "x must be real numbers, got "),
    (lambda: as_array([1, 2], "x", (3,)), "x must have the shape (3,), got (2,)"),
    (lambda: as_array([[1.0]], "x", ("N", 2)), "x must have the shape (N, 2), got (1, 1)"),
    (lambda: as_array([], "x", ("m",)), "x must have the shape (m,), got (0,)"),
    (lambda: as_array([1.0, NAN], "x"), "x must be finite, got nan or inf: "),
    (lambda: check_finite(torch.tensor([-math.inf]), "x"), "x must be finite, got nan or inf: "),
    (lambda: check_dtype(torch.int8), "dtype must be float32 or float64, got torch.int8: "),
    (lambda: as_contexts([]), "contexts must have the shape (count, n, d) with count, n, d >= 1, got none"),
    (
        lambda: as_contexts([torch.ones(2, 3), torch.ones(3, 3), torch.ones(4, 3)]),
        "all contexts must have the same n x d, got 2 x 3 and 3 x 3",
    ),
    (lambda: as_contexts(torch.ones(2, 3)), "contexts must have the shape (count, n, d)"),
    (lambda: as_contexts(torch.ones(1, 2, 3).half()), "contexts must be float32 or float64, got float16: "),
]


@pytest.mark.parametrize(("call", "message"), [*GAUSSIAN, *SEEDS, *CHECKS])
def test_bad_arguments_are_refused_in_one_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as error:
        call()
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 160
