"""Snapshots as server-sent events, one a second, for as long as somebody looks."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import parse_qs

import msgspec
from litestar.types import Receive, Scope, Send

from app.engine.engine import Engine
from app.server.page.files import HEADERS
from app.server.page.snapshot import WINDOWS, Snapshot, look_at, take_snapshot

__all__ = ("MOST_LISTENERS", "Events")

MOST_LISTENERS = 32

# A little after the whole second, so that the second is among those that are over.
_LATER = 0.02
_EVENT_STREAM: Mapping[str, str] = {**HEADERS, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
_JSON: Mapping[str, str] = {**HEADERS, "Content-Type": "application/json"}


class Events:
    """An ASGI application. Query: `window`, a key of `WINDOWS`, and `model`, whose details to give.

    Args:
        engine: whose snapshots.
        most: so many may listen; the next one is refused with 503.
        patience: seconds after which somebody who takes nothing is let go.
    """

    def __init__(self, engine: Engine, most: int = MOST_LISTENERS, patience: float = 10.0) -> None:
        self.listening = 0
        self._engine = engine
        self._most = most
        self._patience = patience
        self._stopping = asyncio.Event()
        # A thread of its own: the event loop only moves bytes, and the workers are for inferences.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="page")
        self._taken: dict[str, Snapshot] = {}
        self._taken_in = -1

    def stop(self) -> None:
        """End every answer, and begin no more. To be called in the event loop."""
        self._stopping.set()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        query = parse_qs(scope["query_string"].decode("latin-1"))
        window, model = query.get("window", ["60s"])[0], query.get("model", [""])[0]
        if scope["type"] != "http" or scope["method"] != "GET":
            await _refuse(send, 405, "Only GET is served here")
        elif window not in WINDOWS:
            await _refuse(send, 400, f"Expected window to be one of {', '.join(WINDOWS)}")
        elif self._stopping.is_set():
            await _refuse(send, 503, "The server is stopping")
        elif self.listening >= self._most:
            await _refuse(send, 503, f"The page is open {self.listening} times already; close it somewhere")
        else:
            self.listening += 1
            try:
                await self._listen(receive, send, window, model)
            finally:
                self.listening -= 1

    async def _listen(self, receive: Receive, send: Send, window: str, model: str) -> None:
        await _start(send, 200, _EVENT_STREAM)
        gone = asyncio.ensure_future(_gone(receive))
        told = asyncio.ensure_future(self._tell(send, window, model))
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({gone, told, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (gone, told, stopped):
                each.cancel()
            _, failure, _ = await asyncio.gather(gone, told, stopped, return_exceptions=True)
        if isinstance(failure, Exception) and not isinstance(failure, (TimeoutError, RuntimeError)):
            raise failure
        with suppress(TimeoutError):
            await asyncio.wait_for(_end(send), 1)

    async def _tell(self, send: Send, window: str, model: str) -> None:
        loop = asyncio.get_running_loop()
        while True:
            event = await loop.run_in_executor(self._thread, self._event, window, model)
            await asyncio.wait_for(_body(send, event), self._patience)
            await asyncio.sleep(1 + _LATER - self._engine.trends.age % 1)

    def _event(self, window: str, model: str) -> bytes:
        """The event of this second. What all who listen have in common is made once."""
        second = int(self._engine.trends.age)
        if second != self._taken_in:
            self._taken, self._taken_in = {}, second
        if window not in self._taken:
            self._taken[window] = take_snapshot(self._engine, window)
        return b"data: " + msgspec.json.encode(look_at(self._engine, self._taken[window], model)) + b"\n\n"


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _refuse(send: Send, status: int, message: str) -> None:
    await _start(send, status, _JSON)
    await _body(send, msgspec.json.encode({"error": message}))
    await _end(send)


async def _start(send: Send, status: int, headers: Mapping[str, str]) -> None:
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})


async def _body(send: Send, content: bytes) -> None:
    await send({"type": "http.response.body", "body": content, "more_body": True})


async def _end(send: Send) -> None:
    await send({"type": "http.response.body", "body": b"", "more_body": False})
