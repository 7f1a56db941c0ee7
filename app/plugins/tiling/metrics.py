"""Count tiles."""

from prometheus_client import CollectorRegistry, Counter

from app.core.engine.request_context import RequestContext
from app.core.hooks import Host, Parts
from app.plugins.tiling.step import TILES


class TileMetrics:
    """Count the tiles of answered requests by model."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._tiles = Counter(
            "charioteer_tiles", "Tiles of large images that models processed.", ("model",), registry=registry
        )

    def observe(self, context: RequestContext, /) -> None:
        for output in context.result.outputs if context.result is not None else ():
            if TILES in output.parameters:
                self._tiles.labels(context.model_name).inc(output.parameters[TILES])  # type: ignore[arg-type]


def start(host: Host) -> Parts:
    """Return the observer that counts tiles."""
    return Parts(observers=(TileMetrics(host.metrics),))
