"""Write the audit log: one line for each attempt to change the served models."""

from typing import Any

import structlog
from litestar.types import Message, Scope

from app.engine.ids import request_id as made_request_id
from app.protocols.caller import CLIENT, REQUEST_ID_HEADER, address_of, given_request_id, return_header, returned_header
from tasks.exchange.error import shortened

__all__ = ("ANONYMOUS", "audit", "audit_response", "is_administration", "is_one_of_too_many")

ANONYMOUS = "anonymous"
"""Name of a client without authentication."""

_MARK = "charioteer_administration"
_REFUSED = frozenset({401, 403, 429})
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
        model=shortened(model, _MAX_CHARACTERS),
        outcome=outcome,
        status=status,
        client=client or ANONYMOUS,
        address=address,
        request_id=shortened(request_id, _MAX_CHARACTERS),
    )


def is_administration(scope: Scope) -> None:
    """Mark a request for the audit log."""
    scope["state"][_MARK] = True


def is_one_of_too_many(scope: Scope) -> None:
    """Remove the mark: unknown clients must not fill the disk with audit lines."""
    scope["state"].pop(_MARK, None)


async def audit_response(message: Message, scope: Scope) -> None:
    """Audit the response to a marked request. This is a `before_send` hook of Litestar."""
    if message["type"] != "http.response.start" or _MARK not in scope["state"]:
        return
    request_id = given_request_id(scope) or returned_header(scope, REQUEST_ID_HEADER)
    if not request_id:
        request_id = made_request_id()
        return_header(scope, REQUEST_ID_HEADER, request_id)
    status, path = message["status"], scope["path"]
    parameters = scope["path_params"]
    audit(
        path.rstrip("/").rpartition("/")[2],
        model=str(parameters.get("target", parameters.get("name", ""))),
        outcome="refused" if status in _REFUSED else "failed" if status >= _MIN_ERROR_STATUS else "ok",
        status=status,
        client=CLIENT.get(),
        address=address_of(scope),
        request_id=request_id,
    )
