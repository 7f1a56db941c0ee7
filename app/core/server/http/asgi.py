"""Create the HTTP applications of an engine."""

import re
import sys
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import cached_property
from typing import Any, TypeVar, cast

from litestar import Litestar, Response, get, route
from litestar.config.compression import CompressionConfig
from litestar.config.cors import CORSConfig
from litestar.datastructures import Headers
from litestar.handlers import ASGIRouteHandler, HTTPRouteHandler
from litestar.middleware.compression import CompressionMiddleware
from litestar.response import Redirect
from litestar.routes import HTTPRoute
from litestar.types import Message, Scope, Send
from prometheus_client import CollectorRegistry, generate_latest

from app.core.engine.engine import Engine
from app.core.protocols.inference_call import PROMETHEUS
from app.core.protocols.protocol import Endpoint, HttpListener, HttpProtocol, HttpRequest
from app.core.protocols.request_info import add_id_headers
from app.core.server.auth.audit import audit_response
from app.core.server.auth.http_access import HttpAccess, requires
from app.core.server.http.direct_request import GZIP_REFUSED, MIN_COMPRESSED_BYTES, STREAMED_PATHS
from app.core.server.http.dispatch import VERBS, create_handlers
from app.core.server.http.errors import ErrorHandlers, create_error_handlers, path_pattern
from app.core.server.http.openapi import DOCUMENT, OWN_OPERATIONS, describe_service

_ALL_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
_CLOUD_EVENT_ATTRIBUTES = ("datacontenttype", "dataschema", "id", "source", "specversion", "subject", "time", "type")
_CLOUD_EVENT_HEADERS = [f"ce-{name}" for name in _CLOUD_EVENT_ATTRIBUTES]
"""Attributes of a CloudEvent in binary mode. Extensions are missing because a preflight cannot list patterns."""

_CORS: Any = {
    "allow_methods": ["GET", "POST"],
    # The header of the page is missing because other sites must not send it.
    "allow_headers": [
        "authorization",
        "chariot-inference-base-id",
        "chariot-inference-parameters",
        *_CLOUD_EVENT_HEADERS,
        "content-type",
        "inference-header-content-length",
        "traceparent",
        "tracestate",
        "x-api-key",
        "x-request-id",
        "x-request-timeout-ms",
    ],
    "expose_headers": [
        "chariot-inference-base-id",
        *_CLOUD_EVENT_HEADERS,
        "inference-header-content-length",
        "retry-after",
        "x-request-id",
    ],
}
UNCOMPRESSED = "uncompressed"
"""Key in `opt` of a route whose responses are not compressed, such as a stream of events."""

ApplicationT = TypeVar("ApplicationT", bound=Litestar)

_STATUSES_WITH_ALLOW = (204, 405)
"""Status codes of responses with the header Allow."""

Lifespan = Callable[[Litestar], AbstractAsyncContextManager[None]]
Home = Callable[[HttpRequest], Response[Any] | None]


def create_app(
    engine: Engine,
    protocols: Sequence[HttpProtocol],
    metrics: CollectorRegistry,
    max_request_bytes: int,
    lifespan: Lifespan | None = None,
    listeners: Sequence[HttpListener] = (),
    home: Home | None = None,
    access: HttpAccess | None = None,
    origins: Sequence[str] = (),
    handlers: Sequence[HTTPRouteHandler | ASGIRouteHandler] = (),
    operations: Sequence[Endpoint] = (),
    costly_prefixes: Sequence[str] = (),
) -> Litestar:
    """Create the application of the main port: routes of all protocols, and the server's own.

    Its own routes are ``/`` with liveness and model names, ``/healthz``, ``/metrics`` and ``/schema``, which also
    describes the protocols of `listeners`. Plugins add `handlers`, which `operations` describe, and `home`, which
    answers ``/`` for some clients. HEAD is refused below `costly_prefixes`. Pages of `origins` may read responses
    (CORS).
    """
    access = access or HttpAccess(None)

    @get(
        "/",
        sync_to_thread=False,
        opt=requires(lambda connection: "read" if home is not None and home(connection) is not None else "open"),
    )
    def alive(request: HttpRequest) -> Response[Any]:
        if home is not None and (page := home(request)) is not None:
            return page
        state: dict[str, Any] = {"status": "alive"}
        if access.allows(request.scope, "infer"):
            state["models"] = engine.registry.names
            state["protocols"] = [protocol.name for protocol in protocols]
        return Response(state, media_type="application/json", headers={"Vary": "Accept"})

    @get("/metrics", sync_to_thread=False, opt=requires("read"))
    def show_metrics() -> Response[bytes]:
        engine.batched_observers.flush()
        return Response(generate_latest(metrics), media_type=PROMETHEUS)

    def describe() -> dict[str, Any]:
        endpoints = {protocol.name: protocol.endpoints(engine) for protocol in (*protocols, *listeners)}
        own_operations = [*OWN_OPERATIONS, *operations]
        return describe_service(
            {**endpoints, "charioteer": own_operations}, listeners, secured=access.requires_credentials
        )

    show_schema = get(["/schema", "/schema/openapi.json"], sync_to_thread=True, opt=requires("read"))(describe)

    @get("/openapi.json", sync_to_thread=False, opt=requires("read"))
    def redirect_to_schema() -> Redirect:
        # The location is relative, so that a proxy can serve the application under any path.
        return Redirect("schema/openapi.json", status_code=307)

    @get("/healthz", sync_to_thread=False, opt=requires("open"))
    def show_liveness() -> dict[str, str]:
        return {"status": "alive"}

    own_handlers = [alive, show_metrics, show_schema, redirect_to_schema, show_liveness]
    route_handlers = [*create_handlers(protocols, engine, access), *own_handlers, *handlers]
    lifespans = [] if lifespan is None else [lifespan]
    errors = create_error_handlers(protocols)
    app = _application(HeadSupport, route_handlers, max_request_bytes, access, lifespans, errors, origins)
    app.costly_prefixes = tuple(costly_prefixes)
    app.state[DOCUMENT] = describe
    return app


