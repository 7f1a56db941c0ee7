"""Requests of one HTTP connection in order: run one, keep some parsed ones, and read no more meanwhile."""

import asyncio
import socket
from collections import deque
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import unquote

import httptools

from app.core.server.transport import tcp_info
from app.core.server.transport.asgi_request import AsgiRequest
from app.core.server.transport.connection_table import ConnectionTable, Listener
from app.core.server.transport.proxy_headers import client_and_scheme
from app.core.server.transport.request_parser import ConnectionRequest, RequestParser

_MAX_QUEUED = 32
"""Maximum number of parsed requests in the queue of a connection. Current browsers and clients pipeline none."""

_CONTINUE_RESPONSE = b"HTTP/1.1 100 Continue\r\n\r\n"
_PROBE_SECONDS = 0.05
"""Seconds between two checks whether a half-closed connection is reset."""

_BLANK_LINE = b"\r\n\r\n"
"""The end of the headers of a request, and of a chunked body."""


class PipelinedProtocol(asyncio.Protocol):
    """Keep the order of requests, with backpressure in both directions. A subclass handles their parsed parts.

    Attributes:
        client: address and port of the client.
        newest: the request whose headers arrived last.
        pipeline: parsed requests that wait for the current one, newest first.
        scheme: http or https.
    """

    transport: asyncio.Transport
    parser: RequestParser

    def __init__(self, connections: ConnectionTable, listener: Listener, client_socket: socket.socket) -> None:
        self.connections = connections
        self.listener = listener
        self.socket = client_socket
        self.loop = asyncio.get_running_loop()
        self.client: tuple[str, int] | None = None
        self.scheme = "http"
        self.pipeline: deque[AsgiRequest] = deque()
        self.newest: ConnectionRequest | None = None
        self.read_paused = False
        self._writable: asyncio.Event | None = None
        self._server: tuple[str, int] | None = None
        self._current: ConnectionRequest | None = None
        self._unparsed = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._server = _address(transport.get_extra_info("sockname"))
        self.client = _address(transport.get_extra_info("peername"))
        if transport.get_extra_info("sslcontext") is not None:
            self.scheme = "https"

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the request in progress, and drop those that wait."""
        self.pipeline.clear()
        self._unparsed = b""
        for request in (self._current, self.newest):
            if request is not None:
                request.disconnected = request.disconnected or not request.response_complete
                request.notify()
        self.resume_writing()
        if exc is None:
            self.transport.close()
        self.parser.close()

    def data_received(self, data: bytes) -> None:
        """Parse received bytes until the queue of requests is full; then keep the rest, and pause reading."""
        if self._unparsed:
            self._unparsed += data
            return
        parser, view, start, size = self.parser, memoryview(data), 0, len(data)
        while start < size and not self.transport.is_closing():
            # In each part, one request begins at most. Bodies are not searched.
            missing = 0 if parser.in_head else (parser.body_length or 0) - parser.body_bytes
            if missing > 0:
                end = start + missing
            elif len(self.pipeline) < _MAX_QUEUED:
                blank_line = data.find(_BLANK_LINE, start)
                end = size if blank_line < 0 else blank_line + len(_BLANK_LINE)
            else:
                self._unparsed = data[start:]
                self.pause_reading()
                return
            self._received(view[start:end])
            start = end

    def eof_received(self) -> bool:
        """Return whether to keep the connection: the client may still read a response in progress.

        A half-closed connection and a vanished client look the same until the server sends something. A vanished client
        then resets the connection; the other ignores the interim response.
        """
        newest = self.drop_incomplete()
        if newest is None or newest.response_complete or newest.more_body:
            return False
        if self.scheme != "http" or newest.http_version != "1.1":
            return False
        # An incomplete request never completes now; its timeouts must not end the requests before it.
        self.parser.in_head = self.parser.in_message = False
        newest.keep_alive = False
        if self._current is not None and not self._current.response_started:
            self.transport.write(_CONTINUE_RESPONSE)
        self.loop.call_later(_PROBE_SECONDS, self._check_half_closed)
        return True

    def _check_half_closed(self) -> None:
        if self.transport.is_closing():
            return
        if tcp_info.is_reset(self.socket):
            self.transport.abort()
        elif tcp_info.unacknowledged_segments(self.socket):
            self.loop.call_later(_PROBE_SECONDS, self._check_half_closed)

    def drop_incomplete(self) -> ConnectionRequest | None:
        """Drop the newest request from the queue if its body has not arrived. Return the newest remaining one."""
        if self.pipeline and self.pipeline[0].more_body:
            self.pipeline.popleft()
            self.newest = self.pipeline[0] if self.pipeline else self._current
        return self.newest

    def pause_reading(self) -> None:
        """Read no more bytes."""
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again, unless received bytes still wait for the parser."""
        if self.read_paused and not self._unparsed:
            self.read_paused = False
            self.transport.resume_reading()

    @property
    def write_paused(self) -> bool:
        """Return whether the client reads too slowly."""
        return self._writable is not None

    def pause_writing(self) -> None:
        self._writable = asyncio.Event()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    async def wait_writable(self) -> None:
        """Wait until the client has read most of what was written, or the connection is lost."""
        if self._writable is not None:
            await self._writable.wait()

    def shutdown(self) -> None:
        """Close the connection, after the response to the newest request if there is one."""
        if self.newest is None or self.newest.response_complete:
            self.transport.close()
        else:
            self.newest.keep_alive = False

    def on_response_complete(self) -> None:
        """Continue after a response."""
        raise NotImplementedError

    def _received(self, data: memoryview) -> None:
        """Parse bytes in which one request begins at most."""
        raise NotImplementedError

    def _start_in_application(self, state: Mapping[str, Any], *, waiting_for_100_continue: bool) -> AsgiRequest:
        """Pass the newest request to the application, after those before it; `state` is added to its scope."""
        parser = self.parser
        url = httptools.parse_url(parser.url)
        path = url.path.decode("ascii")
        client, scheme = client_and_scheme(parser.headers, self.client, self.scheme)
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": parser.version,
            "method": parser.method.decode("ascii"),
            "scheme": scheme,
            "server": self._server,
            "client": client,
            "root_path": "",
            "path": unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
            "headers": parser.headers,
            "state": dict(state),
        }
        request = AsgiRequest(
            scope,
            self,
            keep_alive=parser.version != "1.0" and parser.keep_alive,
            waiting_for_100_continue=waiting_for_100_continue,
        )
        previous, self.newest = self.newest, request
        if previous is None or previous.response_complete:
            self._run(request)
        else:
            self.pause_reading()
            self.pipeline.appendleft(request)
        return request

    def _run(self, request: AsgiRequest) -> None:
        self._current = request
        task = self.loop.create_task(request.run(self.listener.app))
        self.connections.tasks.add(task)
        task.add_done_callback(self.connections.tasks.discard)

    def _answer_next(self) -> None:
        """Start the oldest queued request, and parse more received bytes."""
        if self.pipeline:
            self._run(self.pipeline.pop())
        if self._unparsed and len(self.pipeline) <= _MAX_QUEUED // 2:
            data, self._unparsed = self._unparsed, b""
            self.data_received(data)
        self.resume_reading()


def _address(info: Any) -> tuple[str, int] | None:
    """Return the address and the port of a socket; IPv6 has two more fields."""
    return (info[0], info[1]) if info else None
