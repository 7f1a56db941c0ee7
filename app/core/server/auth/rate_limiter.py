"""Limit the request rate of each client, and the log lines that clients can cause, with token buckets."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from app.core.engine.scheduling.token_bucket import Rate, TokenBucket
from app.core.server.auth.credentials import AccessError, Identity
from tasks.inference.error import ErrorKind

_MAX_BUCKETS = 10_000
_MAX_RETRY_SECONDS = 24 * 3600
_LOG_RATE = Rate(per_second=1.0, burst=10)


class LogSampler:
    """Limit one kind of log line to ten at once, then one a second, so that no client can fill a disk."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._bucket, self._dropped = TokenBucket(_LOG_RATE, clock()), 0

    def sample(self) -> dict[str, object] | None:
        """Return fields for a line to log (`not_logged`, if lines were dropped before it); None to drop the line."""
        if self._bucket.take(_LOG_RATE, self._clock()):
            self._dropped += 1
            return None
        dropped, self._dropped = self._dropped, 0
        return {"not_logged": dropped} if dropped else {}


@dataclass(frozen=True)
class RateLimiter:
    """Keep a token bucket for each client with a rate limit. Use it only from the event loop.

    Clients without a rate of their own have the default, None for no limit. Above `max_buckets`, the least recently
    used client starts with a full bucket.
    """

    default_rate: Rate | None = None
    max_buckets: int = _MAX_BUCKETS
    clock: Callable[[], float] = time.monotonic
    _buckets: OrderedDict[str, TokenBucket] = field(default_factory=OrderedDict[str, TokenBucket], init=False)

    def consume(self, identity: Identity) -> None:
        """Count one request of `identity`. Raise OVERLOADED if the bucket is empty; the request is not counted then."""
        rate = identity.rate or self.default_rate
        if rate is None:
            return
        now = self.clock()
        bucket = self._buckets.pop(identity.name, None) or TokenBucket(rate, now)
        self._buckets[identity.name] = bucket
        if len(self._buckets) > self.max_buckets:
            self._buckets.popitem(last=False)
        if wait := bucket.take(rate, now):
            message = f"Expected at most {rate.per_second:g} requests a second from {identity.name}, got more"
            raise AccessError(ErrorKind.OVERLOADED, "rate", message, max(1, math.ceil(min(wait, _MAX_RETRY_SECONDS))))
