"""Create the HTTP applications of an engine."""

import sys
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar, cast

import msgspec
from litestar import Litestar, Response, get, route
from litestar.handlers import ASGIRouteHandler, HTTPRouteHandler
from litestar.types import ASGIApp, Message, Send
from prometheus_client import CollectorRegistry, generate_latest

from app.core.engine.engine import Engine
from app.core.protocols.inference_call import PROMETHEUS
from app.core.protocols.protocol import Endpoint, HttpListener, HttpProtocol, HttpRequest
from app.core.protocols.request_info import add_id_headers
from app.core.server.auth.audit import audit_response
from app.core.server.auth.http_access import Connection, HttpAccess, requires
from app.core.server.http.dispatch import AllowedMethods, create_handlers
from app.core.server.http.errors import create_error_handlers, rejection_body_builder
from app.core.server.http.exchange import COMPRESSION, Bodies
from app.core.server.http.inference_app import Application, InferenceApp
from app.core.server.http.request_rules import cors_config, find_state_changing_paths, guard_requests
from app.core.server.http.route_table import RouteTable

_ALL_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
_STATUSES_WITH_ALLOW = (204, 405)
"""Status codes of responses with the header Allow."""

Lifespan = Callable[[Litestar], AbstractAsyncContextManager[None]]
Home = Callable[[HttpRequest], Response[Any]]