def create_listener_app(
    engine: Engine,
    protocol: HttpListener,
    max_request_bytes: int,
    access: HttpAccess | None = None,
    origins: Sequence[str] = (),
) -> Litestar:
    """Create the application of a protocol with a port of its own, which handles every path and method there.

    Pages of `origins` may read responses (CORS).
    """
    handler = protocol.handler(engine)

    @route(["/", "/{path:path}"], http_method=_ALL_METHODS, status_code=200, opt=requires(protocol.permission))
    async def handle_any(request: HttpRequest) -> Response[Any]:
        return await handler(request)

    errors = create_error_handlers([protocol])
    return _application(Litestar, [handle_any], max_request_bytes, access or HttpAccess(None), [], errors, origins)


def _application(
    application_class: type[ApplicationT],
    route_handlers: Sequence[HTTPRouteHandler | ASGIRouteHandler],
    max_request_bytes: int,
    access: HttpAccess,
    lifespan: Sequence[Lifespan],
    errors: ErrorHandlers,
    origins: Sequence[str] = (),
) -> ApplicationT:
    with _hidden_pydantic():
        return application_class(
            route_handlers=route_handlers,
            guards=[access.guard],
            exception_handlers=errors,
            before_send=[audit_response, add_id_headers],
            cors_config=CORSConfig(allow_origins=list(origins), **_CORS) if origins else None,
            compression_config=CompressionConfig(
                backend="gzip",
                minimum_size=MIN_COMPRESSED_BYTES,
                gzip_compress_level=1,
                middleware_class=_Compression,
                exclude=[*STREAMED_PATHS],
                exclude_opt_key=UNCOMPRESSED,
            ),
            request_max_body_size=max_request_bytes,
            lifespan=list(lifespan),
            openapi_config=None,
            logging_config=None,
        )


class _Compression(CompressionMiddleware):
    """Compress responses, unless the client refuses gzip with a weight of zero, which Litestar does not read."""

    def create_compression_send_wrapper(self, send: Send, compression_encoding: str, scope: Scope) -> Send:
        is_refused = GZIP_REFUSED.search(Headers.from_scope(scope).get("accept-encoding", ""))
        return send if is_refused else super().create_compression_send_wrapper(send, compression_encoding, scope)


@contextmanager
def _hidden_pydantic() -> Generator[None]:
    """Keep Litestar from importing pydantic, which no handler uses: it takes 100 ms and 7 MB."""
    if "pydantic" in sys.modules:
        yield
        return
    sys.modules["pydantic"] = cast("Any", None)
    try:
        yield
    finally:
        del sys.modules["pydantic"]


class HeadSupport(Litestar):
    """Extend Litestar so that GET routes handle HEAD with the same status and headers, without a body.

    Attributes:
        costly_prefixes: prefixes of paths where GET may return a long export, or a stream without an end.
    """

    costly_prefixes: tuple[str, ...] = ()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one request, or the lifespan of the application."""
        if scope["type"] == "http":
            # The router treats several slashes as one.
            supports_head = not f"/{scope['path'].lstrip('/')}".startswith(self.costly_prefixes)
            if scope["method"] == "HEAD" and supports_head:
                scope, send = {**scope, "method": "GET"}, _without_body(send)
            send = self._with_allowed_methods(scope, send, supports_head)
        await super().__call__(scope, receive, send)

    @cached_property
    def _methods_by_path(self) -> Mapping[str, set[str]]:
        return {route.path_format: set(route.methods) for route in self.routes if isinstance(route, HTTPRoute)}

    @cached_property
    def _methods_by_verb(self) -> Sequence[tuple[re.Pattern[str], Collection[str]]]:
        """Return the methods that serve a verb, such as ``:predict``, with a pattern of its paths."""
        methods_by_path: dict[str, set[str]] = {}
        for route_ in self.routes:
            for handler in route_.route_handlers if isinstance(route_, HTTPRoute) else ():
                for verb in handler.opt.get(VERBS, ()):
                    methods_by_path.setdefault(f"{route_.path}:{verb}", set()).update(handler.http_methods)
        return [(path_pattern(path), methods) for path, methods in methods_by_path.items()]

    def _with_allowed_methods(self, scope: Any, send: Send, supports_head: bool) -> Send:
        """Wrap `send` so that Allow lists all methods of the path in responses to OPTIONS and in 405."""

        async def send_methods(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in _STATUSES_WITH_ALLOW:
                headers = [
                    (name, self._allowed_methods(scope, value, supports_head) if name.lower() == b"allow" else value)
                    for name, value in message["headers"]
                ]
                message = {**message, "headers": headers}
            await send(message)

        return send_methods

    def _allowed_methods(self, scope: Any, value: bytes, supports_head: bool) -> bytes:
        for pattern, methods in self._methods_by_verb:
            if pattern.fullmatch(scope["path"]):
                return ", ".join(sorted({*methods, "OPTIONS"})).encode("ascii")
        methods = {method.strip() for method in value.decode("ascii").split(",")}
        if scope["method"] == "OPTIONS":
            # Litestar's response lists only the methods of the first handler on the path.
            methods |= self._methods_by_path.get(scope.get("path_template"), set())
        if supports_head and "GET" in methods:
            methods.add("HEAD")
        return ", ".join(sorted(methods)).encode("ascii")


def _without_body(send: Send) -> Send:
    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return send_head
