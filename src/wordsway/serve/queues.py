"""Measurements for the page: one at a time per model, in a thread, in steps that a closed connection ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from wordsway.errors import WordswayError
from wordsway.models import load
from wordsway.models.model import Model

T = TypeVar("T")
_END = object()  # what a finished iterator gives: StopIteration cannot pass through a future


class Busy(WordswayError):
    """Too many measurements wait for a model."""


class ModelQueue:
    """One model, loaded when it is first needed unless it is given, and the measurements that wait for it.

    Attributes
    ----------
    name : str
    waiting : int
        Measurements that wait or run.
    """

    def __init__(self, name: str, most: int, model: Model | None = None) -> None:
        self.name, self.waiting = name, 0
        self._most, self._model = most, model
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"measure-{name}")

    async def steps(
        self, work: Callable[[Model], Iterator[T]], gone: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[T]:
        """Yield what a measurement yields; it ends between two steps when nobody waits for it any more."""
        async with self._place():
            if await gone():
                return
            iterator = await self._run(self._begin, work)
            while (value := await self._run(next, iterator, _END)) is not _END:
                yield value
                if await gone():
                    return

    async def once(self, work: Callable[[Model], T], gone: Callable[[], Awaitable[bool]]) -> T | None:
        """Return what a measurement returns, or None where nobody waits for it any more."""
        async with self._place():
            if await gone():
                return None
            result: T = await self._run(lambda: work(self._loaded()))
            return result

    def close(self) -> None:
        """Start nothing more; a step that runs is not waited for."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        if self.waiting >= self._most:
            raise Busy(f"at most {self._most} measurements wait for a model, got one more: try again later")
        self.waiting += 1
        try:
            async with self._turn:
                yield
        finally:
            self.waiting -= 1

    async def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def _begin(self, work: Callable[[Model], Iterator[T]]) -> Iterator[T]:
        return iter(work(self._loaded()))

    def _loaded(self) -> Model:
        if self._model is None:
            self._model = load(self.name)
        return self._model
