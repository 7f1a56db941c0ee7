"""Errors as OpenAI's clients read them: an object with message, type, param and code. Reject what is not supported."""

from collections.abc import Mapping

import msgspec

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

_ALLOWED: Mapping[str, tuple[object, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "echo": (False,),
    "suffix": ("",),
}
"""The accepted values of members that are not supported, besides null."""

UNSUPPORTED_PARAMETER = "unsupported_parameter"


class UnsupportedError(InferenceError):
    """The member at `path` has a value that this server does not support. `code` is the code in the body."""

    def __init__(self, message: str, path: str, code: str) -> None:
        super().__init__(ErrorKind.INVALID_REQUEST, message, path)
        self.code = code


def check_supported(wire: msgspec.Struct) -> None:
    """Reject a member with a value that the server does not honour.

    Raises:
        UnsupportedError: naming the member.
    """
    for name, allowed in _ALLOWED.items():
        value = getattr(wire, name, None)
        if value is not None and value not in allowed:
            values = " or ".join(msgspec.json.encode(choice).decode() for choice in allowed) or "null"
            message = f"This server does not support {name}; expected {values}"
            raise UnsupportedError(message, name, UNSUPPORTED_PARAMETER)


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
