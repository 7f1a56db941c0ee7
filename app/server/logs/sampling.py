"""Limit log lines that a client can cause: ten at once, then one a second."""

import time
from collections.abc import Callable

_PER_SECOND = 1.0
_BURST = 10.0


class LogSampler:
    """A token bucket for one kind of log line, so that no client can fill a disk.

    Args:
        clock: returns seconds of a monotonic clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tokens, self._refilled_at, self._dropped = _BURST, clock(), 0

    def sample(self) -> dict[str, object] | None:
        """Return fields for a line to log (`not_logged`, if lines were dropped before it); None to drop the line."""
        now = self._clock()
        self._tokens = min(_BURST, self._tokens + (now - self._refilled_at) * _PER_SECOND)
        self._refilled_at = now
        if self._tokens < 1:
            self._dropped += 1
            return None
        self._tokens -= 1
        dropped, self._dropped = self._dropped, 0
        return {"not_logged": dropped} if dropped else {}
