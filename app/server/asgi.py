"""The HTTP application over an engine."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from litestar import Litestar, Response, get, route
from litestar.config.compression import CompressionConfig
from litestar.handlers import ASGIRouteHandler, HTTPRouteHandler
from litestar.plugins.base import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from app.engine.engine import Engine
from app.protocols.caller import return_ids
from app.protocols.protocol import HttpListener, HttpProtocol, HttpRequest
from app.server.dispatch import handlers
from app.server.errors import routing_errors
from app.server.inferences import Inferences
from app.server.openapi import describe_service
from app.server.page.page import EVENTS_PATH, Page

__all__ = ("create_app", "create_listener_app")

_EVERY_METHOD = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
_WORTH_COMPRESSING = 16 * 1024
_STREAMED = ["generate_stream", "infer/predict", EVENTS_PATH]
"""Paths whose answers are told part by part, always or at times: compressing would hold the parts back."""

Lifespan = Callable[[Litestar], AbstractAsyncContextManager[None]]


class _Application(Litestar):
    """Litestar without support for pydantic and attrs models, which nothing here uses.

    It is on by default wherever pydantic happens to be installed, and importing it slows the start.
    """

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]


def create_app(
    engine: Engine,
    protocols: Sequence[HttpProtocol],
    metrics: CollectorRegistry,
    max_request_bytes: int,
    lifespan: Lifespan | None = None,
    listeners: Sequence[HttpListener] = (),
    page: Page | None = None,
    inferences: Inferences | None = None,
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
    """

    @get("/", sync_to_thread=False)
    def alive(request: HttpRequest) -> Response[Any]:
        shown = page.answer(request) if page is not None else None
        if shown is not None:
            return shown
        models = sorted({each.source.name for each in engine.registry.registrations})
        state = {"status": "alive", "models": models, "protocols": [each.name for each in protocols]}
        return Response(state, media_type="application/json", headers={"Vary": "Accept"})

    @get("/metrics", sync_to_thread=False)
    def show_metrics() -> Response[bytes]:
        return Response(generate_latest(metrics), media_type=CONTENT_TYPE_LATEST)

    @get(["/schema", "/schema/openapi.json"], sync_to_thread=True)
    def show_schema() -> dict[str, Any]:
        return describe_service({each: each.endpoints(engine) for each in (*protocols, *listeners)}, listeners)

    served = [*handlers(protocols, engine), alive, show_metrics, show_schema, *(page.handlers if page else ())]
    served += inferences.handlers if inferences else ()
    lifespans = [each for each in (lifespan, page and page.lifespan) if each is not None]
    return _application(served, max_request_bytes, lifespans, protocols)


def create_listener_app(engine: Engine, protocol: HttpListener, max_request_bytes: int) -> Litestar:
    """The application of a protocol that has a port of its own, and answers every path and method there."""
    answer = protocol.answer(engine)

    @route(["/", "/{path:path}"], http_method=_EVERY_METHOD, status_code=200)
    async def anything(request: HttpRequest) -> Response[Any]:
        return await answer(request)

    return _application([anything], max_request_bytes, [])


def _application(
    route_handlers: Sequence[HTTPRouteHandler | ASGIRouteHandler],
    max_request_bytes: int,
    lifespan: Sequence[Lifespan],
    protocols: Sequence[HttpProtocol] = (),
) -> Litestar:
    return _Application(
        route_handlers=route_handlers,
        exception_handlers=routing_errors(protocols),
        before_send=[return_ids],
        compression_config=CompressionConfig(
            backend="gzip", minimum_size=_WORTH_COMPRESSING, gzip_compress_level=1, exclude=_STREAMED
        ),
        request_max_body_size=max_request_bytes,
        lifespan=list(lifespan),
        openapi_config=None,
        logging_config=None,
    )
