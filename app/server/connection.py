"""One connection over HTTP: uvicorn's, with bounds on what it may send, hold and wait for."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.server import tcp
from app.server.connections import Connections, Watched
from app.server.framing import Head, RefusedError, origin_form
from app.server.phase import Phase
from app.server.refusal import refusal

__all__ = ("Connection", "connection_factory")

_LITTLE = 64 * 1024
"""Bytes that a connection may hold even when all of them together hold too much."""

_PIPELINED = 32
"""Requests that may wait behind another on one connection. Browsers and clients of today send none ahead."""

_OVERHEAD_FACTOR = 8
"""Bytes of chunking for each byte of a body that are not too much: a chunk of one byte has five."""

_LATE_SECONDS = 1.0
"""In which a request that was on its way when the server began to stop has to arrive."""

_INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
_PROBE_SECONDS = 0.05


class Connection(HttpToolsProtocol):
    """Answers what comes over one connection.

    Args:
        connections: the book that it is in, admitted already.
        accepted: its socket.
        address: of the other side.
        of_server: what uvicorn gives each of its connections.
    """

    def __init__(
        self, connections: Connections, accepted: socket.socket, address: str, of_server: dict[str, Any]
    ) -> None:
        super().__init__(**of_server)
        settings = connections.settings
        self._book = connections
        self._socket = accepted
        self._address = address
        self._most_header_bytes = settings.max_header_bytes
        self._head = Head(settings.max_header_bytes, settings.max_header_fields)
        self._phase = Phase(settings)
        self._slot: set[Watched] = set()
        self._messages = 0
        self._in_head = False
        self._in_message = False
        self._resuming = False
        self._deaf = False
        self._payload = 0
        self._overhead = 0
        self._held = 0

    # What asyncio tells.

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._slot = self._book.watch(self)
        if self._book.until is not None:
            # Whoever told the others that the server stops knew nothing of this one yet.
            self.loop.call_later(_LATE_SECONDS, super().shutdown)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._slot.discard(self)
        self._release()
        self._book.left(self._address)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        before, message, in_head, in_message = self._payload, self._messages, self._in_head, self._in_message
        try:
            self._feed(data)
            if not self._in_message:
                return
            # What neither a header nor a body was made of yet: a line without an end, or a chunk's extensions.
            if self._in_head:
                if self._messages == message + (not in_message):
                    self._head.unread(len(data))
            elif message == self._messages and not in_head:
                self._overhead += len(data) - (self._payload - before)
                if self._overhead > self._most_header_bytes + _OVERHEAD_FACTOR * self._payload:
                    raise RefusedError(400, "The chunks of the body are mostly not the body", "chunks")
        except RefusedError as error:
            self._refuse(error)
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(
                cause if isinstance(cause, RefusedError) else RefusedError(400, f"Not HTTP: {error}", "malformed")
            )

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether to keep the connection: one whose other side may still read the answer that it is owed.

        A side that has only ended what it sends and one that is gone look the same, until something is sent to it: the
        one that is gone resets the connection. An interim answer is nothing to the other.
        """
        cycle = self._last
        if cycle is None or cycle.response_complete or self._in_message or self.scheme != "http":
            return False
        if cycle.scope["http_version"] != "1.1":
            return False
        cycle.keep_alive = False
        if not cycle.response_started:
            self.transport.write(_INTERIM)
        self.loop.call_later(_PROBE_SECONDS, self._probe)
        return True

    @property
    def _last(self) -> RequestResponseCycle | None:
        """The request that came last."""
        return cast("RequestResponseCycle | None", self.cycle)

    def _probe(self) -> None:
        if self.transport.is_closing():
            return
        if tcp.is_reset(self._socket):
            self.transport.abort()
        elif tcp.unacknowledged(self._socket):
            self.loop.call_later(_PROBE_SECONDS, self._probe)

    # What the parser tells.

    def on_message_begin(self) -> None:
        if self._resuming:
            return
        super().on_message_begin()
        self._messages += 1
        self._in_head = self._in_message = True
        self._payload = self._overhead = 0
        self._head.begin()

    def on_url(self, url: bytes) -> None:
        if not self._resuming:
            self._head.came(len(url))
            self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._resuming:
            return
        name = name.lower()
        self._head.field(name, value)
        if not self._in_head:
            # A trailer: nobody here asks for one, and it must not pass for a header.
            return
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._resuming:
            return
        self._head.check(self.parser.get_method(), self.parser.get_http_version())
        if len(self.pipeline) >= _PIPELINED:
            raise RefusedError(429, "Too many requests that wait behind another on one connection", "pipelined")
        if not self.url.startswith(b"/"):
            self.url, host = origin_form(self.url)
            self.headers[:] = [(name, host if name == b"host" else value) for name, value in self.headers]
        super().on_headers_complete()
        self._in_head = False
        if self._book.until is not None:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        size = len(body)
        self._payload += size
        cycle = self.cycle
        if cycle.response_complete:
            return
        self._held += size
        self._book.received += size
        if self._book.received > self._book.settings.max_received_bytes and self._held > _LITTLE:
            raise RefusedError(503, "The server holds as many bytes of requests as it takes", "full")
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            # The parser leaves out the body of whoever asks for another protocol.
            return
        self._in_message = False
        if not self.cycle.response_complete:
            self.cycle.more_body = False
            self.cycle.message_event.set()

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        self._release()
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)

    def _feed(self, data: bytes) -> None:
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                self._stay()
            else:
                return

    def _stay(self) -> None:
        """Go on with HTTP/1.1, as a server may that was asked for another protocol (RFC 9110, 7.8)."""
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._resuming = True
        try:
            self.parser.feed_data(b"POST / HTTP/1.1\r\n" + self._head.framing() + b"\r\n\r\n")
        finally:
            self._resuming = False

    # What time tells.

    def look(self, now: float) -> None:
        """End the connection if the other side has kept it waiting for too long."""
        if self._book.until is not None and now >= self._book.until and self._in_message and not self._deaf:
            self._refuse(RefusedError(503, "The server stops, and the request has not arrived in full"))
            return
        late = self._phase.late(now, self._where(), self._messages, self._moved)
        if late is None:
            return
        if late == "closing":
            # It was told of the end, and is not waited for to agree.
            self.transport.abort()
            return
        self._book.ended(late)
        match late:
            case "headers":
                self._refuse(RefusedError(408, "The headers of the request took too long to arrive"))
            case "body":
                self._refuse(RefusedError(408, "The body of the request arrives too slowly"))
            case "answer":
                tcp.reset_when_closed(self._socket)
                self.transport.abort()
            case _:
                self.transport.close()

    def _where(self) -> str:
        cycle = self._last
        if self.flow.write_paused or self.transport.get_write_buffer_size():
            return "answer"
        if self.transport.is_closing():
            return "answer" if tcp.unsent(self._socket) else "closing"
        if self._deaf:
            owed = cycle is not None and not (cycle.response_complete or cycle.disconnected)
            return "" if owed else "lingering"
        if self.flow.read_paused:
            return ""
        if self._in_head:
            return "headers"
        if cycle is None:
            return "silent"
        if self._in_message:
            return "unread" if cycle.response_complete else "body"
        if not cycle.response_complete:
            return ""
        # What uvloop has encrypted and cannot send it does not tell of.
        return "answer" if self.scheme == "https" and tcp.unsent(self._socket) else "idle"

    def _moved(self, where: str) -> int:
        if where != "answer":
            return self._payload
        taken = tcp.acknowledged(self._socket)
        return -self.transport.get_write_buffer_size() if taken is None else taken

    # How it ends.

    def shutdown(self) -> None:
        """The server stops. What the kernel has of a request already is answered, if the rest comes soon."""
        if self._in_head or tcp.unread(self._socket):
            self.loop.call_later(_LATE_SECONDS, super().shutdown)
        else:
            super().shutdown()

    def _refuse(self, error: RefusedError) -> None:
        """Answer what cannot be a request, or not be one any longer, and read no more of it."""
        self._deaf = True
        if error.reason:
            self._book.ended(error.reason)
        cycle = self._last
        if cycle is not None and not cycle.response_complete:
            if self._in_head or not self._in_message:
                # An answer to an earlier request is still owed, and must not be mixed up with this one.
                cycle.keep_alive = False
                return
            if cycle.response_started or self.pipeline:
                self.transport.close()
                return
            # The application learns that nobody is there, and whatever it answers goes nowhere.
            cycle.disconnected = True
            cycle.waiting_for_100_continue = False
            cycle.message_event.set()
        self._release()
        self.transport.write(refusal(error.status, error.message, error.retry_after))
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _release(self) -> None:
        self._book.received -= self._held
        self._held = 0


def connection_factory(
    connections: Connections, of_server: dict[str, Any]
) -> Callable[[socket.socket, str], asyncio.Protocol]:
    """Makes connections of one server."""
    return lambda accepted, address: cast("asyncio.Protocol", Connection(connections, accepted, address, of_server))
