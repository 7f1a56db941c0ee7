"""How often each caller has asked of late: token buckets."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from app.server.access.identity import AccessError, Identity, Rate
from tasks.exchange.error import ErrorKind

__all__ = ("Rates",)

_REMEMBERED = 10_000


class Rates:
    """A bucket for each caller who has a rate. Of one thread, the event loop's.

    Args:
        everybody: the rate of callers who have none of their own; None for as often as they like.
        remembered: so many callers at most; of more, the one who has not asked for longest begins anew.
        clock: seconds since any moment.
    """

    def __init__(
        self,
        everybody: Rate | None = None,
        *,
        remembered: int = _REMEMBERED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._everybody = everybody
        self._remembered = remembered
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def charge(self, identity: Identity) -> None:
        """Count one request of `identity`.

        Raises:
            AccessError: OVERLOADED when it has none left; it is not counted then.
        """
        rate = identity.rate or self._everybody
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
