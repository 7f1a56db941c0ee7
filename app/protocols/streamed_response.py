"""Return a response that is sent while the model generates it."""

from collections.abc import AsyncGenerator
from typing import Any

from litestar.background_tasks import BackgroundTask
from litestar.response import Stream

EVENT_STREAM = "text/event-stream"

# Proxies and caches must forward each part at once.
_UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def streamed_response(
    parts: AsyncGenerator[bytes], source: AsyncGenerator[Any], media_type: str = EVENT_STREAM
) -> Stream:
    """Return a response of `parts`, and close `source` when the response or the connection ends."""
    # Litestar stops iterating when the client disconnects; close the generator at once, not at garbage collection.
    return Stream(parts, media_type=media_type, headers=_UNBUFFERED, background=BackgroundTask(source.aclose))


def event(data: bytes) -> bytes:
    """Return a server-sent event."""
    return b"data: " + data + b"\n\n"
