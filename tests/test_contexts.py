"""Contexts are checked, normalised, perturbed and drawn as the definitions say."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from wordsway.checks import as_context, check_radius, check_size, check_word, check_words
from wordsway.contexts import gaussian_context, normalize, perturb
from wordsway.errors import InputError
from wordsway.seeds import check_seed

FLOATS = [torch.float32, torch.float64]


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def bits(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().numpy().tobytes()


def message(call: Any, *args: Any) -> str:
    with pytest.raises(InputError) as caught:
        call(*args)
    text = str(caught.value)
    assert "\n" not in text
    return text


@st.composite
def matrices(draw_one: st.DrawFn) -> Tensor:
    shape = draw_one(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    entry = st.floats(1e-30, 1e30).flatmap(lambda size: st.sampled_from([size, -size]))
    return torch.from_numpy(draw_one(hnp.arrays(np.float64, shape, elements=entry)))


class TestAsContext:
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_a_tensor_is_returned_itself(self, dtype: torch.dtype) -> None:
        X = draw(3, 2, dtype=dtype).requires_grad_()
        assert as_context(X) is X

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_an_array_keeps_its_dtype_and_values(self, dtype: Any) -> None:
        array = draw(3, 2).numpy().astype(dtype)
        context = as_context(array)
        assert context.dtype == (torch.float32 if dtype is np.float32 else torch.float64)
        assert np.array_equal(context.numpy(), array)

    def test_unusual_arrays_are_taken_by_value(self) -> None:
        array = draw(4, 3).numpy()
        read_only = array.copy()
        read_only.flags.writeable = False
        cases: list[Any] = [
            array[::-1],
            np.asfortranarray(array),
            array.astype(">f8"),
            read_only,
            array.view(np.matrix),
        ]
        for unusual in cases:
            assert np.array_equal(as_context(unusual).numpy(), np.asarray(unusual))

    def test_nested_lists_are_float64(self) -> None:
        mixed: Any = [[1.0, 2], [3, 4]]
        context = as_context(mixed)
        assert context.dtype == torch.float64
        assert context.tolist() == [[1, 2], [3, 4]]
        assert as_context(((0.5,),)).shape == (1, 1)

    @pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4)])
    def test_another_rank(self, shape: tuple[int, ...]) -> None:
        text = message(as_context, torch.ones(shape))
        assert text == f"a context is n words (rows) by d dimensions, got shape {shape}: give one matrix"

    @pytest.mark.parametrize("X", [torch.ones(0, 3), np.ones((3, 0)), [[]]])
    def test_empty(self, X: Any) -> None:
        shape = tuple(np.shape(X))
        assert message(as_context, X) == (
            f"a context is n words (rows) by d dimensions with n, d >= 1, got shape {shape}: give at least one word"
        )

    @pytest.mark.parametrize(
        ("X", "dtype"),
        [
            (torch.ones(2, 2, dtype=torch.int64), "int64"),
            (torch.ones(2, 2, dtype=torch.bool), "bool"),
            (torch.ones(2, 2, dtype=torch.float16), "float16"),
            (torch.ones(2, 2, dtype=torch.bfloat16), "bfloat16"),
            (np.ones((2, 2), np.float16), "float16"),
            (np.ones((2, 2), np.int32), "int32"),
            ([[1, 2], [3, 4]], "int64"),
        ],
    )
    def test_another_dtype(self, X: Any, dtype: str) -> None:
        assert message(as_context, X) == (
            f"a context must be float32 or float64, got {dtype}: convert it to float64 first"
        )

    @pytest.mark.parametrize("X", [torch.ones(2, 2, dtype=torch.complex64), np.ones((2, 2), np.complex64)])
    def test_complex(self, X: Any) -> None:
        expected = "a context must be float32 or float64, got complex64: take the real part first"
        assert message(as_context, X) == expected

    def test_ragged(self) -> None:
        assert message(as_context, [[1.0], [1.0, 2.0]]) == (
            "a context must be rectangular numbers, got rows of different lengths or kinds"
        )

    def test_sparse(self) -> None:
        text = message(as_context, torch.ones(2, 2).to_sparse())
        assert text == "a context must be a dense tensor, got layout torch.sparse_coo: use .to_dense()"

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_non_finite_names_the_first_row_and_column(self, value: float) -> None:
        X = draw(5, 4).requires_grad_()
        with torch.no_grad():
            X[2, 3] = X[4, 0] = value
        expected = f"row 2 of the context has {value} in column 3: every entry must be finite, drop or replace it"
        assert message(as_context, X) == expected


class TestNormalize:
    @settings(deadline=None)
    @given(matrices())
    def test_rows_have_norm_sqrt_d_and_keep_their_direction(self, X: Tensor) -> None:
        before, unit = X.clone(), normalize(X)
        n, d = X.shape
        assert torch.allclose(unit.norm(dim=-1), torch.full((n,), math.sqrt(d), dtype=X.dtype), rtol=1e-14, atol=0)
        assert torch.equal(unit.sign(), X.sign())
        again = normalize(unit)
        assert torch.allclose(again, unit, rtol=1e-14, atol=0)
        assert bits(X) == bits(before)
        length = X.norm(dim=-1, keepdim=True)  # the plain formula, where it neither overflows nor vanishes
        assert torch.allclose(unit, X / length * math.sqrt(d), rtol=1e-13, atol=0)

    @settings(deadline=None)
    @given(matrices(), st.floats(1e-3, 1e3))
    def test_scale_of_the_input_does_not_matter(self, X: Tensor, scale: float) -> None:
        assert torch.allclose(normalize(scale * X), normalize(X), rtol=1e-13, atol=0)

    @pytest.mark.parametrize("size", [1e300, 1.7e308, 1e-300, 5e-324])
    def test_no_overflow_and_no_underflow(self, size: float) -> None:
        X = torch.tensor([[1.0, -1.0, 1.0], [0.0, 1.0, 0.0]], dtype=torch.float64) * size
        expected = torch.tensor([[1.0, -1.0, 1.0], [0.0, math.sqrt(3), 0.0]], dtype=torch.float64)
        assert torch.allclose(normalize(X), expected, rtol=1e-15, atol=0)

    def test_float32(self) -> None:
        unit = normalize(draw(6, 4, dtype=torch.float32) * 3e37)
        assert unit.dtype == torch.float32
        assert torch.allclose(unit.norm(dim=-1), torch.full((6,), 2.0), rtol=1e-6, atol=0)

    def test_batched_is_unbatched(self) -> None:
        X = draw(2, 3, 4, 5)
        unit = normalize(X)
        for i in range(2):
            for j in range(3):
                assert torch.allclose(unit[i, j], normalize(X[i, j]), rtol=1e-15, atol=0)

    def test_arrays_and_lists(self) -> None:
        assert torch.equal(normalize(np.array([[3.0, 4.0]])), normalize([[3.0, 4.0]]))

    def test_gradient(self) -> None:
        assert torch.autograd.gradcheck(normalize, draw(3, 4).requires_grad_())

    def test_zero_row(self) -> None:
        X = draw(5, 2, 4, 3)
        X[3, 1, 2] = 0
        tail = "is zero and cannot be rescaled: every row needs a direction, drop or replace it"
        assert message(normalize, X[3, 1]) == f"row 2 of the context {tail}"
        assert message(normalize, X[:, 1]) == f"row 2 of context 3 {tail}"
        assert message(normalize, X) == f"row 2 of context (3, 1) {tail}"

    def test_non_finite_row(self) -> None:
        X = draw(3, 4, 2)
        X[1, 2, 0] = math.nan
        tail = "has nan in column 0: every entry must be finite, drop or replace it"
        assert message(normalize, X[1]) == f"row 2 of the context {tail}"
        assert message(normalize, X) == f"row 2 of context 1 {tail}"

    def test_rank_and_size(self) -> None:
        rule = "a context is n words (rows) by d dimensions"
        hint = "give a matrix, or several along leading dimensions"
        assert message(normalize, torch.ones(3)) == f"{rule}, got shape (3,): {hint}"
        assert message(normalize, torch.ones(2, 0, 3)) == (
            f"{rule} with n, d >= 1, got shape (2, 0, 3): give at least one word"
        )


class TestPerturb:
    @settings(deadline=None)
    @given(matrices(), st.data())
    def test_only_the_words_named_change(self, X: Tensor, data: st.DataObject) -> None:
        n, d = X.shape
        words = data.draw(st.lists(st.integers(0, n - 1), min_size=1, unique=True))
        lead = data.draw(st.lists(st.integers(0, 3), max_size=2))
        before, delta = X.clone(), draw(*lead, len(words), d)
        moved = perturb(X, words, delta)
        assert moved.shape == (*lead, n, d)
        assert bits(X) == bits(before)
        rest = [word for word in range(n) if word not in words]
        assert bits(moved[..., rest, :]) == bits(X[rest].expand(*lead, len(rest), d))
        assert torch.equal(moved[..., words, :], X[words] + delta)

    @settings(deadline=None)
    @given(matrices(), st.data())
    def test_zero_perturbation_gives_the_same_bytes(self, X: Tensor, data: st.DataObject) -> None:
        word = data.draw(st.integers(0, len(X) - 1))
        moved = perturb(X, word, torch.zeros(X.shape[1], dtype=X.dtype))
        assert bits(moved) == bits(X)
        moved *= 2  # a new tensor, not a view on the context
        assert not torch.equal(moved, X)

    def test_one_word_is_the_formula(self) -> None:
        X, delta = draw(4, 3), draw(5, 2, 3, seed=1)
        unit = torch.zeros(4, dtype=torch.float64)
        unit[2] = 1
        moved = perturb(X, 2, delta)
        assert torch.equal(moved, X + unit[:, None] * delta[..., None, :])
        assert torch.equal(moved, perturb(X, [2], delta[..., None, :]))

    @pytest.mark.parametrize("words", [(2, 0), range(0, 3, 2), np.array([2, 0]), torch.tensor([2, 0])])
    def test_kinds_of_sequences(self, words: Any) -> None:
        X, delta = draw(3, 2), draw(2, 2, seed=1)
        assert torch.equal(perturb(X, words, delta), perturb(X, [int(word) for word in words], delta))

    def test_delta_follows_the_context(self) -> None:
        X = draw(3, 2, dtype=torch.float32)
        for delta in (draw(2), draw(2).numpy(), [0.5, 1.0]):
            moved = perturb(X, 1, delta)
            assert moved.dtype == torch.float32
            assert torch.equal(moved[1], X[1] + torch.as_tensor(delta).float())

    def test_gradients(self) -> None:
        X, delta = draw(3, 2).requires_grad_(), draw(4, 2, 2, seed=1).requires_grad_()
        assert torch.autograd.gradcheck(lambda X, delta: perturb(X, [2, 0], delta), (X, delta))

    @pytest.mark.parametrize(
        ("word", "shape", "text"),
        [
            (0, (2,), "delta must have shape (..., 3) for this word and context, got (2,)"),
            (0, (), "delta must have shape (..., 3) for this word and context, got ()"),
            ([0, 1], (3,), "delta must have shape (..., 2, 3) for this word and context, got (3,)"),
            ([0, 1], (5, 3, 3), "delta must have shape (..., 2, 3) for this word and context, got (5, 3, 3)"),
        ],
    )
    def test_wrong_shape(self, word: Any, shape: tuple[int, ...], text: str) -> None:
        assert message(perturb, draw(4, 3), word, torch.zeros(shape)) == text

    def test_bad_delta(self) -> None:
        X = draw(4, 3)
        assert message(perturb, X, 0, [0.0, math.nan, 0.0]) == (
            "delta must be finite, got nan or inf: check what it was computed from"
        )
        assert message(perturb, X, 0, [0, 1, 0]) == (
            "delta must be float32 or float64, got int64: convert it to float64 first"
        )

    def test_bad_words(self) -> None:
        X, delta = draw(4, 3), torch.zeros(2, 3)
        assert message(perturb, X, [1, 1], delta) == (
            "words must be distinct, got 1 more than once: add up its perturbations yourself"
        )
        assert message(perturb, X, [], delta) == "words must name at least one position, got none"
        assert message(perturb, X, 4, delta).startswith("word must be 0..3, got 4: ")
        assert message(perturb, X, [0, -1], delta).startswith("word must be 0..3, got -1: ")
        assert message(perturb, X, "love", delta).startswith("word must be 0..3, got 'love': ")


class TestChecks:
    @pytest.mark.parametrize("word", [3, np.int32(3), np.array(3), torch.tensor(3), torch.tensor(3, dtype=torch.uint8)])
    def test_word(self, word: Any) -> None:
        position = check_word(4, word)
        assert position == 3
        assert type(position) is int

    @pytest.mark.parametrize(
        ("word", "got"),
        [
            (4, "4"),
            (-1, "-1"),
            (True, "True"),
            (np.True_, "True"),
            (torch.tensor(True), "True"),
            (1.0, "1.0"),
            (np.float64(1.0), "1.0"),
            (torch.tensor(1.5), "1.5"),
            (None, "None"),
            ("x" * 50, "str"),
            ([1], "[1]"),
            (torch.tensor([1]), "Tensor of shape (1,)"),
            (np.array([[1]]), "ndarray of shape (1, 1)"),
        ],
    )
    def test_bad_word(self, word: Any, got: str) -> None:
        assert message(check_word, 4, word) == (
            f"word must be 0..3, got {got}: positions are integers counted from 0, never from the end"
        )

    def test_words(self) -> None:
        assert check_words(9, [np.int64(8), torch.tensor(0), 3]) == [8, 0, 3]

    @pytest.mark.parametrize("radius", [2, 2.0, np.float32(2), torch.tensor(2.0), np.array(2)])
    def test_radius(self, radius: Any) -> None:
        value = check_radius(radius, 9)
        assert value == 2
        assert type(value) is float

    def test_default_radius(self) -> None:
        assert check_radius(None, 384) == math.sqrt(384)

    @pytest.mark.parametrize(
        ("radius", "got"),
        [
            (0, "0"),
            (-1.5, "-1.5"),
            (math.nan, "nan"),
            (math.inf, "inf"),
            (True, "True"),
            ("2", "'2'"),
            (1j, "1j"),
            (10**400, "int"),
            ([2.0], "[2.0]"),
            (torch.ones(2), "Tensor of shape (2,)"),
        ],
    )
    def test_bad_radius(self, radius: Any, got: str) -> None:
        expected = f"radius must be a finite number > 0, got {got}: leave it out for sqrt(d) = 3"
        assert message(check_radius, radius, 9) == expected

    def test_sizes_and_seeds(self) -> None:
        assert check_size(np.int64(5), "k") == 5
        assert message(check_size, 0, "depth") == "depth must be an integer >= 1, got 0"
        assert check_size(2**63 - 1, "n") == 2**63 - 1
        assert message(check_size, 2**63, "n") == f"n must be below 2^63, got {2**63}: choose a smaller one"
        assert message(check_size, 10**5000, "n") == "n must be below 2^63, got int: choose a smaller one"
        assert message(check_size, 2.0, "k") == "k must be an integer >= 1, got 2.0"
        assert check_seed(2**63 - 1) == 2**63 - 1
        for seed in (-1, 2**63, True, 0.5, None):
            expected = f"seed must be an integer with 0 <= seed < 2^63, got {seed}"
            assert message(check_seed, seed) == expected


class TestGaussianContext:
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_rows_have_norm_sqrt_d(self, dtype: torch.dtype) -> None:
        X = gaussian_context(7, 5, seed=3, dtype=dtype)
        assert X.dtype == dtype
        assert X.shape == (7, 5)
        assert torch.allclose(X.norm(dim=-1), torch.full((7,), math.sqrt(5), dtype=dtype), rtol=1e-6, atol=0)

    def test_same_seed_same_bytes_and_no_global_state(self) -> None:
        state = torch.get_rng_state()
        X = gaussian_context(4, 3, seed=5)
        assert bits(X) == bits(gaussian_context(4, 3, seed=np.int64(5)))
        assert bits(X) != bits(gaussian_context(4, 3, seed=6))
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.equal(X.float(), gaussian_context(4, 3, seed=5, dtype=torch.float32))

    def test_directions_are_uniform(self) -> None:
        X = gaussian_context(20_000, 3)
        assert X.mean(0).abs().max() < 4 / math.sqrt(20_000)
        assert torch.allclose(X.T @ X / 20_000, torch.eye(3, dtype=X.dtype), atol=0.04)

    def test_one_dimension_and_one_word(self) -> None:
        assert set(gaussian_context(50, 1).flatten().tolist()) == {-1.0, 1.0}
        assert gaussian_context(1, 1).shape == (1, 1)

    def test_bad_sizes(self) -> None:
        assert message(gaussian_context, 0, 3) == "n must be an integer >= 1, got 0"
        assert message(gaussian_context, 3, 2.5) == "d must be an integer >= 1, got 2.5"
        assert message(gaussian_context, 3, 2, -1).startswith("seed must be an integer with 0 <= seed < 2^63, got -1")
        expected = "dtype must be float32 or float64, got torch.float16: convert it to float64 first"
        assert message(gaussian_context, 3, 2, 0, torch.float16) == expected

    def test_a_size_that_cannot_fit(self) -> None:
        text = message(gaussian_context, 10**9, 10**6)
        assert text.startswith("drawing a 1000000000 x 1000000 context needs 24.0 PB, but ")
        assert text.endswith(" are free: use a smaller n or d")
