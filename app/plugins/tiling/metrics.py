"""Count tiles."""

from prometheus_client import Counter

from app.core.hooks import Host, Parts

TILES = Counter("charioteer_tiles", "Tiles of large images that models processed.", ("model",), registry=None)
"""By model. It belongs to the process, so that a request without tiles is not observed."""


def start(host: Host) -> Parts:
    """Add the counter to the metrics of the server."""
    host.metrics.register(TILES)
    return Parts()
