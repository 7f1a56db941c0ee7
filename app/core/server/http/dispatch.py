"""Turn endpoints of protocols into Litestar handlers, including paths that several protocols share.

For inferences, the handlers know only paths and methods, for 404, 405 and Allow.
"""

import re
from collections.abc import Sequence
from functools import cached_property
from inspect import isawaitable
from itertools import product
from typing import Any, cast

import msgspec
from litestar import Response, route
from litestar.exceptions import MethodNotAllowedException, NotFoundException
from litestar.handlers import HTTPRouteHandler

from app.core.engine.engine import Engine
from app.core.protocols.http_inference import error_response, to_response
from app.core.protocols.protocol import Endpoint, HttpProtocol, HttpRequest, Method, json_response
from app.core.server.auth.http_access import BY_ENDPOINT, HttpAccess, requires
from tasks.inference.error import ErrorKind, InferenceError, quote_value

ProtocolEndpoints = Sequence[tuple[HttpProtocol, Endpoint]]


_VERBS = "verbs"
"""Key in the `opt` of a handler: the verbs that it serves, with None for a path without a verb."""


class RouteConflictError(Exception):
    """Two protocols claim the same path."""


class AllowedMethods:
    """The methods of each path, with a verb such as ``:predict`` or without. Add all handlers of an application."""

    def __init__(self) -> None:
        self._methods: dict[str, set[str]] = {}

    def add(self, handlers: Sequence[object]) -> None:
        """Add the methods of handlers."""
        for handler in handlers:
            if isinstance(handler, HTTPRouteHandler):
                for path, verb in product(handler.paths, {None, *handler.opt.get(_VERBS, ())}):
                    methods = self._methods.setdefault(path if verb is None else f"{path}:{verb}", set())
                    methods |= handler.http_methods

    def of(self, path: str) -> set[str] | None:
        """Return the methods of a path of a request, None if it is unknown."""
        path = "/" + "/".join(filter(None, path.split("/")))
        return next((methods for pattern, methods in self._patterns if pattern.fullmatch(path)), None)

    @cached_property
    def _patterns(self) -> Sequence[tuple[re.Pattern[str], set[str]]]:
        # Routes with verbs, and routes without parameters, come first.
        paths = sorted(self._methods, key=lambda path: (path.count("{"), -path.count(":"), -len(path)))
        patterns = [re.sub(r"\{[^}]*\}", "[^/]+", re.sub(r"\{\w+:path\}", ".+", path)) for path in paths]
        return [(re.compile(pattern), self._methods[path]) for path, pattern in zip(paths, patterns, strict=True)]


def create_handlers(
    protocols: Sequence[HttpProtocol],
    engine: Engine,
    access: HttpAccess | None = None,
    allowed: AllowedMethods | None = None,
) -> list[HTTPRouteHandler]:
    """Return one handler for each method and path; access errors have the shape of the requested protocol.

    `allowed` gets the methods. Raise RouteConflictError if two protocols claim the same requests.
    """
    access, allowed = access or HttpAccess(None), allowed or AllowedMethods()
    endpoints_by_route: dict[tuple[Method, str], list[tuple[HttpProtocol, Endpoint]]] = {}
    for protocol in protocols:
        for endpoint in protocol.endpoints(engine):
            endpoints_by_route.setdefault((endpoint.method, endpoint.path), []).append((protocol, endpoint))
    handlers = [
        _create_handler(method, path, candidates, access, allowed)
        for (method, path), candidates in endpoints_by_route.items()
    ]
    allowed.add(handlers)
    return handlers


def _create_handler(
    method: Method, path: str, candidates: ProtocolEndpoints, access: HttpAccess, allowed: AllowedMethods
) -> HTTPRouteHandler:
    verbs = list(dict.fromkeys(endpoint.verb for _, endpoint in candidates))
    candidates_by_verb = {
        verb: _unclaimed_last(
            method, [(protocol, endpoint) for protocol, endpoint in candidates if endpoint.verb == verb]
        )
        for verb in verbs
    }

    async def dispatch(request: HttpRequest) -> Response[bytes]:
        target, verb = request.path_params.get("target", ""), None
        if None not in candidates_by_verb:
            target, _, verb = target.rpartition(":")
            # Litestar caches the parameters of a path, so they must not be modified.
            request.scope["path_params"] = {**request.path_params, "target": target}
        elif ":" in target and method not in (allowed.of(request.scope["path"]) or method):
            # Another method serves this verb. `HeadSupport` lists the methods.
            raise MethodNotAllowedException(headers={"Allow": method})
        for protocol, endpoint in candidates_by_verb.get(verb, ()):
            if endpoint.accepts_target is None or endpoint.accepts_target(target):
                return await _handle(protocol, endpoint, request, access)
        expected_verbs = " or ".join(f":{name}" for name in verbs if name)
        if verb not in candidates_by_verb:
            message = f"Expected the name of a model and {expected_verbs} behind it"
        else:
            message = f"No protocol here serves a model called {quote_value(target)} on this path"
        return to_response(error_response(candidates[0][0], InferenceError(ErrorKind.MODEL_NOT_FOUND, message)))

    opt = {**requires(BY_ENDPOINT), _VERBS: verbs}
    return route(path, http_method=method, status_code=200, opt=opt)(dispatch)


def _unclaimed_last(method: Method, candidates: ProtocolEndpoints) -> ProtocolEndpoints:
    """Sort `candidates`: endpoints that claim some targets come before the one without a claim."""
    unconditional = [protocol.name for protocol, endpoint in candidates if endpoint.accepts_target is None]
    if len(unconditional) > 1:
        endpoint = candidates[0][1]
        suffix = f":{endpoint.verb}" if endpoint.verb else ""
        raise RouteConflictError(f"{' and '.join(unconditional)} both serve {method} {endpoint.path}{suffix}")
    return sorted(candidates, key=lambda pair: pair[1].accepts_target is None)


async def _handle(
    protocol: HttpProtocol, endpoint: Endpoint, request: HttpRequest, access: HttpAccess
) -> Response[bytes]:
    if endpoint.handle is None:
        # `InferenceApp` answers inferences before the framework; here they only have their paths and methods.
        raise NotFoundException
    try:
        access.admit(request.scope, endpoint.permission)
        content: Any = endpoint.handle(request)
        if isawaitable(content):
            content = await content
        if not isinstance(content, Response):
            content = json_response(msgspec.json.encode(content))
        return cast("Response[bytes]", content)
    except InferenceError as error:
        return to_response(error_response(protocol, error))
