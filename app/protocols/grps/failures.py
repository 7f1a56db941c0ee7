"""Messages that say what went wrong."""

from typing import Any

from app.protocols.grps.messages import GrpsMessage
from app.protocols.status import http_status
from tasks.exchange.error import InferenceError

__all__ = ("failed", "failure")

_FAILURE = 2


def failed(error: InferenceError) -> Any:
    """The message that says `error`, its code the HTTP status of its kind."""
    return failure(http_status(error.kind), str(error))


def failure(code: int, reason: str) -> Any:
    """The message of a failure."""
    return GrpsMessage(status={"code": code, "msg": reason, "status": _FAILURE})
