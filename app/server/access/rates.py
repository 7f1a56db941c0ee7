"""Limit the request rate of each client with token buckets."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from app.server.access.identity import AccessError, Identity, Rate
from tasks.exchange.error import ErrorKind

__all__ = ("Rates",)

_MAX_BUCKETS = 10_000


class Rates:
    """Keep a token bucket for each client with a rate limit. Use it only from the event loop.

    Args:
        everybody: rate of clients without a rate of their own; None for no limit.
        remembered: maximum number of buckets; above it, the least recently used client starts with a full bucket.
        clock: returns seconds of a monotonic clock.
    """

    def __init__(
        self,
        everybody: Rate | None = None,
        *,
        remembered: int = _MAX_BUCKETS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._default_rate = everybody
        self._remembered = remembered
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def charge(self, identity: Identity) -> None:
        """Count one request of `identity`.

        Raises:
            AccessError: OVERLOADED if the bucket is empty; the request is not counted then.
        """
        rate = identity.rate or self._default_rate
        if rate is None:
            return
        now = self._clock()
        left, since = self._buckets.pop(identity.name, (float(rate.burst), now))
        left = min(float(rate.burst), left + (now - since) * rate.per_second)
        enough = left >= 1
        self._buckets[identity.name] = (left - 1 if enough else left, now)
        if len(self._buckets) > self._remembered:
            self._buckets.popitem(last=False)
        if not enough:
            message = f"Expected at most {rate.per_second:g} requests a second from {identity.name}, got more"
            wait = max(1, math.ceil((1 - left) / rate.per_second))
            raise AccessError(ErrorKind.OVERLOADED, "rate", message, wait)
