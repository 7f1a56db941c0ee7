"""The HTTP application over an engine."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from litestar import Litestar, Response, get, route
from litestar.config.compression import CompressionConfig
from litestar.handlers import HTTPRouteHandler
from litestar.plugins.base import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from app.engine.engine import Engine
from app.protocols.caller import return_ids
from app.protocols.protocol import HttpListener, HttpProtocol, HttpRequest
from app.server.dispatch import handlers
from app.server.errors import routing_errors
from app.server.openapi import describe_service

__all__ = ("create_app", "create_listener_app")

_EVERY_METHOD = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
_WORTH_COMPRESSING = 16 * 1024
_STREAMED = "generate_stream"
"""Paths whose answers are events: compressing would hold them back."""

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
) -> Litestar:
    """The application: every protocol's routes; ``/`` with liveness and model names, ``/metrics`` and ``/schema``.

    Args:
        engine: answers the inferences.
        protocols: whose routes to mount.
        metrics: what ``/metrics`` shows.
        max_request_bytes: a larger body is refused with 413.
        lifespan: entered before the first request and left after the last.
        listeners: protocols on ports of their own, which ``/schema`` tells of too.
    """

    @get("/", sync_to_thread=False)
    def alive() -> dict[str, object]:
        models = sorted({each.source.name for each in engine.registry.registrations})
        return {"status": "alive", "models": models, "protocols": [each.name for each in protocols]}

    @get("/metrics", sync_to_thread=False)
    def show_metrics() -> Response[bytes]:
        return Response(generate_latest(metrics), media_type=CONTENT_TYPE_LATEST)

    @get(["/schema", "/schema/openapi.json"], sync_to_thread=True)
    def show_schema() -> dict[str, Any]:
        return describe_service({each: each.endpoints(engine) for each in (*protocols, *listeners)})

    shown = [*handlers(protocols, engine), alive, show_metrics, show_schema]
    return _application(shown, max_request_bytes, lifespan)


def create_listener_app(engine: Engine, protocol: HttpListener, max_request_bytes: int) -> Litestar:
    """The application of a protocol that has a port of its own, and answers every path and method there."""
    answer = protocol.answer(engine)

    @route(["/", "/{path:path}"], http_method=_EVERY_METHOD, status_code=200)
    async def anything(request: HttpRequest) -> Response[Any]:
        return await answer(request)

    return _application([anything], max_request_bytes, None)


def _application(route_handlers: list[HTTPRouteHandler], max_request_bytes: int, lifespan: Lifespan | None) -> Litestar:
    return _Application(
        route_handlers=route_handlers,
        exception_handlers=routing_errors(),
        before_send=[return_ids],
        compression_config=CompressionConfig(
            backend="gzip", minimum_size=_WORTH_COMPRESSING, gzip_compress_level=1, exclude=_STREAMED
        ),
        request_max_body_size=max_request_bytes,
        lifespan=[lifespan] if lifespan else [],
        openapi_config=None,
        logging_config=None,
    )
