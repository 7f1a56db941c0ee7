"""What is told of refusals: a counter, and a log line where they are not too many."""

import time
from collections.abc import Callable
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter

from app.server.access.identity import AccessError
from tasks.exchange.error import shortened

__all__ = ("Refusals",)

_PER_SECOND = 1.0
_BURST = 10.0


class Refusals:
    """Counts every refusal by its reason, and logs ten of them at once, then one a second.

    Whoever tries keys is to fill no disk. Nothing of what was shown is told.

    Args:
        registry: of metrics.
        clock: seconds since any moment.
    """

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        self._counter = Counter(
            "charioteer_access_refused",
            "Requests of callers that are not known, not allowed, or had their share, by the reason",
            ["reason"],
            registry=registry,
        )
        self._log: Any = structlog.get_logger("charioteer.access")
        self._clock = clock
        self._left, self._since, self._unsaid = _BURST, clock(), 0

    def tell(self, error: AccessError, *, what: str, address: str, request_id: str = "") -> None:
        """One refusal, which knows afterwards whether it was logged.

        Args:
            error: why.
            what: was asked for: a method and path without its query, or a gRPC method.
            address: where it came from.
            request_id: as the sender gave it, empty where it gave none.
        """
        self._counter.labels(error.reason).inc()
        now = self._clock()
        self._left = min(_BURST, self._left + (now - self._since) * _PER_SECOND)
        self._since = now
        if self._left < 1:
            self._unsaid += 1
            error.logged = False
            return
        self._left -= 1
        fields: dict[str, object] = {"client": error.client} if error.client else {}
        if request_id:
            fields["request_id"] = shortened(request_id, 200)
        if self._unsaid:
            fields["not_logged"], self._unsaid = self._unsaid, 0
        self._log.warning(
            "access refused",
            reason=error.reason,
            error=error.message,
            what=shortened(what, 200),
            address=address,
            **fields,
        )
