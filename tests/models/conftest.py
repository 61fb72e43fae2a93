"""Small copies of the packages of reviews and of the encoder, and a small hub, which tests may read and damage."""

import csv
import hashlib
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants

from models import tiny
from wordsway.data import offline
from wordsway.data import reviews as library_module
from wordsway.models import encoder

REAL_REVIEWS = offline.locate(offline.REVIEWS)
MODEL = offline.locate(offline.WEIGHTS).parent
HUB_NAME = "someone/small-bert"


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


@dataclass
class Hub:
    """A hub with one model; `commit` is its newest, and `refusal` what it answers to all questions, if anything."""

    folder: Path
    cache: Path
    commit: str = "1" * 40
    refusal: tuple[int, str] | None = None
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def answer(self, question: BaseHTTPRequestHandler, body: bool) -> None:
        if not question.path.startswith("/api/"):  # where huggingface_hub asks things of its own, once a day
            self.asked.append(f"{question.command} {question.path}")
        found = re.fullmatch(rf"/{HUB_NAME}/resolve/(main|\d{{40}})/([\w.-]+)", question.path)
        commit = found[1] if found and found[1] != "main" else self.commit
        path = self.folder / found[2] if found else self.folder / "none"
        status, code = self.refusal or ((200, "") if path.is_file() else (404, "EntryNotFound" if found else ""))
        content = path.read_bytes() if status == 200 else b""
        question.send_response(status)
        question.send_header("X-Repo-Commit", commit)
        question.send_header("X-Error-Code", code)
        question.send_header("ETag", f'"{commit[:8]}-{path.name}"')
        question.send_header("Content-Length", str(len(content)))
        question.end_headers()
        if body:
            question.wfile.write(content)


@pytest.fixture
def hub(bert: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that serves the small BERT, and an empty local hub cache."""
    hub = Hub(bert[0], tmp_path / "hub")

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            hub.answer(self, body=False)

        def do_GET(self) -> None:
            hub.answer(self, body=True)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.upper(), raising=False)
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, hub.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hub.cache))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        huggingface_hub.close_session()  # so that the next one sees the environment as it is here
        yield hub
        huggingface_hub.close_session()
        server.shutdown()
        thread.join()


def load_library(model: str | None = None) -> library_module.Reviews:
    """The reviews as the tokenizer of an encoder splits them."""
    return library_module.load_reviews(encoder._load_tokenizer(model, encoder._load_config(model)))
