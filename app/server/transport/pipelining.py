"""Requests of one HTTP connection in order: run one, keep some parsed ones, and read no more meanwhile."""

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import unquote

import httptools
import msgspec
from litestar.types import ASGIApp
from uvicorn.server import ServerState

from app.server.transport.asgi_request import AsgiRequest
from app.server.transport.flow_control import FlowControl
from app.server.transport.request_head import ConnectionRequest

__all__ = ("PipelinedProtocol", "ServedApplication")

_MAX_QUEUED = 32
"""Maximum number of parsed requests in the queue of a connection. Current browsers and clients pipeline none."""

_VERSION = b" HTTP/1."
"""Part of every request line: its occurrences in received bytes limit how many requests begin in them."""


class ServedApplication(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What the connections of one server share.

    Attributes:
        app: answers the requests.
        lifespan_state: what the application's lifespan adds to the scope of each request.
        server_state: open connections, running requests and the headers of every response.
    """

    app: ASGIApp
    lifespan_state: dict[str, Any]
    server_state: ServerState


class PipelinedProtocol(asyncio.Protocol):
    """Keep the order of requests, with backpressure on pipelined ones. A subclass has the callbacks of the parser.

    Args:
        served: the application.

    Attributes:
        client: address and port of the client.
        flow: the backpressure of the connection.
        headers: headers of the newest request, names in lower case.
        loop: the event loop.
        newest: the request whose headers arrived last.
        parser: the parser of the connection.
        pipeline: parsed requests that wait for the current one, newest first.
        scheme: http or https.
        server_state: state of the server.
        url: path and query of the newest request.
    """

    transport: asyncio.Transport
    flow: FlowControl

    def __init__(self, served: ServedApplication) -> None:
        self._served = served
        self.server_state = served.server_state
        self.loop = asyncio.get_running_loop()
        self.parser = self._new_parser()
        self.client: tuple[str, int] | None = None
        self.scheme = "http"
        self.pipeline: deque[AsgiRequest] = deque()
        self.newest: ConnectionRequest | None = None
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self._server: tuple[str, int] | None = None
        self._current: ConnectionRequest | None = None
        self._unparsed = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.flow = FlowControl(self.transport)
        self._server = _address(transport.get_extra_info("sockname"))
        self.client = _address(transport.get_extra_info("peername"))
        if transport.get_extra_info("sslcontext") is not None:
            self.scheme = "https"
        connections: set[Any] = self.server_state.connections
        connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the request in progress, and drop those that wait."""
        connections: set[Any] = self.server_state.connections
        connections.discard(self)
        self.pipeline.clear()
        self._unparsed = b""
        for request in (self._current, self.newest):
            if request is not None:
                request.disconnected = request.disconnected or not request.response_complete
                request.notify()
        self.flow.resume_writing()
        if exc is None:
            self.transport.close()
        # The parser and the connection refer to each other.
        del self.parser

    def pause_writing(self) -> None:
        self.flow.pause_writing()

    def resume_writing(self) -> None:
        self.flow.resume_writing()

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, up to the limit of queued requests."""
        if self._unparsed:
            self._unparsed += data
        elif not (self.pipeline or self.transport.is_closing()) and data.count(_VERSION) < _MAX_QUEUED:
            self._received(data)
        else:
            self._parse(data)

    def shutdown(self) -> None:
        """Close the connection, after the response to the newest request if there is one."""
        if self.newest is None or self.newest.response_complete:
            self.transport.close()
        else:
            self.newest.keep_alive = False

    def on_response_complete(self) -> None:
        """Continue after a response."""
        raise NotImplementedError

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # Answer a request even if a client sends more after `Connection: close`.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def _parse(self, data: bytes) -> None:
        """Pass bytes to `_received` until the queue is full; then keep the rest and pause reading."""
        start, size = 0, len(data)
        while start < size and not self.transport.is_closing():
            free_slots = _MAX_QUEUED - len(self.pipeline)
            if free_slots <= 0:
                self._unparsed = data[start:]
                self.flow.pause_reading()
                self.flow.blocked = True
                return
            end = _end_of_requests(data, start, free_slots)
            self._received(data if end - start == size else data[start:end])
            start = end

    def _received(self, data: bytes) -> None:
        """Parse bytes that start no more requests than the queue can take."""
        raise NotImplementedError

    def _start_in_application(self, state: Mapping[str, Any], *, waiting_for_100_continue: bool) -> None:
        """Pass the newest request to the application, after those before it; `state` is added to its scope."""
        parser = self.parser
        http_version, url = parser.get_http_version(), httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": http_version,
            "method": parser.get_method().decode("ascii"),
            "scheme": self.scheme,
            "server": self._server,
            "client": self.client,
            "root_path": "",
            "path": unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
            "headers": self.headers,
            "state": {**self._served.lifespan_state, **state},
        }
        request = AsgiRequest(
            scope,
            self.transport,
            self.flow,
            self.server_state.default_headers,
            self.on_response_complete,
            keep_alive=http_version != "1.0" and parser.should_keep_alive(),
            waiting_for_100_continue=waiting_for_100_continue,
        )
        previous, self.newest = self.newest, request
        if previous is None or previous.response_complete:
            self._run(request)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft(request)

    def _run(self, request: AsgiRequest) -> None:
        self._current = request
        task = self.loop.create_task(request.run(self._served.app))
        self.server_state.tasks.add(task)
        task.add_done_callback(self.server_state.tasks.discard)

    def _answer_next(self) -> None:
        """Start the oldest queued request, and parse more received bytes."""
        if self.pipeline:
            self._run(self.pipeline.pop())
        if self._unparsed and len(self.pipeline) <= _MAX_QUEUED // 2:
            data, self._unparsed = self._unparsed, b""
            self.flow.blocked = False
            self._parse(data)
        self.flow.resume_reading()

    def _newest_unanswered(self) -> ConnectionRequest | None:
        """Return the newest complete request without a response; drop an incomplete request from the queue."""
        newest = self.newest
        if newest is not None and newest.more_body and self.pipeline:
            self.pipeline.popleft()
            newest = self.newest = self.pipeline[0] if self.pipeline else self._current
        if newest is None or newest.response_complete or newest.more_body:
            return None
        return newest


def _address(info: Any) -> tuple[str, int] | None:
    """Return the address and the port of a socket; IPv6 has two more fields."""
    return (info[0], info[1]) if info else None


def _end_of_requests(data: bytes, start: int, max_requests: int) -> int:
    """Return the end of a non-empty part from `start` on in which at most `max_requests` requests begin."""
    if len(data) - start <= max_requests * len(_VERSION):
        return len(data)
    end = start
    for _ in range(max_requests):
        position = data.find(_VERSION, end)
        if position < 0:
            return len(data)
        end = position + len(_VERSION)
    return end
