"""One exchange over ASGI: the body of the request, within limits, and the response, compressed with gzip.

Bodies have limits on their size, their time, and the memory of all of them.
"""

import asyncio
import gzip
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from litestar.config.compression import CompressionConfig
from litestar.datastructures import Headers
from litestar.exceptions import HTTPException
from litestar.middleware.compression import CompressionMiddleware
from litestar.types import HTTPScope, Receive, Scope, Send

from app.core.engine.request_context import RequestContext
from app.core.protocols.inference_call import HttpResponse
from app.core.protocols.request_info import BASE_ID_HEADER, REQUEST_ID_HEADER, RESPONSE_HEADERS

_MIN_BYTES_PER_SECOND = 1024
"""A body that arrives at least at this rate is never too slow."""

_MIN_BUFFERED_BYTES = 64 * 1024
"""Bytes that the body of a request may always have, even when all bodies together have too many."""

# In the state of a request: the server has all of its body, so that nothing has to be waited for.
BODY_ARRIVED = "charioteer_body_arrived"
_MIN_COMPRESSED_BYTES = 1000
_LEVEL = 1
_REFUSED = re.compile(r"gzip\s*;\s*q=0(?:\.0*)?\s*(?:,|$)")
"""Part of Accept-Encoding in which a client rejects gzip (RFC 9110, 12.4.2)."""


def body_too_large(max_bytes: int) -> str:
    """Return the error for a body of more than `max_bytes`."""
    return f"Expected a body of at most {max_bytes:,} bytes (--max-request-bytes), got more"


class BodyError(HTTPException):
    """A body that is rejected: its status is 408, 413 or 503. The connection closes after the response."""

    def __init__(self, status: int, message: str) -> None:
        headers = {"connection": "close"} if status != 503 else {"connection": "close", "retry-after": "1"}
        super().__init__(detail=message, status_code=status, headers=headers)


class DisconnectedError(Exception):
    """The client has left before its body was complete."""


class Bodies:
    """The bodies that arrive at a server, on all of its ports.

    Args:
        max_body_bytes: limit for one body.
        max_bytes: limit for all bodies in memory together.
        timeout: seconds that a body may take, and longer if it arrives at 1,024 bytes a second.
        on_timeout: called for each body that takes longer.

    Attributes:
        size: bytes of all bodies in memory.
    """

    def __init__(
        self,
        max_body_bytes: int,
        max_bytes: float = math.inf,
        timeout: float = 3600.0,
        on_timeout: Callable[[], object] = lambda: None,
    ) -> None:
        self.max_body_bytes = max_body_bytes
        self.max_bytes = max_bytes
        self.timeout = timeout
        self.on_timeout = on_timeout
        self.size = 0
        self.waiting: set[asyncio.Timeout] = set()
        self.end = math.inf

    def reject_incomplete_at(self, end: float) -> None:
        """Reject bodies that are incomplete at a time of the event loop, because the server stops."""
        self.end = end
        for timeout in self.waiting:
            timeout.reschedule(min(end, timeout.when() or end))


