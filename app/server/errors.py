"""Errors that come up before a protocol is reached: unknown paths, wrong methods, bodies over the limit."""

import logging
from collections.abc import Callable, MutableMapping
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException

__all__ = ("routing_errors",)

ErrorHandlers = MutableMapping[int | type[Exception], Callable[[Request[Any, Any, Any], Any], Response[bytes]]]

_logger = logging.getLogger(__name__)


def routing_errors() -> ErrorHandlers:
    """The application's `exception_handlers`: the ``{"error": "..."}`` that clients of these protocols look for."""
    return {HTTPException: _http_error, Exception: _unexpected}


def _http_error(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    return _response(_message(request, error), error.status_code, dict(error.headers or {}))


def _message(request: Request[Any, Any, Any], error: HTTPException) -> str:
    if isinstance(error, NotFoundException):
        return f"Nothing is served at {request.url.path}"
    if isinstance(error, MethodNotAllowedException):
        return f"{request.method} is not served at {request.url.path}"
    if error.status_code == _CONTENT_TOO_LARGE:
        return "The body is larger than this server accepts"
    return error.detail or type(error).__name__


def _unexpected(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    _logger.error("request failed", exc_info=error, extra={"path": request.url.path})
    return _response("Something went wrong in the server; its log tells what", 500, {})


def _response(message: str, status: int, headers: dict[str, str]) -> Response[bytes]:
    body = msgspec.json.encode({"error": message})
    return Response(body, status_code=status, headers=headers, media_type="application/json")


_CONTENT_TOO_LARGE = 413
