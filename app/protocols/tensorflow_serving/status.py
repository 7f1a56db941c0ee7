"""TensorFlow Serving's names for errors and model states. The codes are those of `google.rpc.Code`."""

import json
from collections.abc import Sequence
from typing import Any, assert_never

from app.engine.models.registry import ModelState, Registration
from tasks.inference.error import ErrorKind

__all__ = ("OK", "code_name", "http_status", "indented_json", "model_status")

OK = "OK"

_UNKNOWN = "UNKNOWN"
_HTTP = {
    "INVALID_ARGUMENT": 400,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "CANCELLED": 499,
    "DEADLINE_EXCEEDED": 504,
}


def code_name(kind: ErrorKind) -> str:
    """Return the status code of `kind`."""
    match kind:
        case ErrorKind.INVALID_REQUEST | ErrorKind.TOO_LARGE:
            return "INVALID_ARGUMENT"
        case ErrorKind.UNSUPPORTED:
            return "UNIMPLEMENTED"
        case ErrorKind.UNAUTHENTICATED:
            return "UNAUTHENTICATED"
        case ErrorKind.PERMISSION_DENIED:
            return "PERMISSION_DENIED"
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
    """Return the HTTP status of `kind`. The real server has no 413, which is clearer than its 400."""
    return 413 if kind is ErrorKind.TOO_LARGE else _HTTP[code_name(kind)]


def model_status(registrations: Sequence[Registration], withheld: str) -> dict[str, Any]:
    """Return a `GetModelStatusResponse` in protobuf's JSON, with the versions in the given order.

    Args:
        registrations: the versions.
        withheld: the reason why clients must not send requests to any version; empty if they may.
    """
    return {"model_version_status": [_version_status(registration, withheld) for registration in registrations]}


def indented_json(document: dict[str, Any]) -> bytes:
    """Return JSON in the layout of protobuf's own writer."""
    return f"{json.dumps(document, indent=1, ensure_ascii=False)}\n".encode()


def _version_status(registration: Registration, withheld: str) -> dict[str, Any]:
    state, code, message = "END", OK, ""
    match registration.state:
        case ModelState.LOADING:
            state = "LOADING"
        case ModelState.READY:
            state = "AVAILABLE"
            if withheld:
                # The real server's state for a version that finishes its requests and accepts no new ones.
                state, code, message = "UNLOADING", "UNAVAILABLE", withheld
        case ModelState.UNAVAILABLE:
            if registration.enabled:
                code, message = _UNKNOWN, registration.reason
    return {
        "version": registration.source.version,
        "state": state,
        "status": {"error_code": code, "error_message": message},
    }
