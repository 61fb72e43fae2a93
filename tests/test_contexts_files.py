"""Contexts are read from .npy files of every layout, and anything else is refused in one line."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from wordsway import memory
from wordsway.contexts import load_contexts
from wordsway.errors import InputError


@pytest.mark.parametrize("shape", [(4, 3), (1, 1), (2, 4, 3)])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_round_trip(tmp_path: Path, shape: Any, dtype: str, order: Any, version: Any) -> None:
    array = np.random.default_rng(0).standard_normal(shape).astype(dtype, order=order)
    with open(tmp_path / "X.npy", "wb") as file:
        np.lib.format.write_array(file, array, version=version)
    contexts = load_contexts(tmp_path / "X.npy")
    assert contexts.dtype == (torch.float32 if dtype.endswith("4") else torch.float64)
    assert contexts.is_contiguous()
    assert np.array_equal(contexts.numpy(), array.reshape(-1, *shape[-2:]))
    assert torch.equal(contexts, load_contexts(str(tmp_path / "X.npy")))


def refused(path: Path, content: Any) -> str:
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.save(path, content)
    with pytest.raises(InputError) as caught:
        load_contexts(path)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(f"cannot read contexts from {path}: ")
    return text.removeprefix(f"cannot read contexts from {path}: ")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory"),
        (b"", "it is not a .npy file: save one array with numpy.save"),
        (b"1.0 2.0\n", "it is not a .npy file: save one array with numpy.save"),
        (pickle.dumps([1.0]), "it is not a .npy file: save one array with numpy.save"),
        (b"PK\x03\x04rest", "it is a .npz or zip archive: save one array with numpy.save"),
        (b"\x93NUMPY", "its .npy header is damaged: save or copy it again"),
        (b"\x93NUMPY\x01\x00\x06\x00{'a':1", "its .npy header is damaged: save or copy it again"),
        (np.ones((2, 2), int), "its array must be float32 or float64, got int64: convert it to float64 first"),
        (np.ones((2, 2), "f2"), "its array must be float32 or float64, got float16: convert it to float64 first"),
        (np.ones((2, 2), "c8"), "its array must be float32 or float64, got complex64: take the real part first"),
        (
            np.array([[1.0, None]], object),
            "it holds pickled Python objects, which can run code when loaded: save an array of floats",
        ),
        (
            np.ones(3),
            "a context is n words (rows) by d dimensions, got shape (3,): save (n, d), or (count, n, d) for several",
        ),
        (
            np.ones((0, 2, 3)),
            "a context is n words (rows) by d dimensions with count, n, d >= 1, got shape (0, 2, 3): "
            "save at least one word",
        ),
        (
            np.array([[0.0, 1.0], [2.0, np.inf]]),
            "row 1 of the context has inf in column 1: every entry must be finite, drop or replace it",
        ),
        (
            np.array([[[0.0, 1.0]], [[np.nan, 1.0]]]),
            "row 0 of context 1 has nan in column 0: every entry must be finite, drop or replace it",
        ),
    ],
)
def test_refused(tmp_path: Path, content: Any, reason: str) -> None:
    assert refused(tmp_path / "X.npy", content) == reason


def test_a_folder_and_an_impossible_name(tmp_path: Path) -> None:
    assert refused(tmp_path, None) == "Is a directory"
    with pytest.raises(InputError, match="embedded null byte"):
        load_contexts("a\0b")


def test_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "X.npy"
    np.save(path, np.ones((4, 3)))
    os.truncate(path, path.stat().st_size - 8)
    assert refused(path, None) == ("it is cut short: shape (4, 3) needs 96 bytes, got 88: save or copy it again")


def test_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 100)
    monkeypatch.setattr(memory, "SMALL", 0)
    assert refused(tmp_path / "X.npy", np.ones((4, 3))) == (
        "loading an array of shape (4, 3) needs 192 B, but 100 B are free: save fewer or smaller contexts"
    )


def test_pickled_objects_are_not_run(tmp_path: Path) -> None:
    target = tmp_path / "ran"

    class Harm:
        def __reduce__(self) -> Any:
            return (Path.touch, (target,))

    refused(tmp_path / "X.npy", np.array([[Harm()]], object))
    refused(tmp_path / "Y.npy", pickle.dumps(Harm()))
    assert not target.exists()
