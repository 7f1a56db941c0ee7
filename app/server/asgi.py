"""Create the HTTP applications of an engine."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from litestar import Litestar, Response, get, route
from litestar.config.compression import CompressionConfig
from litestar.config.cors import CORSConfig
from litestar.handlers import ASGIRouteHandler, HTTPRouteHandler
from litestar.plugins.base import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin
from prometheus_client import CollectorRegistry, generate_latest

from app.engine.engine import Engine
from app.protocols.caller import return_ids
from app.protocols.media_type import PROMETHEUS
from app.protocols.protocol import HttpListener, HttpProtocol, HttpRequest
from app.server.access.audit import audit_response
from app.server.access.http import HttpAccess, needs
from app.server.dispatch import handlers
from app.server.errors import ErrorHandlers, routing_errors
from app.server.head import AnsweringHead
from app.server.inferences import Inferences
from app.server.openapi import OWN_OPERATIONS, describe_service
from app.server.page.page import EVENTS_PATH, Page
from app.server.reference import HEADERS as REFERENCE_HEADERS
from app.server.reference import reference_page

__all__ = ("create_app", "create_listener_app")

_EVERY_METHOD = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
_MIN_COMPRESSED_BYTES = 1000
_STREAMED = ["generate_stream", "infer/predict", EVENTS_PATH]
"""Paths with streamed responses: compression would delay their parts."""

_EVENT_ATTRIBUTES = ("datacontenttype", "dataschema", "id", "source", "specversion", "subject", "time", "type")
_EVENT_HEADERS = [f"ce-{name}" for name in _EVENT_ATTRIBUTES]
"""Attributes of a CloudEvent in binary mode. Extensions are missing because a preflight cannot list patterns."""

_CORS: Any = {
    "allow_methods": ["GET", "POST"],
    # The header of the page is missing because other sites must not send it.
    "allow_headers": [
        "authorization",
        "chariot-inference-base-id",
        "chariot-inference-parameters",
        *_EVENT_HEADERS,
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
        *_EVENT_HEADERS,
        "inference-header-content-length",
        "retry-after",
        "x-request-id",
    ],
}

Lifespan = Callable[[Litestar], AbstractAsyncContextManager[None]]


class _Application(Litestar):
    """Create a Litestar application without support for pydantic and attrs models, which nothing here uses.

    Litestar enables it if pydantic is installed, and the import slows the start.
    """

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]


class _MainApplication(AnsweringHead, _Application):
    """The application of the main port. Applications on other ports handle HEAD themselves."""


def create_app(
    engine: Engine,
    protocols: Sequence[HttpProtocol],
    metrics: CollectorRegistry,
    max_request_bytes: int,
    lifespan: Lifespan | None = None,
    listeners: Sequence[HttpListener] = (),
    page: Page | None = None,
    inferences: Inferences | None = None,
    access: HttpAccess | None = None,
    origins: Sequence[str] = (),
) -> Litestar:
    """Create the application of the main port: routes of all protocols, and the server's own.

    Its own routes are ``/`` with liveness and model names, ``/healthz``, ``/metrics``, ``/schema`` and ``/docs``.

    Args:
        engine: runs the inferences.
        protocols: protocols to mount.
        metrics: registry that ``/metrics`` exports.
        max_request_bytes: limit of the body; larger ones get 413.
        lifespan: context around all requests.
        listeners: protocols on ports of their own, which ``/schema`` describes too.
        page: the page that browsers get at ``/``.
        inferences: routes of recorded inferences.
        access: authorization; None allows everything.
        origins: origins whose pages may read responses (CORS).
    """
    access = access or HttpAccess(None)

    @get(
        "/",
        sync_to_thread=False,
        opt=needs(lambda connection: "read" if page and page.is_wanted(connection) else "open"),
    )
    def alive(request: HttpRequest) -> Response[Any]:
        shown = page.answer(request) if page is not None else None
        if shown is not None:
            return shown
        if not access.allows(request.scope, "infer"):
            return Response({"status": "alive"}, media_type="application/json", headers={"Vary": "Accept"})
        models = sorted({registration.source.name for registration in engine.registry.registrations})
        state = {"status": "alive", "models": models, "protocols": [protocol.name for protocol in protocols]}
        return Response(state, media_type="application/json", headers={"Vary": "Accept"})

    @get("/metrics", sync_to_thread=False, opt=needs("read"))
    def show_metrics() -> Response[bytes]:
        return Response(generate_latest(metrics), media_type=PROMETHEUS)

    def describe() -> dict[str, Any]:
        endpoints = {protocol.name: protocol.endpoints(engine) for protocol in (*protocols, *listeners)}
        own = [*OWN_OPERATIONS, *(inferences.operations if inferences else ())]
        return describe_service({**endpoints, "charioteer": own}, listeners, secured=access.asks)

    @get(["/schema", "/schema/openapi.json"], sync_to_thread=True, opt=needs("read"))
    def show_schema() -> dict[str, Any]:
        return describe()

    @get("/openapi.json", sync_to_thread=False, opt=needs("read"))
    def find_schema() -> Response[None]:
        # The location is relative, so that a proxy can serve the application under any path.
        return Response(None, status_code=307, headers={"Location": "schema/openapi.json"})

    @get("/docs", sync_to_thread=True, opt=needs("read"))
    def show_reference() -> Response[bytes]:
        return Response(reference_page(describe()), media_type="text/html", headers=REFERENCE_HEADERS)

    @get("/healthz", sync_to_thread=False, opt=needs("open"))
    def show_liveness() -> dict[str, str]:
        return {"status": "alive"}

    own = [alive, show_metrics, show_schema, find_schema, show_reference, show_liveness]
    served = [*handlers(protocols, engine, access), *own, *(page.handlers if page else ())]
    served += inferences.handlers if inferences else ()
    lifespans = [context for context in (lifespan, page and page.lifespan) if context is not None]
    errors = routing_errors(protocols)
    return _application(served, max_request_bytes, access, lifespans, errors, origins, kind=_MainApplication)


def create_listener_app(
    engine: Engine, protocol: HttpListener, max_request_bytes: int, access: HttpAccess | None = None
) -> Litestar:
    """Create the application of a protocol with a port of its own, which handles every path and method there."""
    answer = protocol.answer(engine)

    @route(["/", "/{path:path}"], http_method=_EVERY_METHOD, status_code=200, opt=needs(protocol.permission))
    async def handle_any(request: HttpRequest) -> Response[Any]:
        return await answer(request)

    return _application([handle_any], max_request_bytes, access or HttpAccess(None), [], routing_errors([protocol]))


def _application(
    route_handlers: Sequence[HTTPRouteHandler | ASGIRouteHandler],
    max_request_bytes: int,
    access: HttpAccess,
    lifespan: Sequence[Lifespan],
    errors: ErrorHandlers,
    origins: Sequence[str] = (),
    *,
    kind: type[Litestar] = _Application,
) -> Litestar:
    return kind(
        route_handlers=route_handlers,
        guards=[access.guard],
        exception_handlers=errors,
        before_send=[audit_response, return_ids],
        cors_config=CORSConfig(allow_origins=list(origins), **_CORS) if origins else None,
        compression_config=CompressionConfig(
            backend="gzip", minimum_size=_MIN_COMPRESSED_BYTES, gzip_compress_level=1, exclude=_STREAMED
        ),
        request_max_body_size=max_request_bytes,
        lifespan=list(lifespan),
        openapi_config=None,
        logging_config=None,
    )
