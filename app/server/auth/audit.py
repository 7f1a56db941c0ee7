"""Write the audit log: one line for each attempt to change the served models."""

from typing import Any

import structlog
from litestar.types import Message, Scope

from app.engine.request_context import request_id as new_request_id
from app.protocols.request_info import (
    CLIENT,
    REQUEST_ID_HEADER,
    address_of,
    client_request_id,
    get_response_header,
    set_response_header,
)
from tasks.inference.error import truncate

ANONYMOUS = "anonymous"
"""Name of a client without authentication."""

_AUDIT_MARK = "charioteer_administration"
_REFUSED_STATUSES = frozenset({401, 403, 429})
_MIN_ERROR_STATUS = 400
_MAX_CHARACTERS = 200
"""Limit for text from clients: a path can be one long name."""


def audit(
    action: str, *, model: str, outcome: str, status: str | int, client: str, address: str, request_id: str
) -> None:
    """Write one line of the audit log.

    Args:
        action: ``load``, ``unload``, ``online`` or ``offline``.
        model: name of the model; empty if there is none, or if the request was rejected before it was read.
        outcome: ``ok``, ``refused`` or ``failed``.
        status: HTTP status, or name of the gRPC status.
        client: name of the client.
        address: IP address of the client.
        request_id: id of the request, which other log lines also have.
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


def mark_for_audit(scope: Scope) -> None:
    """Mark a request for the audit log."""
    scope["state"][_AUDIT_MARK] = True


def unmark_for_audit(scope: Scope) -> None:
    """Remove the mark: unknown clients must not fill the disk with audit lines."""
    scope["state"].pop(_AUDIT_MARK, None)


async def audit_response(message: Message, scope: Scope) -> None:
    """Audit the response to a marked request. This is a `before_send` hook of Litestar."""
    if message["type"] != "http.response.start" or _AUDIT_MARK not in scope["state"]:
        return
    request_id = client_request_id(scope) or get_response_header(scope, REQUEST_ID_HEADER)
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
