"""Bad arguments of the packages at the base: one line that names what must hold, what was received and what to do."""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
import torch

from wordsway.activations import Activation, activation
from wordsway.checks import (
    as_array,
    as_context,
    as_contexts,
    check_at_most,
    check_choice,
    check_dtype,
    check_finite,
    check_index,
    check_positive,
    check_radius,
    check_readable,
    check_several,
    check_size,
    check_word,
)
from wordsway.contexts import gaussian_context, normalize, perturb
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
        ("long\n" * 50, "str"),
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


def _row(value: float, *shape: int) -> torch.Tensor:
    """Ones with one entry replaced, in the last column of row 2 of the last context."""
    X = torch.ones(*shape, dtype=torch.float64)
    X[..., 2, -1] = value
    return X


RULE = "a context is n words (rows) by d dimensions"
X = torch.ones(4, 3, dtype=torch.float64)
ZERO_ROW = torch.ones(5, 2, 4, 3)
ZERO_ROW[3, 1, 2] = 0

CONTEXTS: list[Case] = [
    *(
        (partial(as_context, torch.ones(shape)), f"{RULE}, got shape {shape}: give one matrix")
        for shape in ((), (3,), (2, 3, 4))
    ),
    (lambda: as_context(torch.ones(0, 3)), f"{RULE} with n, d >= 1, got shape (0, 3): give at least one word"),
    (lambda: as_context([[]]), f"{RULE} with n, d >= 1, got shape (1, 0): give at least one word"),
    *(
        (partial(as_context, values), f"a context must be float32 or float64, got {dtype}: ")
        for values, dtype in cast(
            Any,
            (
                (torch.ones(2, 2, dtype=torch.bool), "bool"),
                (torch.ones(2, 2, dtype=torch.bfloat16), "bfloat16"),
                (np.ones((2, 2), np.int32), "int32"),
                ([[1, 2], [3, 4]], "int64"),
                (np.ones((2, 2), np.complex64), "complex64"),
                (None, "NoneType"),
            ),
        )
    ),
    (lambda: as_context(_row(NAN, 5, 4)), "row 2 of the context has nan in column 3: every entry must be finite"),
    (lambda: as_context(_row(-math.inf, 5, 4)), "row 2 of the context has -inf in column 3: every entry must be"),
    (lambda: normalize(torch.ones(3)), f"{RULE}, got shape (3,): give a matrix, or several along leading dimensions"),
    (lambda: normalize(torch.ones(2, 0, 3)), f"{RULE} with n, d >= 1, got shape (2, 0, 3): give at least one word"),
    (lambda: normalize(_row(NAN, 1, 4, 2)), "row 2 of context 0 has nan in column 1: every entry must be finite"),
    (lambda: normalize(ZERO_ROW[3, 1]), "row 2 of the context is zero and cannot be rescaled: every row needs"),
    (lambda: normalize(ZERO_ROW[:, 1]), "row 2 of context 3 is zero and cannot be rescaled: "),
    (lambda: normalize(ZERO_ROW), "row 2 of context (3, 1) is zero and cannot be rescaled: "),
    (lambda: perturb(X, 0, torch.ones(2)), "delta must have shape (..., 3) for this word and context, got (2,)"),
    (lambda: perturb(X, 0, torch.tensor(1.0)), "delta must have shape (..., 3) for this word and context, got ()"),
    (lambda: perturb(X, [0, 1], torch.ones(5, 3, 3)), "delta must have shape (..., 2, 3) for this word and context"),
    (lambda: perturb(X, 0, [0.0, NAN, 0.0]), "delta must be finite, got nan or inf: "),
    (lambda: perturb(X, 0, [0, 1, 0]), "delta must be float32 or float64, got int64: convert it to float64 first"),
    (lambda: perturb(X, [1, 1], torch.ones(2, 3)), "words must be distinct, got 1 more than once: add up"),
    (lambda: perturb(X, [], torch.ones(0, 3)), "words must name at least one position, got none"),
    (lambda: perturb(X, [0, -1], torch.ones(2, 3)), "word must be 0..3, got -1: "),
    (lambda: gaussian_context(0, 3), "n must be an integer >= 1, got 0"),
    (lambda: gaussian_context(3, cast(Any, 2.5)), "d must be an integer >= 1, got 2.5"),
    (lambda: gaussian_context(3, 2, -1), "seed must be an integer with 0 <= seed < 2^63, got -1"),
    (lambda: gaussian_context(3, 2, 0, torch.float16), "dtype must be float32 or float64, got torch.float16: "),
    (lambda: gaussian_context(10**9, 10**6), "drawing a 1000000000 x 1000000 context needs 24.0 PB, but "),
]

