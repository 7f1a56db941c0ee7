"""Add the metrics to a server."""

from collections.abc import Collection
from functools import partial

from app.core.engine.models.registry import Registry
from app.core.hooks import Host, Parts
from app.plugins.prediction_metrics.metrics import PredictionMetrics


def start(host: Host) -> Parts:
    """Return the observer that counts predictions."""
    return Parts(observers=(PredictionMetrics(host.metrics, partial(_labels, host.engine.registry)),))


def _labels(registry: Registry, model: str) -> Collection[str]:
    """Return the labels that any loaded version of a model declares."""
    servables = [registration.servable for registration in registry.versions(model)]
    return {label for servable in servables if servable is not None for label in servable.description.labels}
