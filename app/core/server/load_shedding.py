"""Reject requests while the server is overloaded: at once, counted together, and at a limited rate.

After an HTTP request was rejected, its connection is not read for a while, and connections are read again at a limited
rate. Requests of a client that ignores `Retry-After` thus wait in its socket buffer.
"""

import asyncio
import time

from app.core.engine.engine import Engine
from app.core.engine.request_context import RequestContext
from tasks.inference.error import ErrorKind, InferenceError

_RESUMES_PER_SECOND = 125
"""Number of connections with rejected requests that are read again each second."""

_MAX_PAUSE_SECONDS = 2.0
"""Seconds after which every connection is read again."""

_MIN_PAUSE_SECONDS = 0.02
_REPORT_SECONDS = 0.5

OVERLOADED = "The server has reached its limit of requests in flight; try again later"
"""Message for clients before authentication: it must not reveal anything about models."""


class RejectionCounts:
    """Count rejections, and report them to `engine` twice a second: a report for each would cost more than it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._counts: dict[tuple[str, str, str], tuple[str, int]] = {}

    def add(self, request_id: str, protocol: str, model_name: str = "", message: str = OVERLOADED) -> None:
        """Count one rejection. Clients must not be able to invent models. The first `request_id` is reported."""
        if not self._counts:
            asyncio.get_running_loop().call_later(_REPORT_SECONDS, self._flush)
        key = protocol, model_name, message
        first_request_id, count = self._counts.get(key, (request_id, 0))
        self._counts[key] = (first_request_id, count + 1)

    def _flush(self) -> None:
        counts, self._counts = self._counts, {}
        for (protocol, model_name, message), (request_id, count) in counts.items():
            context = RequestContext(protocol=protocol, request_id=request_id, model_name=model_name, count=count)
            self._engine.report_rejected_unread(context, InferenceError(ErrorKind.OVERLOADED, message))


class ReadPauses:
    """Decide how long a connection is not read after a rejection. Use it only from the event loop."""

    def __init__(self) -> None:
        self._next_resume = 0.0

    def next(self) -> float:
        """Return the seconds of one more pause."""
        now = time.monotonic()
        self._next_resume = min(max(self._next_resume, now) + 1 / _RESUMES_PER_SECOND, now + _MAX_PAUSE_SECONDS)
        pause = self._next_resume - now
        return pause if pause >= _MIN_PAUSE_SECONDS else 0.0