class ServedOperations(msgspec.Struct, frozen=True, eq=False):
    """Provided by core, to describe a server: the operations of its main port by protocol."""

    by_tag: Callable[[], Mapping[str, Sequence[Endpoint]]]
    access: HttpAccess


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What stands before the routes of an application.

    Attributes:
        hosts: names that `Host` may have besides the loopback names; None for any name.
        bodies: limits of bodies, which the ports of a server share; by default `max_request_bytes` alone.
        origins: origins whose pages may send requests and read responses (CORS), or ``*`` for any.
        write_timeout: seconds that a client may leave a part of a stream unread.
    """

    hosts: Collection[str] | None = None
    bodies: Bodies | None = None
    origins: Sequence[str] = ()
    write_timeout: float | None = None


def create_app(
    engine: Engine,
    protocols: Sequence[HttpProtocol],
    metrics: CollectorRegistry,
    max_request_bytes: int,
    lifespan: Lifespan | None = None,
    home: Home | None = None,
    access: HttpAccess | None = None,
    entry: Entry | None = None,
    handlers: Sequence[HTTPRouteHandler | ASGIRouteHandler] = (),
    operations: Sequence[Endpoint] = (),
    costly_prefixes: Sequence[str] = (),
) -> Litestar:
    """Create the application of the main port: routes of all protocols, and the server's own.

    Its own routes are ``/`` with liveness and model names, ``/healthz`` and ``/metrics``. Plugins add
    `handlers`, which `operations` describe, and `home`, which answers ``/`` for browsers. HEAD is rejected below
    `costly_prefixes`.
    """
    access = access or HttpAccess(None)

    def is_for_browser(connection: Connection) -> bool:
        return home is not None and _wants_html(connection.headers.get("accept", ""))

    @get(
        "/",
        sync_to_thread=False,
        opt=requires(lambda connection: "read" if is_for_browser(connection) else "open"),
    )
    def alive(request: HttpRequest) -> Response[Any]:
        if home is not None and is_for_browser(request):
            return home(request)
        state: dict[str, Any] = {"status": "alive"}
        if access.allows(request.scope, "infer"):
            state["models"] = engine.registry.names
            state["protocols"] = [protocol.name for protocol in protocols]
        return Response(state, media_type="application/json", headers={"Vary": "Accept"})

    @get("/metrics", sync_to_thread=False, opt=requires("read"))
    def show_metrics() -> Response[bytes]:
        engine.batched_observers.flush()
        return Response(generate_latest(metrics), media_type=PROMETHEUS)

    @get("/healthz", sync_to_thread=False, opt=requires("open"))
    def show_liveness() -> dict[str, str]:
        return {"status": "alive"}

    def by_tag() -> Mapping[str, Sequence[Endpoint]]:
        endpoints = {protocol.name: protocol.endpoints(engine) for protocol in protocols}
        return {**endpoints, "charioteer": operations}

    own_handlers = [alive, show_metrics, show_liveness]
    allowed = AllowedMethods()
    route_handlers = [*create_handlers(protocols, engine, access, allowed), *own_handlers, *handlers]
    allowed.add([*own_handlers, *handlers])
    app = _application(HeadSupport, engine, protocols, route_handlers, max_request_bytes, access, entry, lifespan)
    app.costly_prefixes, app.allowed = tuple(costly_prefixes), allowed
    engine.provided.provide(ServedOperations, ServedOperations(by_tag, access))
    return app


def create_listener_app(
    engine: Engine,
    protocol: HttpListener,
    max_request_bytes: int,
    access: HttpAccess | None = None,
    entry: Entry | None = None,
) -> Litestar:
    """Create the application of a protocol with a port of its own, which handles every path and method there."""
    access = access or HttpAccess(None)
    handler = protocol.handler(engine)

    @route(["/", "/{path:path}"], http_method=_ALL_METHODS, status_code=200, opt=requires(protocol.permission))
    async def handle_any(request: HttpRequest) -> Response[Any]:
        return await handler(request)

    return _application(Application, engine, [protocol], [handle_any], max_request_bytes, access, entry)


def _application(
    application_class: "type[ApplicationT]",
    engine: Engine,
    protocols: Sequence[HttpProtocol],
    route_handlers: Sequence[HTTPRouteHandler | ASGIRouteHandler],
    max_request_bytes: int,
    access: HttpAccess,
    entry: Entry | None,
    lifespan: Lifespan | None = None,
) -> "ApplicationT":
    """Return an application with the rules and the inferences of its port before its routes."""
    entry = entry or Entry()
    cors = cors_config(entry.origins, protocols)
    with _hidden_pydantic():
        app = application_class(
            route_handlers=route_handlers,
            guards=[access.guard],
            exception_handlers=create_error_handlers(protocols),
            before_send=[audit_response, add_id_headers],
            cors_config=cors,
            compression_config=COMPRESSION,
            request_max_body_size=max_request_bytes,
            lifespan=[] if lifespan is None else [lifespan],
            openapi_config=None,
            logging_config=None,
        )
    bodies = entry.bodies or Bodies(max_request_bytes)
    routes = RouteTable(engine, protocols)
    inferences = InferenceApp(engine, routes, app.answer_other, access, bodies, cors, entry.write_timeout)
    app.before_routes = guard_requests(
        cast("ASGIApp", inferences),
        state_changing_paths=find_state_changing_paths(protocols, engine),
        hosts=entry.hosts,
        origins=entry.origins,
        rejection_body=rejection_body_builder(protocols, routes),
    )
    return app


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


ApplicationT = TypeVar("ApplicationT", bound=Application)


class HeadSupport(Application):
    """Extend Litestar so that GET routes handle HEAD with the same status and headers, without a body.

    Attributes:
        costly_prefixes: prefixes of paths where GET may return a long export, or a stream without an end.
        allowed: the methods of all paths.
    """

    costly_prefixes: tuple[str, ...] = ()
    allowed = AllowedMethods()

    async def answer_other(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request that is no inference."""
        # The router treats several slashes as one.
        supports_head = not f"/{scope['path'].lstrip('/')}".startswith(self.costly_prefixes)
        if scope["method"] == "HEAD" and supports_head:
            scope, send = {**scope, "method": "GET"}, _without_body(send)
        await super().answer_other(scope, receive, self._with_allowed_methods(scope["path"], send, supports_head))

    def _with_allowed_methods(self, path: str, send: Send, supports_head: bool) -> Send:
        """Wrap `send` so that Allow lists all methods of the path in responses to OPTIONS and in 405."""

        async def send_methods(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in _STATUSES_WITH_ALLOW:
                headers = [
                    (name, self._allowed_methods(path, value, supports_head) if name.lower() == b"allow" else value)
                    for name, value in message["headers"]
                ]
                message = {**message, "headers": headers}
            await send(message)

        return send_methods

    def _allowed_methods(self, path: str, value: bytes, supports_head: bool) -> bytes:
        # Litestar's list has only the methods of the first handler on the path in a response to OPTIONS.
        methods = self.allowed.of(path) or {method.strip() for method in value.decode("ascii").split(",")}
        head = {"HEAD"} if supports_head and "GET" in methods else set[str]()
        return ", ".join(sorted({*methods, *head, "OPTIONS"})).encode("ascii")


def _without_body(send: Send) -> Send:
    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return send_head


def _wants_html(accept: str) -> bool:
    """Return whether `Accept` prefers HTML to JSON, as browsers do and health checks do not."""
    qualities = dict(_quality(part) for part in accept.lower().split(","))
    return qualities.get("text/html", 0) > qualities.get("application/json", 0)


def _quality(text: str) -> tuple[str, float]:
    media_type, *parameters = (part.strip() for part in text.split(";"))
    quality = next((parameter[2:] for parameter in parameters if parameter.startswith("q=")), "1")
    try:
        return media_type, float(quality)
    except ValueError:
        return media_type, 0
