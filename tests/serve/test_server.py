"""The server behind the page: its numbers are the library's, and it refuses what did not come from the page."""

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

import wordsway as ws
from serve.conftest import MODEL
from serve.server import Server, running
from wordsway.cli import main

TEXT = "The film was not good, but the acting was brilliant."
OTHER = "The film was not bad, but the acting was brilliant."
QUESTION = {"model": MODEL, "text": TEXT}


# Numbers


def test_a_profile_is_refined_to_that_of_the_library(server: Server, model: ws.Model) -> None:
    events = server.events("profile", **QUESTION)
    *values, (end, _) = events
    assert end == "end"
    first, last = values[0][1], values[-1][1]
    assert len(values) > 2
    assert [value["done"] for _, value in values] == [False] * (len(values) - 1) + [True]
    assert all(row["masked"] is not None and row["typical"] is None for row in first["words"])
    expected = model.profile(TEXT)
    assert last["words"] == json.loads(json.dumps(expected.rows()))
    assert (last["decision"], last["before"], last["passes"]) == (expected.decision, expected.before, expected.passes)
    assert [value["passes"] for _, value in values] == sorted(value["passes"] for _, value in values)


def test_swaps_are_those_of_the_library(server: Server, model: ws.Model) -> None:
    found = server.answer("swaps", **QUESTION, word=4)
    expected = model.swaps(TEXT, 4, top=12, checks=150)
    assert [row["word"] for row in found["swaps"]] == [swap.word for swap in expected.swaps]
    assert [row["effect"] for row in found["swaps"]] == [swap.effect for swap in expected.swaps]
    assert [row["text"] for row in found["swaps"]] == [swap.text for swap in expected.swaps]
    assert any(row["flip"] for row in found["swaps"])


@pytest.mark.parametrize("head", [None, 3])
def test_texts_are_compared(server: Server, model: ws.Model, head: int | None) -> None:
    found = server.answer("compare", **QUESTION, other=OTHER, layer=2, head=head)
    assert (found["first"]["decision"], found["second"]["decision"]) == ("negative", "positive")
    scores = model.attention_scores(OTHER, 2).scores
    words = [word.text for word in model.read(OTHER).scored]
    assert found["second"]["words"] == words
    matrix = scores.mean(0) if head is None else scores[head]
    tokens = [word.tokens for word in model.read(OTHER).scored]
    for row, mine in zip(found["second"]["scores"], tokens, strict=True):
        for value, theirs in zip(row, tokens, strict=True):
            expected = matrix[list(mine)][:, list(theirs)].sum(1).mean()
            assert value == pytest.approx(float(expected), abs=1e-4)


def test_layers_are_measured_one_after_the_other(server: Server, model: ws.Model) -> None:
    events = server.events("layers", **QUESTION)
    assert [value["layer"] for kind, value in events if kind == "value"] == list(range(model.layers))
    masked = model.profile(TEXT, on=2, budget=1)
    assert events[2][1]["values"] == pytest.approx([one.masked for one in masked.words])


def test_a_page_is_saved_that_needs_no_server(server: Server) -> None:
    status, headers, page = server.request("POST", "/api/page", {"model": MODEL, "text": "a <b>good</b> film"})
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "<script" not in page
    assert "<b>good</b>" not in page


# Requests that are refused


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "example.org"}, 421),
        ({"Host": "127.0.0.1:1"}, 421),
        ({"Origin": "http://example.org"}, 403),
        ({"Origin": "null"}, 403),
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_foreign_requests_are_refused(server: Server, headers: dict[str, str], status: int) -> None:
    assert server.request("POST", "/api/swaps", {**QUESTION, "word": 0}, **headers)[0] == status
    if status == 421:
        assert server.request("GET", "/", **headers)[0] == status


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("{", 400, "Expecting"),
        ("[" * 60000, 400, ""),
        ("x" * 70000, 413, "65,536"),
        ([], 400, "an object with model and text"),
        ({"text": "a"}, 400, "an object with model and text"),
        ({**QUESTION, "path": "/etc"}, 400, "an object with model and text"),
        ({**QUESTION, "word": "0"}, 400, "word must be of type int, got str"),
        ({**QUESTION, "word": True}, 400, "word must be of type int, got bool"),
        ({**QUESTION, "text": None}, 400, "text must be of type str, got NoneType"),
        ({**QUESTION, "text": "a" * 5001}, 400, "at most 5,000 characters, got 5,001"),
        ({**QUESTION, "model": "/etc/passwd"}, 400, "model must be one of minilm-sentiment, minilm"),
        ({**QUESTION}, 400, "word must be a position"),
        ({**QUESTION, "word": 99}, 400, "99"),
        ({**QUESTION, "word": 0, "on": "nothing"}, 400, "nothing"),
        ({"model": MODEL, "text": "", "word": 0}, 400, ""),
        ({"model": MODEL, "text": "\ud800", "word": 0}, 400, ""),
        ({"model": MODEL, "text": "good " * 999, "word": 0}, 400, "tokens"),
    ],
    ids=str,
)
def test_wrong_questions_get_one_line(server: Server, body: Any, status: int, message: str) -> None:
    got, _, answer = server.request("POST", "/api/swaps", body)
    assert got == status, answer
    text = json.loads(answer)["message"] if answer.startswith("{") else answer
    assert message in text
    assert "\n" not in text
    assert "Traceback" not in text