SCALARS: list[Case] = [
    *(
        (partial(check_word, 4, word), f"word must be 0..3, got {got}: positions are integers counted from 0")
        for word, got in cast(
            Any,
            (
                (4, "4"),
                (-1, "-1"),
                (True, "True"),
                (np.True_, "True"),
                (torch.tensor(True), "True"),
                (np.float64(1.0), "1.0"),
                (torch.tensor(1.5), "1.5"),
                (None, "None"),
                ("x" * 50, "str"),
                ([1], "[1]"),
                (torch.tensor([1]), "Tensor of shape (1,)"),
                (np.array([[1]]), "ndarray of shape (1, 1)"),
            ),
        )
    ),
    *(
        (
            partial(check_radius, radius, 9),
            f"radius must be a finite number > 0, got {got}: leave it out for sqrt(d) = 3",
        )
        for radius, got in cast(
            Any,
            (
                (0, "0"),
                (-1.5, "-1.5"),
                (NAN, "nan"),
                (math.inf, "inf"),
                (True, "True"),
                ("2", "'2'"),
                (1j, "1j"),
                (10**400, "int"),
                ([2.0], "[2.0]"),
                (torch.ones(2), "Tensor of shape (2,)"),
            ),
        )
    ),
    (lambda: check_radius(1e-200, 9), "radius must be from 1e-150 to 1e+150, so that it can be squared, got 1e-200"),
    (lambda: check_positive("1", "norm"), "norm must be a number > 0, got '1'"),
    (lambda: check_size(2**63, "n"), f"n must be below 2^63, got {2**63}: choose a smaller one"),
    (lambda: check_size(10**5000, "n"), "n must be below 2^63, got int: choose a smaller one"),
    (lambda: check_at_most(9, "k", 8, "the heads"), "k must be at most 8, the heads, got 9: choose a smaller k"),
    (lambda: check_index(2, 2, "layer"), "layer must be from 0 to 1, got 2"),
    (lambda: check_several("ab", "losses"), "losses must be a sequence, got 'ab': put it in a list"),
    (lambda: check_choice("map", "rff", ["rf", "raf"]), "map must be one of rf, raf, got 'rff' (did you mean 'rf'?)"),
    (lambda: check_readable([[1.0]]), "a map reads a tensor (..., n, d), got list: use torch.as_tensor"),
    (lambda: check_readable(torch.ones(2)), "a map reads a tensor (..., n, d) of floats, got shape (2,) of float32"),
]


def cubic(**changes: Any) -> Activation:
    """A correct custom activation, x^3 / 3, with some parts replaced."""
    parts: dict[str, Any] = {
        "name": "cubic",
        "phi": lambda x: x**3 / 3,
        "derivative": lambda x: x**2,
        "curvature": lambda x: 2 * x,
        "lipschitz": math.inf,
        "parity": "odd",
    }
    return Activation(**(parts | changes))


KNOWN = "relu, tanh, gelu, softplus, cos, square, identity, sigmoid"
TANH = activation("tanh")

ACTIVATIONS: list[Case] = [
    (lambda: activation("rleu"), f"unknown activation 'rleu' (did you mean 'relu'?): known are {KNOWN}"),
    (lambda: activation("ReLU"), "unknown activation 'ReLU' (did you mean 'relu'?): "),
    (lambda: activation(""), f"unknown activation '': known are {KNOWN}"),
    (lambda: activation(cast(Any, 3)), f"activation must be one of {KNOWN}, or a custom Activation, got int"),
    (lambda: TANH.second_moment(-1.0), "variance must be a finite number >= 0, got -1.0"),
    (lambda: TANH.second_moment(NAN), "variance must be a finite number >= 0, got nan"),
    *(
        (partial(cubic, **changes), message)
        for changes, message in cast(
            Any,
            (
                ({"name": ""}, "name of an activation must be a word, got ''"),
                ({"parity": "none"}, "parity must be 'even', 'odd' or None, got 'none'"),
                ({"parity": "even"}, "parity of cubic must hold, got 'even' but phi is not: give None"),
                ({"lipschitz": 0.0}, "lipschitz must be a number > 0 or inf, got 0.0"),
                ({"lipschitz": NAN}, "lipschitz must be a number > 0 or inf, got nan"),
                ({"lipschitz": "1"}, "lipschitz must be a number > 0 or inf, got 1"),
                ({"lipschitz": 2.0}, "lipschitz of cubic must be max |phi'|, got 2.0 but |phi'| reaches 15.9997"),
                ({"beta": -1.0}, "beta must be a number > 0, got -1.0"),
                ({"phi": lambda x: x.double()}, "phi of cubic must keep shape and dtype, got torch.float64 of shape"),
                ({"derivative": lambda x: x.sum(-1)}, "derivative of cubic must keep shape and dtype, got torch.float"),
                ({"curvature": lambda x: x.log()}, "curvature of cubic must be finite on [-4, 4], got nan or inf"),
                ({"derivative": lambda x: -(x**2)}, "derivative of cubic must be the derivative of its phi, and is"),
            ),
        )
    ),
    (  # the second derivative that published code got wrong
        lambda: dataclasses.replace(TANH, curvature=lambda x: -2 * TANH(x)),
        "curvature of tanh must be the derivative of its derivative, and is not at ",
    ),
]


@pytest.mark.parametrize(("call", "message"), [*GAUSSIAN, *SEEDS, *CHECKS, *CONTEXTS, *SCALARS, *ACTIVATIONS])
def test_bad_arguments_are_refused_in_one_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as error:
        call()
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 160
