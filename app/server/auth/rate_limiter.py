"""Limit the request rate of each client with token buckets."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from app.server.auth.identity import AccessError, Identity, Rate
from tasks.inference.error import ErrorKind

_MAX_BUCKETS = 10_000


class RateLimiter:
    """Keep a token bucket for each client with a rate limit. Use it only from the event loop.

    Args:
        default_rate: rate of clients without a rate of their own; None for no limit.
        max_buckets: maximum number of buckets; above it, the least recently used client starts with a full bucket.
        clock: returns seconds of a monotonic clock.
    """

    def __init__(
        self,
        default_rate: Rate | None = None,
        *,
        max_buckets: int = _MAX_BUCKETS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._default_rate = default_rate
        self._max_buckets = max_buckets
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def consume(self, identity: Identity) -> None:
        """Count one request of `identity`.

        Raises:
            AccessError: OVERLOADED if the bucket is empty; the request is not counted then.
        """
        rate = identity.rate or self._default_rate
        if rate is None:
            return
        now = self._clock()
        tokens, refilled_at = self._buckets.pop(identity.name, (float(rate.burst), now))
        tokens = min(float(rate.burst), tokens + (now - refilled_at) * rate.per_second)
        has_token = tokens >= 1
        self._buckets[identity.name] = (tokens - 1 if has_token else tokens, now)
        if len(self._buckets) > self._max_buckets:
            self._buckets.popitem(last=False)
        if not has_token:
            message = f"Expected at most {rate.per_second:g} requests a second from {identity.name}, got more"
            wait = max(1, math.ceil((1 - tokens) / rate.per_second))
            raise AccessError(ErrorKind.OVERLOADED, "rate", message, wait)
