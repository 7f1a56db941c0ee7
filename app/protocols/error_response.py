"""Neutral errors as HTTP responses; a protocol only gives the body its shape."""

from collections.abc import Callable, MutableMapping
from typing import Any

import msgspec
from litestar import Request, Response

from app.protocols.status import http_status
from tasks.exchange.error import InferenceError

__all__ = ("error_handlers", "error_object")


ErrorHandlers = MutableMapping[int | type[Exception], Callable[[Request[Any, Any, Any], Any], Response[bytes]]]


def error_object(error: InferenceError) -> bytes:
    """``{"error": "..."}``, which Chariot, KServe, the Open Inference Protocol and TensorFlow Serving share."""
    return msgspec.json.encode({"error": str(error)})


def error_handlers(error_body: Callable[[InferenceError], bytes]) -> ErrorHandlers:
    """A router's `exception_handlers`: every `InferenceError` becomes a response with the status of its kind."""

    def handle(_: Request[Any, Any, Any], error: InferenceError) -> Response[bytes]:
        return Response(error_body(error), status_code=http_status(error.kind), media_type="application/json")

    return {InferenceError: handle}
