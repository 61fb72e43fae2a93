"""Bad arguments of the modules below the maps raise one line: what must hold, what was received and what to do."""

import dataclasses
import math
import operator
from typing import Any

import numpy as np
import pytest
import torch

from wordsway import checks
from wordsway.activations import Activation, activation
from wordsway.checks import check_seed
from wordsway.contexts import gaussian_context, normalize, perturb
from wordsway.errors import InputError
from wordsway.gaussian import DenseGaussian, LazyGaussian
from wordsway.seeds import derive, generator

NAN, INF = math.nan, math.inf
FLOATS = "must be float32 or float64, got"
RULE = "a context is n words (rows) by d dimensions"
X = torch.ones(4, 3, dtype=torch.float64)
WITH_NAN, WITH_ZERO_ROW = torch.ones(5, 2, 4, 3), torch.ones(5, 2, 4, 3)
WITH_NAN[3, 1, 2, 1], WITH_ZERO_ROW[3, 1, 2] = NAN, 0

NO_WORDS: list[tuple[Any, str]] = [
    (4, "4"),
    (-1, "-1"),
    (True, "True"),
    (None, "None"),
    ([1], "[1]"),
    ("x" * 50, "str"),
]
NO_WORDS += [(torch.tensor(True), "True"), (np.float64(1.0), "1.0"), (torch.tensor([1]), "Tensor of shape (1,)")]
NO_RADII: list[tuple[Any, str]] = [(0, "0"), (-1.5, "-1.5"), (NAN, "nan"), (INF, "inf"), (True, "True"), ("2", "'2'")]
NO_RADII += [(1j, "1j"), (10**400, "int"), ([2.0], "[2.0]"), (np.ones((2, 1)), "ndarray of shape (2, 1)")]

SCALARS: list[tuple[Any, Any, str]] = [
    *(
        (checks.check_word, (4, word), f"word must be 0..3, got {got}: positions are integers counted from 0, never")
        for word, got in NO_WORDS
    ),
    *(
        (checks.check_radius, (radius, 9), f"radius must be a finite number > 0, got {got}: leave it out for sqrt(d) =")
        for radius, got in NO_RADII
    ),
    (checks.check_radius, (1e-200, 9), "radius must be from 1e-150 to 1e+150, so that it can be squared, got 1e-200"),
    *(
        (use, (seed, *purpose), f"seed must be an integer with 0 <= seed < 2^63, got {got}")
        for use, purpose in [(check_seed, ()), (derive, ("a",)), (generator, ("a",))]
        for seed, got in [(-1, "-1"), (2**63, f"{2**63}"), (1.0, "1.0"), (True, "True"), ("long\n" * 50, "str")]
    ),
    (checks.check_positive, ("1", "norm"), "norm must be a number > 0, got '1'"),
    (checks.check_size, (0, "depth"), "depth must be an integer >= 1, got 0"),
    (checks.check_size, (2**63, "n"), f"n must be below 2^63, got {2**63}: choose a smaller one"),
    (checks.check_size, (10**5000, "n"), "n must be below 2^63, got int: choose a smaller one"),
    (checks.check_at_most, (9, "k", 8, "the heads"), "k must be at most 8, the heads, got 9: choose a smaller k"),
    (checks.check_index, (2, 2, "layer"), "layer must be from 0 to 1, got 2"),
    (checks.check_several, ("ab", "losses"), "losses must be a sequence, got 'ab': put it in a list"),
    (checks.check_choice, ("map", "rff", ["rf", "raf"]), "map must be one of rf, raf, got 'rff' (did you mean 'rf'?)"),
    (checks.check_dtype, (torch.int8,), f"dtype {FLOATS} torch.int8: "),
]

