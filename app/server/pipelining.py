"""Handle pipelined requests on an HTTP connection: limit the parsed ones, and cancel them after a reset."""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

__all__ = ("PipelinedProtocol",)

_MAX_QUEUED = 32
"""Maximum number of parsed requests in the queue of a connection. Current browsers and clients pipeline none."""

_VERSION = b" HTTP/1."
"""Part of every request line: its occurrences in received bytes limit how many requests begin in them."""


class _FlowControl(FlowControl):
    """Do not resume reading while received bytes wait for the parser."""

    blocked = False

    def resume_reading(self) -> None:
        if not self.blocked:
            super().resume_reading()


class PipelinedProtocol(HttpToolsProtocol):
    """Extend uvicorn's protocol with backpressure on pipelined requests, and track the request in progress.

    Args:
        uvicorn_arguments: the arguments that uvicorn passes to each of its connections.
    """

    def __init__(self, uvicorn_arguments: dict[str, Any]) -> None:
        super().__init__(**uvicorn_arguments)
        self._flow_control: _FlowControl
        self._current_cycle: RequestResponseCycle | None = None
        self._unparsed = b""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Start to serve the connection."""
        super().connection_made(transport)
        self.flow = self._flow_control = _FlowControl(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the request in progress and drop queued ones: uvicorn cancels only the newest."""
        self.pipeline.clear()
        self._unparsed = b""
        cycle = self._current_cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, up to the limit of queued requests."""
        if self._unparsed:
            self._unparsed += data
        else:
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        """Pass bytes to `_received` until the queue is full; then keep the rest and pause reading."""
        start, size = 0, len(data)
        while start < size and not self.transport.is_closing():
            free_slots = _MAX_QUEUED - len(self.pipeline)
            if free_slots <= 0:
                self._unparsed = data[start:]
                self.flow.pause_reading()
                self._flow_control.blocked = True
                return
            end = _end_of_requests(data, start, free_slots)
            self._received(data if end - start == size else data[start:end])
            start = end

    def _received(self, data: bytes) -> None:
        """Parse bytes that start no more requests than the queue can take."""
        super().data_received(data)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._current_cycle = cycle
        super()._start_asgi_task(cycle, app)

    def _answer_next(self) -> None:
        """Start the oldest queued request, and parse more received bytes."""
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        if self._unparsed and len(self.pipeline) <= _MAX_QUEUED // 2:
            data, self._unparsed = self._unparsed, b""
            self._flow_control.blocked = False
            self._parse(data)
        self.flow.resume_reading()

    def _newest_unanswered(self) -> RequestResponseCycle | None:
        """Return the newest complete request without a response; drop an incomplete request from the queue."""
        newest = cast("RequestResponseCycle | None", self.cycle)
        if newest is not None and newest.more_body and self.pipeline:
            self.pipeline.popleft()
            newest = self.cycle = self.pipeline[0][0] if self.pipeline else cast("Any", self._current_cycle)
        if newest is None or newest.response_complete or newest.more_body:
            return None
        return newest


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
