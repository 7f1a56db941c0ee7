"""Write the audit log, a line for each attempt to change the served models, and log rejected requests."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from litestar.types import Message, Scope
from prometheus_client import CollectorRegistry, Counter

from app.core.engine.request_context import request_id as new_request_id
from app.core.protocols.request_info import (
    CLIENT,
    REQUEST_ID_HEADER,
    RESPONSE_HEADERS,
    address_of,
    client_request_id,
    set_response_header,
    valid_id,
)
from app.core.server.auth.credentials import AccessError
from app.core.server.auth.rate_limiter import LogSampler
from tasks.inference.error import truncate

ANONYMOUS = "anonymous"
"""Name of a client without authentication."""

AUDITED = "charioteer_administration"
"""Key of a request's ASGI state: set for the audit log."""

_REFUSED_STATUSES = frozenset({401, 403, 429})
_MIN_ERROR_STATUS = 400
_MAX_CHARACTERS = 200
"""Limit for text from clients: a path can be one long name."""


def audit(
    action: str, *, model: str, outcome: str, status: str | int, client: str, address: str, request_id: str
) -> None:
    """Write one line of the audit log.

    The action is ``load``, ``unload``, ``online`` or ``offline``, the outcome ``ok``, ``refused`` or ``failed``. The
    status is an HTTP status code, or the name of a gRPC status. The model is empty if a request names none, or was
    rejected unread.
    """
    log: Any = structlog.get_logger("charioteer.audit")
    log.info(
        "audit",
        action=action,
        model=truncate(model, _MAX_CHARACTERS),
        outcome=outcome,
        status=status,
        client=client or ANONYMOUS,
        address=address,
        request_id=truncate(request_id, _MAX_CHARACTERS),
    )


async def audit_response(message: Message, scope: Scope) -> None:
    """Audit the response to a marked request. This is a `before_send` hook of Litestar."""
    if message["type"] != "http.response.start" or AUDITED not in scope["state"]:
        return
    request_id = client_request_id(scope) or scope["state"].get(RESPONSE_HEADERS, {}).get(REQUEST_ID_HEADER, "")
    if not request_id:
        request_id = new_request_id()
        set_response_header(scope, REQUEST_ID_HEADER, request_id)
    status, path = message["status"], scope["path"]
    parameters = scope["path_params"]
    audit(
        path.rstrip("/").rpartition("/")[2],
        model=str(parameters.get("target", parameters.get("name", ""))),
        outcome="refused" if status in _REFUSED_STATUSES else "failed" if status >= _MIN_ERROR_STATUS else "ok",
        status=status,
        client=CLIENT.get(),
        address=address_of(scope),
        request_id=request_id,
    )


class RejectionLog:
    """Count every rejection by its reason, and log ten at once, then one a second.

    The limit keeps attackers from filling the disk. No part of a credential is logged.
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

        The operation is a method and a path without its query, or a gRPC method.
        """
        self._counter.labels(error.reason).inc()
        fields = self._sampler.sample()
        if fields is None:
            error.logged = False
            return
        if error.client:
            fields["client"] = error.client
        if request_id := valid_id(dict(headers).get(REQUEST_ID_HEADER)):
            fields["request_id"] = truncate(request_id, _MAX_CHARACTERS)
        self._log.warning(
            "access refused",
            reason=error.reason,
            error=error.message,
            what=truncate(operation, _MAX_CHARACTERS),
            address=address,
            **fields,
        )
