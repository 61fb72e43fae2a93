"""Small copies of the packages of reviews and of the encoder, and small encoders, which tests may read and damage."""

import csv
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from data.conftest import RAISES, Hub, InstalledReviews, Rows, hub, install_reviews

from models import tiny
from wordsway.data import offline

__all__ = ["hub", "install_reviews"]

MODEL = offline.locate(offline.WEIGHTS).parent


@dataclass(frozen=True)
class Library:
    """Some real reviews in place of the published ones, with an empty cache."""

    cache: Path
    texts: list[str]
    labels: list[int]


@pytest.fixture(scope="session")
def real_rows() -> Rows:
    """Forty real reviews, sorted by label as in the original."""
    rows: Rows = []
    with offline.locate(offline.REVIEWS).open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            label = row["label"]
            if row["source"] == "imdb" and sum(r[1] == label for r in rows) < 20 and len(row["text"]) > 600:
                rows.append((row["text"], label, "imdb"))
    return rows


@pytest.fixture
def library(real_rows: Rows, install_reviews: Callable[[Rows], InstalledReviews]) -> Library:
    """Forty real reviews and two short ones."""
    short = [("Too short to be used.", "0", "imdb"), ("Short too!", "1", "imdb")]
    installed = install_reviews([*real_rows, *short])
    return Library(installed.cache, [row[0] for row in real_rows], [2 * int(row[1]) - 1 for row in real_rows])


@pytest.fixture
def model_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the offline encoder that can be damaged."""
    target = tmp_path / "models" / offline.WEIGHTS.module / "model"
    target.mkdir(parents=True)
    (target.parent / "__init__.py").write_text(RAISES)
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


@pytest.fixture
def served(bert: tuple[Path, Any], hub: Hub) -> Hub:
    """A hub that serves the small BERT."""
    hub.folder = bert[0]
    return hub
