"""Turn endpoints of protocols into Litestar handlers, including paths that several protocols share."""

from collections.abc import Sequence

from litestar import Response, route
from litestar.handlers import HTTPRouteHandler

from app.engine.engine import Engine
from app.protocols.protocol import Endpoint, HttpProtocol, HttpRequest, Method, json_response
from app.protocols.status import http_status
from app.server.access.http import BY_ENDPOINT, HttpAccess, needs
from tasks.exchange.error import ErrorKind, InferenceError, brief

__all__ = ("CollisionError", "handlers")

Served = Sequence[tuple[HttpProtocol, Endpoint]]


class CollisionError(Exception):
    """Two protocols claim the same path."""


def handlers(
    protocols: Sequence[HttpProtocol], engine: Engine, access: HttpAccess | None = None
) -> list[HTTPRouteHandler]:
    """Return one handler for each method and path; access errors have the shape of the requested protocol.

    Raises:
        CollisionError: if two protocols claim the same requests.
    """
    access = access or HttpAccess(None)
    meeting: dict[tuple[Method, str], list[tuple[HttpProtocol, Endpoint]]] = {}
    for protocol in protocols:
        for endpoint in protocol.endpoints(engine):
            meeting.setdefault((endpoint.method, endpoint.path), []).append((protocol, endpoint))
    return [_handler(method, path, served, access) for (method, path), served in meeting.items()]


def _handler(method: Method, path: str, served: Served, access: HttpAccess) -> HTTPRouteHandler:
    verbs = list(dict.fromkeys(endpoint.verb for _, endpoint in served))
    in_turn = {
        verb: _in_turn(method, [(protocol, endpoint) for protocol, endpoint in served if endpoint.verb == verb])
        for verb in verbs
    }

    async def dispatch(request: HttpRequest) -> Response[bytes]:
        target, verb = request.path_params.get("target", ""), None
        if None not in in_turn:
            target, _, verb = target.rpartition(":")
            # Litestar caches the parameters of a path, so they must not be modified.
            request.scope["path_params"] = {**request.path_params, "target": target}
        for protocol, endpoint in in_turn.get(verb, ()):
            if endpoint.claims is None or endpoint.claims(target):
                return await _answer(protocol, endpoint, request, access)
        wanted = " or ".join(f":{name}" for name in verbs if name)
        if verb not in in_turn:
            message = f"Expected the name of a model and {wanted} behind it"
        else:
            message = f"No protocol here serves a model called {brief(target)} on this path"
        return _refusal(served[0][0], InferenceError(ErrorKind.MODEL_NOT_FOUND, message))

    return route(path, http_method=method, status_code=200, opt=needs(BY_ENDPOINT))(dispatch)


def _in_turn(method: Method, served: Served) -> Served:
    """Sort `served`: endpoints that claim some targets come before the one without a claim."""
    unconditional = [protocol.name for protocol, endpoint in served if endpoint.claims is None]
    if len(unconditional) > 1:
        endpoint = served[0][1]
        suffix = f":{endpoint.verb}" if endpoint.verb else ""
        raise CollisionError(f"{' and '.join(unconditional)} both serve {method} {endpoint.path}{suffix}")
    return sorted(served, key=lambda pair: pair[1].claims is None)


async def _answer(
    protocol: HttpProtocol, endpoint: Endpoint, request: HttpRequest, access: HttpAccess
) -> Response[bytes]:
    try:
        access.admit(request.scope, endpoint.permission)
        return await endpoint.handle(request)
    except InferenceError as error:
        return _refusal(protocol, error)


def _refusal(protocol: HttpProtocol, error: InferenceError) -> Response[bytes]:
    return json_response(protocol.error_body(error), http_status(error.kind))
