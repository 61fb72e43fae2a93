"""Images as inputs: digits for real, the others from a file made on the spot in place of the hub's."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch

from wordsway import InputError
from wordsway.data import hub, image_samples, images


def test_digits_are_rows_of_norm_sqrt_d_with_their_parity() -> None:
    X, y = image_samples("digits", 50, seed=1)
    assert X.shape == (50, 64)
    torch.testing.assert_close(X.norm(dim=1), torch.full((50,), 8.0, dtype=torch.float64))
    assert float(X.mean(1).abs().max()) < 1e-12
    assert set(y.tolist()) == {-1.0, 1.0}
    from sklearn.datasets import load_digits

    raw = load_digits()
    rows = torch.from_numpy(raw.data - raw.data.mean(1, keepdims=True))
    match = (torch.nn.functional.normalize(rows) @ X[0] / 8).argmax()
    assert y[0] == (1.0 if raw.target[int(match)] % 2 == 0 else -1.0)


def test_a_row_does_not_depend_on_the_count() -> None:
    few, many = image_samples("digits", 3), image_samples("digits", 30)
    assert torch.equal(few[0], many[0][:3])
    assert not torch.equal(image_samples("digits", 3, seed=1)[0], few[0])


@pytest.mark.parametrize(("name", "shape"), [("mnist", (28, 28)), ("cifar10", (32, 32, 3))])
def test_images_of_the_hub_are_read_from_their_file(
    name: str, shape: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    asked = []
    draw = np.random.default_rng(0).integers(0, 255, (6, *shape), dtype=np.uint8)
    file = images._HUB[name]

    def picture(pixels: np.ndarray) -> dict[str, object]:
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG")
        return {"bytes": buffer.getvalue(), "path": None}

    path = tmp_path / "train.parquet"
    pq.write_table(pa.table({file.picture: [picture(one) for one in draw], file.label: list(range(6))}), path)

    def fetch(dataset: str, inside: str, kind: str) -> Path:
        asked.append((dataset, inside, kind))
        return path

    monkeypatch.setattr(hub, "fetch", fetch)
    X, y = image_samples(name, 6, seed=2)
    assert asked == [(file.dataset, file.file, "dataset")]
    flat = torch.from_numpy(draw.reshape(6, -1).astype(np.float64))
    flat = flat - flat.mean(1, keepdim=True)
    expected = flat * (flat.shape[1] ** 0.5 / flat.norm(dim=1, keepdim=True))
    order = torch.cdist(X, expected).argmin(1)
    torch.testing.assert_close(X, expected[order])
    assert y.tolist() == [1.0 if number % 2 == 0 else -1.0 for number in order.tolist()]
    path.write_bytes(b"cut")
    images._read.cache_clear()
    with pytest.raises(InputError, match="must hold pictures and their classes"):
        image_samples(name, 2)


@pytest.mark.parametrize(
    ("name", "count", "said"),
    [
        ("digit", 3, r"images must be one of digits, mnist, cifar10, got 'digit' \(did you mean 'digits'\?\)"),
        ("digits", 1798, "count must be at most 1797, the number of images in digits, got 1798"),
        ("digits", 0, "count must be an integer >= 1, got 0"),
    ],
)
def test_bad_input_is_one_clear_line(name: str, count: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        image_samples(name, count)


def test_a_hub_that_cannot_be_reached_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(InputError, match="the dataset ylecun/mnist must be") as caught:
        image_samples("mnist", 2)
    assert "\n" not in str(caught.value)
