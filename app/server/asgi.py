"""The HTTP application over an engine."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from litestar import Litestar, Response, get
from litestar.config.compression import CompressionConfig
from litestar.plugins.base import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from app.engine.engine import Engine
from app.protocols.caller import return_ids
from app.protocols.protocol import HttpProtocol
from app.server.dispatch import handlers
from app.server.errors import routing_errors
from app.server.openapi import describe_service

__all__ = ("create_app",)

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
) -> Litestar:
    """The application: every protocol's routes; ``/`` with liveness and model names, ``/metrics`` and ``/schema``.

    Args:
        engine: answers the inferences.
        protocols: whose routes to mount.
        metrics: what ``/metrics`` shows.
        max_request_bytes: a larger body is refused with 413.
        lifespan: entered before the first request and left after the last.
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
        return describe_service({protocol: protocol.endpoints(engine) for protocol in protocols})

    return _Application(
        route_handlers=[*handlers(protocols, engine), alive, show_metrics, show_schema],
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
