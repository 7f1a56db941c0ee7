"""Serve one HTTP connection, with limits on sizes, memory and waiting times."""

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from app.core.engine.scheduling.admission import BODY_ARRIVED
from app.core.server.auth.credentials import ACCESS_RESULT, AccessError
from app.core.server.http.direct_request import DirectRequest
from app.core.server.transport import tcp_info
from app.core.server.transport.connection_table import ConnectionTable, Listener
from app.core.server.transport.load_shedding import Route
from app.core.server.transport.pipelining import PipelinedProtocol
from app.core.server.transport.request_parser import RefusedError, RequestParser, raw_response
from app.core.server.transport.timeouts import ConnectionTimeouts, current_phase, transferred_bytes

_MIN_BUFFERED_BYTES = 64 * 1024
"""Bytes of bodies that a connection may always hold, even when all connections together hold too much."""

_MAX_UNREAD_BYTES = 64 * 1024
"""Bytes of a body in memory that the application has not read, beyond which the connection is not read."""

_MAX_DRAINED_BYTES = 1024 * 1024
"""Maximum size of a rejected body that is drained. Closing the connection is cheaper for the client above that."""

_ARRIVAL_SECONDS = 1.0
"""Seconds in which a request that was on its way at the start of the shutdown must arrive."""


class Connection(PipelinedProtocol):
    """Handle the requests of one connection.

    Args:
        connections: the connection table, which has admitted it already.
        address: IP address of the client.

    Attributes:
        draining: whether the body of a rejected request is read and dropped.
        read_closed: whether no further request is read.
    """

    def __init__(
        self, connections: ConnectionTable, listener: Listener, client_socket: socket.socket, address: str
    ) -> None:
        super().__init__(connections, listener, client_socket)
        settings = connections.settings
        self.parser = RequestParser(
            settings.max_header_bytes, settings.max_header_fields, self._on_head, self._on_body, self._on_end
        )
        self._address = address
        self._timeouts = ConnectionTimeouts(settings)
        self._slot: set[Connection] = set()
        self.read_closed = False
        self._discarded_bytes = 0
        self._buffered_bytes = 0
        self.draining = False
        self._on_body_arrived: Callable[[], object] | None = None
        self._direct: DirectRequest | None = None
        self._tasks = connections.tasks

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._slot = self.connections.schedule_checks(self)
        if self.connections.reject_incomplete_at is not None:
            # The server is already stopping, and `shutdown` was called only on older connections.
            self.loop.call_later(_ARRIVAL_SECONDS, super().shutdown)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._slot.discard(self)
        self._release_buffered_bytes()
        self.mark_body_arrived()
        self._tasks.discard(self._current)
        self.connections.release(self._address)

    def _received(self, data: memoryview) -> None:
        if self.read_closed:
            self._discarded_bytes += len(data)
            if self._discarded_bytes > _MAX_DRAINED_BYTES:
                self.pause_reading()
            return
        try:
            self.parser.feed(data)
        except RefusedError as error:
            self._refuse(error)

    # Parts of a request.

    def _on_head(self) -> None:
        """Reject the request whose headers are complete, answer it directly, or pass it to the application."""
        parser = self.parser
        headers = dict(parser.headers)
        expects_continue = headers.get(b"expect", b"").lower() == b"100-continue"
        newest, route_and_target = self.newest, None
        # Requests behind others wait for the application.
        if not parser.is_upgrade and (newest is None or newest.response_complete):
            route_and_target = self.listener.routes.find(parser.method, parser.url.partition(b"?")[0])
        self._direct = None
        # A web page can read an error only with the CORS headers that the framework adds.
        if (
            route_and_target is not None
            and b"origin" not in headers
            and self._reject_if_overloaded(*route_and_target, expects_continue=expects_continue)
        ):
            return
        state: dict[str, Any] = {}
        try:
            try:
                is_direct = route_and_target is not None and self._start_directly(*route_and_target, headers)
            except AccessError as error:
                # The application counts, logs and reports it, without a second verification.
                is_direct, state = False, {ACCESS_RESULT: error}
            if not is_direct:
                self._start_in_application(state, waiting_for_100_continue=expects_continue)
        finally:
            BODY_ARRIVED.set(None)
        if self.connections.reject_incomplete_at is not None and self.newest is not None:
            self.newest.keep_alive = False

    def _on_body(self, body: bytes) -> None:
        size = len(body)
        self.parser.body_bytes += size
        newest = self.newest
        if self.draining or newest is None or newest.response_complete:
            return
        self._buffered_bytes += size
        self.connections.buffered_bytes += size
        if (
            self.connections.buffered_bytes > self.connections.settings.max_received_bytes
            and self._buffered_bytes > _MIN_BUFFERED_BYTES
        ):
            raise RefusedError(503, "The server has reached its limit of request bytes in memory", "full")
        newest.body += body
        if newest is self._direct:
            return
        if len(newest.body) > _MAX_UNREAD_BYTES:
            self.pause_reading()
        newest.notify()

    def _on_end(self) -> None:
        if self.draining:
            self.draining = False
            self._throttle()
        elif self.newest is not None and not self.newest.response_complete:
            self.newest.complete_body()

    def _reject_if_overloaded(self, route: Route, target: str, *, expects_continue: bool) -> bool:
        """Reject the newest request if the server is overloaded, and drain its body. Return whether it is rejected.

        An accepted request counts until it is admitted or answered.

        Raises:
            RefusedError: if its body is too large to drain.
        """
        parser, overload = self.parser, route.overload(target)
        body_size = parser.body_length
        if overload is None:
            if body_size != 0 and route.track_arrival is not None:
                self._on_body_arrived = route.track_arrival()
                BODY_ARRIVED.set(self._on_body_arrived)
            return False
        can_drain = body_size is not None and body_size <= _MAX_DRAINED_BYTES and not expects_continue
        close = not (can_drain and self.connections.reject_incomplete_at is None and parser.keep_alive)
        response = self.connections.shedder.refusal(route, target, overload, parser.headers, close=close)
        if close:
            raise RefusedError(429, "", response=response)
        self.draining = True
        self.transport.write(response)
        return True

    def _throttle(self) -> None:
        """Pause reading, which limits the share of time that rejections take."""
        if pause := self.connections.shedder.pause():
            self.pause_reading()
            self.loop.call_later(pause, lambda: None if self.transport.is_closing() else self.resume_reading())

    def _start_directly(self, route: Route, target: str, headers: dict[bytes, bytes]) -> bool:
        """Answer the request without the application if possible. Return whether it is."""
        routes, direct, parser = self.connections.direct_routes, route.direct, self.parser
        if routes is None or direct is None or len(headers) != len(parser.headers) or parser.version != "1.1":
            return False
        client = routes.client_of(direct, parser.url, headers, parser.body_length)
        if client is None:
            return False
        query = parser.url.partition(b"?")[2]
        request = DirectRequest(
            routes, direct, target, query, parser.headers, client, self, keep_alive=parser.keep_alive
        )
        self._direct = self.newest = self._current = request
        self._tasks.add(request)
        return True

    def mark_body_arrived(self) -> None:
        """Stop counting the body of the newest request as arriving."""
        if self._on_body_arrived is not None:
            self._on_body_arrived()
            self._on_body_arrived = None

    def pass_to_application(self, direct: DirectRequest, body: bytes) -> None:
        """Let the application answer a direct request whose body is complete."""
        self._tasks.discard(direct)
        self._direct = self.newest = None
        BODY_ARRIVED.set(self._on_body_arrived)
        try:
            request = self._start_in_application({ACCESS_RESULT: direct.client}, waiting_for_100_continue=False)
        finally:
            BODY_ARRIVED.set(None)
        request.keep_alive = direct.keep_alive
        request.body += body
        request.complete_body()

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
        self._release_buffered_bytes()
        if self._on_body_arrived is not None:
            self.mark_body_arrived()
        if not self.transport.is_closing() and (self.pipeline or self._unparsed or self.read_paused):
            self._answer_next()

    # Timeouts.

    def check_timeout(self, now: float) -> None:
        """End the connection if the client has exceeded a timeout; `now` is the time of the event loop."""
        if (
            self.connections.reject_incomplete_at is not None
            and now >= self.connections.reject_incomplete_at
            and self.parser.in_message
            and not self.read_closed
        ):
            self._refuse(RefusedError(503, "The server stops, and the request has not arrived in full"))
            return
        expired_phase = self._timeouts.expired_phase(
            now, current_phase(self), self.parser.message_count, partial(transferred_bytes, self)
        )
        if expired_phase is None:
            return
        if expired_phase == "closing":
            # The server has closed its side and does not wait for the client to close.
            self.transport.abort()
            return
        self.connections.count_ended(expired_phase)
        match expired_phase:
            case "headers":
                self._refuse(RefusedError(408, "The headers of the request took too long to arrive"))
            case "body":
                self._refuse(RefusedError(408, "The body of the request arrives too slowly"))
            case "answer":
                tcp_info.reset_when_closed(self.socket)
                self.transport.abort()
            case _:
                self.transport.close()

    # Shutdown and rejection.

    def shutdown(self) -> None:
        """Stop the connection; a request that has already reached the kernel is served if the rest arrives soon."""
        if self.parser.in_head or tcp_info.unread_bytes(self.socket):
            self.loop.call_later(_ARRIVAL_SECONDS, super().shutdown)
        else:
            super().shutdown()

    def _refuse(self, error: RefusedError) -> None:
        """Reject a request that is invalid or too slow, and stop reading."""
        self.read_closed = True
        if error.reason:
            self.connections.count_ended(error.reason)
        newest = self.drop_incomplete()
        if newest is not None and not newest.response_complete:
            if not newest.more_body:
                # The response to an earlier request is still in progress and must not be mixed with this one.
                newest.keep_alive = False
                return
            if newest.response_started:
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
        self.connections.buffered_bytes -= self._buffered_bytes
        self._buffered_bytes = 0
