"""The audit log: a line for everything that changed what is served, or was meant to."""

from typing import Any

import structlog
from litestar.types import Message, Scope

from app.engine.ids import request_id as made_request_id
from app.protocols.caller import CLIENT, REQUEST_ID_HEADER, address_of, given_request_id, return_header, returned_header
from tasks.exchange.error import shortened

__all__ = ("ANONYMOUS", "audit", "audit_response", "is_administration", "is_one_of_too_many")

ANONYMOUS = "anonymous"
"""Somebody of whom it is not known who they are, or who was not asked."""

_MARK = "charioteer_administration"
_REFUSED = frozenset({401, 403, 429})
_LEAST_ERROR = 400
_LONGEST = 200
"""Characters of what a sender wrote: a path may be one long name."""


def audit(
    action: str, *, model: str, outcome: str, status: str | int, client: str, address: str, request_id: str
) -> None:
    """Write one line.

    Args:
        action: ``load``, ``unload``, ``online`` or ``offline``.
        model: that it was about; empty where it was about none, or was refused before that was read.
        outcome: ``ok``, ``refused`` or ``failed``.
        status: of HTTP, or the name of gRPC's.
        client: who wanted it.
        address: where they came from.
        request_id: of the request, which other lines of the log have as well.
    """
    log: Any = structlog.get_logger("charioteer.audit")
    log.info(
        "audit",
        action=action,
        model=shortened(model, _LONGEST),
        outcome=outcome,
        status=status,
        client=client or ANONYMOUS,
        address=address,
        request_id=shortened(request_id, _LONGEST),
    )


def is_administration(scope: Scope) -> None:
    """Have the response to a request written down."""
    scope["state"][_MARK] = True


def is_one_of_too_many(scope: Scope) -> None:
    """Write nothing down of a request after all. Whoever is not known is to fill no disk."""
    scope["state"].pop(_MARK, None)


async def audit_response(message: Message, scope: Scope) -> None:
    """Write down what became of a request that `is_administration`. A `before_send` hook of Litestar."""
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
        outcome="refused" if status in _REFUSED else "failed" if status >= _LEAST_ERROR else "ok",
        status=status,
        client=CLIENT.get(),
        address=address_of(scope),
        request_id=request_id,
    )
