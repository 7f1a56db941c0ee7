"""Options of `serve` for traces."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from app.core.settings.environment import LOGGING, environment


@Parameter(name="*", group=LOGGING)
@dataclass(frozen=True, kw_only=True)
class TracingSettings:
    """Traces for an OpenTelemetry collector."""

    otlp_endpoint: Annotated[
        str | None, environment("CHARIOTEER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT", show=True)
    ] = None
    """Base URL of an OTLP collector over HTTP that receives traces. Needs the extra otel."""
