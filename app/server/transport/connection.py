"""Serve one HTTP connection, with limits on sizes, memory and waiting times."""

import asyncio
import socket
from typing import Any

import httptools

from app.engine.scheduling.admission import BODY_ARRIVED
from app.server.auth.identity import ACCESS_ERROR, AccessError
from app.server.http.direct_request import DirectRequest
from app.server.transport import tcp_info
from app.server.transport.connection_table import ConnectionTable, TimedConnection
from app.server.transport.pipelining import ServedApplication
from app.server.transport.raw_response import raw_response
from app.server.transport.request_head import RefusedError, split_absolute_target
from app.server.transport.shedding_connection import MAX_DRAINED_BYTES, SheddingConnection
from app.server.transport.timeouts import ConnectionTimeouts

__all__ = ("Connection",)

_MIN_BUFFERED_BYTES = 64 * 1024
"""Bytes of bodies that a connection may always hold, even when all connections together hold too much."""

_MAX_UNREAD_BYTES = 64 * 1024
"""Bytes of a body in memory that the application has not read, beyond which the connection is not read."""

_OVERHEAD_FACTOR = 8
"""Allowed bytes of chunk framing for each byte of a body: a chunk of one byte has five."""

_ARRIVAL_SECONDS = 1.0
"""Seconds in which a request that was on its way at the start of the shutdown must arrive."""

_CONTINUE_RESPONSE = b"HTTP/1.1 100 Continue\r\n\r\n"
_PROBE_SECONDS = 0.05


