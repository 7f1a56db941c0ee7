"""Count inferences for the statistics extension, and name the extensions in the server's metadata."""

from app.core.hooks import Host, Parts
from app.plugins.triton.statistics import Statistics


def start(_: Host) -> Parts:
    """Return the observer and the names."""
    return Parts(
        batched_observers=(Statistics(),), extensions=("statistics", "model_repository", "model_configuration")
    )
