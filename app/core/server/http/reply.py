"""Send the response to an inference over ASGI."""

from collections.abc import Callable, Sequence
from typing import Any

from litestar.types import HTTPScope, Send

from app.core.engine.request_context import RequestContext
from app.core.protocols.inference_call import HttpResponse
from app.core.protocols.request_info import BASE_ID_HEADER, REQUEST_ID_HEADER, pending_headers


class Reply:
    """The response to one request."""

    def __init__(self, context: RequestContext, scope: HTTPScope, send: Send, cors: Sequence[tuple[str, str]]) -> None:
        self._context = context
        self._scope = scope
        self._send: Callable[[Any], Any] = send
        self._cors = cors

    @property
    def closes(self) -> bool:
        """Return whether the client wants the connection to be closed after the response."""
        return self._scope["http_version"] == "1.0" or any(
            name == b"connection" and b"close" in value.lower() for name, value in self._scope["headers"]
        )

    async def send(self, answer: HttpResponse) -> None:
        """Send a complete answer."""
        await self.start(answer)
        await self._send({"type": "http.response.body", "body": answer.content, "more_body": False})

    async def start(self, answer: HttpResponse, *, close: bool = False, streamed: bool = False) -> None:
        """Send status and headers. The length of a streamed answer is not known yet."""
        context = self._context
        headers = [
            (b"content-type", answer.media_type.encode()),
            (REQUEST_ID_HEADER.encode(), context.request_id.encode("latin-1")),
        ]
        if not streamed:
            headers.append((b"content-length", b"%d" % len(answer.content)))
        fields = {**dict(answer.headers), **pending_headers(self._scope), **context.response_headers}
        headers += [(name.lower().encode(), value.encode("latin-1")) for name, value in fields.items()]
        headers += [(name.encode(), value.encode("latin-1")) for name, value in self._cors]
        if context.base_id is not None:
            headers.append((BASE_ID_HEADER.encode(), context.base_id.encode("latin-1")))
        if close and "connection" not in fields:
            headers.append((b"connection", b"close"))
        await self._send({"type": "http.response.start", "status": answer.status, "headers": headers})

    async def body(self, part: bytes) -> None:
        """Send a part of the content."""
        await self._send({"type": "http.response.body", "body": part, "more_body": True})

    async def end(self) -> None:
        """End the response."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def with_charset(media_type: str) -> str:
    """Return a media type, with the charset of a text."""
    return f"{media_type}; charset=utf-8" if media_type.startswith("text/") else media_type
