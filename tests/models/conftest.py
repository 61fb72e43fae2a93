"""Small copies of the packages of reviews and of the encoder, which tests may read and damage."""

import csv
import hashlib
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import wordsway.models.library as library_module
from models import tiny
from wordsway.models import offline

REAL_REVIEWS = offline.locate(offline.REVIEWS)
MODEL = offline.locate(offline.WEIGHTS).parent


@dataclass(frozen=True)
class Library:
    """A small stand-in for the package of reviews, with an empty cache of its own."""

    root: Path
    csv: Path
    cache: Path
    texts: list[str]
    labels: list[int]


def _write(root: Path, rows: list[tuple[str, str, str]]) -> Path:
    path = root / offline.REVIEWS.module / offline.REVIEWS.inside
    path.parent.mkdir(parents=True)
    (path.parents[1] / "__init__.py").write_text("raise RuntimeError('code of the package was run')\n")
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("text", "label", "source"))
        writer.writerows(rows)
    return path


@pytest.fixture(scope="module")
def real_rows() -> list[tuple[str, str, str]]:
    """Forty real reviews, sorted by label as in the original."""
    rows: list[tuple[str, str, str]] = []
    with REAL_REVIEWS.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            label = row["label"]
            if row["source"] == "imdb" and sum(r[1] == label for r in rows) < 20 and len(row["text"]) > 600:
                rows.append((row["text"], label, "imdb"))
    return rows


@pytest.fixture
def library(real_rows: list[tuple[str, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    """Real reviews, then too short, repeated and foreign ones."""
    good, rows = real_rows, list(real_rows)
    rows += [("Too short to be used.", "0", "imdb"), ("Short too!", "1", "imdb"), good[0], good[-1]]
    rows += [("From elsewhere. " * 100, "1", "rotten_tomatoes")]
    root = tmp_path / "site"
    path = _write(root, rows)
    monkeypatch.syspath_prepend(root)
    checksum = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(offline, "REVIEWS", replace(offline.REVIEWS, sha256=checksum))
    monkeypatch.setenv("WORDSWAY_CACHE", str(tmp_path / "cache"))
    library_module._open.cache_clear()
    return Library(root, path, tmp_path / "cache", [r[0] for r in good], [2 * int(r[1]) - 1 for r in good])


@pytest.fixture
def model_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the encoder that can be damaged."""
    target = tmp_path / "models" / offline.WEIGHTS.module / "model"
    target.mkdir(parents=True)
    (target.parent / "__init__.py").write_text("raise RuntimeError('code of the package was run')\n")
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (target / name).symlink_to(MODEL / name)
    monkeypatch.syspath_prepend(tmp_path / "models")
    return target


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A small BERT that tests copy, and transformers' own object."""
    folder = tmp_path_factory.mktemp("original") / "bert"
    return folder, tiny.write_bert(folder, layer_norm_eps=1e-3)


@pytest.fixture
def bert(original: tuple[Path, Any], tmp_path: Path) -> tuple[Path, Any]:
    """A small BERT in a folder that a test may damage, and transformers' own object."""
    shutil.copytree(original[0], tmp_path / "bert")
    return tmp_path / "bert", original[1]