class Connection(SheddingConnection):
    """Handle the requests of one connection.

    Args:
        connections: the connection table, which has admitted it already.
        client_socket: the socket.
        address: IP address of the client.
        served: the application.
    """

    def __init__(
        self,
        connections: ConnectionTable,
        client_socket: socket.socket,
        address: str,
        served: ServedApplication,
    ) -> None:
        super().__init__(connections, served)
        settings = connections.settings
        self._socket = client_socket
        self._address = address
        self._max_header_bytes = settings.max_header_bytes
        self._timeouts = ConnectionTimeouts(settings)
        self._slot: set[TimedConnection] = set()
        self._message_count = 0
        self._in_head = False
        self._in_message = False
        self._resuming = False
        self._read_closed = False
        self._discarded_bytes = 0
        self._body_bytes = 0
        self._overhead_bytes = 0
        self._buffered_bytes = 0
        self._direct: DirectRequest | None = None
        # The server waits for what this set contains, and cancels what takes too long.
        self._tasks: set[Any] = served.server_state.tasks

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._slot = self._connections.schedule_checks(self)
        if self._connections.reject_incomplete_at is not None:
            # The server is already stopping, and `shutdown` was called only on older connections.
            self.loop.call_later(_ARRIVAL_SECONDS, super().shutdown)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._slot.discard(self)
        self._release_buffered_bytes()
        self.mark_body_arrived()
        self._tasks.discard(self._direct)
        self._connections.release(self._address)

    def _received(self, data: bytes) -> None:
        if self._read_closed:
            self._discarded_bytes += len(data)
            if self._discarded_bytes > MAX_DRAINED_BYTES:
                self.flow.pause_reading()
            return
        previous_body_bytes, previous_message_count, was_in_head, was_in_message = (
            self._body_bytes,
            self._message_count,
            self._in_head,
            self._in_message,
        )
        try:
            unparsed = data
            while unparsed:
                try:
                    self.parser.feed_data(unparsed)
                    break
                except httptools.HttpParserUpgrade as upgrade:
                    unparsed = unparsed[upgrade.args[0] :]
                    self._ignore_upgrade()
            if not self._in_message:
                return
            # Limit bytes that are in neither a header nor a body yet: an unfinished line, or chunk extensions.
            if self._in_head:
                if self._message_count == previous_message_count + (not was_in_message):
                    self._request_head.count_received(len(data))
            elif previous_message_count == self._message_count and not was_in_head:
                self._overhead_bytes += len(data) - (self._body_bytes - previous_body_bytes)
                if self._overhead_bytes > self._max_header_bytes + _OVERHEAD_FACTOR * self._body_bytes:
                    raise RefusedError(400, "The chunks of the body are mostly not the body", "chunks")
        except RefusedError as error:
            self._refuse(error)
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(
                cause if isinstance(cause, RefusedError) else RefusedError(400, f"Not HTTP: {error}", "malformed")
            )

    def eof_received(self) -> bool:
        """Return whether to keep the connection: the client may still read a response in progress.

        A half-closed connection and a vanished client look the same until the server sends something. A vanished client
        then resets the connection; the other ignores the interim response.
        """
        newest = self._newest_unanswered()
        if newest is None or self.scheme != "http" or newest.http_version != "1.1":
            return False
        # An incomplete request never completes now; its timeouts must not end the requests before it.
        self._in_head = self._in_message = False
        newest.keep_alive = False
        if self._current is not None and not self._current.response_started:
            self.transport.write(_CONTINUE_RESPONSE)
        self.loop.call_later(_PROBE_SECONDS, self._check_half_closed)
        return True

    def _check_half_closed(self) -> None:
        if self.transport.is_closing():
            return
        if tcp_info.is_reset(self._socket):
            self.transport.abort()
        elif tcp_info.unacknowledged_segments(self._socket):
            self.loop.call_later(_PROBE_SECONDS, self._check_half_closed)

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        if self._resuming:
            return
        self.url, self.headers = b"", []
        self._message_count += 1
        self._in_head = self._in_message = True
        self._direct = None
        self._body_bytes = self._overhead_bytes = 0
        self._request_head.reset()

    def on_url(self, url: bytes) -> None:
        if not self._resuming:
            self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._resuming:
            return
        if self._in_head:
            self.headers.append((name.lower(), value))
        else:
            # No handler uses trailers, and they must not count as headers.
            self._request_head.add_trailer(name, value)

    def on_headers_complete(self) -> None:
        if self._resuming:
            return
        self._request_head.check(self.parser.get_method(), self.parser.get_http_version(), self.url, self.headers)
        if not self.url.startswith(b"/"):
            self.url, host = split_absolute_target(self.url)
            self.headers[:] = [(name, host if name == b"host" else value) for name, value in self.headers]
        self.header_map = dict(self.headers)
        self.expects_continue = self.header_map.get(b"expect", b"").lower() == b"100-continue"
        if self.reject_if_overloaded():
            self._in_head = False
            return
        state: dict[str, Any] = {}
        try:
            try:
                is_direct = self._start_directly()
            except AccessError as error:
                # The application counts, logs and reports it, without a second verification.
                is_direct, state = False, {ACCESS_ERROR: error}
            if not is_direct:
                self._start_in_application(state, waiting_for_100_continue=self.expects_continue)
        finally:
            BODY_ARRIVED.set(None)
        self._in_head = False
        if self._connections.reject_incomplete_at is not None and self.newest is not None:
            self.newest.keep_alive = False

    def on_body(self, body: bytes) -> None:
        size = len(body)
        self._body_bytes += size
        newest = self.newest
        if self.draining or newest is None or newest.response_complete:
            return
        self._buffered_bytes += size
        self._connections.buffered_bytes += size
        if (
            self._connections.buffered_bytes > self._connections.settings.max_received_bytes
            and self._buffered_bytes > _MIN_BUFFERED_BYTES
        ):
            raise RefusedError(503, "The server has reached its limit of request bytes in memory", "full")
        newest.body += body
        if newest is self._direct:
            return
        if len(newest.body) > _MAX_UNREAD_BYTES:
            self.flow.pause_reading()
        newest.notify()

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            # The parser skips the body of a request for a protocol upgrade.
            return
        self._in_message = False
        if self.draining:
            self.draining = False
            self.throttle()
            return
        if self.newest is not None and not self.newest.response_complete:
            self.newest.complete_body()

    def _start_directly(self) -> bool:
        """Answer the request without the application if possible. Return whether it is."""
        routes, route_and_target = self._connections.direct_routes, self.route_and_target
        if routes is None or route_and_target is None or (direct := route_and_target[0].direct) is None:
            return False
        headers = self.header_map
        if len(headers) != len(self.headers) or self.parser.get_http_version() != "1.1":
            return False
        client_name = routes.client_of(direct, self.url, headers, self._request_head.body_length)
        if client_name is None:
            return False
        keep_alive = self.parser.should_keep_alive()
        request = DirectRequest(
            routes, direct, route_and_target[1], self.headers, client_name, self, keep_alive=keep_alive
        )
        self._direct = self.newest = self._current = request
        self._tasks.add(request)
        return True

    def finish_direct(self, request: DirectRequest, response: bytes) -> None:
        """Write the response of a direct request, and continue."""
        self._tasks.discard(request)
        if self.transport.is_closing():
            return
        self.transport.write(response)
        if not request.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        self._release_buffered_bytes()
        if self._on_body_arrived is not None:
            self.mark_body_arrived()
        if not self.transport.is_closing() and (self.pipeline or self._unparsed or self.flow.read_paused):
            self._answer_next()

    def _ignore_upgrade(self) -> None:
        """Continue with HTTP/1.1 after a request for an upgrade, as RFC 9110, 7.8 allows."""
        self.parser = self._new_parser()
        self._resuming = True
        try:
            self.parser.feed_data(b"POST / HTTP/1.1\r\n" + self._request_head.framing_header() + b"\r\n\r\n")
        finally:
            self._resuming = False

    # Timeouts.

    def check_timeout(self, now: float) -> None:
        """End the connection if the client has exceeded a timeout; `now` is the time of the event loop."""
        if (
            self._connections.reject_incomplete_at is not None
            and now >= self._connections.reject_incomplete_at
            and self._in_message
            and not self._read_closed
        ):
            self._refuse(RefusedError(503, "The server stops, and the request has not arrived in full"))
            return
        expired_phase = self._timeouts.expired_phase(now, self._current_phase(), self._message_count, self._progress)
        if expired_phase is None:
            return
        if expired_phase == "closing":
            # The server has closed its side and does not wait for the client to close.
            self.transport.abort()
            return
        self._connections.count_ended(expired_phase)
        match expired_phase:
            case "headers":
                self._refuse(RefusedError(408, "The headers of the request took too long to arrive"))
            case "body":
                self._refuse(RefusedError(408, "The body of the request arrives too slowly"))
            case "answer":
                tcp_info.reset_when_closed(self._socket)
                self.transport.abort()
            case _:
                self.transport.close()

    def _current_phase(self) -> str:
        newest = self.newest
        if self.flow.write_paused or self.transport.get_write_buffer_size():
            return "answer"
        if self.transport.is_closing():
            return "answer" if tcp_info.unsent_bytes(self._socket) else "closing"
        if self._read_closed:
            response_pending = newest is not None and not (newest.response_complete or newest.disconnected)
            return "" if response_pending else "lingering"
        if self.flow.read_paused:
            return ""
        if self.draining:
            return "unread"
        if self._in_head:
            return "headers"
        if newest is None:
            return "silent"
        if self._in_message:
            return "unread" if newest.response_complete else "body"
        if not newest.response_complete:
            return ""
        # uvloop does not report encrypted bytes that it cannot send.
        return "answer" if self.scheme == "https" and tcp_info.unsent_bytes(self._socket) else "idle"

    def _progress(self, phase: str) -> int:
        if phase != "answer":
            return self._body_bytes
        acknowledged_bytes = tcp_info.acknowledged_bytes(self._socket)
        return -self.transport.get_write_buffer_size() if acknowledged_bytes is None else acknowledged_bytes

    # Shutdown and rejection.

    def shutdown(self) -> None:
        """Stop the connection; a request that has already reached the kernel is served if the rest arrives soon."""
        if self._in_head or tcp_info.unread_bytes(self._socket):
            self.loop.call_later(_ARRIVAL_SECONDS, super().shutdown)
        else:
            super().shutdown()

    def _refuse(self, error: RefusedError) -> None:
        """Reject a request that is invalid or too slow, and stop reading."""
        self._read_closed = True
        if error.reason:
            self._connections.count_ended(error.reason)
        newest = self.newest
        if newest is not None and not newest.response_complete:
            if self._in_head or not self._in_message:
                # The response to an earlier request is still in progress and must not be mixed with this one.
                newest.keep_alive = False
                return
            if newest.response_started or self.pipeline:
                self.transport.close()
                return
            # Report the disconnect to the application; its response is discarded.
            newest.disconnected = True
            newest.waiting_for_100_continue = False
            newest.notify()
        self._release_buffered_bytes()
        self.transport.write(error.response or raw_response(error.status, error.message, error.retry_after))
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _release_buffered_bytes(self) -> None:
        self._connections.buffered_bytes -= self._buffered_bytes
        self._buffered_bytes = 0
