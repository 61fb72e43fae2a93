"""The command `serve`: a local page to explore texts."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Annotated

import typer

from wordsway.cli.running import notice

Models = Annotated[
    list[str] | None,
    typer.Option("--model", metavar="NAME", help="a model, as for text; may be repeated; default: minilm-sentiment"),
]
Port = Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="port on 127.0.0.1; 0: any free one")]


def serve(models: Models = None, port: Port = 8000) -> None:
    """Serve a page on this machine: type a text, click a word, apply a replacement, compare two texts.

    Only this machine can reach it. Ctrl-C ends it.
    """
    from wordsway.errors import InputError, MissingExtra

    try:
        import uvicorn

        from wordsway.serve.app import make_app
    except ImportError as error:
        raise MissingExtra.of("the page needs Starlette and uvicorn", "serve") from error
    from wordsway.models import load

    names = list(dict.fromkeys(models or ["minilm-sentiment"]))
    first = load(names[0])  # a wrong name ends here, not in the browser
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
    except OSError as error:
        raise InputError(f"port must be free, got {port}: {error.strerror}; use --port 0 for any free one") from error
    listening.listen(2048)  # before its address is shown: the server takes a moment to start
    number = listening.getsockname()[1]
    app = make_app(dict.fromkeys(names) | {names[0]: first}, [f"127.0.0.1:{number}", f"localhost:{number}"])
    notice(f"the page is http://127.0.0.1:{number}/ (Ctrl-C ends it)")
    # a browser keeps connections open: they are not waited for at the end
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1, h11_max_incomplete_event_size=65536)
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])
    os._exit(0)  # a measurement of a long text may still run in its thread: nothing of it is worth waiting for
