"""Limit rates with token buckets."""

import msgspec


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """A rate limit.

    Attributes:
        per_second: sustained requests in a second.
        burst: maximum number of requests at once after a pause.
    """

    per_second: float
    burst: int


def make_rate(per_second: float | None, burst: int | None) -> Rate | None:
    """Return a rate limit, by default with the requests of one second as its burst; None without a limit."""
    return None if per_second is None else Rate(per_second=per_second, burst=burst or max(1, round(per_second)))


class TokenBucket:
    """Tokens that a rate refills up to its burst, by seconds of a monotonic clock. It is full at first."""

    def __init__(self, rate: Rate, now: float) -> None:
        self._tokens, self._refilled_at = float(rate.burst), now

    def take(self, rate: Rate, now: float) -> float:
        """Take a token and return 0, or return the seconds until there is one."""
        self._tokens = min(float(rate.burst), self._tokens + (now - self._refilled_at) * rate.per_second)
        self._refilled_at = now
        if self._tokens < 1:
            return (1 - self._tokens) / rate.per_second
        self._tokens -= 1
        return 0.0
