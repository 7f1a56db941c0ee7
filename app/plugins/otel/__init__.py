"""Traces for an OpenTelemetry collector."""

from app.core.hooks import Plugin, Ref
from app.plugins.otel.settings import TracingSettings

plugin = Plugin(
    api=1,
    extra="otel",
    settings=(TracingSettings,),
    start=Ref("app.plugins.otel.start:start"),
)