class Body(msgspec.Struct, eq=False):
    """The body of one request. Close it after the response.

    Attributes:
        has_arrived: whether the server had all of it at the start, so that no call waits.
        is_complete: whether all of it was received.
        size: the bytes that were received.
    """

    _bodies: Bodies
    _receive: Receive
    has_arrived: bool = False
    _deadline: float = 0.0
    _extends_at: int = 0
    """The size at which the deadline is extended."""
    is_complete: bool = False
    size: int = 0

    async def receive(self) -> Any:
        """Return the next ASGI message; this is the `receive` of applications.

        Raise BodyError with 408 or 503 if the body takes too long, 413 if it is too large, 503 if all bodies are.
        """
        if self.is_complete:
            return await self._receive()
        bodies = self._bodies
        message: Any = await (self._receive() if self.has_arrived else self._receive_in_time())
        self.is_complete = not message.get("more_body", False)
        if part := len(message.get("body", b"")):
            self.size += part
            bodies.size += part
            if self.size > bodies.max_body_bytes:
                raise BodyError(413, body_too_large(bodies.max_body_bytes))
            if bodies.size > bodies.max_bytes and self.size > _MIN_BUFFERED_BYTES:
                raise BodyError(503, "The server has reached its limit of request bytes in memory")
        return message

    async def _receive_in_time(self) -> Any:
        """Return the next ASGI message. Raise BodyError with 408 or 503 if it takes too long."""
        bodies = self._bodies
        if self.size >= self._extends_at:
            self._deadline = asyncio.get_running_loop().time() + bodies.timeout
            self._extends_at = self.size + math.ceil(_MIN_BYTES_PER_SECOND * bodies.timeout)
        deadline = self._deadline
        try:
            async with asyncio.timeout_at(min(deadline, bodies.end)) as timeout:
                bodies.waiting.add(timeout)
                try:
                    return await self._receive()
                finally:
                    bodies.waiting.discard(timeout)
        except TimeoutError:
            if bodies.end <= deadline:
                raise BodyError(503, "The server stops, and the request has not arrived in full") from None
            bodies.on_timeout()
            raise BodyError(408, "The body of the request arrives too slowly") from None

    async def read(self, length: int | None) -> bytes:
        """Return all of the body. `length` is its Content-Length, None without one.

        Raise BodyError as `receive` does, and at once if `length` is too large. Raise DisconnectedError if the client
        leaves.
        """
        if length is not None and length > self._bodies.max_body_bytes:
            raise BodyError(413, body_too_large(self._bodies.max_body_bytes))
        parts: list[bytes] = []
        while not self.is_complete:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise DisconnectedError
            parts.append(message.get("body", b""))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def wait_for_disconnect(self) -> None:
        """Wait until the client disconnects. Call it only after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def drop(self, max_bytes: int, seconds: float) -> None:
        """Receive and drop what arrives of the rest, so that the client reads its response before the end."""
        dropped, deadline = 0, asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout_at(deadline):
                while not self.is_complete and dropped < max_bytes:
                    message: Any = await self._receive()
                    dropped += len(message.get("body", b""))
                    self.is_complete = not message.get("more_body", False)
        except TimeoutError:
            return

    def close(self) -> None:
        """Stop counting the bytes."""
        self._bodies.size -= self.size
        self.size = 0


class Reply(msgspec.Struct, frozen=True, eq=False):
    """The response to one inference, which is sent over ASGI. `cors` are headers for pages of other origins."""

    context: RequestContext
    scope: HTTPScope
    transmit: Callable[[Any], Any]
    cors: Sequence[tuple[str, str]] = ()

    @property
    def closes(self) -> bool:
        """Return whether the client wants the connection to be closed after the response."""
        return self.scope["http_version"] == "1.0" or any(
            name == b"connection" and b"close" in value.lower() for name, value in self.scope["headers"]
        )

    async def start(self, answer: HttpResponse, *, close: bool = False, streamed: bool = False) -> None:
        """Send status and headers. The length of a streamed response is not known yet."""
        context = self.context
        headers = [
            (b"content-type", answer.media_type.encode()),
            (REQUEST_ID_HEADER.encode(), context.request_id.encode("latin-1")),
        ]
        if not streamed:
            headers.append((b"content-length", b"%d" % len(answer.content)))
        added = self.scope["state"].get(RESPONSE_HEADERS, {})
        fields = {**dict(answer.headers), **added, **context.response_headers}
        headers += [(name.lower().encode(), value.encode("latin-1")) for name, value in fields.items()]
        headers += [(name.encode(), value.encode("latin-1")) for name, value in self.cors]
        if context.base_id is not None:
            headers.append((BASE_ID_HEADER.encode(), context.base_id.encode("latin-1")))
        if close and "connection" not in fields:
            headers.append((b"connection", b"close"))
        await self.transmit({"type": "http.response.start", "status": answer.status, "headers": headers})

    async def part(self, content: bytes) -> None:
        """Send a part of the content."""
        await self.transmit({"type": "http.response.body", "body": content, "more_body": True})

    async def end(self, content: bytes = b"") -> None:
        """Send the last part of the content, and end the response."""
        await self.transmit({"type": "http.response.body", "body": content, "more_body": False})


def compressed(encode: Callable[..., HttpResponse], encodings: str, *arguments: Any) -> HttpResponse:
    """Return the result of `encode`, compressed if Accept-Encoding, `encodings`, allows it."""
    answer = encode(*arguments)
    if len(answer.content) < _MIN_COMPRESSED_BYTES or "gzip" not in encodings or _REFUSED.search(encodings):
        return answer
    headers = (*answer.headers, ("content-encoding", "gzip"), ("vary", "Accept-Encoding"))
    return msgspec.structs.replace(answer, content=gzip.compress(answer.content, _LEVEL), headers=headers)


class _Compression(CompressionMiddleware):
    """Compress responses, unless the client rejects gzip with a weight of zero, which Litestar does not read."""

    def create_compression_send_wrapper(self, send: Send, compression_encoding: str, scope: Scope) -> Send:
        is_rejected = _REFUSED.search(Headers.from_scope(scope).get("accept-encoding", ""))
        return send if is_rejected else super().create_compression_send_wrapper(send, compression_encoding, scope)


COMPRESSION = CompressionConfig(
    backend="gzip",
    minimum_size=_MIN_COMPRESSED_BYTES,
    gzip_compress_level=_LEVEL,
    middleware_class=_Compression,
)
"""The same rules for the routes of the framework."""
