"""Images as inputs: the real digits, and files made here in place of those on the hub."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch

from wordsway import InputError
from wordsway.data import hub, image_samples

# file on the hub, columns of pictures and classes, shape of a picture
HUB = {
    "mnist": ("ylecun/mnist", "mnist/train-00000-of-00001.parquet", "image", (28, 28)),
    "cifar10": ("uoft-cs/cifar10", "plain_text/train-00000-of-00001.parquet", "img", (32, 32, 3)),
}


def test_digits_are_rows_of_norm_sqrt_d_with_their_parity() -> None:
    from sklearn.datasets import load_digits

    X, y = image_samples("digits", 50, seed=1)
    assert X.shape == (50, 64)
    torch.testing.assert_close(X.norm(dim=1), torch.full((50,), 8.0, dtype=torch.float64))
    assert float(X.mean(1).abs().max()) < 1e-12
    assert set(y.tolist()) == {-1.0, 1.0}
    raw = load_digits()
    rows = torch.from_numpy(raw.data - raw.data.mean(1, keepdims=True))
    match = (torch.nn.functional.normalize(rows) @ X[0] / 8).argmax()
    assert y[0] == (1.0 if raw.target[int(match)] % 2 == 0 else -1.0)


def test_a_row_does_not_depend_on_the_count() -> None:
    few, many = image_samples("digits", 3), image_samples("digits", 30)
    assert torch.equal(few[0], many[0][:3])
    assert not torch.equal(image_samples("digits", 3, seed=1)[0], few[0])


def _write(path: Path, column: str, pictures: np.ndarray) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    encoded = []
    for pixels in pictures:
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG")
        encoded.append({"bytes": buffer.getvalue(), "path": None})
    pq.write_table(pa.table({column: encoded, "label": list(range(len(pictures)))}), path)


@pytest.mark.parametrize("name", HUB)
def test_images_of_the_hub_are_read_from_their_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, file, column, shape = HUB[name]
    pictures = np.random.default_rng(0).integers(0, 255, (6, *shape), dtype=np.uint8)
    path = tmp_path / "train.parquet"
    _write(path, column, pictures)
    files = {(dataset, file, "dataset"): path}
    monkeypatch.setattr(hub, "fetch", lambda *names, kind: files[*names, kind])
    X, y = image_samples(name, 6, seed=2)
    flat = torch.from_numpy(pictures.reshape(6, -1).astype(np.float64))
    flat = flat - flat.mean(1, keepdim=True)
    expected = flat * (flat.shape[1] ** 0.5 / flat.norm(dim=1, keepdim=True))
    order = torch.cdist(X, expected).argmin(1)
    torch.testing.assert_close(X, expected[order])
    assert y.tolist() == [1.0 if number % 2 == 0 else -1.0 for number in order.tolist()]
    files[dataset, file, "dataset"] = tmp_path / "damaged.parquet"
    (tmp_path / "damaged.parquet").write_bytes(b"cut")
    with pytest.raises(InputError, match="must hold pictures and their classes"):
        image_samples(name, 2)


@pytest.mark.parametrize(
    ("name", "count", "message"),
    [
        ("digit", 3, r"images must be one of digits, mnist, cifar10, got 'digit' \(did you mean 'digits'\?\)"),
        ("digits", 1798, "count must be at most 1797, the number of images in digits, got 1798"),
        ("digits", 0, "count must be an integer >= 1, got 0"),
    ],
)
def test_bad_input_is_one_clear_line(name: str, count: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        image_samples(name, count)
