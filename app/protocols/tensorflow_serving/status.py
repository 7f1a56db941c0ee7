"""How failures and the states of models are called here. The codes are those of `google.rpc.Code`."""

import json
from collections.abc import Sequence
from typing import Any, assert_never

from app.engine.registry import ModelState, Registration
from tasks.exchange.error import ErrorKind

__all__ = ("OK", "code_name", "http_status", "indented", "model_status")

OK = "OK"

_UNKNOWN = "UNKNOWN"
_HTTP = {
    "INVALID_ARGUMENT": 400,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAUTHENTICATED": 401,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "CANCELLED": 499,
    "DEADLINE_EXCEEDED": 504,
}


def code_name(kind: ErrorKind) -> str:
    """The code of `kind`."""
    match kind:
        case ErrorKind.INVALID_REQUEST | ErrorKind.TOO_LARGE:
            return "INVALID_ARGUMENT"
        case ErrorKind.UNSUPPORTED:
            return "UNIMPLEMENTED"
        case ErrorKind.UNAUTHENTICATED:
            return "UNAUTHENTICATED"
        case ErrorKind.MODEL_NOT_FOUND:
            return "NOT_FOUND"
        case ErrorKind.OVERLOADED:
            return "RESOURCE_EXHAUSTED"
        case ErrorKind.MODEL_FAILED | ErrorKind.INTERNAL:
            return "INTERNAL"
        case ErrorKind.MODEL_NOT_READY:
            return "UNAVAILABLE"
        case ErrorKind.CANCELLED:
            return "CANCELLED"
        case ErrorKind.DEADLINE_EXCEEDED:
            return "DEADLINE_EXCEEDED"
        case _:
            assert_never(kind)


def http_status(kind: ErrorKind) -> int:
    """The HTTP status of `kind`. The real server knows no 413, which is plainer than its 400."""
    return 413 if kind is ErrorKind.TOO_LARGE else _HTTP[code_name(kind)]


def model_status(registrations: Sequence[Registration]) -> bytes:
    """A `GetModelStatusResponse`, the versions in the order given."""
    return indented({"model_version_status": [_version_status(each) for each in registrations]})


def indented(document: dict[str, Any]) -> bytes:
    """JSON as protobuf's own writer lays it out."""
    return f"{json.dumps(document, indent=1, ensure_ascii=False)}\n".encode()


def _version_status(registration: Registration) -> dict[str, Any]:
    state, code, message = "END", OK, ""
    match registration.state:
        case ModelState.LOADING:
            state = "LOADING"
        case ModelState.READY:
            state = "AVAILABLE"
        case ModelState.UNAVAILABLE:
            if registration.wanted:
                code, message = _UNKNOWN, registration.reason
    return {
        "version": registration.source.version,
        "state": state,
        "status": {"error_code": code, "error_message": message},
    }
