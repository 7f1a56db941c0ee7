"""Send one HTTP request to an application over raw ASGI."""

import asyncio
import json
from typing import Any, cast

from litestar import Litestar
from litestar.types import HTTPScope, Message


class Connection:
    """Send one HTTP request to the application directly, to see each message when it is sent."""

    def __init__(self, app: Litestar, path: str, body: object) -> None:
        self._app = app
        self._path = path
        self._body = json.dumps(body).encode()
        self._received = False
        self.disconnected = asyncio.Event()
        self.sent: asyncio.Queue[Message] = asyncio.Queue()

    async def receive(self) -> Any:
        if not self._received:
            self._received = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self.disconnected.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await self.sent.put(message)
        if message["type"] == "http.response.body" and not message["more_body"]:
            self.disconnected.set()

    async def run(self) -> None:
        length = b"%d" % len(self._body)
        headers = {b"host": b"127.0.0.1", b"content-type": b"application/json", b"content-length": length}
        scope: dict[str, Any] = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": "POST",
            "scheme": "http", "path": self._path, "raw_path": self._path.encode(), "query_string": b"",
            "root_path": "", "headers": [*headers.items()], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
            "state": {},
        }  # fmt: skip
        await self._app(cast("HTTPScope", scope), self.receive, self.send)

    async def event(self) -> dict[str, Any]:
        """Return the next event."""
        message = await self.sent.get()
        assert message["type"] == "http.response.body"
        assert message["more_body"]
        head, rest = message["body"].split(b"\n\n")
        assert rest == b""
        return json.loads(head.removeprefix(b"data: "))
