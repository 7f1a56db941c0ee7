"""Add an observer that writes spans, if the operator names a collector."""

from urllib.parse import urlsplit

from app.core.engine.error_text import needs_extra
from app.core.hooks import Host, Parts
from app.core.settings.server import SettingsError
from app.plugins.observability.otel.settings import TracingSettings


def start(host: Host) -> Parts:
    """Return the observer of traces. Raise SettingsError if the address is not a URL, or the extra is not installed."""
    endpoint = host.settings.of(TracingSettings).otlp_endpoint
    # OpenTelemetry treats an empty variable as one that is not set.
    if not endpoint:
        return Parts()
    _check_url(endpoint, "--otlp-endpoint")
    with needs_extra("--otlp-endpoint", "otel", SettingsError):
        from app.plugins.observability.otel.tracing import Tracing, otlp_exporter
    tracing = Tracing(otlp_exporter(endpoint))
    return Parts(observers=(tracing,), close=lambda _: tracing.close())


def _check_url(url: str, option: str) -> None:
    """Check that the URL of an option is one of HTTP, without a request.

    Raise SettingsError naming the option, not the URL, which may contain a secret.
    """
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise SettingsError(f"{option}: Expected a URL that begins with http:// or https://")
