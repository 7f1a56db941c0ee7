"""Metrics of labels, scores and sizes, and traces for an OpenTelemetry collector."""

from app.core.hooks import Plugin, Ref
from app.plugins.observability.settings import TracingSettings

plugin = Plugin(
    api=2,
    extra="otel",
    settings=(TracingSettings,),
    start=Ref("app.plugins.observability.start:start"),
)
