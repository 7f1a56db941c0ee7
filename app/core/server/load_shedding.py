"""Reject requests while the server is overloaded: at once, counted together, and at a limited rate.

After an HTTP request was rejected, its connection is not read for a while, and connections are read again at a limited
rate. Requests of a client that ignores `Retry-After` thus wait in its socket buffer.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Generic, TypeVar

_RESUMES_PER_SECOND = 125
"""Number of connections with rejected requests that are read again each second."""

_MAX_PAUSE_SECONDS = 2.0
"""Seconds after which every connection is read again."""

_MIN_PAUSE_SECONDS = 0.02
_REPORT_SECONDS = 0.5

OVERLOADED = "The server has reached its limit of requests in flight; try again later"
"""Message for clients before authentication: it must not reveal anything about models."""

KeyT = TypeVar("KeyT")


class RejectionCounts(Generic[KeyT]):
    """Count rejections and report them twice a second: a report for each would cost more than the rejection.

    The report gets a key, the request id of its first rejection, and the number.
    """

    def __init__(self, report: Callable[[KeyT, str, int], None]) -> None:
        self._report = report
        self._counts: dict[KeyT, tuple[str, int]] = {}

    def add(self, key: KeyT, request_id: str) -> None:
        """Count one rejection. Clients must not be able to invent keys."""
        if not self._counts:
            asyncio.get_running_loop().call_later(_REPORT_SECONDS, self._flush)
        first_request_id, count = self._counts.get(key, (request_id, 0))
        self._counts[key] = (first_request_id, count + 1)

    def _flush(self) -> None:
        counts, self._counts = self._counts, {}
        for key, (request_id, count) in counts.items():
            self._report(key, request_id, count)


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