def test_errors_of_a_stream_are_its_last_event(server: Server) -> None:
    ((kind, value),) = server.events("profile", model=MODEL, text=" ")
    assert kind == "error"
    assert value["message"]


@pytest.mark.parametrize("path", ["/", "/health", "/static/explore.js", "/static/style.css", "/nothing"])
def test_answers_forbid_inline_scripts_and_foreign_sources(server: Server, path: str) -> None:
    status, headers, body = server.request("GET", path)
    assert status == (404 if path == "/nothing" else 200)
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "style=" not in body or path.endswith(".js")


@pytest.mark.parametrize("path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd"])
def test_only_static_files_are_served(server: Server, path: str) -> None:
    assert server.request("GET", path)[0] == 404


# Load and faults


def test_a_hundred_requests_at_once_are_all_answered(server: Server) -> None:
    done = threading.Event()
    waits = []

    def look() -> None:
        while not done.is_set():
            start = time.perf_counter()
            assert server.request("GET", "/health")[0] == 200
            waits.append(time.perf_counter() - start)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        with ThreadPoolExecutor(100) as pool:
            answers = list(
                pool.map(
                    lambda number: server.answer("compare", model=MODEL, text=f"film {number}", other="a film"),
                    range(100),
                )
            )
    finally:
        done.set()
        watcher.join()
    assert [answer["first"]["text"] for answer in answers] == [f"film {number}" for number in range(100)]
    assert len(waits) > 10  # the server answered while it measured
    assert json.loads(server.request("GET", "/health")[2])["models"][MODEL] == 0


def test_a_closed_connection_ends_its_measurement(server: Server) -> None:
    body = json.dumps({"model": MODEL, "text": "a good film and a long one " * 12})
    head = f"POST /api/profile HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            assert b"200 OK" in connection.recv(100)
    deadline = time.monotonic() + 60
    while json.loads(server.request("GET", "/health")[2])["models"][MODEL]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert server.answer("compare", **QUESTION, other=OTHER)["signed"]  # and the next one has its turn


def _failure(*arguments: str) -> str:
    command = [sys.executable, "-m", "wordsway", "serve", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode in (1, 2)
    assert "Traceback" not in ended.stderr
    return ended.stderr


def test_a_port_in_use_is_one_line(server: Server) -> None:
    assert "port must be free, got" in _failure("--model", "minilm", "--port", str(server.port))


def test_a_wrong_model_is_one_line() -> None:
    assert len(_failure("--model", "/nothing/here").splitlines()) == 1


def test_the_address_is_open_as_soon_as_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    def connect(shown: str) -> None:
        port = int(shown.split(":")[2].split("/")[0])
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        opened.append(port)

    def leave(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr("wordsway.cli.serve.notice", connect)
    monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: sockets[0].close())
    monkeypatch.setattr("os._exit", leave)
    with pytest.raises(SystemExit):
        main(["serve", "--model", "minilm", "--port", "0"])
    assert len(opened) == 1


def test_an_interrupt_during_a_measurement_ends_the_server() -> None:
    with running("--model", "minilm") as started:
        body = {"model": "minilm", "text": "a good film and a long one " * 12}
        thread = threading.Thread(target=lambda: _quietly(started, body))
        thread.start()
        time.sleep(1)
    assert started.process.returncode is not None
    thread.join(30)


def _quietly(server: Server, body: Any) -> None:
    with suppress(OSError, http.client.HTTPException):  # an answer that is cut off
        server.request("POST", "/api/profile", body)
