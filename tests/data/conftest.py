"""A small stand-in for the package of reviews and a small hub, which tests may read and damage."""

import csv
import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants

from wordsway.data import offline

HUB_NAME = "someone/small-bert"
RAISES = "raise RuntimeError('code of the package was run')\n"
Rows = list[tuple[str, str, str]]


@dataclass(frozen=True)
class InstalledReviews:
    """A package of reviews on the import path, with an empty cache."""

    root: Path
    csv: Path
    cache: Path


@pytest.fixture
def install_reviews(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Rows], InstalledReviews]:
    """Return a function that installs rows of text, label and source in place of the published reviews."""

    def install(rows: Rows) -> InstalledReviews:
        root, cache = tmp_path / "site", tmp_path / "cache"
        path = root / offline.REVIEWS.module / offline.REVIEWS.inside
        path.parent.mkdir(parents=True)
        (path.parents[1] / "__init__.py").write_text(RAISES)
        with path.open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows([("text", "label", "source"), *rows])
        checksum = hashlib.sha256(path.read_bytes()).hexdigest()
        monkeypatch.syspath_prepend(root)
        monkeypatch.setattr(offline, "REVIEWS", replace(offline.REVIEWS, sha256=checksum))
        monkeypatch.setenv("WORDSWAY_CACHE", str(cache))
        return InstalledReviews(root, path, cache)

    return install


@dataclass
class Hub:
    """A hub with one repository; `commit` is its newest, `refusal` its response to all requests, if any."""

    folder: Path
    cache: Path
    commit: str = "1" * 40
    refusal: tuple[int, str] | None = None
    requests: list[str] = field(default_factory=list)
    url: str = ""

    def downloaded(self) -> set[str]:
        return {request.split("/")[-1] for request in self.requests if request.startswith("GET")}

    def respond(self, request: BaseHTTPRequestHandler, body: bool) -> None:
        if not request.path.startswith("/api/"):  # huggingface_hub sends requests of its own there, once a day
            self.requests.append(f"{request.command} {request.path}")
        match = re.fullmatch(rf"/{HUB_NAME}/resolve/(main|\d{{40}})/([\w.-]+)", request.path)
        commit = match[1] if match and match[1] != "main" else self.commit
        path = self.folder / match[2] if match else self.folder / "none"
        status, code = self.refusal or ((200, "") if path.is_file() else (404, "EntryNotFound" if match else ""))
        content = path.read_bytes() if status == 200 else b""
        request.send_response(status)
        request.send_header("X-Repo-Commit", commit)
        request.send_header("X-Error-Code", code)
        request.send_header("ETag", f'"{commit[:8]}-{path.name}"')
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        if body:
            request.wfile.write(content)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that serves an empty folder, and an empty local hub cache."""
    hub = Hub(tmp_path / "served", tmp_path / "hub")
    hub.folder.mkdir()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            hub.respond(self, body=False)

        def do_GET(self) -> None:
            hub.respond(self, body=True)

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
        huggingface_hub.close_session()  # the next session reads the environment as it is here
        yield hub
        huggingface_hub.close_session()
        server.shutdown()
        thread.join()
