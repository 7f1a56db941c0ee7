"""Messages that report errors."""

from typing import Any

from app.protocols.grps.messages import GrpsMessage
from app.protocols.status import http_status
from tasks.inference.error import InferenceError

__all__ = ("error_message", "failure_message")

_FAILURE = 2


def error_message(error: InferenceError) -> Any:
    """Return the message for `error`. Its code is the HTTP status of the error's kind."""
    return failure_message(http_status(error.kind), str(error))


def failure_message(code: int, reason: str) -> Any:
    """Return an error message with a code and a reason."""
    return GrpsMessage(status={"code": code, "msg": reason, "status": _FAILURE})
