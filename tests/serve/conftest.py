"""One server for all tests of a process: loading its model takes longer than they do."""

from collections.abc import Iterator

import pytest

import wordsway as ws
from serve.server import Server, running

MODEL = "minilm-sentiment"


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with running("--model", MODEL, "--model", "minilm") as started:
        yield started


@pytest.fixture(scope="session")
def model() -> ws.Model:
    return ws.load(MODEL)
