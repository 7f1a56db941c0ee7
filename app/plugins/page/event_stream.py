"""Stream snapshots as server-sent events, one a second."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import parse_qs

import msgspec
from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send

from app.core.engine.engine import Engine
from app.plugins.page.page_files import HEADERS
from app.plugins.page.snapshot import WINDOWS, Snapshot, take_snapshot, with_model_detail
from app.plugins.page.trends import Trends

MAX_STREAMS = 32

# Sample shortly after each second, so that this second is complete.
_OFFSET_SECONDS = 0.02
_HEADERS = {**HEADERS, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
_RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]


class EventStream:
    """Serve the event stream as an ASGI application. Query: `window`, a key of `WINDOWS`, and `model`, for details.

    Streams above `max_streams` are rejected with 503. A client that does not read for `send_timeout` seconds is
    disconnected.
    """

    def __init__(
        self, engine: Engine, trends: Trends, max_streams: int = MAX_STREAMS, send_timeout: float = 10.0
    ) -> None:
        self.open_streams = 0
        self._engine = engine
        self._trends = trends
        self._max_streams = max_streams
        self._send_timeout = send_timeout
        self._stopping = asyncio.Event()
        # Use a separate thread: the event loop only moves bytes, and the workers run inferences.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="page")
        self._snapshots: dict[str, Snapshot] = {}
        self._snapshot_second = -1

    def stop(self) -> None:
        """End all streams and reject further ones. Call it in the event loop."""
        self._stopping.set()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        query = parse_qs(scope["query_string"].decode("latin-1"))
        window, model = query.get("window", ["60s"])[0], query.get("model", [""])[0]
        if scope["type"] != "http" or scope["method"] != "GET":
            await _rejection(405, "Only GET is served here", {"Allow": "GET"})(scope, receive, send)
        elif window not in WINDOWS:
            await _rejection(400, f"Expected window to be one of {', '.join(WINDOWS)}")(scope, receive, send)
        elif self._stopping.is_set():
            await _rejection(503, "The server is stopping")(scope, receive, send)
        elif self.open_streams >= self._max_streams:
            message = f"The page is already open {self.open_streams} times; close another tab"
            await _rejection(503, message)(scope, receive, send)
        else:
            self.open_streams += 1
            try:
                await self._stream(receive, send, window, model)
            finally:
                self.open_streams -= 1

    async def _stream(self, receive: Receive, send: Send, window: str, model: str) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _RAW_HEADERS})
        disconnect_task = asyncio.ensure_future(_wait_for_disconnect(receive))
        send_task = asyncio.ensure_future(self._send_events(send, window, model))
        stop_task = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({disconnect_task, send_task, stop_task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (disconnect_task, send_task, stop_task):
                task.cancel()
            _, failure, _ = await asyncio.gather(disconnect_task, send_task, stop_task, return_exceptions=True)
        if isinstance(failure, Exception) and not isinstance(failure, (TimeoutError, RuntimeError)):
            raise failure
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await _body(send, b"", more=False)

    async def _send_events(self, send: Send, window: str, model: str) -> None:
        loop = asyncio.get_running_loop()
        while True:
            event = await loop.run_in_executor(self._thread, self._event, window, model)
            # Before Python 3.12, `wait_for` loses a cancellation in the moment in which the body is sent.
            async with asyncio.timeout(self._send_timeout):
                await _body(send, event)
            await asyncio.sleep(1 + _OFFSET_SECONDS - self._trends.age % 1)

    def _event(self, window: str, model: str) -> bytes:
        """Return the event of this second. The part that all clients share is made once."""
        second = int(self._trends.age)
        if second != self._snapshot_second:
            self._snapshots, self._snapshot_second = {}, second
        if window not in self._snapshots:
            self._snapshots[window] = take_snapshot(self._engine, self._trends, window)
        return (
            b"data: " + msgspec.json.encode(with_model_detail(self._trends, self._snapshots[window], model)) + b"\n\n"
        )


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _rejection(status: int, message: str, headers: Mapping[str, str] | None = None) -> ASGIResponse:
    body = msgspec.json.encode({"error": message})
    return ASGIResponse(body=body, status_code=status, headers={**HEADERS, **(headers or {})})


async def _body(send: Send, content: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": content, "more_body": more})
