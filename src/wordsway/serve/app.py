"""The server: routes of the page, and what every request has to fulfil."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wordsway.errors import WordswayError, one_line
from wordsway.models.model import Model
from wordsway.report import pages
from wordsway.serve import measurements
from wordsway.serve.measurements import Question
from wordsway.serve.queues import Busy, ModelQueue

BODY = 64 * 1024  # bytes of a request: two texts of the longest length, escaped
WAITING = 256  # measurements that may wait for a model; each holds a connection and its text
HEADERS = {
    # nothing inline and nothing from elsewhere; a form or a frame of another site cannot use the page
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def make_app(models: Mapping[str, Model | None], hosts: Sequence[str], waiting: int = WAITING) -> Starlette:
    """Return the application.

    Parameters
    ----------
    models
        Names that `load` takes, the default first, with those models that are loaded; a request can name no other.
    hosts
        What the Host header may be, such as ``127.0.0.1:8000``: another name that resolves to this machine is refused,
        so that no page of another site can read what this one shows.
    waiting
        Measurements that may wait for a model.
    """
    queues: dict[str, ModelQueue] = {}  # made in the loop of the server
    environment = Environment(
        loader=PackageLoader("wordsway.serve"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )

    async def page(request: Request) -> Response:
        version = metadata.version("wordsway")
        html = environment.get_template("explore.html.j2").render(models=list(models), version=version)
        return HTMLResponse(html)

    async def style(request: Request) -> Response:
        path = Path(pages.__file__).with_name("templates") / "style.css"
        return Response(path.read_text(encoding="utf-8"), media_type="text/css")

    async def health(request: Request) -> Response:
        return JSONResponse({"models": {name: queue.waiting for name, queue in queues.items()}})

    async def received(request: Request) -> tuple[ModelQueue, Question]:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > BODY:
                raise HTTPException(413, f"a request must have at most {BODY:,} bytes")
        try:
            question = Question.read(json.loads(body))
        except (ValueError, RecursionError) as error:  # InputError is a ValueError
            raise HTTPException(400, one_line(error)) from error
        if question.model not in models:
            raise HTTPException(400, f"model must be one of {', '.join(models)}")
        if question.model not in queues:
            queues[question.model] = ModelQueue(question.model, waiting, models[question.model])
        queue = queues[question.model]
        if queue.waiting >= waiting:
            raise HTTPException(503, "too many measurements wait: try again later", {"Retry-After": "5"})
        return queue, question

    def streamed(work: Callable[[Model, Question], Iterator[dict[str, Any]]]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            queue, question = await received(request)

            async def events() -> AsyncIterator[str]:
                try:
                    async for value in queue.steps(lambda model: work(model, question), request.is_disconnected):
                        yield _event("value", value)
                    yield _event("end", {})
                except WordswayError as error:
                    yield _event("error", {"message": one_line(error)})

            return StreamingResponse(events(), media_type="text/event-stream")

        return answer

    def returned(work: Callable[[Model, Question], Any]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            queue, question = await received(request)
            try:
                value = await queue.once(lambda model: work(model, question), request.is_disconnected)
            except Busy as error:
                raise HTTPException(503, one_line(error), {"Retry-After": "5"}) from error
            except WordswayError as error:
                raise HTTPException(400, one_line(error)) from error
            return HTMLResponse(value) if isinstance(value, str) else JSONResponse(value)

        return answer

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            for queue in queues.values():
                queue.close()

    routes = [
        Route("/", page),
        Route("/health", health),
        Route("/static/style.css", style),
        Mount("/static", StaticFiles(packages=[("wordsway.serve", "static")])),
        Route("/api/profile", streamed(measurements.profiles), methods=["POST"]),
        Route("/api/layers", streamed(measurements.layers), methods=["POST"]),
        Route("/api/swaps", returned(measurements.swaps), methods=["POST"]),
        Route("/api/compare", returned(measurements.comparison), methods=["POST"]),
        Route("/api/page", returned(measurements.saved_page), methods=["POST"]),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, hosts=frozenset(hosts))],
        exception_handlers={HTTPException: _refusal},
        lifespan=lifespan,
    )


class Guard:
    """Refuses requests that did not come from the page itself, and adds the headers that protect it."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        refusal = self._refusal(request)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name.lower() for name, _ in message["headers"]}
                extra = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(pair for pair in extra if pair[0] not in known)]
            await send(message)

        if refusal is not None:
            await PlainTextResponse(refusal[1], refusal[0])(scope, receive, send_with_headers)
        else:
            with suppress(asyncio.CancelledError):  # the server ends: not worth a traceback in the log
                await self.app(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> tuple[int, str] | None:
        """Status and reason for which a request is refused."""
        headers = request.headers
        if headers.get("host", "") not in self.hosts:
            return 421, "the Host header must name this server"
        origin = headers.get("origin")
        if origin is not None and origin not in {f"http://{host}" for host in self.hosts}:
            return 403, "the Origin header must be that of this server"
        if request.method != "POST":
            return None
        # a form of another site cannot send this type
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return 415, "a request must be of type application/json"
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > BODY:
            return 413, f"a request must have at most {BODY:,} bytes"
        return None


def _event(kind: str, value: Any) -> str:
    """A server-sent event; JSON has no line breaks of its own."""
    return f"event: {kind}\ndata: {json.dumps(value)}\n\n"


async def _refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"message": error.detail}, error.status_code, headers=error.headers)
