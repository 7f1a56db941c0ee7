"""Reject requests by their headers while the server is overloaded."""

from collections.abc import Callable
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from app.engine.admission import BODY_ARRIVED
from app.server.connection_table import ConnectionTable
from app.server.pipelining import PipelinedProtocol
from app.server.request_head import RefusedError, RequestHead

__all__ = ("MAX_DRAINED_BYTES", "SheddingConnection")

MAX_DRAINED_BYTES = 1024 * 1024
"""Maximum size of a rejected body that is drained. Closing the connection is cheaper for the client above that."""


class SheddingConnection(PipelinedProtocol):
    """Extend uvicorn's connection so that it can reject a request once its headers are complete.

    Args:
        connections: the connection table, which holds the `LoadShedder` if there is one.
        uvicorn_arguments: the arguments that uvicorn passes to each of its connections.

    Attributes:
        draining: whether the current body belongs to a rejected request.
    """

    def __init__(self, connections: ConnectionTable, uvicorn_arguments: dict[str, Any]) -> None:
        super().__init__(uvicorn_arguments)
        self._connections = connections
        self._request_head = RequestHead(connections.settings.max_header_bytes, connections.settings.max_header_fields)
        self._on_body_arrived: Callable[[], object] | None = None
        self.draining = False

    @property
    def _newest_cycle(self) -> RequestResponseCycle | None:
        """Return the newest request."""
        return cast("RequestResponseCycle | None", self.cycle)

    def reject_if_overloaded(self) -> bool:
        """Reject the request whose headers are complete if the server is overloaded, and drain its body.

        Returns:
            Whether the request was rejected. An accepted request counts until it is admitted or answered.

        Raises:
            RefusedError: if its body is too large to drain.
        """
        shedder, cycle, parser = self._connections.shedder, self._newest_cycle, cast("Any", self.parser)
        if shedder is None or parser.should_upgrade() or not (cycle is None or cycle.response_complete):
            return False
        path = self.url.partition(b"?")[0]
        route_and_target = shedder.find_route(parser.get_method(), self.server[1] if self.server else None, path)
        # A web page can read the error only with the CORS headers that the framework adds.
        if route_and_target is None or any(name == b"origin" for name, _ in self.headers):
            return False
        body_size = self._request_head.body_length()
        can_drain = body_size is not None and body_size <= MAX_DRAINED_BYTES and not self.expect_100_continue
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
