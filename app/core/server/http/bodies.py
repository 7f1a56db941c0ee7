"""Receive the bodies of requests, with limits on their size, their time, and the memory of all of them."""

import asyncio
import math
from collections.abc import Callable
from typing import Any

from litestar.exceptions import HTTPException
from litestar.types import Receive

_MIN_BYTES_PER_SECOND = 1024
"""A body that arrives at least at this rate is never too slow."""

_MIN_BUFFERED_BYTES = 64 * 1024
"""Bytes that the body of a request may always have, even when all bodies together have too many."""


def body_too_large(max_bytes: int) -> str:
    """Return the error for a body of more than `max_bytes`."""
    return f"Expected a body of at most {max_bytes:,} bytes (--max-request-bytes), got more"


class BodyError(HTTPException):
    """A body that is refused: its status is 408, 413 or 503. The connection closes after the answer."""

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
        """Refuse bodies that are incomplete at a time of the event loop, because the server stops."""
        self.end = end
        for timeout in self.waiting:
            timeout.reschedule(min(end, timeout.when() or end))


class Body:
    """The body of one request. Close it when the request is answered.

    Attributes:
        is_complete: whether all of it has arrived.
        size: the bytes that have arrived.
    """

    def __init__(self, bodies: Bodies, receive: Receive) -> None:
        self._bodies = bodies
        self._receive = receive
        self._deadline = 0.0
        # The size at which the deadline is extended.
        self._extends_at = 0
        self.is_complete = False
        self.size = 0

    async def receive(self) -> Any:
        """Return the next ASGI message; this is the `receive` of applications.

        Raise BodyError with 408 or 503 if the body takes too long, 413 if it is too large, 503 if all bodies are.
        """
        if self.is_complete:
            return await self._receive()
        bodies = self._bodies
        if self.size >= self._extends_at:
            self._deadline = asyncio.get_running_loop().time() + bodies.timeout
            self._extends_at = self.size + math.ceil(_MIN_BYTES_PER_SECOND * bodies.timeout)
        deadline = self._deadline
        try:
            async with asyncio.timeout_at(min(deadline, bodies.end)) as timeout:
                bodies.waiting.add(timeout)
                try:
                    message: Any = await self._receive()
                finally:
                    bodies.waiting.discard(timeout)
        except TimeoutError:
            if bodies.end <= deadline:
                raise BodyError(503, "The server stops, and the request has not arrived in full") from None
            bodies.on_timeout()
            raise BodyError(408, "The body of the request arrives too slowly") from None
        self.is_complete = not message.get("more_body", False)
        if part := len(message.get("body", b"")):
            self.size += part
            bodies.size += part
            if self.size > bodies.max_body_bytes:
                raise BodyError(413, body_too_large(bodies.max_body_bytes))
            if bodies.size > bodies.max_bytes and self.size > _MIN_BUFFERED_BYTES:
                raise BodyError(503, "The server has reached its limit of request bytes in memory")
        return message

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
        """Receive and drop what arrives of the rest, so that the client reads its answer before the end."""
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
