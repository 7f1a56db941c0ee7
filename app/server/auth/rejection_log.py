"""Count and log rejections of requests."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter

from app.protocols.request_info import REQUEST_ID_HEADER, valid_id
from app.server.auth.identity import AccessError
from app.server.logs.sampling import LogSampler
from tasks.inference.error import truncate


class RejectionLog:
    """Count every rejection by its reason, and log ten at once, then one a second.

    The limit keeps attackers from filling the disk. No part of a credential is logged.

    Args:
        registry: registry of the metrics.
        clock: returns seconds of a monotonic clock.
    """

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        self._counter = Counter(
            "charioteer_access_refused",
            "Requests rejected by authentication, authorization or a rate limit, by reason.",
            ["reason"],
            registry=registry,
        )
        self._log: Any = structlog.get_logger("charioteer.access")
        self._sampler = LogSampler(clock)

    def record(self, error: AccessError, headers: Sequence[tuple[str, str]], *, operation: str, address: str) -> None:
        """Count and log one rejection, and set its `logged`.

        Args:
            error: the rejection.
            headers: headers of the request, or gRPC metadata.
            operation: the operation: a method and path without its query, or a gRPC method.
            address: IP address of the client.
        """
        self._counter.labels(error.reason).inc()
        fields = self._sampler.sample()
        if fields is None:
            error.logged = False
            return
        if error.client:
            fields["client"] = error.client
        if request_id := valid_id(dict(headers).get(REQUEST_ID_HEADER)):
            fields["request_id"] = truncate(request_id, 200)
        self._log.warning(
            "access refused",
            reason=error.reason,
            error=error.message,
            what=truncate(operation, 200),
            address=address,
            **fields,
        )