ARRAYS: list[tuple[Any, Any, str]] = [
    (checks.as_array, ([[1.0], [1.0, 2.0]], "x"), "x must be rectangular numbers, got rows of different lengths"),
    (checks.as_array, (["a"], "x"), "x must be real numbers, got <U1: "),
    (checks.as_array, (None, "x"), "x must be real numbers, got NoneType: "),
    (checks.as_array, (np.ones(2, object), "x"), "x must be real numbers, got object: "),
    (checks.as_array, ([1j], "x"), "x must be real numbers, got complex128: take the real part first"),
    (checks.as_array, (torch.eye(2).to_sparse(), "x"), "x must be a dense tensor, got layout torch.sparse_coo: "),
    (checks.as_array, (np.ones(2, np.longdouble), "x"), "x must be real numbers, got "),
    (checks.as_array, ([1, 2], "x", (3,)), "x must have the shape (3,), got (2,)"),
    (checks.as_array, ([[1.0]], "x", ("N", 2)), "x must have the shape (N, 2), got (1, 1)"),
    (checks.as_array, ([], "x", ("m",)), "x must have the shape (m,), got (0,)"),
    (checks.as_array, ([1.0, NAN], "x"), "x must be finite, got nan or inf: drop or replace those entries"),
    (checks.check_readable, ([[1.0]],), "a map reads a tensor (..., n, d), got list: use torch.as_tensor"),
    (checks.check_readable, (torch.ones(2),), "a map reads a tensor (..., n, d) of floats, got shape (2,) of float32"),
    (checks.as_contexts, ([],), "contexts must have the shape (count, n, d) with count, n, d >= 1, got none"),
    (checks.as_contexts, ([X, X[:3], X[:2]],), "all contexts must have the same n x d, got 4 x 3 and 3 x 3"),
    (checks.as_contexts, (X,), "contexts must have the shape (count, n, d) with count, n, d >= 1, got (4, 3)"),
    (checks.as_contexts, (X[None].half(),), f"contexts {FLOATS} float16: "),
]

CONTEXTS: list[tuple[Any, Any, str]] = [
    *(
        (checks.as_context, (torch.ones(shape),), f"{RULE}, got shape {shape}: give one matrix")
        for shape in ((), (3,), (2, 3, 4))
    ),
    (checks.as_context, (torch.ones(0, 3),), f"{RULE} with n, d >= 1, got shape (0, 3): give at least one word"),
    (checks.as_context, ([[]],), f"{RULE} with n, d >= 1, got shape (1, 0): give at least one word"),
    (checks.as_context, (torch.ones(2, 2, dtype=torch.bool),), f"a context {FLOATS} bool: convert it to float64 first"),
    (checks.as_context, (torch.ones(2, 2, dtype=torch.bfloat16),), f"a context {FLOATS} bfloat16: "),
    (checks.as_context, ([[1, 2], [3, 4]],), f"a context {FLOATS} int64: "),
    (checks.as_context, (np.ones((2, 2), np.complex64),), f"a context {FLOATS} complex64: take the real part first"),
    (checks.as_context, (None,), f"a context {FLOATS} NoneType: "),
    (checks.as_context, (WITH_NAN[3, 1],), "row 2 of the context has nan in column 1: every entry must be finite"),
    (normalize, (torch.ones(3),), f"{RULE}, got shape (3,): give a matrix, or several along leading dimensions"),
    (normalize, (torch.ones(2, 0, 3),), f"{RULE} with n, d >= 1, got shape (2, 0, 3): give at least one word"),
    (normalize, (WITH_NAN[:, 1],), "row 2 of context 3 has nan in column 1: every entry must be finite"),
    (normalize, (WITH_ZERO_ROW[3, 1],), "row 2 of the context is zero and cannot be rescaled: every row needs"),
    (normalize, (WITH_ZERO_ROW,), "row 2 of context (3, 1) is zero and cannot be rescaled: "),
    (perturb, (X, 0, torch.ones(2)), "delta must have shape (..., 3) for this word and context, got (2,)"),
    (perturb, (X, [0, 1], torch.ones(5, 3, 3)), "delta must have shape (..., 2, 3) for this word and context, got"),
    (perturb, (X, 0, [0.0, NAN, 0.0]), "delta must be finite, got nan or inf: "),
    (perturb, (X, 0, [0, 1, 0]), f"delta {FLOATS} int64: convert it to float64 first"),
    (perturb, (X, [1, 1], torch.ones(2, 3)), "words must be distinct, got 1 more than once: add up its perturbations"),
    (perturb, (X, [], torch.ones(0, 3)), "words must name at least one position, got none"),
    (perturb, (X, [0, -1], torch.ones(2, 3)), "word must be 0..3, got -1: "),
    (gaussian_context, (0, 3), "n must be an integer >= 1, got 0"),
    (gaussian_context, (3, 2.5), "d must be an integer >= 1, got 2.5"),
    (gaussian_context, (3, 2, -1), "seed must be an integer with 0 <= seed < 2^63, got -1"),
    (gaussian_context, (3, 2, 0, torch.float16), f"dtype {FLOATS} torch.float16: "),
    (gaussian_context, (10**9, 10**6), "drawing a 1000000000 x 1000000 context needs 24.0 PB, but "),
]

