"""Serve one HTTP connection: uvicorn's protocol with limits on sizes, memory and waiting times."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from app.engine.admission import ARRIVED
from app.server import tcp
from app.server.connections import Connections, Watched
from app.server.framing import RefusedError, origin_form
from app.server.phase import Phase
from app.server.refusal import refusal
from app.server.shedding import MAX_DRAINED_BYTES, SheddingConnection

__all__ = ("Connection", "connection_factory")

_MIN_HELD_BYTES = 64 * 1024
"""Bytes of bodies that a connection may always hold, even when all connections together hold too much."""

_OVERHEAD_FACTOR = 8
"""Allowed bytes of chunk framing for each byte of a body: a chunk of one byte has five."""

_ARRIVAL_SECONDS = 1.0
"""Seconds in which a request that was on its way at the start of the shutdown must arrive."""

_INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
_PROBE_SECONDS = 0.05


class Connection(SheddingConnection):
    """Handle the requests of one connection.

    Args:
        connections: the connection table, which has admitted it already.
        accepted: the socket.
        address: IP address of the client.
        of_server: the arguments that uvicorn passes to each of its connections.
    """

    def __init__(
        self, connections: Connections, accepted: socket.socket, address: str, of_server: dict[str, Any]
    ) -> None:
        super().__init__(connections, of_server)
        settings = connections.settings
        self._socket = accepted
        self._address = address
        self._max_header_bytes = settings.max_header_bytes
        self._phase = Phase(settings)
        self._slot: set[Watched] = set()
        self._messages = 0
        self._in_head = False
        self._in_message = False
        self._resuming = False
        self._read_closed = False
        self._discarded = 0
        self._payload = 0
        self._overhead = 0
        self._held = 0

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._slot = self._connections.watch(self)
        if self._connections.until is not None:
            # The server is already stopping, and `shutdown` was called only on older connections.
            self.loop.call_later(_ARRIVAL_SECONDS, super().shutdown)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._slot.discard(self)
        self._release()
        self.arrived()
        self._connections.left(self._address)

    def _received(self, data: bytes) -> None:
        if self._read_closed:
            self._discarded += len(data)
            if self._discarded > MAX_DRAINED_BYTES:
                self.flow.pause_reading()
            return
        before, message, in_head, in_message = self._payload, self._messages, self._in_head, self._in_message
        try:
            self._feed(data)
            if not self._in_message:
                return
            # Limit bytes that are in neither a header nor a body yet: an unfinished line, or chunk extensions.
            if self._in_head:
                if self._messages == message + (not in_message):
                    self._head.unread(len(data))
            elif message == self._messages and not in_head:
                self._overhead += len(data) - (self._payload - before)
                if self._overhead > self._max_header_bytes + _OVERHEAD_FACTOR * self._payload:
                    raise RefusedError(400, "The chunks of the body are mostly not the body", "chunks")
        except RefusedError as error:
            self._refuse(error)
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(
                cause if isinstance(cause, RefusedError) else RefusedError(400, f"Not HTTP: {error}", "malformed")
            )

    def eof_received(self) -> bool:  # type: ignore[override]
        """Return whether to keep the connection: the client may still read a response in progress.

        A half-closed connection and a vanished client look the same until the server sends something. A vanished client
        then resets the connection; the other ignores the interim response.
        """
        cycle = self._last_to_answer()
        if cycle is None or self.scheme != "http" or cycle.scope["http_version"] != "1.1":
            return False
        # An incomplete request never completes now; its timeouts must not end the requests before it.
        self._in_head = self._in_message = False
        cycle.keep_alive = False
        if self._current is not None and not self._current.response_started:
            self.transport.write(_INTERIM)
        self.loop.call_later(_PROBE_SECONDS, self._probe)
        return True

    def _probe(self) -> None:
        if self.transport.is_closing():
            return
        if tcp.is_reset(self._socket):
            self.transport.abort()
        elif tcp.unacknowledged(self._socket):
            self.loop.call_later(_PROBE_SECONDS, self._probe)

    # Callbacks of the parser.

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
            # This is a trailer: no handler uses trailers, and they must not pass for headers.
            return
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._resuming:
            return
        self._head.check(self.parser.get_method(), self.parser.get_http_version())
        if not self.url.startswith(b"/"):
            self.url, host = origin_form(self.url)
            self.headers[:] = [(name, host if name == b"host" else value) for name, value in self.headers]
        if self.is_shed():
            self._in_head = False
            return
        try:
            super().on_headers_complete()
        finally:
            ARRIVED.set(None)
        self._in_head = False
        if self._connections.until is not None:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        size = len(body)
        self._payload += size
        if self.draining:
            return
        cycle = self.cycle
        if cycle.response_complete:
            return
        self._held += size
        self._connections.received += size
        if self._connections.received > self._connections.settings.max_received_bytes and self._held > _MIN_HELD_BYTES:
            raise RefusedError(503, "The server has reached its limit of request bytes in memory", "full")
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            # The parser skips the body of a request for a protocol upgrade.
            return
        self._in_message = False
        if self.draining:
            self.draining = False
            self.rest()
            return
        if not self.cycle.response_complete:
            self.cycle.more_body = False
            self.cycle.message_event.set()

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        self._release()
        self.arrived()
        if self.transport.is_closing():
            return
        self._answer_next()

    def _feed(self, data: bytes) -> None:
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                self._ignore_upgrade()
            else:
                return

    def _ignore_upgrade(self) -> None:
        """Continue with HTTP/1.1 after a request for an upgrade, as RFC 9110, 7.8 allows."""
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._resuming = True
        try:
            self.parser.feed_data(b"POST / HTTP/1.1\r\n" + self._head.framing() + b"\r\n\r\n")
        finally:
            self._resuming = False

    # Timeouts.

    def look(self, now: float) -> None:
        """End the connection if the client has exceeded a timeout; `now` is the time of the event loop."""
        if (
            self._connections.until is not None
            and now >= self._connections.until
            and self._in_message
            and not self._read_closed
        ):
            self._refuse(RefusedError(503, "The server stops, and the request has not arrived in full"))
            return
        late = self._phase.late(now, self._current_phase(), self._messages, self._progress)
        if late is None:
            return
        if late == "closing":
            # The server has closed its side and does not wait for the client to close.
            self.transport.abort()
            return
        self._connections.ended(late)
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

    def _current_phase(self) -> str:
        cycle = self._last
        if self.flow.write_paused or self.transport.get_write_buffer_size():
            return "answer"
        if self.transport.is_closing():
            return "answer" if tcp.unsent(self._socket) else "closing"
        if self._read_closed:
            owed = cycle is not None and not (cycle.response_complete or cycle.disconnected)
            return "" if owed else "lingering"
        if self.flow.read_paused:
            return ""
        if self.draining:
            return "unread"
        if self._in_head:
            return "headers"
        if cycle is None:
            return "silent"
        if self._in_message:
            return "unread" if cycle.response_complete else "body"
        if not cycle.response_complete:
            return ""
        # uvloop does not report encrypted bytes that it cannot send.
        return "answer" if self.scheme == "https" and tcp.unsent(self._socket) else "idle"

    def _progress(self, where: str) -> int:
        if where != "answer":
            return self._payload
        taken = tcp.acknowledged(self._socket)
        return -self.transport.get_write_buffer_size() if taken is None else taken

    # Shutdown and rejection.

    def shutdown(self) -> None:
        """Stop the connection; a request that has already reached the kernel is served if the rest arrives soon."""
        if self._in_head or tcp.unread(self._socket):
            self.loop.call_later(_ARRIVAL_SECONDS, super().shutdown)
        else:
            super().shutdown()

    def _refuse(self, error: RefusedError) -> None:
        """Reject a request that is invalid or too slow, and stop reading."""
        self._read_closed = True
        if error.reason:
            self._connections.ended(error.reason)
        cycle = self._last
        if cycle is not None and not cycle.response_complete:
            if self._in_head or not self._in_message:
                # The response to an earlier request is still in progress and must not be mixed with this one.
                cycle.keep_alive = False
                return
            if cycle.response_started or self.pipeline:
                self.transport.close()
                return
            # Report the disconnect to the application; its response is discarded.
            cycle.disconnected = True
            cycle.waiting_for_100_continue = False
            cycle.message_event.set()
        self._release()
        self.transport.write(error.response or refusal(error.status, error.message, error.retry_after))
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _release(self) -> None:
        self._connections.received -= self._held
        self._held = 0


def connection_factory(
    connections: Connections, of_server: dict[str, Any]
) -> Callable[[socket.socket, str], asyncio.Protocol]:
    """Return a function that creates the connections of one server."""
    return lambda accepted, address: cast("asyncio.Protocol", Connection(connections, accepted, address, of_server))
