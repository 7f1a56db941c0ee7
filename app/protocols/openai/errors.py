"""Errors as OpenAI's clients read them: an object with message, type, param and code."""

import msgspec

from app.protocols.openai.unsupported import UnsupportedError
from app.protocols.openai.wire import WireError, WireRefusal
from app.protocols.status import http_status
from tasks.inference.error import ErrorKind, InferenceError

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_CODES = {
    ErrorKind.MODEL_NOT_FOUND: "model_not_found",
    ErrorKind.MODEL_NOT_READY: "model_not_ready",
    ErrorKind.UNAUTHENTICATED: "invalid_api_key",
}
_WITHOUT_FIELD = (ErrorKind.UNAUTHENTICATED, ErrorKind.PERMISSION_DENIED)


def error_body(error: InferenceError) -> bytes:
    """Return the body of a response for `error`."""
    code = error.code if isinstance(error, UnsupportedError) else _CODES.get(error.kind)
    path = "model" if error.kind is ErrorKind.MODEL_NOT_FOUND else error.path
    param = None if error.kind in _WITHOUT_FIELD else path or None
    return _encode(http_status(error.kind), str(error), param, code)


def routing_error(status: int, message: str) -> bytes:
    """Return the body of a response with an HTTP `status`, when no endpoint matches."""
    return _encode(status, message)


def _encode(status: int, message: str, param: str | None = None, code: str | None = None) -> bytes:
    error_type = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return msgspec.json.encode(WireRefusal(WireError(message=message, type=error_type, param=param, code=code)))
