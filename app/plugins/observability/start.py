"""Add the observers of predictions and of traces."""

from msgspec import structs

from app.core.hooks import Host, Parts
from app.plugins.observability.otel.start import start as start_tracing
from app.plugins.observability.prediction_metrics.metrics import count_predictions


def start(host: Host) -> Parts:
    """Return the observers. Raise SettingsError if the collector's address is not a URL, or the extra is missing."""
    traces = start_tracing(host)
    return structs.replace(traces, observers=(count_predictions(host), *traces.observers))
