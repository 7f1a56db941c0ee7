"""The HTTP application over an engine."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from litestar import Litestar, Response, get, route
from litestar.config.compression import CompressionConfig
from litestar.config.cors import CORSConfig
from litestar.handlers import ASGIRouteHandler, HTTPRouteHandler
from litestar.plugins.base import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from app.engine.engine import Engine
from app.protocols.caller import return_ids
from app.protocols.protocol import HttpListener, HttpProtocol, HttpRequest
from app.server.access.audit import audit_response
from app.server.access.http import HttpAccess, needs
from app.server.dispatch import handlers
from app.server.errors import ErrorHandlers, routing_errors
from app.server.head import AnsweringHead
from app.server.inferences import Inferences
from app.server.openapi import OWN_OPERATIONS, describe_service
from app.server.page.page import EVENTS_PATH, Page

__all__ = ("create_app", "create_listener_app")

_EVERY_METHOD = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
_WORTH_COMPRESSING = 16 * 1024
_STREAMED = ["generate_stream", "infer/predict", EVENTS_PATH]
"""Paths whose answers are told part by part, always or at times: compressing would hold the parts back."""

_CORS: Any = {
    "allow_methods": ["GET", "POST"],
    # Without the header of the page, which nobody else has business sending.
    "allow_headers": [
        "authorization",
        "content-type",
        "inference-header-content-length",
        "traceparent",
        "x-api-key",
        "x-request-id",
        "x-request-timeout-ms",
    ],
    "expose_headers": ["inference-header-content-length", "retry-after", "x-request-id"],
}

Lifespan = Callable[[Litestar], AbstractAsyncContextManager[None]]


class _Application(Litestar):
    """Litestar without support for pydantic and attrs models, which nothing here uses.

    It is on by default wherever pydantic happens to be installed, and importing it slows the start.
    """

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]


class _MainApplication(AnsweringHead, _Application):
    """That of the main port. What has a port of its own says itself what becomes of HEAD there."""


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
    """The application: every protocol's routes; ``/`` with liveness and model names, ``/metrics`` and ``/schema``.

    Args:
        engine: answers the inferences.
        protocols: whose routes to mount.
        metrics: what ``/metrics`` shows.
        max_request_bytes: a larger body is refused with 413.
        lifespan: entered before the first request and left after the last.
        listeners: protocols on ports of their own, which ``/schema`` tells of too.
        page: what browsers are shown at ``/``.
        inferences: what was recorded.
        access: who may do what; everybody everything when None.
        origins: whose pages may read answers.
    """
    access = access or HttpAccess(None)

    @get("/", sync_to_thread=False, opt=needs(lambda asked: "read" if page and page.is_wanted(asked) else "open"))
    def alive(request: HttpRequest) -> Response[Any]:
        shown = page.answer(request) if page is not None else None
        if shown is not None:
            return shown
        if not access.allows(request.scope, "infer"):
            return Response({"status": "alive"}, media_type="application/json", headers={"Vary": "Accept"})
        models = sorted({each.source.name for each in engine.registry.registrations})
        state = {"status": "alive", "models": models, "protocols": [each.name for each in protocols]}
        return Response(state, media_type="application/json", headers={"Vary": "Accept"})

    @get("/metrics", sync_to_thread=False, opt=needs("read"))
    def show_metrics() -> Response[bytes]:
        return Response(generate_latest(metrics), media_type=CONTENT_TYPE_LATEST)

    @get(["/schema", "/schema/openapi.json"], sync_to_thread=True, opt=needs("read"))
    def show_schema() -> dict[str, Any]:
        told = {each.name: each.endpoints(engine) for each in (*protocols, *listeners)}
        own = [*OWN_OPERATIONS, *(inferences.operations if inferences else ())]
        return describe_service({**told, "charioteer": own}, listeners, secured=access.asks)

    served = [*handlers(protocols, engine, access), alive, show_metrics, show_schema, *(page.handlers if page else ())]
    served += inferences.handlers if inferences else ()
    lifespans = [each for each in (lifespan, page and page.lifespan) if each is not None]
    errors = routing_errors(protocols)
    return _application(served, max_request_bytes, access, lifespans, errors, origins, kind=_MainApplication)


def create_listener_app(
    engine: Engine, protocol: HttpListener, max_request_bytes: int, access: HttpAccess | None = None
) -> Litestar:
    """The application of a protocol that has a port of its own, and answers every path and method there."""
    answer = protocol.answer(engine)

    @route(["/", "/{path:path}"], http_method=_EVERY_METHOD, status_code=200, opt=needs(protocol.permission))
    async def anything(request: HttpRequest) -> Response[Any]:
        return await answer(request)

    return _application([anything], max_request_bytes, access or HttpAccess(None), [], routing_errors([protocol]))


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
            backend="gzip", minimum_size=_WORTH_COMPRESSING, gzip_compress_level=1, exclude=_STREAMED
        ),
        request_max_body_size=max_request_bytes,
        lifespan=list(lifespan),
        openapi_config=None,
        logging_config=None,
    )
