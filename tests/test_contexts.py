"""Contexts are normalised, perturbed, drawn and read as defined."""

import math
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from wordsway import memory
from wordsway.checks import as_context, check_radius, check_size, check_word, check_words
from wordsway.contexts import gaussian_context, gaussian_samples, load_contexts, normalize, perturb
from wordsway.errors import InputError
from wordsway.seeds import generator, normal

FLOATS = [torch.float32, torch.float64]


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return normal(generator(seed, "test"), shape, dtype)


def bits(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().numpy().tobytes()


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

    def test_arrays_of_any_layout_are_accepted_in_their_dtype(self) -> None:
        array = draw(4, 3).numpy()
        read_only = array.copy()
        read_only.flags.writeable = False
        layouts: list[Any] = [array, array[::-1], np.asfortranarray(array), array.astype(">f8"), read_only]
        for given_array in [*layouts, array.view(np.matrix), array.astype(np.float32)]:
            context = as_context(given_array)
            assert context.dtype == (torch.float32 if given_array.dtype == np.float32 else torch.float64)
            assert np.array_equal(context.numpy(), np.asarray(given_array))

    def test_nested_lists_are_float64(self) -> None:
        mixed: Any = [[1.0, 2], [3, 4]]
        assert as_context(mixed).dtype == torch.float64
        assert as_context(mixed).tolist() == [[1, 2], [3, 4]]


class TestNormalize:
    @settings(deadline=None)
    @given(matrices(), st.floats(1e-3, 1e3))
    def test_rows_have_norm_sqrt_d_and_keep_their_direction(self, X: Tensor, scale: float) -> None:
        before, unit = X.clone(), normalize(X)
        n, d = X.shape
        assert torch.allclose(unit.norm(dim=-1), torch.full((n,), math.sqrt(d), dtype=X.dtype), rtol=1e-14, atol=0)
        assert torch.equal(unit.sign(), X.sign())
        assert bits(X) == bits(before)
        length = X.norm(dim=-1, keepdim=True)  # the plain formula, where it neither overflows nor vanishes
        assert torch.allclose(unit, X / length * math.sqrt(d), rtol=1e-13, atol=0)
        assert torch.allclose(normalize(unit), unit, rtol=1e-14, atol=0)
        assert torch.allclose(normalize(scale * X), unit, rtol=1e-13, atol=0)

    @pytest.mark.parametrize("size", [1e300, 1.7e308, 1e-300, 5e-324])
    def test_no_overflow_and_no_underflow(self, size: float) -> None:
        X = torch.tensor([[1.0, -1.0, 1.0], [0.0, 1.0, 0.0]], dtype=torch.float64) * size
        expected = torch.tensor([[1.0, -1.0, 1.0], [0.0, math.sqrt(3), 0.0]], dtype=torch.float64)
        assert torch.allclose(normalize(X), expected, rtol=1e-15, atol=0)

    def test_float32(self) -> None:
        unit = normalize(draw(6, 4, dtype=torch.float32) * 3e37)
        assert unit.dtype == torch.float32
        assert torch.allclose(unit.norm(dim=-1), torch.full((6,), 2.0), rtol=1e-6, atol=0)

    def test_batches_and_gradients(self) -> None:
        X = draw(2, 3, 4, 5)
        unit = normalize(X)
        for i, j in np.ndindex(2, 3):
            assert torch.allclose(unit[i, j], normalize(X[i, j]), rtol=1e-15, atol=0)
        assert torch.autograd.gradcheck(normalize, draw(3, 4).requires_grad_())


class TestPerturb:
    @settings(deadline=None)
    @given(matrices(), st.data())
    def test_only_the_given_words_change(self, X: Tensor, data: st.DataObject) -> None:
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

    def test_zero_perturbation_gives_the_same_bytes_in_a_new_tensor(self) -> None:
        X = draw(4, 3)
        moved = perturb(X, 2, torch.zeros(3, dtype=X.dtype))
        assert bits(moved) == bits(X)
        moved *= 2
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

    def test_delta_is_converted_to_the_dtype_of_the_context(self) -> None:
        X = draw(3, 2, dtype=torch.float32)
        for delta in (draw(2), draw(2).numpy(), [0.5, 1.0]):
            moved = perturb(X, 1, delta)
            assert moved.dtype == torch.float32
            assert torch.equal(moved[1], X[1] + torch.as_tensor(delta).float())

    def test_gradients(self) -> None:
        X, delta = draw(3, 2).requires_grad_(), draw(4, 2, 2, seed=1).requires_grad_()
        assert torch.autograd.gradcheck(lambda X, delta: perturb(X, [2, 0], delta), (X, delta))


@pytest.mark.parametrize("three", [3, np.int32(3), np.array(3), torch.tensor(3), torch.tensor(3, dtype=torch.uint8)])
def test_scalars_of_every_library_are_accepted(three: Any) -> None:
    for check, kind in ((check_word(4, three), int), (check_size(three, "k"), int), (check_radius(three, 9), float)):
        assert check == 3
        assert type(check) is kind
    assert check_words(9, [three, 0]) == [3, 0]
    assert check_radius(None, 384) == math.sqrt(384)


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
        assert torch.equal(X.float(), gaussian_context(4, 3, seed=5, dtype=torch.float32))
        assert torch.equal(torch.get_rng_state(), state)

    def test_directions_are_uniform(self) -> None:
        X = gaussian_context(20_000, 3)
        assert X.mean(0).abs().max() < 4 / math.sqrt(20_000)
        assert torch.allclose(X.T @ X / 20_000, torch.eye(3, dtype=X.dtype), atol=0.04)
        assert set(gaussian_context(50, 1).flatten().tolist()) == {-1.0, 1.0}

    def test_samples_do_not_depend_on_their_number_and_labels_alternate(self) -> None:
        few, many = gaussian_samples(3, 4, 2, seed=1), gaussian_samples(8, 4, 2, seed=1)
        for short, long in zip(few, many, strict=True):
            assert torch.equal(short, long[:3])
        assert many[1].sum() == 0
        assert torch.equal(many[1][1:], -many[1][:-1])


class TestLoadContexts:
    @pytest.mark.parametrize("shape", [(4, 3), (1, 1), (2, 4, 3)])
    @pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8"])
    @pytest.mark.parametrize("order", ["C", "F"])
    @pytest.mark.parametrize("version", [(1, 0), (3, 0)])
    def test_round_trip(self, tmp_path: Path, shape: Any, dtype: str, order: Any, version: Any) -> None:
        array = np.random.default_rng(0).standard_normal(shape).astype(dtype, order=order)
        with open(tmp_path / "X.npy", "wb") as file:
            np.lib.format.write_array(file, array, version=version)
        contexts = load_contexts(tmp_path / "X.npy")
        assert contexts.dtype == (torch.float32 if dtype.endswith("4") else torch.float64)
        assert contexts.is_contiguous()
        assert np.array_equal(contexts.numpy(), array.reshape(-1, *shape[-2:]))
        assert torch.equal(contexts, load_contexts(str(tmp_path / "X.npy")))

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (None, "No such file or directory"),
            (b"", "it is no complete .npy file of numbers: save one array of floats with numpy.save"),
            (b"1.0 2.0\n", "it is no complete .npy file"),
            (pickle.dumps([1.0]), "it is no complete .npy file"),
            (b"PK\x03\x04rest", "it is no complete .npy file"),
            (b"\x93NUMPY", "it is no complete .npy file"),
            (b"\x93NUMPY\x01\x00\x06\x00{'a':1", "it is no complete .npy file"),
            (np.array([[1.0, None]], object), "it is no complete .npy file of numbers"),
            (np.ones((2, 2), int), "its array must be float32 or float64, got int64: convert it"),
            (np.ones((2, 2), "c8"), "its array must be float32 or float64, got complex64: take the real part first"),
            (np.ones(3), "a context is n words (rows) by d dimensions, n, d >= 1, got shape (3,): save (n, d), or"),
            (np.ones((0, 2, 3)), "a context is n words (rows) by d dimensions, n, d >= 1, got shape (0, 2, 3): "),
            (np.array([[0.0, 1.0], [2.0, np.inf]]), "row 1 of the context has inf in column 1: every entry must be"),
            (np.array([[[0.0, 1.0]], [[np.nan, 1.0]]]), "row 0 of context 1 has nan in column 0: every entry must be"),
        ],
    )
    def test_bad_files_are_refused_in_one_line(self, tmp_path: Path, content: Any, reason: str) -> None:
        assert self.refused(tmp_path / "X.npy", content).startswith(reason)

    def test_folders_archives_and_truncated_files_are_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "X.npy"
        assert self.refused(tmp_path, None) == "Is a directory"
        with open(path, "wb") as file:
            np.savez(file, a=np.ones((2, 2)))
        assert self.refused(path, None).startswith("it is no complete .npy file")
        np.save(path, np.ones((4, 3)))
        os.truncate(path, path.stat().st_size - 8)
        assert self.refused(path, None).startswith("it is no complete .npy file")

    def test_arrays_that_do_not_fit_into_memory_are_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(memory, "available", lambda: 100)
        monkeypatch.setattr(memory, "SMALL", 0)
        assert self.refused(tmp_path / "X.npy", np.ones((4, 3))) == (
            "loading an array of shape (4, 3) needs 192 B, but 100 B are free: save fewer or smaller contexts"
        )

    def test_pickled_objects_are_not_run(self, tmp_path: Path) -> None:
        target = tmp_path / "ran"

        class Harm:
            def __reduce__(self) -> Any:
                return (Path.touch, (target,))

        self.refused(tmp_path / "X.npy", np.array([[Harm()]], object))
        self.refused(tmp_path / "Y.npy", pickle.dumps(Harm()))
        assert not target.exists()

    @staticmethod
    def refused(path: Path, content: Any) -> str:
        """Write a file, load it, and return the reason of the error."""
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif content is not None:
            np.save(path, content)
        with pytest.raises(InputError) as caught:
            load_contexts(path)
        assert "\n" not in str(caught.value)
        prefix = f"cannot read contexts from {path}: "
        assert str(caught.value).startswith(prefix)
        return str(caught.value).removeprefix(prefix)
