"""Add the observers of predictions, and of traces if the operator names a collector."""

from urllib.parse import urlsplit

from app.core.engine.error_text import needs_extra
from app.core.hooks import Host, Parts
from app.core.settings.server import SettingsError
from app.plugins.observability.prediction_metrics import count_predictions
from app.plugins.observability.settings import TracingSettings


def start(host: Host) -> Parts:
    """Return the observers. Raise SettingsError if the collector's address is not a URL, or the extra is missing."""
    endpoint, predictions = host.settings.of(TracingSettings).otlp_endpoint, count_predictions(host)
    # OpenTelemetry treats an empty variable as one that is not set.
    if not endpoint:
        return Parts(observers=(predictions,))
    if not _is_http(endpoint):
        # The address may contain a secret.
        raise SettingsError("--otlp-endpoint: Expected a URL that begins with http:// or https://")
    with needs_extra("--otlp-endpoint", "otel", SettingsError):
        from app.plugins.observability.tracing import Tracing, otlp_exporter
    tracing = Tracing(otlp_exporter(endpoint))
    return Parts(observers=(predictions, tracing), close=lambda _: tracing.close())


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
