"""Protocols' endpoints as Litestar's handlers, also where several protocols meet on one path."""

from collections.abc import Sequence

from litestar import Response, route
from litestar.handlers import HTTPRouteHandler

from app.engine.engine import Engine
from app.protocols.protocol import Endpoint, HttpProtocol, HttpRequest, Method, json_response
from app.protocols.status import http_status
from tasks.exchange.error import ErrorKind, InferenceError, brief

__all__ = ("CollisionError", "handlers")


class CollisionError(Exception):
    """Two protocols that want the same path."""


def handlers(protocols: Sequence[HttpProtocol], engine: Engine) -> list[HTTPRouteHandler]:
    """One handler for each method and path.

    Raises:
        CollisionError: when two protocols claim the same requests.
    """
    meeting: dict[tuple[Method, str], list[tuple[HttpProtocol, Endpoint]]] = {}
    for protocol in protocols:
        for endpoint in protocol.endpoints(engine):
            meeting.setdefault((endpoint.method, endpoint.path), []).append((protocol, endpoint))
    return [_handler(method, path, served) for (method, path), served in meeting.items()]


def _handler(method: Method, path: str, served: Sequence[tuple[HttpProtocol, Endpoint]]) -> HTTPRouteHandler:
    unconditional = [protocol.name for protocol, endpoint in served if endpoint.claims is None]
    if len(unconditional) > 1:
        raise CollisionError(f"{' and '.join(unconditional)} both serve {method} {path}")
    # Those that claim some targets are asked before the one that takes what is left.
    order = sorted(served, key=lambda each: each[1].claims is None)

    async def dispatch(request: HttpRequest) -> Response[bytes]:
        target = request.path_params.get("target", "")
        for protocol, endpoint in order:
            if endpoint.claims is None or endpoint.claims(target):
                return await _answer(protocol, endpoint, request)
        message = f"No protocol here serves a model called {brief(target)} on this path"
        return _refusal(order[0][0], InferenceError(ErrorKind.MODEL_NOT_FOUND, message))

    return route(path, http_method=method, status_code=200)(dispatch)


async def _answer(protocol: HttpProtocol, endpoint: Endpoint, request: HttpRequest) -> Response[bytes]:
    try:
        return await endpoint.handle(request)
    except InferenceError as error:
        return _refusal(protocol, error)


def _refusal(protocol: HttpProtocol, error: InferenceError) -> Response[bytes]:
    return json_response(protocol.error_body(error), http_status(error.kind))
