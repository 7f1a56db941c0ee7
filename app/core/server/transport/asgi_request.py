"""A request that the ASGI application answers (ASGI 3.0, HTTP 2.3)."""

import asyncio
import logging
import math
import re
from collections.abc import Mapping, MutableMapping
from typing import Any

from litestar.types import ASGIApp

from app.core.server.transport.request_parser import STATUS_LINES, ConnectionRequest, raw_response

_logger = logging.getLogger(__name__)

_INVALID_NAME = re.compile(rb'[\x00-\x20\x7f()<>@,;:\[\]={}\\"]')
_INVALID_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_WITHOUT_BODY = (204, 304)


class AsgiRequest(ConnectionRequest):
    """Give one request to the application, and write its response, after which the connection continues."""

    def __init__(
        self, scope: dict[str, Any], connection: Any, *, keep_alive: bool, waiting_for_100_continue: bool
    ) -> None:
        super().__init__(
            keep_alive=keep_alive,
            http_version=scope["http_version"],
            waiting_for_100_continue=waiting_for_100_continue,
        )
        self.scope = scope
        self._connection = connection
        self._changed = asyncio.Event()
        self._is_head = scope["method"] == "HEAD"
        self._head: bytes | None = None
        self._chunked = False
        self._missing_bytes = 0.0

    def notify(self) -> None:
        self._changed.set()

    def complete_body(self) -> None:
        self.more_body = False
        self._changed.set()

    async def run(self, app: ASGIApp) -> None:
        """Run the application. A failure before the response is answered with 500; a later one ends the connection."""
        application: Any = app
        try:
            await application(self.scope, self._receive, self._send)
            if not (self.response_complete or self.disconnected):
                raise RuntimeError("The application has not completed its response")
        except BaseException:  # `SystemExit` from a handler must not stop the server
            _logger.exception("request failed", extra={"path": self.scope["path"]})
        if self.response_complete or self.disconnected:
            return
        if not self.response_started:
            self._connection.transport.write(raw_response(500, "Something went wrong in the server; see its log"))
        self._connection.transport.close()

    async def _receive(self) -> dict[str, Any]:
        transport = self._connection.transport
        if self.waiting_for_100_continue and not transport.is_closing():
            transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waiting_for_100_continue = False
        if not self.disconnected and not self.response_complete:
            self._connection.resume_reading()
            await self._changed.wait()
            self._changed.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self.body = bytes(self.body), bytearray()
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if self._connection.write_paused and not self.disconnected:
            await self._connection.wait_writable()
        if self.disconnected:
            return
        kind = message["type"]
        if kind == "http.response.start" and self._head is None:
            self._head = self._start_response(message)
        elif kind == "http.response.body" and self._head is not None and not self.response_complete:
            self._write_body(message.get("body", b""), more_body=message.get("more_body", False))
        else:
            raise RuntimeError(f"The application has sent {kind} at the wrong time")

    def _start_response(self, message: Mapping[str, Any]) -> bytes:
        """Return the head of the response. It is written with the first part of the body, as ASGI requires."""
        self.waiting_for_100_continue = False
        status: int = message["status"]
        lines = [STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
        has_length = sends_close = False
        for name, value in (*self._connection.connections.default_headers, *message.get("headers", ())):
            lower = name.lower()
            if _INVALID_NAME.search(name) or _INVALID_VALUE.search(value):
                raise RuntimeError(f"The application has sent an invalid header: {name!r}")
            if lower == b"content-length":
                self._missing_bytes, has_length = int(value), True
            elif lower == b"connection" and b"close" in value.lower():
                self.keep_alive, sends_close = False, True
            lines.append(b"%s: %s\r\n" % (lower, value))
        if not self.keep_alive and not sends_close:
            lines.append(b"connection: close\r\n")
        if self._is_head:
            self._missing_bytes = 0
        elif self.http_version == "1.0" and not has_length:
            # HTTP/1.0 has no chunks: the end of the connection ends the body.
            self._missing_bytes = math.inf
        elif not (has_length or status in _WITHOUT_BODY):
            self._chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        return b"".join(lines)

    def _write_body(self, body: bytes, *, more_body: bool) -> None:
        parts: list[bytes] = []
        if not self.response_started and self._head is not None:
            parts.append(self._head)
        if self._chunked:
            if body:
                parts += (b"%x\r\n" % len(body), body, b"\r\n")
            if not more_body:
                parts.append(b"0\r\n\r\n")
        elif not self._is_head:
            self._missing_bytes -= len(body)
            if self._missing_bytes < 0:
                raise RuntimeError("The body of the response is longer than its Content-Length")
            parts.append(body)
        self.response_started = True
        transport = self._connection.transport
        transport.write(b"".join(parts))
        if more_body:
            return
        if 0 < self._missing_bytes < math.inf:
            raise RuntimeError("The body of the response is shorter than its Content-Length")
        self.response_complete = True
        self._changed.set()
        if not self.keep_alive:
            transport.close()
        self._connection.on_response_complete()
