"""Reject requests by their headers while the server is overloaded."""

from collections.abc import Callable

from app.engine.scheduling.admission import BODY_ARRIVED
from app.server.transport.connection_table import ConnectionTable
from app.server.transport.load_shedding import Route
from app.server.transport.pipelining import PipelinedProtocol, ServedApplication
from app.server.transport.request_head import RefusedError, RequestHead

__all__ = ("MAX_DRAINED_BYTES", "SheddingConnection")

MAX_DRAINED_BYTES = 1024 * 1024
"""Maximum size of a rejected body that is drained. Closing the connection is cheaper for the client above that."""


class SheddingConnection(PipelinedProtocol):
    """Extend a connection so that it can reject a request once its headers are complete.

    Args:
        connections: the connection table, which holds the `LoadShedder` if there is one.
        served: the application.

    Attributes:
        draining: whether the current body belongs to a rejected request.
        expects_continue: whether the client waits for an interim response before it sends the body.
        header_map: headers of the newest request, names in lower case.
        route_and_target: the inference route of the newest request; None if it has another, or if others precede it.
    """

    def __init__(self, connections: ConnectionTable, served: ServedApplication) -> None:
        super().__init__(served)
        self._connections = connections
        self._request_head = RequestHead(connections.settings.max_header_bytes, connections.settings.max_header_fields)
        self._on_body_arrived: Callable[[], object] | None = None
        self.draining = False
        self.expects_continue = False
        self.header_map: dict[bytes, bytes] = {}
        self.route_and_target: tuple[Route, str] | None = None

    def reject_if_overloaded(self) -> bool:
        """Reject the request whose headers are complete if the server is overloaded, and drain its body.

        Returns:
            Whether the request was rejected. An accepted request counts until it is admitted or answered.

        Raises:
            RefusedError: if its body is too large to drain.
        """
        self.route_and_target = None
        shedder = self._connections.shedder
        newest, parser = self.newest, self.parser
        if shedder is None or parser.should_upgrade() or not (newest is None or newest.response_complete):
            return False
        path = self.url.partition(b"?")[0]
        self.route_and_target = route_and_target = shedder.find_route(
            parser.get_method(), self._server[1] if self._server else None, path
        )
        # A web page can read the error only with the CORS headers that the framework adds.
        if route_and_target is None or b"origin" in self.header_map:
            return False
        body_size = self._request_head.body_length
        can_drain = body_size is not None and body_size <= MAX_DRAINED_BYTES and not self.expects_continue
        close = not (can_drain and self._connections.reject_incomplete_at is None and parser.should_keep_alive())
        response = shedder.refusal(*route_and_target, self.headers, close=close)
        if response is None:
            if body_size != 0 and (track_arrival := route_and_target[0].track_arrival) is not None:
                self._on_body_arrived = track_arrival()
                BODY_ARRIVED.set(self._on_body_arrived)
            return False
        if close:
            raise RefusedError(429, "", response=response)
        self.draining = True
        self.server_state.total_requests += 1
        self.transport.write(response)
        return True

    def throttle(self) -> None:
        """Pause reading, which limits the share of time that rejections take."""
        shedder = self._connections.shedder
        if shedder is not None and (pause := shedder.pause()):
            self.flow.pause_reading()
            self.loop.call_later(pause, self._resume_reading)

    def _resume_reading(self) -> None:
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def mark_body_arrived(self) -> None:
        """Stop counting the body of the newest request as arriving."""
        if self._on_body_arrived is not None:
            self._on_body_arrived()
            self._on_body_arrived = None
