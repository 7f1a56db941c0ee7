"""Errors that come up before a protocol is reached: unknown paths, wrong methods, bodies over the limit."""

import logging
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException

from app.protocols.protocol import HttpProtocol, PrefixOwner
from app.protocols.status import http_status
from tasks.exchange.error import InferenceError

__all__ = ("ErrorHandlers", "routing_errors")

AnyRequest = Request[Any, Any, Any]
ErrorHandlers = MutableMapping[int | type[Exception], Callable[[AnyRequest, Any], Response[bytes]]]

_logger = logging.getLogger(__name__)


def routing_errors(protocols: Sequence[HttpProtocol] = ()) -> ErrorHandlers:
    """The application's `exception_handlers`.

    An error has the shape of the protocol that owns the path's prefix (`PrefixOwner`), else the ``{"error": "..."}``
    that clients of the others look for.
    """
    owners = [each for each in protocols if isinstance(each, PrefixOwner)]

    def response(request: AnyRequest, message: str, status: int, headers: dict[str, str]) -> Response[bytes]:
        path = f"{_path(request)}/"
        bodies = (each.routing_error(status, message) for each in owners if path.startswith(f"{each.prefix}/"))
        body = next(bodies, None) or msgspec.json.encode({"error": message})
        return Response(body, status_code=status, headers=headers, media_type="application/json")

    def http_error(request: AnyRequest, error: HTTPException) -> Response[bytes]:
        return response(request, _message(request, error), error.status_code, dict(error.headers or {}))

    def unexpected(request: AnyRequest, error: Exception) -> Response[bytes]:
        _logger.error("request failed", exc_info=error, extra={"path": _path(request)})
        return response(request, "Something went wrong in the server; its log tells what", 500, {})

    def refused(request: AnyRequest, error: InferenceError) -> Response[bytes]:
        return response(request, str(error), http_status(error.kind), {})

    return {HTTPException: http_error, InferenceError: refused, Exception: unexpected}


def _path(request: AnyRequest) -> str:
    """Not of `request.url`: what a sender wrote into `Host` may make none."""
    return request.scope["path"]


def _message(request: AnyRequest, error: HTTPException) -> str:
    if isinstance(error, NotFoundException):
        return f"Nothing is served at {_path(request)}"
    if isinstance(error, MethodNotAllowedException):
        return f"{request.method} is not served at {_path(request)}"
    if error.status_code == _CONTENT_TOO_LARGE:
        return "The body is larger than this server accepts"
    return error.detail or type(error).__name__


_CONTENT_TOO_LARGE = 413
