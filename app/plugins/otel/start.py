"""Add an observer that writes spans, if the operator names a collector."""

from app.core.engine.error_text import needs_extra
from app.core.hooks import Host, Parts
from app.core.settings.server import SettingsError, check_url
from app.plugins.otel.settings import TracingSettings


def start(host: Host) -> Parts:
    """Return the observer of traces. Raise SettingsError if the address is not a URL, or the extra is not installed."""
    endpoint = host.settings.of(TracingSettings).otlp_endpoint
    # OpenTelemetry treats an empty variable as one that is not set.
    if not endpoint:
        return Parts()
    check_url(endpoint, "--otlp-endpoint")
    with needs_extra("--otlp-endpoint", "otel", SettingsError):
        from app.plugins.otel.tracing import Tracing, otlp_exporter
    tracing = Tracing(otlp_exporter(endpoint))
    return Parts(observers=(tracing,), close=lambda _: tracing.close())