GAUSSIAN: list[tuple[Any, Any, str]] = [
    *(
        (kind, arguments, message)
        for kind in (DenseGaussian, LazyGaussian)
        for arguments, message in [
            ((0, 3), "rows must be an integer >= 1, got 0"),
            ((4, 2.5), "cols must be an integer >= 1, got 2.5"),
            ((4, 3, 0.0), "scale must be a number > 0, got 0.0"),
            ((4, 3, NAN), "scale must be a number > 0, got nan"),
            ((4, 3, "wide"), "scale must be a number > 0, got 'wide'"),
            ((4, 3, 1.0, -1), "seed must be an integer with 0 <= seed < 2^63, got -1"),
            ((4, 3, 1.0, 0, torch.float16), f"dtype {FLOATS} torch.float16: "),
        ]
    ),
    (DenseGaussian.of, (torch.ones(3),), "a matrix must have the shape (rows, cols), got (3,)"),
    (DenseGaussian.of, (torch.ones(0, 3),), "a matrix must have the shape (rows, cols), got (0, 3)"),
    (DenseGaussian.of, (torch.tensor([[1.0, NAN]]),), "a matrix must be finite, got nan or inf: "),
    (DenseGaussian.of, (torch.ones(2, 2, device="meta"),), "a matrix must be on the cpu, got meta: "),
    (operator.matmul, (LazyGaussian(4, 3), X.to("meta")[0]), "inputs must be on the cpu, got meta: "),
]


def _cubic(**changes: Any) -> Activation:
    """A correct custom activation, x^3 / 3, with some parts replaced."""
    right: dict[str, Any] = {"phi": lambda x: x**3 / 3, "derivative": lambda x: x**2, "curvature": lambda x: 2 * x}
    return Activation(**({"name": "cubic", **right, "lipschitz": INF, "parity": "odd"} | changes))


KNOWN = "relu, tanh, gelu, softplus, cos, square, identity, sigmoid"
TANH = activation("tanh")
PARTS: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name of an activation must be a word, got ''"),
    ({"parity": "none"}, "parity must be 'even', 'odd' or None, got 'none'"),
    ({"parity": "even"}, "parity of cubic must hold, got 'even' but phi is not: give None"),
    ({"lipschitz": 0.0}, "lipschitz must be a number > 0 or inf, got 0.0"),
    ({"lipschitz": "1"}, "lipschitz must be a number > 0 or inf, got 1"),
    ({"lipschitz": 2.0}, "lipschitz of cubic must be max |phi'|, got 2.0 but |phi'| reaches 15.9997"),
    ({"beta": -1.0}, "beta must be a number > 0, got -1.0"),
    ({"phi": lambda x: x.double()}, "phi of cubic must keep shape and dtype, got torch.float64 of shape (8, 8) from"),
    ({"derivative": lambda x: x.sum(-1)}, "derivative of cubic must keep shape and dtype, got torch.float32 of shape"),
    ({"curvature": lambda x: x.log()}, "curvature of cubic must be finite on [-4, 4], got nan or inf"),
    ({"derivative": lambda x: -(x**2)}, "derivative of cubic must be the derivative of its phi, and is not at "),
]
ACTIVATIONS: list[tuple[Any, Any, str]] = [
    (activation, ("ReLU",), f"unknown activation 'ReLU' (did you mean 'relu'?): known are {KNOWN}"),
    (activation, ("",), f"unknown activation '': known are {KNOWN}"),
    (activation, (3,), f"activation must be one of {KNOWN}, or a custom Activation, got int"),
    (TANH.second_moment, (-1.0,), "variance must be a finite number >= 0, got -1.0"),
    (TANH.second_moment, (NAN,), "variance must be a finite number >= 0, got nan"),
    *((lambda changes: _cubic(**changes), (changes,), message) for changes, message in PARTS),
    (  # the second derivative that published code got wrong
        lambda wrong: dataclasses.replace(TANH, curvature=wrong),
        (lambda x: -2 * TANH(x),),
        "curvature of tanh must be the derivative of its derivative, and is not at ",
    ),
]


@pytest.mark.parametrize(
    ("call", "arguments", "message"), [*SCALARS, *ARRAYS, *CONTEXTS, *GAUSSIAN, *ACTIVATIONS], ids=lambda part: ""
)
def test_bad_arguments_raise_one_line(call: Any, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InputError) as error:
        call(*arguments)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 160
