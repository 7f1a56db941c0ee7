"""Shape errors that occur before a protocol handles the request: unknown paths, wrong methods, large bodies."""

import logging
from collections.abc import Callable, MutableMapping, Sequence
from http import HTTPStatus
from typing import Any, cast

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException
from litestar.types import HTTPScope

from app.core.protocols.protocol import HttpProtocol
from app.core.protocols.status import http_status
from app.core.removed import removed_advice
from app.core.server.http.exchange import body_too_large
from app.core.server.http.route_table import RouteTable
from tasks.inference.error import ErrorKind, InferenceError

AnyRequest = Request[Any, Any, Any]
ErrorHandlers = MutableMapping[int | type[Exception], Callable[[AnyRequest, Any], Response[bytes]]]

_logger = logging.getLogger(__name__)


def create_error_handlers(protocols: Sequence[HttpProtocol] = ()) -> ErrorHandlers:
    """Return the `exception_handlers` of the application.

    An error has the shape of the protocol that owns a prefix of the path. Otherwise it is ``{"error": "..."}``, which
    clients of the other protocols expect.
    """

    def response(request: AnyRequest, message: str, status: int, headers: dict[str, str]) -> Response[bytes]:
        body = _owner_error(protocols, request.scope["path"], status, message)
        body = body or msgspec.json.encode({"error": message})
        return Response(body, status_code=status, headers=headers, media_type="application/json")

    def http_error(request: AnyRequest, error: HTTPException) -> Response[bytes]:
        return response(request, _message(request, error), error.status_code, dict(error.headers or {}))

    def unexpected(request: AnyRequest, error: Exception) -> Response[bytes]:
        _logger.error("request failed", exc_info=error, extra={"path": request.scope["path"]})
        return response(request, "Something went wrong in the server; see its log", 500, {})

    def inference_error(request: AnyRequest, error: InferenceError) -> Response[bytes]:
        return response(request, str(error), http_status(error.kind), {})

    return {HTTPException: http_error, InferenceError: inference_error, Exception: unexpected}


def rejection_body_builder(protocols: Sequence[HttpProtocol], routes: RouteTable) -> Callable[[HTTPScope, str], bytes]:
    """Return a builder for bodies of 403 from a request and a message, in the shape of the path's protocol."""

    def body(scope: HTTPScope, message: str) -> bytes:
        path = "/" + "/".join(filter(None, scope["path"].split("/")))
        if (error := _owner_error(protocols, path, 403, message)) is not None:
            return error
        found = routes.find(scope)
        # A protocol with a port of its own has all its paths.
        owners = protocols if found is None else [found[0].protocol]
        if len(owners) == 1:
            return owners[0].error_body(InferenceError(ErrorKind.PERMISSION_DENIED, message))
        return msgspec.json.encode({"error": message})

    return body


def _owner_error(protocols: Sequence[HttpProtocol], path: str, status: int, message: str) -> bytes | None:
    """Return the error body of the protocol that owns a prefix of `path`; None if none does."""
    for protocol in protocols:
        if any(f"{path}/".startswith(f"{prefix}/") for prefix in protocol.prefixes):
            return protocol.routing_error(status, message)
    return None


def _message(request: AnyRequest, error: HTTPException) -> str:
    # `request.url` can be invalid because it depends on the Host header.
    path = request.scope["path"]
    if isinstance(error, NotFoundException):
        return removed_advice(path) or f"Nothing is served at {path}"
    if isinstance(error, MethodNotAllowedException):
        return f"{request.method} is not served at {path}"
    if error.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return body_too_large(cast("int", request.app.request_max_body_size))
    return error.detail or type(error).__name__
