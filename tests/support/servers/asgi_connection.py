"""Send one HTTP request to an application over raw ASGI."""

import asyncio
from typing import Any

from litestar.types import Message


def body(content: bytes = b"", *, more: bool = False) -> dict[str, Any]:
    """Return a message with a body, or with a part of it."""
    return {"type": "http.request", "body": content, "more_body": more}


class Connection:
    """Send one HTTP request to an application directly, to see each message when it is sent.

    Args:
        path: where the request goes.
        messages: what the application receives, before it waits for the client to disconnect.
        headers: of the request.
        method: of the request.
        query: of the request, without the question mark.

    Attributes:
        disconnected: set when the client has left, or the response is complete.
        sent: the messages of the response that no test has taken yet.
        messages: all messages of the response.
    """

    def __init__(
        self,
        path: str,
        *messages: dict[str, Any],
        headers: tuple[tuple[bytes, bytes], ...] = (),
        method: str = "POST",
        query: str = "",
    ) -> None:
        self._received = list(messages)
        self.disconnected = asyncio.Event()
        self.sent: asyncio.Queue[Message] = asyncio.Queue()
        self.messages: list[Any] = []
        self._scope: dict[str, Any] = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": method,
            "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(b"host", b"127.0.0.1"), *headers], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
            "state": {},
        }  # fmt: skip

    async def receive(self) -> Any:
        if self._received:
            return self._received.pop(0)
        await self.disconnected.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.messages.append(message)
        await self.sent.put(message)
        if message["type"] == "http.response.body" and not message["more_body"]:
            self.disconnected.set()

    async def run(self, app: Any) -> None:
        await app(self._scope, self.receive, self.send)

    @property
    def status(self) -> int:
        return self.messages[0]["status"]

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.messages[1:])
