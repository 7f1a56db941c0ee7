"""Reject requests by their headers while the server is overloaded."""

from collections.abc import Callable
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from app.engine.admission import ARRIVED
from app.server.connections import Connections
from app.server.framing import Head, RefusedError
from app.server.pipelining import PipelinedProtocol

__all__ = ("MAX_DRAINED_BYTES", "SheddingConnection")

MAX_DRAINED_BYTES = 1024 * 1024
"""Maximum size of a rejected body that is drained. Closing the connection is cheaper for the client above that."""


class SheddingConnection(PipelinedProtocol):
    """Extend uvicorn's connection so that it can reject a request once its headers are complete.

    Args:
        connections: holds the `LoadShedder`, if there is one.
        of_server: the arguments that uvicorn passes to each of its connections.

    Attributes:
        draining: whether the current body belongs to a rejected request.
    """

    def __init__(self, connections: Connections, of_server: dict[str, Any]) -> None:
        super().__init__(of_server)
        self._connections = connections
        self._head = Head(connections.settings.max_header_bytes, connections.settings.max_header_fields)
        self._arrival: Callable[[], object] | None = None
        self.draining = False

    @property
    def _last(self) -> RequestResponseCycle | None:
        """Return the newest request."""
        return cast("RequestResponseCycle | None", self.cycle)

    def is_shed(self) -> bool:
        """Reject the request whose headers are complete if the server is overloaded, and drain its body.

        Returns:
            Whether the request was rejected. An accepted request counts until it is admitted or answered.

        Raises:
            RefusedError: if its body is too large to drain.
        """
        shedder, cycle, parser = self._connections.shedder, self._last, cast("Any", self.parser)
        if shedder is None or parser.should_upgrade() or not (cycle is None or cycle.response_complete):
            return False
        path = self.url.partition(b"?")[0]
        found = shedder.find(parser.get_method(), self.server[1] if self.server else None, path)
        # A web page can read the error only with the CORS headers that the framework adds.
        if found is None or any(name == b"origin" for name, _ in self.headers):
            return False
        size = self._head.body_length()
        drained = size is not None and size <= MAX_DRAINED_BYTES and not self.expect_100_continue
        close = not (drained and self._connections.until is None and parser.should_keep_alive())
        response = shedder.refusal(*found, self.headers, close=close)
        if response is None:
            if size != 0 and (expect := found[0].expect) is not None:
                self._arrival = expect()
                ARRIVED.set(self._arrival)
            return False
        if close:
            raise RefusedError(429, "", response=response)
        self.draining = True
        self.server_state.total_requests += 1
        self.transport.write(response)
        return True

    def rest(self) -> None:
        """Pause reading, which limits the share of time that rejections take."""
        shedder = self._connections.shedder
        if shedder is not None and (pause := shedder.pause()):
            self.flow.pause_reading()
            self.loop.call_later(pause, self._resume_reading)

    def _resume_reading(self) -> None:
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def arrived(self) -> None:
        """Stop counting the body of the newest request as expected."""
        if self._arrival is not None:
            self._arrival()
            self._arrival = None
