"""A server in a process of its own, as ``wordsway serve`` starts it."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass
class Server:
    """A running server."""

    port: int
    process: subprocess.Popen[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], str]:
        """Status, headers and body of an answer; a body that is no string is sent as JSON."""
        kind = {} if body is None else {"Content-Type": "application/json"}
        data = body if body is None or isinstance(body, str) else json.dumps(body)
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)) as connection:
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, data, {**kind, **names})
            answer = connection.getresponse()
            read = answer.read().decode()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, read

    def answer(self, path: str, **question: Any) -> Any:
        """The JSON of an answer to a question."""
        status, _, body = self.request("POST", f"/api/{path}", question)
        assert status == 200, body
        return json.loads(body)

    def events(self, path: str, **question: Any) -> list[tuple[str, Any]]:
        """The server-sent events that answer a question."""
        status, headers, body = self.request("POST", f"/api/{path}", question)
        assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8"), body
        return [(kind, json.loads(data)) for kind, data in re.findall(r"event: (\w+)\ndata: (.*)\n\n", body)]


@contextmanager
def running(*arguments: str) -> Iterator[Server]:
    """A server on a free port, ended by an interrupt as from the keyboard."""
    command = [sys.executable, "-m", "wordsway", "serve", "--port", "0", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if found := re.search(r"http://127\.0\.0\.1:(\d+)/", line):
            break
    else:
        raise AssertionError("".join(lines))
    try:
        yield Server(int(found[1]), process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=30)[1]
        assert "Traceback" not in rest, rest
